//! Attention on the CPU.
//!
//! Rows go to tasks balanced by entries. A row's scores (`heads` a message) are made first, in the task's own scratch
//! memory, where softmax runs over them in full vectors; then the messages are added up in tiles of whole heads whose
//! sums stay in registers: each gathered row is read once from far memory. All sums run in the messages' order, and a
//! row is computed by one task: the same result for any number of threads.

mod gat;
mod gatv2;
mod score;
mod softmax;
mod tile;

use super::parallel::{check_csr, vectorized};
use crate::device::attention::{
    check_dot, check_dot_input, check_dot_vector, check_gat, check_gat_backward, check_gatv2,
    check_gatv2_destinations, check_gatv2_sources,
};
use crate::device::{
    Attention, AttentionSpec, Cpu, Csr, GatGradients, GatSaved, Gatv2Operands, Matrix, MatrixMut, Scalar,
    Write,
};
use crate::error::{Error, Result, check_length};

impl<S: Scalar> Attention for Cpu<S> {
    fn edge_softmax(&self, indptr: &[u32], heads: usize, x: &[S], out: &mut [S]) -> Result<()> {
        check_edges(indptr, heads, [("x", x.len()), ("out", out.len())])?;
        softmax::edge_softmax(indptr, heads, x, out);
        Ok(())
    }

    fn edge_softmax_backward(
        &self,
        indptr: &[u32],
        heads: usize,
        y: &[S],
        dout: &[S],
        dx: &mut [S],
    ) -> Result<()> {
        check_edges(indptr, heads, [("y", y.len()), ("dout", dout.len())])?;
        check_length("dx", dx.len(), y.len())?;
        softmax::edge_softmax_backward(indptr, heads, y, dout, dx);
        Ok(())
    }

    fn head_dot(&self, x: Matrix<'_, Self>, a: &[S], heads: usize, out: &mut [S]) -> Result<()> {
        check_dot::<Self>(&x, &a, heads, &out)?;
        softmax::head_dot(x, a, heads, out);
        Ok(())
    }

    fn head_dot_backward_input(
        &self,
        a: &[S],
        heads: usize,
        dout: &[S],
        dx: MatrixMut<'_, Self>,
        write: Write,
    ) -> Result<()> {
        check_dot_input::<Self>(&a, heads, &dout, &dx)?;
        softmax::head_dot_backward_input(a, dx.cols / heads, dout, dx, write);
        Ok(())
    }

    fn head_dot_backward_vector(
        &self,
        x: Matrix<'_, Self>,
        heads: usize,
        dout: &[S],
        da: &mut [S],
    ) -> Result<()> {
        check_dot_vector::<Self>(&x, heads, &dout, &da)?;
        softmax::head_dot_backward_vector(x, x.cols / heads, dout, da);
        Ok(())
    }

    fn gat(
        &self,
        a: Csr<'_, Self>,
        spec: AttentionSpec<'_, Self>,
        z: Matrix<'_, Self>,
        score_src: &[S],
        score_dst: &[S],
        out: MatrixMut<'_, Self>,
        max: &mut [S],
        sum: &mut [S],
    ) -> Result<()> {
        check_csr(&a)?;
        check_gat::<Self>(&a, &spec, &z, &score_src, &score_dst, &out, &max, &sum)?;
        gat::forward(a, spec, z, score_src, score_dst, out, max, sum);
        Ok(())
    }

    fn gat_backward(
        &self,
        transpose: Csr<'_, Self>,
        spec: AttentionSpec<'_, Self>,
        saved: GatSaved<'_, Self>,
        gradients: GatGradients<'_, Self>,
    ) -> Result<()> {
        check_csr(&transpose)?;
        check_gat_backward(&transpose, &spec, &saved, &gradients)?;
        gat::backward(transpose, spec, saved, gradients);
        Ok(())
    }

    fn gatv2(
        &self,
        a: Csr<'_, Self>,
        spec: AttentionSpec<'_, Self>,
        operands: Gatv2Operands<'_, Self>,
        out: MatrixMut<'_, Self>,
        max: &mut [S],
        sum: &mut [S],
    ) -> Result<()> {
        check_csr(&a)?;
        check_gatv2::<Self>(&a, &spec, &operands, &out, &max, &sum)?;
        gatv2::forward(a, spec, operands, out, max, sum);
        Ok(())
    }

    fn gatv2_backward_destinations(
        &self,
        a: Csr<'_, Self>,
        spec: AttentionSpec<'_, Self>,
        operands: Gatv2Operands<'_, Self>,
        max: &[S],
        sum: &[S],
        dout: Matrix<'_, Self>,
        dz_dst: MatrixMut<'_, Self>,
        dattention: MatrixMut<'_, Self>,
        messages: &mut [S],
    ) -> Result<()> {
        check_csr(&a)?;
        let stats = [&max, &sum];
        check_gatv2_destinations(&a, &spec, &operands, stats, &dout, &dz_dst, &dattention, &messages)?;
        let gradients = [dz_dst.data, dattention.data];
        gatv2::backward_destinations(a, spec, operands, [max, sum], dout, gradients, messages);
        Ok(())
    }

    fn gatv2_backward_sources(
        &self,
        transpose: Csr<'_, Self>,
        spec: AttentionSpec<'_, Self>,
        operands: Gatv2Operands<'_, Self>,
        dout: Matrix<'_, Self>,
        messages: &[S],
        dz_src: MatrixMut<'_, Self>,
    ) -> Result<()> {
        check_csr(&transpose)?;
        check_gatv2_sources::<Self>(&transpose, &spec, &operands, &dout, &messages, &dz_src)?;
        gatv2::backward_sources(transpose, spec, operands, dout, messages, dz_src);
        Ok(())
    }

    fn invert_permutation(&self, permutation: &[u32], out: &mut [u32]) -> Result<()> {
        check_length("out", out.len(), permutation.len())?;
        super::parallel::check_index("permutation", permutation, out.len())?;
        for (i, &position) in (0..).zip(permutation) {
            out[position as usize] = i;
        }
        Ok(())
    }
}

/// `Ok` if arrays are `[n_edge, heads]` for the rows of `indptr`.
fn check_edges<const N: usize>(
    indptr: &[u32],
    heads: usize,
    arrays: [(&'static str, usize); N],
) -> Result<()> {
    if heads == 0 {
        return Err(Error::invalid("heads", 0, "at least 1"));
    }
    let Some(&n_edge) = indptr.last() else {
        return Err(Error::WrongLength { array: "indptr", actual: 0, expected: 1 });
    };
    arrays.into_iter().try_for_each(|(name, len)| check_length(name, len, n_edge as usize * heads))
}
