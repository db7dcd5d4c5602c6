//! Dense products on the CPU: blocks of rows, or of the inner dimension, each given whole to the `gemm` crate.
//!
//! The products of training have one very long dimension, the vertices. Where it is a dimension of the result, tasks
//! take blocks of its rows. Where it is the inner one (a weight's gradient), tasks take blocks of it, and the blocks'
//! products are added in order. Blocks depend on the shapes alone: the same result for any number of threads.

use gemm_common::Parallelism;

use super::elementwise::bias_activate_rows;
use super::kernels::kernels;
use super::parallel::{Rows, add_assign, for_blocks, for_rows, write_all};
use crate::device::{
    Activation, Cpu, Gemm, Matrix, MatrixMut, Scalar, Storage, Write, check_gemm, check_terms, linear_apart,
};
use crate::error::{Result, try_filled};

/// The two factors of a product.
type Factors<'a, 'b, S> = (Matrix<'a, Cpu<S>>, Matrix<'b, Cpu<S>>);

kernels! {
    impl Gemm by GemmKernels {
        fn gemm(
            a: Matrix<'_, Cpu<S>>,
            transpose_a: bool,
            b: Matrix<'_, Cpu<S>>,
            transpose_b: bool,
            out: MatrixMut<'_, Cpu<S>>,
            write: Write,
        ) -> Result<()>;
        fn linear(
            terms: &[Factors<'_, '_, S>],
            bias: Option<&[S]>,
            activation: Option<Activation>,
            out: MatrixMut<'_, Cpu<S>>,
        ) -> Result<()>;
    }
}

fn gemm<S: Scalar>(
    device: &Cpu<S>,
    a: Matrix<'_, Cpu<S>>,
    transpose_a: bool,
    b: Matrix<'_, Cpu<S>>,
    transpose_b: bool,
    out: MatrixMut<'_, Cpu<S>>,
    write: Write,
) -> Result<()> {
    let shape @ [m, k, n] = check_gemm(&a, transpose_a, &b, transpose_b, &out)?;
    let (a, b) = (Operand::new(&a, transpose_a), Operand::new(&b, transpose_b));
    if m == 0 || n == 0 {
        return Ok(());
    }
    if is_inner(shape) {
        let n_blocks = (k / MIN_INNER_BLOCK).min(MAX_INNER_BLOCKS);
        let block = k.div_ceil(n_blocks);
        inner_blocks(a, b, out.data, write, block)
    } else {
        let block = block_rows(shape);
        if transpose_b && block < m {
            // Otherwise each block would gather the columns again.
            let mut rows = device.allocate::<S>(k * n)?;
            transpose(b.data, n, k, &mut rows);
            row_blocks(&[(a, Operand::dense(&rows, k, n))], out.data, n, write, block, |_| ())
        } else {
            row_blocks(&[(a, b)], out.data, n, write, block, |_| ())
        }
    }
}

fn linear<S: Scalar>(
    device: &Cpu<S>,
    terms: &[Factors<'_, '_, S>],
    bias: Option<&[S]>,
    activation: Option<Activation>,
    out: MatrixMut<'_, Cpu<S>>,
) -> Result<()> {
    check_terms(terms, bias.as_ref(), &out)?;
    let (m, n) = (out.rows, out.cols);
    let k: usize = terms.iter().map(|(a, _)| a.cols).sum();
    let block = block_rows([m, k, n]);
    if block >= m || n == 0 || terms.iter().any(|(a, _)| is_inner([m, a.cols, n])) {
        return linear_apart(device, terms, bias, activation, out);
    }
    let operands: Vec<_> =
        terms.iter().map(|(a, b)| (Operand::new(a, false), Operand::new(b, false))).collect();
    // Bias and activation are applied while the block is still in cache.
    row_blocks(&operands, out.data, n, Write::Assign, block, |out| {
        if bias.is_some() || activation.is_some() {
            bias_activate_rows(bias, activation, out, n);
        }
    })
}

/// Whether a product `[m, k, n]` is cut along its inner dimension.
fn is_inner([m, k, n]: [usize; 3]) -> bool {
    k >= 2 * MIN_INNER_BLOCK && m.saturating_mul(n) <= MAX_PARTS
}

/// Rows per block of a product `[m, k, n]` that is cut by rows; `m` if all of them are one task.
fn block_rows([m, k, n]: [usize; 3]) -> usize {
    let flops = 2.0 * m as f64 * k as f64 * n as f64;
    if flops <= SMALL { m } else { m.div_ceil(64).clamp(MIN_ROWS, MAX_ROWS) }
}

/// Products of fewer floating-point operations are computed by the calling thread.
const SMALL: f64 = 2e6;

/// Limits of the rows per block: smaller blocks make more tasks, but each task packs the right operand for itself.
const MIN_ROWS: usize = 128;
const MAX_ROWS: usize = 1024;

/// Blocks of the inner dimension have at least `MIN_INNER_BLOCK` elements, and there are at most `MAX_INNER_BLOCKS` of
/// them. Each has its own result, of at most `MAX_PARTS` elements; a larger result has enough rows to cut it by rows.
const MIN_INNER_BLOCK: usize = 2048;
const MAX_INNER_BLOCKS: usize = 32;
const MAX_PARTS: usize = 1 << 18;

/// A matrix, or its transpose, or a part of either.
#[derive(Clone, Copy)]
pub(super) struct Operand<'a, S> {
    data: &'a [S],
    pub rows: usize,
    pub cols: usize,
    row_stride: usize,
    col_stride: usize,
}

impl<'a, S: Scalar> Operand<'a, S> {
    fn new(x: &Matrix<'a, Cpu<S>>, transpose: bool) -> Self {
        let plain = Operand::dense(x.data, x.rows, x.cols);
        if transpose { plain.transposed() } else { plain }
    }

    /// A whole row-major matrix.
    pub(super) fn dense(data: &'a [S], rows: usize, cols: usize) -> Self {
        Operand { data, rows, cols, row_stride: cols, col_stride: 1 }
    }

    pub(super) fn transposed(self) -> Self {
        Operand {
            data: self.data,
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
        }
    }

    /// Rows `first..` of at most `count` rows.
    fn rows(self, first: usize, count: usize) -> Self {
        let rows = count.min(self.rows - first);
        Operand { data: &self.data[first * self.row_stride..], rows, ..self }
    }

    /// Columns `first..` of at most `count` columns.
    fn cols(self, first: usize, count: usize) -> Self {
        self.transposed().rows(first, count).transposed()
    }

    /// Whether every element is inside of `data`.
    fn is_inside(&self) -> bool {
        let last = |count: usize, stride: usize| count.saturating_sub(1) * stride;
        self.rows == 0
            || self.cols == 0
            || last(self.rows, self.row_stride) + last(self.cols, self.col_stride) < self.data.len()
    }
}

/// `out[j, i] = x[i, j]`, where `x: [rows, cols]` is row-major, and `out` too.
pub(super) fn transpose<S: Copy>(x: &[S], rows: usize, cols: usize, out: &mut [S]) {
    // The elements of a column in so many rows are written together: a whole cache line of `out`.
    const LINE: usize = 16;
    for first in (0..rows).step_by(LINE) {
        let block = first..rows.min(first + LINE);
        for j in 0..cols {
            for i in block.clone() {
                out[j * rows + i] = x[i * cols + j];
            }
        }
    }
}

/// `out (= | +=) Σ a · b` over `terms`, followed by `finish`; each block of rows of `out`, `[_, cols]`, by one task.
fn row_blocks<S: Scalar>(
    terms: &[(Operand<'_, S>, Operand<'_, S>)],
    out: &mut [S],
    cols: usize,
    write: Write,
    block: usize,
    finish: impl Fn(&mut [S]) + Sync,
) -> Result<()> {
    for_blocks(out.len() / cols, block, Rows { data: out, cols }, &|_, rows, Rows { data: out, .. }| {
        let mut write = write;
        for &(a, b) in terms {
            multiply(a.rows(rows.start, block), b, out, write);
            write = Write::Add;
        }
        finish(out);
        Ok(())
    })
}

/// `out (= | +=) a · b`, each block of the inner dimension by one task.
fn inner_blocks<S: Scalar>(
    a: Operand<'_, S>,
    b: Operand<'_, S>,
    out: &mut [S],
    write: Write,
    block: usize,
) -> Result<()> {
    let n_blocks = a.cols.div_ceil(block);
    let asked = format_args!("a product of {} elements in {n_blocks} parts", out.len());
    let mut parts = try_filled("the parts of a product", S::zero(), n_blocks * out.len(), asked)?;
    let products = Rows { data: &mut parts[..], cols: out.len() };
    for_blocks(n_blocks, 1, products, &|i, _, part: Rows<'_, S>| {
        multiply(a.cols(i * block, block), b.rows(i * block, block), part.data, Write::Assign);
        Ok(())
    })?;
    let (len, cols) = (out.len(), b.cols);
    for_rows(out, cols, |rows, out| {
        let elements = rows.start * cols..rows.end * cols;
        let (total, others) = parts.split_at(len);
        let mut total = total[elements.clone()].to_vec();
        others.chunks_exact(len).for_each(|part| add_assign(&mut total, &part[elements.clone()]));
        write_all(out, total.into_iter(), write);
    });
    Ok(())
}

/// [`Gemm::gemm`] on this thread alone, of shapes that were checked: for devices that are emulated.
#[cfg(feature = "emulate")]
pub(in crate::device) fn multiply_matrices<S: Scalar>(
    [a, b]: [Matrix<'_, Cpu<S>>; 2],
    [transpose_a, transpose_b]: [bool; 2],
    out: &mut [S],
    write: Write,
) {
    multiply(Operand::new(&a, transpose_a), Operand::new(&b, transpose_b), out, write);
}

/// `out (= | +=) a · b` on this thread.
pub(super) fn multiply<S: Scalar>(a: Operand<'_, S>, b: Operand<'_, S>, out: &mut [S], write: Write) {
    assert!(a.cols == b.rows && out.len() == a.rows * b.cols && a.is_inside() && b.is_inside());
    if a.cols == 0 {
        if write == Write::Assign {
            out.fill(S::zero());
        }
        return;
    }
    // The kernels write columns; rows are the columns of the transposed product, which is bᵀ · aᵀ.
    let (a, b, [row_stride, col_stride]) =
        if b.cols > 1 { (b.transposed(), a.transposed(), [1, b.cols]) } else { (a, b, [b.cols, 1]) };
    // SAFETY: by the assertion above, all elements that the shapes and strides address lie inside of `a.data`,
    // `b.data` and `out`; `out` is borrowed exclusively, so it overlaps neither. Strides are lengths of slices or 1 and
    // fit an isize.
    unsafe {
        S::kernel()(
            a.rows,
            b.cols,
            a.cols,
            out.as_mut_ptr(),
            col_stride as isize,
            row_stride as isize,
            write == Write::Add,
            a.data.as_ptr(),
            a.col_stride as isize,
            a.row_stride as isize,
            b.data.as_ptr(),
            b.col_stride as isize,
            b.row_stride as isize,
            S::one(),
            S::one(),
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

/// `out = alpha · out + beta · a · b`: rows, columns and inner length; `out`, its strides (of columns, of rows) and
/// whether it is read; `a` and `b` with their strides; `alpha` and `beta`; which are conjugated; threads.
type Kernel<S> = unsafe fn(
    usize,
    usize,
    usize,
    *mut S,
    isize,
    isize,
    bool,
    *const S,
    isize,
    isize,
    *const S,
    isize,
    isize,
    S,
    S,
    bool,
    bool,
    bool,
    Parallelism,
);

/// A type that the `gemm` crates multiply.
pub trait Multiply: Sized {
    /// The kernel for this machine. It needs an `out` whose stride between columns is not shorter than that between
    /// rows.
    #[doc(hidden)]
    fn kernel() -> Kernel<Self>;
}

impl Multiply for f32 {
    fn kernel() -> Kernel<f32> {
        gemm_f32::gemm::f32::get_gemm_fn()
    }
}

impl Multiply for f64 {
    fn kernel() -> Kernel<f64> {
        gemm_f64::gemm::f64::get_gemm_fn()
    }
}
