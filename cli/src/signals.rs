//! SIGINT and SIGTERM: the first asks the run to stop, the second ends the process at once.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use cohop::{Error, Result};

/// What was heard of signals.
#[derive(Clone, Debug)]
pub(super) struct Signals {
    /// Whether one came.
    pub flag: Arc<AtomicBool>,
    number: Arc<AtomicUsize>,
}

impl Signals {
    /// Listens from now on.
    pub fn listen() -> Result<Self> {
        let signals = Signals { flag: Arc::default(), number: Arc::default() };
        let listen = |signal: i32| -> std::io::Result<()> {
            // In this order: the first signal finds the flag down, and raises it.
            flag::register_conditional_shutdown(signal, 128 + signal, signals.flag.clone())?;
            flag::register_usize(signal, signals.number.clone(), signal as usize)?;
            flag::register(signal, signals.flag.clone())?;
            Ok(())
        };
        [SIGINT, SIGTERM].into_iter().try_for_each(listen).map_err(|e| Error::io("signals", e))?;
        Ok(signals)
    }

    pub fn came(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// The exit status of a process that a signal ended: 130 or 143.
    pub fn status(&self) -> ExitCode {
        ExitCode::from(128 + self.number.load(Ordering::Relaxed) as u8)
    }
}
