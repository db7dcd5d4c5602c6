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

/// [`prepared_ahead`], where only the beginning of an item may be made in any order, and at the same time as others:
/// the rests are made in the order of the items, one after the other.
pub(super) fn ended_in_order<D: Storage, T: Send + 'static>(
    workers: usize,
    n_items: usize,
    begin: impl Fn(usize) -> Result<Rest<T>> + Send + Sync + 'static,
) -> Result<Pipeline<T>> {
    let (depth, work) = (queue_depth(workers), move |item| begin(item).map(Begun::Rest));
    if D::RUNS_ON_POOL {
        Ok(Pipeline::jobs(Shared::new(depth, n_items, workers, work)))
    } else {
        Pipeline::threads(workers, Shared::new(depth, n_items, 0, work))
    }
}

/// How many batches ahead of the consumer `workers` workers may be.
pub(super) fn queue_depth(workers: usize) -> usize {
    2 * workers + 1
}

/// What makes the rest of an item that was begun.
pub(super) type Rest<T> = Box<dyn FnOnce() -> Result<T> + Send>;

/// What a worker makes of an item while others make others.
enum Begun<T> {
    /// All of it.
    Whole(T),
    /// What has no order.
    Rest(Rest<T>),
}

type Work<T> = dyn Fn(usize) -> Result<Begun<T>> + Send + Sync;

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
    /// Rests of items, which wait for those before them.
    begun: BTreeMap<usize, Rest<T>>,
    /// The next item whose rest is to be made; after one that failed as many as there are.
    next_rest: usize,
    /// Whether a worker makes a rest.
    ending: bool,
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
        let work = move |item| work(item).map(Begun::Whole);
        Pipeline::threads(n_workers, Shared::new(depth, n_items, 0, work))
    }

    fn threads(n_workers: usize, shared: Arc<Shared<T>>) -> Result<Self> {
        let n_items = shared.n_items;
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
        let work = move |item| work(item).map(Begun::Whole);
        Pipeline::jobs(Shared::new(depth, n_items, n_workers, work))
    }

    fn jobs(shared: Arc<Shared<T>>) -> Self {
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
            return Some(shared.begin(item).and_then(|begun| match begun {
                Begun::Whole(whole) => Ok(whole),
                Begun::Rest(rest) => guarded(item, rest),
            }));
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
        work: impl Fn(usize) -> Result<Begun<T>> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let state = State {
            next: 0,
            delivered: 0,
            ready: BTreeMap::new(),
            begun: BTreeMap::new(),
            next_rest: 0,
            ending: false,
            jobs: 0,
            stop: false,
        };
        Arc::new(Shared {
            work: Box::new(work),
            n_items,
            depth: depth.max(1),
            max_jobs,
            state: Mutex::new(state),
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
            state = self.make(item);
        }
        state.jobs -= 1;
        self.changed.notify_all();
        Self::start_jobs(&self, state);
    }

    /// Makes an item, or begins it; then makes the rests of all items whose turn it is, unless another worker does. No
    /// worker waits for another: who begins an item too early for its rest leaves it to the one who makes those before.
    fn make(&self, item: usize) -> MutexGuard<'_, State<T>> {
        let begun = self.begin(item);
        let mut state = self.state();
        match begun {
            Ok(Begun::Whole(whole)) => self.made(&mut state, item, Ok(whole)),
            Ok(Begun::Rest(rest)) => {
                state.begun.insert(item, rest);
            }
            Err(error) => self.made(&mut state, item, Err(error)),
        }
        while !state.ending && !state.stop {
            let item = state.next_rest;
            let Some(rest) = state.begun.remove(&item) else { break };
            state.next_rest += 1;
            state.ending = true;
            drop(state);
            let result = guarded(item, rest);
            state = self.state();
            state.ending = false;
            if result.is_err() {
                // None of the later ones has a turn.
                state.next_rest = self.n_items;
            }
            self.made(&mut state, item, result);
        }
        state
    }

    /// Takes note of a worker's item. After an error no worker begins another one, which nobody would take: and the
    /// other processing elements, with whom some are made, are still at the one that failed.
    fn made(&self, state: &mut State<T>, item: usize, result: Result<T>) {
        if result.is_err() {
            state.next = self.n_items;
        }
        state.ready.insert(item, result);
        self.changed.notify_all();
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

    fn begin(&self, item: usize) -> Result<Begun<T>> {
        guarded(item, || (self.work)(item))
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
            drop(self.make(item));
        }
    }
}

/// What `work` makes of `item`; a panic is an error.
fn guarded<R>(item: usize, work: impl FnOnce() -> Result<R>) -> Result<R> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        Err(Error::Worker {
            worker: format!("the preparation of batch {item}"),
            problem: panic_message(&*panic),
        })
    })
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
mod tests;
