//! `out = X · W` for a constant sparse `X` (bag-of-words features); `dW = Xᵀ · dout`, by the pattern's transpose.

use std::sync::Arc;

use super::{BackwardStep, Op, Tape, Var};
use crate::device::{Device, Storage, Weights, Write};
use crate::error::{Error, Result, check_length};
use crate::pattern::Pattern;
use crate::tensor::Tensor;

/// Sparse rows of features: a pattern and the value of each entry.
#[derive(Debug)]
pub struct SparseRows<D: Storage> {
    pattern: Pattern<D>,
    values: D::Buffer<D::Scalar>,
}

impl<D: Device> SparseRows<D> {
    /// Rows from a pattern (`n_rows` vertices, `n_cols` features) and its values, `[n_entry]`.
    pub fn new(pattern: Pattern<D>, values: D::Buffer<D::Scalar>) -> Result<Self> {
        check_length("values", D::len(&values), pattern.n_edge())?;
        Ok(SparseRows { pattern, values })
    }

    /// The pattern.
    pub fn pattern(&self) -> &Pattern<D> {
        &self.pattern
    }

    /// `[n_entry]`
    pub fn values(&self) -> D::View<'_, D::Scalar> {
        D::view(&self.values)
    }

    fn weights(&self) -> Weights<'_, D> {
        Weights { edge: Some(self.values()), row: None, column: None }
    }
}

impl<D: Device> Tape<D> {
    /// `x · weight` for sparse `x: [n, k]` and `weight: [k, m]`: `[n, m]`. O(entries · m).
    pub fn sparse_linear(&self, x: &Arc<SparseRows<D>>, weight: Var) -> Result<Var> {
        self.apply(SparseLinear { x: x.clone(), values: None }, &[weight])
    }

    /// [`sparse_linear`](Tape::sparse_linear) with each of `x`'s stored values dropped with probability `p`.
    ///
    /// `entry: [n_entry]` names each entry (its position in the data set's features, say): its fate is a function of
    /// the tape's seed, the number of dropouts before this one, and that name.
    pub fn sparse_dropout_linear(
        &self,
        x: &Arc<SparseRows<D>>,
        entry: D::View<'_, u32>,
        p: f64,
        weight: Var,
    ) -> Result<Var> {
        if !(0.0..1.0).contains(&p) {
            return Err(Error::invalid("p", p, "a dropout probability of at least 0 and below 1"));
        }
        let stream = self.n_dropout.get();
        self.n_dropout.set(stream + 1);
        if !self.training || p == 0.0 {
            return self.sparse_linear(x, weight);
        }
        let device = self.device();
        let n = x.pattern.n_edge();
        let mut values = Tensor::allocate(device, n, 1)?;
        let stored = crate::device::Matrix::new(x.values(), n, 1)?;
        device.dropout(p, self.seed, stream, Some(entry), stored, values.make_mut(device)?)?;
        self.apply(SparseLinear { x: x.clone(), values: Some(values) }, &[weight])
    }
}

struct SparseLinear<D: Device> {
    x: Arc<SparseRows<D>>,
    /// `[n_entry, 1]`: the values after dropout.
    values: Option<Tensor<D>>,
}

impl<D: Device> SparseLinear<D> {
    fn weights(&self) -> Weights<'_, D> {
        match &self.values {
            Some(values) => Weights { edge: Some(values.view()), row: None, column: None },
            None => self.x.weights(),
        }
    }
}

impl<D: Device> Op<D> for SparseLinear<D> {
    fn name(&self) -> &'static str {
        "sparse_linear"
    }

    fn forward(&mut self, device: &D, inputs: &[&Tensor<D>]) -> Result<Tensor<D>> {
        let mut out = Tensor::allocate(device, self.x.pattern.n_rows(), inputs[0].cols())?;
        let csr = self.x.pattern.csr();
        device.spmm(csr, self.weights(), inputs[0].matrix(), out.make_mut(device)?, Write::Assign)?;
        Ok(out)
    }

    fn backward(&mut self, device: &D, step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let weight = step.inputs[0];
        let mut dweight = Tensor::allocate(device, weight.rows(), weight.cols())?;
        device.spmm(
            self.x.pattern.transpose(device)?,
            self.weights(),
            step.gradient.matrix(),
            dweight.make_mut(device)?,
            Write::Assign,
        )?;
        Ok(vec![Some(dweight)])
    }
}
