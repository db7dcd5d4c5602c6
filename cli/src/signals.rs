//! SIGINT and SIGTERM: exit status 130 or 143, at once; or, where that would leave something unfinished, when it is
//! finished or cleaned up, and then only a second signal ends the process at once.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use cohop::{Error, Result};

/// What was heard of signals.
#[derive(Clone, Debug)]
pub(super) struct Signals {
    /// Whether one came, or the next one ends the process at once.
    pub flag: Arc<AtomicBool>,
    /// The one that came, or 0.
    number: Arc<AtomicUsize>,
}

impl Signals {
    /// Listens from now on: the first signal ends the process at once.
    pub fn end_at_once() -> Result<Self> {
        let signals = Signals { flag: Arc::new(AtomicBool::new(true)), number: Arc::default() };
        let listen = |signal: i32| -> std::io::Result<()> {
            // In this order: a signal that finds the flag down raises it.
            flag::register_conditional_shutdown(signal, 128 + signal, signals.flag.clone())?;
            flag::register_usize(signal, signals.number.clone(), signal as usize)?;
            flag::register(signal, signals.flag.clone())?;
            Ok(())
        };
        [SIGINT, SIGTERM].into_iter().try_for_each(listen).map_err(|e| Error::io("signals", e))?;
        Ok(signals)
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
