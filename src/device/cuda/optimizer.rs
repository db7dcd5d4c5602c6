//! Optimiser steps on CUDA; see `cuda/optimizer.cu`.

use super::{Cuda, CudaView, CudaViewMut, dtype, ffi};
use crate::device::optimizer::{AdamConstants, check_adam_rows};
use crate::device::{AdamParameter, AdamStep, Matrix, MatrixMut, Optimizer, Scalar, SgdParameter, SgdStep};
use crate::error::{Result, check_length};

impl<S: Scalar> Optimizer for Cuda<S> {
    fn adam(
        &self,
        step: AdamStep,
        grad: CudaView<'_, S>,
        first_moment: CudaViewMut<'_, S>,
        second_moment: CudaViewMut<'_, S>,
        parameter: CudaViewMut<'_, S>,
    ) -> Result<()> {
        self.adam_all(vec![AdamParameter { step, grad, first_moment, second_moment, parameter }])
    }

    fn adam_all(&self, parameters: Vec<AdamParameter<'_, Self>>) -> Result<()> {
        let mut steps = Vec::with_capacity(parameters.len());
        let mut raw = Vec::with_capacity(parameters.len());
        for AdamParameter { step, grad, first_moment, second_moment, parameter } in &parameters {
            check_length("grad", grad.len(), parameter.len())?;
            check_length("first_moment", first_moment.len(), parameter.len())?;
            check_length("second_moment", second_moment.len(), parameter.len())?;
            steps.push(adam_constants(*step)?);
            raw.push(ffi::cohop_parameter {
                n: grad.len() as u64,
                grad: grad.pointer().cast(),
                first_moment: first_moment.pointer().cast(),
                second_moment: second_moment.pointer().cast(),
                value: parameter.pointer().cast(),
            });
        }
        let (n, stream) = (raw.len() as u64, self.stream()?);
        // SAFETY: of each parameter all four hold `n` scalars, and the constants live through the call.
        let code = unsafe { ffi::cohop_adam_step(dtype::<S>(), n, raw.as_ptr(), steps.as_ptr(), stream) };
        self.check("adam", code)
    }

    fn adam_rows(
        &self,
        step: AdamStep,
        index: CudaView<'_, u32>,
        grad: Matrix<'_, Self>,
        first_moment: CudaViewMut<'_, S>,
        second_moment: CudaViewMut<'_, S>,
        parameter: MatrixMut<'_, Self>,
    ) -> Result<()> {
        check_adam_rows::<Self>(&index, &grad, &first_moment, &second_moment, &parameter)?;
        let constants = adam_constants(step)?;
        let (n, rows, dim) = (grad.rows as u64, parameter.rows as u64, grad.cols as u64);
        let (grad, parameter) = (grad.data.pointer().cast(), parameter.data.pointer().cast());
        let (m, v) = (first_moment.pointer().cast(), second_moment.pointer().cast());
        let (index, status, stream) = (index.pointer(), self.status(), self.stream()?);
        // SAFETY: `index` holds `n` numbers and `grad` `n * dim` scalars, the others hold `rows * dim`, and the
        // constants live through the call. The kernel skips numbers that are not below `rows`.
        let code = unsafe {
            ffi::cohop_adam_rows(
                dtype::<S>(),
                n,
                rows,
                dim,
                &constants,
                index,
                grad,
                m,
                v,
                parameter,
                status,
                stream,
            )
        };
        self.check("adam_rows", code)
    }

    fn sgd(
        &self,
        step: SgdStep,
        grad: CudaView<'_, S>,
        velocity: CudaViewMut<'_, S>,
        parameter: CudaViewMut<'_, S>,
    ) -> Result<()> {
        self.sgd_all(step, vec![SgdParameter { grad, velocity, parameter }])
    }

    fn sgd_all(&self, step: SgdStep, parameters: Vec<SgdParameter<'_, Self>>) -> Result<()> {
        let mut raw = Vec::with_capacity(parameters.len());
        for SgdParameter { grad, velocity, parameter } in &parameters {
            check_length("grad", grad.len(), parameter.len())?;
            check_length("velocity", velocity.len(), parameter.len())?;
            raw.push(ffi::cohop_parameter {
                n: grad.len() as u64,
                grad: grad.pointer().cast(),
                first_moment: velocity.pointer().cast(),
                second_moment: std::ptr::null_mut(),
                value: parameter.pointer().cast(),
            });
        }
        let SgdStep { lr, momentum, weight_decay } = step;
        let (n, stream) = (raw.len() as u64, self.stream()?);
        // SAFETY: of each parameter all three hold `n` scalars.
        let code =
            unsafe { ffi::cohop_sgd_step(dtype::<S>(), n, raw.as_ptr(), lr, momentum, weight_decay, stream) };
        self.check("sgd", code)
    }
}

/// The constants as launchers take them, in f64: launchers round them to the scalar.
fn adam_constants(step: AdamStep) -> Result<ffi::cohop_adam> {
    let AdamConstants { decay, shrink, epsilon, beta1, rest1, beta2, rest2, rate, correction2 } =
        AdamConstants::<f64>::new(step)?;
    Ok(ffi::cohop_adam { decay, shrink, epsilon, beta1, rest1, beta2, rest2, rate, correction2 })
}
