//! Aggregation over typed edges on the CPU.
//!
//! Relations follow one another, as they add to the same rows; the groups of one relation are cut into tiles of a fixed
//! number, and the rows of the output between tasks where tiles end: within a relation rows ascend. A tile's sums and
//! products stay in a core's second-level cache. Tiles do not depend on the number of threads, nor does the result.

use std::ops::Range;

use rayon::prelude::*;

use super::gemm::{Operand, multiply};
use super::parallel::{Rows, add_assign, check_csr, vectorized};
use super::prefetch::Prefetch;
use super::spmm::Product;
use crate::device::relation::{check_relation_product, check_relation_weight_gradient, check_typed_edges};
use crate::device::{
    Cpu, Csr, Direction, Matrix, MatrixMut, Order, Relation, RelationEdges, RelationGroups, Scalar, Storage,
    Write,
};
use crate::error::{Error, Result};

/// Groups of a tile: rows enough for the product to run at full speed, few enough for a tile to stay in cache.
const TILE: usize = 256;

/// A relation's weight gradient is summed over blocks of at least so many groups, and at most so many blocks.
const MIN_BLOCK: usize = 1024;
const MAX_BLOCKS: usize = 64;

impl<S: Scalar> Relation for Cpu<S> {
    fn group_relations(
        &self,
        a: Csr<'_, Self>,
        edge_type: &[u16],
        n_relations: usize,
        weight: Option<&[S]>,
    ) -> Result<RelationEdges<Self>> {
        check_typed_edges(&a, &edge_type, weight.as_ref())?;
        check_csr(&a)?;
        let n_edge = a.indices.len();
        if let Some(position) = edge_type.iter().position(|&r| usize::from(r) >= n_relations) {
            return Err(Error::IndexOutOfRange {
                array: "edge_type",
                position: position as u64,
                value: i64::from(edge_type[position]),
                limit: n_relations as u64,
            });
        }
        let mut destination = vec![0u32; n_edge];
        for (t, ends) in a.indptr.windows(2).enumerate() {
            destination[ends[0] as usize..ends[1] as usize].fill(t as u32);
        }
        let relation = |e: u32| usize::from(edge_type[e as usize]);
        let in_block: Vec<u32> = (0..n_edge as u32).collect();
        let by_source = stable_sort(&in_block, a.n_cols, |e| a.indices[e as usize] as usize);
        let by_destination =
            Grouping::new(stable_sort(&in_block, n_relations, relation), n_relations, relation, |e| {
                destination[e as usize]
            });
        let by_source =
            Grouping::new(stable_sort(&by_source, n_relations, relation), n_relations, relation, |e| {
                a.indices[e as usize]
            });
        let mut factor = self.allocate::<S>(n_edge)?;
        for ends in by_destination.indptr.windows(2) {
            let edges = &by_destination.order[ends[0] as usize..ends[1] as usize];
            match weight {
                None => {
                    let share = S::from_f64(1.0 / edges.len() as f64);
                    edges.iter().for_each(|&e| factor[e as usize] = share);
                }
                Some(weight) => {
                    let sum: f64 = edges.iter().map(|&e| weight[e as usize].widen_f64()).sum();
                    // Weights are positive; were all of a group zero, its mean would be zero, not NaN.
                    let scale = if sum == 0.0 { 0.0 } else { 1.0 / sum };
                    for &e in edges {
                        factor[e as usize] = S::from_f64(weight[e as usize].widen_f64() * scale);
                    }
                }
            }
        }
        let groups = |own: &Grouping, other: &Grouping, ends: &[u32]| -> Result<RelationGroups<Self>> {
            let mut indices = self.allocate::<u32>(n_edge)?;
            let mut partner = self.allocate::<u32>(n_edge)?;
            let mut weight = self.allocate::<S>(n_edge)?;
            for (position, &e) in own.order.iter().enumerate() {
                indices[position] = ends[e as usize];
                partner[position] = other.group[e as usize] - other.offsets[relation(e)];
                weight[position] = factor[e as usize];
            }
            Ok(RelationGroups {
                offsets: own.offsets.clone(),
                row: self.upload(&own.row)?,
                indptr: self.upload(&own.indptr)?,
                indices,
                partner,
                weight,
                by_row: None,
            })
        };
        Ok(RelationEdges {
            n_dst: a.n_rows,
            n_src: a.n_cols,
            by_destination: groups(&by_destination, &by_source, a.indices)?,
            by_source: groups(&by_source, &by_destination, &destination)?,
            destination_group: self.upload(&by_destination.group)?,
            source_group: self.upload(&by_source.group)?,
            weight: factor,
        })
    }

    fn relation_product(
        &self,
        edges: &RelationEdges<Self>,
        direction: Direction,
        order: Order,
        weight: &[S],
        x: Matrix<'_, Self>,
        out: MatrixMut<'_, Self>,
        write: Write,
    ) -> Result<()> {
        check_relation_product(edges, direction, &weight, &x, &out)?;
        let (to, from) = edges.groups(direction);
        let (k, n) = (x.cols, out.cols);
        if write == Write::Assign {
            out.data.fill(S::zero());
        }
        if k == 0 || n == 0 {
            return Ok(());
        }
        for (r, weight) in weight.chunks_exact(k * n).enumerate() {
            let groups = to.offsets[r] as usize..to.offsets[r + 1] as usize;
            if groups.is_empty() {
                continue;
            }
            let weight = match direction {
                Direction::Forward => Operand::dense(weight, k, n),
                Direction::Backward => Operand::dense(weight, n, k).transposed(),
            };
            match order {
                Order::AggregateFirst => self.aggregate_first(to, groups, weight, x, out.data)?,
                Order::TransformFirst => {
                    let inputs = from.offsets[r] as usize..from.offsets[r + 1] as usize;
                    self.transform_first(to, groups, &from.row[inputs], weight, x, out.data)?;
                }
            }
        }
        Ok(())
    }

    fn relation_weight_gradient(
        &self,
        edges: &RelationEdges<Self>,
        aggregated: Direction,
        x: Matrix<'_, Self>,
        dout: Matrix<'_, Self>,
        dweight: &mut [S],
    ) -> Result<()> {
        check_relation_weight_gradient(edges, &x, &dout, &dweight)?;
        let (k, n) = (x.cols, dout.cols);
        let (groups, _) = edges.groups(aggregated);
        if dweight.is_empty() {
            return Ok(());
        }
        dweight.par_chunks_exact_mut(k * n).enumerate().try_for_each(|(r, dweight)| {
            let range = groups.offsets[r] as usize..groups.offsets[r + 1] as usize;
            let block = range.len().div_ceil(MAX_BLOCKS).max(MIN_BLOCK);
            let n_blocks = range.len().div_ceil(block);
            if n_blocks == 0 {
                dweight.fill(S::zero());
                return Ok(());
            }
            let part = |i: usize, out: &mut [S]| {
                let first = range.start + i * block;
                let part = first..(first + block).min(range.end);
                match aggregated {
                    Direction::Forward => self.outer(groups, part, x, dout, out, false),
                    Direction::Backward => self.outer(groups, part, dout, x, out, true),
                }
            };
            if n_blocks == 1 {
                return part(0, dweight);
            }
            let mut parts = self.allocate::<S>(n_blocks * k * n)?;
            parts.par_chunks_exact_mut(k * n).enumerate().try_for_each(|(i, out)| part(i, out))?;
            dweight.copy_from_slice(&parts[..k * n]);
            parts.chunks_exact(k * n).skip(1).for_each(|part| add_assign(dweight, part));
            Ok(())
        })
    }
}

impl<S: Scalar> Cpu<S> {
    /// `out[row g, :] += (Σ_e weight(e) x[indices[e], :]) · W` for the groups `g` of one relation.
    fn aggregate_first(
        &self,
        to: &RelationGroups<Self>,
        groups: Range<usize>,
        weight: Operand<'_, S>,
        x: Matrix<'_, Self>,
        out: &mut [S],
    ) -> Result<()> {
        let n = weight.cols;
        let sums = sums(to, x.data);
        for_tiles_of_groups(&to.row, groups, Rows { data: out, cols: n }, 0, &|tile, out, first_row| {
            let mut sum = self.allocate::<S>(tile.len() * x.cols)?;
            sums.rows::<true>(tile.clone(), Rows { data: &mut sum, cols: x.cols });
            let rows = &to.row[tile];
            let sum = Operand::dense(&sum, rows.len(), x.cols);
            if let Some(first) = consecutive(rows) {
                let out = &mut out.data[(first - first_row) * n..][..rows.len() * n];
                multiply(sum, weight, out, Write::Add);
                return Ok(());
            }
            let mut product = self.allocate::<S>(rows.len() * n)?;
            multiply(sum, weight, &mut product, Write::Assign);
            for (&row, product) in rows.iter().zip(product.chunks_exact(n)) {
                add_assign(&mut out.data[(row as usize - first_row) * n..][..n], product);
            }
            Ok(())
        })
    }

    /// The same with the products `x[inputs, :] · W` first.
    fn transform_first(
        &self,
        to: &RelationGroups<Self>,
        groups: Range<usize>,
        inputs: &[u32],
        weight: Operand<'_, S>,
        x: Matrix<'_, Self>,
        out: &mut [S],
    ) -> Result<()> {
        let (k, n) = (weight.rows, weight.cols);
        let mut transformed = self.allocate::<S>(inputs.len() * n)?;
        transformed.par_chunks_mut(TILE * n).zip(inputs.par_chunks(TILE)).try_for_each(|(out, inputs)| {
            if let Some(first) = consecutive(inputs) {
                let rows = Operand::dense(&x.data[first * k..][..inputs.len() * k], inputs.len(), k);
                multiply(rows, weight, out, Write::Assign);
                return Ok(());
            }
            let rows = self.rows_of(x, inputs)?;
            multiply(Operand::dense(&rows, inputs.len(), k), weight, out, Write::Assign);
            Ok::<(), Error>(())
        })?;
        let sums = Product { indices: &to.partner, x: &transformed, write: Write::Add, ..sums(to, x.data) };
        for_tiles_of_groups(&to.row, groups, Rows { data: out, cols: n }, 0, &|tile, out, first_row| {
            let mut partial = Vec::new();
            vectorized(
                #[inline(always)]
                || {
                    for g in tile {
                        let row = to.row[g] as usize - first_row;
                        sums.row::<true>(g, &mut out.data[row * n..][..n], &mut partial);
                    }
                },
            );
            Ok(())
        })
    }

    /// `out = Σ_g (Σ_e weight(e) a[indices[e], :])ᵀ · b[row g, :]` over some groups of one relation, or with `transpose`
    /// the transpose of that.
    fn outer(
        &self,
        groups: &RelationGroups<Self>,
        range: Range<usize>,
        a: Matrix<'_, Self>,
        b: Matrix<'_, Self>,
        out: &mut [S],
        transpose: bool,
    ) -> Result<()> {
        let mut sum = self.allocate::<S>(range.len() * a.cols)?;
        sums(groups, a.data).rows::<true>(range.clone(), Rows { data: &mut sum, cols: a.cols });
        let b_rows = self.rows_of(b, &groups.row[range.clone()])?;
        let sum = Operand::dense(&sum, range.len(), a.cols);
        let b_rows = Operand::dense(&b_rows, range.len(), b.cols);
        let (left, right) = if transpose { (b_rows, sum) } else { (sum, b_rows) };
        multiply(left.transposed(), right, out, Write::Assign);
        Ok(())
    }

    /// Some rows of `x`, together.
    fn rows_of(&self, x: Matrix<'_, Self>, rows: &[u32]) -> Result<super::CpuBuffer<S>> {
        let mut out = self.allocate::<S>(rows.len() * x.cols)?;
        let prefetch = Prefetch::for_copies();
        for (k, (&row, out)) in rows.iter().zip(out.chunks_exact_mut(x.cols)).enumerate() {
            if let Some(&later) = rows.get(k + prefetch.ahead) {
                prefetch.row(x.data, x.cols, later as usize);
            }
            out.copy_from_slice(&x.data[row as usize * x.cols..][..x.cols]);
        }
        Ok(out)
    }
}

/// The weighted sums of rows of `x` over groups.
fn sums<'a, S: Scalar>(groups: &'a RelationGroups<Cpu<S>>, x: &'a [S]) -> Product<'a, S> {
    Product {
        indptr: &groups.indptr,
        indices: &groups.indices,
        positions: None,
        edge: Some(&groups.weight),
        row: None,
        column: None,
        x,
        write: Write::Assign,
        prefetch: Prefetch::for_sums(),
    }
}

/// The first of `rows` if each is one more than the one before; they ascend strictly.
fn consecutive(rows: &[u32]) -> Option<usize> {
    let (first, last) = (*rows.first()? as usize, *rows.last()? as usize);
    (last - first + 1 == rows.len()).then_some(first)
}

/// Calls `body` on tiles of `groups`, in parallel, each with the rows of `out` from its first group's on (or from
/// before it) and the number of the first of these. `row` ascends strictly over `groups`.
fn for_tiles_of_groups<S: Scalar>(
    row: &[u32],
    groups: Range<usize>,
    out: Rows<'_, S>,
    first_row: usize,
    body: &(impl Fn(Range<usize>, Rows<'_, S>, usize) -> Result<()> + Sync),
) -> Result<()> {
    if groups.len() <= TILE {
        return body(groups, out, first_row);
    }
    let n_tiles = groups.len().div_ceil(TILE);
    let middle = groups.start + n_tiles / 2 * TILE;
    let middle_row = row[middle] as usize;
    let (head, tail) = out.data.split_at_mut((middle_row - first_row) * out.cols);
    let (head, tail) = (Rows { data: head, cols: out.cols }, Rows { data: tail, cols: out.cols });
    let (first, second) = rayon::join(
        || for_tiles_of_groups(row, groups.start..middle, head, first_row, body),
        || for_tiles_of_groups(row, middle..groups.end, tail, middle_row, body),
    );
    first.and(second)
}

/// `items` by ascending key, ties in their order.
fn stable_sort(items: &[u32], n_keys: usize, key: impl Fn(u32) -> usize) -> Vec<u32> {
    let mut next = vec![0u32; n_keys + 1];
    items.iter().for_each(|&item| next[key(item) + 1] += 1);
    for i in 0..n_keys {
        next[i + 1] += next[i];
    }
    let mut sorted = vec![0; items.len()];
    for &item in items {
        let slot = &mut next[key(item)];
        sorted[*slot as usize] = item;
        *slot += 1;
    }
    sorted
}

/// Edges in groups of the same relation and row.
struct Grouping {
    /// `[n_edge]`: edges by group.
    order: Vec<u32>,
    /// `[n_relations + 1]`: groups of each relation.
    offsets: Vec<u32>,
    /// `[n_group]`
    row: Vec<u32>,
    /// `[n_group + 1]`: edges of each group.
    indptr: Vec<u32>,
    /// `[n_edge]`, by edge: its group.
    group: Vec<u32>,
}

impl Grouping {
    /// From edges sorted by (relation, row).
    fn new(
        order: Vec<u32>,
        n_relations: usize,
        relation: impl Fn(u32) -> usize,
        row_of: impl Fn(u32) -> u32,
    ) -> Self {
        let mut offsets = vec![0u32; n_relations + 1];
        let (mut row, mut indptr) = (Vec::new(), Vec::new());
        let mut group = vec![0u32; order.len()];
        let mut current = None;
        for (position, &e) in order.iter().enumerate() {
            let key = (relation(e), row_of(e));
            if current != Some(key) {
                current = Some(key);
                row.push(key.1);
                indptr.push(position as u32);
                offsets[key.0 + 1] += 1;
            }
            group[e as usize] = row.len() as u32 - 1;
        }
        indptr.push(order.len() as u32);
        for r in 0..n_relations {
            offsets[r + 1] += offsets[r];
        }
        Grouping { order, offsets, row, indptr, group }
    }
}

#[cfg(test)]
mod tests;
