//! A value per edge on the CPU: dot products of the rows at its two ends.
//!
//! Rows go to tasks balanced by entries; the destination's row stays in the first-level cache while the sources' rows
//! are read. A dot product runs in a fixed number of lanes, whatever the vectors' width: the same result on every
//! machine.

use std::ops::Range;

use super::kernels::kernels;
use super::parallel::{ByEdges, Split, check_csr, for_parts, write_all};
use super::prefetch::Prefetch;
use super::vectors::vectorized;
use crate::device::{Cpu, Csr, Matrix, Scalar, Sddmm, Write, check_sddmm_add, check_sddmm_dot};
use crate::error::Result;

kernels! {
    impl Sddmm by SddmmKernels {
        fn sddmm_dot(
            a: Csr<'_, Cpu<S>>,
            x: Matrix<'_, Cpu<S>>,
            y: Matrix<'_, Cpu<S>>,
            heads: usize,
            out: &mut [S],
            write: Write,
        ) -> Result<()>;
        fn sddmm_add(
            a: Csr<'_, Cpu<S>>,
            x: Matrix<'_, Cpu<S>>,
            y: Matrix<'_, Cpu<S>>,
            out: &mut [S],
            write: Write,
        ) -> Result<()>;
    }
}

fn sddmm_dot<S: Scalar>(
    _device: &Cpu<S>,
    a: Csr<'_, Cpu<S>>,
    x: Matrix<'_, Cpu<S>>,
    y: Matrix<'_, Cpu<S>>,
    heads: usize,
    out: &mut [S],
    write: Write,
) -> Result<()> {
    check_csr(&a)?;
    check_sddmm_dot(&a, &x, &y, heads, &out)?;
    let (width, dim) = (x.cols, x.cols / heads);
    let work = ByEdges { indptr: a.indptr, dim: width.max(heads) };
    let out = Edges { indptr: a.indptr, data: out, heads };
    let prefetch = Prefetch::for_products();
    for_parts(&work, 0..a.n_rows, out, &|range: Range<usize>, out: Edges<'_, S>| {
        vectorized!(
            S,
            #[inline(always)]
            |_| {
                let mut out = out.data.chunks_exact_mut(heads);
                for i in range {
                    let y = &y.data[i * width..][..width];
                    let entries = a.indptr[i] as usize..a.indptr[i + 1] as usize;
                    for (e, &j) in entries.clone().zip(&a.indices[entries]) {
                        if let Some(&later) = a.indices.get(e + prefetch.ahead) {
                            prefetch.row(x.data, width, later as usize);
                        }
                        let x = &x.data[j as usize * width..][..width];
                        let Some(out) = out.next() else { return };
                        for (h, out) in out.iter_mut().enumerate() {
                            let value = dot(&x[h * dim..][..dim], &y[h * dim..][..dim]);
                            *out = if write == Write::Add { *out + value } else { value };
                        }
                    }
                }
            },
        );
    });
    Ok(())
}

fn sddmm_add<S: Scalar>(
    _device: &Cpu<S>,
    a: Csr<'_, Cpu<S>>,
    x: Matrix<'_, Cpu<S>>,
    y: Matrix<'_, Cpu<S>>,
    out: &mut [S],
    write: Write,
) -> Result<()> {
    check_csr(&a)?;
    check_sddmm_add(&a, &x, &y, &out)?;
    let cols = x.cols;
    let work = ByEdges { indptr: a.indptr, dim: cols };
    let out = Edges { indptr: a.indptr, data: out, heads: cols };
    for_parts(&work, 0..a.n_rows, out, &|range: Range<usize>, out: Edges<'_, S>| {
        if cols == 0 {
            return;
        }
        let mut out = out.data.chunks_exact_mut(cols);
        for i in range {
            let y = &y.data[i * cols..][..cols];
            let entries = a.indptr[i] as usize..a.indptr[i + 1] as usize;
            for (&j, out) in a.indices[entries].iter().zip(&mut out) {
                let x = &x.data[j as usize * cols..][..cols];
                write_all(out, x.iter().zip(y).map(|(&x, &y)| x + y), write);
            }
        }
    });
    Ok(())
}

/// Values at entries as output: items are rows.
pub(super) struct Edges<'a, S> {
    pub indptr: &'a [u32],
    pub data: &'a mut [S],
    pub heads: usize,
}

impl<S: Send> Split for Edges<'_, S> {
    fn split(self, at: usize) -> (Self, Self) {
        let n_head = (self.indptr[at] - self.indptr[0]) as usize * self.heads;
        let (head, tail) = self.data.split_at_mut(n_head);
        (
            Edges { indptr: &self.indptr[..=at], data: head, heads: self.heads },
            Edges { indptr: &self.indptr[at..], data: tail, heads: self.heads },
        )
    }
}

/// Lanes of a dot product: the widest vector of f32.
const LANES: usize = 16;

/// `Σ_k x[k] · y[k]`: lane l sums the k with k mod LANES = l, then lanes are added pairwise; the rest likewise in four
/// lanes, and the rest of that in one.
///
/// Lanes are indexed by constants only, or they would not stay in registers.
#[inline(always)]
fn dot<S: Scalar>(x: &[S], y: &[S]) -> S {
    let (mut wide, mut narrow, mut single) = ([S::zero(); LANES], [S::zero(); 4], S::zero());
    let ((x, x_end), (y, y_end)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
    for (x, y) in x.iter().zip(y) {
        for k in 0..LANES {
            wide[k] += x[k] * y[k];
        }
    }
    let ((x, x_end), (y, y_end)) = (x_end.as_chunks::<4>(), y_end.as_chunks::<4>());
    for (x, y) in x.iter().zip(y) {
        for k in 0..4 {
            narrow[k] += x[k] * y[k];
        }
    }
    for (&x, &y) in x_end.iter().zip(y_end) {
        single += x * y;
    }
    // Through memory once: the compiler then sees the lanes as vectors, which the additions below hide from it.
    let wide = std::hint::black_box(wide);
    let mut half = [S::zero(); 8];
    for k in 0..8 {
        half[k] = wide[k] + wide[k + 8];
    }
    for k in 0..4 {
        narrow[k] += half[k] + half[k + 4];
    }
    (narrow[0] + narrow[2]) + (narrow[1] + narrow[3]) + single
}
