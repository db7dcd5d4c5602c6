//! Dense products on CUDA: cuBLAS, in the device's precision; in f64 always in f64.

#[cfg(feature = "emulate")]
use std::borrow::Cow;

#[cfg(feature = "emulate")]
use half::bf16;

use super::Cuda;
#[cfg(feature = "emulate")]
use crate::device::{Dtype, Half, Precision};
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
            precision: self.precision,
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
    /// stands in for it, of factors that are rounded as tensor cores round them.
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
        let (n, precision) = (out.data.len(), self.precision);
        self.driver().queue(move || {
            let (factors, to) = (factors, to);
            // SAFETY: the emulated device's memory is the host's. The views held as many elements when the product was
            // queued, and memory is given back in the order of the stream.
            let slice =
                |address: Address, len| unsafe { std::slice::from_raw_parts(address.0.cast::<S>(), len) };
            let rounded =
                factors.map(|(address, rows, cols)| rounded(slice(address, rows * cols), precision));
            let factor = |i: usize| Matrix { data: &rounded[i][..], rows: factors[i].1, cols: factors[i].2 };
            let factors = [factor(0), factor(1)];
            // SAFETY: as above, and the view was exclusive.
            let out = unsafe { std::slice::from_raw_parts_mut(to.0.cast::<S>(), n) };
            multiply_matrices(factors, [transpose_a, transpose_b], out, write);
            Ok(())
        })
    }
}

/// The factor of a product as tensor cores take it: f32s as TF32 (10 bits of mantissa) or bf16.
#[cfg(feature = "emulate")]
fn rounded<S: Scalar>(values: &[S], precision: Precision) -> Cow<'_, [S]> {
    let round = match (S::DTYPE, precision) {
        (Dtype::F32, Precision::Bf16) => |value: f32| bf16::round(value).to_f32(),
        (Dtype::F32, Precision::Tf32 | Precision::F16) => tf32,
        _ => return Cow::Borrowed(values),
    };
    Cow::Owned(values.iter().map(|value| S::from_f64(round(value.widen_f32()).into())).collect())
}

/// The nearest number of 10 mantissa bits, of two the even one.
#[cfg(feature = "emulate")]
fn tf32(value: f32) -> f32 {
    let (bits, dropped) = (value.to_bits(), 13);
    let half = (1 << (dropped - 1)) - 1 + (bits >> dropped & 1);
    if value.is_finite() { f32::from_bits((bits + half) >> dropped << dropped) } else { value }
}

#[cfg(feature = "emulate")]
#[cfg(test)]
mod tests {
    // A panic is how these tests fail.
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn ten_bits_of_mantissa_are_kept() {
        let step = 2f32.powi(-10);
        for (value, expected) in [
            (1.0 + step, 1.0 + step),
            (1.0 + 0.5 * step, 1.0),
            (1.0 + 1.5 * step, 1.0 + 2.0 * step),
            (-1.0 - 0.6 * step, -1.0 - step),
            (2.0 - 0.4 * step, 2.0),
            (f32::MAX, f32::INFINITY),
            (f32::NEG_INFINITY, f32::NEG_INFINITY),
            (-0.0, -0.0),
        ] {
            assert_eq!(tf32(value).to_bits(), expected.to_bits(), "{value}");
        }
        assert!(tf32(f32::NAN).is_nan());
    }

    /// `(1 + 2^-9) · 1`: in bf16 the factor is 1, in f32 and TF32 itself; f64 is not touched.
    #[test]
    fn factors_are_rounded_and_sums_are_not() {
        let x = 1.0 + 2f64.powi(-9);
        let product = |precision| multiplied::<f32>(precision, x);
        assert_eq!(product(Precision::F32), x);
        assert_eq!(product(Precision::Tf32), x);
        assert_eq!(product(Precision::F16), x);
        assert_eq!(product(Precision::Bf16), 1.0);
        assert_eq!(multiplied::<f64>(Precision::Bf16, x), x);
        let fine = 1.0 + 2f64.powi(-13);
        assert_eq!(multiplied::<f32>(Precision::F32, fine), fine);
        assert_eq!(multiplied::<f32>(Precision::Tf32, fine), 1.0);
    }

    /// `[x, 1] · [1, 2^-20]`, where the second term is exact in f32 and far below what bf16 could add.
    fn multiplied<S: Scalar>(precision: Precision, x: f64) -> f64 {
        let device = Cuda::<S>::new(0).unwrap().with_precision(precision);
        let values = |values: [f64; 2]| values.map(S::from_f64);
        let small = 2f64.powi(-20);
        let (a, b) =
            (device.upload(&values([x, 1.0])).unwrap(), device.upload(&values([1.0, small])).unwrap());
        let mut out = device.upload(&[S::zero()]).unwrap();
        let (a, b) = (Matrix::from_view(a.view(), 1, 2).unwrap(), Matrix::from_view(b.view(), 2, 1).unwrap());
        let to = MatrixMut::from_view(out.view_mut(), 1, 1).unwrap();
        device.gemm(a, false, b, false, to, Write::Assign).unwrap();
        let out = device.download(out.view()).unwrap()[0].widen_f64();
        assert!(out > small);
        out - small
    }
}
