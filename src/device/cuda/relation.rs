//! Aggregation over typed edges on CUDA; see `cuda/relation_groups.cu` and `cuda/relation.cu`.
//!
//! Sums over edges and over groups are sparse products. In between, one launch multiplies the rows of all groups, each
//! with its relation's weights, into memory of one row per group; there is never one row per edge.

use super::{Cuda, CudaBuffer, CudaView, CudaViewMut, dtype, ffi};
use crate::device::relation::{check_relation_product, check_relation_weight_gradient, check_typed_edges};
use crate::device::{
    Csr, Direction, Matrix, MatrixMut, Order, Relation, RelationEdges, RelationGroups, Scalar, Spmm, Storage,
    Weights, Write,
};
use crate::error::Result;

/// Groups and edges by row: sums and products are written once, when all that a row gets is known.
#[derive(Debug)]
pub struct GroupsByRow<S: Scalar> {
    /// `[n_relations + 1]`: [`RelationGroups::offsets`], on the device.
    pub offsets: CudaBuffer<u32>,
    /// `[n_rows + 1]`: where each row's groups begin in `groups`.
    pub group_indptr: CudaBuffer<u32>,
    /// `[n_group]`: groups by row, then by relation.
    pub groups: CudaBuffer<u32>,
    /// `[n_rows + 1]`: where each row's edges begin in `partner`.
    pub edge_indptr: CudaBuffer<u32>,
    /// `[n_edge]`, by row, then by position in the block: the edge's group in the other direction, counted over all
    /// relations.
    pub partner: CudaBuffer<u32>,
    /// `[n_edge]`, in the same order: the edge's factor.
    pub weight: CudaBuffer<S>,
}

impl<S: Scalar> Relation for Cuda<S> {
    type GroupsByRow = GroupsByRow<S>;

    fn group_relations(
        &self,
        a: Csr<'_, Self>,
        edge_type: CudaView<'_, u16>,
        n_relations: usize,
        weight: Option<CudaView<'_, S>>,
    ) -> Result<RelationEdges<Self>> {
        check_typed_edges(&a, &edge_type, weight.as_ref())?;
        let n_edge = a.indices.len();
        let (n_dst, n_src) = (a.n_rows as u64, a.n_cols as u64);
        let stream = self.stream()?;
        // SAFETY: a function of its argument and the thread's device.
        let bytes = unsafe { ffi::cohop_group_relations_bytes(n_edge as u64) };
        let scratch = self.scratch::<u8>(bytes as usize)?;
        let [to_offsets, from_offsets] =
            [self.scratch::<u32>(n_relations + 1)?, self.scratch::<u32>(n_relations + 1)?];
        let (indptr, indices, edge_type) = (a.indptr.pointer(), a.indices.pointer(), edge_type.pointer());
        let sorted = scratch.pointer().cast();
        // SAFETY: the pattern is valid: `indptr` holds `n_dst + 1` offsets up to `n_edge`, `indices` `n_edge` numbers
        // below `n_src`; `edge_type` holds `n_edge`, either offsets `n_relations + 1`, and the scratch memory as many
        // bytes as were asked for. The kernels report relations out of range, and replace them by the first.
        let code = unsafe {
            ffi::cohop_sort_relations(
                n_dst,
                n_src,
                n_edge as u64,
                n_relations as u64,
                indptr,
                indices,
                edge_type,
                sorted,
                to_offsets.pointer(),
                from_offsets.pointer(),
                self.status(),
                stream,
            )
        };
        self.check("group_relations", code)?;
        let by_destination = self.groups_for(to_offsets, a.n_rows, n_edge)?;
        let by_source = self.groups_for(from_offsets, a.n_cols, n_edge)?;
        let [destination_group, source_group] = [self.scratch::<u32>(n_edge)?, self.scratch::<u32>(n_edge)?];
        let factor = self.scratch::<S>(n_edge)?;
        let own_weight = super::memory::pointer_or_null(weight).cast();
        let (to, from) = (raw_groups(&by_destination, a.n_rows), raw_groups(&by_source, a.n_cols));
        // SAFETY: `sorted` is as the first launcher left it; all buffers have the lengths that `RelationGroups`,
        // `GroupsByRow` and `RelationEdges` say for the numbers of groups that it found.
        let code = unsafe {
            ffi::cohop_group_relations(
                dtype::<S>(),
                n_edge as u64,
                indices,
                own_weight,
                sorted,
                &to,
                &from,
                destination_group.pointer(),
                source_group.pointer(),
                factor.pointer().cast(),
                stream,
            )
        };
        self.check("group_relations", code)?;
        let (n_dst, n_src) = (a.n_rows, a.n_cols);
        Ok(RelationEdges {
            n_dst,
            n_src,
            by_destination,
            by_source,
            destination_group,
            source_group,
            weight: factor,
        })
    }

    fn relation_product(
        &self,
        edges: &RelationEdges<Self>,
        direction: Direction,
        order: Order,
        weight: CudaView<'_, S>,
        x: Matrix<'_, Self>,
        out: MatrixMut<'_, Self>,
        write: Write,
    ) -> Result<()> {
        check_relation_product(edges, direction, &weight, &x, &out)?;
        let (to, from) = edges.groups(direction);
        let n = out.cols;
        if to.n_groups() == 0 || x.cols == 0 || n == 0 {
            return if write == Write::Assign { self.fill(S::zero(), out.data) } else { Ok(()) };
        }
        let to_rows = &to.by_row;
        let (n_rows, product, pattern, weights);
        match order {
            Order::AggregateFirst => {
                n_rows = to.n_groups();
                product =
                    self.with_sums(to, x, |rows| self.product_of_groups(to, rows, weight, direction, n))?;
                pattern = (&to_rows.group_indptr, &to_rows.groups);
                weights = Weights::ones();
            }
            Order::TransformFirst => {
                n_rows = from.n_groups();
                let rows = GroupRows { index: Some(&from.row), factor: None, x };
                product = self.product_of_groups(from, rows, weight, direction, n)?;
                pattern = (&to_rows.edge_indptr, &to_rows.partner);
                weights = Weights { edge: Some(to_rows.weight.view()), ..Weights::ones() };
            }
        }
        let (indptr, indices) = (pattern.0.view(), pattern.1.view());
        let a = Csr { n_rows: out.rows, n_cols: n_rows, indptr, indices, edge: None, longest_row: None };
        self.spmm(a, weights, Matrix { data: product.view(), rows: n_rows, cols: n }, out, write)
    }

    fn relation_weight_gradient(
        &self,
        edges: &RelationEdges<Self>,
        aggregated: Direction,
        x: Matrix<'_, Self>,
        dout: Matrix<'_, Self>,
        dweight: CudaViewMut<'_, S>,
    ) -> Result<()> {
        check_relation_weight_gradient(edges, &x, &dout, &dweight)?;
        if dweight.is_empty() {
            return Ok(());
        }
        let (groups, _) = edges.groups(aggregated);
        let row = Some(&groups.row);
        match aggregated {
            Direction::Forward => self.with_sums(groups, x, |sums| {
                let dout = GroupRows { index: row, factor: None, x: dout };
                self.outer_of_groups(groups, sums, dout, dweight)
            }),
            Direction::Backward => self.with_sums(groups, dout, |sums| {
                let x = GroupRows { index: row, factor: None, x };
                self.outer_of_groups(groups, x, sums, dweight)
            }),
        }
    }
}

/// A row of `x` for each group, times a factor: the row that `index` says, or without `index` that of the group's
/// number.
struct GroupRows<'a, 'x, S: Scalar> {
    index: Option<&'a CudaBuffer<u32>>,
    factor: Option<&'a CudaBuffer<S>>,
    x: Matrix<'x, Cuda<S>>,
}

impl<S: Scalar> Cuda<S> {
    /// Groups to be filled; the last offset is their number. Waits for the device.
    fn groups_for(
        &self,
        offsets: CudaBuffer<u32>,
        n_rows: usize,
        n_edge: usize,
    ) -> Result<RelationGroups<Self>> {
        let host = self.download(offsets.view())?;
        let n_group = host.last().map_or(0, |&n| n as usize);
        let by_row = GroupsByRow {
            offsets,
            group_indptr: self.scratch(n_rows + 1)?,
            groups: self.scratch(n_group)?,
            edge_indptr: self.scratch(n_rows + 1)?,
            partner: self.scratch(n_edge)?,
            weight: self.scratch(n_edge)?,
        };
        Ok(RelationGroups {
            offsets: host,
            row: self.scratch(n_group)?,
            indptr: self.scratch(n_group + 1)?,
            indices: self.scratch(n_edge)?,
            partner: self.scratch(n_edge)?,
            weight: self.scratch(n_edge)?,
            by_row,
        })
    }

    /// Calls `body` with the groups' sums over their edges: `Σ_e weight(e) x[indices[e], :]`. Where each group has one
    /// edge these are rows of `x`, with factors, and nothing has to be added up.
    fn with_sums<R>(
        &self,
        groups: &RelationGroups<Self>,
        x: Matrix<'_, Self>,
        body: impl FnOnce(GroupRows<'_, '_, S>) -> Result<R>,
    ) -> Result<R> {
        if groups.n_groups() == groups.indices.len() {
            return body(GroupRows { index: Some(&groups.indices), factor: Some(&groups.weight), x });
        }
        let (n_rows, cols) = (groups.n_groups(), x.cols);
        let mut sums = self.scratch::<S>(n_rows * cols)?;
        let (indptr, indices) = (groups.indptr.view(), groups.indices.view());
        let a = Csr { n_rows, n_cols: x.rows, indptr, indices, edge: None, longest_row: None };
        let weights = Weights { edge: Some(groups.weight.view()), ..Weights::ones() };
        let out = MatrixMut { data: sums.view_mut(), rows: n_rows, cols };
        self.spmm(a, weights, x, out, Write::Assign)?;
        body(GroupRows { index: None, factor: None, x: Matrix { data: sums.view(), rows: n_rows, cols } })
    }

    /// `[n_group, n]`: each group's row times its relation's weights.
    fn product_of_groups(
        &self,
        groups: &RelationGroups<Self>,
        rows: GroupRows<'_, '_, S>,
        weight: CudaView<'_, S>,
        direction: Direction,
        n: usize,
    ) -> Result<CudaBuffer<S>> {
        let product = self.scratch::<S>(groups.n_groups() * n)?;
        let (n_relations, n_group) = (groups.n_relations() as u64, groups.n_groups() as u64);
        let (offsets, transposed) = (groups.by_row.offsets.pointer(), direction == Direction::Backward);
        let (index, factor, x) = rows.pointers();
        let (inner, n, weight) = (rows.x.cols as u64, n as u64, weight.pointer().cast());
        let (out, stream) = (product.pointer().cast(), self.stream()?);
        // SAFETY: `offsets` ascend to `n_group`; `index` is null or holds a row of `x` for each group, `factor` null or
        // as many scalars, `weight` holds `n_relations * inner * n` and `out` `n_group * n`.
        let code = unsafe {
            ffi::cohop_relation_product(
                dtype::<S>(),
                n_relations,
                n_group,
                offsets,
                inner,
                n,
                index,
                factor,
                x,
                weight,
                transposed,
                out,
                stream,
            )
        };
        self.check("relation_product", code)?;
        Ok(product)
    }

    /// `dweight[r] = Σ_g leftᵀ right` over the groups of each relation.
    fn outer_of_groups(
        &self,
        groups: &RelationGroups<Self>,
        left: GroupRows<'_, '_, S>,
        right: GroupRows<'_, '_, S>,
        dweight: CudaViewMut<'_, S>,
    ) -> Result<()> {
        let (n_relations, n_group) = (groups.n_relations() as u64, groups.n_groups() as u64);
        let (k, n) = (left.x.cols, right.x.cols);
        // SAFETY: a function of its arguments.
        let n_parts =
            unsafe { ffi::cohop_relation_weight_gradient_parts(n_relations, n_group, k as u64, n as u64) };
        let parts = self.scratch::<S>(n_parts as usize * k * n)?;
        let offsets = groups.by_row.offsets.pointer();
        let (left_index, left_factor, left) = left.pointers();
        let (right_index, right_factor, right) = right.pointers();
        let (out, stream) = (dweight.pointer().cast(), self.stream()?);
        // SAFETY: as for the product; `parts` holds `n_parts * k * n` scalars and `dweight` `n_relations * k * n`.
        let code = unsafe {
            ffi::cohop_relation_weight_gradient(
                dtype::<S>(),
                n_relations,
                n_group,
                offsets,
                k as u64,
                n as u64,
                left_index,
                left_factor,
                left,
                right_index,
                right_factor,
                right,
                parts.pointer().cast(),
                out,
                stream,
            )
        };
        self.check("relation_weight_gradient", code)
    }
}

impl<S: Scalar> GroupRows<'_, '_, S> {
    /// Index, factor and matrix as launchers take them.
    fn pointers(&self) -> (*const u32, *const std::ffi::c_void, *const std::ffi::c_void) {
        let index = self.index.map_or(std::ptr::null(), |index| index.view().pointer());
        let factor = self.factor.map_or(std::ptr::null(), |factor| factor.view().pointer().cast());
        (index, factor, self.x.data.pointer().cast())
    }
}

/// A launcher's view of groups that it fills.
fn raw_groups<S: Scalar>(groups: &RelationGroups<Cuda<S>>, n_rows: usize) -> ffi::cohop_relation_groups {
    let rows = &groups.by_row;
    ffi::cohop_relation_groups {
        n_rows: n_rows as u64,
        n_group: groups.n_groups() as u64,
        offsets: rows.offsets.pointer(),
        row: groups.row.pointer(),
        indptr: groups.indptr.pointer(),
        indices: groups.indices.pointer(),
        partner: groups.partner.pointer(),
        weight: groups.weight.pointer().cast(),
        group_indptr: rows.group_indptr.pointer(),
        row_groups: rows.groups.pointer(),
        edge_indptr: rows.edge_indptr.pointer(),
        edge_partner: rows.partner.pointer(),
        edge_weight: rows.weight.pointer().cast(),
    }
}
