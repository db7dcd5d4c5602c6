//! Batch norm on the CPU: passes over rows; bound by memory.

use super::kernels::kernels;
use super::parallel::{for_rows, sum_over_rows};
use super::vectors::vectorized;
use crate::device::batch_norm::check_vectors;
use crate::device::{
    BatchNorm, Cpu, Elementwise, Matrix, MatrixMut, Scalar, Write, check_matrix, check_matrix_mut,
    check_same_shape,
};
use crate::error::{Result, check_length};

kernels! {
    impl BatchNorm by BatchNormKernels {
        fn moments(x: Matrix<'_, Cpu<S>>, mean: &mut [S], squares: &mut [S]) -> Result<()>;
        fn sum_squared_deviation(x: Matrix<'_, Cpu<S>>, center: &[S], out: &mut [S]) -> Result<()>;
        fn inverse_square_root(x: &[S], factor: f64, epsilon: f64, out: &mut [S]) -> Result<()>;
        fn normalize(
            x: Matrix<'_, Cpu<S>>,
            mean: &[S],
            inverse_std: &[S],
            gain: &[S],
            bias: &[S],
            out: MatrixMut<'_, Cpu<S>>,
        ) -> Result<()>;
        fn normalize_backward_parameters(
            x: Matrix<'_, Cpu<S>>,
            mean: &[S],
            inverse_std: &[S],
            dout: Matrix<'_, Cpu<S>>,
            dgain: &mut [S],
            dbias: &mut [S],
        ) -> Result<()>;
        fn normalize_backward(
            x: Matrix<'_, Cpu<S>>,
            mean: &[S],
            inverse_std: &[S],
            gain: &[S],
            dout: Matrix<'_, Cpu<S>>,
            dgain: &[S],
            dbias: &[S],
            n_total: usize,
            dx: MatrixMut<'_, Cpu<S>>,
        ) -> Result<()>;
    }
}

/// In two passes: one was not tried.
fn moments<S: Scalar>(
    device: &Cpu<S>,
    x: Matrix<'_, Cpu<S>>,
    mean: &mut [S],
    squares: &mut [S],
) -> Result<()> {
    check_matrix(&x)?;
    check_vectors(x.cols, [("mean", mean.len()), ("squares", squares.len())])?;
    device.sum_rows(x, mean, Write::Assign)?;
    let share = if x.rows == 0 { S::zero() } else { S::from_f64(1.0 / x.rows as f64) };
    mean.iter_mut().for_each(|mean| *mean *= share);
    sum_squared_deviation(device, x, mean, squares)
}

fn sum_squared_deviation<S: Scalar>(
    _device: &Cpu<S>,
    x: Matrix<'_, Cpu<S>>,
    center: &[S],
    out: &mut [S],
) -> Result<()> {
    check_matrix(&x)?;
    check_vectors(x.cols, [("center", center.len()), ("out", out.len())])?;
    sum_over_rows(x.rows, x.cols, out, Write::Assign, |rows, sum| {
        vectorized!(
            S,
            #[inline(always)]
            |_| {
                for x in x.data[rows.start * x.cols..rows.end * x.cols].chunks_exact(x.cols) {
                    for ((sum, &x), &center) in sum.iter_mut().zip(x).zip(center) {
                        *sum += (x - center) * (x - center);
                    }
                }
            },
        );
    });
    Ok(())
}

fn inverse_square_root<S: Scalar>(
    _device: &Cpu<S>,
    x: &[S],
    factor: f64,
    epsilon: f64,
    out: &mut [S],
) -> Result<()> {
    check_length("out", out.len(), x.len())?;
    let [factor, epsilon] = [factor, epsilon].map(S::from_f64);
    for (out, &x) in out.iter_mut().zip(x) {
        *out = S::one() / (factor * x + epsilon).sqrt();
    }
    Ok(())
}

fn normalize<S: Scalar>(
    _device: &Cpu<S>,
    x: Matrix<'_, Cpu<S>>,
    mean: &[S],
    inverse_std: &[S],
    gain: &[S],
    bias: &[S],
    out: MatrixMut<'_, Cpu<S>>,
) -> Result<()> {
    check_matrix(&x)?;
    check_matrix_mut(&out)?;
    check_same_shape("normalize", "x", x.shape(), "out", out.shape())?;
    let cols = x.cols;
    check_vectors(cols, [("mean", mean.len()), ("inverse_std", inverse_std.len())])?;
    check_vectors(cols, [("gain", gain.len()), ("bias", bias.len())])?;
    for_rows(out.data, cols, |rows, out| {
        let x = x.data[rows.start * cols..rows.end * cols].chunks_exact(cols);
        vectorized!(
            S,
            #[inline(always)]
            |_| {
                for (out, x) in out.chunks_exact_mut(cols).zip(x) {
                    // Slices of one known length: no bounds are checked inside the loop.
                    let (out, x) = (&mut out[..cols], &x[..cols]);
                    let (mean, inverse_std) = (&mean[..cols], &inverse_std[..cols]);
                    let (gain, bias) = (&gain[..cols], &bias[..cols]);
                    for j in 0..cols {
                        out[j] = (x[j] - mean[j]) * inverse_std[j] * gain[j] + bias[j];
                    }
                }
            },
        );
    });
    Ok(())
}

fn normalize_backward_parameters<S: Scalar>(
    _device: &Cpu<S>,
    x: Matrix<'_, Cpu<S>>,
    mean: &[S],
    inverse_std: &[S],
    dout: Matrix<'_, Cpu<S>>,
    dgain: &mut [S],
    dbias: &mut [S],
) -> Result<()> {
    check_matrix(&x)?;
    check_matrix(&dout)?;
    check_same_shape("normalize_backward_parameters", "x", x.shape(), "dout", dout.shape())?;
    let cols = x.cols;
    check_vectors(cols, [("mean", mean.len()), ("inverse_std", inverse_std.len())])?;
    check_vectors(cols, [("dgain", dgain.len()), ("dbias", dbias.len())])?;
    let mut sums = vec![S::zero(); 2 * cols];
    sum_over_rows(x.rows, 2 * cols, &mut sums, Write::Assign, |rows, sums| {
        let elements = rows.start * cols..rows.end * cols;
        let rows = x.data[elements.clone()].chunks_exact(cols).zip(dout.data[elements].chunks_exact(cols));
        let (dgain, dbias) = sums.split_at_mut(cols);
        vectorized!(
            S,
            #[inline(always)]
            |_| {
                for (x, dout) in rows {
                    let (x, dout) = (&x[..cols], &dout[..cols]);
                    let (mean, inverse_std) = (&mean[..cols], &inverse_std[..cols]);
                    let (dgain, dbias) = (&mut dgain[..cols], &mut dbias[..cols]);
                    for j in 0..cols {
                        dgain[j] += dout[j] * ((x[j] - mean[j]) * inverse_std[j]);
                        dbias[j] += dout[j];
                    }
                }
            },
        );
    });
    dgain.copy_from_slice(&sums[..cols]);
    dbias.copy_from_slice(&sums[cols..]);
    Ok(())
}

#[allow(clippy::too_many_arguments)]
fn normalize_backward<S: Scalar>(
    _device: &Cpu<S>,
    x: Matrix<'_, Cpu<S>>,
    mean: &[S],
    inverse_std: &[S],
    gain: &[S],
    dout: Matrix<'_, Cpu<S>>,
    dgain: &[S],
    dbias: &[S],
    n_total: usize,
    dx: MatrixMut<'_, Cpu<S>>,
) -> Result<()> {
    check_matrix(&x)?;
    check_matrix(&dout)?;
    check_matrix_mut(&dx)?;
    check_same_shape("normalize_backward", "x", x.shape(), "dout", dout.shape())?;
    check_same_shape("normalize_backward", "x", x.shape(), "dx", dx.shape())?;
    let cols = x.cols;
    check_vectors(cols, [("mean", mean.len()), ("inverse_std", inverse_std.len())])?;
    check_vectors(cols, [("gain", gain.len()), ("dgain", dgain.len()), ("dbias", dbias.len())])?;
    let share = if n_total == 0 { S::zero() } else { S::from_f64(1.0 / n_total as f64) };
    for_rows(dx.data, cols, |rows, dx| {
        let elements = rows.start * cols..rows.end * cols;
        let rows = x.data[elements.clone()].chunks_exact(cols).zip(dout.data[elements].chunks_exact(cols));
        vectorized!(
            S,
            #[inline(always)]
            |_| {
                for (dx, (x, dout)) in dx.chunks_exact_mut(cols).zip(rows) {
                    let (dx, x, dout) = (&mut dx[..cols], &x[..cols], &dout[..cols]);
                    let (mean, inverse_std, gain) = (&mean[..cols], &inverse_std[..cols], &gain[..cols]);
                    let (dgain, dbias) = (&dgain[..cols], &dbias[..cols]);
                    for j in 0..cols {
                        let correction = if n_total == 0 {
                            S::zero()
                        } else {
                            (dbias[j] + (x[j] - mean[j]) * inverse_std[j] * dgain[j]) * share
                        };
                        dx[j] = gain[j] * inverse_std[j] * (dout[j] - correction);
                    }
                }
            },
        );
    });
    Ok(())
}
