//! An operation of one's own on the tape, with its gradient check.
//!
//! `cargo run --release --example custom_operation`

use cohop::prelude::*;
use cohop::tape::gradcheck::{check, random};
use cohop::tape::{BackwardStep, Op};

/// `out = ln(1 + eˣ)`; `dx = σ(x) · dout`, where `σ(x) = 1 / (1 + e⁻ˣ)`.
///
/// For the CPU, where views are slices. An operation made of kernels would be one for every device:
/// `impl<D: Device> Op<D>`.
struct Softplus;

impl<S: Scalar> Op<Cpu<S>> for Softplus {
    /// `[rows, cols]`: σ(x), so that `backward` need not take exponentials again.
    type Saved = Tensor<Cpu<S>>;

    fn name(&self) -> &'static str {
        "softplus"
    }

    fn forward(&self, cpu: &Cpu<S>, inputs: &[&Tensor<Cpu<S>>]) -> Result<(Tensor<Cpu<S>>, Self::Saved)> {
        let [rows, cols] = inputs[0].shape();
        let (mut out, mut sigmoid) = (Tensor::allocate(cpu, rows, cols)?, Tensor::allocate(cpu, rows, cols)?);
        let elements = out.make_mut(cpu)?.into_data().iter_mut().zip(sigmoid.make_mut(cpu)?.into_data());
        for ((out, sigmoid), &x) in elements.zip(inputs[0].view()) {
            // Stable for large x of either sign.
            *out = x.max(S::zero()) + (-x.abs()).exp().ln_1p();
            *sigmoid = S::one() / (S::one() + (-x).exp());
        }
        Ok((out, sigmoid))
    }

    fn backward(
        &self,
        cpu: &Cpu<S>,
        sigmoid: Self::Saved,
        step: BackwardStep<'_, Cpu<S>>,
    ) -> Result<Vec<Option<Tensor<Cpu<S>>>>> {
        let mut dx = step.gradient;
        for (dx, &sigmoid) in dx.make_mut(cpu)?.into_data().iter_mut().zip(sigmoid.view()) {
            *dx *= sigmoid;
        }
        Ok(vec![Some(dx)])
    }
}

pub(crate) fn main() -> Result<()> {
    let cpu = Cpu::<f32>::new();
    let tape = Tape::training(&cpu, 0);
    let x = tape.leaf(Tensor::from_slice(&cpu, 1, 3, &[-200.0, 0.0, 200.0])?);
    let y = tape.apply(Softplus, &[x])?;
    println!("softplus: {:?}", tape.value(y).to_vec(&cpu)?);
    assert_eq!(tape.value(y).to_vec(&cpu)?, [0.0, std::f32::consts::LN_2, 200.0]);

    // In f64, against central differences of a random combination of the outputs; also without rows.
    for rows in [0, 1, 7] {
        let cpu = Cpu::<f64>::new();
        let inputs = [random(&cpu, rows, 4, 1)?];
        let report = check(&cpu, &inputs, 2, |tape, vars| tape.apply(Softplus, &[vars[0]]))?;
        println!(
            "{} derivatives, largest relative error {:.1e}",
            report.derivatives, report.max_relative_error
        );
        assert!(report.passed());
    }
    Ok(())
}
