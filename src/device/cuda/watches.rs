//! What is asked while the host waits for a device: whether what it waits for can still come.

use std::fmt;
use std::sync::{Mutex, PoisonError, Weak};

use crate::error::Result;

/// A connection to other devices, on which works of this one may wait.
pub(super) trait Watched: Send + Sync {
    /// Errors: what the others were to do will not come any more. Then works that wait for it have been ended.
    fn look(&self) -> Result<()>;

    /// Whether works of this device may wait for the others now.
    #[cfg(any(test, not(feature = "emulate")))]
    fn is_under_way(&self) -> bool;
}

/// A device's connections, as long as they are.
#[derive(Default)]
pub(super) struct Watches(Mutex<Vec<Weak<dyn Watched>>>);

impl Watches {
    pub(super) fn add(&self, watched: Weak<dyn Watched>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|watched| watched.strong_count() > 0);
        all.push(watched);
    }

    /// Errors: those of the connections.
    pub(super) fn look(&self) -> Result<()> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        all.iter().filter_map(Weak::upgrade).try_for_each(|watched| watched.look())
    }

    /// Waits until nothing that waits for other devices is under way. Before calls in which the driver itself may wait
    /// for this device, or for those that share memory with it: it would hold what another device's end needs to begin.
    ///
    /// Errors: those of the connections, and of `check`, which is asked meanwhile.
    #[cfg(any(test, not(feature = "emulate")))]
    pub(super) fn settle(&self, mut check: impl FnMut() -> Result<()>) -> Result<()> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for watched in all.iter().filter_map(Weak::upgrade) {
            while watched.is_under_way() {
                check()?;
                self.look()?;
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    /// Whether there are any.
    #[cfg(not(feature = "emulate"))]
    pub(super) fn is_empty(&self) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().all(|watched| watched.strong_count() == 0)
    }
}

impl fmt::Debug for Watches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watches")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::error::Error;

    /// Is under way for so many looks more, and fails then if it is to.
    struct Exchange {
        left: AtomicUsize,
        fails: bool,
    }

    impl Watched for Exchange {
        fn look(&self) -> Result<()> {
            let left = self.left.load(Ordering::Relaxed).saturating_sub(1);
            self.left.store(left, Ordering::Relaxed);
            if left == 0 && self.fails { Err(lost()) } else { Ok(()) }
        }

        fn is_under_way(&self) -> bool {
            self.left.load(Ordering::Relaxed) > 0
        }
    }

    fn lost() -> Error {
        Error::NoCudaDevice { reason: "lost".into() }
    }

    #[test]
    fn exchanges_that_are_under_way_are_waited_for_until_they_end_or_fail() {
        let watches = Watches::default();
        let add = |left, fails| {
            let exchange = Arc::new(Exchange { left: AtomicUsize::new(left), fails });
            let watched: Arc<dyn Watched> = exchange.clone();
            watches.add(Arc::downgrade(&watched));
            exchange
        };
        watches.settle(|| panic!("nothing is under way")).unwrap();
        let exchanges = [add(3, false), add(5, false)];
        let mut n_checks = 0;
        watches
            .settle(|| {
                n_checks += 1;
                Ok(())
            })
            .unwrap();
        assert_eq!(n_checks, 5);
        assert!(exchanges.iter().all(|exchange| !exchange.is_under_way()));
        // A device that is lost meanwhile, and an end that does not come.
        let failing = add(2, true);
        assert!(watches.settle(|| Err(lost())).is_err());
        assert!(failing.is_under_way() && watches.settle(|| Ok(())).is_err());
    }
}
