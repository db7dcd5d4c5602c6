//! Rows of 16 bits on the CPU.
//!
//! Bound by memory: [`Narrow::narrow`] reads each element once (with factors twice, the second time from cache) and
//! writes half as many bytes; the sums and maxima are those of `spmm.rs`, in the same order, of rows that are widened
//! in registers.

use std::ops::Range;

use half::{bf16, f16};

use super::gather::{bf16_to_f32, f16_to_f32, widen_row};
use super::parallel::{ByEdges, Even, Rows, Tile, check_csr, for_elements, for_parts, for_tiles, runs};
use super::prefetch::Prefetch;
use super::spmm::{Terms, each_row, entry_weight, row_tile, sum_row};
use super::vectors::vectorized;
use crate::device::{
    Cpu, Csr, Dtype, Elementwise, Half, Matrix, MatrixMut, Narrow, Scalar, Storage, Weights, Write,
    check_narrow, check_spmm_max_backward_narrow, check_spmm_max_narrow, check_spmm_narrow,
};
use crate::error::{Result, check_length};

/// A call of one of the family's kernels.
pub enum Call<'a, E, S: Scalar> {
    /// [`Narrow::narrow`]
    Narrow { x: Matrix<'a, Cpu<S>>, out: &'a mut [E], factor: Option<&'a mut [S]> },
    /// [`Narrow::widen`]
    Widen { x: &'a [E], out: &'a mut [S] },
    /// [`Narrow::spmm_narrow`]
    Spmm {
        a: Csr<'a, Cpu<S>>,
        weights: Weights<'a, Cpu<S>>,
        x: &'a [E],
        out: MatrixMut<'a, Cpu<S>>,
        write: Write,
    },
    /// [`Narrow::spmm_max_narrow`]
    Max {
        a: Csr<'a, Cpu<S>>,
        x: &'a [E],
        factor: Option<&'a [S]>,
        out: MatrixMut<'a, Cpu<S>>,
        argmax: &'a mut [u32],
    },
    /// [`Narrow::spmm_max_backward_narrow`]
    MaxBackward {
        a: Csr<'a, Cpu<S>>,
        argmax: &'a [u32],
        dout: &'a [E],
        factor: Option<&'a [S]>,
        dx: MatrixMut<'a, Cpu<S>>,
        write: Write,
    },
}

impl<S: Scalar> Narrow for Cpu<S> {
    fn narrow<E: Half>(&self, x: Matrix<'_, Self>, out: &mut [E], factor: Option<&mut [S]>) -> Result<()> {
        let x = Matrix { data: x.data, rows: x.rows, cols: x.cols };
        S::call(Call::Narrow { x, out, factor })
    }

    fn widen<E: Half>(&self, x: &[E], out: &mut [S]) -> Result<()> {
        S::call(Call::Widen { x, out })
    }

    fn spmm_narrow<E: Half>(
        &self,
        a: Csr<'_, Self>,
        weights: Weights<'_, Self>,
        x: &[E],
        factor: Option<&[S]>,
        out: MatrixMut<'_, Self>,
        write: Write,
    ) -> Result<()> {
        check_spmm_narrow(&a, &weights, &x, factor.as_ref(), &out)?;
        let product = match (factor, weights.column) {
            (Some(factor), Some(column)) => {
                let mut product = self.allocate(factor.len())?;
                self.multiply(factor, column, &mut product, Write::Assign)?;
                Some(product)
            }
            _ => None,
        };
        let column = product.as_deref().or(weights.column).or(factor);
        let weights = Weights { edge: weights.edge, row: weights.row, column };
        let out = MatrixMut { data: out.data, rows: out.rows, cols: out.cols };
        S::call(Call::Spmm { a: shorter(a), weights, x, out, write })
    }

    fn spmm_max_narrow<E: Half>(
        &self,
        a: Csr<'_, Self>,
        x: &[E],
        factor: Option<&[S]>,
        out: MatrixMut<'_, Self>,
        argmax: &mut [u32],
    ) -> Result<()> {
        let out = MatrixMut { data: out.data, rows: out.rows, cols: out.cols };
        S::call(Call::Max { a: shorter(a), x, factor, out, argmax })
    }

    fn spmm_max_backward_narrow<E: Half>(
        &self,
        a: Csr<'_, Self>,
        argmax: &[u32],
        dout: &[E],
        factor: Option<&[S]>,
        dx: MatrixMut<'_, Self>,
        write: Write,
    ) -> Result<()> {
        let dx = MatrixMut { data: dx.data, rows: dx.rows, cols: dx.cols };
        S::call(Call::MaxBackward { a: shorter(a), argmax, dout, factor, dx, write })
    }
}

/// The same pattern: its lifetime would otherwise be that of all arguments of a [`Call`].
fn shorter<'short, 'long: 'short, S: Scalar>(a: Csr<'long, Cpu<S>>) -> Csr<'short, Cpu<S>> {
    let Csr { n_rows, n_cols, indptr, indices, edge, longest_row } = a;
    Csr { n_rows, n_cols, indptr, indices, edge, longest_row }
}

/// The kernels of a scalar, compiled here as those of [`kernels`](super::kernels) are: the element type finds them in
/// [`Narrowed`].
pub trait NarrowKernels<S> {
    /// Runs a kernel. Errors: those of the [`Narrow`] method.
    fn call<E: Half>(call: Call<'_, E, S>) -> Result<()>
    where
        S: Scalar;
}

/// The kernels of an element type and a scalar.
pub trait Narrowed<S>: Sized {
    /// Runs a kernel. Errors: those of the [`Narrow`] method.
    fn call(call: Call<'_, Self, S>) -> Result<()>
    where
        S: Scalar;
}

macro_rules! narrow_kernels {
    ($scalar:ident: $($element:ident)*) => {
        impl NarrowKernels<$scalar> for $scalar {
            fn call<E: Half>(call: Call<'_, E, $scalar>) -> Result<()> {
                <E as Narrowed<$scalar>>::call(call)
            }
        }

        $(impl Narrowed<$scalar> for $element {
            fn call(call: Call<'_, $element, $scalar>) -> Result<()> {
                run(call)
            }
        })*
    };
}

narrow_kernels!(f32: f16 bf16);
narrow_kernels!(f64: f16 bf16);

fn run<E: Half, S: Scalar>(call: Call<'_, E, S>) -> Result<()> {
    match call {
        Call::Narrow { x, out, factor } => narrow(x, out, factor),
        Call::Widen { x, out } => {
            check_length("out", out.len(), x.len())?;
            for_elements(out, |range, out| {
                vectorized!(
                    S,
                    #[inline(always)]
                    |_| widen_row(&x[range], out),
                );
            });
            Ok(())
        }
        Call::Spmm { a, weights, x, out, write } => spmm(a, weights, x, out, write),
        Call::Max { a, x, factor, out, argmax } => spmm_max(a, x, factor, out, argmax),
        Call::MaxBackward { a, argmax, dout, factor, dx, write } => {
            spmm_max_backward(a, argmax, dout, factor, dx, write)
        }
    }
}

/// The value in the device's scalar.
#[inline(always)]
fn widen<E: Half, S: Scalar>(value: E) -> S {
    let wide = match E::DTYPE {
        Dtype::F16 => f16_to_f32(f16::from_bits(bytemuck::cast(value))),
        _ => bf16_to_f32(bf16::from_bits(bytemuck::cast(value))),
    };
    from_f32(wide)
}

/// Exact.
#[inline(always)]
fn from_f32<S: Scalar>(value: f32) -> S {
    match S::DTYPE {
        Dtype::F32 => bytemuck::cast(value),
        _ => S::from_f64(value.into()),
    }
}

fn narrow<E: Half, S: Scalar>(x: Matrix<'_, Cpu<S>>, out: &mut [E], factor: Option<&mut [S]>) -> Result<()> {
    check_narrow::<Cpu<S>, E>(&x, &out, factor.as_ref())?;
    let Some(factor) = factor else {
        for_elements(out, |range, out| {
            vectorized!(
                S,
                #[inline(always)]
                |_| {
                    for (out, x) in out.iter_mut().zip(&x.data[range]) {
                        *out = E::round(x.widen_f32());
                    }
                },
            );
        });
        return Ok(());
    };
    let dim = x.cols;
    if dim == 0 {
        factor.fill(S::one());
        return Ok(());
    }
    let rows = (Rows { data: out, cols: dim }, Rows { data: factor, cols: 1 });
    for_parts(
        &Even(dim),
        0..x.rows,
        rows,
        &|range: Range<usize>, (out, factor): (Rows<'_, E>, Rows<'_, S>)| {
            vectorized!(
                S,
                #[inline(always)]
                |_| {
                    let rows = out.data.chunks_exact_mut(dim).zip(&mut *factor.data);
                    for (x, (out, factor)) in x.data[range.start * dim..].chunks_exact(dim).zip(rows) {
                        let mut largest = S::zero();
                        for x in x {
                            let magnitude = x.abs();
                            let is_larger = magnitude > largest && magnitude < S::infinity();
                            largest = if is_larger { magnitude } else { largest };
                        }
                        let scale;
                        (scale, *factor) = scales(largest);
                        for (out, &x) in out.iter_mut().zip(x) {
                            *out = E::round((x * scale).widen_f32());
                        }
                    }
                },
            );
        },
    );
    Ok(())
}

/// The power of two that takes `largest`, which is finite, into 2^14..2^15, at most 2^100; and its inverse.
#[inline(always)]
fn scales<S: Scalar>(largest: S) -> (S, S) {
    if largest == S::zero() {
        return (S::one(), S::one());
    }
    let (mantissa, exponent, _) = largest.integer_decode();
    let logarithm = i64::from(exponent) + i64::from(mantissa.ilog2());
    let power = |exponent: i64| S::from_f64(f64::from_bits(((1023 + exponent) as u64) << 52));
    let exponent = (14 - logarithm).min(100);
    (power(exponent), power(-exponent))
}

/// Arguments have been checked, except for those that only their elements show.
fn spmm<'a, E: Half, S: Scalar>(
    a: Csr<'a, Cpu<S>>,
    weights: Weights<'a, Cpu<S>>,
    x: &'a [E],
    out: MatrixMut<'_, Cpu<S>>,
    write: Write,
) -> Result<()> {
    check_csr(&a)?;
    let dim = out.cols;
    let work = ByEdges { indptr: a.indptr, dim };
    let rows = Rows { data: out.data, cols: dim };
    let product = Product { a, weights, x, dim, write, prefetch: Prefetch::for_sums() };
    if weights.edge.is_none() && weights.column.is_none() {
        for_parts(&work, 0..a.n_rows, rows, &|range: Range<usize>, out: Rows<'_, S>| {
            product.rows::<false>(range, out);
        });
    } else {
        for_parts(&work, 0..a.n_rows, rows, &|range: Range<usize>, out: Rows<'_, S>| {
            product.rows::<true>(range, out);
        });
    }
    Ok(())
}

/// What `out (= | +=) A x` reads.
struct Product<'a, E, S: Scalar> {
    a: Csr<'a, Cpu<S>>,
    weights: Weights<'a, Cpu<S>>,
    x: &'a [E],
    dim: usize,
    write: Write,
    prefetch: Prefetch,
}

impl<E: Half, S: Scalar> Product<'_, E, S> {
    /// Rows `range`. Without `WEIGHTED`, there are no factors that differ within a row.
    fn rows<const WEIGHTED: bool>(&self, range: Range<usize>, out: Rows<'_, S>) {
        each_row(
            range,
            out,
            #[inline(always)]
            |vectors, i, out, partial| {
                let entries = self.a.indptr[i] as usize..self.a.indptr[i + 1] as usize;
                let factor = self.weights.row.map(|row| row[i]);
                let terms = NarrowRows::<E, S, WEIGHTED>(self);
                sum_row(vectors, &terms, entries, out, partial, factor, self.write);
            },
        );
    }
}

/// The rows of `x`, widened, and times their weights if they have any.
struct NarrowRows<'p, 'a, E, S: Scalar, const WEIGHTED: bool>(&'p Product<'a, E, S>);

impl<E: Half, S: Scalar, const WEIGHTED: bool> Terms<S> for NarrowRows<'_, '_, E, S, WEIGHTED> {
    #[inline(always)]
    fn prefetch(&self, e: usize) {
        let &Product { a, x, dim, prefetch, .. } = self.0;
        if let Some(&j) = a.indices.get(e + prefetch.ahead) {
            prefetch.row(x, dim, j as usize);
        }
    }

    #[inline(always)]
    fn add<const W: usize>(&self, e: usize, column: usize, sum: &mut [S; W]) {
        let &Product { a, weights, x, dim, .. } = self.0;
        let j = a.indices[e];
        let x = row_tile::<E, W>(x, dim, j, column);
        if WEIGHTED {
            let position = || a.edge.map_or(e, |positions| positions[e] as usize);
            let weight = entry_weight(weights.edge, weights.column, position, j);
            for k in 0..W {
                sum[k] += weight * widen::<E, S>(x[k]);
            }
        } else {
            for k in 0..W {
                sum[k] += widen::<E, S>(x[k]);
            }
        }
    }
}

fn spmm_max<E: Half, S: Scalar>(
    a: Csr<'_, Cpu<S>>,
    x: &[E],
    factor: Option<&[S]>,
    out: MatrixMut<'_, Cpu<S>>,
    argmax: &mut [u32],
) -> Result<()> {
    check_csr(&a)?;
    check_spmm_max_narrow(&a, &x, factor.as_ref(), &out, &argmax)?;
    let dim = out.cols;
    let work = ByEdges { indptr: a.indptr, dim };
    let rows = (Rows { data: out.data, cols: dim }, Rows { data: argmax, cols: dim });
    let (indices, prefetch) = (a.indices, Prefetch::for_sums());
    for_parts(
        &work,
        0..a.n_rows,
        rows,
        &|range: Range<usize>, (out, argmax): (Rows<'_, S>, Rows<'_, u32>)| {
            if dim == 0 {
                return;
            }
            vectorized!(
                S,
                #[inline(always)]
                |vectors| {
                    let rows = out.data.chunks_exact_mut(dim).zip(argmax.data.chunks_exact_mut(dim));
                    for (i, (out, argmax)) in range.zip(rows) {
                        let row = a.indptr[i] as usize..a.indptr[i + 1] as usize;
                        for run in runs(row.clone()) {
                            let row = row.clone();
                            let mut tile = MaxRow { x, factor, indices, row, run, out, argmax, prefetch };
                            for_tiles(vectors, dim, &mut tile);
                        }
                    }
                },
            );
        },
    );
    Ok(())
}

/// One row of the maximum and of where it is attained: that of `spmm/max.rs`, of narrow rows.
struct MaxRow<'a, E, S> {
    x: &'a [E],
    factor: Option<&'a [S]>,
    indices: &'a [u32],
    /// All entries of the row.
    row: Range<usize>,
    /// The entries to look at now; all before them are done.
    run: Range<usize>,
    out: &'a mut [S],
    argmax: &'a mut [u32],
    prefetch: Prefetch,
}

impl<E: Half, S: Scalar> Tile for MaxRow<'_, E, S> {
    const MAX_WIDTH: usize = 32;
    const MAX_WIDTH_AVX512: usize = 128;

    #[inline(always)]
    fn run<const W: usize>(&mut self, column: usize, _skip: usize) {
        let dim = self.out.len();
        let (out, argmax) = (self.out[column..].first_chunk_mut(), self.argmax[column..].first_chunk_mut());
        let (Some(out), Some(argmax)) = (out, argmax) else { return };
        let (mut max, mut position) = ([S::zero(); W], [u32::MAX; W]);
        if self.run.start > self.row.start {
            (max, position) = (*out, *argmax);
        }
        for e in self.run.clone() {
            if column == 0
                && let Some(&later) = self.indices.get(e + self.prefetch.ahead)
            {
                self.prefetch.row(self.x, dim, later as usize);
            }
            let j = self.indices[e];
            let x = row_tile::<E, W>(self.x, dim, j, column);
            let factor = self.factor.map_or(S::one(), |factor| factor[j as usize]);
            for k in 0..W {
                let x = factor * widen::<E, S>(x[k]);
                // Strictly greater, so that the first of equal values stays; a NaN gives way to any number.
                let is_first = position[k] == u32::MAX;
                let takes = is_first | (x > max[k]) | (max[k].is_nan() & !x.is_nan());
                max[k] = if takes { x } else { max[k] };
                position[k] = if takes { e as u32 } else { position[k] };
            }
        }
        // A tile that overlaps its neighbour finds the same there.
        (*out, *argmax) = (max, position);
    }
}

fn spmm_max_backward<E: Half, S: Scalar>(
    a: Csr<'_, Cpu<S>>,
    argmax: &[u32],
    dout: &[E],
    factor: Option<&[S]>,
    dx: MatrixMut<'_, Cpu<S>>,
    write: Write,
) -> Result<()> {
    check_csr(&a)?;
    let edge = check_spmm_max_backward_narrow(&a, &argmax, &dout, factor.as_ref(), &dx)?;
    let dim = dx.cols;
    let work = ByEdges { indptr: a.indptr, dim };
    let terms =
        MaxGradient { indices: a.indices, edge, argmax, dout, factor, dim, prefetch: Prefetch::for_sums() };
    let rows = Rows { data: dx.data, cols: dim };
    for_parts(&work, 0..a.n_rows, rows, &|range: Range<usize>, dx: Rows<'_, S>| {
        each_row(
            range,
            dx,
            #[inline(always)]
            |vectors, j, dx, partial| {
                let entries = a.indptr[j] as usize..a.indptr[j + 1] as usize;
                sum_row(vectors, &terms, entries, dx, partial, None, write);
            },
        );
    });
    Ok(())
}

/// `dout` where entry `e` of the transpose was the maximum, and 0 elsewhere.
struct MaxGradient<'a, E, S> {
    indices: &'a [u32],
    edge: &'a [u32],
    argmax: &'a [u32],
    dout: &'a [E],
    factor: Option<&'a [S]>,
    dim: usize,
    prefetch: Prefetch,
}

impl<E: Half, S: Scalar> Terms<S> for MaxGradient<'_, E, S> {
    #[inline(always)]
    fn prefetch(&self, e: usize) {
        if let Some(&i) = self.indices.get(e + self.prefetch.ahead) {
            self.prefetch.row(self.argmax, self.dim, i as usize);
            self.prefetch.row(self.dout, self.dim, i as usize);
        }
    }

    #[inline(always)]
    fn add<const W: usize>(&self, e: usize, column: usize, sum: &mut [S; W]) {
        let (i, e) = (self.indices[e], self.edge[e]);
        let argmax = row_tile::<u32, W>(self.argmax, self.dim, i, column);
        let dout = row_tile::<E, W>(self.dout, self.dim, i, column);
        let factor = self.factor.map_or(S::one(), |factor| factor[i as usize]);
        for k in 0..W {
            sum[k] += if argmax[k] == e { factor * widen::<E, S>(dout[k]) } else { S::zero() };
        }
    }
}
