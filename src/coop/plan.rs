//! How rows move between the processing elements that own them and those that need them, and the tape operation that
//! moves them (Cooperative Minibatching §3).

use std::sync::Arc;

use super::Peers;
use crate::comm::{Communicator, Stage};
use crate::device::cpu::{RemoteRow, RemoteRows, RowCopy, copy_rows};
use crate::device::{Cpu, CpuBuffer, Device, Element, Matrix, Scalar, Storage};
use crate::error::{Error, Result, check_length};
use crate::tape::{BackwardStep, Op, Tape, Var};
use crate::tensor::Tensor;

/// Which rows a PE sends to which others, and where it puts the rows that it receives. Made once per layer; used for
/// features, activations and, in reverse, gradients.
#[derive(Debug)]
pub struct ExchangePlan<D: Device> {
    pub(super) n_owned: usize,
    /// `[Σ send_counts]`: owned rows, by the PE that needs them.
    pub(super) send_rows: D::Buffer<u32>,
    pub(super) send_counts: Vec<usize>,
    pub(super) receive_counts: Vec<usize>,
    /// `[n_needed]`: the position of each needed row among those received.
    place: D::Buffer<u32>,
    /// `[n_needed]`: which needed row each received row is.
    pub(super) order: D::Buffer<u32>,
}

impl<S: Scalar> ExchangePlan<Cpu<S>> {
    /// The plan for a PE that owns `n_owned` rows, sends `send_counts[q]` of `send_rows` to each PE `q`, and receives
    /// `receive_counts[q]` from it. The `i`-th received row is the needed row `order[i]`.
    pub(crate) fn new(
        cpu: &Cpu<S>,
        n_owned: usize,
        send_rows: &[u32],
        send_counts: Vec<usize>,
        order: &[u32],
        receive_counts: Vec<usize>,
    ) -> Result<Self> {
        check_length("send_rows", send_rows.len(), send_counts.iter().sum())?;
        check_length("order", order.len(), receive_counts.iter().sum())?;
        let mut place = cpu.allocate::<u32>(order.len())?;
        for (position, &row) in order.iter().enumerate() {
            place[row as usize] = position as u32;
        }
        let (send_rows, order) = (cpu.upload(send_rows)?, cpu.upload(order)?);
        Ok(ExchangePlan { n_owned, send_rows, send_counts, receive_counts, place, order })
    }

    /// The value of each needed row, from its owner's `owned: [n_owned]`.
    pub(crate) fn fetch_values<T: Element>(
        &self,
        communicator: &Communicator,
        stage: Stage,
        owned: &[T],
    ) -> Result<Vec<T>> {
        check_length("values of owned rows", owned.len(), self.n_owned)?;
        let sent: Vec<T> = self.send_rows.iter().map(|&row| owned[row as usize]).collect();
        let mut received = vec![T::zeroed(); self.order.len()];
        communicator.all_to_all_v(stage, &sent, &self.send_counts, &mut received, &self.receive_counts)?;
        Ok(self.place.iter().map(|&place| received[place as usize]).collect())
    }

    /// `[n_needed, dim]`: each needed row, from its owner's `owned: [n_owned, dim]`, in whatever type rows are stored.
    /// Collective.
    ///
    /// Errors: `owned` does not have its length, and those of communication.
    pub(crate) fn fetch_rows<T: Element>(
        &self,
        peers: &Peers<Cpu<S>>,
        stage: Stage,
        owned: &[T],
        dim: usize,
    ) -> Result<CpuBuffer<T>> {
        check_length("owned rows", owned.len(), self.n_owned * dim)?;
        let elements = |counts: &[usize]| counts.iter().map(|n| n * dim).collect::<Vec<_>>();
        let sent = rows_at(peers.host(), owned, &self.send_rows, dim)?;
        let mut received = peers.host().allocate(self.place.len() * dim)?;
        let (send_counts, receive_counts) = (elements(&self.send_counts), elements(&self.receive_counts));
        let communicator = peers.communicator();
        communicator.all_to_all_v(stage, &sent, &send_counts, &mut received, &receive_counts)?;
        drop(sent);
        rows_at(peers.host(), &received, &self.place, dim)
    }

    /// Several values of each needed row, from its owner's rows: row `i` of `owned` is
    /// `owned.1[owned.0[i]..owned.0[i + 1]]`. Returns the same for the needed rows.
    pub(crate) fn fetch_lists<T: Element>(
        &self,
        communicator: &Communicator,
        stage: Stage,
        (indptr, values): (&[u32], &[T]),
    ) -> Result<(Vec<u32>, Vec<T>)> {
        check_length("indptr of owned rows", indptr.len(), self.n_owned + 1)?;
        let bounds = |row: u32| indptr[row as usize] as usize..indptr[row as usize + 1] as usize;
        let lengths: Vec<u32> = (0..self.n_owned as u32).map(|row| bounds(row).len() as u32).collect();
        let needed_lengths = self.fetch_values(communicator, stage, &lengths)?;
        let sent: Vec<T> = self.send_rows.iter().flat_map(|&row| &values[bounds(row)]).copied().collect();
        let total = |rows: &[u32], counts: &[usize], length: &dyn Fn(u32) -> usize| {
            let mut rows = rows.iter();
            counts
                .iter()
                .map(|&n| rows.by_ref().take(n).map(|&row| length(row)).sum())
                .collect::<Vec<usize>>()
        };
        let send_counts = total(&self.send_rows, &self.send_counts, &|row| bounds(row).len());
        let receive_counts =
            total(&self.order, &self.receive_counts, &|row| needed_lengths[row as usize] as usize);
        let mut received = vec![T::zeroed(); receive_counts.iter().sum()];
        communicator.all_to_all_v(stage, &sent, &send_counts, &mut received, &receive_counts)?;
        // Where each received list begins.
        let mut starts = Vec::with_capacity(self.order.len());
        let mut start = 0usize;
        for &row in self.order.iter() {
            starts.push(start);
            start += needed_lengths[row as usize] as usize;
        }
        let (mut needed, mut lists) = (vec![0u32], Vec::with_capacity(received.len()));
        for (&place, &length) in self.place.iter().zip(&needed_lengths) {
            lists.extend_from_slice(&received[starts[place as usize]..][..length as usize]);
            let end = u32::try_from(lists.len()).map_err(|_| Error::TooLarge {
                what: "the minibatch's sparse features",
                count: lists.len() as u64,
                limit: u32::MAX.into(),
            })?;
            needed.push(end);
        }
        Ok((needed, lists))
    }
}

impl<D: Device> ExchangePlan<D> {
    /// Moves a plan to `device` (on the CPU: the same memory).
    ///
    /// Errors: the device fails or is out of memory.
    pub fn from_host(device: &D, host: ExchangePlan<Cpu<D::Scalar>>) -> Result<Self> {
        Ok(ExchangePlan {
            n_owned: host.n_owned,
            send_rows: device.adopt(host.send_rows)?,
            send_counts: host.send_counts,
            receive_counts: host.receive_counts,
            place: device.adopt(host.place)?,
            order: device.adopt(host.order)?,
        })
    }

    /// How many rows each PE needs of this one.
    pub(crate) fn send_counts(&self) -> &[usize] {
        &self.send_counts
    }

    /// Number of rows that this PE owns.
    pub fn n_owned(&self) -> usize {
        self.n_owned
    }

    /// Number of rows that this PE needs.
    pub fn n_needed(&self) -> usize {
        D::len(&self.place)
    }

    /// Number of needed rows that other PEs own.
    pub fn n_received(&self, rank: usize) -> usize {
        self.n_needed() - self.receive_counts[rank]
    }

    /// `[n_needed, cols]`: the rows that this PE needs, from all PEs' `owned: [n_owned, cols]`. Collective.
    ///
    /// Errors: `owned` does not have `n_owned` rows, and those of communication and of the device.
    pub fn fetch(&self, device: &D, peers: &Peers<D>, stage: Stage, owned: &Tensor<D>) -> Result<Tensor<D>> {
        check_length("owned rows", owned.rows(), self.n_owned)?;
        if let Some(table) = peers.readable(owned) {
            return self.read_owned(device, peers, stage, table, owned.cols());
        }
        if peers.reads_devices() {
            return self.read_owned_on_devices(device, peers, stage, owned.view(), owned.cols());
        }
        let sent = gather(device, owned, &self.send_rows)?;
        let received = peers.exchange(device, stage, &sent, &self.send_counts, &self.receive_counts)?;
        // Free its memory, so that the result can use it.
        drop(sent);
        gather(device, &received, &self.place)
    }

    /// `[n_owned, cols]`: for each owned row, the sum of its rows in `needed: [n_needed, cols]` over all PEs that need
    /// it, in rank order. The reverse of [`fetch`](ExchangePlan::fetch). Collective.
    ///
    /// Errors: `needed` does not have `n_needed` rows, and those of communication and of the device.
    pub fn give_back(
        &self,
        device: &D,
        peers: &Peers<D>,
        stage: Stage,
        needed: &Tensor<D>,
    ) -> Result<Tensor<D>> {
        check_length("needed rows", needed.rows(), self.n_needed())?;
        if let Some(table) = peers.readable(needed) {
            return self.read_needed(device, peers, stage, table, needed.cols());
        }
        if peers.reads_devices() {
            return self.read_needed_on_devices(device, peers, stage, needed);
        }
        let sent = gather(device, needed, &self.order)?;
        let received = peers.exchange(device, stage, &sent, &self.receive_counts, &self.send_counts)?;
        drop(sent);
        let mut sum = Tensor::zeros(device, self.n_owned, needed.cols())?;
        device.scatter_add(received.matrix(), D::view(&self.send_rows), sum.make_mut(device)?)?;
        Ok(sum)
    }
}

/// For PEs that share memory: each reads the rows where they are, instead of packing, sending and unpacking them.
impl<D: Device> ExchangePlan<D> {
    /// [`fetch`](ExchangePlan::fetch) from the owners' tables.
    fn read_owned(
        &self,
        device: &D,
        peers: &Peers<D>,
        stage: Stage,
        table: &[D::Scalar],
        cols: usize,
    ) -> Result<Tensor<D>> {
        let (order, send_rows) = (host::<D, _>(&self.order)?, host::<D, _>(&self.send_rows)?);
        let mut out = peers.host().allocate::<D::Scalar>(order.len() * cols)?;
        let own = [bytemuck::cast_slice(table), bytemuck::cast_slice(send_rows), self.send_counts_bytes()];
        let traffic = (&self.send_counts[..], cols * size_of::<D::Scalar>());
        let communicator = peers.communicator();
        communicator.window(stage, traffic, &own, |offered| {
            let mut rows = vec![RemoteRow::default(); order.len()];
            let mut order = order.iter();
            for (owner, theirs) in offered.iter().enumerate() {
                for (&row, &needed) in part_for(theirs, communicator.rank()).iter().zip(order.by_ref()) {
                    rows[needed as usize] = RemoteRow { table: owner as u32, row };
                }
            }
            D::Scalar::gather_remote(&tables(offered), &rows, cols, &mut out);
        })?;
        Tensor::from_buffer(device.adopt(out)?, self.n_needed(), cols)
    }

    /// [`give_back`](ExchangePlan::give_back) from the tables of those that needed rows.
    fn read_needed(
        &self,
        device: &D,
        peers: &Peers<D>,
        stage: Stage,
        table: &[D::Scalar],
        cols: usize,
    ) -> Result<Tensor<D>> {
        let (order, send_rows) = (host::<D, _>(&self.order)?, host::<D, _>(&self.send_rows)?);
        let mut out = peers.host().allocate::<D::Scalar>(self.n_owned * cols)?;
        let own = [bytemuck::cast_slice(table), bytemuck::cast_slice(order), self.receive_counts_bytes()];
        let traffic = (&self.receive_counts[..], cols * size_of::<D::Scalar>());
        let communicator = peers.communicator();
        communicator.window(stage, traffic, &own, |offered| {
            let (indptr, mut next) = self.uses(send_rows);
            let mut rows = vec![RemoteRow::default(); send_rows.len()];
            let mut send_rows = send_rows.iter();
            for (user, theirs) in offered.iter().enumerate() {
                for (&row, &owned) in part_for(theirs, communicator.rank()).iter().zip(send_rows.by_ref()) {
                    let next = &mut next[owned as usize];
                    rows[*next as usize] = RemoteRow { table: user as u32, row };
                    *next += 1;
                }
            }
            D::Scalar::sum_remote(&tables(offered), &indptr, &rows, cols, &mut out);
        })?;
        Tensor::from_buffer(device.adopt(out)?, self.n_owned, cols)
    }

    /// `[n_owned + 1]`: by how many PEs rows before each owned row are needed; and the same again without the last.
    fn uses(&self, send_rows: &[u32]) -> (Vec<u32>, Vec<u32>) {
        let mut indptr = vec![0u32; self.n_owned + 1];
        for &row in send_rows {
            indptr[row as usize + 1] += 1;
        }
        for row in 0..self.n_owned {
            indptr[row + 1] += indptr[row];
        }
        let next = indptr[..self.n_owned].to_vec();
        (indptr, next)
    }

    fn send_counts_bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.send_counts)
    }

    fn receive_counts_bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.receive_counts)
    }
}

/// A plan's array, where rows are in host memory.
fn host<D: Device, T: Element>(array: &D::Buffer<T>) -> Result<&[T]> {
    D::as_host(D::view(array)).ok_or_else(|| Error::invalid("plan", "on a device", "one in host memory"))
}

/// `[index.len(), dim]`: the rows of `table` at `index`.
fn rows_at<S: Scalar, T: Element>(
    cpu: &Cpu<S>,
    table: &[T],
    index: &[u32],
    dim: usize,
) -> Result<CpuBuffer<T>> {
    let mut out = cpu.allocate(index.len() * dim)?;
    let copies: Vec<RowCopy> = (0..).zip(index).map(|(to, &from)| RowCopy { to, from }).collect();
    copy_rows(table, &copies, &mut out, dim, |row, out| out.copy_from_slice(row));
    Ok(out)
}

/// The tables that PEs offer.
fn tables<'a, S: Scalar>(offered: &[&'a [&'a [u8]]]) -> Vec<&'a [S]> {
    offered.iter().map(|theirs| bytemuck::cast_slice(theirs[0])).collect()
}

/// Of the rows that a PE offers, by PE: those for PE `rank`.
fn part_for<'a>(offered: &[&'a [u8]], rank: usize) -> &'a [u32] {
    let (rows, counts): (&[u32], &[usize]) =
        (bytemuck::cast_slice(offered[1]), bytemuck::cast_slice(offered[2]));
    let start = counts[..rank].iter().sum::<usize>();
    &rows[start..start + counts[rank]]
}

fn gather<D: Device>(device: &D, x: &Tensor<D>, index: &D::Buffer<u32>) -> Result<Tensor<D>> {
    let mut out = Tensor::allocate(device, D::len(index), x.cols())?;
    let Matrix { data, rows, .. } = x.matrix();
    device.gather(data, rows, D::view(index), out.make_mut(device)?)?;
    Ok(out)
}

/// `out = fetch(x)`; backward sends gradients the other way, and owners add them up.
struct Exchange<D: Device> {
    plan: Arc<ExchangePlan<D>>,
    peers: Peers<D>,
}

impl<D: Device> Op<D> for Exchange<D> {
    type Saved = ();

    fn name(&self) -> &'static str {
        "exchange"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        Ok((self.plan.fetch(device, &self.peers, Stage::Forward, inputs[0])?, ()))
    }

    fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        Ok(vec![Some(self.plan.give_back(device, &self.peers, Stage::Backward, &step.gradient)?)])
    }
}

/// The rows `[n_needed, dim]` that this PE needs, from all PEs' `x: [n_owned, dim]`. Collective, also in the backward
/// pass.
///
/// Errors: `x` does not have `n_owned` rows, and those of communication and of the device.
pub fn exchange<D: Device>(
    tape: &Tape<D>,
    peers: &Peers<D>,
    plan: &Arc<ExchangePlan<D>>,
    x: Var,
) -> Result<Var> {
    tape.apply(Exchange { plan: plan.clone(), peers: peers.clone() }, &[x])
}
