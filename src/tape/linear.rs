//! `out = f(Σ_i x_i · W_i + b)`.
//!
//! With `g = f'(·) ⊙ dout`: `dx_i = g · W_iᵀ`, `dW_i = x_iᵀ · g`, `db = Σ_rows g`.

use super::{BackwardStep, Op, Tape, Var};
use crate::device::{Activation, Device, Write};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// `f(Σ_i x_i · W_i + b)` for the pairs `(x_i, W_i)` in `terms`: `x_i: [n, k_i]`, `W_i: [k_i, m]`, `bias: [1, m]`.
    ///
    /// One output is written, whatever the number of terms.
    ///
    /// Errors: `terms` is empty, or shapes do not fit.
    pub fn linear(
        &self,
        terms: &[(Var, Var)],
        bias: Option<Var>,
        activation: Option<Activation>,
    ) -> Result<Var> {
        if terms.is_empty() {
            return Err(Error::invalid("terms", "empty", "at least one pair of input and weight"));
        }
        let mut inputs: Vec<Var> = terms.iter().flat_map(|&(x, w)| [x, w]).collect();
        inputs.extend(bias);
        self.apply(Linear { n_terms: terms.len(), activation }, &inputs)
    }
}

struct Linear {
    n_terms: usize,
    activation: Option<Activation>,
}

impl<D: Device> Op<D> for Linear {
    type Saved = ();

    fn name(&self) -> &'static str {
        "linear"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        let mut out = Tensor::allocate(device, inputs[0].rows(), inputs[1].cols())?;
        let (pairs, bias) = inputs.split_at(2 * self.n_terms);
        let terms: Vec<_> = pairs.chunks_exact(2).map(|pair| (pair[0].matrix(), pair[1].matrix())).collect();
        let bias = bias.first().map(|bias| bias.view());
        device.linear(&terms, bias, self.activation, out.make_mut(device)?)?;
        Ok((out, ()))
    }

    fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let mut g = step.gradient;
        if let Some(activation) = self.activation {
            device.activate_backward(activation, step.output.view(), g.make_mut(device)?.data)?;
        }
        let mut gradients = Vec::with_capacity(step.inputs.len());
        for (pair, wanted) in step.inputs[..2 * self.n_terms].chunks_exact(2).zip(step.wanted.chunks_exact(2))
        {
            let (x, w) = (pair[0], pair[1]);
            gradients.push(if wanted[0] {
                let mut dx = Tensor::allocate(device, x.rows(), x.cols())?;
                device.gemm(g.matrix(), false, w.matrix(), true, dx.make_mut(device)?, Write::Assign)?;
                Some(dx)
            } else {
                None
            });
            gradients.push(if wanted[1] {
                let mut dw = Tensor::allocate(device, w.rows(), w.cols())?;
                device.gemm(x.matrix(), true, g.matrix(), false, dw.make_mut(device)?, Write::Assign)?;
                Some(dw)
            } else {
                None
            });
        }
        if let Some(bias) = step.inputs.get(2 * self.n_terms) {
            let mut db = Tensor::allocate(device, 1, bias.cols())?;
            device.sum_rows(g.matrix(), db.make_mut(device)?.data, Write::Assign)?;
            gradients.push(Some(db));
        }
        Ok(gradients)
    }
}
