//! Kernel family *relation*: aggregation over typed edges, where each relation has its own weight matrix.
//!
//! Nothing of `n_edge · dim` scalars is ever written. Edges are grouped by relation and, within a relation, by
//! destination (and, for the backward pass, by source). A *group* is a row's edges of one relation: relations without
//! edges have no groups, and so cost nothing.

use std::fmt::Debug;

use crate::device::{
    Csr, Matrix, MatrixMut, Storage, Write, check_csr_lengths, check_matrix, check_matrix_mut, check_no_edge,
    check_same_shape,
};
use crate::error::{Result, check_length};

/// Edges by relation, then by row, then by position in the block. The rows are destinations or sources.
#[derive(Debug)]
pub struct RelationGroups<D: Relation> {
    /// `[n_relations + 1]`, on the host: where each relation's groups begin.
    pub(crate) offsets: Vec<u32>,
    /// `[n_group]`: the row of each group, ascending within a relation.
    pub(crate) row: D::Buffer<u32>,
    /// `[n_group + 1]`: where each group's edges begin.
    pub(crate) indptr: D::Buffer<u32>,
    /// `[n_edge]`: the other end of each edge.
    pub(crate) indices: D::Buffer<u32>,
    /// `[n_edge]`: the edge's group in the other direction, counted from the first one of its relation.
    pub(crate) partner: D::Buffer<u32>,
    /// `[n_edge]`: the edge's factor in the mean over its destination's edges of its relation.
    pub(crate) weight: D::Buffer<D::Scalar>,
    /// The same edges by row, in the form that the device needs.
    pub by_row: D::GroupsByRow,
}

impl<D: Relation> RelationGroups<D> {
    /// Number of groups.
    pub fn n_groups(&self) -> usize {
        D::len(&self.row)
    }

    /// Number of relations.
    pub fn n_relations(&self) -> usize {
        self.offsets.len() - 1
    }
}

/// A block's edges, grouped in both directions.
#[derive(Debug)]
pub struct RelationEdges<D: Relation> {
    /// Number of destinations.
    pub(crate) n_dst: usize,
    /// Number of sources.
    pub(crate) n_src: usize,
    /// Groups whose rows are destinations and whose `indices` are sources.
    pub(crate) by_destination: RelationGroups<D>,
    /// Groups whose rows are sources and whose `indices` are destinations.
    pub(crate) by_source: RelationGroups<D>,
    /// `[n_edge]`, in the block's order: the edge's group in `by_destination`.
    pub(crate) destination_group: D::Buffer<u32>,
    /// `[n_edge]`, in the block's order: the edge's group in `by_source`.
    pub(crate) source_group: D::Buffer<u32>,
    /// `[n_edge]`, in the block's order: the edge's factor in the mean of its group.
    pub(crate) weight: D::Buffer<D::Scalar>,
}

/// Which way messages flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From sources to destinations.
    Forward,
    /// From destinations to sources: the gradient's way.
    Backward,
}

impl Direction {
    /// Which operand of [`Relation::relation_weight_gradient`] is cheaper to sum: the narrower one.
    pub(crate) fn of_cheaper_sum(x_cols: usize, dout_cols: usize) -> Self {
        if x_cols <= dout_cols { Direction::Forward } else { Direction::Backward }
    }
}

/// What comes first for each relation: the sum over a group's edges or the product with the relation's weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One product for each group, over sums of inputs.
    AggregateFirst,
    /// One product for each distinct input, before the sums.
    TransformFirst,
}

/// Costs in multiply-adds of a dense product, fitted to `benches/relation.rs`: adding up one scalar of an edge's row,
/// and moving one scalar of a group's row between memory and a tile.
const EDGE_COST: f64 = 3.0;
const GROUP_COST: f64 = 12.0;

impl<D: Relation> RelationEdges<D> {
    /// The groups by the rows that messages reach, and those by the rows that they leave.
    pub fn groups(&self, direction: Direction) -> (&RelationGroups<D>, &RelationGroups<D>) {
        match direction {
            Direction::Forward => (&self.by_destination, &self.by_source),
            Direction::Backward => (&self.by_source, &self.by_destination),
        }
    }

    /// Numbers of rows that messages reach and that they leave.
    pub fn n_rows(&self, direction: Direction) -> (usize, usize) {
        match direction {
            Direction::Forward => (self.n_dst, self.n_src),
            Direction::Backward => (self.n_src, self.n_dst),
        }
    }

    /// Number of edges.
    pub fn n_edge(&self) -> usize {
        D::len(&self.source_group)
    }

    /// The cheaper order for messages of `in_dim` columns that become `out_dim`; a function of the counts alone.
    pub fn cheaper_order(&self, direction: Direction, in_dim: usize, out_dim: usize) -> Order {
        let (to, from) = self.groups(direction);
        Order::cheaper(
            self.n_edge() as f64,
            [to.n_groups() as f64, from.n_groups() as f64],
            [in_dim, out_dim],
        )
    }
}

impl Order {
    /// The cheaper order for `n_edge` messages of `in_dim` columns that become `out_dim`, from `n_from` groups of the
    /// rows that they leave to `n_to` groups of those that they reach.
    pub(crate) fn cheaper(n_edge: f64, [n_to, n_from]: [f64; 2], [in_dim, out_dim]: [usize; 2]) -> Self {
        let (k, n) = (in_dim as f64, out_dim as f64);
        // Sums stay in the tile; products are added to the output.
        let aggregate_first = EDGE_COST * n_edge * k + n_to * (k * n + GROUP_COST * n);
        // Inputs are gathered; products are written, to be gathered by edge.
        let transform_first = EDGE_COST * n_edge * n + n_from * (k * n + GROUP_COST * (k + n));
        if transform_first < aggregate_first { Order::TransformFirst } else { Order::AggregateFirst }
    }
}

/// Aggregation over typed edges.
pub trait Relation: Storage {
    /// Groups and edges by row, for devices that write each row of the output once, after all of its terms are known;
    /// `()` on others.
    type GroupsByRow: Debug + Send + Sync;

    /// Groups the edges of a block `a` (rows: destinations) by relation; `edge_type: [n_edge]`.
    ///
    /// An edge's factor is one over the number of edges of its group or, with weights that are not negative
    /// (`weight: [n_edge]`), its weight over the sum of its group's, and 0 if that is 0. Counting sorts,
    /// O(n_edge + n_rows + n_cols + n_relations). `a.edge` must be absent.
    ///
    /// Errors: `a.edge` is present, `edge_type` or `weight` does not have one element per edge, a relation is not below
    /// `n_relations` ([`IndexOutOfRange`](crate::Error::IndexOutOfRange)), or the device fails.
    fn group_relations(
        &self,
        a: Csr<'_, Self>,
        edge_type: Self::View<'_, u16>,
        n_relations: usize,
        weight: Option<Self::View<'_, Self::Scalar>>,
    ) -> Result<RelationEdges<Self>>;

    /// Forward: `out[t, :] (= | +=) Σ_r Σ_e factor(e) · x[s(e), :] · W_r` over the in-edges `e` of `t` of relation `r`;
    /// `x: [n_src, k]`, `out: [n_dst, n]`.
    ///
    /// Backward: `out[s, :] (= | +=) Σ_r Σ_e factor(e) · x[t(e), :] · W_rᵀ` over the out-edges of `s`;
    /// `x: [n_dst, n]`, `out: [n_src, k]`.
    ///
    /// `weight: [n_relations, k, n]`. Sums are taken in a fixed order; both orders of operations give the same up to
    /// rounding. A row without edges gets 0 (or stays, with [`Write::Add`]). The CPU needs memory for one tile of rows
    /// per thread, and with [`Order::TransformFirst`] for one relation's distinct inputs, transformed; a GPU needs
    /// memory for the rows of all groups.
    ///
    /// Errors: `x`, `out` or `weight` does not have its shape, or the device fails.
    #[allow(clippy::too_many_arguments)]
    fn relation_product(
        &self,
        edges: &RelationEdges<Self>,
        direction: Direction,
        order: Order,
        weight: Self::View<'_, Self::Scalar>,
        x: Matrix<'_, Self>,
        out: MatrixMut<'_, Self>,
        write: Write,
    ) -> Result<()>;

    /// The gradient of the weights: `dweight[r] = Σ_e factor(e) · x[s(e), :]ᵀ · dout[t(e), :]` over the edges of
    /// relation `r`, and 0 for a relation without edges.
    ///
    /// `aggregated` says which operand is summed over groups before the product: [`Direction::Forward`] sums `x` by
    /// destination, [`Direction::Backward`] sums `dout` by source. `x: [n_src, k]`, `dout: [n_dst, n]`,
    /// `dweight: [n_relations, k, n]`.
    ///
    /// Errors: `x`, `dout` or `dweight` does not have its shape, or the device fails.
    fn relation_weight_gradient(
        &self,
        edges: &RelationEdges<Self>,
        aggregated: Direction,
        x: Matrix<'_, Self>,
        dout: Matrix<'_, Self>,
        dweight: Self::ViewMut<'_, Self::Scalar>,
    ) -> Result<()>;

    /// Both gradients of a forward [`relation_product`](Relation::relation_product): `dx (= | +=)` the backward product
    /// of `dout`, and `dweight` as in [`relation_weight_gradient`](Relation::relation_weight_gradient).
    ///
    /// `weight, dweight: [n_relations, k, n]`, `x, dx: [n_src, k]`, `dout: [n_dst, n]`. Devices that override this
    /// share the sums of `dout` by source.
    ///
    /// Errors: `weight`, `x`, `dout`, `dx` or `dweight` does not have its shape, or the device fails.
    #[allow(clippy::too_many_arguments)]
    fn relation_gradients(
        &self,
        edges: &RelationEdges<Self>,
        weight: Self::View<'_, Self::Scalar>,
        x: Matrix<'_, Self>,
        dout: Matrix<'_, Self>,
        dx: MatrixMut<'_, Self>,
        write: Write,
        dweight: Self::ViewMut<'_, Self::Scalar>,
    ) -> Result<()> {
        gradients_apart(self, edges, weight, x, dout, dx, write, dweight)
    }
}

/// [`Relation::relation_gradients`] by separate kernels, one after the other.
#[allow(clippy::too_many_arguments)]
pub(crate) fn gradients_apart<D: Relation>(
    device: &D,
    edges: &RelationEdges<D>,
    weight: D::View<'_, D::Scalar>,
    x: Matrix<'_, D>,
    dout: Matrix<'_, D>,
    dx: MatrixMut<'_, D>,
    write: Write,
    dweight: D::ViewMut<'_, D::Scalar>,
) -> Result<()> {
    let order = edges.cheaper_order(Direction::Backward, dout.cols, x.cols);
    device.relation_product(edges, Direction::Backward, order, weight, dout, dx, write)?;
    device.relation_weight_gradient(edges, Direction::of_cheaper_sum(x.cols, dout.cols), x, dout, dweight)
}

/// `Ok` if the arrays of [`Relation::group_relations`] have the right lengths.
pub(crate) fn check_typed_edges<D: Storage>(
    a: &Csr<'_, D>,
    edge_type: &D::View<'_, u16>,
    weight: Option<&D::View<'_, D::Scalar>>,
) -> Result<()> {
    check_csr_lengths(a)?;
    check_no_edge(a)?;
    let n_edge = D::view_len(&a.indices);
    check_length("edge_type", D::view_len(edge_type), n_edge)?;
    check_length("edge weights", weight.map_or(n_edge, |weight| D::view_len(weight)), n_edge)
}

/// `Ok` if the shapes are those of [`Relation::relation_product`].
pub(crate) fn check_relation_product<D: Relation>(
    edges: &RelationEdges<D>,
    direction: Direction,
    weight: &D::View<'_, D::Scalar>,
    x: &Matrix<'_, D>,
    out: &MatrixMut<'_, D>,
) -> Result<()> {
    check_matrix(x)?;
    check_matrix_mut(out)?;
    let (n_to, n_from) = edges.n_rows(direction);
    let (k, n) = (x.cols, out.cols);
    check_same_shape("relation_product", "x", x.shape(), "required", [n_from, k])?;
    check_same_shape("relation_product", "out", out.shape(), "required", [n_to, n])?;
    let n_relations = edges.by_destination.n_relations();
    check_length("relation weights", D::view_len(weight), n_relations * k * n)
}

/// `Ok` if the shapes are those of [`Relation::relation_weight_gradient`].
pub(crate) fn check_relation_weight_gradient<D: Relation>(
    edges: &RelationEdges<D>,
    x: &Matrix<'_, D>,
    dout: &Matrix<'_, D>,
    dweight: &D::ViewMut<'_, D::Scalar>,
) -> Result<()> {
    check_matrix(x)?;
    check_matrix(dout)?;
    let (k, n) = (x.cols, dout.cols);
    check_same_shape("relation_weight_gradient", "x", x.shape(), "required", [edges.n_src, k])?;
    check_same_shape("relation_weight_gradient", "dout", dout.shape(), "required", [edges.n_dst, n])?;
    check_length("dweight", D::view_mut_len(dweight), edges.by_destination.n_relations() * k * n)
}
