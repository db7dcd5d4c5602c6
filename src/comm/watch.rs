//! Notices collectives that never end: processes can be stopped, or lose the network, without the others being told.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A thread that looks at how long collectives have taken. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    running: Arc<Running>,
    /// Dropped to end the thread.
    end: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Running {
    /// The collectives that are under way, by number: one per duplicate at most.
    since: Mutex<Vec<(u64, Instant)>>,
    next: AtomicU64,
}

impl Running {
    fn with<T>(&self, f: impl FnOnce(&mut Vec<(u64, Instant)>) -> T) -> T {
        f(&mut self.since.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A collective that is under way until this is dropped.
#[derive(Debug)]
pub(super) struct Waiting<'a> {
    running: &'a Running,
    number: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.running.with(|since| since.retain(|(number, _)| *number != self.number));
    }
}

impl Watch {
    /// Calls `too_long`, once, from a thread of its own, when a collective has taken longer than `timeout`. A timeout
    /// of 0 means never.
    ///
    /// Errors: the thread cannot be started.
    pub fn new(timeout: Duration, too_long: impl FnOnce() + Send + 'static) -> std::io::Result<Self> {
        let running = Arc::new(Running::default());
        if timeout.is_zero() {
            return Ok(Watch { running, end: None, thread: None });
        }
        let (end, ended) = mpsc::sync_channel::<()>(0);
        let watched = running.clone();
        let period = (timeout / 4).min(Duration::from_secs(1));
        let watch = move || {
            while ended.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
                let oldest = watched.with(|since| since.iter().map(|(_, begun)| begun.elapsed()).max());
                if oldest.is_some_and(|waited| waited > timeout) {
                    return too_long();
                }
            }
        };
        let thread = thread::Builder::new().name("communication watch".to_owned()).spawn(watch)?;
        Ok(Watch { running, end: Some(end), thread: Some(thread) })
    }

    /// To be kept while a collective is under way.
    pub fn begin(&self) -> Waiting<'_> {
        let number = self.running.next.fetch_add(1, Ordering::Relaxed);
        self.running.with(|since| since.push((number, Instant::now())));
        Waiting { running: &self.running, number }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // It fails only if `too_long` has panicked, which that has reported.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectives_that_take_too_long_are_noticed_and_others_are_not() {
        let (notice, noticed) = mpsc::channel();
        let watch = Watch::new(Duration::from_millis(20), move || notice.send(()).unwrap()).unwrap();
        // Each of these ends in time, even if all together take longer.
        let long_ago = Instant::now();
        while long_ago.elapsed() < Duration::from_millis(60) {
            let other = watch.begin();
            drop(watch.begin());
            drop(other);
        }
        assert!(noticed.try_recv().is_err());
        let waiting = watch.begin();
        noticed.recv_timeout(Duration::from_secs(60)).unwrap();
        drop(waiting);
        drop(watch);
    }

    #[test]
    fn a_timeout_of_zero_means_never() {
        let watch = Watch::new(Duration::ZERO, || panic!("too long")).unwrap();
        let _waiting = watch.begin();
        assert!(watch.thread.is_none());
    }
}
