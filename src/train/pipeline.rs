//! Work done ahead by threads, delivered in order through a bounded queue.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::error::{Error, Result, panic_message};

type Work<T> = dyn Fn(usize) -> Result<T> + Send + Sync;

/// An iterator over `work(0), work(1), …, work(n - 1)`, computed ahead by worker threads.
///
/// Items come in order whatever the number of workers, and at most `depth` are ready or in the making. After an error
/// (a panic of `work` is one) the iterator ends. Dropping it stops the workers: each finishes the item it is at, and is
/// joined. Each worker runs `work` inside a rayon pool of one thread, so that kernels in it do not compete with those
/// of the consumer. With 0 workers the items are computed when they are asked for.
///
/// ```
/// use cohop::train::Pipeline;
/// let squares: cohop::Result<Vec<usize>> = Pipeline::new(2, 4, 5, |i| Ok(i * i))?.collect();
/// assert_eq!(squares?, [0, 1, 4, 9, 16]);
/// # Ok::<(), cohop::Error>(())
/// ```
pub struct Pipeline<T: Send + 'static> {
    shared: Arc<Shared<T>>,
    workers: Vec<JoinHandle<()>>,
    finished: bool,
}

struct Shared<T> {
    work: Box<Work<T>>,
    n_items: usize,
    depth: usize,
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    /// The next item that no worker has begun.
    next: usize,
    /// The next item to deliver.
    delivered: usize,
    ready: BTreeMap<usize, Result<T>>,
    stop: bool,
}

impl<T: Send + 'static> Pipeline<T> {
    /// Starts `n_workers` threads on `n_items` items, `depth` (at least 1) ahead of the consumer.
    pub fn new(
        n_workers: usize,
        depth: usize,
        n_items: usize,
        work: impl Fn(usize) -> Result<T> + Send + Sync + 'static,
    ) -> Result<Self> {
        let shared = Arc::new(Shared {
            work: Box::new(work),
            n_items,
            depth: depth.max(1),
            state: Mutex::new(State { next: 0, delivered: 0, ready: BTreeMap::new(), stop: false }),
            changed: Condvar::new(),
        });
        let mut pipeline = Pipeline { shared, workers: Vec::new(), finished: false };
        for i in 0..n_workers.min(n_items) {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(1)
                .thread_name(move |_| format!("prepare-{i}"))
                .build()
                .map_err(|e| Error::Worker { worker: format!("worker {i}"), problem: e.to_string() })?;
            let shared = pipeline.shared.clone();
            let worker = std::thread::Builder::new()
                .name(format!("pipeline-{i}"))
                .spawn(move || pool.install(|| shared.run()))
                .map_err(|e| Error::Worker { worker: format!("worker {i}"), problem: e.to_string() })?;
            pipeline.workers.push(worker);
        }
        Ok(pipeline)
    }

    /// Number of items in all.
    pub fn n_items(&self) -> usize {
        self.shared.n_items
    }

    fn take_next(&mut self) -> Option<Result<T>> {
        let shared = &*self.shared;
        let mut state = shared.state();
        if state.delivered == shared.n_items {
            return None;
        }
        let item = state.delivered;
        if self.workers.is_empty() {
            state.delivered += 1;
            drop(state);
            return Some(shared.compute(item));
        }
        loop {
            if let Some(result) = state.ready.remove(&item) {
                state.delivered += 1;
                shared.changed.notify_all();
                return Some(result);
            }
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T> Shared<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        // Nothing that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn compute(&self, item: usize) -> Result<T> {
        catch_unwind(AssertUnwindSafe(|| (self.work)(item))).unwrap_or_else(|panic| {
            Err(Error::Worker {
                worker: format!("the preparation of batch {item}"),
                problem: panic_message(&*panic),
            })
        })
    }

    fn run(&self) {
        loop {
            let item = {
                let mut state = self.state();
                loop {
                    if state.stop || state.next == self.n_items {
                        return;
                    }
                    if state.next < state.delivered + self.depth {
                        break;
                    }
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                state.next += 1;
                state.next - 1
            };
            let result = self.compute(item);
            let mut state = self.state();
            state.ready.insert(item, result);
            self.changed.notify_all();
        }
    }
}

impl<T: Send + 'static> Iterator for Pipeline<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        if self.finished {
            return None;
        }
        let item = self.take_next();
        self.finished = !matches!(item, Some(Ok(_)));
        item
    }
}

impl<T: Send + 'static> Drop for Pipeline<T> {
    fn drop(&mut self) {
        self.shared.state().stop = true;
        self.shared.changed.notify_all();
        for worker in self.workers.drain(..) {
            // A worker's panics are caught in `compute`; one outside would have no one left to hear of it.
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn items_come_in_order_for_any_number_of_workers() {
        for workers in [0, 1, 2, 8] {
            for n in [0, 1, 5, 100] {
                let pipeline = Pipeline::new(workers, 3, n, |i| {
                    // Later items are quicker: order must not hang on who is done first.
                    std::thread::sleep(Duration::from_micros(300 / (i as u64 + 1)));
                    Ok(i)
                });
                let items: Vec<usize> = pipeline.unwrap().map(Result::unwrap).collect();
                assert_eq!(items, (0..n).collect::<Vec<_>>(), "{workers} workers");
            }
        }
    }

    #[test]
    fn at_most_depth_items_are_made_ahead() {
        let begun = Arc::new(AtomicUsize::new(0));
        let counter = begun.clone();
        let mut pipeline = Pipeline::new(4, 3, 1000, move |i| {
            counter.fetch_add(1, Ordering::SeqCst);
            Ok(i)
        })
        .unwrap();
        for taken in 1..=5 {
            pipeline.next();
            std::thread::sleep(Duration::from_millis(20));
            assert!(begun.load(Ordering::SeqCst) <= taken + 3);
        }
    }

    #[test]
    fn dropping_joins_the_workers_at_once() {
        let alive = Arc::new(AtomicUsize::new(0));
        let counter = alive.clone();
        let mut pipeline = Pipeline::new(3, 6, 1_000_000, move |i| {
            counter.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(1));
            counter.fetch_sub(1, Ordering::SeqCst);
            Ok(i)
        })
        .unwrap();
        assert_eq!(pipeline.next().unwrap().unwrap(), 0);
        let start = Instant::now();
        drop(pipeline);
        assert_eq!(alive.load(Ordering::SeqCst), 0);
        assert!(start.elapsed() < Duration::from_secs(10), "joined after {:?}", start.elapsed());
    }

    #[test]
    fn a_panic_is_an_error_and_ends_the_iteration() {
        for workers in [0, 3] {
            let mut pipeline = Pipeline::new(workers, 4, 10, |i| {
                assert!(i != 2, "item two is cursed");
                Ok(i)
            })
            .unwrap();
            assert_eq!(pipeline.next().unwrap().unwrap(), 0);
            assert_eq!(pipeline.next().unwrap().unwrap(), 1);
            let error = pipeline.next().unwrap().unwrap_err();
            assert!(matches!(&error, Error::Worker { problem, .. } if problem.contains("cursed")), "{error}");
            assert!(pipeline.next().is_none());
        }
    }
}
