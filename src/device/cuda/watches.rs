//! What is asked while the host waits for a device: whether what it waits for can still come.

use std::fmt;
use std::sync::{Mutex, PoisonError, Weak};

use crate::error::Result;

/// A connection to other devices, on which works of this one may wait.
pub(super) trait Watched: Send + Sync {
    /// Errors: what the others were to do will not come any more. Then works that wait for it have been ended.
    fn look(&self) -> Result<()>;
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
