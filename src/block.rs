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

use std::sync::OnceLock;

use crate::device::{
    Cpu, Csr, Device, RelationEdges, SampledBlock, Storage, Weights, Write, check_csr, on_host,
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
    symmetric: Option<Factors<D>>,
    inverse_degree: OnceLock<D::Buffer<D::Scalar>>,
    mean_with_self: OnceLock<Factors<D>>,
    relations: OnceLock<RelationEdges<D>>,
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
    /// Edge types are checked later, by the kernels that use them. A GPU's `indptr` and `indices` are copied to the
    /// host for the check.
    ///
    /// Errors: fewer sources than destinations, an `indptr` that does not ascend from 0 to the number of edges, an
    /// index that is not below the number of sources, an array of the wrong length, or a failure of the device.
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
        let (indptr, indices) = (D::view(&parts.indptr), D::view(&parts.indices));
        check_csr(&on_host(device, indptr)?, &on_host(device, indices)?, D::len(&parts.src))?;
        Block::from_valid(parts)
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
        ] {
            check_length(name, len.unwrap_or(pattern.n_edge()), pattern.n_edge())?;
        }
        Ok(Block {
            pattern,
            src: parts.src,
            edge_id: parts.edge_id,
            weight: parts.weight,
            edge_type: parts.edge_type,
            symmetric: None,
            inverse_degree: OnceLock::new(),
            mean_with_self: OnceLock::new(),
            relations: OnceLock::new(),
            edges: OnceLock::new(),
        })
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
        let (_, _, indptr, indices) = pattern.into_parts();
        Block::from_valid(SampledBlock::new(device.upload(&src)?, indptr, indices))
    }

    /// Gives the edges relations, `edge_type: [n_edge]`.
    ///
    /// Errors: `edge_type` does not have one element per edge.
    pub fn with_edge_types(mut self, edge_type: D::Buffer<u16>) -> Result<Self> {
        check_length("edge_type", D::len(&edge_type), self.n_edge())?;
        self.edge_type = Some(edge_type);
        self.relations = OnceLock::new();
        Ok(self)
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
            Pattern::from_valid(self.n_dst(), self.n_edge(), indptr, device.upload(&positions)?)
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

    /// The edges grouped by relation and destination, and by relation and source. Made by the first call.
    ///
    /// Errors: the block has no edge types, one of them is not below `n_relations`, or `n_relations` is not that of the
    /// first call.
    pub fn relations(&self, device: &D, n_relations: usize) -> Result<&RelationEdges<D>> {
        let edges = get_or_try_init(&self.relations, || {
            let edge_type = self.edge_type().ok_or_else(|| {
                Error::invalid("block", "without edge types", "one sampled from a graph with relations")
            })?;
            device.group_relations(self.csr(), edge_type, n_relations, self.weight())
        })?;
        check_length("relations", n_relations, edges.by_source.n_relations())?;
        Ok(edges)
    }

    /// `[n_edge]`: estimator weights that sum to 1 in each row; `None`: all edges of a row have equal weight.
    pub fn weight(&self) -> Option<D::View<'_, D::Scalar>> {
        self.weight.as_ref().map(|b| D::view(b))
    }

    /// The factors with which [`spmm`](crate::device::Spmm::spmm) over [`csr`](Block::csr) takes the mean over each
    /// destination's edges: the estimator weights if there are any, else one over the number of edges.
    ///
    /// Errors: the device fails or is out of memory.
    pub fn mean_weights(&self, device: &D) -> Result<Weights<'_, D>> {
        if let Some(weight) = self.weight() {
            return Ok(Weights { edge: Some(weight), row: None, column: None });
        }
        let inverse = get_or_try_init(&self.inverse_degree, || {
            let mut out = device.allocate(self.n_dst())?;
            device.inverse_degree(self.csr().indptr, 0.0, D::view_mut(&mut out))?;
            Ok(out)
        })?;
        Ok(Weights { edge: None, row: Some(D::view(inverse)), column: None })
    }

    /// The factors of the mean over a destination's `k` edges and the destination itself, and the destination's own
    /// factor `1 / (k + 1)`. With estimator weights the edges' part is `k / (k + 1)` times their weighted mean.
    ///
    /// Errors: the device fails or is out of memory.
    pub fn mean_with_self_weights(&self, device: &D) -> Result<WithSelf<'_, D>> {
        let factors = get_or_try_init(&self.mean_with_self, || {
            let mut own = device.allocate(self.n_dst())?;
            device.inverse_degree(self.csr().indptr, 1.0, D::view_mut(&mut own))?;
            let mut row = device.allocate(self.n_dst())?;
            if self.weight.is_some() {
                device.fill(num_traits::One::one(), D::view_mut(&mut row))?;
                device.scale(-1.0, D::view(&own), D::view_mut(&mut row), Write::Add)?;
            } else {
                device.copy(D::view(&own), D::view_mut(&mut row))?;
            }
            Ok(Factors { row, column: None, own })
        })?;
        Ok(self.weights_of(factors))
    }

    /// The factors of GCN's symmetric normalisation with self-loops (Kipf & Welling 2017), and the destination's own
    /// factor `1 / (d_t + 1)`, where `d` is the in-degree in the whole graph.
    ///
    /// An edge has `1 / √((d_s + 1)(d_t + 1))`, times `d_t / k` where the block holds only `k` of the destination's
    /// `d_t` edges: its expectation under sampling is the sum over all of them. `None` unless
    /// [`with_degrees`](Block::with_degrees) was called.
    pub fn symmetric_weights(&self) -> Option<WithSelf<'_, D>> {
        self.symmetric.as_ref().map(|factors| self.weights_of(factors))
    }

    fn weights_of<'a>(&'a self, factors: &'a Factors<D>) -> WithSelf<'a, D> {
        let weights = Weights {
            edge: self.weight(),
            row: Some(D::view(&factors.row)),
            column: factors.column.as_ref().map(|c| D::view(c)),
        };
        (weights, D::view(&factors.own))
    }

    /// Adds what [`symmetric_weights`](Block::symmetric_weights) needs: `in_degree(v)` is the in-degree of the
    /// global id `v` in the whole graph. Reads `src` and `indptr` back from the device.
    ///
    /// Errors: the device fails or is out of memory.
    pub fn with_degrees(mut self, device: &D, in_degree: impl Fn(u32) -> u64) -> Result<Self> {
        let scalar = |value: f64| <D::Scalar as crate::device::Scalar>::from_f64(value);
        let degrees: Vec<f64> = device.download(self.src())?.iter().map(|&v| in_degree(v) as f64).collect();
        let indptr = device.download(self.csr().indptr)?;
        let column: Vec<_> = degrees.iter().map(|d| scalar(1.0 / (d + 1.0).sqrt())).collect();
        let own: Vec<_> = degrees[..self.n_dst()].iter().map(|d| scalar(1.0 / (d + 1.0))).collect();
        let row: Vec<_> = degrees[..self.n_dst()]
            .iter()
            .zip(indptr.windows(2))
            .map(|(d, ends)| {
                // Estimator weights sum to 1 already; otherwise each of k edges stands for d / k.
                let k = if self.weight.is_some() { 1.0 } else { f64::from(ends[1] - ends[0]) };
                scalar(if ends[1] > ends[0] { d / k / (d + 1.0).sqrt() } else { 0.0 })
            })
            .collect();
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
        let Block { src, edge_id, weight, edge_type, .. } = self;
        SampledBlock { n_dst, src, indptr, indices, edge_id, weight, edge_type }
    }

    /// Moves a block from the host to `device` (on the CPU: the same memory).
    ///
    /// Errors: the device fails or is out of memory.
    pub fn from_host(device: &D, host: Block<Cpu<D::Scalar>>) -> Result<Self> {
        let (n_dst, _, indptr, indices) = host.pattern.into_parts();
        let mut block = Block::from_valid(SampledBlock {
            n_dst,
            src: device.adopt(host.src)?,
            indptr: device.adopt(indptr)?,
            indices: device.adopt(indices)?,
            edge_id: host.edge_id.map(|b| device.adopt(b)).transpose()?,
            weight: host.weight.map(|b| device.adopt(b)).transpose()?,
            edge_type: host.edge_type.map(|b| device.adopt(b)).transpose()?,
        })?;
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
