//! Kernel family *optimizer*: one fused pass over a parameter, its gradient and its state.

use crate::device::{Matrix, MatrixMut, Storage};
use crate::error::Result;

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

/// Fused optimiser steps. Unless something else is said, all views have the parameter's length.
pub trait Optimizer: Storage {
    /// With `g = grad + weight_decay · parameter` (or `grad`, if decoupled, and then
    /// `parameter *= 1 − lr · weight_decay` first):
    /// `m = β₁ m + (1 − β₁) g`, `v = β₂ v + (1 − β₂) g²`,
    /// `parameter −= lr / (1 − β₁^step) · m / (√(v / (1 − β₂^step)) + ε)`.
    fn adam(
        &self,
        step: AdamStep,
        grad: Self::View<'_, Self::Scalar>,
        first_moment: Self::ViewMut<'_, Self::Scalar>,
        second_moment: Self::ViewMut<'_, Self::Scalar>,
        parameter: Self::ViewMut<'_, Self::Scalar>,
    ) -> Result<()>;

    /// [`adam`](Optimizer::adam) on some rows of a `[rows, dim]` parameter; the others stay as they are, and so do their
    /// moments (*lazy* Adam): they cost nothing. The bias is corrected by the number of steps in all.
    ///
    /// `index: [n]`, strictly ascending, below `rows`; `grad: [n, dim]`. For a row that is in `index` at every step the
    /// result is that of `adam`, to the bit.
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
    fn sgd(
        &self,
        step: SgdStep,
        grad: Self::View<'_, Self::Scalar>,
        velocity: Self::ViewMut<'_, Self::Scalar>,
        parameter: Self::ViewMut<'_, Self::Scalar>,
    ) -> Result<()>;
}
