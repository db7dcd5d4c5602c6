//! `out[t] = Σ_r mean_{e: s→t of relation r} W_r[id(s)]`: R-GCN's first layer over one-hot vertex ids.
//!
//! `dW_r[id(s)] = Σ_{e: s→t of r} f_e dout[t]`, one row for each (relation, source) that occurs: a row-sparse gradient.

use std::sync::Arc;

use super::{BackwardStep, Op, RowGradient, Tape, Var};
use crate::block::Block;
use crate::device::{Csr, Device, Direction, RelationGroups, Weights, Write};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// As [`relation_aggregate`](Tape::relation_aggregate) over one-hot rows: the message is the row of `W_r` at the
    /// source's global id. `weight: [n_relations · n_ids, n]`, one table below the other; out: `[n_dst, n]`.
    ///
    /// If `weight` is a leaf, its gradient is a [`RowGradient`].
    ///
    /// Errors: a block without edge types or with one at or above `n_relations`; a source's id at or above `n_ids`;
    /// `weight` has 2^32 or more rows, or a number of them that `n_relations` does not divide.
    pub fn relation_lookup(&self, block: &Arc<Block<D>>, n_relations: usize, weight: Var) -> Result<Var> {
        self.apply(RelationLookup { block: block.clone(), n_relations }, &[weight])
    }

    /// As [`relation_transform`](Tape::relation_transform) over one-hot rows: each group's row of `W_r` at the vertex's
    /// global id, `[n_group, n]`. `weight` as in [`relation_lookup`](Tape::relation_lookup).
    ///
    /// Errors: those of [`relation_lookup`](Tape::relation_lookup).
    pub fn relation_rows(
        &self,
        block: &Arc<Block<D>>,
        n_relations: usize,
        direction: Direction,
        weight: Var,
    ) -> Result<Var> {
        let device = self.device();
        let (groups, _) = block.relations(device, n_relations)?.groups(direction);
        let rows = weight_rows(device, block, groups, self.shape_of(weight)?[0])?;
        self.lookup(weight, &Arc::new(device.upload(&rows)?))
    }
}

struct RelationLookup<D: Device> {
    block: Arc<Block<D>>,
    n_relations: usize,
}

/// `[n_group]`: the row of the weight that each group of a relation and a vertex reads, of `n_rows` in all.
fn weight_rows<D: Device>(
    device: &D,
    block: &Block<D>,
    groups: &RelationGroups<D>,
    n_rows: usize,
) -> Result<Vec<u32>> {
    if u32::try_from(n_rows).is_err() {
        return Err(Error::TooLarge {
            what: "the relations' tables",
            count: n_rows as u64,
            limit: u32::MAX.into(),
        });
    }
    let n_relations = groups.n_relations();
    if n_relations == 0 || !n_rows.is_multiple_of(n_relations) {
        let expected = format!("a multiple of the {n_relations} relations");
        return Err(Error::invalid("rows of the relations' tables", n_rows, expected));
    }
    let n_ids = n_rows / n_relations;
    let mut rows = group_ids(device, block, groups, n_ids)?;
    for (r, ends) in groups.offsets.windows(2).enumerate() {
        let first = (r * n_ids) as u32;
        rows[ends[0] as usize..ends[1] as usize].iter_mut().for_each(|row| *row += first);
    }
    Ok(rows)
}

/// `[n_group]`: the global id of each group's vertex, below `n_ids`.
pub(super) fn group_ids<D: Device>(
    device: &D,
    block: &Block<D>,
    groups: &RelationGroups<D>,
    n_ids: usize,
) -> Result<Vec<u32>> {
    let ids = vertex_ids(device, block, n_ids)?;
    Ok(device.download(D::view(&groups.row))?.into_iter().map(|v| ids[v as usize]).collect())
}

/// `[n_src]`: the global ids of a block's sources, below `n_ids`.
pub(super) fn vertex_ids<D: Device>(device: &D, block: &Block<D>, n_ids: usize) -> Result<Vec<u32>> {
    let ids = device.download(block.src())?;
    if let Some(position) = ids.iter().position(|&id| id as usize >= n_ids) {
        return Err(Error::IndexOutOfRange {
            array: "src",
            position: position as u64,
            value: i64::from(ids[position]),
            limit: n_ids as u64,
        });
    }
    Ok(ids)
}

impl<D: Device> Op<D> for RelationLookup<D> {
    type Saved = ();

    fn name(&self) -> &'static str {
        "relation_lookup"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        let weight = inputs[0];
        let edges = self.block.relations(device, self.n_relations)?;
        let rows = weight_rows(device, &self.block, &edges.by_source, weight.rows())?;
        let groups = device.download(D::view(&edges.source_group))?;
        let columns: Vec<u32> = groups.iter().map(|&g| rows[g as usize]).collect();
        let columns = device.upload(&columns)?;
        let messages = Csr { n_cols: weight.rows(), indices: D::view(&columns), ..self.block.csr() };
        let factors = Weights { edge: Some(D::view(&edges.weight)), row: None, column: None };
        let mut out = Tensor::allocate(device, edges.n_dst, weight.cols())?;
        device.spmm(messages, factors, weight.matrix(), out.make_mut(device)?, Write::Assign)?;
        Ok((out, ()))
    }

    fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let weight = step.inputs[0];
        let edges = self.block.relations(device, self.n_relations)?;
        let groups = &edges.by_source;
        let by_source = Csr {
            n_rows: groups.n_groups(),
            n_cols: edges.n_dst,
            indptr: D::view(&groups.indptr),
            indices: D::view(&groups.indices),
            edge: None,
            longest_row: None,
        };
        let factors = Weights { edge: Some(D::view(&groups.weight)), row: None, column: None };
        let mut values = Tensor::allocate(device, groups.n_groups(), weight.cols())?;
        let out = values.make_mut(device)?;
        device.spmm(by_source, factors, step.gradient.matrix(), out, Write::Assign)?;
        let rows = weight_rows(device, &self.block, &edges.by_source, weight.rows())?;
        step.rows.push((0, RowGradient::new(device, weight.rows(), &rows, values)?));
        Ok(vec![None])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::test_kernels::test_f64_devices;

    test_f64_devices! { a_table_of_a_part_of_the_relations_is_an_error }

    fn a_table_of_a_part_of_the_relations_is_an_error<D: Device<Scalar = f64>>(device: &D) {
        let block = Block::from_csr(device, 3, &[0, 2, 3], &[0, 2, 1]).unwrap();
        let block = Arc::new(block.with_edge_types(device.upload(&[0u16, 1, 0]).unwrap()).unwrap());
        let tape = Tape::inference(device);
        for (n_rows, fits) in [(6, true), (7, false), (8, true), (5, false), (0, false)] {
            let weight = tape.constant(Tensor::zeros(device, n_rows, 4).unwrap());
            assert_eq!(tape.relation_lookup(&block, 2, weight).is_ok(), fits, "{n_rows} rows");
            for direction in [Direction::Forward, Direction::Backward] {
                assert_eq!(tape.relation_rows(&block, 2, direction, weight).is_ok(), fits, "{n_rows} rows");
            }
        }
    }
}
