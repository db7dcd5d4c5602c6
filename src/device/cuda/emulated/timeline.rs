//! Time on emulated devices: streams are queues of works that run later, in an order that a seed picks.
//!
//! Nothing runs by itself. A work runs when the host waits for something, on the thread that waits, or, by chance, when
//! the host queues another one. What may run is what a device may run: of each stream the first work that has not, if
//! it does not wait for an event. The seed of the thread that queues or waits chooses what does:
//!
//! * 0: every work runs as soon as it is queued, if it can;
//! * odd: only what somebody waits for runs, and what that waits for: everything else is as late as it can be;
//! * even: works run by chance, of all streams of a device.
//!
//! After an error, a device's later works do not run, and all calls return the error, as CUDA does it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::device::cuda::watches::Watches;
use crate::error::{Error, Result};

/// What the streams of a device share that one `Cuda` has opened.
#[derive(Debug, Default)]
pub(super) struct Clock {
    lost: OnceLock<Lost>,
    /// Asked while somebody waits: whether what is waited for can still come.
    watches: Watches,
}

/// The error after which nothing runs any more.
#[derive(Clone, Debug)]
pub(super) struct Lost {
    /// CUDA's code, or one of the emulator's.
    pub(super) code: i32,
    /// The code's name.
    pub(super) name: String,
    /// What has happened, and in which work.
    pub(super) message: String,
}

impl Clock {
    /// Keeps the first error.
    pub(super) fn lose(&self, lost: Lost) {
        let _ = self.lost.set(lost);
    }

    pub(super) fn watches(&self) -> &Watches {
        &self.watches
    }

    fn look(&self) -> Result<()> {
        self.watches.look()
    }

    /// Errors: an earlier work has failed.
    pub(super) fn check(&self, operation: &'static str) -> Result<()> {
        self.lost.get().map_or(Ok(()), |Lost { code, name, message }| {
            Err(Error::Device { operation, code: *code, name: name.clone(), message: format!(": {message}") })
        })
    }
}

/// A point in a stream.
#[derive(Debug)]
pub(super) struct Mark {
    stream: u64,
    /// When it was passed.
    passed: OnceLock<Instant>,
}

impl Mark {
    pub(super) fn is_passed(&self) -> bool {
        self.passed.get().is_some()
    }

    /// Seconds from here to `end`, if both are passed.
    pub(super) fn seconds_until(&self, end: &Mark) -> Option<f64> {
        Some(end.passed.get()?.saturating_duration_since(*self.passed.get()?).as_secs_f64())
    }
}

/// What a stream does.
pub(super) enum Work {
    /// Skipped after an error.
    Run(Box<dyn FnOnce() -> std::result::Result<(), Lost> + Send>),
    /// Done even after an error.
    CleanUp(Box<dyn FnOnce() + Send>),
    /// Passes the mark.
    Pass(Arc<Mark>),
    /// Nothing, once the mark is passed.
    WaitFor(Arc<Mark>),
    /// Nothing, once it is done with those that it meets.
    Meet(Arc<dyn Meeting>),
}

/// A work that ends when works of other streams do their part.
pub(super) trait Meeting: Send + Sync {
    /// Does what can be done now that its stream has come to it. Returns whether that is all of it. `is_lost`: its
    /// device does nothing any more.
    fn go_on(&self, is_lost: bool) -> bool;

    /// The streams that have to come to their part.
    fn waits_for(&self) -> Vec<u64>;

    /// What it waits for, in words.
    fn describe(&self) -> String;
}

/// A stream's place in the timeline. When it is dropped, its works are run first.
#[derive(Debug)]
pub(super) struct Stream {
    number: u64,
    clock: Arc<Clock>,
    n_launches: AtomicU64,
}

struct Queue {
    clock: Arc<Clock>,
    works: VecDeque<Work>,
    /// Whether a thread is at a work of it.
    is_running: bool,
    n_queued: u64,
    n_done: u64,
}

#[derive(Default)]
struct State {
    queues: HashMap<u64, Queue>,
    n_streams: u64,
    n_draws: u64,
}

/// One for the process: events order streams of different devices.
#[derive(Default)]
struct Timeline {
    state: Mutex<State>,
    /// A work is done, or a stream has a new one.
    changed: Condvar,
}

static TIMELINE: OnceLock<Timeline> = OnceLock::new();

fn timeline() -> &'static Timeline {
    TIMELINE.get_or_init(Timeline::default)
}

/// The calling thread's seed, which is that of its launches too.
fn seed() -> u64 {
    unsafe extern "C" {
        fn cohop_emulate_seed() -> u64;
    }
    // SAFETY: returns a number of the calling thread.
    unsafe { cohop_emulate_seed() }
}

/// A thread that waits looks again after so long, even if nothing has changed.
const GLANCE: Duration = Duration::from_millis(20);

/// What a stream waits for should have come by then: 60 s, or as many as COHOP_EMULATE_PATIENCE says.
pub(super) fn patience() -> Duration {
    static PATIENCE: OnceLock<Duration> = OnceLock::new();
    *PATIENCE.get_or_init(|| {
        let given = std::env::var("COHOP_EMULATE_PATIENCE").ok().and_then(|seconds| seconds.parse().ok());
        Duration::from_secs(given.unwrap_or(60))
    })
}

impl Stream {
    pub(super) fn new(clock: Arc<Clock>) -> Self {
        let mut state = timeline().state();
        state.n_streams += 1;
        let (number, of_queue) = (state.n_streams, clock.clone());
        let queue =
            Queue { clock: of_queue, works: VecDeque::new(), is_running: false, n_queued: 0, n_done: 0 };
        state.queues.insert(number, queue);
        Stream { number, clock, n_launches: AtomicU64::new(0) }
    }

    pub(super) fn count_launch(&self) {
        self.n_launches.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn launches(&self) -> u64 {
        self.n_launches.load(Ordering::Relaxed)
    }

    pub(super) fn clock(&self) -> &Arc<Clock> {
        &self.clock
    }

    /// What other streams know it by.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Adds a work to the end of the stream, and lets time pass as the seed says.
    pub(super) fn queue(&self, work: Work) {
        let seed = seed();
        let mut state = timeline().state();
        let queue = state.queue(self.number);
        queue.works.push_back(work);
        queue.n_queued += 1;
        timeline().changed.notify_all();
        let most = match seed {
            0 => u64::MAX,
            seed if seed % 2 == 1 => 0,
            seed => state.draw(seed) % 3,
        };
        for _ in 0..most {
            let next = if seed == 0 { state.needed_by(self.number) } else { state.any(seed, &self.clock) };
            let Some(next) = next else { break };
            state = timeline().run(state, next);
        }
    }

    /// A mark that is passed when all that was queued before is done.
    pub(super) fn mark(&self) -> Arc<Mark> {
        let mark = Arc::new(Mark { stream: self.number, passed: OnceLock::new() });
        self.queue(Work::Pass(mark.clone()));
        mark
    }

    /// Waits for all that was queued before.
    ///
    /// Errors: a work has failed, or the stream waits for what does not come.
    pub(super) fn wait(&self) -> Result<()> {
        let end = timeline().state().queue(self.number).n_queued;
        self.clock.wait(self.number, |state| state.queue(self.number).n_done >= end)
    }
}

impl Clock {
    /// Waits until the mark's stream has passed it, and no longer.
    ///
    /// Errors: a work has failed, or the stream waits for what does not come.
    pub(super) fn reach(self: &Arc<Self>, mark: &Mark) -> Result<()> {
        self.wait(mark.stream, |_| mark.is_passed())
    }

    /// Lets time pass, at least that of `stream`, until something has come about.
    fn wait(self: &Arc<Self>, stream: u64, has_come: impl Fn(&mut State) -> bool) -> Result<()> {
        let (seed, mut last) = (seed(), Instant::now());
        let mut state = timeline().state();
        while !has_come(&mut state) {
            let by_chance = if seed.is_multiple_of(2) { state.any(seed, self) } else { None };
            if let Some(next) = by_chance.or_else(|| state.needed_by(stream)) {
                state = timeline().run(state, next);
                last = Instant::now();
            } else if last.elapsed() < patience() {
                state = timeline().glance(state);
                if let Err(error) = self.look() {
                    drop(state);
                    return Err(error);
                }
            } else {
                self.lose(state.hang(stream));
                break;
            }
        }
        drop(state);
        self.check("wait for the device")
    }
}

/// The emulator's own code for it.
const HANG: i32 = 10_007;

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.wait();
        timeline().state().queues.remove(&self.number);
    }
}

impl Queue {
    fn is_ready(&self) -> bool {
        match self.works.front() {
            _ if self.is_running => false,
            None => false,
            Some(Work::WaitFor(mark)) => mark.is_passed(),
            Some(Work::Meet(meeting)) => meeting.go_on(self.clock.lost.get().is_some()),
            Some(_) => true,
        }
    }
}

impl State {
    fn queue(&mut self, stream: u64) -> &mut Queue {
        self.queues.get_mut(&stream).expect("a stream has a queue until it is dropped")
    }

    /// A number by chance, the same in each run in which threads come in the same order.
    fn draw(&mut self, seed: u64) -> u64 {
        self.n_draws += 1;
        let mixed = (seed ^ self.n_draws.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32
    }

    /// A stream of the same device that can go on, by chance.
    fn any(&mut self, seed: u64, clock: &Arc<Clock>) -> Option<u64> {
        let own = |queue: &Queue| Arc::ptr_eq(&queue.clock, clock) && queue.is_ready();
        let mut ready: Vec<u64> =
            self.queues.iter().filter(|(_, queue)| own(queue)).map(|(&number, _)| number).collect();
        ready.sort_unstable();
        let nth = self.draw(seed) as usize % ready.len().max(1);
        ready.get(nth).copied()
    }

    /// A stream that can go on and that `stream` waits for, or `stream` itself.
    fn needed_by(&self, stream: u64) -> Option<u64> {
        self.needed(stream, &mut HashSet::new())
    }

    fn needed(&self, stream: u64, seen: &mut HashSet<u64>) -> Option<u64> {
        let queue = self.queues.get(&stream)?;
        if queue.is_running || !seen.insert(stream) {
            return None;
        }
        if queue.is_ready() {
            return Some(stream);
        }
        match queue.works.front()? {
            Work::WaitFor(mark) => self.needed(mark.stream, seen),
            Work::Meet(meeting) => {
                let others = meeting.waits_for();
                let found = others.into_iter().find_map(|other| self.needed(other, seen));
                // Those may have done what it needs.
                found.or_else(|| queue.is_ready().then_some(stream))
            }
            _ => None,
        }
    }

    /// The error of a stream that has waited too long.
    fn hang(&self, stream: u64) -> Lost {
        let mut message = format!("a stream has waited {} s for what does not come", patience().as_secs());
        let (mut at, mut seen) = (stream, HashSet::new());
        while let Some(work) = self.queues.get(&at).and_then(|queue| queue.works.front())
            && seen.insert(at)
        {
            match work {
                Work::WaitFor(mark) => at = mark.stream,
                Work::Meet(meeting) => message = format!("{message}: {}", meeting.describe()),
                _ => {}
            }
        }
        Lost { code: HANG, name: "hang".into(), message }
    }
}

impl Timeline {
    fn state(&self) -> MutexGuard<'_, State> {
        // Works run without the lock, so that no panic of theirs leaves the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the first work of a stream that can go on.
    fn run<'a>(&'a self, mut state: MutexGuard<'a, State>, stream: u64) -> MutexGuard<'a, State> {
        let queue = state.queue(stream);
        let Some(work) = queue.works.pop_front() else { return state };
        queue.is_running = true;
        let clock = queue.clock.clone();
        drop(state);
        match work {
            Work::Run(work) => {
                if clock.lost.get().is_none()
                    && let Err(lost) = work()
                {
                    clock.lose(lost);
                }
            }
            Work::CleanUp(work) => work(),
            // A mark is queued once.
            Work::Pass(mark) => drop(mark.passed.set(Instant::now())),
            Work::WaitFor(_) | Work::Meet(_) => {}
        }
        let mut state = self.state();
        let queue = state.queue(stream);
        queue.is_running = false;
        queue.n_done += 1;
        self.changed.notify_all();
        state
    }

    /// Waits for another thread to change something, not for long.
    fn glance<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, GLANCE).unwrap_or_else(PoisonError::into_inner).0
    }
}
