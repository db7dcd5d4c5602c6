//! `out[g] = Σ_b c[r(g), b] · V[b · n_ids + id(g)]` for groups `g` of one relation and one vertex each: rows of
//! `W_r = Σ_b c_rb V_b`, of which only those that a block reads are made.
//!
//! `dV[b · n_ids + id] = Σ_{g of id} c[r(g), b] dout[g]`, row-sparse;
//! `dc[r, b] = Σ_{g of r} ⟨dout[g], V[b · n_ids + id(g)]⟩`.

use std::sync::Arc;

use super::relation_lookup::{group_ids, vertex_ids};
use super::{BackwardStep, Op, RowGradient, Tape, Var};
use crate::block::Block;
use crate::device::{Csr, Device, Direction, MatrixMut, Weights, Write};
use crate::error::{Error, Result, check_length};
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// As [`relation_rows`](Tape::relation_rows), for matrices that are combinations of bases: `coefficients:
    /// [n_relations, n_bases]`, `bases: [n_bases · n_ids, n]` (one below the other), out: `[n_group, n]`.
    ///
    /// O(n_group · n_bases · n), whatever the number of relations and ids. If `bases` is a leaf, its gradient is a
    /// [`RowGradient`].
    ///
    /// Errors: `n_bases` is 0 or does not divide the number of rows of `bases`; a block without edge types or with one
    /// at or above `n_relations`; a source's id at or above `n_ids`; 2^32 or more rows of `bases`, or groups times
    /// bases.
    pub fn relation_basis_rows(
        &self,
        block: &Arc<Block<D>>,
        direction: Direction,
        coefficients: Var,
        bases: Var,
    ) -> Result<Var> {
        let [n_relations, n_bases] = self.shape_of(coefficients)?;
        let [n_rows, _] = self.shape_of(bases)?;
        if n_bases == 0 || !n_rows.is_multiple_of(n_bases) {
            let expected = format!("a multiple of the {n_bases} bases");
            return Err(Error::invalid("rows of the bases", n_rows, expected));
        }
        let device = self.device();
        let (groups, _) = block.relations(device, n_relations)?.groups(direction);
        let ids = group_ids(device, block, groups, n_rows / n_bases)?;
        let op = RelationBasisRows::new(groups.offsets.clone(), ids, n_bases, n_rows / n_bases)?;
        self.apply(op, &[coefficients, bases])
    }

    /// The rows of one combination of bases at the destinations' global ids: `coefficients: [1, n_bases]`, `bases` as
    /// in [`relation_basis_rows`](Tape::relation_basis_rows), out: `[n_dst, n]`.
    ///
    /// Errors: `coefficients` does not have exactly one row; `n_bases` is 0 or does not divide the number of rows of
    /// `bases`; a source's id at or above `n_ids`; 2^32 or more rows of `bases`, or destinations times bases.
    pub fn basis_rows(&self, block: &Arc<Block<D>>, coefficients: Var, bases: Var) -> Result<Var> {
        let ([n, n_bases], [n_rows, _]) = (self.shape_of(coefficients)?, self.shape_of(bases)?);
        if n != 1 || n_bases == 0 || !n_rows.is_multiple_of(n_bases) {
            let expected = "one row, of as many columns as there are bases";
            return Err(Error::invalid("coefficients", format!("[{n}, {n_bases}]"), expected));
        }
        let n_ids = n_rows / n_bases;
        let mut ids = vertex_ids(self.device(), block, n_ids)?;
        ids.truncate(block.n_dst());
        let offsets = vec![0, ids.len() as u32];
        self.apply(RelationBasisRows::new(offsets, ids, n_bases, n_ids)?, &[coefficients, bases])
    }
}

struct RelationBasisRows {
    n_bases: usize,
    n_ids: usize,
    /// `[n_relations + 1]`: where each relation's groups begin.
    offsets: Vec<u32>,
    /// `[n_group]`: the vertex of each group.
    ids: Vec<u32>,
}

impl RelationBasisRows {
    fn new(offsets: Vec<u32>, ids: Vec<u32>, n_bases: usize, n_ids: usize) -> Result<Self> {
        let n_entries = ids.len() as u64 * n_bases as u64;
        for (what, count) in [("the bases' tables", n_bases as u64 * n_ids as u64), ("entries", n_entries)] {
            if u32::try_from(count).is_err() {
                return Err(Error::TooLarge { what, count, limit: u32::MAX.into() });
            }
        }
        Ok(RelationBasisRows { n_bases, n_ids, offsets, ids })
    }

    /// Column `b` of the coefficients, at every group: `[n_group]`.
    fn at_groups<D: Device>(&self, coefficients: &[D::Scalar], b: usize) -> Vec<D::Scalar> {
        let relations = self.offsets.windows(2).zip(coefficients.chunks_exact(self.n_bases));
        relations.flat_map(|(ends, row)| std::iter::repeat_n(row[b], (ends[1] - ends[0]) as usize)).collect()
    }

    /// Each group's rows of the bases, as offsets `[n_group + 1]` and indices `[n_group · n_bases]`.
    fn pattern<D: Device>(&self, device: &D) -> Result<(D::Buffer<u32>, D::Buffer<u32>)> {
        let (n_bases, n_ids) = (self.n_bases as u32, self.n_ids as u32);
        let indptr: Vec<u32> = (0..=self.ids.len() as u32).map(|g| g * n_bases).collect();
        let indices: Vec<u32> =
            self.ids.iter().flat_map(|&id| (0..n_bases).map(move |b| b * n_ids + id)).collect();
        Ok((device.upload(&indptr)?, device.upload(&indices)?))
    }

    /// The different vertices, ascending, and the groups of each, as offsets and indices.
    fn by_vertex(&self) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
        let mut order: Vec<u32> = (0..self.ids.len() as u32).collect();
        order.sort_by_key(|&g| self.ids[g as usize]);
        let (mut vertices, mut indptr) = (Vec::new(), Vec::new());
        for (position, &g) in order.iter().enumerate() {
            let id = self.ids[g as usize];
            if vertices.last() != Some(&id) {
                vertices.push(id);
                indptr.push(position as u32);
            }
        }
        indptr.push(order.len() as u32);
        (vertices, indptr, order)
    }

    fn bases_gradient<D: Device>(
        &self,
        device: &D,
        coefficients: &[D::Scalar],
        dout: &Tensor<D>,
    ) -> Result<RowGradient<D>> {
        let (vertices, indptr, order) = self.by_vertex();
        let (indptr, order) = (device.upload(&indptr)?, device.upload(&order)?);
        let (n, cols) = (vertices.len(), dout.cols());
        let csr = Csr {
            n_rows: n,
            n_cols: self.ids.len(),
            indptr: D::view(&indptr),
            indices: D::view(&order),
            edge: None,
            longest_row: None,
        };
        let mut values = Tensor::allocate(device, self.n_bases * n, cols)?;
        let mut index = Vec::with_capacity(self.n_bases * n);
        for b in 0..self.n_bases {
            let factors = device.upload(&self.at_groups::<D>(coefficients, b))?;
            let weights = Weights { edge: None, row: None, column: Some(D::view(&factors)) };
            let part = D::slice_mut(values.make_mut(device)?.data, b * n * cols..(b + 1) * n * cols);
            device.spmm(csr, weights, dout.matrix(), MatrixMut::from_view(part, n, cols)?, Write::Assign)?;
            index.extend(vertices.iter().map(|&id| (b * self.n_ids) as u32 + id));
        }
        RowGradient::new(device, self.n_bases * self.n_ids, &index, values)
    }
}

impl<D: Device> Op<D> for RelationBasisRows {
    type Saved = ();

    fn name(&self) -> &'static str {
        "relation_basis_rows"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        let (coefficients, bases) = (inputs[0], inputs[1]);
        let (indptr, indices) = self.pattern(device)?;
        let coefficients = coefficients.to_vec(device)?;
        check_length("coefficients", coefficients.len(), (self.offsets.len() - 1) * self.n_bases)?;
        let factors: Vec<D::Scalar> = self
            .offsets
            .windows(2)
            .zip(coefficients.chunks_exact(self.n_bases))
            .flat_map(|(ends, row)| std::iter::repeat_n(row, (ends[1] - ends[0]) as usize).flatten().copied())
            .collect();
        let factors = device.upload(&factors)?;
        let csr = Csr {
            n_rows: self.ids.len(),
            n_cols: bases.rows(),
            indptr: D::view(&indptr),
            indices: D::view(&indices),
            edge: None,
            longest_row: None,
        };
        let weights = Weights { edge: Some(D::view(&factors)), row: None, column: None };
        let mut out = Tensor::allocate(device, self.ids.len(), bases.cols())?;
        device.spmm(csr, weights, bases.matrix(), out.make_mut(device)?, Write::Assign)?;
        Ok((out, ()))
    }

    fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let (coefficients, bases, dout) = (step.inputs[0], step.inputs[1], &step.gradient);
        if step.wanted[1] {
            let rows = self.bases_gradient(device, &coefficients.to_vec(device)?, dout)?;
            step.rows.push((1, rows));
        }
        if !step.wanted[0] {
            return Ok(vec![None, None]);
        }
        let (indptr, indices) = self.pattern(device)?;
        let n_groups = self.ids.len();
        let csr = Csr {
            n_rows: n_groups,
            n_cols: bases.rows(),
            indptr: D::view(&indptr),
            indices: D::view(&indices),
            edge: None,
            longest_row: None,
        };
        let mut dots = Tensor::allocate(device, n_groups, self.n_bases)?;
        let data = dots.make_mut(device)?.data;
        device.sddmm_dot(csr, bases.matrix(), dout.matrix(), 1, data, Write::Assign)?;
        let (offsets, own) = (device.upload(&self.offsets)?, (0..n_groups as u32).collect::<Vec<u32>>());
        let own = device.upload(&own)?;
        let csr = Csr {
            n_rows: coefficients.rows(),
            n_cols: n_groups,
            indptr: D::view(&offsets),
            indices: D::view(&own),
            edge: None,
            longest_row: None,
        };
        let mut dcoefficients = Tensor::allocate(device, coefficients.rows(), self.n_bases)?;
        let out = dcoefficients.make_mut(device)?;
        device.spmm(csr, Weights::ones(), dots.matrix(), out, Write::Assign)?;
        Ok(vec![Some(dcoefficients), None])
    }
}
