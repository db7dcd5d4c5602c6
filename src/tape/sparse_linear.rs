//! `out = X · W` for a constant sparse `X` (bag-of-words features); `dW = Xᵀ · dout`, by the pattern's transpose.

use std::sync::Arc;

use super::{BackwardStep, Op, Tape, Var};
use crate::device::{Device, Matrix, Storage, Weights, Write};
use crate::error::{Result, check_length};
use crate::pattern::Pattern;
use crate::tensor::Tensor;

/// Sparse rows of features: a pattern, and the value and the name of each entry. Cloning shares them.
#[derive(Debug)]
pub struct SparseRows<D: Storage> {
    pattern: Arc<Pattern<D>>,
    values: Tensor<D>,
    names: Arc<D::Buffer<u32>>,
}

impl<D: Storage> Clone for SparseRows<D> {
    fn clone(&self) -> Self {
        SparseRows { pattern: self.pattern.clone(), values: self.values.clone(), names: self.names.clone() }
    }
}

impl<D: Device> SparseRows<D> {
    /// Rows from a pattern (`n_rows` vertices, `n_cols` features), its values and the names of its entries, `[n_entry]`
    /// each. Whether [`Tape::sparse_dropout`] drops an entry depends on its name, for example its position in the data
    /// set, and not on its place among these rows.
    ///
    /// Errors: `values` or `names` does not have one element per entry.
    pub fn new(pattern: Pattern<D>, values: D::Buffer<D::Scalar>, names: D::Buffer<u32>) -> Result<Self> {
        let n = pattern.n_edge();
        check_length("values", D::len(&values), n)?;
        check_length("names", D::len(&names), n)?;
        Ok(SparseRows {
            pattern: Arc::new(pattern),
            values: Tensor::from_buffer(values, n, 1)?,
            names: Arc::new(names),
        })
    }

    /// `[rows, features]`
    pub fn shape(&self) -> [usize; 2] {
        [self.pattern.n_rows(), self.pattern.n_cols()]
    }

    /// Moves rows that were made on the host to `device` (on the CPU: the same memory).
    ///
    /// Errors: the device fails or is out of memory.
    pub fn from_host(device: &D, host: SparseRows<crate::device::Cpu<D::Scalar>>) -> Result<Self> {
        let n = host.pattern.n_edge();
        let csr = host.pattern.csr();
        let pattern = Pattern::from_valid(
            csr.n_rows,
            csr.n_cols,
            device.upload(csr.indptr)?,
            device.upload(csr.indices)?,
        )?;
        Ok(SparseRows {
            pattern: Arc::new(pattern),
            values: Tensor::from_slice(device, n, 1, host.values.view())?,
            names: Arc::new(device.upload(&host.names)?),
        })
    }

    #[allow(clippy::type_complexity)]
    /// `indptr: [n_rows + 1]`, and of each entry its column, value and name.
    pub(crate) fn parts(
        &self,
    ) -> (D::View<'_, u32>, D::View<'_, u32>, D::View<'_, D::Scalar>, D::View<'_, u32>) {
        let csr = self.pattern.csr();
        (csr.indptr, csr.indices, self.values.view(), D::view(&self.names))
    }

    fn weights(&self) -> Weights<'_, D> {
        Weights { edge: Some(self.values.view()), row: None, column: None }
    }
}

impl<D: Device> Tape<D> {
    /// `x · weight` for sparse `x: [n, k]` and `weight: [k, m]`: `[n, m]`. O(entries · m).
    ///
    /// Errors: `weight` does not have one row per column of `x`.
    pub fn sparse_linear(&self, x: &SparseRows<D>, weight: Var) -> Result<Var> {
        self.apply(SparseLinear { x: x.clone() }, &[weight])
    }

    /// [`dropout`](Tape::dropout) of sparse rows: drops stored entries, by their names.
    ///
    /// Errors: `p` is not at least 0 and below 1.
    pub fn sparse_dropout(&self, x: &SparseRows<D>, p: f64) -> Result<SparseRows<D>> {
        let Some(stream) = self.next_dropout(p)? else { return Ok(x.clone()) };
        let device = self.device();
        let n = x.pattern.n_edge();
        let mut values = Tensor::allocate(device, n, 1)?;
        let (names, stored) = (D::view(&x.names), Matrix::from_view(x.values.view(), n, 1)?);
        device.dropout(p, self.seed, stream, Some(names), stored, values.make_mut(device)?)?;
        Ok(SparseRows { values, ..x.clone() })
    }
}

struct SparseLinear<D: Device> {
    x: SparseRows<D>,
}

impl<D: Device> Op<D> for SparseLinear<D> {
    type Saved = ();

    fn name(&self) -> &'static str {
        "sparse_linear"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        let mut out = Tensor::allocate(device, self.x.pattern.n_rows(), inputs[0].cols())?;
        let csr = self.x.pattern.csr();
        device.spmm(csr, self.x.weights(), inputs[0].matrix(), out.make_mut(device)?, Write::Assign)?;
        Ok((out, ()))
    }

    fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let weight = step.inputs[0];
        let mut dweight = Tensor::allocate(device, weight.rows(), weight.cols())?;
        device.spmm(
            self.x.pattern.transpose(device)?,
            self.x.weights(),
            step.gradient.matrix(),
            dweight.make_mut(device)?,
            Write::Assign,
        )?;
        Ok(vec![Some(dweight)])
    }
}
