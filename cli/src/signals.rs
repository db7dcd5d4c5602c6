//! SIGINT and SIGTERM: exit status 130 or 143, at once; or, where that would leave something unfinished, when it is
//! finished or cleaned up, and then only a second signal ends the process at once, without what is temporary.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{iterator, low_level};

use cohop::{Error, Result};

use super::output;

/// Removes what a process would leave unfinished.
type CleanUp = Box<dyn Fn() + Send>;

/// What was heard of signals.
#[derive(Clone)]
pub(super) struct Signals {
    /// Whether one came, or the next one ends the process at once.
    pub flag: Arc<AtomicBool>,
    /// The one that came, or 0.
    number: Arc<AtomicI32>,
    /// What is to be done before a second signal ends the process. Locked from then on.
    clean_up: Arc<Mutex<Option<CleanUp>>>,
    /// What is there for good: said when a signal ends the process.
    finished: Arc<Mutex<Option<PathBuf>>>,
}

impl Signals {
    /// Listens from now on, in a thread of its own: the first signal ends the process at once.
    pub fn end_at_once() -> Result<Self> {
        let signals = Signals {
            flag: Arc::new(AtomicBool::new(true)),
            number: Arc::default(),
            clean_up: Arc::default(),
            finished: Arc::default(),
        };
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
            // First, so that nothing is finished between what is said and what is done.
            let clean_up = lock(&self.clean_up);
            match &*lock(&self.finished) {
                Some(path) => {
                    output::message(format_args!("cohop: interrupted; {} is complete", path.display()))
                }
                None => output::message("cohop: interrupted at once; what was not finished is not kept"),
            }
            if let Some(clean_up) = &*clean_up {
                clean_up();
            }
            low_level::exit(128 + signal);
        }
    }

    /// From now on the first signal only raises the flag.
    pub fn hold_on(&self) {
        self.flag.store(false, Ordering::SeqCst);
    }

    /// Does what a signal must not interrupt, which makes `finished`; then the next one ends the process at once. Also
    /// tells the exit status if one came meanwhile. `clean_up` removes what is unfinished: if the work fails, and from
    /// another thread, while the work goes on, if a second signal ends the process.
    pub fn hold<R>(
        &self,
        finished: &Path,
        clean_up: impl Fn() + Send + 'static,
        work: impl FnOnce() -> Result<R>,
    ) -> Result<(R, Option<ExitCode>)> {
        *lock(&self.clean_up) = Some(Box::new(clean_up));
        self.hold_on();
        let result = work();
        // Waits for the end of the process, if it has begun: that the work fails is due to it.
        let mut clean_up = lock(&self.clean_up);
        match (&result, &*clean_up) {
            (Ok(_), _) => *lock(&self.finished) = Some(finished.to_owned()),
            (Err(_), Some(clean_up)) => clean_up(),
            (Err(_), None) => {}
        }
        // Not before: a signal that comes here must find nothing unfinished, and say what is there.
        self.flag.store(true, Ordering::SeqCst);
        *clean_up = None;
        drop(clean_up);
        let result = result?;
        let interrupted = self.came().then(|| {
            output::message(format_args!("cohop: interrupted; {} is complete", finished.display()));
            self.status()
        });
        Ok((result, interrupted))
    }

    pub fn came(&self) -> bool {
        self.number.load(Ordering::SeqCst) != 0
    }

    /// The exit status of a process that a signal ended: 130 or 143.
    pub fn status(&self) -> ExitCode {
        ExitCode::from(128 + self.number.load(Ordering::SeqCst) as u8)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes a folder to which somebody still writes.
pub(super) fn remove_folder(path: &Path) {
    // A file that is made meanwhile keeps its folder from being removed.
    let gone = || std::fs::remove_dir_all(path).is_ok() || !path.exists();
    let _ = (0..100).any(|_| gone());
}
