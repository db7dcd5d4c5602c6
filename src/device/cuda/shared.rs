//! What a process has once for each GPU.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::error::Result;

/// A table of what is open, by the GPU's number. What nobody holds any more is dropped, and opened anew if asked for.
pub(super) struct PerOrdinal<T>(Mutex<Option<HashMap<usize, Weak<T>>>>);

impl<T> PerOrdinal<T> {
    pub(super) const fn new() -> Self {
        PerOrdinal(Mutex::new(None))
    }

    /// What is open for the GPU number `ordinal`, or what `open` returns.
    ///
    /// Errors: those of `open`, after which nothing is open.
    pub(super) fn get_or_open(&self, ordinal: usize, open: impl FnOnce() -> Result<T>) -> Result<Arc<T>> {
        // Held while it is opened: another thread that asks for the same waits, and does not open it twice.
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let table = table.get_or_insert_default();
        if let Some(opened) = table.get(&ordinal).and_then(Weak::upgrade) {
            return Ok(opened);
        }
        let opened = Arc::new(open()?);
        table.insert(ordinal, Arc::downgrade(&opened));
        Ok(opened)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::error::Error;

    #[test]
    fn there_is_one_for_each_ordinal_as_long_as_it_is_held() {
        static TABLE: PerOrdinal<usize> = PerOrdinal::new();
        let n_opened = AtomicUsize::new(0);
        let open = || Ok(n_opened.fetch_add(1, Ordering::Relaxed));
        let get = |ordinal| TABLE.get_or_open(ordinal, open).unwrap();
        let (first, other) = (get(0), get(1));
        assert!(Arc::ptr_eq(&first, &get(0)) && !Arc::ptr_eq(&first, &other));
        assert_eq!(n_opened.load(Ordering::Relaxed), 2);
        // From several threads at once, still one.
        let third = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| get(2))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert!(third.iter().all(|one| Arc::ptr_eq(one, &third[0])));
        assert_eq!(n_opened.load(Ordering::Relaxed), 3);
        drop(first);
        assert_eq!(*get(0), 3);
        // An error is of the one who asks.
        let failed = TABLE.get_or_open(9, || Err(Error::NoCudaDevice { reason: "number 9".into() }));
        assert!(failed.is_err());
        assert_eq!(*get(9), 4);
    }
}
