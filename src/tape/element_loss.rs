//! `loss = factor · Σ ℓ(x, target)` over all elements whose target is not missing;
//! `dx = factor · dloss · ℓ'(x, target)`.
//!
//! Binary cross-entropy of logits: `ℓ = max(x, 0) − t · x + ln(1 + exp(−|x|))`, `ℓ' = σ(x) − t`. Squared error:
//! `ℓ = (x − t)²`, `ℓ' = 2 · (x − t)`.

use super::{BackwardStep, Op, Tape, Var};
use crate::device::{Device, ElementLoss, Write, check_same_shape};
use crate::error::Result;
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// Binary cross-entropy of `logits: [n, c]`, one prediction per element, summed over elements and multiplied by
    /// `factor` (one over the number of targets in the global batch): `[1, 1]`. `targets: [n, c]` are 0 or 1, or
    /// probabilities between; a target of NaN is missing, and adds nothing. No finite logit makes the loss overflow.
    ///
    /// Errors: shapes that differ.
    pub fn binary_cross_entropy(&self, logits: Var, targets: Tensor<D>, factor: f64) -> Result<Var> {
        self.apply(ElementLossOp { kind: ElementLoss::BinaryCrossEntropy, targets, factor }, &[logits])
    }

    /// The squared error of `x: [n, c]`, summed over elements and multiplied by `factor`, as in
    /// [`binary_cross_entropy`](Tape::binary_cross_entropy): `[1, 1]`. A target of NaN is missing, and adds nothing.
    ///
    /// Errors: shapes that differ.
    pub fn squared_error(&self, x: Var, targets: Tensor<D>, factor: f64) -> Result<Var> {
        self.apply(ElementLossOp { kind: ElementLoss::SquaredError, targets, factor }, &[x])
    }
}

struct ElementLossOp<D: Device> {
    kind: ElementLoss,
    targets: Tensor<D>,
    factor: f64,
}

impl<D: Device> Op<D> for ElementLossOp<D> {
    type Saved = ();

    fn name(&self) -> &'static str {
        match self.kind {
            ElementLoss::BinaryCrossEntropy => "binary_cross_entropy",
            ElementLoss::SquaredError => "squared_error",
        }
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        let (x, targets) = (inputs[0], &self.targets);
        check_same_shape("element loss", "prediction", x.shape(), "targets", targets.shape())?;
        let mut loss = Tensor::allocate(device, x.rows(), x.cols())?;
        device.element_loss(self.kind, x.view(), targets.view(), loss.make_mut(device)?.data)?;
        let mut sum = Tensor::allocate(device, 1, 1)?;
        device.dot(loss.view(), None, sum.make_mut(device)?.data)?;
        let mut out = Tensor::allocate(device, 1, 1)?;
        device.scale(self.factor, sum.view(), out.make_mut(device)?.data, Write::Assign)?;
        Ok((out, ()))
    }

    fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let (x, dloss) = (step.inputs[0], step.gradient.view());
        let mut dx = Tensor::allocate(device, x.rows(), x.cols())?;
        let data = dx.make_mut(device)?.data;
        device.element_loss_backward(self.kind, x.view(), self.targets.view(), self.factor, dloss, data)?;
        Ok(vec![Some(dx)])
    }
}

#[cfg(test)]
mod tests {
    use approx::assert_abs_diff_eq;

    use super::*;
    use crate::device::test_kernels::test_f64_devices;
    use crate::testing::assert_close;

    test_f64_devices! { losses_are_their_closed_forms shapes_that_differ_are_errors }

    const X: [f64; 6] = [0.0, 2.0, -3.0, 800.0, -800.0, 1.5];
    const TARGETS: [f64; 6] = [1.0, 0.0, 1.0, 0.0, 0.0, f64::NAN];

    fn losses_are_their_closed_forms<D: Device<Scalar = f64>>(device: &D) {
        // −ln σ(0), −ln(1 − σ(2)), −ln σ(−3), then a logit whose exponential overflows, and one that is right.
        let entropy = 2f64.ln() + (1.0 + 2f64.exp()).ln() + (1.0 + 3f64.exp()).ln() + 800.0;
        let slopes = [-0.5, 1.0 / (1.0 + (-2f64).exp()), 1.0 / (1.0 + 3f64.exp()) - 1.0, 1.0, 0.0, 0.0];
        let squares = 1.0 + 4.0 + 16.0 + 640_000.0 + 640_000.0;
        let square_slopes = [-2.0, 4.0, -8.0, 1600.0, -1600.0, 0.0];
        for (is_entropy, loss, slopes) in [(true, entropy, slopes), (false, squares, square_slopes)] {
            let tape = Tape::training(device, 0);
            let x = tape.leaf(Tensor::from_slice(device, 2, 3, &X).unwrap());
            let targets = Tensor::from_slice(device, 2, 3, &TARGETS).unwrap();
            let out = match is_entropy {
                true => tape.binary_cross_entropy(x, targets, 0.2),
                false => tape.squared_error(x, targets, 0.2),
            };
            let out = out.unwrap();
            let value = tape.value(out).item(device).unwrap();
            assert_abs_diff_eq!(value, 0.2 * loss, epsilon = 1e-12 * loss);
            let gradients = tape.backward(out).unwrap();
            let dx = gradients.of(x).unwrap().to_vec(device).unwrap();
            assert_close("dx", &dx, &slopes.map(|slope| 0.2 * slope), |i, _| 1e-12 * slopes[i].abs());
        }
    }

    fn shapes_that_differ_are_errors<D: Device<Scalar = f64>>(device: &D) {
        let tape = Tape::training(device, 0);
        let x = tape.leaf(Tensor::from_slice(device, 2, 3, &X).unwrap());
        let targets = Tensor::from_slice(device, 3, 2, &TARGETS).unwrap();
        assert!(tape.binary_cross_entropy(x, targets.clone(), 1.0).is_err());
        assert!(tape.squared_error(x, targets, 1.0).is_err());
    }
}
