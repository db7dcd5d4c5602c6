//! Blocks: the bipartite layers of a sampled neighbourhood ("message flow graphs").

use std::sync::OnceLock;

use crate::device::{Cpu, Csr, Device, RelationEdges, SampledBlock, Storage, Weights, Write};
use crate::error::{Error, Result, check_length};
use crate::pattern::{Pattern, get_or_try_init};

/// One layer of a minibatch: edges from sources to destinations, where the first `n_dst` sources are the destinations.
///
/// Immutable after construction. What a layer needs besides (the transpose, normalising factors) is made on the device
/// when it is first asked for, and kept.
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
}

/// Factors of an aggregation that includes the destination itself: `own[t] · x_t + row[t] · Σ column[s] · x_s`.
#[derive(Debug)]
struct Factors<D: Storage> {
    row: D::Buffer<D::Scalar>,
    column: Option<D::Buffer<D::Scalar>>,
    own: D::Buffer<D::Scalar>,
}

/// The factors of the edges of an aggregation that includes the destination itself, and `[n_dst]`: the destination's
/// own.
pub type WithSelf<'a, D> = (Weights<'a, D>, <D as Storage>::View<'a, <D as Storage>::Scalar>);

impl<D: Device> Block<D> {
    /// A block from a sampler's parts; an error if their lengths do not fit together.
    pub fn new(parts: SampledBlock<D>) -> Result<Self> {
        let n_src = D::len(&parts.src);
        if n_src < parts.n_dst {
            check_length("src", n_src, parts.n_dst)?;
        }
        let pattern = Pattern::new(parts.n_dst, n_src, parts.indptr, parts.indices)?;
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
        })
    }

    /// A block over given edges by destination: sources `0..n_src`, destinations `0..indptr.len() - 1`.
    ///
    /// Errors: `indptr` does not ascend from 0 to `indices.len()`, an index is not below `n_src`, or there are more
    /// destinations than sources.
    pub fn from_csr(device: &D, n_src: usize, indptr: &[u32], indices: &[u32]) -> Result<Self> {
        let pattern = Pattern::from_host(device, n_src, indptr, indices)?;
        if n_src < pattern.n_rows() {
            return Err(Error::invalid("n_src", n_src, format!("at least n_dst = {}", pattern.n_rows())));
        }
        let src: Vec<u32> = (0..n_src as u32).collect();
        let (n_dst, _, indptr, indices) = pattern.into_parts();
        Block::new(SampledBlock {
            n_dst,
            src: device.upload(&src)?,
            indptr,
            indices,
            edge_id: None,
            weight: None,
            edge_type: None,
        })
    }

    /// Gives the edges relations, `edge_type: [n_edge]`.
    pub fn with_edge_types(mut self, edge_type: D::Buffer<u16>) -> Result<Self> {
        check_length("edge_type", D::len(&edge_type), self.n_edge())?;
        self.edge_type = Some(edge_type);
        self.relations = OnceLock::new();
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
    pub fn transpose(&self, device: &D) -> Result<Csr<'_, D>> {
        self.pattern.transpose(device)
    }

    /// The edges by destination again, as positions in the [`transpose`](Block::transpose): `n_dst` rows, `n_edge`
    /// columns. SpMM by it sums what a kernel left in the transpose's order. Made by the first call.
    pub fn csr_into_transpose(&self, device: &D) -> Result<Csr<'_, D>> {
        self.pattern.csr_into_transpose(device)
    }

    /// `[n_edge]`: the edges' numbers in the graph, if the sampler was asked for them.
    pub fn edge_id(&self) -> Option<D::View<'_, u64>> {
        self.edge_id.as_ref().map(|b| D::view(b))
    }

    /// `[n_edge]`: relations, if the graph has edge types.
    pub fn edge_type(&self) -> Option<D::View<'_, u16>> {
        self.edge_type.as_ref().map(|b| D::view(b))
    }

    /// The edges grouped by relation and destination, and by relation and source. Made by the first call.
    ///
    /// Errors: a block without edge types, one of them at or above `n_relations`, or another number than before.
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

    /// `[n_edge]`: estimator weights that sum to 1 in each row; `None`: all edges of a row count alike.
    pub fn weight(&self) -> Option<D::View<'_, D::Scalar>> {
        self.weight.as_ref().map(|b| D::view(b))
    }

    /// The factors with which [`spmm`](crate::device::Spmm::spmm) over [`csr`](Block::csr) takes the mean over a
    /// destination's edges: the estimator weights if there are any, else one over the number of edges.
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
    /// `d_t` edges: its expectation under sampling is the sum over all of them. `None` unless the block was made
    /// [`with_degrees`](Block::with_degrees).
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

    /// Moves a block that was made on the host to `device` (on the CPU: the same memory).
    pub fn from_host(device: &D, host: Block<Cpu<D::Scalar>>) -> Result<Self> {
        let (n_dst, _, indptr, indices) = host.pattern.into_parts();
        let mut block = Block::new(SampledBlock {
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
