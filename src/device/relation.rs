//! Kernel family *relation*: aggregation over typed edges, where each relation has a weight matrix of its own.
//!
//! Nothing of `n_edge · dim` scalars is ever written. Edges are grouped by relation and, within a relation, by
//! destination (and, for the backward pass, by source). A *group* is a row's edges of one relation: relations without
//! edges have no groups, and so cost nothing.

use crate::device::{Csr, Matrix, MatrixMut, Storage, Write};
use crate::error::Result;

/// Edges by relation, then by row, then by position in the block. The rows are destinations or sources.
#[derive(Debug)]
pub struct RelationGroups<D: Storage> {
    /// `[n_relations + 1]`, on the host: where each relation's groups begin.
    pub offsets: Vec<u32>,
    /// `[n_group]`: the row of each group, ascending within a relation.
    pub row: D::Buffer<u32>,
    /// `[n_group + 1]`: where each group's edges begin.
    pub indptr: D::Buffer<u32>,
    /// `[n_edge]`: the other end of each edge.
    pub indices: D::Buffer<u32>,
    /// `[n_edge]`: the edge's group in the other direction, counted from the first one of its relation.
    pub partner: D::Buffer<u32>,
    /// `[n_edge]`: the edge's factor in the mean over its destination's edges of its relation.
    pub weight: D::Buffer<D::Scalar>,
}

impl<D: Storage> RelationGroups<D> {
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
pub struct RelationEdges<D: Storage> {
    /// Number of destinations.
    pub n_dst: usize,
    /// Number of sources.
    pub n_src: usize,
    /// Groups whose rows are destinations and whose `indices` are sources.
    pub by_destination: RelationGroups<D>,
    /// Groups whose rows are sources and whose `indices` are destinations.
    pub by_source: RelationGroups<D>,
    /// `[n_edge]`, in the block's order: the edge's group in `by_destination`.
    pub destination_group: D::Buffer<u32>,
    /// `[n_edge]`, in the block's order: the edge's group in `by_source`.
    pub source_group: D::Buffer<u32>,
    /// `[n_edge]`, in the block's order: the edge's factor in the mean of its group.
    pub weight: D::Buffer<D::Scalar>,
}

/// Which way messages flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From sources to destinations.
    Forward,
    /// From destinations to sources: the gradient's way.
    Backward,
}

/// What comes first for each relation: the sum over a group's edges or the product with the relation's weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One product for each group, over sums of inputs.
    AggregateFirst,
    /// One product for each distinct input, before the sums.
    TransformFirst,
}

/// What adding up one scalar of a gathered row costs, in multiply-adds of a dense product. Measured by
/// `benches/relation.rs`: a gathered row comes from beyond the first cache, a product's operands from within it.
const GATHER_COST: f64 = 8.0;

impl<D: Storage> RelationEdges<D> {
    /// The groups by the rows that messages reach, and those by the rows that they leave.
    pub fn groups(&self, direction: Direction) -> (&RelationGroups<D>, &RelationGroups<D>) {
        match direction {
            Direction::Forward => (&self.by_destination, &self.by_source),
            Direction::Backward => (&self.by_source, &self.by_destination),
        }
    }

    /// Number of edges.
    pub fn n_edge(&self) -> usize {
        D::len(&self.source_group)
    }

    /// The cheaper order for messages of `in_dim` columns that become `out_dim`; a function of the counts alone.
    pub fn cheaper_order(&self, direction: Direction, in_dim: usize, out_dim: usize) -> Order {
        let (to, from) = self.groups(direction);
        let product = in_dim as f64 * out_dim as f64;
        let gather = GATHER_COST * self.n_edge() as f64;
        let aggregate_first = gather * in_dim as f64 + to.n_groups() as f64 * product;
        let transform_first = gather * out_dim as f64 + from.n_groups() as f64 * product;
        if transform_first < aggregate_first { Order::TransformFirst } else { Order::AggregateFirst }
    }
}

/// Aggregation over typed edges.
pub trait Relation: Storage {
    /// Groups the edges of a block `a` (rows: destinations) by relation; `edge_type: [n_edge]`.
    ///
    /// An edge's factor is one over the number of edges of its group or, with estimator weights (`weight: [n_edge]`),
    /// its weight over the sum of its group's. Counting sorts, O(n_edge + n_rows + n_cols + n_relations). `a.edge` must
    /// be absent. A relation at or above `n_relations` is [`IndexOutOfRange`](crate::Error::IndexOutOfRange).
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
    /// `weight: [n_relations, k, n]`. Relations are added in their order; both orders of operations give the same up
    /// to rounding. A row without edges gets 0 (or stays, with [`Write::Add`]). Needs memory for one tile of rows a
    /// thread, and with [`Order::TransformFirst`] for one relation's distinct inputs, transformed.
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
    fn relation_weight_gradient(
        &self,
        edges: &RelationEdges<Self>,
        aggregated: Direction,
        x: Matrix<'_, Self>,
        dout: Matrix<'_, Self>,
        dweight: Self::ViewMut<'_, Self::Scalar>,
    ) -> Result<()>;
}
