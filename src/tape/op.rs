//! The interface between operations and the tape.

use super::RowGradient;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// A differentiable operation: what [`Tape::apply`](super::Tape::apply) runs and records.
///
/// All operations of this crate are written this way, and those of another crate can be too:
///
/// ```
/// use cohop::device::{Cpu, Device, Write};
/// use cohop::tape::{BackwardStep, Op, Tape};
/// use cohop::tensor::Tensor;
///
/// /// `out = factor · x`; `dx = factor · dout`.
/// struct Times(f64);
///
/// impl<D: Device> Op<D> for Times {
///     type Saved = ();
///
///     fn name(&self) -> &'static str {
///         "times"
///     }
///
///     fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> cohop::Result<(Tensor<D>, ())> {
///         let mut out = Tensor::allocate(device, inputs[0].rows(), inputs[0].cols())?;
///         device.scale(self.0, inputs[0].view(), out.make_mut(device)?.into_data(), Write::Assign)?;
///         Ok((out, ()))
///     }
///
///     fn backward(
///         &self,
///         device: &D,
///         (): (),
///         step: BackwardStep<'_, D>,
///     ) -> cohop::Result<Vec<Option<Tensor<D>>>> {
///         let dout = step.gradient;
///         let mut dx = Tensor::allocate(device, dout.rows(), dout.cols())?;
///         device.scale(self.0, dout.view(), dx.make_mut(device)?.into_data(), Write::Assign)?;
///         Ok(vec![Some(dx)])
///     }
/// }
///
/// # fn main() -> cohop::Result<()> {
/// let cpu = Cpu::<f32>::new();
/// let tape = Tape::training(&cpu, 0);
/// let x = tape.leaf(Tensor::from_slice(&cpu, 1, 1, &[4.0])?);
/// let y = tape.apply(Times(0.5), &[x])?;
/// assert_eq!(tape.value(y).item(&cpu)?, 2.0);
/// assert_eq!(tape.backward(y)?.of(x).unwrap().item(&cpu)?, 0.5);
/// # Ok(())
/// # }
/// ```
pub trait Op<D: Device> {
    /// What `backward` needs besides inputs and output; `()` if nothing.
    type Saved;

    /// Its name, for messages.
    fn name(&self) -> &'static str;

    /// The output for the inputs, and what [`backward`](Op::backward) needs.
    ///
    /// Errors: inputs whose shapes do not fit; the operation says which do.
    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, Self::Saved)>;

    /// The gradient for each input, in their order; `None` where `wanted` is false or the gradient is zero.
    ///
    /// A gradient has as many columns as its input; it may have fewer rows: the rest is zero.
    ///
    /// Errors: those of the device.
    fn backward(
        &self,
        device: &D,
        saved: Self::Saved,
        step: BackwardStep<'_, D>,
    ) -> Result<Vec<Option<Tensor<D>>>>;
}

/// What an operation is given in the backward pass.
pub struct BackwardStep<'a, D: Device> {
    /// The inputs of the forward pass.
    pub inputs: &'a [&'a Tensor<D>],
    /// The output of the forward pass.
    pub output: &'a Tensor<D>,
    /// The gradient of the output, of the same shape. `backward` may write its own result over it.
    pub gradient: Tensor<D>,
    /// Which inputs' gradients are wanted.
    pub wanted: &'a [bool],
    /// Takes row-sparse gradients, each with the position of its input. The result then has `None` for this input.
    pub rows: &'a mut Vec<(usize, RowGradient<D>)>,
}

/// An operation that has run, with what its backward pass needs.
///
/// Whatever is the same for all operations is done outside of it, once: what is generic in the operation is compiled
/// for each of some fifty.
pub(super) trait Recorded<D: Device> {
    /// As [`Op::name`].
    fn name(&self) -> &'static str;

    /// As [`Op::backward`].
    fn backward(self: Box<Self>, device: &D, step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>>;
}

pub(super) struct Record<O, S> {
    pub op: O,
    pub saved: S,
}

impl<D: Device, O: Op<D>> Recorded<D> for Record<O, O::Saved> {
    fn name(&self) -> &'static str {
        self.op.name()
    }

    fn backward(self: Box<Self>, device: &D, step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        self.op.backward(device, self.saved, step)
    }
}

/// An operation's backward pass, whose gradients then fit the inputs.
pub(super) fn checked_backward<D: Device>(
    op: Box<dyn Recorded<D>>,
    device: &D,
    step: BackwardStep<'_, D>,
) -> Result<Vec<Option<Tensor<D>>>> {
    let name = op.name();
    let BackwardStep { inputs, output, gradient, wanted, rows } = step;
    let step = BackwardStep { inputs, output, gradient, wanted, rows: &mut *rows };
    let gradients = op.backward(device, step)?;
    if gradients.len() != inputs.len() {
        let expected = format!("{}, one for each input of {name}", inputs.len());
        return Err(Error::invalid("number of gradients", gradients.len(), expected));
    }
    for (input, gradient) in inputs.iter().zip(&gradients) {
        if let Some(gradient) = gradient {
            let fits = gradient.cols() == input.cols() && gradient.rows() <= input.rows();
            check_fits(name, fits, gradient.shape(), input.shape())?;
        }
    }
    for (position, rows) in rows.iter() {
        let input = inputs.get(*position).ok_or_else(|| {
            let expected = format!("below {}, the number of inputs of {name}", inputs.len());
            Error::invalid("position of a row-sparse gradient", position, expected)
        })?;
        check_fits(name, rows.shape() == input.shape(), rows.shape(), input.shape())?;
    }
    Ok(gradients)
}

fn check_fits(op: &'static str, fits: bool, gradient: [usize; 2], input: [usize; 2]) -> Result<()> {
    if fits {
        return Ok(());
    }
    Err(Error::ShapeMismatch {
        op,
        left_name: "the gradient returned",
        left: gradient,
        right_name: "its input",
        right: input,
    })
}

#[cfg(test)]
mod tests {
    use super::super::{ParameterId, Tape, Var};
    use super::*;
    use crate::device::Cpu;

    /// `out = x`, with a backward pass that returns what it is told to.
    struct Wrong {
        gradients: Vec<[usize; 2]>,
        rows: Option<(usize, [usize; 2])>,
    }

    impl<D: Device> Op<D> for Wrong {
        type Saved = ();

        fn name(&self) -> &'static str {
            "wrong"
        }

        fn forward(&self, _: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
            Ok((inputs[0].clone(), ()))
        }

        fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
            if let Some((position, [n_rows, cols])) = self.rows {
                let values = Tensor::zeros(device, 1, cols)?;
                step.rows.push((position, RowGradient::new(device, n_rows, &[0], values)?));
            }
            self.gradients.iter().map(|&[rows, cols]| Ok(Some(Tensor::zeros(device, rows, cols)?))).collect()
        }
    }

    fn backward(op: Wrong) -> Result<()> {
        let cpu = Cpu::<f64>::new();
        let tape = Tape::training(&cpu, 0);
        let x = tape.leaf(Tensor::zeros(&cpu, 2, 3)?);
        let out = tape.apply(op, &[x])?;
        let loss = tape.dot(out, Tensor::zeros(&cpu, 2, 3)?)?;
        tape.backward(loss).map(|_| ())
    }

    #[test]
    fn gradients_that_do_not_fit_are_errors_that_name_the_operation() {
        for shape in [[2, 3], [1, 3], [0, 3]] {
            backward(Wrong { gradients: vec![shape], rows: None }).unwrap();
        }
        for shape in [[2, 2], [2, 4], [3, 3], [3, 2]] {
            let error = backward(Wrong { gradients: vec![shape], rows: None }).unwrap_err();
            assert!(matches!(error, Error::ShapeMismatch { op: "wrong", left, .. } if left == shape));
        }
        for n in [0, 2] {
            let error = backward(Wrong { gradients: vec![[2, 3]; n], rows: None }).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("number of gradients is {n}: expected 1, one for each input of wrong")
            );
        }
        for rows in [(1, [2, 3]), (0, [3, 3]), (0, [2, 2])] {
            let error = backward(Wrong { gradients: vec![[2, 3]], rows: Some(rows) }).unwrap_err();
            assert!(error.to_string().contains("wrong"), "{error}");
        }
    }

    #[test]
    fn a_value_of_another_tape_is_an_error() {
        let cpu = Cpu::<f64>::new();
        let (tape, other) = (Tape::training(&cpu, 0), Tape::training(&cpu, 0));
        let leaf = |tape: &Tape<_>| -> Var { tape.leaf(Tensor::zeros(&cpu, 1, 1).unwrap()) };
        let (own, foreign) = (leaf(&tape), leaf(&other));
        assert!(tape.apply(Wrong { gradients: vec![], rows: None }, &[foreign]).is_err());
        assert!(tape.add(own, foreign).is_err());
        assert!(tape.prefix(foreign, 1).is_err());
        let value = tape.value(own);
        let running = [0, 1].map(|i| (ParameterId::new(i), &value));
        assert!(tape.batch_norm(foreign, own, own, running).is_err());
        let gradients = tape.backward(own).unwrap();
        assert!(gradients.of(own).is_some() && gradients.get(foreign).is_none());
        assert!(other.backward(own).is_err());
    }
}
