//! Kernel family *batch norm*: statistics over rows, and the normalisation by them.
//!
//! Statistics and normalisation are separate kernels, so that cooperating processing elements can add up their
//! statistics in between.

use crate::device::{Matrix, MatrixMut, Storage};
use crate::error::{Result, check_length};

/// Batch normalisation over rows, per column.
pub trait BatchNorm: Storage {
    /// `mean[j] = Σ_i x[i, j] / x.rows` and `squares[j] = Σ_i (x[i, j] − mean[j])²`; both `[x.cols]`, and 0 without
    /// rows.
    ///
    /// However far the mean is from 0, `squares` is at least as close to the exact sum over the rows of `x` as what
    /// [`sum_squared_deviation`](BatchNorm::sum_squared_deviation) gives for the mean as it is rounded.
    ///
    /// Errors: `mean` or `squares` does not have `x.cols` elements, or the device fails.
    fn moments(
        &self,
        x: Matrix<'_, Self>,
        mean: Self::ViewMut<'_, Self::Scalar>,
        squares: Self::ViewMut<'_, Self::Scalar>,
    ) -> Result<()>;

    /// `out[j] = Σ_i (x[i, j] − center[j])²`; `center, out: [x.cols]`.
    ///
    /// Errors: `center` or `out` does not have `x.cols` elements, or the device fails.
    fn sum_squared_deviation(
        &self,
        x: Matrix<'_, Self>,
        center: Self::View<'_, Self::Scalar>,
        out: Self::ViewMut<'_, Self::Scalar>,
    ) -> Result<()>;

    /// `out[j] = 1 / √(factor · x[j] + epsilon)`; same length.
    ///
    /// Errors: `x` and `out` differ in length, or the device fails.
    fn inverse_square_root(
        &self,
        x: Self::View<'_, Self::Scalar>,
        factor: f64,
        epsilon: f64,
        out: Self::ViewMut<'_, Self::Scalar>,
    ) -> Result<()>;

    /// `out[i, j] = (x[i, j] − mean[j]) · inverse_std[j] · gain[j] + bias[j]`; vectors `[x.cols]`.
    ///
    /// Errors: `x` and `out` differ in shape, a vector does not have `x.cols` elements, or the device fails.
    #[allow(clippy::too_many_arguments)]
    fn normalize(
        &self,
        x: Matrix<'_, Self>,
        mean: Self::View<'_, Self::Scalar>,
        inverse_std: Self::View<'_, Self::Scalar>,
        gain: Self::View<'_, Self::Scalar>,
        bias: Self::View<'_, Self::Scalar>,
        out: MatrixMut<'_, Self>,
    ) -> Result<()>;

    /// With `x̂ = (x − mean) · inverse_std`: `dgain[j] = Σ_i dout[i, j] · x̂[i, j]` and `dbias[j] = Σ_i dout[i, j]`;
    /// vectors `[x.cols]`.
    ///
    /// Errors: `x` and `dout` differ in shape, a vector does not have `x.cols` elements, or the device fails.
    fn normalize_backward_parameters(
        &self,
        x: Matrix<'_, Self>,
        mean: Self::View<'_, Self::Scalar>,
        inverse_std: Self::View<'_, Self::Scalar>,
        dout: Matrix<'_, Self>,
        dgain: Self::ViewMut<'_, Self::Scalar>,
        dbias: Self::ViewMut<'_, Self::Scalar>,
    ) -> Result<()>;

    /// Through the statistics of `n_total` rows, whose sums `dgain` and `dbias` are:
    /// `dx[i, j] = gain[j] · inverse_std[j] · (dout[i, j] − dbias[j] / n_total − x̂[i, j] · dgain[j] / n_total)`.
    ///
    /// With `n_total = 0` the statistics were constants, and the two corrections are left out.
    ///
    /// Errors: `x`, `dout` and `dx` differ in shape, a vector does not have `x.cols` elements, or the device fails.
    #[allow(clippy::too_many_arguments)]
    fn normalize_backward(
        &self,
        x: Matrix<'_, Self>,
        mean: Self::View<'_, Self::Scalar>,
        inverse_std: Self::View<'_, Self::Scalar>,
        gain: Self::View<'_, Self::Scalar>,
        dout: Matrix<'_, Self>,
        dgain: Self::View<'_, Self::Scalar>,
        dbias: Self::View<'_, Self::Scalar>,
        n_total: usize,
        dx: MatrixMut<'_, Self>,
    ) -> Result<()>;
}

/// `Ok` if every vector has an element per column; given by names and lengths.
pub(crate) fn check_vectors<const N: usize>(cols: usize, vectors: [(&'static str, usize); N]) -> Result<()> {
    vectors.into_iter().try_for_each(|(name, len)| check_length(name, len, cols))
}
