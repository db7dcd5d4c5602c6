//! Optimiser steps on the CPU: one pass that reads and writes parameter and state once.

use std::ops::Range;

use super::kernels::kernels;
use super::parallel::{Even, Split, TASK_ELEMENTS, check_index, for_parts};
use super::vectors::vectorized;
use crate::device::optimizer::{AdamConstants, check_adam_rows};
use crate::device::{AdamStep, Cpu, Matrix, MatrixMut, Optimizer, Scalar, SgdStep};
use crate::error::{Error, Result, check_length};

kernels! {
    impl Optimizer by OptimizerKernels {
        fn adam(
            step: AdamStep,
            grad: &[S],
            first_moment: &mut [S],
            second_moment: &mut [S],
            parameter: &mut [S],
        ) -> Result<()>;
        fn adam_rows(
            step: AdamStep,
            index: &[u32],
            grad: Matrix<'_, Cpu<S>>,
            first_moment: &mut [S],
            second_moment: &mut [S],
            parameter: MatrixMut<'_, Cpu<S>>,
        ) -> Result<()>;
        fn sgd(step: SgdStep, grad: &[S], velocity: &mut [S], parameter: &mut [S]) -> Result<()>;
    }
}

fn adam<S: Scalar>(
    _device: &Cpu<S>,
    step: AdamStep,
    grad: &[S],
    first_moment: &mut [S],
    second_moment: &mut [S],
    parameter: &mut [S],
) -> Result<()> {
    check_length("grad", grad.len(), parameter.len())?;
    check_length("first_moment", first_moment.len(), parameter.len())?;
    check_length("second_moment", second_moment.len(), parameter.len())?;
    let constants = AdamConstants::new(step)?;
    let out = (first_moment, (second_moment, parameter));
    for_parts(&Even(4), 0..grad.len(), out, &|range: Range<usize>, (m, (v, parameter)): Parts<'_, S>| {
        vectorized!(
            S,
            #[inline(always)]
            |_| constants.update(&grad[range], m, v, parameter),
        );
    });
    Ok(())
}

fn adam_rows<S: Scalar>(
    _device: &Cpu<S>,
    step: AdamStep,
    index: &[u32],
    grad: Matrix<'_, Cpu<S>>,
    first_moment: &mut [S],
    second_moment: &mut [S],
    parameter: MatrixMut<'_, Cpu<S>>,
) -> Result<()> {
    check_adam_rows::<Cpu<S>>(&index, &grad, &first_moment, &second_moment, &parameter)?;
    check_index("index", index, parameter.rows)?;
    if let Some(position) = index.windows(2).position(|pair| pair[0] >= pair[1]) {
        let value = format!("{} after {}", index[position + 1], index[position]);
        return Err(Error::invalid("index", value, "strictly ascending rows"));
    }
    let constants = AdamConstants::new(step)?;
    if grad.cols > 0 {
        let out = (first_moment, (second_moment, parameter.data));
        update_rows(&constants, index, grad, 0, out);
    }
    Ok(())
}

fn sgd<S: Scalar>(
    _device: &Cpu<S>,
    step: SgdStep,
    grad: &[S],
    velocity: &mut [S],
    parameter: &mut [S],
) -> Result<()> {
    check_length("grad", grad.len(), parameter.len())?;
    check_length("velocity", velocity.len(), parameter.len())?;
    let [lr, momentum, decay] = [step.lr, step.momentum, step.weight_decay].map(S::from_f64);
    let is_plain = step.momentum == 0.0;
    for_parts(&Even(3), 0..grad.len(), (velocity, parameter), &|range: Range<usize>,
                                                                (velocity, parameter): (
        &mut [S],
        &mut [S],
    )| {
        vectorized!(
            S,
            #[inline(always)]
            |_| {
                let gradient = |grad: S, parameter: S| grad + decay * parameter;
                if is_plain {
                    for (parameter, &grad) in parameter.iter_mut().zip(&grad[range]) {
                        *parameter -= lr * gradient(grad, *parameter);
                    }
                } else {
                    let elements = parameter.iter_mut().zip(&grad[range]).zip(velocity);
                    for ((parameter, &grad), velocity) in elements {
                        *velocity = momentum * *velocity + gradient(grad, *parameter);
                        *parameter -= lr * *velocity;
                    }
                }
            },
        );
    });
    Ok(())
}

/// Both moments and the parameter.
type Parts<'a, S> = (&'a mut [S], (&'a mut [S], &'a mut [S]));

impl<S: Scalar> AdamConstants<S> {
    #[inline(always)]
    fn update(&self, grad: &[S], first_moment: &mut [S], second_moment: &mut [S], parameter: &mut [S]) {
        let moments = first_moment.iter_mut().zip(second_moment);
        for ((parameter, &grad), (m, v)) in parameter.iter_mut().zip(grad).zip(moments) {
            let g = grad + self.decay * *parameter;
            *m = self.beta1 * *m + self.rest1 * g;
            *v = self.beta2 * *v + self.rest2 * (g * g);
            let update = self.rate * *m / ((*v * self.correction2).sqrt() + self.epsilon);
            *parameter = self.shrink * *parameter - update;
        }
    }
}

/// Steps the rows `index` of the matrices `out`, whose first row has the number `first_row`; in parallel: as `index`
/// ascends, `out` can be cut at any of its rows.
fn update_rows<S: Scalar>(
    constants: &AdamConstants<S>,
    index: &[u32],
    grad: Matrix<'_, Cpu<S>>,
    first_row: usize,
    out: Parts<'_, S>,
) {
    let dim = grad.cols;
    if index.len() < 2 || grad.data.len() * 4 <= TASK_ELEMENTS || rayon::current_num_threads() == 1 {
        let (m, (v, parameter)) = out;
        vectorized!(
            S,
            #[inline(always)]
            |_| {
                for (&row, grad) in index.iter().zip(grad.data.chunks_exact(dim)) {
                    let at = (row as usize - first_row) * dim;
                    let of_row = at..at + dim;
                    let (m, v) = (&mut m[of_row.clone()], &mut v[of_row.clone()]);
                    constants.update(grad, m, v, &mut parameter[of_row]);
                }
            },
        );
        return;
    }
    let middle = index.len() / 2;
    let middle_row = index[middle] as usize;
    let (head, tail) = out.split((middle_row - first_row) * dim);
    let (below, above) = grad.data.split_at(middle * dim);
    let part = |data, rows| Matrix { data, rows, cols: dim };
    rayon::join(
        || update_rows(constants, &index[..middle], part(below, middle), first_row, head),
        || update_rows(constants, &index[middle..], part(above, index.len() - middle), middle_row, tail),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Storage;
    use crate::rng;

    const STEP: AdamStep = AdamStep {
        lr: 0.01,
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-8,
        weight_decay: 0.1,
        decoupled: false,
        step: 3,
    };

    #[test]
    fn rows_step_as_a_dense_step_does_and_others_stay() {
        let cpu = Cpu::<f32>::new();
        let (rows, dim) = (5000, 7);
        let values = |stream, len: usize| -> Vec<f32> {
            (0..len as u64).map(|i| rng::uniform(4, stream, i) as f32).collect()
        };
        for (decoupled, every) in [(false, 2), (true, 3), (false, 5000)] {
            let step = AdamStep { decoupled, ..STEP };
            let index: Vec<u32> = (0..rows as u32).filter(|i| i % every == 1).collect();
            let grad = values(0, index.len() * dim);
            let (m, v, p) = (values(1, rows * dim), values(2, rows * dim), values(3, rows * dim));
            let mut dense_grad = vec![0.0; rows * dim];
            for (&i, row) in index.iter().zip(grad.chunks(dim)) {
                dense_grad[i as usize * dim..][..dim].copy_from_slice(row);
            }
            let (mut dense_m, mut dense_v, mut dense_p) = (m.clone(), v.clone(), p.clone());
            cpu.adam(step, &dense_grad, &mut dense_m, &mut dense_v, &mut dense_p).unwrap();
            for n_threads in [1, 4] {
                let (mut new_m, mut new_v, mut new_p) = (m.clone(), v.clone(), p.clone());
                let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
                pool.install(|| {
                    let grad = Matrix::new(&grad[..], index.len(), dim).unwrap();
                    let parameter = MatrixMut::new(&mut new_p[..], rows, dim).unwrap();
                    cpu.adam_rows(step, &index, grad, &mut new_m, &mut new_v, parameter).unwrap();
                });
                for i in 0..rows {
                    let row = i * dim..(i + 1) * dim;
                    let touched = index.contains(&(i as u32));
                    for (new, old, dense) in
                        [(&new_p, &p, &dense_p), (&new_m, &m, &dense_m), (&new_v, &v, &dense_v)]
                    {
                        let expected = if touched { dense } else { old };
                        assert_eq!(new[row.clone()], expected[row.clone()], "row {i}");
                    }
                }
            }
        }
    }

    #[test]
    fn rows_out_of_order_or_range_are_refused_before_anything_is_written() {
        let cpu = Cpu::<f32>::new();
        let grad = cpu.upload(&[1.0f32; 4]).unwrap();
        for (index, expected) in [
            ([1, 1], "index is 1 after 1"),
            ([2, 0], "index is 0 after 2"),
            ([0, 3], "index[1] = 3 is out of range: expected a value below 3"),
        ] {
            let (mut m, mut v, mut p) = ([0.0f32; 6], [0.0f32; 6], [5.0f32; 6]);
            let grad = Matrix::new(&grad[..], 2, 2).unwrap();
            let parameter = MatrixMut::new(&mut p[..], 3, 2).unwrap();
            let error = cpu.adam_rows(STEP, &index, grad, &mut m, &mut v, parameter).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert_eq!(p, [5.0; 6]);
        }
    }
}
