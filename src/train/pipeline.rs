//! Work done ahead, by separate threads or by the threads that compute, delivered in order through a bounded queue.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::coop::{Group, Mode};
use crate::device::{Device, Storage};
use crate::error::{Error, Result, panic_message};

/// Runs `compute`, which calls many kernels of `D`. If these run on rayon's current pool, so does `compute`: otherwise
/// every kernel call would be handed over to the pool and waited for. But not if the processing elements of `group`
/// wait for each other in `compute`, which a thread of the pool must not do.
pub(super) fn computing<D: Device, R: Send>(group: &Group<D>, compute: impl FnOnce() -> R + Send) -> R {
    if D::RUNS_ON_POOL && group.mode() == Mode::Serial { rayon::scope(|_| compute()) } else { compute() }
}

/// `n_items` items that `workers` workers prepare for computations on `D`. If these run on rayon's current pool, so do
/// the workers: with separate threads there would be more threads than cores, and kernels would wait until the system
/// gives their threads a core again.
pub(super) fn prepared_ahead<D: Storage, T: Send + 'static>(
    workers: usize,
    n_items: usize,
    work: impl Fn(usize) -> Result<T> + Send + Sync + 'static,
) -> Result<Pipeline<T>> {
    if D::RUNS_ON_POOL {
        Ok(Pipeline::on_pool(workers, queue_depth(workers), n_items, work))
    } else {
        Pipeline::new(workers, queue_depth(workers), n_items, work)
    }
}

/// How many batches ahead of the consumer `workers` workers may be.
pub(super) fn queue_depth(workers: usize) -> usize {
    2 * workers + 1
}

type Work<T> = dyn Fn(usize) -> Result<T> + Send + Sync;

/// An iterator over `work(0), work(1), …, work(n - 1)`, computed ahead by workers (threads, or jobs of a pool).
///
/// Items come in order for any number of workers, and at most `depth` are ready or in progress. After an error (a panic
/// of `work` counts as one) no further item is begun, and the iterator ends. Dropping it stops the workers, and waits
/// until each has finished its current item. With 0 workers each item is computed when the consumer takes it.
///
/// ```
/// use cohop::train::Pipeline;
/// let squares: cohop::Result<Vec<usize>> = Pipeline::new(2, 4, 5, |i| Ok(i * i))?.collect();
/// assert_eq!(squares?, [0, 1, 4, 9, 16]);
/// # Ok::<(), cohop::Error>(())
/// ```
pub struct Pipeline<T: Send + 'static> {
    shared: Arc<Shared<T>>,
    /// Its threads; none for jobs of a pool.
    workers: Vec<JoinHandle<()>>,
    finished: bool,
}

struct Shared<T> {
    work: Box<Work<T>>,
    n_items: usize,
    depth: usize,
    /// How many jobs of rayon's pool may run at a time.
    max_jobs: usize,
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    /// The next item that no worker has begun; after an error as many as there are.
    next: usize,
    /// The next item to deliver.
    delivered: usize,
    ready: BTreeMap<usize, Result<T>>,
    /// Jobs that rayon's pool has not finished.
    jobs: usize,
    stop: bool,
}

impl<T: Send + 'static> Pipeline<T> {
    /// Starts `n_workers` threads on `n_items` items, `depth` (at least 1) ahead of the consumer. Each runs `work`
    /// inside a rayon pool of one thread, so that its kernels do not compete with those of the consumer.
    ///
    /// Errors: the system refuses to start a thread.
    pub fn new(
        n_workers: usize,
        depth: usize,
        n_items: usize,
        work: impl Fn(usize) -> Result<T> + Send + Sync + 'static,
    ) -> Result<Self> {
        let shared = Shared::new(depth, n_items, 0, work);
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

    /// The same with at most `n_workers` jobs at a time on rayon's current pool, where the consumer's kernels run too:
    /// no core is idle while there is work of either kind. `work` must not wait for anything.
    pub fn on_pool(
        n_workers: usize,
        depth: usize,
        n_items: usize,
        work: impl Fn(usize) -> Result<T> + Send + Sync + 'static,
    ) -> Self {
        let shared = Shared::new(depth, n_items, n_workers, work);
        let state = shared.state();
        Shared::start_jobs(&shared, state);
        Pipeline { shared, workers: Vec::new(), finished: false }
    }

    /// Total number of items.
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
        if self.workers.is_empty() && shared.max_jobs == 0 {
            state.delivered += 1;
            drop(state);
            return Some(shared.compute(item));
        }
        loop {
            if let Some(result) = state.ready.remove(&item) {
                state.delivered += 1;
                shared.changed.notify_all();
                Shared::start_jobs(&self.shared, state);
                return Some(result);
            }
            state = shared.wait(state);
        }
    }
}

impl<T: Send + 'static> Shared<T> {
    fn new(
        depth: usize,
        n_items: usize,
        max_jobs: usize,
        work: impl Fn(usize) -> Result<T> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Shared {
            work: Box::new(work),
            n_items,
            depth: depth.max(1),
            max_jobs,
            state: Mutex::new(State { next: 0, delivered: 0, ready: BTreeMap::new(), jobs: 0, stop: false }),
            changed: Condvar::new(),
        })
    }

    /// Starts as many jobs on rayon's pool as may run now.
    fn start_jobs(this: &Arc<Self>, mut state: MutexGuard<'_, State<T>>) {
        while state.jobs < this.max_jobs && !state.stop && this.may_begin(&state) {
            state.jobs += 1;
            let shared = this.clone();
            rayon::spawn(move || shared.run_job());
        }
    }

    /// Computes one item, then starts another job if there is work: so other tasks on the pool get their turn.
    fn run_job(self: Arc<Self>) {
        let mut state = self.state();
        if !state.stop && self.may_begin(&state) {
            let item = state.next;
            state.next += 1;
            drop(state);
            let result = self.compute(item);
            state = self.state();
            self.made(&mut state, item, result);
        }
        state.jobs -= 1;
        self.changed.notify_all();
        Self::start_jobs(&self, state);
    }

    /// Takes note of a worker's item. After an error no worker begins another one, which nobody would take: and the
    /// other processing elements, with whom some are made, are still at the one that failed.
    fn made(&self, state: &mut State<T>, item: usize, result: Result<T>) {
        if result.is_err() {
            state.next = self.n_items;
        }
        state.ready.insert(item, result);
    }

    /// Whether the next item is at most `depth` ahead of the consumer.
    fn may_begin(&self, state: &State<T>) -> bool {
        state.next < self.n_items.min(state.delivered + self.depth)
    }

    /// Waits until something may have changed. A thread of the pool runs jobs meanwhile: it may be the one that has to
    /// make the change.
    fn wait<'a>(&'a self, state: MutexGuard<'a, State<T>>) -> MutexGuard<'a, State<T>> {
        if self.max_jobs == 0 || rayon::current_thread_index().is_none() {
            return self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        if rayon::yield_now() != Some(rayon::Yield::Executed) {
            std::thread::yield_now();
        }
        self.state()
    }

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
                    if self.may_begin(&state) {
                        break;
                    }
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                state.next += 1;
                state.next - 1
            };
            let result = self.compute(item);
            let mut state = self.state();
            self.made(&mut state, item, result);
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
            // Ignored: `compute` catches the panics of `work`, and there is nobody left to tell of others.
            let _ = worker.join();
        }
        let mut state = self.shared.state();
        while state.jobs > 0 {
            state = self.shared.wait(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use super::*;

    /// Pipelines on separate threads and on the pool, with their numbers of workers.
    fn pipelines<T: Send + 'static>(
        workers: usize,
        depth: usize,
        n_items: usize,
        work: impl Fn(usize) -> Result<T> + Send + Sync + Clone + 'static,
    ) -> [Pipeline<T>; 2] {
        let threads = Pipeline::new(workers, depth, n_items, work.clone()).unwrap();
        [threads, Pipeline::on_pool(workers, depth, n_items, work)]
    }

    #[test]
    fn items_come_in_order_for_any_number_of_workers() {
        for workers in [0, 1, 2, 8] {
            for n in [0, 1, 5, 100] {
                let work = |i| {
                    // Later items are quicker: order must not depend on which is done first.
                    std::thread::sleep(Duration::from_micros(300 / (i as u64 + 1)));
                    Ok(i)
                };
                for pipeline in pipelines(workers, 3, n, work) {
                    let items: Vec<usize> = pipeline.map(Result::unwrap).collect();
                    assert_eq!(items, (0..n).collect::<Vec<_>>(), "{workers} workers");
                }
            }
        }
    }

    #[test]
    fn at_most_depth_items_are_made_ahead_and_by_as_many_workers() {
        for workers in [1, 4] {
            for kind in 0..2 {
                let [begun, at_work, most] = [(); 3].map(|()| Arc::new(AtomicUsize::new(0)));
                let counters = (begun.clone(), at_work, most.clone());
                let work = move |i| {
                    let (begun, at_work, most) = &counters;
                    begun.fetch_add(1, Ordering::SeqCst);
                    most.fetch_max(at_work.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(1));
                    at_work.fetch_sub(1, Ordering::SeqCst);
                    Ok(i)
                };
                let mut pipeline = if kind == 0 {
                    Pipeline::new(workers, 3, 1000, work).unwrap()
                } else {
                    Pipeline::on_pool(workers, 3, 1000, work)
                };
                for taken in 1..=5 {
                    pipeline.next();
                    std::thread::sleep(Duration::from_millis(20));
                    assert!(begun.load(Ordering::SeqCst) <= taken + 3);
                }
                assert!(most.load(Ordering::SeqCst) <= workers);
            }
        }
    }

    #[test]
    fn dropping_waits_for_the_workers_and_no_longer() {
        let alive = Arc::new(AtomicUsize::new(0));
        let counter = alive.clone();
        let work = move |i| {
            counter.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(1));
            counter.fetch_sub(1, Ordering::SeqCst);
            Ok(i)
        };
        let start = Instant::now();
        for kind in 0..2 {
            let mut pipeline = if kind == 0 {
                Pipeline::new(3, 6, 1_000_000, work.clone()).unwrap()
            } else {
                Pipeline::on_pool(3, 6, 1_000_000, work.clone())
            };
            assert_eq!(pipeline.next().unwrap().unwrap(), 0);
            drop(pipeline);
            assert_eq!(alive.load(Ordering::SeqCst), 0);
        }
        assert!(start.elapsed() < Duration::from_secs(10), "waited {:?}", start.elapsed());
    }

    /// Items that were begun are made, others are not: nobody would take them.
    #[test]
    fn no_item_is_begun_after_an_error() {
        for kind in 0..2 {
            let begun = Arc::new(Mutex::new(Vec::new()));
            let list = begun.clone();
            let work = move |i| {
                list.lock().unwrap().push(i);
                if i == 2 { Err(Error::invalid("item", i, "another")) } else { Ok(i) }
            };
            let mut pipeline = match kind {
                0 => Pipeline::new(1, 100, 1000, work).unwrap(),
                _ => Pipeline::on_pool(1, 100, 1000, work),
            };
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!((&mut pipeline).map(|item| item.is_ok()).collect::<Vec<_>>(), [true, true, false]);
            drop(pipeline);
            assert_eq!(*begun.lock().unwrap(), [0, 1, 2], "{kind}");
        }
    }

    #[test]
    fn a_panic_is_an_error_and_ends_the_iteration() {
        let work = |i| {
            assert!(i != 2, "item two is cursed");
            Ok(i)
        };
        for workers in [0, 3] {
            for mut pipeline in pipelines(workers, 4, 10, work) {
                assert_eq!(pipeline.next().unwrap().unwrap(), 0);
                assert_eq!(pipeline.next().unwrap().unwrap(), 1);
                let error = pipeline.next().unwrap().unwrap_err();
                let is_told = matches!(&error, Error::Worker { problem, .. } if problem.contains("cursed"));
                assert!(is_told, "{error}");
                assert!(pipeline.next().is_none());
            }
        }
    }

    /// The pool's only thread is the consumer: it must not sleep while it waits.
    #[test]
    fn a_pool_of_one_thread_prepares_and_consumes() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let square = |i: usize| Ok(rayon::join(|| i * i, || ()).0);
        let squares: Vec<usize> =
            pool.install(|| Pipeline::on_pool(2, 5, 50, square).map(Result::unwrap).collect());
        assert_eq!(squares, (0..50).map(|i| i * i).collect::<Vec<_>>());
        let first = pool.install(|| Pipeline::on_pool(2, 5, 50, square).next());
        assert_eq!(first.unwrap().unwrap(), 0);
    }
}
