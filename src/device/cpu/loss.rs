//! Losses on the CPU. Log-softmax reads a row's logits twice, the second time from the first-level cache; the forward
//! pass writes nothing of the size of the logits.

use std::ops::Range;

use super::kernels::kernels;
use super::parallel::{Even, for_parts, for_rows};
use super::vectors::vectorized;
use crate::device::{
    Cpu, ElementLoss, IGNORED, Loss, Matrix, MatrixMut, Scalar, check_element_loss,
    check_element_loss_backward, check_matrix, check_matrix_mut, check_same_shape,
};
use crate::error::{Error, Result, check_length};

kernels! {
    impl Loss by LossKernels {
        fn log_softmax_nll(
            logits: Matrix<'_, Cpu<S>>,
            labels: &[i32],
            lse: &mut [S],
            loss: &mut [S],
        ) -> Result<()>;
        fn log_softmax_nll_backward(
            logits: Matrix<'_, Cpu<S>>,
            labels: &[i32],
            lse: &[S],
            factor: f64,
            dloss: &[S],
            dlogits: MatrixMut<'_, Cpu<S>>,
        ) -> Result<()>;
        fn count_right(scores: Matrix<'_, Cpu<S>>, labels: &[i32], out: &mut [u32]) -> Result<()>;
        fn element_loss(kind: ElementLoss, x: &[S], target: &[S], loss: &mut [S]) -> Result<()>;
        fn element_loss_backward(kind: ElementLoss,
            x: &[S],
            target: &[S],
            factor: f64,
            dloss: &[S],
            dx: &mut [S],
        ) -> Result<()>;
    }
}

fn log_softmax_nll<S: Scalar>(
    _device: &Cpu<S>,
    logits: Matrix<'_, Cpu<S>>,
    labels: &[i32],
    lse: &mut [S],
    loss: &mut [S],
) -> Result<()> {
    check_matrix(&logits)?;
    check_labels(labels, logits.rows, logits.cols)?;
    check_length("lse", lse.len(), logits.rows)?;
    check_length("loss", loss.len(), logits.rows)?;
    let n_class = logits.cols;
    let work = Even(n_class * EXP_COST + 1);
    for_parts(
        &work,
        0..logits.rows,
        (lse, loss),
        &|rows: Range<usize>, (lse, loss): (&mut [S], &mut [S])| {
            vectorized!(
                S,
                #[inline(always)]
                |_| {
                    for (i, (lse, loss)) in rows.zip(lse.iter_mut().zip(loss)) {
                        let row = &logits.data[i * n_class..][..n_class];
                        *lse = log_sum_exp(row);
                        *loss = match labels[i] {
                            IGNORED => S::zero(),
                            label => *lse - row[label as usize],
                        };
                    }
                },
            );
        },
    );
    Ok(())
}

fn log_softmax_nll_backward<S: Scalar>(
    _device: &Cpu<S>,
    logits: Matrix<'_, Cpu<S>>,
    labels: &[i32],
    lse: &[S],
    factor: f64,
    dloss: &[S],
    dlogits: MatrixMut<'_, Cpu<S>>,
) -> Result<()> {
    check_matrix(&logits)?;
    check_matrix_mut(&dlogits)?;
    check_same_shape("log_softmax_nll_backward", "logits", logits.shape(), "dlogits", dlogits.shape())?;
    check_labels(labels, logits.rows, logits.cols)?;
    check_length("lse", lse.len(), logits.rows)?;
    check_length("dloss", dloss.len(), 1)?;
    let factor = S::from_f64(factor) * dloss[0];
    let n_class = logits.cols;
    for_rows(dlogits.data, n_class, |rows, out| {
        vectorized!(
            S,
            #[inline(always)]
            |_| {
                for (i, out) in rows.zip(out.chunks_exact_mut(n_class)) {
                    if labels[i] == IGNORED {
                        out.fill(S::zero());
                        continue;
                    }
                    for (out, &x) in out.iter_mut().zip(&logits.data[i * n_class..][..n_class]) {
                        *out = factor * (x - lse[i]).exp();
                    }
                    out[labels[i] as usize] -= factor;
                }
            },
        );
    });
    Ok(())
}

fn count_right<S: Scalar>(
    _device: &Cpu<S>,
    scores: Matrix<'_, Cpu<S>>,
    labels: &[i32],
    out: &mut [u32],
) -> Result<()> {
    check_matrix(&scores)?;
    check_length("labels", labels.len(), scores.rows)?;
    check_length("out", out.len(), 1)?;
    if scores.cols == 0 {
        return Ok(());
    }
    let rows = scores.data.chunks_exact(scores.cols).zip(labels);
    let right = rows.filter(|(row, label)| usize::try_from(**label).is_ok_and(|label| label == argmax(row)));
    out[0] += right.count() as u32;
    Ok(())
}

/// The position of the largest value, the first among equals; NaN is never the largest. 0 if there is none.
pub(crate) fn argmax<S: Scalar>(row: &[S]) -> usize {
    let start = (0, S::neg_infinity());
    row.iter().enumerate().fold(start, |best, (i, &v)| if v > best.1 { (i, v) } else { best }).0
}

fn element_loss<S: Scalar>(
    _device: &Cpu<S>,
    kind: ElementLoss,
    x: &[S],
    target: &[S],
    loss: &mut [S],
) -> Result<()> {
    check_element_loss::<Cpu<S>>(&x, &target, &loss)?;
    let zero = S::zero();
    match kind {
        ElementLoss::BinaryCrossEntropy => map_pairs(x, target, loss, EXP_COST, |x, t| {
            if t.is_nan() {
                return zero;
            }
            // A comparison that keeps a NaN.
            let positive = if x < zero { zero } else { x };
            positive - t * x + (-x.abs()).exp().ln_1p()
        }),
        ElementLoss::SquaredError => {
            map_pairs(x, target, loss, 1, |x, t| if t.is_nan() { zero } else { (x - t) * (x - t) })
        }
    }
    Ok(())
}

fn element_loss_backward<S: Scalar>(
    _device: &Cpu<S>,
    kind: ElementLoss,
    x: &[S],
    target: &[S],
    factor: f64,
    dloss: &[S],
    dx: &mut [S],
) -> Result<()> {
    check_element_loss_backward::<Cpu<S>>(&x, &target, &dloss, &dx)?;
    let (zero, one) = (S::zero(), S::one());
    let factor = S::from_f64(factor) * dloss[0];
    match kind {
        ElementLoss::BinaryCrossEntropy => map_pairs(x, target, dx, EXP_COST, |x, t| {
            if t.is_nan() {
                return zero;
            }
            // σ(x) by the exponential that cannot overflow.
            let power = (-x.abs()).exp();
            let sigmoid = if x < zero { power / (one + power) } else { one / (one + power) };
            factor * (sigmoid - t)
        }),
        ElementLoss::SquaredError => {
            map_pairs(x, target, dx, 1, |x, t| if t.is_nan() { zero } else { factor * (x - t + (x - t)) })
        }
    }
    Ok(())
}

/// An exponential costs about as much as moving this many scalars.
const EXP_COST: usize = 8;

/// `out[i] = f(x[i], y[i])`, where an element costs as much as moving `cost` scalars.
#[inline(always)]
fn map_pairs<S: Scalar>(x: &[S], y: &[S], out: &mut [S], cost: usize, f: impl Fn(S, S) -> S + Sync) {
    for_parts(&Even(cost), 0..x.len(), out, &|range: Range<usize>, out: &mut [S]| {
        vectorized!(
            S,
            #[inline(always)]
            |_| {
                for (out, (&x, &y)) in out.iter_mut().zip(x[range.clone()].iter().zip(&y[range])) {
                    *out = f(x, y);
                }
            },
        );
    });
}

/// `ln Σ exp(x)`, shifted by the maximum so that no exponential overflows and one of them is 1. NaN if any logit is.
#[inline(always)]
fn log_sum_exp<S: Scalar>(row: &[S]) -> S {
    let max = row.iter().fold(S::neg_infinity(), |max, &x| if x > max { x } else { max });
    let sum: S = row.iter().map(|&x| (x - max).exp()).sum();
    max + sum.ln()
}

/// `Ok` if there is one label per row, each a class or ignored.
fn check_labels(labels: &[i32], n: usize, n_class: usize) -> Result<()> {
    check_length("labels", labels.len(), n)?;
    let is_valid = |label: i32| label == IGNORED || usize::try_from(label).is_ok_and(|label| label < n_class);
    match labels.iter().position(|&label| !is_valid(label)) {
        None => Ok(()),
        Some(position) => Err(Error::IndexOutOfRange {
            array: "labels",
            position: position as u64,
            value: i64::from(labels[position]),
            limit: n_class as u64,
        }),
    }
}
