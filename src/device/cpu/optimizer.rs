//! Optimiser steps on the CPU: one pass that reads and writes parameter and state once.

use std::ops::Range;

use super::parallel::{Even, for_parts, vectorized};
use crate::device::{AdamStep, Cpu, Optimizer, Scalar, SgdStep};
use crate::error::{Error, Result, check_length};

impl<S: Scalar> Optimizer for Cpu<S> {
    fn adam(
        &self,
        step: AdamStep,
        grad: &[S],
        first_moment: &mut [S],
        second_moment: &mut [S],
        parameter: &mut [S],
    ) -> Result<()> {
        check_length("grad", grad.len(), parameter.len())?;
        check_length("first_moment", first_moment.len(), parameter.len())?;
        check_length("second_moment", second_moment.len(), parameter.len())?;
        if step.step == 0 {
            return Err(Error::invalid("step", 0, "a number from 1: it corrects the moments' bias"));
        }
        // Constants are computed in f64 and rounded once.
        let bias_correction = |beta: f64| 1.0 - beta.powf(step.step as f64);
        let (decay, shrink) =
            if step.decoupled { (0.0, 1.0 - step.lr * step.weight_decay) } else { (step.weight_decay, 1.0) };
        let [decay, shrink, epsilon] = [decay, shrink, step.epsilon].map(S::from_f64);
        let [beta1, rest1] = [step.beta1, 1.0 - step.beta1].map(S::from_f64);
        let [beta2, rest2] = [step.beta2, 1.0 - step.beta2].map(S::from_f64);
        let rate = S::from_f64(step.lr / bias_correction(step.beta1));
        let correction2 = S::from_f64(1.0 / bias_correction(step.beta2));
        let out = (first_moment, (second_moment, parameter));
        type Parts<'a, S> = (&'a mut [S], (&'a mut [S], &'a mut [S]));
        for_parts(&Even(4), 0..grad.len(), out, &|range: Range<usize>,
                                                  (first_moment, (second_moment, parameter)): Parts<
            '_,
            S,
        >| {
            vectorized(
                #[inline(always)]
                || {
                    let moments = first_moment.iter_mut().zip(second_moment);
                    for ((parameter, &grad), (m, v)) in parameter.iter_mut().zip(&grad[range]).zip(moments) {
                        let g = grad + decay * *parameter;
                        *m = beta1 * *m + rest1 * g;
                        *v = beta2 * *v + rest2 * (g * g);
                        let update = rate * *m / ((*v * correction2).sqrt() + epsilon);
                        *parameter = shrink * *parameter - update;
                    }
                },
            );
        });
        Ok(())
    }

    fn sgd(&self, step: SgdStep, grad: &[S], velocity: &mut [S], parameter: &mut [S]) -> Result<()> {
        check_length("grad", grad.len(), parameter.len())?;
        check_length("velocity", velocity.len(), parameter.len())?;
        let [lr, momentum, decay] = [step.lr, step.momentum, step.weight_decay].map(S::from_f64);
        let is_plain = step.momentum == 0.0;
        for_parts(&Even(3), 0..grad.len(), (velocity, parameter), &|range: Range<usize>,
                                                                    (velocity, parameter): (
            &mut [S],
            &mut [S],
        )| {
            vectorized(
                #[inline(always)]
                || {
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
}
