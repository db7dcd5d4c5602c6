//! Each processing element's columns of all vertices' features, and the first layer's aggregates over them (P³, Gandhi
//! & Iyer, OSDI 2021).

use std::ops::Range;

use rayon::prelude::*;

use super::BatchInput;
use crate::block::Block;
use crate::comm::{Communicator, Stage};
use crate::coop::{Group, InputTerms, Peers, Share, SlicedRows, columns_of};
use crate::data::Features;
use crate::device::{Cpu, CpuBuffer, Device, FeatureElement, Scalar, Storage};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Some columns of all vertices' features, in memory.
#[derive(Debug)]
pub(super) struct ColumnSlices<S: Scalar> {
    cpu: Cpu<S>,
    table: Table,
    n_vertices: usize,
    columns: Range<usize>,
    dim: usize,
    terms: InputTerms,
    preparing: Communicator,
    steps: Communicator,
}

/// `[n_vertices, columns]`, as the data set stores features.
#[derive(Debug)]
enum Table {
    F32(CpuBuffer<f32>),
    F16(CpuBuffer<half::f16>),
    Bf16(CpuBuffer<half::bf16>),
}

impl<S: Scalar> ColumnSlices<S> {
    /// The columns of this PE of `group`. Every value is read once.
    ///
    /// Errors: the features are sparse, or there are none; a mapped value is not finite; the slice does not fit in
    /// memory; and `group` is one PE alone.
    pub(super) fn new<D: Device<Scalar = S>>(
        cpu: &Cpu<S>,
        features: &Features,
        terms: InputTerms,
        group: &Group<D>,
    ) -> Result<Self> {
        if features.are_unchecked() {
            features.check_finite()?;
        }
        let dim = features.dim();
        let columns = columns_of(dim, group.rank(), group.size());
        let table = match features {
            Features::F32(x) => Table::F32(slice(cpu, x.data(), dim, &columns)?),
            Features::F16(x) => Table::F16(slice(cpu, x.data(), dim, &columns)?),
            Features::Bf16(x) => Table::Bf16(slice(cpu, x.data(), dim, &columns)?),
            Features::Sparse(_) | Features::None => {
                let found = if features.is_none() { "absent" } else { "sparse" };
                return Err(Error::invalid("features", found, "dense ones, of which p3 takes columns"));
            }
        };
        Ok(ColumnSlices {
            cpu: cpu.clone(),
            table,
            n_vertices: features.n_rows(),
            columns,
            dim,
            terms,
            preparing: group.preparing()?.clone(),
            steps: group.peers()?.communicator().clone(),
        })
    }

    /// The aggregates over all PEs' first blocks, of which `block` is this one's. Collective.
    pub(super) fn input(&self, block: &Block<Cpu<S>>) -> Result<BatchInput<Cpu<S>>> {
        let entries = Entries::of(&self.cpu, block, self.terms)?;
        let (lengths, counts) = self.preparing.all_gather_v(Stage::Feature, &entries.lengths)?;
        let (ids, _) = self.preparing.all_gather_v(Stage::Feature, &entries.ids)?;
        let (factors, _) = self.preparing.all_gather_v(Stage::Feature, &entries.factors)?;
        if let Some(position) = ids.iter().position(|&id| id as usize >= self.n_vertices) {
            return Err(Error::IndexOutOfRange {
                array: "sources",
                position: position as u64,
                value: i64::from(ids[position]),
                limit: self.n_vertices as u64,
            });
        }
        let n_terms = self.terms.n_terms();
        let n_dst: Vec<usize> = counts.iter().map(|count| count / n_terms).collect();
        let width = self.columns.len();
        let mut rows = Tensor::zeros(&self.cpu, n_dst.iter().sum(), n_terms * width)?;
        let all = Entries { lengths, ids, factors };
        let out = rows.make_mut(&self.cpu)?.data;
        match &self.table {
            Table::F32(table) => all.aggregate(table, width, out),
            Table::F16(table) => all.aggregate(table, width, out),
            Table::Bf16(table) => all.aggregate(table, width, out),
        }
        let (terms, columns, dim) = (self.terms, self.columns.clone(), self.dim);
        let peers = Peers::new(&self.cpu, self.steps.clone());
        let share = Share::new(terms, n_dst, columns, dim, peers);
        Ok(BatchInput::Sliced(SlicedRows::new(rows, share)))
    }
}

fn slice<S: Scalar, E: FeatureElement>(
    cpu: &Cpu<S>,
    rows: &[E],
    dim: usize,
    columns: &Range<usize>,
) -> Result<CpuBuffer<E>> {
    let width = columns.len();
    let mut out = cpu.allocate::<E>(rows.len() / dim.max(1) * width)?;
    if width > 0 {
        for (to, row) in out.chunks_exact_mut(width).zip(rows.chunks_exact(dim)) {
            to.copy_from_slice(&row[columns.clone()]);
        }
    }
    Ok(out)
}

/// A block as sums to be taken: for each destination and term, which vertices' rows with which factors.
struct Entries<S> {
    /// `[n_dst · n_terms]`
    lengths: Vec<u32>,
    /// `[n_edge + n_dst]`
    ids: Vec<u32>,
    /// `[n_edge + n_dst]`
    factors: Vec<S>,
}

impl<S: Scalar> Entries<S> {
    fn of(cpu: &Cpu<S>, block: &Block<Cpu<S>>, terms: InputTerms) -> Result<Self> {
        let (csr, src) = (block.csr(), block.src());
        let (indptr, indices) = (csr.indptr(), csr.indices());
        let n = indices.len() + block.n_dst();
        let mut entries = Entries {
            lengths: Vec::with_capacity(block.n_dst() * terms.n_terms()),
            ids: Vec::with_capacity(n),
            factors: Vec::with_capacity(n),
        };
        let edges = |t: usize| indptr[t] as usize..indptr[t + 1] as usize;
        match terms {
            InputTerms::Aggregate(aggregate) => {
                let weights = aggregate.weights(cpu, block)?;
                let own = aggregate.own_factors(cpu, block)?;
                let factor = |factors: Option<&[S]>, at: usize| factors.map_or(S::from_f64(1.0), |f| f[at]);
                for t in 0..block.n_dst() {
                    entries.add(src[t], factor(own, t));
                    if own.is_none() {
                        entries.lengths.push(1);
                    }
                    for e in edges(t) {
                        let s = indices[e] as usize;
                        let of_ends = factor(weights.row, t) * factor(weights.column, s);
                        entries.add(src[s], factor(weights.edge, e) * of_ends);
                    }
                    entries.lengths.push((edges(t).len() + usize::from(own.is_some())) as u32);
                }
            }
            InputTerms::Relations(n_relations) => {
                let factors = &block.relations(cpu, n_relations)?.weight;
                // Checked by `relations`.
                let types = block.edge_type().unwrap_or_default();
                for t in 0..block.n_dst() {
                    entries.add(src[t], S::from_f64(1.0));
                    entries.lengths.push(1);
                    let first = entries.lengths.len();
                    entries.lengths.resize(first + n_relations, 0);
                    let mut by_relation: Vec<usize> = edges(t).collect();
                    by_relation.sort_by_key(|&e| types[e]);
                    for e in by_relation {
                        entries.lengths[first + types[e] as usize] += 1;
                        entries.add(src[indices[e] as usize], factors[e]);
                    }
                }
            }
        }
        Ok(entries)
    }

    fn add(&mut self, id: u32, factor: S) {
        self.ids.push(id);
        self.factors.push(factor);
    }

    /// Adds the sums of `width` columns of `table` to `out: [lengths.len(), width]`. Ids are in range.
    fn aggregate<E: FeatureElement>(&self, table: &[E], width: usize, out: &mut [S]) {
        if width == 0 {
            return;
        }
        let mut starts = Vec::with_capacity(self.lengths.len());
        let mut start = 0usize;
        for &length in &self.lengths {
            starts.push(start);
            start += length as usize;
        }
        let sums = out.par_chunks_mut(width).zip(&starts).zip(&self.lengths).with_min_len(64);
        sums.for_each(|((sum, &start), &length)| {
            let entries = start..start + length as usize;
            for (&id, &factor) in self.ids[entries.clone()].iter().zip(&self.factors[entries]) {
                let row = &table[id as usize * width..(id as usize + 1) * width];
                for (sum, x) in sum.iter_mut().zip(row) {
                    *sum += factor * S::from_f64(f64::from(x.widen_f32()));
                }
            }
        });
    }
}
