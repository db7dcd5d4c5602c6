//! P³ (Gandhi & Iyer, "P3: Distributed Deep Graph Learning at Scale", OSDI 2021): each processing element (PE) has some
//! columns of all vertices' features, and computes the first layer's part of these columns for all PEs' destinations.
//!
//! A first layer that begins with linear aggregates `A_k X` of its input computes `Σ_k A_k X W_k`. PE `p` has the
//! columns `C_p` of `X`, hence the partial sum `Σ_k A_k X[:, C_p] W_k[C_p, :]`, and all partial sums add up to the
//! whole. What travels is as wide as the hidden layer instead of the features, and no feature row travels at all.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Peers;
use crate::comm::Stage;
use crate::device::{Cpu, Device, Scalar, Write};
use crate::error::{Error, Result, check_length};
use crate::tape::{Aggregate, BackwardStep, Op, Tape, Var};
use crate::tensor::Tensor;

/// How processing elements share the first layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FirstLayer {
    /// As every other layer: each PE gets whole feature rows.
    #[default]
    Whole,
    /// By columns of the features: P³ (Gandhi & Iyer, OSDI 2021).
    P3,
}

impl fmt::Display for FirstLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            FirstLayer::Whole => "whole",
            FirstLayer::P3 => "p3",
        })
    }
}

impl FromStr for FirstLayer {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "whole" => Ok(FirstLayer::Whole),
            "p3" => Ok(FirstLayer::P3),
            _ => Err(Error::invalid("first layer", name, "whole or p3")),
        }
    }
}

/// The linear aggregates `A_k` of its input with which a first layer begins; each is followed by a weight `W_k`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputTerms {
    /// If it includes the destination: this aggregate alone; else the destinations' own rows, then the aggregate.
    Aggregate(Aggregate),
    /// The destinations' own rows, then for each of so many relations the mean over its edges.
    Relations(usize),
}

impl InputTerms {
    /// Their number.
    pub fn n_terms(self) -> usize {
        match self {
            InputTerms::Aggregate(aggregate) if aggregate.includes_self() => 1,
            InputTerms::Aggregate(_) => 2,
            InputTerms::Relations(n) => 1 + n,
        }
    }
}

/// The columns of PE `rank`, of `dim`: contiguous, as many as others' or one fewer; none if PEs are more than columns.
pub fn columns_of(dim: usize, rank: usize, n_pes: usize) -> Range<usize> {
    dim * rank / n_pes..dim * (rank + 1) / n_pes
}

/// This PE's columns of the first layer's aggregates, for the destinations of all PEs.
#[derive(Clone, Debug)]
pub struct SlicedRows<D: Device> {
    /// `[Σ n_dst, n_terms · columns.len()]`: destinations by PE; a row has its terms side by side.
    rows: Tensor<D>,
    share: Share<D>,
}

/// Whose rows they are, and which columns.
#[derive(Clone, Debug)]
pub struct Share<D: Device> {
    terms: InputTerms,
    /// `[P]`: number of destinations of each PE.
    n_dst: Vec<usize>,
    /// Of this PE.
    columns: Range<usize>,
    /// Columns of the features.
    dim: usize,
    /// For training steps.
    peers: Peers<D>,
}

impl<D: Device> Share<D> {
    /// This PE's part: its `columns` of `dim`, for the `n_dst[q]` destinations of each PE `q`.
    pub(crate) fn new(
        terms: InputTerms,
        n_dst: Vec<usize>,
        columns: Range<usize>,
        dim: usize,
        peers: Peers<D>,
    ) -> Self {
        Share { terms, n_dst, columns, dim, peers }
    }

    /// `[n_dst, n_terms · dim]` for this PE's destinations: the shape that the aggregates of whole rows would have.
    pub fn shape(&self) -> [usize; 2] {
        [self.n_dst[self.peers.communicator().rank()], self.terms.n_terms() * self.dim]
    }

    /// The layer's terms.
    pub fn terms(&self) -> InputTerms {
        self.terms
    }

    /// Calls `copy` with the first and last element of each run of this PE's rows in a weight of `cols` columns, and
    /// where the run begins among these rows alone.
    fn for_runs(&self, cols: usize, mut copy: impl FnMut(Range<usize>, usize) -> Result<()>) -> Result<()> {
        (0..self.terms.n_terms()).try_for_each(|term| {
            let start = term * self.dim + self.columns.start;
            let rows = start..start + self.columns.len();
            copy(rows.start * cols..rows.end * cols, term * self.columns.len() * cols)
        })
    }

    fn n_own_rows(&self) -> usize {
        self.terms.n_terms() * self.columns.len()
    }
}

impl<D: Device> SlicedRows<D> {
    pub(crate) fn new(rows: Tensor<D>, share: Share<D>) -> Self {
        SlicedRows { rows, share }
    }

    /// Whose rows they are, and which columns.
    pub fn share(&self) -> &Share<D> {
        &self.share
    }

    /// `[Σ n_dst, n_terms · columns]`
    pub fn rows(&self) -> &Tensor<D> {
        &self.rows
    }

    /// Moves rows from the host to `device`.
    ///
    /// Errors: the device fails or is out of memory.
    pub fn from_host<S: Scalar>(device: &D, host: SlicedRows<Cpu<S>>) -> Result<Self>
    where
        D: Device<Scalar = S>,
    {
        let Share { terms, n_dst, columns, dim, peers } = host.share;
        let peers = Peers::new(device, peers.communicator().clone());
        let share = Share { terms, n_dst, columns, dim, peers };
        Ok(SlicedRows { rows: Tensor::from_host(device, host.rows)?, share })
    }
}

/// `out = Σ_p rows_p · W[C_p, :]`, the sum in rank order; `dW[C_p, :] = rows_pᵀ · dout` of all PEs' `dout`, and 0 in
/// the other rows, so that the sum of gradients over PEs is the whole gradient.
struct SlicedLinear<D: Device> {
    share: Share<D>,
}

impl<D: Device> Op<D> for SlicedLinear<D> {
    type Saved = ();

    fn name(&self) -> &'static str {
        "sliced_linear"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        let (share, x, weight) = (&self.share, inputs[0], inputs[1]);
        let [n_own, height] = share.shape();
        check_length("rows of the first layer's weights", weight.rows(), height)?;
        let cols = weight.cols();
        let mut own = Tensor::allocate(device, share.n_own_rows(), cols)?;
        share.for_runs(cols, |whole, at| {
            let to = at..at + whole.len();
            device.copy(D::slice(weight.view(), whole), D::slice_mut(own.make_mut(device)?.data, to))
        })?;
        let mut partial = Tensor::zeros(device, x.rows(), cols)?;
        if share.n_own_rows() > 0 {
            let out = partial.make_mut(device)?;
            device.gemm(x.matrix(), false, own.matrix(), false, out, Write::Assign)?;
        }
        let n_pes = share.n_dst.len();
        let received =
            share.peers.exchange(device, Stage::Forward, &partial, &share.n_dst, &vec![n_own; n_pes])?;
        drop(partial);
        let index: Vec<u32> = (0..n_pes).flat_map(|_| 0..n_own as u32).collect();
        let mut sum = Tensor::zeros(device, n_own, cols)?;
        device.scatter_add(received.matrix(), D::view(&device.upload(&index)?), sum.make_mut(device)?)?;
        Ok((sum, ()))
    }

    fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let (share, x, weight, g) = (&self.share, step.inputs[0], step.inputs[1], step.gradient);
        if !step.wanted[1] {
            return Ok(vec![None, None]);
        }
        let (n_pes, cols) = (share.n_dst.len(), g.cols());
        let len = g.rows() * cols;
        let mut sent = Tensor::allocate(device, n_pes * g.rows(), cols)?;
        for pe in 0..n_pes {
            device.copy(g.view(), D::slice_mut(sent.make_mut(device)?.data, pe * len..(pe + 1) * len))?;
        }
        let all =
            share.peers.exchange(device, Stage::Backward, &sent, &vec![g.rows(); n_pes], &share.n_dst)?;
        drop(sent);
        let mut dweight = Tensor::zeros(device, weight.rows(), cols)?;
        if share.n_own_rows() > 0 {
            let mut own = Tensor::allocate(device, share.n_own_rows(), cols)?;
            device.gemm(x.matrix(), true, all.matrix(), false, own.make_mut(device)?, Write::Assign)?;
            share.for_runs(cols, |whole, at| {
                let from = at..at + whole.len();
                device.copy(D::slice(own.view(), from), D::slice_mut(dweight.make_mut(device)?.data, whole))
            })?;
        }
        Ok(vec![None, Some(dweight)])
    }
}

/// The first layer's product for this PE's destinations, `[n_dst, out_dim]`, from all PEs' `rows` ([`SlicedRows`]) and
/// `weight: [n_terms · dim, out_dim]`, the same on all. Collective, also in the backward pass.
///
/// Errors: `weight` has another number of rows, and those of communication and of the device.
pub fn sliced_linear<D: Device>(tape: &Tape<D>, share: &Share<D>, rows: Var, weight: Var) -> Result<Var> {
    tape.apply(SlicedLinear { share: share.clone() }, &[rows, weight])
}

/// Size of one PE's part of the first layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstBlock {
    /// Destinations.
    pub n_dst: u64,
    /// Edges.
    pub n_edge: u64,
}

/// Bytes that PEs send to each other for the first layer of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct P3Bytes {
    /// Source ids and factors of the edges, sent to all PEs.
    pub blocks: u64,
    /// Partial sums, sent to the destinations' PEs.
    pub forward: u64,
    /// Gradients of the sums, sent to all PEs.
    pub backward: u64,
}

/// Bytes of a batch with the first `blocks`, one for each PE, and a first weight of `out_dim` columns, for scalars of
/// `scalar_bytes` bytes.
pub fn p3_bytes(blocks: &[FirstBlock], terms: InputTerms, out_dim: u64, scalar_bytes: u64) -> P3Bytes {
    let others = (blocks.len() as u64).saturating_sub(1);
    let n_dst: u64 = blocks.iter().map(|block| block.n_dst).sum();
    let n_edge: u64 = blocks.iter().map(|block| block.n_edge).sum();
    // Three lists, each announced by a count of 8 bytes: lengths by destination and term, ids, factors.
    let announced = 3 * 8 * blocks.len() as u64;
    let lists = 4 * n_dst * terms.n_terms() as u64 + (n_edge + n_dst) * (4 + scalar_bytes);
    let sums = others * n_dst * out_dim * scalar_bytes;
    P3Bytes { blocks: others * (announced + lists), forward: sums, backward: sums }
}
