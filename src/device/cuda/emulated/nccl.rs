//! A small NCCL on emulated devices: communicators, groups of sends and receives, abort.
//!
//! As NCCL's, a group is a work of a stream: when the stream comes to it, its sends and receives are offered, those
//! from one rank to another in the order of their groups, and the stream goes on when all have met. A group whose sends
//! and receives no others match is a hang, which the waiting thread reports; sizes that differ are an error. A device
//! runs one group at a time, as a GPU may that has no room for two: groups of two communicators, or streams, that
//! ranks begin in different orders hang.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use super::Driver;
use super::timeline::{Clock, Lost, Meeting, Work, patience};
use crate::device::cuda::link::Part;
use crate::device::cuda::memory::Address;
use crate::error::{Error, Result};

/// One rank's communicator.
#[derive(Debug)]
pub(in crate::device::cuda) struct Nccl {
    id: u64,
    rank: usize,
}

/// All communicators, and what is under way.
#[derive(Default)]
struct Network {
    last_id: u64,
    last_group: u64,
    communicators: HashMap<u64, Members>,
    /// By device, as one `Cuda` has opened it: the group that it is at.
    busy: HashMap<usize, Weak<Group>>,
}

/// What the ranks of a communicator share.
#[derive(Default)]
struct Members {
    /// `[size]`: each rank's device, once it has come.
    devices: Vec<Option<usize>>,
    n_gone: usize,
    is_aborted: bool,
    /// By ranks from and to: sends and receives that have not met. Of a pair, only one is not empty.
    sends: HashMap<(usize, usize), VecDeque<Offered>>,
    receives: HashMap<(usize, usize), VecDeque<Offered>>,
    /// By rank: the streams in which groups are that have not begun.
    queued: Vec<VecDeque<u64>>,
}

/// A send or a receive, and its group.
struct Offered {
    address: Address,
    bytes: usize,
    group: Arc<Group>,
}

/// One rank's group of sends and receives.
struct Group {
    communicator: u64,
    rank: usize,
    stream: u64,
    clock: Arc<Clock>,
    sends: Vec<Part>,
    receives: Vec<Part>,
    progress: Mutex<Progress>,
    itself: Weak<Group>,
}

#[derive(Clone, Copy)]
enum Progress {
    Queued,
    /// So many sends and receives have not met.
    Begun(usize),
    Done,
}

fn network() -> MutexGuard<'static, Network> {
    NETWORK.lock().unwrap_or_else(PoisonError::into_inner)
}

static NETWORK: LazyLock<Mutex<Network>> = LazyLock::new(Mutex::default);
/// A rank has come to a communicator.
static JOINED: Condvar = Condvar::new();

fn error(message: String) -> Error {
    Error::Device {
        operation: "NCCL",
        code: 5,
        name: "ncclInvalidUsage".into(),
        message: format!(": {message}"),
    }
}

impl Nccl {
    /// What the ranks of a new communicator are told by one of them.
    pub(in crate::device::cuda) fn new_id() -> Result<Vec<u8>> {
        let mut network = network();
        network.last_id += 1;
        let id = network.last_id;
        network.communicators.insert(id, Members::default());
        Ok(id.to_le_bytes().to_vec())
    }

    /// This rank's end, when all have come.
    ///
    /// Errors: two ranks have one device, or not all come.
    pub(in crate::device::cuda) fn connect(
        driver: &Driver,
        id: &[u8],
        rank: usize,
        size: usize,
    ) -> Result<Self> {
        let id = id.try_into().map(u64::from_le_bytes).map_err(|_| error("not an id".to_owned()))?;
        let mut all = network();
        let members = all.communicators.get_mut(&id).ok_or_else(|| error("no such id".to_owned()))?;
        if members.devices.is_empty() {
            members.devices = vec![None; size];
            members.queued = vec![VecDeque::new(); size];
        }
        if members.devices.len() != size || rank >= size || members.devices[rank].is_some() {
            return Err(error(format!("rank {rank} of {size} does not fit those that have come")));
        }
        members.devices[rank] = Some(driver.device.ordinal);
        JOINED.notify_all();
        let start = Instant::now();
        loop {
            let members = all.communicators.get(&id).ok_or_else(|| error("it was destroyed".to_owned()))?;
            if members.devices.iter().all(Option::is_some) {
                let distinct: HashSet<_> = members.devices.iter().collect();
                if distinct.len() < size {
                    return Err(error(format!("rank {rank}: two ranks have one device")));
                }
                return Ok(Nccl { id, rank });
            }
            if start.elapsed() > patience() {
                return Err(error(format!("rank {rank} of {size} has waited in vain for the others")));
            }
            all = JOINED.wait_timeout(all, patience()).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Queues a group of sends and receives in the stream of `driver`.
    ///
    /// # Safety
    /// The memory stays until the stream has passed the group, and nothing that is not ordered after it writes it, or
    /// reads what is received.
    pub(in crate::device::cuda) unsafe fn group(
        &self,
        driver: &Driver,
        sends: Vec<Part>,
        receives: Vec<Part>,
    ) -> Result<()> {
        driver.bind()?;
        let stream = &driver.stream;
        let group = {
            let mut network = network();
            let members = network.of(self.id)?;
            if let Some(part) = sends.iter().chain(&receives).find(|part| part.peer >= members.devices.len())
            {
                return Err(error(format!("there is no rank {}", part.peer)));
            }
            members.queued[self.rank].push_back(stream.number());
            network.last_group += 1;
            Arc::new_cyclic(|itself| Group {
                communicator: self.id,
                rank: self.rank,
                stream: stream.number(),
                clock: stream.clock().clone(),
                sends,
                receives,
                progress: Mutex::new(Progress::Queued),
                itself: itself.clone(),
            })
        };
        stream.count_launch();
        stream.queue(Work::Meet(group));
        Ok(())
    }

    /// Ends all that is under way, on this rank and the others.
    pub(in crate::device::cuda) fn abort(&self) {
        if let Ok(members) = network().of(self.id) {
            members.is_aborted = true;
        }
    }

    /// An error that came up while groups ran.
    pub(in crate::device::cuda) fn check(&self) -> Result<()> {
        if network().of(self.id)?.is_aborted {
            Err(error("the communicator was aborted".to_owned()))
        } else {
            Ok(())
        }
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        let mut network = network();
        let is_last = network.of(self.id).is_ok_and(|members| {
            members.n_gone += 1;
            members.n_gone == members.devices.len()
        });
        if is_last {
            network.communicators.remove(&self.id);
        }
    }
}

impl Network {
    fn of(&mut self, communicator: u64) -> Result<&mut Members> {
        self.communicators.get_mut(&communicator).ok_or_else(|| error("it was destroyed".to_owned()))
    }

    /// Whether another group than this runs on its device.
    fn is_busy(&self, group: &Group) -> Option<Arc<Group>> {
        self.busy
            .get(&group.device())
            .and_then(Weak::upgrade)
            .filter(|other| !std::ptr::eq(&**other, group) && !matches!(other.progress(), Progress::Done))
    }
}

impl Members {
    /// Forgets what a group has offered, whose memory may go.
    fn withdraw(&mut self, group: &Group) {
        for offered in self.sends.values_mut().chain(self.receives.values_mut()) {
            offered.retain(|one| !std::ptr::eq(&*one.group, group));
        }
    }

    /// Lets sends and receives of the two ranks meet.
    fn meet(&mut self, from: usize, to: usize) {
        loop {
            let (Some(sends), Some(receives)) =
                (self.sends.get_mut(&(from, to)), self.receives.get_mut(&(from, to)))
            else {
                return;
            };
            if sends.is_empty() || receives.is_empty() {
                return;
            }
            let (Some(send), Some(receive)) = (sends.pop_front(), receives.pop_front()) else { return };
            if send.bytes == receive.bytes {
                // SAFETY: both groups have begun and are not done: their memory stays, by the promise of `group`.
                unsafe { std::ptr::copy(send.address.0, receive.address.0, send.bytes) };
            } else {
                let message = format!(
                    ": rank {from} sends {} bytes to rank {to}, which receives {}",
                    send.bytes, receive.bytes
                );
                let lost = Lost { code: 5, name: "ncclInvalidUsage".into(), message };
                send.group.clock.lose(lost.clone());
                receive.group.clock.lose(lost);
            }
            send.group.met();
            receive.group.met();
        }
    }
}

impl Group {
    /// A number of its device.
    fn device(&self) -> usize {
        Arc::as_ptr(&self.clock).addr()
    }

    fn progress(&self) -> Progress {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, progress: Progress) {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = progress;
    }

    /// One of its sends or receives has met another.
    fn met(&self) {
        if let Progress::Begun(left) = self.progress() {
            self.set(if left == 1 { Progress::Done } else { Progress::Begun(left - 1) });
        }
    }

    fn offered(&self, part: &Part) -> Option<Offered> {
        Some(Offered { address: part.address, bytes: part.bytes, group: self.itself.upgrade()? })
    }

    fn begin(&self, members: &mut Members) {
        members.queued[self.rank].pop_front();
        let n = self.sends.len() + self.receives.len();
        self.set(if n == 0 { Progress::Done } else { Progress::Begun(n) });
        for part in &self.sends {
            members.sends.entry((self.rank, part.peer)).or_default().extend(self.offered(part));
        }
        for part in &self.receives {
            members.receives.entry((part.peer, self.rank)).or_default().extend(self.offered(part));
        }
        for part in &self.sends {
            members.meet(self.rank, part.peer);
        }
        for part in &self.receives {
            members.meet(part.peer, self.rank);
        }
    }

    /// The ranks whose sends or receives it still waits for.
    fn missing(&self, members: &Members) -> Vec<usize> {
        let waits = |all: &HashMap<(usize, usize), VecDeque<Offered>>, pair| {
            all.get(&pair).is_some_and(|offered| offered.iter().any(|one| std::ptr::eq(&*one.group, self)))
        };
        let mut ranks: Vec<usize> = self
            .sends
            .iter()
            .map(|part| part.peer)
            .filter(|&to| waits(&members.sends, (self.rank, to)))
            .collect();
        ranks.extend(
            self.receives
                .iter()
                .map(|part| part.peer)
                .filter(|&from| waits(&members.receives, (from, self.rank))),
        );
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }
}

impl Meeting for Group {
    fn go_on(&self, is_lost: bool) -> bool {
        let mut network = network();
        let is_free = network.is_busy(self).is_none();
        if let (Some(itself), true) = (self.itself.upgrade(), is_free) {
            network.busy.insert(self.device(), Arc::downgrade(&itself));
        }
        let Ok(members) = network.of(self.communicator) else { return true };
        if is_lost || members.is_aborted {
            members.withdraw(self);
            self.set(Progress::Done);
            return true;
        }
        if matches!(self.progress(), Progress::Queued) && is_free {
            self.begin(members);
        }
        matches!(self.progress(), Progress::Done)
    }

    fn waits_for(&self) -> Vec<u64> {
        let mut network = network();
        if let Some(other) = network.is_busy(self) {
            return vec![other.stream];
        }
        let Ok(members) = network.of(self.communicator) else { return Vec::new() };
        let missing = self.missing(members);
        missing.iter().filter_map(|&rank| members.queued[rank].front().copied()).collect()
    }

    fn describe(&self) -> String {
        let mut network = network();
        if let Some(other) = network.is_busy(self) {
            return format!(
                "a group of rank {} waits for its device, which is at one of rank {} of another communicator or stream",
                self.rank, other.rank
            );
        }
        let missing = network.of(self.communicator).map(|members| self.missing(members)).unwrap_or_default();
        format!("a group of rank {} has sends or receives that ranks {missing:?} do not match", self.rank)
    }
}
