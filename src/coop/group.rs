//! The processing elements (PEs) that train one model, and what they add up and exchange in a step.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Mode, Peers, RowTransport, sum_gradients};
use crate::comm::{Communicator, Stage, Sum};
use crate::device::{Device, Write};
use crate::error::{Error, Result};
use crate::tape::{BatchStatistics, Gradients, ParameterId, Tape};
use crate::tensor::Tensor;

/// One PE's place among those that train one model; or a PE that trains alone, for which everything here costs nothing.
/// Cloning shares it.
///
/// In both parallel modes the loss is the mean over the whole batch, and gradients are added up over PEs, so that
/// parameters stay the same everywhere.
#[derive(Clone, Debug)]
pub struct Group<D: Device> {
    members: Option<Arc<Members<D>>>,
}

#[derive(Debug)]
struct Members<D: Device> {
    mode: Mode,
    /// For training steps.
    peers: Peers<D>,
    /// For preparing batches, which runs concurrently with training.
    preparing: Communicator,
}

impl<D: Device> Group<D> {
    /// One PE that trains alone.
    pub fn alone() -> Self {
        Group { members: None }
    }

    /// This PE's place among those of `communicator`. Collective: all PEs call it at the same time.
    ///
    /// Errors: `mode` is serial, or `communicator` cannot be duplicated.
    pub fn new(device: &D, mode: Mode, communicator: Communicator) -> Result<Self> {
        Group::connect(device, mode, communicator, RowTransport::Auto)
    }

    /// [`new`](Group::new), where rows get from device to device as `transport` says. Collective.
    ///
    /// Errors: those of [`new`](Group::new) and of [`Peers::connect`].
    pub fn connect(
        device: &D,
        mode: Mode,
        communicator: Communicator,
        transport: RowTransport,
    ) -> Result<Self> {
        if mode == Mode::Serial {
            let n_pes = format!("serial with {} processing elements", communicator.size());
            return Err(Error::invalid("mode", n_pes, "independent or cooperative"));
        }
        let preparing = communicator.duplicate()?;
        let peers = Peers::connect(device, communicator, transport)?;
        let members = Members { mode, peers, preparing };
        Ok(Group { members: Some(Arc::new(members)) })
    }

    /// How the PEs share a batch.
    pub fn mode(&self) -> Mode {
        self.members.as_ref().map_or(Mode::Serial, |members| members.mode)
    }

    /// This PE's number, from 0.
    pub fn rank(&self) -> usize {
        self.members.as_ref().map_or(0, |members| members.preparing.rank())
    }

    /// Number of PEs.
    pub fn size(&self) -> usize {
        self.members.as_ref().map_or(1, |members| members.preparing.size())
    }

    /// The other PEs, for training steps.
    ///
    /// Errors: this PE is alone.
    pub fn peers(&self) -> Result<&Peers<D>> {
        self.members.as_ref().map(|members| &members.peers).ok_or_else(alone)
    }

    /// The communicator for preparing batches.
    ///
    /// Errors: this PE is alone.
    pub fn preparing(&self) -> Result<&Communicator> {
        self.members.as_ref().map(|members| &members.preparing).ok_or_else(alone)
    }

    /// A training tape; if PEs cooperate, batch norms on it take statistics over all PEs.
    pub fn tape(&self, device: &D, seed: u64) -> Tape<D> {
        let tape = Tape::training(device, seed);
        match &self.members {
            Some(members) if members.mode == Mode::Cooperative => {
                tape.with_peers(Arc::new(members.peers.clone()))
            }
            _ => tape,
        }
    }

    /// Makes the other PEs fail too, with `problem` as the reason.
    pub fn abort(&self, problem: &str) {
        if let Some(members) = &self.members {
            members.preparing.abort(problem);
            members.peers.communicator().abort(problem);
        }
    }

    /// Adds up counts over all PEs. Collective.
    ///
    /// Errors: those of communication.
    pub fn sum<const N: usize>(&self, mut counts: [u64; N]) -> Result<[u64; N]> {
        if let Some(members) = &self.members {
            members.peers.communicator().all_reduce_sum(Stage::Other, Sum::U64(&mut counts))?;
        }
        Ok(counts)
    }

    /// Adds up a number over all PEs, in rank order. Collective.
    ///
    /// Errors: those of communication.
    pub fn sum_loss(&self, loss: f64) -> Result<f64> {
        let mut loss = [loss];
        if let Some(members) = &self.members {
            members.peers.communicator().all_reduce_sum(Stage::Other, Sum::F64(&mut loss))?;
        }
        Ok(loss[0])
    }

    /// Each parameter's gradient, added up over all PEs. Collective.
    ///
    /// Errors: those of communication.
    pub fn sum_gradients(&self, device: &D, gradients: Gradients<D>) -> Result<Gradients<D>> {
        match &self.members {
            Some(members) => sum_gradients(device, &members.peers, &gradients),
            None => Ok(gradients),
        }
    }

    /// The statistics that batch norms took, the same on all PEs. If each PE has its own batch, they are averaged over
    /// the PEs that have them, so that running averages stay the same everywhere: a batch norm over fewer than two rows
    /// takes none. If all share one batch, they are the same already. Collective.
    ///
    /// Errors: those of communication.
    pub fn share_statistics(
        &self,
        device: &D,
        statistics: Vec<BatchStatistics<D>>,
    ) -> Result<Vec<BatchStatistics<D>>> {
        let Some(members) = self.members.as_ref().filter(|members| members.mode == Mode::Independent) else {
            return Ok(statistics);
        };
        // What is to be averaged must not depend on what this PE has.
        if self.sum([statistics.len() as u64])? == [0] {
            return Ok(statistics);
        }
        let mut own = HashMap::new();
        let mut names = Vec::new();
        for x in statistics {
            let [mean, variance] = x.running.map(|id| id.index() as u64);
            let nth = names.iter().filter(|name: &&[u64; 4]| name[..2] == [mean, variance]).count() as u64;
            let name = [mean, variance, nth, x.mean.cols() as u64];
            names.push(name);
            own.insert(name, x);
        }
        let (gathered, _) =
            members.peers.communicator().all_gather_v(Stage::Parameter, names.as_flattened())?;
        let (mut union, mut n_having) = (Vec::new(), HashMap::new());
        for name in gathered.as_chunks::<4>().0 {
            let n = n_having.entry(*name).or_insert(0u32);
            if *n == 0 {
                union.push(*name);
            }
            *n += 1;
        }
        let averaged = |name: [u64; 4]| {
            let [mean, variance, _, dim] = name.map(|number| number as usize);
            let average = |x: Option<&Tensor<D>>| -> Result<Tensor<D>> {
                let x = x.map_or_else(|| Tensor::zeros(device, 1, dim), |x| Ok(x.clone()))?;
                let sum = members.peers.all_reduce(device, Stage::Parameter, &x)?;
                let mut mean = Tensor::allocate(device, sum.rows(), sum.cols())?;
                let factor = 1.0 / f64::from(n_having[&name]);
                device.scale(factor, sum.view(), mean.make_mut(device)?.data, Write::Assign)?;
                Ok(mean)
            };
            let own = own.get(&name);
            Ok(BatchStatistics {
                running: [mean, variance].map(ParameterId::new),
                mean: average(own.map(|x| &x.mean))?,
                variance: average(own.map(|x| &x.variance))?,
            })
        };
        union.into_iter().map(averaged).collect()
    }

    /// Each PE has `rows: [ids.len(), cols]` for the vertices `ids`. Returns `[vertices.len(), cols]`: the rows of all
    /// `vertices`, in their order; if several PEs have a row, the last one counts. A PE that is alone must have all of
    /// them, in order. Collective.
    ///
    /// Errors: a vertex that no PE has a row for, and those of communication.
    pub fn gather_rows(
        &self,
        vertices: &[u32],
        ids: &[u32],
        rows: Vec<D::Scalar>,
        cols: usize,
    ) -> Result<Vec<D::Scalar>> {
        let Some(members) = &self.members else { return Ok(rows) };
        let communicator = members.peers.communicator();
        let (ids, _) = communicator.all_gather_v(Stage::Other, ids)?;
        let (rows, _) = communicator.all_gather_v(Stage::Other, &rows)?;
        let row_of: HashMap<u32, usize> = ids.iter().enumerate().map(|(row, &id)| (id, row)).collect();
        let mut out = Vec::with_capacity(vertices.len() * cols);
        for vertex in vertices {
            let row = row_of.get(vertex).ok_or_else(|| Error::Communication {
                rank: communicator.rank(),
                problem: format!("no processing element has a prediction for vertex {vertex}"),
            })?;
            out.extend_from_slice(&rows[row * cols..(row + 1) * cols]);
        }
        Ok(out)
    }

    /// Seconds that this PE has spent on exchange since the last [`take_exchanged`](Group::take_exchanged).
    pub fn exchange_seconds(&self) -> f64 {
        let communicator = |members: &Arc<Members<D>>| members.peers.communicator().statistics();
        self.members.as_ref().map_or(0.0, |members| communicator(members).total().seconds)
    }

    /// Bytes that all PEs have sent to others since the last call, and the seconds that this PE
    /// spent on it. Collective.
    ///
    /// Errors: those of communication.
    pub fn take_exchanged(&self) -> Result<(u64, f64)> {
        let Some(members) = &self.members else { return Ok((0, 0.0)) };
        let communicator = members.peers.communicator();
        let total = communicator.statistics().total();
        let [bytes] = self.sum([total.bytes])?;
        communicator.reset_statistics();
        Ok((bytes, total.seconds))
    }
}

/// The error for one PE where several are needed.
fn alone() -> Error {
    Error::invalid("group", "one processing element alone", "one of several, by Group::new")
}
