//! Kernel family *optimizer*: one fused pass over a parameter, its gradient and its state.

use crate::device::{Matrix, MatrixMut, Scalar, Storage, check_matrix, check_matrix_mut};
use crate::error::{Error, Result, check_length};

/// The constants of one Adam step (Kingma & Ba 2015; decoupled decay: Loshchilov & Hutter 2019).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamStep {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Weight decay; with `decoupled` off it is added to the gradient (L2).
    pub weight_decay: f64,
    /// Whether the decay shrinks the parameter directly (AdamW).
    pub decoupled: bool,
    /// Number of this step, from 1.
    pub step: u64,
}

/// The constants of one SGD step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SgdStep {
    /// Learning rate.
    pub lr: f64,
    /// Momentum; 0 leaves the velocity unused.
    pub momentum: f64,
    /// Weight decay, added to the gradient (L2).
    pub weight_decay: f64,
}

/// A parameter and what changes it by an [`adam`](Optimizer::adam) step; all views have the same length.
pub struct AdamParameter<'a, D: Storage> {
    /// Its constants.
    pub step: AdamStep,
    /// The gradient.
    pub grad: D::View<'a, D::Scalar>,
    /// The first moment.
    pub first_moment: D::ViewMut<'a, D::Scalar>,
    /// The second moment.
    pub second_moment: D::ViewMut<'a, D::Scalar>,
    /// The parameter.
    pub parameter: D::ViewMut<'a, D::Scalar>,
}

/// A parameter and what changes it by an [`sgd`](Optimizer::sgd) step; all views have the same length.
pub struct SgdParameter<'a, D: Storage> {
    /// The gradient.
    pub grad: D::View<'a, D::Scalar>,
    /// The velocity.
    pub velocity: D::ViewMut<'a, D::Scalar>,
    /// The parameter.
    pub parameter: D::ViewMut<'a, D::Scalar>,
}

/// Fused optimiser steps. Unless stated otherwise, all views have the parameter's length.
pub trait Optimizer: Storage {
    /// With `g = grad + weight_decay · parameter` (or `grad`, if decoupled, and then
    /// `parameter *= 1 − lr · weight_decay` first):
    /// `m = β₁ m + (1 − β₁) g`, `v = β₂ v + (1 − β₂) g²`,
    /// `parameter −= lr / (1 − β₁^step) · m / (√(v / (1 − β₂^step)) + ε)`.
    ///
    /// Errors: the views differ in length, `step.step` is 0, or the device fails.
    fn adam(
        &self,
        step: AdamStep,
        grad: Self::View<'_, Self::Scalar>,
        first_moment: Self::ViewMut<'_, Self::Scalar>,
        second_moment: Self::ViewMut<'_, Self::Scalar>,
        parameter: Self::ViewMut<'_, Self::Scalar>,
    ) -> Result<()>;

    /// [`adam`](Optimizer::adam) on some rows of a `[rows, dim]` parameter; the others and their moments stay as they
    /// are and cost nothing (*lazy* Adam). The bias is corrected by the total number of steps.
    ///
    /// `index: [n]`, strictly ascending, below `rows`; `grad: [n, dim]`. For a row that is in `index` at every step the
    /// result is that of `adam`, to the bit.
    ///
    /// Errors: `index` does not have one element per row of `grad`, `grad` and `parameter` differ in columns, a moment
    /// does not have the parameter's size, `step.step` is 0, an index is not below `rows`
    /// ([`IndexOutOfRange`](crate::Error::IndexOutOfRange)), the indices do not ascend strictly, or the device fails. A
    /// GPU skips rows whose index is wrong; on the CPU nothing is written.
    fn adam_rows(
        &self,
        step: AdamStep,
        index: Self::View<'_, u32>,
        grad: Matrix<'_, Self>,
        first_moment: Self::ViewMut<'_, Self::Scalar>,
        second_moment: Self::ViewMut<'_, Self::Scalar>,
        parameter: MatrixMut<'_, Self>,
    ) -> Result<()>;

    /// `velocity = momentum · velocity + grad + weight_decay · parameter`, `parameter −= lr · velocity`.
    ///
    /// Errors: the views differ in length, or the device fails.
    fn sgd(
        &self,
        step: SgdStep,
        grad: Self::View<'_, Self::Scalar>,
        velocity: Self::ViewMut<'_, Self::Scalar>,
        parameter: Self::ViewMut<'_, Self::Scalar>,
    ) -> Result<()>;

    /// [`adam`](Optimizer::adam) on each parameter, with the same bits; a GPU has a few launches for all of them.
    ///
    /// Errors: those of [`adam`](Optimizer::adam); some parameters may have changed by then.
    fn adam_all(&self, parameters: Vec<AdamParameter<'_, Self>>) -> Result<()> {
        parameters
            .into_iter()
            .try_for_each(|of| self.adam(of.step, of.grad, of.first_moment, of.second_moment, of.parameter))
    }

    /// [`sgd`](Optimizer::sgd) on each parameter, as [`adam_all`](Optimizer::adam_all).
    ///
    /// Errors: those of [`sgd`](Optimizer::sgd); some parameters may have changed by then.
    fn sgd_all(&self, step: SgdStep, parameters: Vec<SgdParameter<'_, Self>>) -> Result<()> {
        parameters.into_iter().try_for_each(|of| self.sgd(step, of.grad, of.velocity, of.parameter))
    }
}

/// The numbers that an Adam step uses: computed in f64 and rounded once.
pub(crate) struct AdamConstants<S> {
    pub decay: S,
    pub shrink: S,
    pub epsilon: S,
    pub beta1: S,
    pub rest1: S,
    pub beta2: S,
    pub rest2: S,
    pub rate: S,
    pub correction2: S,
}

impl<S: Scalar> AdamConstants<S> {
    pub(crate) fn new(step: AdamStep) -> Result<Self> {
        if step.step == 0 {
            return Err(Error::invalid("step", 0, "a number from 1: it corrects the moments' bias"));
        }
        let bias_correction = |beta: f64| 1.0 - beta.powf(step.step as f64);
        let (decay, shrink) =
            if step.decoupled { (0.0, 1.0 - step.lr * step.weight_decay) } else { (step.weight_decay, 1.0) };
        Ok(AdamConstants {
            decay: S::from_f64(decay),
            shrink: S::from_f64(shrink),
            epsilon: S::from_f64(step.epsilon),
            beta1: S::from_f64(step.beta1),
            rest1: S::from_f64(1.0 - step.beta1),
            beta2: S::from_f64(step.beta2),
            rest2: S::from_f64(1.0 - step.beta2),
            rate: S::from_f64(step.lr / bias_correction(step.beta1)),
            correction2: S::from_f64(1.0 / bias_correction(step.beta2)),
        })
    }
}

/// `Ok` if the shapes are those of [`Optimizer::adam_rows`].
pub(crate) fn check_adam_rows<D: Storage>(
    index: &D::View<'_, u32>,
    grad: &Matrix<'_, D>,
    first_moment: &D::ViewMut<'_, D::Scalar>,
    second_moment: &D::ViewMut<'_, D::Scalar>,
    parameter: &MatrixMut<'_, D>,
) -> Result<()> {
    check_matrix(grad)?;
    check_matrix_mut(parameter)?;
    check_length("index", D::view_len(index), grad.rows)?;
    check_length("columns of grad", grad.cols, parameter.cols)?;
    check_length("first_moment", D::view_mut_len(first_moment), parameter.rows * parameter.cols)?;
    check_length("second_moment", D::view_mut_len(second_moment), parameter.rows * parameter.cols)
}
