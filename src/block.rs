//! Blocks: the bipartite layers of a sampled neighbourhood ("message flow graphs").

use std::sync::{Arc, OnceLock};

use crate::device::{Cpu, Csr, Device, SampledBlock, Storage, Weights};
use crate::error::{Result, check_length};

/// One layer of a minibatch: edges from sources to destinations, where the first `n_dst` sources are the destinations.
///
/// Immutable after construction. What a backward pass needs besides (the transpose, inverse degrees) is made on the
/// device when it is first asked for, and kept.
#[derive(Debug)]
pub struct Block<D: Device> {
    parts: SampledBlock<D>,
    n_src: usize,
    n_edge: usize,
    degrees: Option<Degrees<D>>,
    transpose: OnceLock<Transpose<D>>,
    inverse_degree: OnceLock<D::Buffer<D::Scalar>>,
}

/// In-degrees in the whole graph, which a block by itself does not know.
#[derive(Debug)]
struct Degrees<D: Storage> {
    src: D::Buffer<D::Scalar>,
}

/// The same edges by source.
#[derive(Debug)]
struct Transpose<D: Storage> {
    indptr: D::Buffer<u32>,
    indices: D::Buffer<u32>,
    edge: D::Buffer<u32>,
}

impl<D: Device> Block<D> {
    /// A block from a sampler's parts; an error if their lengths do not fit together.
    pub fn new(parts: SampledBlock<D>) -> Result<Self> {
        let (n_src, n_edge) = (D::len(&parts.src), D::len(&parts.indices));
        check_length("indptr", D::len(&parts.indptr), parts.n_dst + 1)?;
        if n_src < parts.n_dst {
            check_length("src", n_src, parts.n_dst)?;
        }
        for (name, len) in [
            ("edge_id", parts.edge_id.as_ref().map(D::len)),
            ("weight", parts.weight.as_ref().map(D::len)),
            ("edge_type", parts.edge_type.as_ref().map(D::len)),
        ] {
            check_length(name, len.unwrap_or(n_edge), n_edge)?;
        }
        Ok(Block {
            parts,
            n_src,
            n_edge,
            degrees: None,
            transpose: OnceLock::new(),
            inverse_degree: OnceLock::new(),
        })
    }

    /// Adds the in-degree that each source has in the whole graph; `degrees: [n_src]`.
    ///
    /// Symmetric normalisation needs it (the destinations are the first sources, so theirs are included).
    pub fn with_source_degrees(mut self, degrees: D::Buffer<D::Scalar>) -> Result<Self> {
        check_length("source degrees", D::len(&degrees), self.n_src)?;
        self.degrees = Some(Degrees { src: degrees });
        Ok(self)
    }

    /// Number of destination vertices.
    pub fn n_dst(&self) -> usize {
        self.parts.n_dst
    }

    /// Number of source vertices, destinations included.
    pub fn n_src(&self) -> usize {
        self.n_src
    }

    /// Number of edges.
    pub fn n_edge(&self) -> usize {
        self.n_edge
    }

    /// `[n_src]`: global ids of the sources, destinations first.
    pub fn src(&self) -> D::View<'_, u32> {
        D::view(&self.parts.src)
    }

    /// `[n_dst + 1]`: where each destination's edges begin.
    pub fn indptr(&self) -> D::View<'_, u32> {
        D::view(&self.parts.indptr)
    }

    /// `[n_edge]`: local position of each edge's source.
    pub fn indices(&self) -> D::View<'_, u32> {
        D::view(&self.parts.indices)
    }

    /// `[n_edge]`: the edges' numbers in the graph, if the sampler was asked for them.
    pub fn edge_id(&self) -> Option<D::View<'_, u64>> {
        self.parts.edge_id.as_ref().map(|b| D::view(b))
    }

    /// `[n_edge]`: relations, if the graph has edge types.
    pub fn edge_type(&self) -> Option<D::View<'_, u16>> {
        self.parts.edge_type.as_ref().map(|b| D::view(b))
    }

    /// `[n_edge]`: estimator weights that sum to 1 in each row; `None`: all edges of a row count alike.
    pub fn weight(&self) -> Option<D::View<'_, D::Scalar>> {
        self.parts.weight.as_ref().map(|b| D::view(b))
    }

    /// `[n_src]`: in-degrees in the whole graph, if they were added.
    pub fn source_degrees(&self) -> Option<D::View<'_, D::Scalar>> {
        self.degrees.as_ref().map(|d| D::view(&d.src))
    }

    /// The pattern by destination: `n_dst` rows, `n_src` columns.
    pub fn csr(&self) -> Csr<'_, D> {
        Csr {
            n_rows: self.n_dst(),
            n_cols: self.n_src,
            indptr: self.indptr(),
            indices: self.indices(),
            edge: None,
        }
    }

    /// The pattern by source: `n_src` rows, `n_dst` columns, `edge` set. Built by the first call.
    pub fn transpose(&self, device: &D) -> Result<Csr<'_, D>> {
        let t = get_or_try_init(&self.transpose, || {
            let mut indptr = device.allocate(self.n_src + 1)?;
            let mut indices = device.allocate(self.n_edge)?;
            let mut edge = device.allocate(self.n_edge)?;
            device.transpose(
                self.csr(),
                D::view_mut(&mut indptr),
                D::view_mut(&mut indices),
                D::view_mut(&mut edge),
            )?;
            Ok(Transpose { indptr, indices, edge })
        })?;
        Ok(Csr {
            n_rows: self.n_src,
            n_cols: self.n_dst(),
            indptr: D::view(&t.indptr),
            indices: D::view(&t.indices),
            edge: Some(D::view(&t.edge)),
        })
    }

    /// `[n_dst]`: one over the number of edges of each destination in this block, 0 where it has none.
    pub fn inverse_degree(&self, device: &D) -> Result<D::View<'_, D::Scalar>> {
        let buffer = get_or_try_init(&self.inverse_degree, || {
            let mut out = device.allocate(self.n_dst())?;
            device.inverse_degree(self.indptr(), D::view_mut(&mut out))?;
            Ok(out)
        })?;
        Ok(D::view(buffer))
    }

    /// The factors with which [`spmm`](crate::device::Spmm::spmm) over [`csr`](Block::csr) takes the mean over a
    /// destination's edges: the estimator weights if there are any, else one over the number of edges.
    pub fn mean_weights(&self, device: &D) -> Result<Weights<'_, D>> {
        Ok(match self.weight() {
            Some(weight) => Weights { edge: Some(weight), row: None, column: None },
            None => Weights { edge: None, row: Some(self.inverse_degree(device)?), column: None },
        })
    }
}

impl<D: Device> Block<D> {
    /// Moves a block that was made on the host to `device` (on the CPU: the same memory).
    pub fn from_host(device: &D, host: Block<Cpu<D::Scalar>>) -> Result<Self> {
        let parts = host.parts;
        let moved = Block::new(SampledBlock {
            n_dst: parts.n_dst,
            src: device.adopt(parts.src)?,
            indptr: device.adopt(parts.indptr)?,
            indices: device.adopt(parts.indices)?,
            edge_id: parts.edge_id.map(|b| device.adopt(b)).transpose()?,
            weight: parts.weight.map(|b| device.adopt(b)).transpose()?,
            edge_type: parts.edge_type.map(|b| device.adopt(b)).transpose()?,
        })?;
        match host.degrees {
            Some(degrees) => moved.with_source_degrees(device.adopt(degrees.src)?),
            None => Ok(moved),
        }
    }

    /// A block over given edges, for tests and for graphs that fit into one block: destinations `0..n_dst`, sources
    /// `0..n_src`, edges by destination.
    pub fn from_csr(device: &D, n_src: usize, indptr: &[u32], indices: &[u32]) -> Result<Arc<Self>> {
        let graph_indptr = indptr.iter().map(|&i| u64::from(i)).collect::<Vec<_>>();
        check_csr(&graph_indptr, indices, n_src)?;
        let src: Vec<u32> = (0..n_src as u32).collect();
        Ok(Arc::new(Block::new(SampledBlock {
            n_dst: indptr.len() - 1,
            src: device.upload(&src)?,
            indptr: device.upload(indptr)?,
            indices: device.upload(indices)?,
            edge_id: None,
            weight: None,
            edge_type: None,
        })?))
    }
}

/// `Ok` if `indptr` ascends from 0 to the number of `indices`, and these are below `n_src`.
fn check_csr(indptr: &[u64], indices: &[u32], n_src: usize) -> Result<()> {
    use crate::error::Error;
    if indptr.is_empty() {
        return Err(Error::WrongLength { array: "indptr", actual: 0, expected: 1 });
    }
    if indptr[0] != 0 {
        return Err(Error::invalid("indptr[0]", indptr[0], "0"));
    }
    if let Some(position) = indptr.windows(2).position(|pair| pair[1] < pair[0]) {
        return Err(Error::NotMonotone {
            array: "indptr",
            position: position as u64 + 1,
            value: indptr[position + 1],
            previous: indptr[position],
        });
    }
    check_length("indices", indices.len(), indptr[indptr.len() - 1] as usize)?;
    if let Some(position) = indices.iter().position(|&s| s as usize >= n_src) {
        return Err(Error::IndexOutOfRange {
            array: "indices",
            position: position as u64,
            value: i64::from(indices[position]),
            limit: n_src as u64,
        });
    }
    if n_src < indptr.len() - 1 {
        return Err(Error::invalid("n_src", n_src, format!("at least n_dst = {}", indptr.len() - 1)));
    }
    Ok(())
}

/// `OnceLock::get_or_try_init`, which is not stable yet. Two threads may both compute; the first result stays.
fn get_or_try_init<T>(cell: &OnceLock<T>, init: impl FnOnce() -> Result<T>) -> Result<&T> {
    if let Some(value) = cell.get() {
        return Ok(value);
    }
    let value = init()?;
    Ok(cell.get_or_init(|| value))
}
