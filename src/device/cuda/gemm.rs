//! Dense products on CUDA: cuBLAS, in the scalar's own precision (no TF32).

use super::Cuda;
use crate::device::{Gemm, Matrix, MatrixMut, Scalar, Storage, Write, check_gemm};
use crate::error::Result;

impl<S: Scalar> Gemm for Cuda<S> {
    fn gemm(
        &self,
        a: Matrix<'_, Self>,
        transpose_a: bool,
        b: Matrix<'_, Self>,
        transpose_b: bool,
        out: MatrixMut<'_, Self>,
        write: Write,
    ) -> Result<()> {
        let [m, k, n] = check_gemm(&a, transpose_a, &b, transpose_b, &out)?;
        if m == 0 || n == 0 {
            return Ok(());
        }
        if k == 0 {
            return if write == Write::Assign { self.fill(S::zero(), out.data) } else { Ok(()) };
        }
        self.stream()?;
        self.product(a, transpose_a, b, transpose_b, out, write)
    }
}

#[cfg(not(feature = "emulate"))]
impl<S: Scalar> Cuda<S> {
    /// The product, of shapes that were checked and are not empty.
    fn product(
        &self,
        a: Matrix<'_, Self>,
        transpose_a: bool,
        b: Matrix<'_, Self>,
        transpose_b: bool,
        out: MatrixMut<'_, Self>,
        write: Write,
    ) -> Result<()> {
        use crate::device::Dtype;
        use crate::error::Error;
        use cudarc::cublas::sys;

        let operation = |transpose| match transpose {
            false => sys::cublasOperation_t::CUBLAS_OP_N,
            true => sys::cublasOperation_t::CUBLAS_OP_T,
        };
        let handle = *self.driver().blas()?.handle();
        // cuBLAS is column-major: it sees each matrix transposed, and (A B)ᵀ = Bᵀ Aᵀ.
        let (m, n, k) = (out.cols as i64, out.rows as i64, if transpose_a { a.rows } else { a.cols } as i64);
        let (first, second) = (operation(transpose_b), operation(transpose_a));
        let (lead_a, lead_b) = (a.cols as i64, b.cols as i64);
        let beta = if write == Write::Add { 1.0 } else { 0.0 };
        let (a, b, out) = (a.data.pointer(), b.data.pointer(), out.data.pointer());
        // SAFETY: the operands have the shapes that `check_gemm` checked, rows without padding; `out` is exclusive.
        // The handle is that of this device's stream; cuBLAS calls from several threads are allowed.
        let status = unsafe {
            match S::DTYPE {
                Dtype::F64 => sys::cublasDgemm_v2_64(
                    handle,
                    first,
                    second,
                    m,
                    n,
                    k,
                    &1.0,
                    b.cast(),
                    lead_b,
                    a.cast(),
                    lead_a,
                    &beta,
                    out.cast(),
                    m,
                ),
                _ => sys::cublasSgemm_v2_64(
                    handle,
                    first,
                    second,
                    m,
                    n,
                    k,
                    &1.0,
                    b.cast(),
                    lead_b,
                    a.cast(),
                    lead_a,
                    &(beta as f32),
                    out.cast(),
                    m,
                ),
            }
        };
        status.result().map_err(|error| Error::Device {
            operation: "gemm",
            code: error.0 as i32,
            name: format!("{:?}", error.0),
            message: String::new(),
        })
    }
}

#[cfg(feature = "emulate")]
impl<S: Scalar> Cuda<S> {
    /// The product, of shapes that were checked and are not empty: cuBLAS cannot be emulated, so a product of the CPU's
    /// stands in for it.
    fn product(
        &self,
        a: Matrix<'_, Self>,
        transpose_a: bool,
        b: Matrix<'_, Self>,
        transpose_b: bool,
        out: MatrixMut<'_, Self>,
        write: Write,
    ) -> Result<()> {
        use crate::device::cpu::multiply_matrices;
        use crate::device::cuda::memory::Address;

        let factor = |x: &Matrix<'_, Self>| (Address(x.data.pointer().cast_mut().cast()), x.rows, x.cols);
        let (factors, to) = ([factor(&a), factor(&b)], Address(out.data.pointer().cast()));
        let n = out.data.len();
        self.driver().queue(move || {
            let (factors, to) = (factors, to);
            // SAFETY: the emulated device's memory is the host's. The views held as many elements when the product was
            // queued, and memory is given back in the order of the stream.
            let slice =
                |address: Address, len| unsafe { std::slice::from_raw_parts(address.0.cast::<S>(), len) };
            let factors =
                factors.map(|(address, rows, cols)| Matrix { data: slice(address, rows * cols), rows, cols });
            // SAFETY: as above, and the view was exclusive.
            let out = unsafe { std::slice::from_raw_parts_mut(to.0.cast::<S>(), n) };
            multiply_matrices(factors, [transpose_a, transpose_b], out, write);
            Ok(())
        })
    }
}
