//! How a processing element's tensors get to the others' devices.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::comm::{Communicator, Stage, Sum, rank_range};
use crate::device::{Cpu, Device, Dtype, Element, Scalar, Storage, Write};
use crate::error::{Error, Result};
use crate::tape::RowPeers;
use crate::tensor::Tensor;

/// The way of rows between the memories of devices. Between CPUs of one process rows are read where they are, else
/// sent by the communicator; these are for devices whose memory is not the host's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowTransport {
    /// The first of these that is possible: [`Read`](RowTransport::Read), [`Copy`](RowTransport::Copy),
    /// [`Nccl`](RowTransport::Nccl), [`Mpi`](RowTransport::Mpi), [`Host`](RowTransport::Host).
    #[default]
    Auto,
    /// Kernels read rows where other devices have them: devices of one process that reach each other's memory.
    Read,
    /// Packed rows are copied from device to device: devices of one process.
    Copy,
    /// NCCL sends packed rows from device to device, of any processes: one device for each PE.
    Nccl,
    /// The MPI library, which must be aware of CUDA, sends packed rows from device to device.
    Mpi,
    /// Packed rows are copied to the host, sent by the communicator, and copied to the device.
    Host,
}

impl fmt::Display for RowTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            RowTransport::Auto => "auto",
            RowTransport::Read => "read",
            RowTransport::Copy => "copy",
            RowTransport::Nccl => "nccl",
            RowTransport::Mpi => "mpi",
            RowTransport::Host => "host",
        })
    }
}

impl FromStr for RowTransport {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        use RowTransport::{Auto, Copy, Host, Mpi, Nccl, Read};
        let all = [Auto, Read, Copy, Nccl, Mpi, Host];
        let found = all.into_iter().find(|transport| transport.to_string() == name);
        found.ok_or_else(|| Error::invalid("row transport", name, "auto, read, copy, nccl, mpi or host"))
    }
}

/// How a processing element exchanges tensors with the others.
#[derive(Clone, Debug)]
pub struct Peers<D: Device> {
    communicator: Communicator,
    /// Allocates the memory for received rows.
    host: Cpu<D::Scalar>,
    route: Route<D>,
}

/// How devices exchange rows.
#[derive(Clone, Debug)]
pub(super) enum Route<D: Device> {
    Read,
    Copy,
    Link(Arc<Linked<D>>),
    /// The communicator takes addresses of device memory.
    Mpi,
    Host,
}

/// A device's end of a link, which steps and the preparation of batches share.
#[derive(Debug)]
pub(super) struct Linked<D: Device> {
    link: D::Link,
    /// Held by PE 0 while all PEs begin an exchange.
    gate: Mutex<()>,
}

impl<D: Device> Peers<D> {
    /// Exchange over `communicator`, for tensors on `device`: devices of one process copy from each other, others
    /// exchange through the host. For other ways see [`connect`](Peers::connect).
    pub fn new(device: &D, communicator: Communicator) -> Self {
        let route = if D::OFFERS && communicator.shares_memory() { Route::Copy } else { Route::Host };
        Peers { communicator, host: device.host(), route }
    }

    /// Exchange over `communicator` for tensors on `device`, which go the way that `transport` says; the same on all
    /// PEs. Collective.
    ///
    /// Errors: that way is not possible here, and those of communication and of the device.
    pub fn connect(device: &D, communicator: Communicator, transport: RowTransport) -> Result<Self> {
        let mut peers = Peers { communicator, host: device.host(), route: Route::Host };
        if !D::OFFERS {
            if !matches!(transport, RowTransport::Auto | RowTransport::Host) {
                let expected = "auto or host, as the device is the CPU";
                return Err(Error::invalid("row transport", transport, expected));
            }
            return Ok(peers);
        }
        peers.route = peers.find_route(device, transport)?;
        Ok(peers)
    }

    /// The communicator.
    pub fn communicator(&self) -> &Communicator {
        &self.communicator
    }

    /// The way that rows go.
    pub fn transport(&self) -> RowTransport {
        match self.route {
            Route::Read => RowTransport::Read,
            Route::Copy => RowTransport::Copy,
            Route::Link(_) => RowTransport::Nccl,
            Route::Mpi => RowTransport::Mpi,
            Route::Host => RowTransport::Host,
        }
    }

    /// Host memory that is fast to copy to the device.
    pub(crate) fn host(&self) -> &Cpu<D::Scalar> {
        &self.host
    }

    /// Whether kernels read rows where other devices have them.
    pub(super) fn reads_devices(&self) -> bool {
        matches!(self.route, Route::Read)
    }

    fn find_route(&self, device: &D, transport: RowTransport) -> Result<Route<D>> {
        let shares = self.communicator.shares_memory();
        let refused = |expected: &str| Error::invalid("row transport", transport, expected);
        match transport {
            RowTransport::Auto if shares => {
                Ok(if self.all(self.reach_all(device)?)? { Route::Read } else { Route::Copy })
            }
            RowTransport::Auto => {
                if self.all(device.new_link_id().is_ok())? {
                    let link = self.link(device);
                    if self.all(link.is_ok())? {
                        return link;
                    }
                }
                Ok(if self.all(self.communicator.takes_device_memory())? { Route::Mpi } else { Route::Host })
            }
            RowTransport::Read | RowTransport::Copy if !shares => {
                Err(refused("nccl, mpi or host between processes"))
            }
            RowTransport::Read if !self.all(self.reach_all(device)?)? => {
                Err(refused("copy, nccl or host: these devices do not reach each other's memory"))
            }
            RowTransport::Read => Ok(Route::Read),
            RowTransport::Copy => Ok(Route::Copy),
            RowTransport::Nccl => {
                let found = device.new_link_id();
                // An error of one is one of all, so that nobody waits for the link.
                if !self.all(found.is_ok())? {
                    let missing = refused("another one: a processing element does not find NCCL");
                    return Err(found.err().unwrap_or(missing));
                }
                self.link(device)
            }
            RowTransport::Mpi if !self.all(self.communicator.takes_device_memory())? => Err(refused(
                "another one: the communicator takes no memory of devices (is it an MPI library that is \
                             aware of CUDA?)",
            )),
            RowTransport::Mpi => Ok(Route::Mpi),
            RowTransport::Host => Ok(Route::Host),
        }
    }

    /// Whether `all` PEs say so. Collective.
    fn all(&self, own: bool) -> Result<bool> {
        let mut without = [u64::from(!own)];
        self.communicator.all_reduce_sum(Stage::Other, Sum::U64(&mut without))?;
        Ok(without == [0])
    }

    /// Whether this device reaches the memory of all others. Collective.
    fn reach_all(&self, device: &D) -> Result<bool> {
        let nothing = device.allocate::<u8>(0)?;
        let offer = device.offer(D::view(&nothing))?;
        let (none, number) = (vec![0; self.communicator.size()], offer.number());
        let own: [&[u8]; 1] = [bytemuck::bytes_of(&number)];
        let reaches = self.communicator.window(Stage::Other, (&none, 0), &own, |offered| {
            offered.iter().map(|theirs| device.reaches(bytemuck::pod_read_unaligned(theirs[0]))).collect()
        })?;
        let reaches: Vec<bool> = {
            let reaches: Result<Vec<bool>> = reaches;
            reaches?
        };
        Ok(reaches.len() <= D::MAX_TABLES && reaches.into_iter().all(|reaches| reaches))
    }

    /// Makes a link. Collective.
    fn link(&self, device: &D) -> Result<Route<D>> {
        let communicator = &self.communicator;
        let (rank, size) = (communicator.rank(), communicator.size());
        let own = device.new_link_id()?;
        let mut length = [own.len() as u64];
        communicator.broadcast(Stage::Other, 0, &mut length)?;
        let mut id = if rank == 0 { own } else { vec![0; length[0] as usize] };
        communicator.broadcast(Stage::Other, 0, &mut id)?;
        let asked = communicator.clone();
        let link = device.link(&id, rank, size, Arc::new(move || asked.failure()))?;
        Ok(Route::Link(Arc::new(Linked { link, gate: Mutex::default() })))
    }

    /// Sends to each PE `q` its `counts[q]` rows of `x`, in rank order, and receives `receive_counts[q]` rows from it.
    pub(super) fn exchange(
        &self,
        device: &D,
        stage: Stage,
        x: &Tensor<D>,
        counts: &[usize],
        receive_counts: &[usize],
    ) -> Result<Tensor<D>> {
        let rows = receive_counts.iter().sum();
        let received = self.exchange_rows(device, stage, x.view(), x.cols(), (counts, receive_counts))?;
        Tensor::from_buffer(received, rows, x.cols())
    }

    /// [`exchange`](Peers::exchange) of rows of `cols` elements of any type.
    pub(crate) fn exchange_rows<T: Element>(
        &self,
        device: &D,
        stage: Stage,
        x: D::View<'_, T>,
        cols: usize,
        (counts, receive_counts): (&[usize], &[usize]),
    ) -> Result<D::Buffer<T>> {
        let elements = |counts: &[usize]| counts.iter().map(|rows| rows * cols).collect::<Vec<_>>();
        let (ranges, receive_counts) = (consecutive(elements(counts)), elements(receive_counts));
        let mut received = device.allocate::<T>(receive_counts.iter().sum())?;
        match &self.route {
            Route::Host => return self.through_host(device, stage, x, &elements(counts), &receive_counts),
            Route::Read | Route::Copy => {
                self.exchange_on_devices(
                    device,
                    stage,
                    x,
                    &ranges,
                    D::view_mut(&mut received),
                    &receive_counts,
                )?;
            }
            Route::Link(linked) => {
                let received = D::view_mut(&mut received);
                self.in_turn(linked, |link| device.exchange(link, x, &ranges, received, &receive_counts))?;
                self.communicator.count_read(stage, &elements(counts), size_of::<T>());
            }
            Route::Mpi => {
                // MPI knows nothing of the device's queues.
                device.synchronize()?;
                let (sent, mut to) = (D::address(x), D::view_mut(&mut received));
                // SAFETY: both are addresses of as many elements as are counted, and nothing runs on the device.
                unsafe {
                    let (to, counts) = (D::address_mut(&mut to), elements(counts));
                    self.communicator.all_to_all_v_at::<T>(stage, sent, &counts, to, &receive_counts)?;
                }
            }
        }
        Ok(received)
    }

    fn through_host<T: Element>(
        &self,
        device: &D,
        stage: Stage,
        x: D::View<'_, T>,
        counts: &[usize],
        receive_counts: &[usize],
    ) -> Result<D::Buffer<T>> {
        let mut received = self.host.allocate::<T>(receive_counts.iter().sum())?;
        let downloaded;
        let sent = match D::as_host(x) {
            Some(sent) => sent,
            None => {
                downloaded = device.download(x)?;
                &downloaded
            }
        };
        self.communicator.all_to_all_v(stage, sent, counts, &mut received, receive_counts)?;
        device.adopt(received)
    }

    /// Begins an exchange by the link on all PEs, while they begin no other one: they begin all in the same order,
    /// whichever of their threads do. Collective.
    fn in_turn(&self, linked: &Linked<D>, begin: impl FnOnce(&D::Link) -> Result<()>) -> Result<()> {
        let communicator = &self.communicator;
        // All have come: who has the gate waits for nobody who has not.
        communicator.barrier()?;
        let gate =
            (communicator.rank() == 0).then(|| linked.gate.lock().unwrap_or_else(PoisonError::into_inner));
        communicator.barrier()?;
        let begun = begin(&linked.link);
        let all_have = self.all(begun.is_ok());
        drop(gate);
        begun?;
        if all_have? {
            return Ok(());
        }
        let problem = "another processing element could not begin an exchange".to_owned();
        Err(Error::Communication { rank: communicator.rank(), problem })
    }

    /// `x` as the others can read it, if PEs can read each other's memory and `x` is in it.
    pub(super) fn readable<'a>(&self, x: &'a Tensor<D>) -> Option<&'a [D::Scalar]> {
        D::as_host(x.view()).filter(|_| self.communicator.shares_memory())
    }

    /// Adds up `x` over all PEs, in rank order: the same bits everywhere. Collective.
    ///
    /// On devices each PE adds up its share of the elements and sends the sums to all.
    ///
    /// Errors: those of communication and of the device.
    pub fn all_reduce(&self, device: &D, stage: Stage, x: &Tensor<D>) -> Result<Tensor<D>> {
        let [rows, cols] = x.shape();
        if matches!(self.route, Route::Host) {
            let mut sum = self.host.upload(&device.download(x.view())?)?;
            self.communicator.all_reduce_sum(stage, as_sum(&mut sum))?;
            return Tensor::from_buffer(device.adopt(sum)?, rows, cols);
        }
        let (rank, size) = (self.communicator.rank(), self.communicator.size());
        let shares: Vec<usize> = (0..size).map(|q| rank_range(rows * cols, size, q).len()).collect();
        let own = shares[rank];
        let received = self.exchange_rows(device, stage, x.view(), 1, (&shares, &vec![own; size]))?;
        // One copy of the share for each PE: they are sent as consecutive parts.
        let mut sums = device.allocate::<D::Scalar>(own * size)?;
        for q in 0..size {
            // In rank order, rounding after each addition, as on the host.
            let theirs = D::slice(D::view(&received), q * own..(q + 1) * own);
            let sum = D::slice_mut(D::view_mut(&mut sums), 0..own);
            if q == 0 { device.copy(theirs, sum)? } else { device.scale(1.0, theirs, sum, Write::Add)? }
        }
        let copy = {
            let mut copy = device.allocate::<D::Scalar>(own)?;
            device.copy(D::slice(D::view(&sums), 0..own), D::view_mut(&mut copy))?;
            copy
        };
        for q in 1..size {
            device.copy(D::view(&copy), D::slice_mut(D::view_mut(&mut sums), q * own..(q + 1) * own))?;
        }
        let all = self.exchange_rows(device, stage, D::view(&sums), 1, (&vec![own; size], &shares))?;
        Tensor::from_buffer(all, rows, cols)
    }
}

/// Consecutive ranges of these lengths.
fn consecutive(lengths: Vec<usize>) -> Vec<Range<usize>> {
    let mut end = 0;
    let range = |length| {
        let start = end;
        end += length;
        start..end
    };
    lengths.into_iter().map(range).collect()
}

/// The argument of an all-reduce, for either scalar type.
fn as_sum<S: Scalar>(values: &mut [S]) -> Sum<'_> {
    match S::DTYPE {
        Dtype::F64 => Sum::F64(bytemuck::cast_slice_mut(values)),
        _ => Sum::F32(bytemuck::cast_slice_mut(values)),
    }
}

impl<D: Device> RowPeers<D> for Peers<D> {
    fn sum(&self, device: &D, x: &Tensor<D>) -> Result<Tensor<D>> {
        self.all_reduce(device, Stage::Parameter, x)
    }

    fn sum_rows(&self, rows: usize) -> Result<usize> {
        let mut rows = [rows as u64];
        self.communicator.all_reduce_sum(Stage::Parameter, Sum::U64(&mut rows))?;
        Ok(rows[0] as usize)
    }
}
