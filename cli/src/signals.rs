//! SIGINT and SIGTERM: exit status 130 or 143, at once; or, where that would leave something unfinished, when it is
//! finished or cleaned up, and then only a second signal ends the process at once.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{iterator, low_level};

use cohop::{Error, Result};

use super::output;

/// What was heard of signals.
#[derive(Clone, Debug)]
pub(super) struct Signals {
    /// Whether one came, or the next one ends the process at once.
    pub flag: Arc<AtomicBool>,
    /// The one that came, or 0.
    number: Arc<AtomicI32>,
}

impl Signals {
    /// Listens from now on, in a thread of its own: the first signal ends the process at once.
    pub fn end_at_once() -> Result<Self> {
        let signals = Signals { flag: Arc::new(AtomicBool::new(true)), number: Arc::default() };
        let mut heard = iterator::Signals::new([SIGINT, SIGTERM]).map_err(|e| Error::io("signals", e))?;
        let listener = signals.clone();
        let listen = move || heard.forever().for_each(|signal| listener.hear(signal));
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(listen)
            .map_err(|e| Error::io("signals", e))?;
        Ok(signals)
    }

    fn hear(&self, signal: i32) {
        self.number.store(signal, Ordering::SeqCst);
        if self.flag.swap(true, Ordering::SeqCst) {
            output::message("cohop: interrupted at once; what was not finished is not kept");
            low_level::exit(128 + signal);
        }
    }

    /// From now on the first signal only raises the flag.
    pub fn hold_on(&self) {
        self.flag.store(false, Ordering::SeqCst);
    }

    /// Does what a signal must not interrupt; then the next one ends the process at once. Also tells the exit status if
    /// one came meanwhile.
    pub fn hold<R>(&self, work: impl FnOnce() -> Result<R>) -> Result<(R, Option<ExitCode>)> {
        self.hold_on();
        let result = work();
        self.flag.store(true, Ordering::SeqCst);
        result.map(|result| (result, self.came().then(|| self.status())))
    }

    pub fn came(&self) -> bool {
        self.number.load(Ordering::SeqCst) != 0
    }

    /// The exit status of a process that a signal ended: 130 or 143.
    pub fn status(&self) -> ExitCode {
        ExitCode::from(128 + self.number.load(Ordering::SeqCst) as u8)
    }
}
