//! Kernel family *narrow*: rows rounded to 16 bits, and their aggregation in the device's scalar.

use half::{bf16, f16};

use crate::device::cpu::Narrowed;
use crate::device::{
    Csr, Elementwise, FeatureElement, Matrix, MatrixMut, Precision, Spmm, Storage, Weights, Write,
    check_csr_lengths, check_matrix, check_matrix_mut, check_no_edge, check_weights, positions_of_transpose,
};
use crate::error::{Error, Result, check_length};

/// The 16-bit types that rows can be rounded to. Sealed, as all [`Element`](crate::device::Element)s.
pub trait Half: FeatureElement + Narrowed<f32> + Narrowed<f64> {
    /// The nearest value, the even one of two; beyond the largest, an infinity. A NaN stays one.
    fn round(value: f32) -> Self;
}

impl Half for f16 {
    /// Without branches, so that it is computed on vectors.
    #[inline(always)]
    fn round(value: f32) -> Self {
        // 2^16, at and beyond which all is infinite; numbers from 65520 on round up to it.
        const OVERFLOW: u32 = (127 + 16) << 23;
        const INFINITY: u32 = 255 << 23;
        // 2^-14, the smallest normal f16.
        const SMALLEST: u32 = (127 - 14) << 23;
        // 0.5: the last bit of its mantissa is worth 2^-24, as that of a subnormal f16.
        const SUBNORMAL: u32 = (127 - 1) << 23;
        // The exponents' biases differ by 127 − 15.
        const REBIAS: u32 = 112 << 23;
        let bits = value.to_bits();
        let (sign, magnitude) = (bits & 0x8000_0000, bits & 0x7fff_ffff);
        let special = if magnitude > INFINITY { 0x7e00 } else { 0x7c00 };
        let subnormal =
            (f32::from_bits(magnitude) + f32::from_bits(SUBNORMAL)).to_bits().wrapping_sub(SUBNORMAL);
        let is_odd = (magnitude >> 13) & 1;
        let normal = magnitude.wrapping_sub(REBIAS).wrapping_add(0xfff + is_odd) >> 13;
        let finite = if magnitude < SMALLEST { subnormal } else { normal };
        let rounded = if magnitude >= OVERFLOW { special } else { finite };
        f16::from_bits((rounded | sign >> 16) as u16)
    }
}

impl Half for bf16 {
    #[inline(always)]
    fn round(value: f32) -> Self {
        let bits = value.to_bits();
        let is_odd = (bits >> 16) & 1;
        let rounded = bits.wrapping_add(0x7fff + is_odd) >> 16;
        // A NaN whose payload is in the lower half only must not become an infinity.
        let nan = bits >> 16 | 0x40;
        bf16::from_bits(if bits & 0x7fff_ffff > 0x7f80_0000 { nan } else { rounded } as u16)
    }
}

/// Rows of 16 bits.
pub trait Narrow: Elementwise + Spmm {
    /// `out[i, :] = x[i, :]`, rounded to nearest, of two the even one; what is in f64 is rounded to f32 before.
    ///
    /// With `factor: [x.rows]`, `out[i, :] = x[i, :] / factor[i]`, where `factor[i]` is the power of two that makes
    /// the largest finite absolute value of the row at least 2^14 and less than 2^15: 1 for a row without one, or of
    /// zeros, and at least 2^-100. Divisions by it are exact. `out: [x.rows, x.cols]`
    ///
    /// Errors: `out` or `factor` does not have its length, or the device fails.
    fn narrow<E: Half>(
        &self,
        x: Matrix<'_, Self>,
        out: Self::ViewMut<'_, E>,
        factor: Option<Self::ViewMut<'_, Self::Scalar>>,
    ) -> Result<()>;

    /// `out[i] = x[i]`, exact; same length.
    ///
    /// Errors: `x` and `out` differ in length, or the device fails.
    fn widen<E: Half>(&self, x: Self::View<'_, E>, out: Self::ViewMut<'_, Self::Scalar>) -> Result<()>;

    /// [`spmm`](Spmm::spmm) of rows of 16 bits, `x: [n_cols, dim]` with `dim = out.cols`, row `j` times `factor[j]` if
    /// there is a `factor: [n_cols]`. Without one it gives the bits of [`spmm`](Spmm::spmm) of the same rows in the
    /// device's scalar; with one, those for `weights.column` times `factor`.
    ///
    /// Errors: `x`, `out` or a factor does not have its shape, or the device fails.
    fn spmm_narrow<E: Half>(
        &self,
        a: Csr<'_, Self>,
        weights: Weights<'_, Self>,
        x: Self::View<'_, E>,
        factor: Option<Self::View<'_, Self::Scalar>>,
        out: MatrixMut<'_, Self>,
        write: Write,
    ) -> Result<()>;

    /// [`spmm_max`](Spmm::spmm_max) of rows of 16 bits, `x: [n_cols, dim]` with `dim = out.cols`, row `j` times
    /// `factor[j]` if there is a `factor: [n_cols]`.
    ///
    /// Errors: `a.edge` is present, `x`, `factor`, `out` or `argmax` does not have its shape, or the device fails.
    fn spmm_max_narrow<E: Half>(
        &self,
        a: Csr<'_, Self>,
        x: Self::View<'_, E>,
        factor: Option<Self::View<'_, Self::Scalar>>,
        out: MatrixMut<'_, Self>,
        argmax: Self::ViewMut<'_, u32>,
    ) -> Result<()>;

    /// [`spmm_max_backward`](Spmm::spmm_max_backward) of rows of 16 bits, `dout: [a.n_cols, dim]` with
    /// `dim = dx.cols`, row `i` times `factor[i]` if there is a `factor: [a.n_cols]`.
    ///
    /// Errors: `a.edge` is absent, `argmax`, `dout`, `factor` or `dx` does not have its shape, or the device fails.
    fn spmm_max_backward_narrow<E: Half>(
        &self,
        a: Csr<'_, Self>,
        argmax: Self::View<'_, u32>,
        dout: Self::View<'_, E>,
        factor: Option<Self::View<'_, Self::Scalar>>,
        dx: MatrixMut<'_, Self>,
        write: Write,
    ) -> Result<()>;
}

/// Rows of a matrix as a device aggregates them in its precision.
pub(crate) enum Rows<'a, D: Storage> {
    /// As they are.
    Wide(Matrix<'a, D>),
    Bf16(D::Buffer<bf16>),
    /// Times the factors.
    F16(D::Buffer<f16>, D::Buffer<D::Scalar>),
}

impl<'a, D: Narrow> Rows<'a, D> {
    /// `x` in the device's [precision](Storage::precision).
    pub(crate) fn of(device: &D, x: Matrix<'a, D>) -> Result<Self> {
        check_matrix(&x)?;
        let n = x.rows * x.cols;
        Ok(match device.precision() {
            Precision::F32 | Precision::Tf32 => Rows::Wide(x),
            Precision::Bf16 => {
                let mut rows = device.allocate(n)?;
                device.narrow(x, D::view_mut(&mut rows), None)?;
                Rows::Bf16(rows)
            }
            Precision::F16 => {
                let (mut rows, mut factor) = (device.allocate(n)?, device.allocate(x.rows)?);
                device.narrow(x, D::view_mut(&mut rows), Some(D::view_mut(&mut factor)))?;
                Rows::F16(rows, factor)
            }
        })
    }

    /// `out (= | +=) A · x`: [`Spmm::spmm`].
    pub(crate) fn spmm(
        &self,
        device: &D,
        a: Csr<'_, D>,
        weights: Weights<'_, D>,
        out: MatrixMut<'_, D>,
        write: Write,
    ) -> Result<()> {
        match self {
            Rows::Wide(x) => device.spmm(a, weights, *x, out, write),
            Rows::Bf16(rows) => device.spmm_narrow(a, weights, D::view(rows), None, out, write),
            Rows::F16(rows, factor) => {
                device.spmm_narrow(a, weights, D::view(rows), Some(D::view(factor)), out, write)
            }
        }
    }

    /// [`Spmm::spmm_max`].
    pub(crate) fn spmm_max(
        &self,
        device: &D,
        a: Csr<'_, D>,
        out: MatrixMut<'_, D>,
        argmax: D::ViewMut<'_, u32>,
    ) -> Result<()> {
        match self {
            Rows::Wide(x) => device.spmm_max(a, *x, out, argmax),
            Rows::Bf16(rows) => device.spmm_max_narrow(a, D::view(rows), None, out, argmax),
            Rows::F16(rows, factor) => {
                device.spmm_max_narrow(a, D::view(rows), Some(D::view(factor)), out, argmax)
            }
        }
    }

    /// [`Spmm::spmm_max_backward`], of the rows of the gradient.
    pub(crate) fn spmm_max_backward(
        &self,
        device: &D,
        a: Csr<'_, D>,
        argmax: D::View<'_, u32>,
        dx: MatrixMut<'_, D>,
        write: Write,
    ) -> Result<()> {
        match self {
            Rows::Wide(dout) => device.spmm_max_backward(a, argmax, *dout, dx, write),
            Rows::Bf16(rows) => device.spmm_max_backward_narrow(a, argmax, D::view(rows), None, dx, write),
            Rows::F16(rows, factor) => {
                let factor = Some(D::view(factor));
                device.spmm_max_backward_narrow(a, argmax, D::view(rows), factor, dx, write)
            }
        }
    }
}

/// `Ok` if the arguments of [`Narrow::narrow`] fit together.
pub(crate) fn check_narrow<D: Storage, E: Half>(
    x: &Matrix<'_, D>,
    out: &D::ViewMut<'_, E>,
    factor: Option<&D::ViewMut<'_, D::Scalar>>,
) -> Result<()> {
    check_matrix(x)?;
    check_length("out", D::view_mut_len(out), x.rows * x.cols)?;
    check_length("factor", factor.map_or(x.rows, |factor| D::view_mut_len(factor)), x.rows)
}

/// `Ok` if `x: [n_cols, dim]` and `out: [n_rows, dim]`, `factor: [n_cols]`, and the arrays of all fit together.
fn check_product_of_narrow<D: Storage, E: Half>(
    op: &'static str,
    a: &Csr<'_, D>,
    x: &D::View<'_, E>,
    factor: Option<&D::View<'_, D::Scalar>>,
    out: &MatrixMut<'_, D>,
) -> Result<()> {
    check_csr_lengths(a)?;
    check_matrix_mut(out)?;
    if out.rows != a.n_rows {
        let (left, right) = (out.shape(), [a.n_rows, out.cols]);
        return Err(Error::ShapeMismatch { op, left_name: "out", left, right_name: "required", right });
    }
    let n = a.n_cols.checked_mul(out.cols);
    check_length("x", D::view_len(x), n.ok_or_else(|| Error::invalid("n_cols", a.n_cols, "less"))?)?;
    check_length("factor", factor.map_or(a.n_cols, |factor| D::view_len(factor)), a.n_cols)
}

/// `Ok` if the arguments of [`Narrow::spmm_narrow`] fit together.
pub(crate) fn check_spmm_narrow<D: Storage, E: Half>(
    a: &Csr<'_, D>,
    weights: &Weights<'_, D>,
    x: &D::View<'_, E>,
    factor: Option<&D::View<'_, D::Scalar>>,
    out: &MatrixMut<'_, D>,
) -> Result<()> {
    check_product_of_narrow::<D, E>("spmm_narrow", a, x, factor, out)?;
    check_weights(a, weights)
}

/// `Ok` if the arguments of [`Narrow::spmm_max_narrow`] fit together.
pub(crate) fn check_spmm_max_narrow<D: Storage, E: Half>(
    a: &Csr<'_, D>,
    x: &D::View<'_, E>,
    factor: Option<&D::View<'_, D::Scalar>>,
    out: &MatrixMut<'_, D>,
    argmax: &D::ViewMut<'_, u32>,
) -> Result<()> {
    check_product_of_narrow::<D, E>("spmm_max_narrow", a, x, factor, out)?;
    check_no_edge(a)?;
    check_length("argmax", D::view_mut_len(argmax), out.rows * out.cols)
}

/// The positions of the transpose, if the arguments of [`Narrow::spmm_max_backward_narrow`] fit together.
pub(crate) fn check_spmm_max_backward_narrow<'a, D: Storage, E: Half>(
    a: &Csr<'a, D>,
    argmax: &D::View<'_, u32>,
    dout: &D::View<'_, E>,
    factor: Option<&D::View<'_, D::Scalar>>,
    dx: &MatrixMut<'_, D>,
) -> Result<D::View<'a, u32>> {
    check_product_of_narrow::<D, E>("spmm_max_backward_narrow", a, dout, factor, dx)?;
    check_length("argmax", D::view_len(argmax), D::view_len(dout))?;
    positions_of_transpose(a)
}
