//! Gather and scatter of rows on the CPU.
//!
//! Bound by memory: a row is read once and written once. Rows go to tasks in equal numbers; rows further on are
//! prefetched, as the hardware cannot guess where they are.

use std::any::TypeId;
use std::ops::Range;

use half::{bf16, f16};

use super::gather_aggregate;
use super::parallel::{
    Even, Rows, Split, TASK_ELEMENTS, add_assign, check_index, for_blocks, for_parts, for_rows,
};
use super::prefetch::Prefetch;
use super::vectors::vectorized;
use crate::device::{
    Cpu, Csr, Dtype, Element, FeatureElement, Gather, IndexedRows, Matrix, MatrixMut, Scalar, Weights,
    check_gather, check_narrow_index, check_scatter_add,
};
use crate::error::{Error, Result};

impl<S: Scalar> Gather for Cpu<S> {
    fn gather<E: FeatureElement>(
        &self,
        table: &[E],
        n_table: usize,
        index: &[u32],
        out: MatrixMut<'_, Self>,
    ) -> Result<()> {
        <S as GatherKernels<S>>::gather(table, n_table, index, out)
    }

    fn narrow_index(&self, index: &[u64], limit: usize, out: &mut [u32]) -> Result<()> {
        check_narrow_index::<Self>(&index, limit, &out)?;
        for (position, (out, &index)) in out.iter_mut().zip(index).enumerate() {
            if index >= limit as u64 {
                return Err(Error::IndexOutOfRange {
                    array: "index",
                    position: position as u64,
                    value: i64::try_from(index).unwrap_or(i64::MAX),
                    limit: limit as u64,
                });
            }
            *out = index as u32;
        }
        Ok(())
    }

    fn scatter_add(&self, x: Matrix<'_, Self>, index: &[u32], out: MatrixMut<'_, Self>) -> Result<()> {
        <S as GatherKernels<S>>::scatter_add(x, index, out)
    }

    fn gather_aggregate<E: FeatureElement>(
        &self,
        x: IndexedRows<'_, Self, E>,
        a: Csr<'_, Self>,
        weights: Weights<'_, Self>,
        own: Option<&[S]>,
        out: MatrixMut<'_, Self>,
    ) -> Result<()> {
        <S as GatherKernels<S>>::gather_aggregate(x, a, weights, own, out)
    }
}

/// The kernels of a scalar, compiled here as those of [`kernels`](super::kernels) are: the element type finds them in
/// [`Gathered`].
pub trait GatherKernels<S> {
    /// [`Gather::gather`]. Errors: the same.
    fn gather<E: FeatureElement>(
        table: &[E],
        n_table: usize,
        index: &[u32],
        out: MatrixMut<'_, Cpu<S>>,
    ) -> Result<()>
    where
        S: Scalar;

    /// [`Gather::scatter_add`]. Errors: the same.
    fn scatter_add(x: Matrix<'_, Cpu<S>>, index: &[u32], out: MatrixMut<'_, Cpu<S>>) -> Result<()>
    where
        S: Scalar;

    /// [`Gather::gather_aggregate`]. Errors: the same.
    fn gather_aggregate<E: FeatureElement>(
        x: IndexedRows<'_, Cpu<S>, E>,
        a: Csr<'_, Cpu<S>>,
        weights: Weights<'_, Cpu<S>>,
        own: Option<&[S]>,
        out: MatrixMut<'_, Cpu<S>>,
    ) -> Result<()>
    where
        S: Scalar;
}

/// The kernels of an element type and a scalar.
pub trait Gathered<S>: Sized {
    /// [`Gather::gather`]. Errors: the same.
    fn gather(table: &[Self], n_table: usize, index: &[u32], out: MatrixMut<'_, Cpu<S>>) -> Result<()>
    where
        S: Scalar;

    /// [`Gather::gather_aggregate`]. Errors: the same.
    fn gather_aggregate(
        x: IndexedRows<'_, Cpu<S>, Self>,
        a: Csr<'_, Cpu<S>>,
        weights: Weights<'_, Cpu<S>>,
        own: Option<&[S]>,
        out: MatrixMut<'_, Cpu<S>>,
    ) -> Result<()>
    where
        S: Scalar,
        Self: FeatureElement;
}

macro_rules! gather_kernels {
    ($scalar:ident: $($element:ident)*) => {
        impl GatherKernels<$scalar> for $scalar {
            fn gather<E: FeatureElement>(
                table: &[E],
                n_table: usize,
                index: &[u32],
                out: MatrixMut<'_, Cpu<$scalar>>,
            ) -> Result<()> {
                <E as Gathered<$scalar>>::gather(table, n_table, index, out)
            }

            fn scatter_add(
                x: Matrix<'_, Cpu<$scalar>>,
                index: &[u32],
                out: MatrixMut<'_, Cpu<$scalar>>,
            ) -> Result<()> {
                scatter_add(x, index, out)
            }

            fn gather_aggregate<E: FeatureElement>(
                x: IndexedRows<'_, Cpu<$scalar>, E>,
                a: Csr<'_, Cpu<$scalar>>,
                weights: Weights<'_, Cpu<$scalar>>,
                own: Option<&[$scalar]>,
                out: MatrixMut<'_, Cpu<$scalar>>,
            ) -> Result<()> {
                <E as Gathered<$scalar>>::gather_aggregate(x, a, weights, own, out)
            }
        }

        $(impl Gathered<$scalar> for $element {
            fn gather(
                table: &[$element],
                n_table: usize,
                index: &[u32],
                out: MatrixMut<'_, Cpu<$scalar>>,
            ) -> Result<()> {
                gather(table, n_table, index, out)
            }

            fn gather_aggregate(
                x: IndexedRows<'_, Cpu<$scalar>, $element>,
                a: Csr<'_, Cpu<$scalar>>,
                weights: Weights<'_, Cpu<$scalar>>,
                own: Option<&[$scalar]>,
                out: MatrixMut<'_, Cpu<$scalar>>,
            ) -> Result<()> {
                gather_aggregate::gather_aggregate(x, a, weights, own, out)
            }
        })*
    };
}

gather_kernels!(f32: f16 bf16 f32 f64);
gather_kernels!(f64: f16 bf16 f32 f64);

fn gather<E: FeatureElement, S: Scalar>(
    table: &[E],
    n_table: usize,
    index: &[u32],
    out: MatrixMut<'_, Cpu<S>>,
) -> Result<()> {
    check_gather(&table, n_table, &index, &out)?;
    check_index("index", index, n_table)?;
    let (data, dim) = (out.data, out.cols);
    gather_rows(table, index, data, dim, widen_row::<E, S>);
    Ok(())
}

fn scatter_add<S: Scalar>(x: Matrix<'_, Cpu<S>>, index: &[u32], out: MatrixMut<'_, Cpu<S>>) -> Result<()> {
    check_scatter_add(&x, &index, &out)?;
    check_index("index", index, out.rows)?;
    let dim = x.cols;
    if x.data.is_empty() {
        return Ok(());
    }
    // Each task owns a range of destinations and looks through all of `index` for them: no atomics, and every
    // destination's rows come in order.
    let n_tasks = if x.data.len() <= TASK_ELEMENTS { 1 } else { rayon::current_num_threads() };
    let rows_per_task = out.rows.div_ceil(n_tasks);
    let rows = Rows { data: out.data, cols: dim };
    for_blocks(out.rows, rows_per_task, rows, &|_, range, Rows { data: part, .. }| {
        let (first, n_rows) = (range.start, range.len());
        vectorized!(
            S,
            #[inline(always)]
            |_| {
                for (&i, row) in index.iter().zip(x.data.chunks_exact(dim)) {
                    let i = (i as usize).wrapping_sub(first);
                    if i < n_rows {
                        add_assign(&mut part[i * dim..][..dim], row);
                    }
                }
            },
        );
        Ok(())
    })
}

/// Outputs of at least this many bytes are written past the caches, which could not keep them until they are read: a
/// plain store would first read the line that it writes to.
const STREAMED_BYTES: usize = 64 << 20;

/// `convert(table[index[i], :], out[i, :])`; all of `index` is in range.
#[inline(always)]
fn gather_rows<E: Element, S: Element>(
    table: &[E],
    index: &[u32],
    out: &mut [S],
    dim: usize,
    convert: impl Fn(&[E], &mut [S]) + Sync,
) {
    let streams = size_of_val(out) >= STREAMED_BYTES;
    let is_same = TypeId::of::<E>() == TypeId::of::<S>();
    for_rows(out, dim, |rows: Range<usize>, out| {
        let prefetch = Prefetch::for_copies();
        let mut converted = vec![S::zeroed(); if streams { dim } else { 0 }];
        vectorized!(
            S,
            #[inline(always)]
            |_| {
                let index = &index[rows];
                for (k, (&i, out)) in index.iter().zip(out.chunks_exact_mut(dim)).enumerate() {
                    if let Some(&later) = index.get(k + prefetch.ahead) {
                        prefetch.row(table, dim, later as usize);
                    }
                    let row = &table[i as usize * dim..][..dim];
                    if streams && is_same {
                        stream(bytemuck::cast_slice(row), out);
                    } else if streams {
                        convert(row, &mut converted);
                        stream(&converted, out);
                    } else {
                        convert(row, out);
                    }
                }
            },
        );
        if streams {
            finish_streams();
        }
    });
}

/// Copies a row past the caches, if it is aligned to whole vectors. Other threads may read it after [`finish_streams`].
#[inline(always)]
fn stream<S: Element>(row: &[S], out: &mut [S]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
        const VECTOR: usize = size_of::<__m128i>();
        let bytes = size_of_val(row);
        if bytes == size_of_val(out)
            && bytes.is_multiple_of(VECTOR)
            && out.as_ptr().cast::<__m128i>().is_aligned()
        {
            let (from, to) = (row.as_ptr().cast::<__m128i>(), out.as_mut_ptr().cast::<__m128i>());
            for i in 0..bytes / VECTOR {
                // SAFETY: both slices have `bytes` bytes, and `to` is aligned; plain numbers may be copied by bytes.
                unsafe { _mm_stream_si128(to.add(i), _mm_loadu_si128(from.add(i))) };
            }
            return;
        }
    }
    out.copy_from_slice(row);
}

/// Makes what this thread has streamed visible to the threads that it synchronises with next.
#[inline(always)]
fn finish_streams() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a fence touches no memory.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// A row to be copied: `out[to, :] = table[from, :]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowCopy {
    pub to: u32,
    pub from: u32,
}

/// `convert(table[from, :], out[to, :])` for each of `copies`, which ascend in `to` without repeats; all rows are in
/// range. The other rows of `out` are left alone.
#[inline(always)]
pub(crate) fn copy_rows<E: Element, T: Element>(
    table: &[E],
    copies: &[RowCopy],
    out: &mut [T],
    dim: usize,
    convert: impl Fn(&[E], &mut [T]) + Sync,
) {
    debug_assert!(copies.is_sorted_by(|a, b| a.to < b.to));
    if dim == 0 {
        return;
    }
    let targets = Targets { copies, first: 0, data: out, dim };
    let prefetch = Prefetch::for_copies();
    for_parts(&Even(dim), 0..copies.len(), targets, &|_, targets: Targets<'_, T>| {
        vectorized!(
            #[inline(always)]
            |_| {
                let Targets { copies, first, data, .. } = targets;
                for (k, copy) in copies.iter().enumerate() {
                    if let Some(later) = copies.get(k + prefetch.ahead) {
                        prefetch.row(table, dim, later.from as usize);
                    }
                    let row = &table[copy.from as usize * dim..][..dim];
                    convert(row, &mut data[(copy.to as usize - first) * dim..][..dim]);
                }
            },
        );
    });
}

/// Rows of a matrix from row `first` on, some of which are written: items are copies.
struct Targets<'a, T> {
    copies: &'a [RowCopy],
    first: usize,
    data: &'a mut [T],
    dim: usize,
}

impl<T: Send> Split for Targets<'_, T> {
    fn split(self, at: usize) -> (Self, Self) {
        let Targets { copies, first, data, dim } = self;
        let (head_copies, tail_copies) = copies.split_at(at);
        let cut = tail_copies.first().map_or(data.len(), |copy| (copy.to as usize - first) * dim);
        let (head, tail) = data.split_at_mut(cut);
        let tail_first = first + cut / dim;
        (
            Targets { copies: head_copies, first, data: head, dim },
            Targets { copies: tail_copies, first: tail_first, data: tail, dim },
        )
    }
}

/// `out[i] = row[i]`, widened (to `f64`, or exactly to `f32`; `f64` is rounded to `f32`).
#[inline(always)]
pub(crate) fn widen_row<E: FeatureElement, S: Scalar>(row: &[E], out: &mut [S]) {
    match (E::DTYPE, S::DTYPE) {
        (Dtype::F32, Dtype::F32) | (Dtype::F64, Dtype::F64) => out.copy_from_slice(bytemuck::cast_slice(row)),
        (Dtype::F16, Dtype::F32) => widen_f16(bytemuck::cast_slice(row), bytemuck::cast_slice_mut(out)),
        (Dtype::Bf16, Dtype::F32) => widen_bf16(bytemuck::cast_slice(row), bytemuck::cast_slice_mut(out)),
        _ => out.iter_mut().zip(row).for_each(|(out, value)| *out = S::from_f64(value.widen_f64())),
    }
}

/// Exact. Uses integer and float operations that every vector unit has, rather than a conversion instruction that only
/// some have; no branches, and no subnormal `f32`s, which are slow.
#[inline(always)]
pub(super) fn f16_to_f32(value: f16) -> f32 {
    // The exponents' biases differ by 127 − 15.
    const REBIAS: u32 = 112 << 23;
    // 2^-14, the smallest normal f16.
    const SMALLEST: u32 = 113 << 23;
    let bits = u32::from(value.to_bits());
    let magnitude = (bits & 0x7fff) << 13;
    let sign = (bits & 0x8000) << 16;
    let normal = magnitude + REBIAS;
    // Infinity and NaN: the largest exponent stays the largest.
    let special = normal + REBIAS;
    // Subnormal: the mantissa as a fraction of 2^-14, by subtracting the implicit one.
    let subnormal = (f32::from_bits(magnitude + SMALLEST) - f32::from_bits(SMALLEST)).to_bits();
    let exponent = bits & 0x7c00;
    let finite = if exponent == 0 { subnormal } else { normal };
    f32::from_bits(sign | if exponent == 0x7c00 { special } else { finite })
}

/// Exact: a bf16 is the upper half of an f32.
#[inline(always)]
pub(super) fn bf16_to_f32(value: bf16) -> f32 {
    f32::from_bits(u32::from(value.to_bits()) << 16)
}

#[inline(always)]
fn widen_f16(row: &[f16], out: &mut [f32]) {
    for (out, value) in out.iter_mut().zip(row) {
        *out = f16_to_f32(*value);
    }
}

#[inline(always)]
fn widen_bf16(row: &[bf16], out: &mut [f32]) {
    for (out, value) in out.iter_mut().zip(row) {
        *out = bf16_to_f32(*value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copied_rows_go_where_they_belong_and_others_stay() {
        let dim = 100;
        let table: Vec<f32> = (0..1000 * dim).map(|i| i as f32).collect();
        let copies: Vec<RowCopy> =
            (0..2000).filter(|i| i % 3 != 0).map(|i| RowCopy { to: i, from: i * 7 % 1000 }).collect();
        let mut out = vec![-1f32; 2000 * dim];
        let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build().unwrap();
        pool.install(|| copy_rows(&table, &copies, &mut out, dim, widen_row::<f32, f32>));
        for (i, row) in out.chunks(dim).enumerate() {
            let from = i * 7 % 1000;
            let copied = i % 3 != 0 && row == &table[from * dim..][..dim];
            assert!(copied || i % 3 == 0 && row == vec![-1.0; dim], "row {i}");
        }
        copy_rows::<f32, f32>(&[], &copies, &mut [], 0, widen_row);
    }

    #[test]
    fn streamed_rows_are_copied_wherever_they_lie() {
        let row: Vec<u16> = (0..64).collect();
        let mut out = [0u16; 80];
        for first in 0..16 {
            for len in 0..=64 {
                out.fill(u16::MAX);
                stream(&row[..len], &mut out[first..first + len]);
                finish_streams();
                assert_eq!(out[first..first + len], row[..len]);
                assert!(out[..first].iter().chain(&out[first + len..]).all(|&v| v == u16::MAX));
            }
        }
    }

    #[test]
    fn an_output_beyond_the_caches_is_right() {
        let (dim, n) = (64, STREAMED_BYTES / 4 / 64 + 3);
        let table: Vec<f16> = (0..100 * dim).map(|i| f16::from_f32((i % 2000) as f32)).collect();
        let index: Vec<u32> = (0..n as u32).map(|i| i * 7 % 100).collect();
        let mut out = vec![-1f32; n * dim];
        gather_rows(&table, &index, &mut out, dim, widen_row::<f16, f32>);
        for (&i, row) in index.iter().zip(out.chunks(dim)) {
            let expected = (0..dim).map(|k| ((i as usize * dim + k) % 2000) as f32);
            assert!(row.iter().copied().eq(expected), "row {i}");
        }
    }

    #[test]
    fn every_half_widens_exactly() {
        let bits: Vec<u16> = (0..=u16::MAX).collect();
        let mut out = vec![0f32; bits.len()];
        widen_f16(bytemuck::cast_slice(&bits), &mut out);
        for (&bits, out) in bits.iter().zip(&out) {
            let expected = f16::from_bits(bits).to_f32();
            assert!(
                out.to_bits() == expected.to_bits() || out.is_nan() && expected.is_nan(),
                "{bits:#x}: {out}"
            );
        }
        widen_bf16(bytemuck::cast_slice(&bits), &mut out);
        for (&bits, out) in bits.iter().zip(&out) {
            let expected = bf16::from_bits(bits).to_f32();
            assert!(
                out.to_bits() == expected.to_bits() || out.is_nan() && expected.is_nan(),
                "{bits:#x}: {out}"
            );
        }
    }
}
