//! Kernel family *elementwise*: what touches each element once.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::device::{Matrix, MatrixMut, Storage, Write};
use crate::error::{Error, Result};

/// A nonlinearity whose derivative follows from its output.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activation {
    /// `max(x, 0)`; derivative 0 at 0.
    Relu,
    /// `x` if `x > 0`, else `slope · x`; `slope > 0`.
    LeakyRelu {
        /// Slope on the negative side.
        slope: f64,
    },
    /// `x` if `x > 0`, else `exp(x) − 1`.
    Elu,
}

/// A function of one number, with the results of IEEE arithmetic at and beyond the ends of its domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// `√x`; NaN below 0.
    SquareRoot,
    /// `exp(x)`; infinite where it overflows.
    Exponential,
    /// `ln(x)`; `−∞` at 0 and NaN below.
    Logarithm,
}

/// Maps over elements, rows and columns.
pub trait Elementwise: Storage {
    /// `out[i] (= | +=) alpha · x[i]`; same length.
    ///
    /// Errors: `x` and `out` differ in length, or the device fails.
    fn scale(
        &self,
        alpha: f64,
        x: Self::View<'_, Self::Scalar>,
        out: Self::ViewMut<'_, Self::Scalar>,
        write: Write,
    ) -> Result<()>;

    /// `out[i] (= | +=) x[i] · y[i]`; same length.
    ///
    /// Errors: `x`, `y` and `out` differ in length, or the device fails.
    fn multiply(
        &self,
        x: Self::View<'_, Self::Scalar>,
        y: Self::View<'_, Self::Scalar>,
        out: Self::ViewMut<'_, Self::Scalar>,
        write: Write,
    ) -> Result<()>;

    /// `out[i] (= | +=) alpha · x[i] / y[i]`; same length. Division by 0 gives what IEEE arithmetic says: an infinity,
    /// or NaN for `0 / 0`.
    ///
    /// Errors: `x`, `y` and `out` differ in length, or the device fails.
    fn divide(
        &self,
        alpha: f64,
        x: Self::View<'_, Self::Scalar>,
        y: Self::View<'_, Self::Scalar>,
        out: Self::ViewMut<'_, Self::Scalar>,
        write: Write,
    ) -> Result<()>;

    /// `out[i] = f(x[i])`; same length.
    ///
    /// Errors: `x` and `out` differ in length, or the device fails.
    fn map(
        &self,
        function: Function,
        x: Self::View<'_, Self::Scalar>,
        out: Self::ViewMut<'_, Self::Scalar>,
    ) -> Result<()>;

    /// `out[i, j] = f(out[i, j] + bias[j])` in place; `bias: [out.cols]`, absent: 0; `activation` absent: identity.
    ///
    /// Errors: `bias` does not have `out.cols` elements, or the device fails.
    fn add_bias_activate(
        &self,
        bias: Option<Self::View<'_, Self::Scalar>>,
        activation: Option<Activation>,
        out: MatrixMut<'_, Self>,
    ) -> Result<()>;

    /// `out[j] (= | +=) Σ_i x[i, j]`; `out: [x.cols]`. The gradient of a bias.
    ///
    /// Errors: `out` does not have `x.cols` elements, or the device fails.
    fn sum_rows(&self, x: Matrix<'_, Self>, out: Self::ViewMut<'_, Self::Scalar>, write: Write)
    -> Result<()>;

    /// `out[0] = Σ_i x[i] · y[i]`, in a fixed order, accumulated in f64; `out: [1]`. Without `y`: the sum of `x`.
    ///
    /// Errors: `x` and `y` differ in length, `out` does not have one element, or the device fails.
    fn dot(
        &self,
        x: Self::View<'_, Self::Scalar>,
        y: Option<Self::View<'_, Self::Scalar>>,
        out: Self::ViewMut<'_, Self::Scalar>,
    ) -> Result<()>;

    /// `out[i, j] (= | +=) factor[i] · x[i, j]`; `factor: [x.rows]`, same shapes.
    ///
    /// Errors: `x` and `out` differ in shape, `factor` does not have `x.rows` elements, or the device fails.
    fn scale_rows(
        &self,
        factor: Self::View<'_, Self::Scalar>,
        x: Matrix<'_, Self>,
        out: MatrixMut<'_, Self>,
        write: Write,
    ) -> Result<()>;

    /// `out[i, out_column + j] (= | +=) x[i, x_column + j]` for `j < n_columns`: concatenates and splits columns.
    ///
    /// Errors: `x` and `out` differ in their numbers of rows, one of them does not have all of these columns, or the
    /// device fails.
    #[allow(clippy::too_many_arguments)]
    fn copy_columns(
        &self,
        x: Matrix<'_, Self>,
        x_column: usize,
        out: MatrixMut<'_, Self>,
        out_column: usize,
        n_columns: usize,
        write: Write,
    ) -> Result<()>;

    /// `dx[i] = f'(x[i]) · dx[i]` in place, from the *output* `y = f(x)`; same length.
    ///
    /// Errors: `y` and `dx` differ in length, or the device fails.
    fn activate_backward(
        &self,
        activation: Activation,
        y: Self::View<'_, Self::Scalar>,
        dx: Self::ViewMut<'_, Self::Scalar>,
    ) -> Result<()>;

    /// Inverted dropout: `out[i, j] = x[i, j] / (1 − p)` if the element is kept, else 0; same shapes.
    ///
    /// With `r = rows[i]` (or `i` without `rows`), the element is kept iff word `j mod 4` of
    /// `Philox(counter = [r, j / 4, low(stream), high(stream)], key = [low(seed), high(seed)])` is at least
    /// `⌊p · 2^32⌋`. With the vertices' ids as `rows` the mask does not depend on where in a batch, or on which
    /// processing element, a vertex stands. The backward pass calls this again on the gradient. `0 ≤ p < 1`;
    /// `rows: [x.rows]`.
    ///
    /// Errors: `x` and `out` differ in shape, `rows` does not have `x.rows` elements, `p` is not at least 0 and below
    /// 1, or the device fails.
    fn dropout(
        &self,
        p: f64,
        seed: u64,
        stream: u64,
        rows: Option<Self::View<'_, u32>>,
        x: Matrix<'_, Self>,
        out: MatrixMut<'_, Self>,
    ) -> Result<()>;
}

/// Columns `column..column + n_columns`; an error if a matrix of `cols` columns does not have all of them.
pub(crate) fn check_columns(
    argument: &'static str,
    column: usize,
    n_columns: usize,
    cols: usize,
) -> Result<Range<usize>> {
    match column.checked_add(n_columns) {
        Some(end) if end <= cols => Ok(column..end),
        _ => Err(Error::invalid(argument, column, format!("{n_columns} columns from it within {cols}"))),
    }
}

/// `Ok` if `p` can be a dropout's probability.
pub(crate) fn check_probability(argument: &'static str, p: f64) -> Result<()> {
    if (0.0..1.0).contains(&p) {
        return Ok(());
    }
    Err(Error::invalid(argument, p, "a probability: at least 0 and below 1"))
}
