//! Aggregation over typed edges on the CPU.
//!
//! The rows of the output are cut into tiles, and a task takes one relation after the other for its tile: the tile's
//! rows, their groups' sums and the products of these stay in a core's second-level cache. Tiles depend on shapes
//! alone, so the result does not depend on the number of threads.

mod grouping;

use std::ops::Range;

use self::grouping::{Grouping, stable_sort};
use super::gemm::{Operand, multiply, transpose};
use super::kernels::kernels;
use super::parallel::{Rows, add_assign, check_csr, for_blocks, for_elements};
use super::prefetch::Prefetch;
use super::spmm::Product;
use super::vectors::vectorized;
use crate::device::relation::{
    check_relation_product, check_relation_weight_gradient, check_typed_edges, gradients_apart,
};
use crate::device::{
    Cpu, Csr, Direction, Matrix, MatrixMut, Order, Relation, RelationEdges, RelationGroups, Scalar, Storage,
    Write,
};
use crate::error::{Error, Result, try_collect, try_filled};

/// Rows of a tile: enough for the products of its groups to run at full speed, few enough to stay in cache.
const MIN_TILE: usize = 128;
const MAX_TILE: usize = 512;

/// Tiles of an output that has enough rows: work for this many threads.
const TILES: usize = 128;

/// A relation's weight gradient is summed over blocks of at least so many groups, and at most so many blocks.
const MIN_BLOCK: usize = 1024;
const MAX_BLOCKS: usize = 64;

kernels! {
    impl Relation by RelationKernels {
        type GroupsByRow = ();
        fn group_relations(
            a: Csr<'_, Cpu<S>>,
            edge_type: &[u16],
            n_relations: usize,
            weight: Option<&[S]>,
        ) -> Result<RelationEdges<Cpu<S>>>;
        fn relation_product(
            edges: &RelationEdges<Cpu<S>>,
            direction: Direction,
            order: Order,
            weight: &[S],
            x: Matrix<'_, Cpu<S>>,
            out: MatrixMut<'_, Cpu<S>>,
            write: Write,
        ) -> Result<()>;
        fn relation_weight_gradient(
            edges: &RelationEdges<Cpu<S>>,
            aggregated: Direction,
            x: Matrix<'_, Cpu<S>>,
            dout: Matrix<'_, Cpu<S>>,
            dweight: &mut [S],
        ) -> Result<()>;
        fn relation_gradients(
            edges: &RelationEdges<Cpu<S>>,
            weight: &[S],
            x: Matrix<'_, Cpu<S>>,
            dout: Matrix<'_, Cpu<S>>,
            dx: MatrixMut<'_, Cpu<S>>,
            write: Write,
            dweight: &mut [S],
        ) -> Result<()>;
    }
}

fn group_relations<S: Scalar>(
    device: &Cpu<S>,
    a: Csr<'_, Cpu<S>>,
    edge_type: &[u16],
    n_relations: usize,
    weight: Option<&[S]>,
) -> Result<RelationEdges<Cpu<S>>> {
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
    let (what, asked) = ("a block's edges by relation", format_args!("{n_edge} edges"));
    let mut destination = try_filled(what, 0u32, n_edge, asked)?;
    for (t, ends) in a.indptr.windows(2).enumerate() {
        destination[ends[0] as usize..ends[1] as usize].fill(t as u32);
    }
    let relation = |e: u32| usize::from(edge_type[e as usize]);
    let in_block = try_collect(what, 0..n_edge as u32, asked)?;
    let by_source = stable_sort(&in_block, a.n_cols, |e| a.indices[e as usize] as usize)?;
    let by_destination =
        Grouping::new(stable_sort(&in_block, n_relations, relation)?, n_relations, relation, |e| {
            destination[e as usize]
        })?;
    let by_source =
        Grouping::new(stable_sort(&by_source, n_relations, relation)?, n_relations, relation, |e| {
            a.indices[e as usize]
        })?;
    let mut factor = device.allocate::<S>(n_edge)?;
    for ends in by_destination.indptr.windows(2) {
        let edges = &by_destination.order[ends[0] as usize..ends[1] as usize];
        match weight {
            None => {
                let share = S::from_f64(1.0 / edges.len() as f64);
                edges.iter().for_each(|&e| factor[e as usize] = share);
            }
            Some(weight) => {
                let sum: f64 = edges.iter().map(|&e| weight[e as usize].widen_f64()).sum();
                // Weights are positive; if all weights of a group were zero, its mean would be zero, not NaN.
                let scale = if sum == 0.0 { 0.0 } else { 1.0 / sum };
                for &e in edges {
                    factor[e as usize] = S::from_f64(weight[e as usize].widen_f64() * scale);
                }
            }
        }
    }
    let groups = |own: &Grouping, other: &Grouping, ends: &[u32]| -> Result<RelationGroups<Cpu<S>>> {
        let mut indices = device.allocate::<u32>(n_edge)?;
        let mut partner = device.allocate::<u32>(n_edge)?;
        let mut weight = device.allocate::<S>(n_edge)?;
        for (position, &e) in own.order.iter().enumerate() {
            indices[position] = ends[e as usize];
            partner[position] = other.group[e as usize] - other.offsets[relation(e)];
            weight[position] = factor[e as usize];
        }
        Ok(RelationGroups {
            offsets: own.offsets.clone(),
            row: device.upload(&own.row)?,
            indptr: device.upload(&own.indptr)?,
            indices,
            partner,
            weight,
            by_row: (),
        })
    };
    Ok(RelationEdges {
        n_dst: a.n_rows,
        n_src: a.n_cols,
        by_destination: groups(&by_destination, &by_source, a.indices)?,
        by_source: groups(&by_source, &by_destination, &destination)?,
        destination_group: device.upload(&by_destination.group)?,
        source_group: device.upload(&by_source.group)?,
        weight: factor,
    })
}

#[allow(clippy::too_many_arguments)]
fn relation_product<S: Scalar>(
    device: &Cpu<S>,
    edges: &RelationEdges<Cpu<S>>,
    direction: Direction,
    order: Order,
    weight: &[S],
    x: Matrix<'_, Cpu<S>>,
    out: MatrixMut<'_, Cpu<S>>,
    write: Write,
) -> Result<()> {
    check_relation_product(edges, direction, &weight, &x, &out)?;
    let (to, from) = edges.groups(direction);
    let (k, n) = (x.cols, out.cols);
    if k == 0 || n == 0 {
        return if write == Write::Assign { device.fill(S::zero(), out.data) } else { Ok(()) };
    }
    let transposed = match direction {
        Direction::Forward => None,
        Direction::Backward => Some(device.transposed_weights(weight, [n, k])?),
    };
    let weight = transposed.as_deref().unwrap_or(weight);
    let weight = |r| relation_weight(weight, r, [k, n]);
    match order {
        Order::AggregateFirst => device.aggregate_first(to, weight, x, out, write),
        Order::TransformFirst => {
            if write == Write::Assign {
                device.fill(S::zero(), out.data)?;
            }
            for r in 0..to.n_relations() {
                let inputs = from.offsets[r] as usize..from.offsets[r + 1] as usize;
                device.transform_first(to, r, &from.row[inputs], weight(r), x, out.data)?;
            }
            Ok(())
        }
    }
}

fn relation_weight_gradient<S: Scalar>(
    device: &Cpu<S>,
    edges: &RelationEdges<Cpu<S>>,
    aggregated: Direction,
    x: Matrix<'_, Cpu<S>>,
    dout: Matrix<'_, Cpu<S>>,
    dweight: &mut [S],
) -> Result<()> {
    check_relation_weight_gradient(edges, &x, &dout, &dweight)?;
    let (k, n) = (x.cols, dout.cols);
    let (groups, _) = edges.groups(aggregated);
    if dweight.is_empty() {
        return Ok(());
    }
    let n_relations = groups.n_relations();
    for_blocks(n_relations, 1, Rows { data: dweight, cols: k * n }, &|r, _, Rows { data: dweight, .. }| {
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
                Direction::Forward => device.outer(groups, part, x, dout, out, false),
                Direction::Backward => device.outer(groups, part, dout, x, out, true),
            }
        };
        if n_blocks == 1 {
            return part(0, dweight);
        }
        let mut parts = device.allocate::<S>(n_blocks * k * n)?;
        let of_blocks = Rows { data: &mut parts[..], cols: k * n };
        for_blocks(n_blocks, 1, of_blocks, &|i, _, out: Rows<'_, S>| part(i, out.data))?;
        dweight.copy_from_slice(&parts[..k * n]);
        parts.chunks_exact(k * n).skip(1).for_each(|part| add_assign(dweight, part));
        Ok(())
    })
}

#[allow(clippy::too_many_arguments)]
fn relation_gradients<S: Scalar>(
    device: &Cpu<S>,
    edges: &RelationEdges<Cpu<S>>,
    weight: &[S],
    x: Matrix<'_, Cpu<S>>,
    dout: Matrix<'_, Cpu<S>>,
    dx: MatrixMut<'_, Cpu<S>>,
    write: Write,
    dweight: &mut [S],
) -> Result<()> {
    check_relation_product(edges, Direction::Backward, &weight, &dout, &dx)?;
    check_relation_weight_gradient(edges, &x, &dout, &dweight)?;
    let (k, n) = (x.cols, dout.cols);
    let tile = tile_rows(edges.n_src);
    let n_tiles = edges.n_src.div_ceil(tile);
    // Each part of the tiles adds up a gradient of its own: all together take no more memory than `dx` or `dweight`.
    let n_parts = n_tiles.min(MAX_BLOCKS).min((dx.data.len() / dweight.len().max(1)).max(1));
    let order = edges.cheaper_order(Direction::Backward, n, k);
    if dweight.is_empty() || n_tiles == 0 || order == Order::TransformFirst || n_parts < n_tiles.min(8) {
        return gradients_apart(device, edges, weight, x, dout, dx, write, dweight);
    }
    let rows = n_tiles.div_ceil(n_parts) * tile;
    let groups = &edges.by_source;
    let transposed = device.transposed_weights(weight, [k, n])?;
    let n_parts = edges.n_src.div_ceil(rows);
    let mut parts = device.allocate::<S>(n_parts * dweight.len())?;
    let of_parts =
        (Rows { data: dx.data, cols: rows * k }, Rows { data: &mut parts[..], cols: dweight.len() });
    for_blocks(n_parts, 1, of_parts, &|part, _, (dx, dweight): (Rows<'_, S>, Rows<'_, S>)| {
        let dweight = dweight.data;
        dweight.fill(S::zero());
        for (first, dx) in (part * rows..).step_by(tile).zip(dx.data.chunks_mut(tile * k)) {
            if write == Write::Assign {
                dx.fill(S::zero());
            }
            for (r, dweight) in dweight.chunks_exact_mut(k * n).enumerate() {
                let range = groups_of(groups, r, first..first + dx.len() / k);
                if range.is_empty() {
                    continue;
                }
                let rows = &groups.row[range.clone()];
                let sum = device.sums_of(groups, range, dout)?;
                let sum = Operand::dense(&sum, rows.len(), n);
                let weight = relation_weight(&transposed, r, [n, k]);
                device.add_products(sum, weight, rows, dx, first)?;
                device.with_rows(x, rows, |x| multiply(x.transposed(), sum, dweight, Write::Add))?;
            }
        }
        Ok(())
    })?;
    let len = dweight.len();
    for_elements(dweight, |range, dweight| {
        dweight.copy_from_slice(&parts[range.clone()]);
        parts.chunks_exact(len).skip(1).for_each(|part| add_assign(dweight, &part[range.clone()]));
    });
    Ok(())
}

/// Rows of a tile of an output of so many rows.
fn tile_rows(n_rows: usize) -> usize {
    n_rows.div_ceil(TILES).clamp(MIN_TILE, MAX_TILE)
}

/// The matrix of relation `r`, which takes `k` columns to `n`.
fn relation_weight<S: Scalar>(weight: &[S], r: usize, [k, n]: [usize; 2]) -> Operand<'_, S> {
    Operand::dense(&weight[r * k * n..][..k * n], k, n)
}

/// The groups of relation `r` that some rows have.
fn groups_of<S: Scalar>(groups: &RelationGroups<Cpu<S>>, r: usize, rows: Range<usize>) -> Range<usize> {
    let (first, last) = (groups.offsets[r] as usize, groups.offsets[r + 1] as usize);
    let row = &groups.row[first..last];
    let before = |end: usize| first + row.partition_point(|&row| (row as usize) < end);
    before(rows.start)..before(rows.end)
}

impl<S: Scalar> Cpu<S> {
    /// The transposes of all relations' matrices, each `[k, n]`: otherwise each tile would gather the columns again.
    fn transposed_weights(&self, weight: &[S], [k, n]: [usize; 2]) -> Result<super::CpuBuffer<S>> {
        let mut out = self.allocate::<S>(weight.len())?;
        let n_relations = weight.len() / (k * n).max(1);
        let matrices = Rows { data: &mut out[..], cols: k * n };
        for_blocks(n_relations, 1, matrices, &|r, _, out: Rows<'_, S>| {
            transpose(&weight[r * k * n..][..k * n], k, n, out.data);
            Ok(())
        })?;
        Ok(out)
    }

    /// `out[row g, :] (= | +=) Σ_r (Σ_e weight(e) x[indices[e], :]) · W_r`
    fn aggregate_first<'w>(
        &self,
        to: &RelationGroups<Self>,
        weight: impl Fn(usize) -> Operand<'w, S> + Sync,
        x: Matrix<'_, Self>,
        out: MatrixMut<'_, Self>,
        write: Write,
    ) -> Result<()> {
        let (n, tile) = (out.cols, tile_rows(out.rows));
        let rows = Rows { data: out.data, cols: n };
        for_blocks(out.rows, tile, rows, &|_, range, Rows { data: out, .. }| {
            if write == Write::Assign {
                out.fill(S::zero());
            }
            let first = range.start;
            for r in 0..to.n_relations() {
                let groups = groups_of(to, r, first..first + out.len() / n);
                if !groups.is_empty() {
                    let rows = &to.row[groups.clone()];
                    let sum = self.sums_of(to, groups, x)?;
                    self.add_products(Operand::dense(&sum, rows.len(), x.cols), weight(r), rows, out, first)?;
                }
            }
            Ok(())
        })
    }

    /// `Σ_e weight(e) x[indices[e], :]` of some groups.
    fn sums_of(
        &self,
        groups: &RelationGroups<Self>,
        range: Range<usize>,
        x: Matrix<'_, Self>,
    ) -> Result<super::CpuBuffer<S>> {
        let mut sum = self.allocate::<S>(range.len() * x.cols)?;
        sums(groups, x.data).rows::<true>(range, Rows { data: &mut sum, cols: x.cols });
        Ok(sum)
    }

    /// Adds `sum · weight` to rows `rows`, which ascend strictly, of an output whose first row here is `first`.
    fn add_products(
        &self,
        sum: Operand<'_, S>,
        weight: Operand<'_, S>,
        rows: &[u32],
        out: &mut [S],
        first: usize,
    ) -> Result<()> {
        let n = weight.cols;
        if let Some(row) = consecutive(rows) {
            multiply(sum, weight, &mut out[(row - first) * n..][..rows.len() * n], Write::Add);
            return Ok(());
        }
        let mut product = self.allocate::<S>(rows.len() * n)?;
        multiply(sum, weight, &mut product, Write::Assign);
        for (&row, product) in rows.iter().zip(product.chunks_exact(n)) {
            add_assign(&mut out[(row as usize - first) * n..][..n], product);
        }
        Ok(())
    }

    /// `out[row g, :] += Σ_e weight(e) (x[inputs[partner[e]], :] · W)` for the groups of one relation.
    fn transform_first(
        &self,
        to: &RelationGroups<Self>,
        r: usize,
        inputs: &[u32],
        weight: Operand<'_, S>,
        x: Matrix<'_, Self>,
        out: &mut [S],
    ) -> Result<()> {
        if inputs.is_empty() {
            return Ok(());
        }
        let n = weight.cols;
        let mut transformed = self.allocate::<S>(inputs.len() * n)?;
        let rows = Rows { data: &mut transformed[..], cols: n };
        for_blocks(inputs.len(), MAX_TILE, rows, &|_, range, out: Rows<'_, S>| {
            self.with_rows(x, &inputs[range], |rows| multiply(rows, weight, out.data, Write::Assign))
        })?;
        let sums = Product { indices: &to.partner, x: &transformed, write: Write::Add, ..sums(to, x.data) };
        let n_rows = out.len() / n;
        let rows = Rows { data: out, cols: n };
        for_blocks(n_rows, tile_rows(n_rows), rows, &|_, range, Rows { data: out, .. }| {
            let first = range.start;
            let groups = groups_of(to, r, range);
            let mut partial = Vec::new();
            vectorized!(
                S,
                #[inline(always)]
                |vectors| {
                    for g in groups {
                        let row = to.row[g] as usize - first;
                        sums.row::<true>(vectors, g, &mut out[row * n..][..n], &mut partial);
                    }
                },
            );
            Ok(())
        })
    }

    /// `out = Σ_g (Σ_e weight(e) a[indices[e], :])ᵀ · b[row g, :]` over some groups of one relation, or with
    /// `transpose` the transpose of that.
    fn outer(
        &self,
        groups: &RelationGroups<Self>,
        range: Range<usize>,
        a: Matrix<'_, Self>,
        b: Matrix<'_, Self>,
        out: &mut [S],
        transpose: bool,
    ) -> Result<()> {
        let rows = &groups.row[range.clone()];
        let sum = self.sums_of(groups, range, a)?;
        let sum = Operand::dense(&sum, rows.len(), a.cols);
        self.with_rows(b, rows, |b| {
            let (left, right) = if transpose { (b, sum) } else { (sum, b) };
            multiply(left.transposed(), right, out, Write::Assign);
        })
    }

    /// Calls `body` with some rows of `x` as one matrix.
    fn with_rows(&self, x: Matrix<'_, Self>, rows: &[u32], body: impl FnOnce(Operand<'_, S>)) -> Result<()> {
        if let Some(first) = consecutive(rows) {
            body(Operand::dense(&x.data[first * x.cols..][..rows.len() * x.cols], rows.len(), x.cols));
            return Ok(());
        }
        let mut copy = self.allocate::<S>(rows.len() * x.cols)?;
        let prefetch = Prefetch::for_copies();
        for (k, (&row, out)) in rows.iter().zip(copy.chunks_exact_mut(x.cols)).enumerate() {
            if let Some(&later) = rows.get(k + prefetch.ahead) {
                prefetch.row(x.data, x.cols, later as usize);
            }
            out.copy_from_slice(&x.data[row as usize * x.cols..][..x.cols]);
        }
        body(Operand::dense(&copy, rows.len(), x.cols));
        Ok(())
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

#[cfg(test)]
mod tests;
