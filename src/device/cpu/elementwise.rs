//! Elementwise kernels on the CPU: each element is read and written once; bound by memory.

use super::kernels::kernels;
use super::parallel::{add_assign, for_elements, for_rows, sum_chunks, sum_over_rows, write_all};
use super::vectors::vectorized;
use crate::device::{
    Activation, Cpu, Elementwise, Function, Matrix, MatrixMut, Scalar, Write, check_columns, check_matrix,
    check_matrix_mut, check_probability, check_same_shape,
};
use crate::error::{Result, check_length};
use crate::rng::philox4x32;

kernels! {
    impl Elementwise by ElementwiseKernels {
        fn scale(alpha: f64, x: &[S], out: &mut [S], write: Write) -> Result<()>;
        fn multiply(x: &[S], y: &[S], out: &mut [S], write: Write) -> Result<()>;
        fn divide(alpha: f64, x: &[S], y: &[S], out: &mut [S], write: Write) -> Result<()>;
        fn map(function: Function, x: &[S], out: &mut [S]) -> Result<()>;
        fn add_bias_activate(
            bias: Option<&[S]>,
            activation: Option<Activation>,
            out: MatrixMut<'_, Cpu<S>>,
        ) -> Result<()>;
        fn sum_rows(x: Matrix<'_, Cpu<S>>, out: &mut [S], write: Write) -> Result<()>;
        fn dot(x: &[S], y: Option<&[S]>, out: &mut [S]) -> Result<()>;
        fn scale_rows(
            factor: &[S],
            x: Matrix<'_, Cpu<S>>,
            out: MatrixMut<'_, Cpu<S>>,
            write: Write,
        ) -> Result<()>;
        fn copy_columns(
            x: Matrix<'_, Cpu<S>>,
            x_column: usize,
            out: MatrixMut<'_, Cpu<S>>,
            out_column: usize,
            n_columns: usize,
            write: Write,
        ) -> Result<()>;
        fn activate_backward(activation: Activation, y: &[S], dx: &mut [S]) -> Result<()>;
        fn dropout(
            p: f64,
            seed: u64,
            stream: u64,
            rows: Option<&[u32]>,
            x: Matrix<'_, Cpu<S>>,
            out: MatrixMut<'_, Cpu<S>>,
        ) -> Result<()>;
    }
}

fn scale<S: Scalar>(_device: &Cpu<S>, alpha: f64, x: &[S], out: &mut [S], write: Write) -> Result<()> {
    check_length("out", out.len(), x.len())?;
    let alpha = S::from_f64(alpha);
    for_elements(out, |range, out| {
        vectorized!(
            S,
            #[inline(always)]
            |_| write_all(out, x[range].iter().map(|&x| alpha * x), write),
        );
    });
    Ok(())
}

fn multiply<S: Scalar>(_device: &Cpu<S>, x: &[S], y: &[S], out: &mut [S], write: Write) -> Result<()> {
    check_length("y", y.len(), x.len())?;
    check_length("out", out.len(), x.len())?;
    for_elements(out, |range, out| {
        vectorized!(
            S,
            #[inline(always)]
            |_| write_all(out, x[range.clone()].iter().zip(&y[range]).map(|(&x, &y)| x * y), write),
        );
    });
    Ok(())
}

fn divide<S: Scalar>(
    _device: &Cpu<S>,
    alpha: f64,
    x: &[S],
    y: &[S],
    out: &mut [S],
    write: Write,
) -> Result<()> {
    check_length("y", y.len(), x.len())?;
    check_length("out", out.len(), x.len())?;
    let alpha = S::from_f64(alpha);
    for_elements(out, |range, out| {
        vectorized!(
            S,
            #[inline(always)]
            |_| {
                let quotients = x[range.clone()].iter().zip(&y[range]).map(|(&x, &y)| alpha * x / y);
                write_all(out, quotients, write);
            },
        );
    });
    Ok(())
}

fn map<S: Scalar>(_device: &Cpu<S>, function: Function, x: &[S], out: &mut [S]) -> Result<()> {
    check_length("out", out.len(), x.len())?;
    match function {
        Function::SquareRoot => update(x, out, |x, _| x.sqrt()),
        Function::Exponential => update(x, out, |x, _| x.exp()),
        Function::Logarithm => update(x, out, |x, _| x.ln()),
    }
    Ok(())
}

fn add_bias_activate<S: Scalar>(
    _device: &Cpu<S>,
    bias: Option<&[S]>,
    activation: Option<Activation>,
    out: MatrixMut<'_, Cpu<S>>,
) -> Result<()> {
    check_matrix_mut(&out)?;
    check_length("bias", bias.map_or(out.cols, <[S]>::len), out.cols)?;
    bias_activate_rows(bias, activation, out.data, out.cols);
    Ok(())
}

fn sum_rows<S: Scalar>(_device: &Cpu<S>, x: Matrix<'_, Cpu<S>>, out: &mut [S], write: Write) -> Result<()> {
    check_matrix(&x)?;
    check_length("out", out.len(), x.cols)?;
    sum_over_rows(x.rows, x.cols, out, write, |rows, sum| {
        vectorized!(
            S,
            #[inline(always)]
            |_| {
                let rows = &x.data[rows.start * x.cols..rows.end * x.cols];
                rows.chunks_exact(x.cols).for_each(|row| add_assign(sum, row));
            },
        );
    });
    Ok(())
}

fn dot<S: Scalar>(_device: &Cpu<S>, x: &[S], y: Option<&[S]>, out: &mut [S]) -> Result<()> {
    check_length("y", y.map_or(x.len(), <[S]>::len), x.len())?;
    check_length("out", out.len(), 1)?;
    let sum = sum_chunks(x.len(), DOT_CHUNK, |range| {
        vectorized!(
            S,
            #[inline(always)]
            |_| match y {
                Some(y) => lane_sum(&x[range.clone()], &y[range], |x, y| x.widen_f64() * y.widen_f64()),
                None => lane_sum(&x[range.clone()], &x[range], |x, _| x.widen_f64()),
            },
        )
    });
    out[0] = S::from_f64(sum);
    Ok(())
}

fn scale_rows<S: Scalar>(
    _device: &Cpu<S>,
    factor: &[S],
    x: Matrix<'_, Cpu<S>>,
    out: MatrixMut<'_, Cpu<S>>,
    write: Write,
) -> Result<()> {
    check_matrix(&x)?;
    check_matrix_mut(&out)?;
    check_same_shape("scale_rows", "x", x.shape(), "out", out.shape())?;
    check_length("factor", factor.len(), x.rows)?;
    let cols = x.cols;
    for_rows(out.data, cols, |rows, out| {
        vectorized!(
            S,
            #[inline(always)]
            |_| {
                let x = x.data[rows.start * cols..rows.end * cols].chunks_exact(cols);
                for ((out, x), &factor) in out.chunks_exact_mut(cols).zip(x).zip(&factor[rows]) {
                    write_all(out, x.iter().map(|&x| factor * x), write);
                }
            },
        );
    });
    Ok(())
}

fn copy_columns<S: Scalar>(
    _device: &Cpu<S>,
    x: Matrix<'_, Cpu<S>>,
    x_column: usize,
    out: MatrixMut<'_, Cpu<S>>,
    out_column: usize,
    n_columns: usize,
    write: Write,
) -> Result<()> {
    check_matrix(&x)?;
    check_matrix_mut(&out)?;
    check_length("rows of out", out.rows, x.rows)?;
    let x_columns = check_columns("x_column", x_column, n_columns, x.cols)?;
    let out_columns = check_columns("out_column", out_column, n_columns, out.cols)?;
    if n_columns == 0 {
        return Ok(());
    }
    for_rows(out.data, out.cols, |rows, part| {
        let x = x.data[rows.start * x.cols..rows.end * x.cols].chunks_exact(x.cols);
        vectorized!(
            S,
            #[inline(always)]
            |_| {
                for (out, x) in part.chunks_exact_mut(out.cols).zip(x) {
                    let x = x[x_columns.clone()].iter().copied();
                    write_all(&mut out[out_columns.clone()], x, write);
                }
            },
        );
    });
    Ok(())
}

fn activate_backward<S: Scalar>(
    _device: &Cpu<S>,
    activation: Activation,
    y: &[S],
    dx: &mut [S],
) -> Result<()> {
    check_length("dx", dx.len(), y.len())?;
    let (zero, one) = (S::zero(), S::one());
    match activation {
        Activation::Relu => update(y, dx, |y, dx| if y > zero { dx } else { zero }),
        Activation::LeakyRelu { slope } => {
            let slope = S::from_f64(slope);
            update(y, dx, |y, dx| if y > zero { dx } else { slope * dx });
        }
        // exp(x) is y + 1 on the negative side.
        Activation::Elu => {
            update(y, dx, |y, dx| if y > zero { dx } else { (y + one) * dx });
        }
    }
    Ok(())
}

fn dropout<S: Scalar>(
    _device: &Cpu<S>,
    p: f64,
    seed: u64,
    stream: u64,
    rows: Option<&[u32]>,
    x: Matrix<'_, Cpu<S>>,
    out: MatrixMut<'_, Cpu<S>>,
) -> Result<()> {
    check_matrix(&x)?;
    check_matrix_mut(&out)?;
    check_same_shape("dropout", "x", x.shape(), "out", out.shape())?;
    check_length("rows", rows.map_or(x.rows, <[u32]>::len), x.rows)?;
    check_probability("p", p)?;
    let mask = Mask { threshold: (p * 2f64.powi(32)) as u32, seed, stream };
    let scale = S::from_f64(1.0 / (1.0 - p));
    let cols = x.cols;
    for_rows(out.data, cols, |range, out| {
        vectorized!(
            S,
            #[inline(always)]
            |_| {
                for (i, out) in range.zip(out.chunks_exact_mut(cols)) {
                    let x = &x.data[i * cols..][..cols];
                    let row = rows.map_or(i as u32, |rows| rows[i]);
                    mask.apply(row, scale, x, out);
                }
            },
        );
    });
    Ok(())
}

/// Which elements dropout keeps.
struct Mask {
    threshold: u32,
    seed: u64,
    stream: u64,
}

impl Mask {
    /// `out[j] = scale · x[j]` if element `(row, j)` is kept, else 0.
    #[inline(always)]
    fn apply<S: Scalar>(&self, row: u32, scale: S, x: &[S], out: &mut [S]) {
        // Words are drawn in blocks of counters that fill the widest vectors, unless most would be wasted.
        if x.len() > 16 {
            self.apply_blocks::<16, S>(row, scale, x, out);
        } else {
            self.apply_blocks::<4, S>(row, scale, x, out);
        }
    }

    /// The same in blocks of `4 · N` elements, the last of which may be shorter.
    #[inline(always)]
    fn apply_blocks<const N: usize, S: Scalar>(&self, row: u32, scale: S, x: &[S], out: &mut [S]) {
        let blocks = out.chunks_mut(4 * N).zip(x.chunks(4 * N));
        for (block, (out, x)) in (0..).zip(blocks) {
            let words = self.words::<N>(row, block * N as u32);
            for ((out, &x), &word) in out.iter_mut().zip(x).zip(words.as_flattened()) {
                *out = if word >= self.threshold { x * scale } else { S::zero() };
            }
        }
    }

    /// The words of counters `first..first + N`.
    #[inline(always)]
    fn words<const N: usize>(&self, row: u32, first: u32) -> [[u32; 4]; N] {
        let halves = |x: u64| [x as u32, (x >> 32) as u32];
        let ([low, high], key) = (halves(self.stream), halves(self.seed));
        let mut words = [[0; 4]; N];
        for (words, counter) in words.iter_mut().zip(first..) {
            *words = philox4x32([row, counter, low, high], key);
        }
        words
    }
}

/// Elements of a chunk of a dot product.
const DOT_CHUNK: usize = 1 << 12;

/// `out[i, j] = f(out[i, j] + bias[j])` for `out: [_, cols]`, `bias: [cols]`.
pub(super) fn bias_activate_rows<S: Scalar>(
    bias: Option<&[S]>,
    activation: Option<Activation>,
    out: &mut [S],
    cols: usize,
) {
    let zero = S::zero();
    // Comparisons are written so that a NaN stays one: a diverged run must show.
    match activation {
        None => map_rows(bias, out, cols, |x| x),
        Some(Activation::Relu) => map_rows(bias, out, cols, |x| if x < zero { zero } else { x }),
        Some(Activation::LeakyRelu { slope }) => {
            let slope = S::from_f64(slope);
            map_rows(bias, out, cols, |x| if x > zero { x } else { slope * x });
        }
        Some(Activation::Elu) => map_rows(bias, out, cols, |x| if x > zero { x } else { x.exp_m1() }),
    }
}

/// `out[i, j] = f(out[i, j] + bias[j])`
#[inline(always)]
fn map_rows<S: Scalar>(bias: Option<&[S]>, out: &mut [S], cols: usize, f: impl Fn(S) -> S + Sync) {
    for_rows(out, cols, |_, rows| {
        vectorized!(
            S,
            #[inline(always)]
            |_| match bias {
                None => rows.iter_mut().for_each(|out| *out = f(*out)),
                Some(bias) => {
                    for row in rows.chunks_exact_mut(bias.len()) {
                        row.iter_mut().zip(bias).for_each(|(out, &bias)| *out = f(*out + bias));
                    }
                }
            },
        );
    });
}

/// `out[i] = f(y[i], out[i])`
#[inline(always)]
fn update<S: Scalar>(y: &[S], out: &mut [S], f: impl Fn(S, S) -> S + Sync) {
    for_elements(out, |range, out| {
        vectorized!(
            S,
            #[inline(always)]
            |_| out.iter_mut().zip(&y[range]).for_each(|(out, &y)| *out = f(y, *out)),
        );
    });
}

/// `Σ_i f(x[i], y[i])` in a fixed number of lanes.
#[inline(always)]
fn lane_sum<S: Scalar>(x: &[S], y: &[S], f: impl Fn(S, S) -> f64) -> f64 {
    const LANES: usize = 16;
    let mut sum = [0.0; LANES];
    let ((x, x_tail), (y, y_tail)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
    for (x, y) in x.iter().zip(y) {
        for k in 0..LANES {
            sum[k] += f(x[k], y[k]);
        }
    }
    let tail: f64 = x_tail.iter().zip(y_tail).map(|(&x, &y)| f(x, y)).sum();
    sum.into_iter().sum::<f64>() + tail
}
