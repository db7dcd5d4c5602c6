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
use crate::device::{
    Attention, AttentionSpec, Cpu, Csr, GatGradients, GatSaved, Gatv2Operands, Matrix, MatrixMut, Scalar,
    Write, check_matrix, check_matrix_mut, check_no_edge, check_same_shape,
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
        check_matrix(&x)?;
        head_dim(heads, x.cols)?;
        check_length("a", a.len(), x.cols)?;
        check_length("out", out.len(), x.rows * heads)?;
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
        check_matrix_mut(&dx)?;
        let dim = head_dim(heads, dx.cols)?;
        check_length("a", a.len(), dx.cols)?;
        check_length("dout", dout.len(), dx.rows * heads)?;
        softmax::head_dot_backward_input(a, dim, dout, dx, write);
        Ok(())
    }

    fn head_dot_backward_vector(
        &self,
        x: Matrix<'_, Self>,
        heads: usize,
        dout: &[S],
        da: &mut [S],
    ) -> Result<()> {
        check_matrix(&x)?;
        let dim = head_dim(heads, x.cols)?;
        check_length("da", da.len(), x.cols)?;
        check_length("dout", dout.len(), x.rows * heads)?;
        softmax::head_dot_backward_vector(x, dim, dout, da);
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
        check_no_edge(&a)?;
        check_spec(&spec, a.n_rows, a.n_cols, z.cols)?;
        check_same_shape("gat", "z", z.shape(), "required", [a.n_cols, z.cols])?;
        check_same_shape("gat", "out", out.shape(), "required", [a.n_rows, z.cols])?;
        check_length("score_src", score_src.len(), a.n_cols * spec.heads)?;
        for (name, len) in [("score_dst", score_dst.len()), ("max", max.len()), ("sum", sum.len())] {
            check_length(name, len, a.n_rows * spec.heads)?;
        }
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
        let (n_src, n_dst, heads) = (transpose.n_rows, transpose.n_cols, spec.heads);
        check_csr(&transpose)?;
        check_edge(&transpose)?;
        let width = saved.z.cols;
        check_spec(&spec, n_dst, n_src, width)?;
        for (name, shape, rows) in [
            ("z", saved.z.shape(), n_src),
            ("dz", gradients.dz.shape(), n_src),
            ("out", saved.out.shape(), n_dst),
            ("dout", saved.dout.shape(), n_dst),
        ] {
            check_same_shape("gat_backward", name, shape, "required", [rows, width])?;
        }
        for (name, len, rows) in [
            ("score_src", saved.score_src.len(), n_src),
            ("score_dst", saved.score_dst.len(), n_dst),
            ("max", saved.max.len(), n_dst),
            ("sum", saved.sum.len(), n_dst),
            ("dscore_src", gradients.dscore_src.len(), n_src),
            ("dscore_dst_own", gradients.dscore_dst_own.len(), n_dst),
            ("dscore_edge", gradients.dscore_edge.len(), transpose.indices.len()),
        ] {
            check_length(name, len, rows * heads)?;
        }
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
        check_no_edge(&a)?;
        check_operands(&spec, a.n_rows, a.n_cols, &operands)?;
        check_same_shape("gatv2", "out", out.shape(), "required", [a.n_rows, operands.z_src.cols])?;
        check_length("max", max.len(), a.n_rows * spec.heads)?;
        check_length("sum", sum.len(), a.n_rows * spec.heads)?;
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
        const OP: &str = "gatv2_backward_destinations";
        check_csr(&a)?;
        check_no_edge(&a)?;
        check_operands(&spec, a.n_rows, a.n_cols, &operands)?;
        let required = [a.n_rows, operands.z_src.cols];
        for (name, shape) in
            [("dout", dout.shape()), ("dz_dst", dz_dst.shape()), ("dattention", dattention.shape())]
        {
            check_same_shape(OP, name, shape, "required", required)?;
        }
        check_length("max", max.len(), a.n_rows * spec.heads)?;
        check_length("sum", sum.len(), a.n_rows * spec.heads)?;
        check_length(
            "messages",
            messages.len(),
            n_message(&spec, a.indices.len(), a.n_rows) * 2 * spec.heads,
        )?;
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
        const OP: &str = "gatv2_backward_sources";
        let (n_src, n_dst, n_edge) = (transpose.n_rows, transpose.n_cols, transpose.indices.len());
        check_csr(&transpose)?;
        check_edge(&transpose)?;
        check_operands(&spec, n_dst, n_src, &operands)?;
        check_same_shape(OP, "dout", dout.shape(), "required", operands.z_dst.shape())?;
        check_same_shape(OP, "dz_src", dz_src.shape(), "required", operands.z_src.shape())?;
        check_length("messages", messages.len(), n_message(&spec, n_edge, n_dst) * 2 * spec.heads)?;
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

/// Number of messages: entries, and self-loops if there are any.
fn n_message<S: Scalar>(spec: &AttentionSpec<'_, Cpu<S>>, n_edge: usize, n_dst: usize) -> usize {
    n_edge + if spec.self_loop { n_dst } else { 0 }
}

/// Columns per head; an error if `heads` does not divide `cols`.
fn head_dim(heads: usize, cols: usize) -> Result<usize> {
    if heads == 0 || !cols.is_multiple_of(heads) {
        return Err(Error::invalid("heads", heads, format!("a divisor of the {cols} columns")));
    }
    Ok(cols / heads)
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

/// `Ok` if the positions that a transpose has are there.
fn check_edge<S: Scalar>(a: &Csr<'_, Cpu<S>>) -> Result<()> {
    match a.edge {
        Some(_) => Ok(()),
        None => Err(Error::invalid("edge", "absent", "the positions that a transpose has")),
    }
}

fn check_spec<S: Scalar>(
    spec: &AttentionSpec<'_, Cpu<S>>,
    n_dst: usize,
    n_src: usize,
    cols: usize,
) -> Result<()> {
    head_dim(spec.heads, cols)?;
    if spec.self_loop && n_src < n_dst {
        return Err(Error::invalid("self_loop", true, "at least as many sources as destinations"));
    }
    let Some(dropout) = &spec.dropout else { return Ok(()) };
    check_length("vertices", dropout.vertices.len(), n_src)?;
    if n_src < n_dst {
        return Err(Error::invalid("vertices", n_src, format!("at least the {n_dst} destinations")));
    }
    if spec.heads > 1 << 18 {
        return Err(Error::invalid("heads", spec.heads, "at most 2^18 with dropout"));
    }
    if !(0.0..1.0).contains(&dropout.p) {
        return Err(Error::invalid("p", dropout.p, "a dropout probability of at least 0 and below 1"));
    }
    Ok(())
}

fn check_operands<S: Scalar>(
    spec: &AttentionSpec<'_, Cpu<S>>,
    n_dst: usize,
    n_src: usize,
    operands: &Gatv2Operands<'_, Cpu<S>>,
) -> Result<()> {
    let cols = operands.z_src.cols;
    check_spec(spec, n_dst, n_src, cols)?;
    check_same_shape("gatv2", "z_src", operands.z_src.shape(), "required", [n_src, cols])?;
    check_same_shape("gatv2", "z_dst", operands.z_dst.shape(), "required", [n_dst, cols])?;
    check_matrix(&operands.z_src)?;
    check_matrix(&operands.z_dst)?;
    check_length("attention", operands.attention.len(), cols)
}

#[cfg(test)]
mod tests;
