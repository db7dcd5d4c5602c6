//! Blocks: the bipartite layers of a sampled neighbourhood ("message flow graphs").
//!
//! ```
//! use cohop::block::Block;
//! use cohop::device::Cpu;
//!
//! let device = Cpu::<f32>::new();
//! // Destination 0 has the sources 1 and 2, destination 1 has source 2.
//! let block = Block::from_csr(&device, 3, &[0, 2, 3], &[1, 2, 2])?;
//! assert_eq!((block.n_dst(), block.n_src(), block.n_edge()), (2, 3, 3));
//! assert_eq!(block.mean_weights(&device)?.row, Some(&[0.5, 1.0][..]));
//! # Ok::<(), cohop::Error>(())
//! ```

mod relations;

pub use relations::RelationNeeds;

use std::sync::OnceLock;

use crate::device::{
    Cpu, Csr, DegreeFactors, Device, FeatureElement, RelationEdges, SampledBlock, Storage, Weights, Write,
    check_csr, factors_of_degree, longest_row, on_host,
};
use crate::error::{Error, Result, check_length};
use crate::pattern::{Pattern, get_or_try_init};

/// One layer of a minibatch: edges from sources to destinations, where the first `n_dst` sources are the destinations.
///
/// Immutable after construction. What a layer needs besides (the transpose, normalising factors) is computed on the
/// device at first use, and kept.
#[derive(Debug)]
pub struct Block<D: Device> {
    pattern: Pattern<D>,
    src: D::Buffer<u32>,
    edge_id: Option<D::Buffer<u64>>,
    weight: Option<D::Buffer<D::Scalar>>,
    edge_type: Option<D::Buffer<u16>>,
    edge_weight: Option<D::Buffer<D::Scalar>>,
    symmetric: Option<Factors<D>>,
    weighted_estimate: OnceLock<D::Buffer<D::Scalar>>,
    inverse_sum: OnceLock<D::Buffer<D::Scalar>>,
    mean_with_self: OnceLock<Factors<D>>,
    relations: OnceLock<RelationEdges<D>>,
    /// Of relations' destinations and sources; see [`relation_ends`](Block::relation_ends).
    relation_ends: [OnceLock<RelationEdges<D>>; 2],
    relation_messages: OnceLock<Pattern<D>>,
    edges: OnceLock<Pattern<D>>,
}

/// Factors of an aggregation that includes the destination itself: `own[t] · x_t + row[t] · Σ column[s] · x_s`.
#[derive(Debug)]
struct Factors<D: Storage> {
    row: D::Buffer<D::Scalar>,
    column: Option<D::Buffer<D::Scalar>>,
    own: D::Buffer<D::Scalar>,
}

/// The edges' factors in an aggregation that includes the destination itself, and `[n_dst]`: its own factor.
pub type WithSelf<'a, D> = (Weights<'a, D>, <D as Storage>::View<'a, <D as Storage>::Scalar>);

impl<D: Device> Block<D> {
    /// A block from a sampler's arrays, which are checked. Makes blocks of what your own sampler returns.
    ///
    /// Edge types are checked later, by the kernels that use them. A GPU's `indptr`, `indices` and `edge_weight` are
    /// copied to the host for the check.
    ///
    /// Errors: fewer sources than destinations, an `indptr` that does not ascend from 0 to the number of edges, an
    /// index that is not below the number of sources, an edge weight that is negative or not finite, an array of the
    /// wrong length, or a failure of the device.
    ///
    /// ```
    /// # fn main() -> cohop::Result<()> {
    /// use cohop::prelude::*;
    ///
    /// let device = Cpu::<f32>::new();
    /// let (src, indptr, indices) = ([7, 3, 9], [0, 2], [1, 2]);
    /// let parts = SampledBlock::new(device.upload(&src)?, device.upload(&indptr)?, device.upload(&indices)?);
    /// let block = Block::new(&device, parts)?;
    /// assert_eq!((block.n_dst(), block.n_src(), block.n_edge()), (1, 3, 2));
    /// assert_eq!(block.into_parts().src[..], [7, 3, 9]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(device: &D, parts: SampledBlock<D>) -> Result<Self> {
        let longest_row = {
            let indptr = on_host(device, D::view(&parts.indptr))?;
            check_csr(&indptr, &on_host(device, D::view(&parts.indices))?, D::len(&parts.src))?;
            longest_row(&indptr)
        };
        if let Some(weight) = &parts.edge_weight {
            check_edge_weights(device, weight)?;
        }
        Ok(Block::from_valid(parts)?.with_longest_row(Some(longest_row)))
    }

    /// A block from arrays that are known to be valid: a sampler of this crate made them, or they were checked. Checks
    /// only lengths.
    ///
    /// Errors: fewer sources than destinations, or an array of the wrong length.
    pub(crate) fn from_valid(parts: SampledBlock<D>) -> Result<Self> {
        let n_src = D::len(&parts.src);
        if n_src < parts.n_dst {
            check_length("src", n_src, parts.n_dst)?;
        }
        let pattern = Pattern::from_valid(parts.n_dst, n_src, parts.indptr, parts.indices)?;
        for (name, len) in [
            ("edge_id", parts.edge_id.as_ref().map(D::len)),
            ("weight", parts.weight.as_ref().map(D::len)),
            ("edge_type", parts.edge_type.as_ref().map(D::len)),
            ("edge_weight", parts.edge_weight.as_ref().map(D::len)),
        ] {
            check_length(name, len.unwrap_or(pattern.n_edge()), pattern.n_edge())?;
        }
        Ok(Block {
            pattern,
            src: parts.src,
            edge_id: parts.edge_id,
            weight: parts.weight,
            edge_type: parts.edge_type,
            edge_weight: parts.edge_weight,
            symmetric: None,
            weighted_estimate: OnceLock::new(),
            inverse_sum: OnceLock::new(),
            mean_with_self: OnceLock::new(),
            relations: OnceLock::new(),
            relation_ends: Default::default(),
            relation_messages: OnceLock::new(),
            edges: OnceLock::new(),
        })
    }

    /// Says how many edges a destination has at most, where that is known: see [`Pattern::with_longest_row`].
    pub(crate) fn with_longest_row(mut self, longest_row: Option<usize>) -> Self {
        self.pattern = self.pattern.with_longest_row(longest_row);
        self
    }

    /// A block over given edges by destination: sources `0..n_src`, destinations `0..indptr.len() - 1`.
    ///
    /// Errors: `indptr` is empty or does not ascend from 0 to `indices.len()`, an index is not below `n_src`, there are
    /// more destinations than sources, or the device is out of memory.
    pub fn from_csr(device: &D, n_src: usize, indptr: &[u32], indices: &[u32]) -> Result<Self> {
        let pattern = Pattern::from_host(device, n_src, indptr, indices)?;
        if n_src < pattern.n_rows() {
            return Err(Error::invalid("n_src", n_src, format!("at least n_dst = {}", pattern.n_rows())));
        }
        let src: Vec<u32> = (0..n_src as u32).collect();
        let longest_row = pattern.csr().longest_row;
        let (_, _, indptr, indices) = pattern.into_parts();
        let block = Block::from_valid(SampledBlock::new(device.upload(&src)?, indptr, indices))?;
        Ok(block.with_longest_row(longest_row))
    }

    /// Gives the edges relations, `edge_type: [n_edge]`.
    ///
    /// Errors: `edge_type` does not have one element per edge.
    pub fn with_edge_types(mut self, edge_type: D::Buffer<u16>) -> Result<Self> {
        check_length("edge_type", D::len(&edge_type), self.n_edge())?;
        self.edge_type = Some(edge_type);
        self.relations = OnceLock::new();
        self.relation_ends = Default::default();
        self.relation_messages = OnceLock::new();
        Ok(self)
    }

    /// Gives the edges weights, `edge_weight: [n_edge]`, which are copied to the host for a check. Sums and means over
    /// the block are weighted by them from now on; call this before [`with_degrees`](Block::with_degrees).
    ///
    /// Errors: `edge_weight` does not have one element per edge, one is negative or not finite, or the device fails.
    pub fn with_edge_weights(self, device: &D, edge_weight: D::Buffer<D::Scalar>) -> Result<Self> {
        check_edge_weights(device, &edge_weight)?;
        let longest_row = self.csr().longest_row;
        let parts = SampledBlock { edge_weight: Some(edge_weight), ..self.into_parts() };
        Ok(Block::from_valid(parts)?.with_longest_row(longest_row))
    }

    /// Gives the edges their numbers in the graph, `edge_id: [n_edge]`.
    ///
    /// Errors: another length.
    pub fn with_edge_ids(mut self, edge_id: D::Buffer<u64>) -> Result<Self> {
        check_length("edge_id", D::len(&edge_id), self.n_edge())?;
        self.edge_id = Some(edge_id);
        Ok(self)
    }

    /// Number of destination vertices.
    pub fn n_dst(&self) -> usize {
        self.pattern.n_rows()
    }

    /// Number of source vertices, destinations included.
    pub fn n_src(&self) -> usize {
        self.pattern.n_cols()
    }

    /// Number of edges.
    pub fn n_edge(&self) -> usize {
        self.pattern.n_edge()
    }

    /// `[n_src]`: global ids of the sources, destinations first.
    pub fn src(&self) -> D::View<'_, u32> {
        D::view(&self.src)
    }

    /// The edges by destination: `n_dst` rows, `n_src` columns.
    pub fn csr(&self) -> Csr<'_, D> {
        self.pattern.csr()
    }

    /// The edges by source: `n_src` rows, `n_dst` columns, `edge` set. Made by the first call.
    ///
    /// Errors: the device fails or is out of memory.
    pub fn transpose(&self, device: &D) -> Result<Csr<'_, D>> {
        self.pattern.transpose(device)
    }

    /// The edges by destination, as positions in the [`transpose`](Block::transpose): `n_dst` rows, `n_edge` columns.
    /// SpMM with it sums edge values that a kernel stored in the transpose's order. Made by the first call.
    ///
    /// Errors: the device fails or is out of memory.
    pub fn csr_into_transpose(&self, device: &D) -> Result<Csr<'_, D>> {
        self.pattern.csr_into_transpose(device)
    }

    /// The edges by destination, with their own positions as columns: `n_dst` rows, `n_edge` columns. SpMM by it sums
    /// rows of edges, and by its transpose gives each edge its destination's row. Made by the first call.
    ///
    /// Errors: the device fails or is out of memory.
    pub fn edges(&self, device: &D) -> Result<&Pattern<D>> {
        get_or_try_init(&self.edges, || {
            let mut indptr = device.allocate(self.n_dst() + 1)?;
            device.copy(self.csr().indptr, D::view_mut(&mut indptr))?;
            let positions: Vec<u32> = (0..self.n_edge() as u32).collect();
            let edges = Pattern::from_valid(self.n_dst(), self.n_edge(), indptr, device.upload(&positions)?)?;
            Ok(edges.with_longest_row(self.csr().longest_row))
        })
    }

    /// `[n_edge]`: the edges' ids in the graph, if the sampler recorded them.
    pub fn edge_id(&self) -> Option<D::View<'_, u64>> {
        self.edge_id.as_ref().map(|b| D::view(b))
    }

    /// `[n_edge]`: relations, if the graph has edge types.
    pub fn edge_type(&self) -> Option<D::View<'_, u16>> {
        self.edge_type.as_ref().map(|b| D::view(b))
    }

    /// `[n_edge]`: estimator weights that sum to 1 in each row; `None`: all edges of a row count alike in an estimate.
    pub fn weight(&self) -> Option<D::View<'_, D::Scalar>> {
        self.weight.as_ref().map(|b| D::view(b))
    }

    /// `[n_edge]`: the edges' weights in the graph, if they were asked for. Sums and means over the block are weighted
    /// by them.
    pub fn edge_weight(&self) -> Option<D::View<'_, D::Scalar>> {
        self.edge_weight.as_ref().map(|b| D::view(b))
    }

    /// `[n_edge]`: the edges' shares in a row's weighted mean, up to a factor of the row: estimator weights times edge
    /// weights, as far as there are any.
    fn edge_factors(&self, device: &D) -> Result<Option<D::View<'_, D::Scalar>>> {
        let (Some(estimate), Some(weight)) = (self.weight(), self.edge_weight()) else {
            return Ok(self.weight().or(self.edge_weight()));
        };
        let product = get_or_try_init(&self.weighted_estimate, || {
            let mut out = device.allocate(self.n_edge())?;
            device.multiply(estimate, weight, D::view_mut(&mut out), Write::Assign)?;
            Ok(out)
        })?;
        Ok(Some(D::view(product)))
    }

    /// `[n_dst]`: one over the sum of each row's [`edge_factors`](Block::edge_factors), or where there are none over
    /// its number of edges; 0 where that is 0.
    fn inverse_sum(&self, device: &D) -> Result<D::View<'_, D::Scalar>> {
        let inverse = get_or_try_init(&self.inverse_sum, || {
            let mut out = device.allocate(self.n_dst())?;
            match self.edge_factors(device)? {
                Some(factors) => {
                    device.inverse_weight_sum(self.csr(), factors, 0.0, D::view_mut(&mut out))?;
                }
                None => device.inverse_degree(self.csr().indptr, 0.0, D::view_mut(&mut out))?,
            }
            Ok(out)
        })?;
        Ok(D::view(inverse))
    }

    /// The factors with which [`spmm`](crate::device::Spmm::spmm) over [`csr`](Block::csr) adds up each destination's
    /// edges: their weights in the graph, if the block has them.
    pub fn sum_weights(&self) -> Weights<'_, D> {
        Weights { edge: self.edge_weight(), row: None, column: None }
    }

    /// The factors of the mean over each destination's edges: `w / Σ w` with the edges' weights `w` in the graph, one
    /// over the number of edges without them. With estimator weights `h` these are `h w / Σ h w` and `h`. A destination
    /// whose weights are all 0 gets 0.
    ///
    /// Errors: the device fails or is out of memory.
    pub fn mean_weights(&self, device: &D) -> Result<Weights<'_, D>> {
        if let (Some(weight), None) = (self.weight(), &self.edge_weight) {
            return Ok(Weights { edge: Some(weight), row: None, column: None });
        }
        let row = Some(self.inverse_sum(device)?);
        Ok(Weights { edge: self.edge_factors(device)?, row, column: None })
    }

    /// The factors of the mean over a destination's edges in the block and the destination itself, which counts as an
    /// edge of weight 1, and the destination's own factor `1 / (k + 1)`, where `k` is the sum of the edges' weights in
    /// the graph, or without them the number of edges. With estimator weights the edges' part is `k / (k + 1)` times
    /// their [mean](Block::mean_weights).
    ///
    /// Errors: the device fails or is out of memory.
    pub fn mean_with_self_weights(&self, device: &D) -> Result<WithSelf<'_, D>> {
        let factors = get_or_try_init(&self.mean_with_self, || {
            let mut own = device.allocate(self.n_dst())?;
            match self.edge_weight() {
                Some(weight) => {
                    device.inverse_weight_sum(self.csr(), weight, 1.0, D::view_mut(&mut own))?;
                }
                None => device.inverse_degree(self.csr().indptr, 1.0, D::view_mut(&mut own))?,
            }
            let mut row = device.allocate(self.n_dst())?;
            if self.weight.is_some() {
                device.fill(num_traits::One::one(), D::view_mut(&mut row))?;
                device.scale(-1.0, D::view(&own), D::view_mut(&mut row), Write::Add)?;
            } else {
                device.copy(D::view(&own), D::view_mut(&mut row))?;
            }
            if self.weight.is_some() && self.edge_weight.is_some() {
                let mut mean = device.allocate(self.n_dst())?;
                let inverse_sum = self.inverse_sum(device)?;
                device.multiply(D::view(&row), inverse_sum, D::view_mut(&mut mean), Write::Assign)?;
                row = mean;
            }
            Ok(Factors { row, column: None, own })
        })?;
        self.weights_of(device, factors)
    }

    /// The factors of GCN's symmetric normalisation with self-loops (Kipf & Welling 2017), and the destination's own
    /// factor `1 / (D_t + 1)`, where `D` is the sum of the weights of a vertex's in-edges in the whole graph, or
    /// without weights their number.
    ///
    /// An edge of weight `w` has `w / √((D_s + 1)(D_t + 1))`, times `d / k` where the block holds only `k` of the
    /// destination's `d` edges: its expectation under sampling is the sum over all of them. `None` unless
    /// [`with_degrees`](Block::with_degrees) was called.
    ///
    /// Errors: the device fails or is out of memory.
    pub fn symmetric_weights(&self, device: &D) -> Result<Option<WithSelf<'_, D>>> {
        self.symmetric.as_ref().map(|factors| self.weights_of(device, factors)).transpose()
    }

    fn weights_of<'a>(&'a self, device: &D, factors: &'a Factors<D>) -> Result<WithSelf<'a, D>> {
        let weights = Weights {
            edge: self.edge_factors(device)?,
            row: Some(D::view(&factors.row)),
            column: factors.column.as_ref().map(|c| D::view(c)),
        };
        Ok((weights, D::view(&factors.own)))
    }

    /// Adds what [`symmetric_weights`](Block::symmetric_weights) needs: `in_degree(v)` is the in-degree of the
    /// global id `v` in the whole graph. Reads `src` and `indptr` back from the device.
    ///
    /// Errors: the block has edge weights, or the device fails or is out of memory.
    pub fn with_degrees(self, device: &D, in_degree: impl Fn(u32) -> u64) -> Result<Self> {
        if self.edge_weight.is_some() {
            return Err(Error::invalid("block", "with edge weights", "degrees by `with_weighted_degrees`"));
        }
        self.with_factors(device, &in_degree, |v| in_degree(v) as f64)
    }

    /// The same for a block with edge weights: `weighted_in_degree(v)` is the sum of the weights of all in-edges of `v`
    /// in the whole graph; `in_degree` is asked for destinations only.
    ///
    /// Errors: the block has no edge weights, or the device fails or is out of memory.
    pub fn with_weighted_degrees(
        self,
        device: &D,
        in_degree: impl Fn(u32) -> u64,
        weighted_in_degree: impl Fn(u32) -> f64,
    ) -> Result<Self> {
        if self.edge_weight.is_none() {
            return Err(Error::invalid("block", "without edge weights", "degrees by `with_degrees`"));
        }
        self.with_factors(device, in_degree, weighted_in_degree)
    }

    /// The same with the degrees in `graph`, of which it is a block.
    ///
    /// Errors: the device fails or is out of memory.
    pub(crate) fn with_degrees_in(mut self, device: &D, graph: &D::Graph) -> Result<Self> {
        let (has_estimates, weighted) = (self.weight.is_some(), self.edge_weight.is_some());
        let indptr = self.csr().indptr;
        let DegreeFactors { row, column, own } =
            device.degree_factors(graph, self.src(), indptr, has_estimates, weighted)?;
        self.symmetric = Some(Factors { row, column: Some(column), own });
        Ok(self)
    }

    fn with_factors(
        mut self,
        device: &D,
        in_degree: impl Fn(u32) -> u64,
        weighted_in_degree: impl Fn(u32) -> f64,
    ) -> Result<Self> {
        let scalar = |value: f64| <D::Scalar as crate::device::Scalar>::from_f64(value);
        let src = device.download(self.src())?;
        let indptr = device.download(self.csr().indptr)?;
        let n_dst = self.n_dst();
        let (mut row, mut column, mut own) =
            (Vec::with_capacity(n_dst), Vec::new(), Vec::with_capacity(n_dst));
        for (i, &v) in src.iter().enumerate() {
            // Only destinations have a row, and are asked for their degree.
            let (degree, n_edge) =
                if i < n_dst { (in_degree(v) as f64, indptr[i + 1] - indptr[i]) } else { (0.0, 0) };
            let factors = factors_of_degree(degree, weighted_in_degree(v), n_edge, self.weight.is_some());
            let factors = factors.map(scalar);
            column.push(factors[1]);
            if i < n_dst {
                row.push(factors[0]);
                own.push(factors[2]);
            }
        }
        self.symmetric = Some(Factors {
            row: device.upload(&row)?,
            column: Some(device.upload(&column)?),
            own: device.upload(&own)?,
        });
        Ok(self)
    }

    /// The block's arrays, without what was made from them.
    pub fn into_parts(self) -> SampledBlock<D> {
        let (n_dst, _, indptr, indices) = self.pattern.into_parts();
        let Block { src, edge_id, weight, edge_type, edge_weight, .. } = self;
        SampledBlock { n_dst, src, indptr, indices, edge_id, weight, edge_type, edge_weight }
    }

    /// Moves a block from the host to `device` (on the CPU: the same memory).
    ///
    /// Errors: the device fails or is out of memory.
    pub fn from_host(device: &D, host: Block<Cpu<D::Scalar>>) -> Result<Self> {
        let longest_row = longest_row(host.pattern.csr().indptr);
        let (n_dst, _, indptr, indices) = host.pattern.into_parts();
        let mut block = Block::from_valid(SampledBlock {
            n_dst,
            src: device.adopt(host.src)?,
            indptr: device.adopt(indptr)?,
            indices: device.adopt(indices)?,
            edge_id: host.edge_id.map(|b| device.adopt(b)).transpose()?,
            weight: host.weight.map(|b| device.adopt(b)).transpose()?,
            edge_type: host.edge_type.map(|b| device.adopt(b)).transpose()?,
            edge_weight: host.edge_weight.map(|b| device.adopt(b)).transpose()?,
        })?
        .with_longest_row(Some(longest_row));
        if let Some(factors) = host.symmetric {
            block.symmetric = Some(Factors {
                row: device.adopt(factors.row)?,
                column: factors.column.map(|c| device.adopt(c)).transpose()?,
                own: device.adopt(factors.own)?,
            });
        }
        Ok(block)
    }
}

/// `Ok` if all edge weights are finite and not negative.
fn check_edge_weights<D: Device>(device: &D, edge_weight: &D::Buffer<D::Scalar>) -> Result<()> {
    let weights = on_host(device, D::view(edge_weight))?;
    let bad = |w: &D::Scalar| !(w.widen_f64().is_finite() && w.widen_f64() >= 0.0);
    match weights.iter().position(bad) {
        None => Ok(()),
        Some(position) => {
            let found = format!("{} at position {position}", weights[position].widen_f64());
            Err(Error::invalid("edge_weight", found, "a finite number of at least 0"))
        }
    }
}
