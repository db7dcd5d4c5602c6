//! Transposes, degrees and inverse permutations on the CPU.

use super::kernels::kernels;
use super::parallel::{check_csr, check_index, for_elements};
use super::vectors::vectorized;
use crate::device::{Cpu, Csr, Scalar, Structure, check_inverse_weight_sum, check_transpose};
use crate::error::{Result, check_length};

kernels! {
    impl Structure by StructureKernels {
        fn transpose(
            a: Csr<'_, Cpu<S>>,
            indptr: &mut [u32],
            indices: &mut [u32],
            edge: &mut [u32],
        ) -> Result<()>;
        fn inverse_degree(indptr: &[u32], offset: f64, out: &mut [S]) -> Result<()>;
        fn inverse_weight_sum(a: Csr<'_, Cpu<S>>, weight: &[S], offset: f64, out: &mut [S]) -> Result<()>;
        fn invert_permutation(permutation: &[u32], out: &mut [u32]) -> Result<()>;
    }
}

fn transpose<S: Scalar>(
    _device: &Cpu<S>,
    a: Csr<'_, Cpu<S>>,
    indptr: &mut [u32],
    indices: &mut [u32],
    edge: &mut [u32],
) -> Result<()> {
    check_csr(&a)?;
    check_transpose(&a, &indptr, &indices, &edge)?;
    // A counting sort by column. `indptr[j + 1]` first counts column j, then is where its next entry goes, and
    // ends as where its entries end.
    indptr.fill(0);
    let (_, next) = indptr.split_at_mut(1);
    for &j in a.indices {
        next[j as usize] += 1;
    }
    let mut begin = 0;
    for next in next.iter_mut() {
        (*next, begin) = (begin, begin + *next);
    }
    for i in 0..a.n_rows {
        let entries = a.indptr[i]..a.indptr[i + 1];
        for (e, &j) in entries.clone().zip(&a.indices[entries.start as usize..entries.end as usize]) {
            let position = next[j as usize] as usize;
            next[j as usize] += 1;
            indices[position] = i as u32;
            edge[position] = e;
        }
    }
    Ok(())
}

fn inverse_degree<S: Scalar>(_device: &Cpu<S>, indptr: &[u32], offset: f64, out: &mut [S]) -> Result<()> {
    check_length("indptr", indptr.len(), out.len() + 1)?;
    for_elements(out, |range, out| {
        vectorized!(
            #[inline(always)]
            |_| {
                let (begins, ends) = (&indptr[range.clone()], &indptr[range.start + 1..]);
                for (out, (&begin, &end)) in out.iter_mut().zip(begins.iter().zip(ends)) {
                    let degree = f64::from(end.saturating_sub(begin)) + offset;
                    *out = S::from_f64(if degree == 0.0 { 0.0 } else { 1.0 / degree });
                }
            },
        );
    });
    Ok(())
}

fn inverse_weight_sum<S: Scalar>(
    _device: &Cpu<S>,
    a: Csr<'_, Cpu<S>>,
    weight: &[S],
    offset: f64,
    out: &mut [S],
) -> Result<()> {
    check_csr(&a)?;
    check_inverse_weight_sum(&a, &weight, &out)?;
    for_elements(out, |range, out| {
        let ends = &a.indptr[range.start..=range.end];
        for (out, ends) in out.iter_mut().zip(ends.windows(2)) {
            let row = &weight[ends[0] as usize..ends[1] as usize];
            let sum = row.iter().map(|w| w.widen_f64()).sum::<f64>() + offset;
            *out = S::from_f64(if sum == 0.0 { 0.0 } else { 1.0 / sum });
        }
    });
    Ok(())
}

fn invert_permutation<S: Scalar>(_device: &Cpu<S>, permutation: &[u32], out: &mut [u32]) -> Result<()> {
    check_length("out", out.len(), permutation.len())?;
    check_index("permutation", permutation, out.len())?;
    for (i, &position) in (0..).zip(permutation) {
        out[position as usize] = i;
    }
    Ok(())
}
