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
        use super::cublas::{Factor, Product};

        // cuBLAS is column-major: it sees each matrix transposed, and (A B)ᵀ = Bᵀ Aᵀ.
        let factor = |x: &Matrix<'_, Self>, is_transposed| Factor {
            data: x.data.pointer().cast(),
            lead: x.cols as i64,
            is_transposed,
        };
        let k = if transpose_a { a.rows } else { a.cols };
        let product = Product {
            dtype: S::DTYPE,
            shape: [out.cols, out.rows, k].map(|n| n as i64),
            first: factor(&b, transpose_b),
            second: factor(&a, transpose_a),
            out: out.data.pointer().cast(),
            adds: write == Write::Add,
        };
        // SAFETY: the operands have the shapes that `check_gemm` checked, rows without padding; `out` is exclusive.
        unsafe { self.driver().blas()?.multiply(&product) }
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
