//! `out[e, :] = table[edge_id[e], :]`: features of edges, by the edges' numbers in the graph.

use std::sync::Arc;

use super::{Tape, Var};
use crate::block::Block;
use crate::device::{Device, FeatureElement};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// Rows of a constant `table: [n_table, dim]`, which has one for each edge of the graph, for the edges of a block
    /// sampled with edge ids: `[n_edge, dim]`. The table may be of any feature type, and in the host's memory
    /// ([`upload_to_host`](crate::device::Storage::upload_to_host)).
    ///
    /// Errors: a block without edge ids, an id at or above `n_table`, a table of another length than its shape or of
    /// more than 2^32 rows.
    pub fn edge_features<E: FeatureElement>(
        &self,
        block: &Block<D>,
        table: D::View<'_, E>,
        [n_table, dim]: [usize; 2],
    ) -> Result<Var> {
        let (device, index) = (self.device(), self.edge_index(block, n_table)?);
        let mut out = Tensor::allocate(device, block.n_edge(), dim)?;
        device.gather(table, n_table, D::view(&index), out.make_mut(device)?)?;
        Ok(self.constant(out))
    }

    /// The same from `table: [n_table, dim]` on the tape: `[n_edge, dim]`. If `table` is a leaf, its gradient is
    /// row-sparse, as with [`lookup`](Tape::lookup).
    ///
    /// Errors: a block without edge ids, an id at or above `n_table`, a table of more than 2^32 rows.
    pub fn edge_lookup(&self, block: &Block<D>, table: Var) -> Result<Var> {
        let index = self.edge_index(block, self.shape_of(table)?[0])?;
        self.lookup(table, &Arc::new(index))
    }

    /// `[n_edge]`: the edges' numbers in the graph, all below `n_table`.
    fn edge_index(&self, block: &Block<D>, n_table: usize) -> Result<D::Buffer<u32>> {
        let edge_id = block.edge_id().ok_or_else(|| {
            Error::invalid("block", "without edge ids", "one whose sampler was asked for edge ids")
        })?;
        let mut index = self.device().allocate(block.n_edge())?;
        self.device().narrow_index(edge_id, n_table, D::view_mut(&mut index))?;
        Ok(index)
    }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;
    use crate::device::test_kernels::test_f64_devices;
    use crate::tape::Aggregate;

    test_f64_devices! { rows_are_those_of_the_edge_ids edges_are_aggregated_by_destination }

    const INDPTR: [u32; 4] = [0, 2, 2, 3];

    fn block<D: Device<Scalar = f64>>(device: &D) -> Block<D> {
        Block::from_csr(device, 4, &INDPTR, &[3, 1, 0]).unwrap()
    }

    fn rows_are_those_of_the_edge_ids<D: Device<Scalar = f64>>(device: &D) {
        let values = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0].map(f16::from_f64);
        let table = device.upload_to_host(&values).unwrap();
        let tape = Tape::inference(device);
        let error = tape.edge_features(&block(device), D::view(&table), [4, 2]).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { argument: "block", .. }), "{error}");
        let with_ids = |ids: [u64; 3]| block(device).with_edge_ids(device.upload(&ids).unwrap()).unwrap();
        let out = tape.edge_features(&with_ids([3, 0, 3]), D::view(&table), [4, 2]).unwrap();
        assert_eq!(tape.value(out).to_vec(device).unwrap(), [6.0, 7.0, 0.0, 1.0, 6.0, 7.0]);
        let out = tape.edge_features(&with_ids([3, 4, 0]), D::view(&table), [4, 2]);
        let error = out.and_then(|_| device.synchronize()).unwrap_err();
        assert!(matches!(error, Error::IndexOutOfRange { position: 1, value: 4, limit: 4, .. }), "{error}");
        assert!(tape.edge_features(&with_ids([0; 3]), D::view(&table), [3, 2]).is_err());
        assert!(block(device).with_edge_ids(device.upload(&[0, 1]).unwrap()).is_err());
        let elsewhere = Tape::inference(device).constant(Tensor::zeros(device, 4, 2).unwrap());
        assert!(tape.edge_lookup(&with_ids([0; 3]), elsewhere).is_err());
        let short = tape.constant(Tensor::zeros(device, 3, 2).unwrap());
        let out = tape.edge_lookup(&with_ids([0, 3, 0]), short);
        assert!(out.and_then(|_| device.synchronize()).is_err());
    }

    fn edges_are_aggregated_by_destination<D: Device<Scalar = f64>>(device: &D) {
        let (tape, block) = (Tape::inference(device), Arc::new(block(device)));
        let x = tape.constant(Tensor::from_slice(device, 3, 2, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap());
        let of = |aggregate| {
            let out = tape.aggregate_edges(&block, x, aggregate).unwrap();
            tape.value(out).to_vec(device).unwrap()
        };
        assert_eq!(of(Aggregate::Sum), [4.0, 6.0, 0.0, 0.0, 5.0, 6.0]);
        assert_eq!(of(Aggregate::Mean), [2.0, 3.0, 0.0, 0.0, 5.0, 6.0]);
        assert!(tape.aggregate_edges(&block, x, Aggregate::Symmetric).is_err());
        let few = tape.constant(Tensor::zeros(device, 2, 2).unwrap());
        assert!(tape.aggregate_edges(&block, few, Aggregate::Sum).is_err());
    }
}
