//! Where the threads of one process meet: all PEs enter a collective together, or none does.
//!
//! A PE *offers* its call and the addresses of its slices, and waits. The last PE to come compares the calls; if they
//! agree it opens the meeting, and every PE may read and write what was offered, as the collective's *steps* say. No
//! failure interrupts a meeting: PEs in it only copy, so all of them reach all steps, and none returns, which would end
//! its slices' borrows, before the last step is over. A failure before the meeting opens makes every waiting PE return,
//! and no meeting opens after that.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use crate::comm::signature::{Call, Kind, Mismatch, blame, odd_one};
use crate::error::{Error, Result};

/// What PEs and all their duplicated communicators share: the first failure.
pub(super) struct Job {
    n_pes: usize,
    failure: OnceLock<(usize, String)>,
    groups: Mutex<Vec<Weak<Group>>>,
}

/// What PEs share for the collectives of one communicator.
pub(super) struct Group {
    job: Arc<Job>,
    /// How often a waiting PE looks before it blocks: 0 if there are more PEs than cores.
    n_spins: u32,
    /// Number of meetings so far. Written under the lock.
    opened: AtomicU64,
    /// Number of steps that all PEs have finished, over all meetings. Written under the lock.
    steps: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// By PE: the offers of those that wait for the next meeting. As long as no PE has failed, the addresses in them
    /// are of live slices.
    offers: Vec<Option<Offer>>,
    n_offers: usize,
    /// By PE: why it has left, if it has.
    left: Vec<Option<&'static str>>,
    meeting: Arc<Meeting>,
    /// PEs that have finished the step under way.
    n_done: usize,
}

/// What the PEs of an open meeting have offered, by PE.
pub(super) struct Meeting {
    offers: Vec<Offer>,
    /// What [`Kind::Duplicate`] makes.
    pub(super) duplicate: Option<Arc<Group>>,
}

/// One PE's call.
#[derive(Clone, Copy)]
pub(super) struct Offer {
    pub(super) call: Call,
    pub(super) slices: Slices,
}

/// Where a PE's data is.
#[derive(Clone, Copy)]
pub(super) enum Slices {
    Nothing,
    /// For all_to_all_v: `send` is as long as the sum of `send_bytes`.
    Exchange {
        send: *const u8,
        send_bytes: *const [usize],
        receive_bytes: *const [usize],
    },
    /// What others may read.
    Window(*const [&'static [u8]]),
    /// The elements of a reduction or broadcast: as many as the call says.
    Values(*mut u8),
}

// SAFETY: addresses may go from thread to thread; code that reads through them says why that is sound.
unsafe impl Send for Offer {}
// SAFETY: an offer does not change.
unsafe impl Sync for Offer {}

/// How often a waiting PE looks before it blocks: some microseconds, less than blocking and waking takes.
const N_SPINS: u32 = 256;

impl Job {
    pub(super) fn new(n_pes: usize) -> Arc<Self> {
        Arc::new(Job { n_pes, failure: OnceLock::new(), groups: Mutex::default() })
    }

    /// The rank and problem of the PE that failed first.
    pub(super) fn failure(&self) -> Option<&(usize, String)> {
        self.failure.get()
    }

    fn check(&self) -> Result<()> {
        match self.failure() {
            None => Ok(()),
            Some((rank, problem)) => Err(Error::Communication { rank: *rank, problem: problem.clone() }),
        }
    }

    /// Records a failure and wakes all waiting PEs. Returns the first failure: this one, unless there was one before.
    /// The caller must not hold a lock.
    pub(super) fn fail(&self, rank: usize, problem: impl Into<String>) -> Error {
        let (rank, problem) = self.failure.get_or_init(|| (rank, problem.into()));
        for group in self.groups() {
            // Once this has the lock, a PE that read `failure` before it was set is waiting.
            drop(group.state());
            group.changed.notify_all();
        }
        Error::Communication { rank: *rank, problem: problem.clone() }
    }

    /// PE `rank` calls no more collectives.
    pub(super) fn leave(&self, rank: usize) {
        for group in self.groups() {
            group.leave(rank, "returned");
        }
    }

    fn groups(&self) -> Vec<Arc<Group>> {
        let groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Group {
    pub(super) fn new(job: &Arc<Job>) -> Arc<Self> {
        let n_pes = job.n_pes;
        let n_cores = std::thread::available_parallelism().map_or(1, usize::from);
        let state = State {
            offers: vec![None; n_pes],
            n_offers: 0,
            left: vec![None; n_pes],
            meeting: Arc::new(Meeting { offers: Vec::new(), duplicate: None }),
            n_done: 0,
        };
        let group = Arc::new(Group {
            job: job.clone(),
            n_spins: if n_pes <= n_cores { N_SPINS } else { 0 },
            opened: AtomicU64::new(0),
            steps: AtomicU64::new(0),
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let mut groups = job.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.retain(|group| group.strong_count() > 0);
        groups.push(Arc::downgrade(&group));
        drop(groups);
        group
    }

    pub(super) fn job(&self) -> &Job {
        &self.job
    }

    pub(super) fn n_pes(&self) -> usize {
        self.job.n_pes
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for all PEs to offer the same call, which has `n_steps` steps. An error on all PEs if they differ.
    ///
    /// # Safety
    /// The slices are live and as long as `Slices` says until the result is dropped, and exclusive borrows are
    /// accessed only through the offered address.
    pub(super) unsafe fn enter(&self, rank: usize, offer: Offer, n_steps: u32) -> Result<Inside<'_>> {
        let mut state = self.state();
        // Under the lock: once a waiting PE has returned because of a failure, no meeting may open.
        self.job.check()?;
        let absent = state.left.iter().enumerate().find_map(|(absent, reason)| Some((absent, (*reason)?)));
        if let Some((absent, reason)) = absent {
            drop(state);
            return Err(self.job.fail(absent, while_others_call(rank, reason, &offer.call)));
        }
        state.offers[rank] = Some(offer);
        state.n_offers += 1;
        let number = self.opened.load(Ordering::Relaxed);
        if state.n_offers == self.n_pes() {
            // SAFETY: all PEs have offered, and none has returned: none has failed, and to return it needs the lock.
            if let Some((culprit, problem)) = unsafe { disagreement(&state, number) } {
                drop(state);
                return Err(self.job.fail(culprit, problem));
            }
            let offers = state.offers.iter_mut().filter_map(Option::take).collect();
            let duplicate = (offer.call.kind == Kind::Duplicate).then(|| Group::new(&self.job));
            state.meeting = Arc::new(Meeting { offers, duplicate });
            state.n_offers = 0;
            self.opened.store(number + 1, Ordering::Release);
            self.changed.notify_all();
        } else {
            drop(state);
            self.spin(&self.opened, number);
            state = self.state();
            while self.opened.load(Ordering::Relaxed) == number {
                self.job.check()?;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        // The next meeting cannot open before this PE has come to it.
        Ok(Inside { group: self, meeting: state.meeting.clone(), n_steps })
    }

    /// Waits for all PEs to finish a step. Nothing interrupts it.
    fn step(&self) {
        let mut state = self.state();
        let number = self.steps.load(Ordering::Relaxed);
        state.n_done += 1;
        if state.n_done == self.n_pes() {
            state.n_done = 0;
            self.steps.store(number + 1, Ordering::Release);
            self.changed.notify_all();
            return;
        }
        drop(state);
        if self.spin(&self.steps, number) {
            return;
        }
        let mut state = self.state();
        while self.steps.load(Ordering::Relaxed) == number {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether `counter` has left `number` after a short while.
    fn spin(&self, counter: &AtomicU64, number: u64) -> bool {
        (0..self.n_spins).any(|_| {
            std::hint::spin_loop();
            counter.load(Ordering::Acquire) != number
        })
    }

    /// PE `rank` calls no more collectives of this group, because it has done what `reason` says: a failure if others
    /// wait for it.
    pub(super) fn leave(&self, rank: usize, reason: &'static str) {
        let mut state = self.state();
        let reason = *state.left[rank].get_or_insert(reason);
        let waiting =
            state.offers.iter().enumerate().find_map(|(other, offer)| Some((other, (*offer)?.call)));
        drop(state);
        if let Some((other, call)) = waiting {
            self.job.fail(rank, while_others_call(other, reason, &call));
        }
    }
}

fn while_others_call(other: usize, reason: &str, call: &Call) -> String {
    format!("it {reason}, while processing element {other} {call}")
}

/// The PE at fault if the offers disagree, and what it did.
///
/// # Safety
/// All PEs have offered, and their slices are live.
unsafe fn disagreement(state: &State, number: u64) -> Option<(usize, String)> {
    let offers: Vec<Offer> = state.offers.iter().copied().flatten().collect();
    let calls: Vec<Call> = offers.iter().map(|offer| offer.call).collect();
    if let Some(odd) = odd_one(&calls, number) {
        return Some(odd);
    }
    let counts: Vec<(&[usize], &[usize])> = offers
        .iter()
        .filter_map(|offer| match offer.slices {
            // SAFETY: they are live, and shared borrows.
            Slices::Exchange { send_bytes, receive_bytes, .. } => unsafe {
                Some((&*send_bytes, &*receive_bytes))
            },
            _ => None,
        })
        .collect();
    let reports: Vec<_> = counts
        .iter()
        .enumerate()
        .map(|(receiver, (_, expected))| {
            let sent = counts.iter().map(|(send_bytes, _)| send_bytes[receiver] as u64);
            Mismatch::find(sent, expected)
        })
        .collect();
    blame(&reports, number)
}

/// A PE's part in an open meeting. Its drop waits until all PEs have finished all steps.
pub(super) struct Inside<'a> {
    group: &'a Group,
    meeting: Arc<Meeting>,
    /// Steps that this PE has not finished.
    n_steps: u32,
}

impl Inside<'_> {
    /// Waits until all PEs have finished this step.
    pub(super) fn finish_step(&mut self) {
        debug_assert!(self.n_steps > 0);
        self.n_steps -= 1;
        self.group.step();
    }

    pub(super) fn meeting(&self) -> &Meeting {
        &self.meeting
    }

    /// What PE `rank` sends to PE `to` in an all_to_all_v: as many bytes as `to` expects.
    pub(super) fn sent(&self, rank: usize, to: usize) -> &[u8] {
        let Slices::Exchange { send, send_bytes, .. } = self.meeting.offers[rank].slices else {
            unreachable!("all PEs have called all_to_all_v")
        };
        // SAFETY: PE `rank` stays in the meeting, so its borrows are live, until this PE has finished its last step,
        // at the latest when `self` is dropped. `send` is as long as the sum of the counts.
        unsafe {
            let send_bytes = &*send_bytes;
            let start = send_bytes[..to].iter().sum();
            std::slice::from_raw_parts(send.add(start), send_bytes[to])
        }
    }

    /// What PE `rank` lets others read.
    pub(super) fn window(&self, rank: usize) -> &[&[u8]] {
        let Slices::Window(slices) = self.meeting.offers[rank].slices else {
            unreachable!("all PEs have called window")
        };
        // SAFETY: shared borrows, live as in `sent`; the result's lifetime is that of this meeting.
        unsafe { &*slices }
    }

    /// Where PE `rank`'s values are.
    pub(super) fn values<T>(&self, rank: usize) -> *mut T {
        let Slices::Values(values) = self.meeting.offers[rank].slices else {
            unreachable!("all PEs have called a collective on values")
        };
        values.cast()
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        while self.n_steps > 0 {
            self.finish_step();
        }
    }
}
