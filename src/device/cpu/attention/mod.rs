//! Attention on the CPU.
//!
//! Rows go to tasks balanced by entries. A row's scores (`heads` per message) are made first, in the task's own scratch
//! memory, where softmax runs over them in full vectors; then the messages are added up in tiles of whole heads whose
//! sums stay in registers: each gathered row is read from memory once. All sums run in the messages' order, and a row
//! is computed by one task: the same result for any number of threads.

mod gat;
mod gatv2;
mod score;
mod softmax;
mod tile;

use super::kernels::kernels;
use super::parallel::check_csr;
use super::vectors::vectorized;
use crate::device::attention::{
    check_dot, check_dot_input, check_dot_vector, check_edge_softmax, check_gat, check_gat_backward,
    check_gatv2, check_gatv2_destinations, check_gatv2_sources,
};
use crate::device::{
    Attention, AttentionSpec, Cpu, Csr, GatGradients, GatSaved, Gatv2Operands, Matrix, MatrixMut, Scalar,
    Write,
};
use crate::error::Result;

kernels! {
    impl Attention by AttentionKernels {
        fn edge_softmax(a: Csr<'_, Cpu<S>>, heads: usize, x: &[S], out: &mut [S]) -> Result<()>;
        fn edge_softmax_backward(
            a: Csr<'_, Cpu<S>>,
            heads: usize,
            y: &[S],
            dout: &[S],
            dx: &mut [S],
        ) -> Result<()>;
        fn head_dot(x: Matrix<'_, Cpu<S>>, a: &[S], heads: usize, out: &mut [S]) -> Result<()>;
        fn head_dot_backward_input(
            a: &[S],
            heads: usize,
            dout: &[S],
            dx: MatrixMut<'_, Cpu<S>>,
            write: Write,
        ) -> Result<()>;
        fn head_dot_backward_vector(
            x: Matrix<'_, Cpu<S>>,
            heads: usize,
            dout: &[S],
            da: &mut [S],
        ) -> Result<()>;
        fn gat(
            a: Csr<'_, Cpu<S>>,
            spec: AttentionSpec<'_, Cpu<S>>,
            z: Matrix<'_, Cpu<S>>,
            score_src: &[S],
            score_dst: &[S],
            out: MatrixMut<'_, Cpu<S>>,
            max: &mut [S],
            sum: &mut [S],
        ) -> Result<()>;
        fn gat_backward(
            transpose: Csr<'_, Cpu<S>>,
            spec: AttentionSpec<'_, Cpu<S>>,
            saved: GatSaved<'_, Cpu<S>>,
            gradients: GatGradients<'_, Cpu<S>>,
        ) -> Result<()>;
        fn gatv2(
            a: Csr<'_, Cpu<S>>,
            spec: AttentionSpec<'_, Cpu<S>>,
            operands: Gatv2Operands<'_, Cpu<S>>,
            out: MatrixMut<'_, Cpu<S>>,
            max: &mut [S],
            sum: &mut [S],
        ) -> Result<()>;
        fn gatv2_backward_destinations(
            a: Csr<'_, Cpu<S>>,
            spec: AttentionSpec<'_, Cpu<S>>,
            operands: Gatv2Operands<'_, Cpu<S>>,
            max: &[S],
            sum: &[S],
            dout: Matrix<'_, Cpu<S>>,
            dz_dst: MatrixMut<'_, Cpu<S>>,
            dattention: MatrixMut<'_, Cpu<S>>,
            messages: &mut [S],
        ) -> Result<()>;
        fn gatv2_backward_sources(
            transpose: Csr<'_, Cpu<S>>,
            spec: AttentionSpec<'_, Cpu<S>>,
            operands: Gatv2Operands<'_, Cpu<S>>,
            dout: Matrix<'_, Cpu<S>>,
            messages: &[S],
            dz_src: MatrixMut<'_, Cpu<S>>,
        ) -> Result<()>;
    }
}

fn edge_softmax<S: Scalar>(
    _device: &Cpu<S>,
    a: Csr<'_, Cpu<S>>,
    heads: usize,
    x: &[S],
    out: &mut [S],
) -> Result<()> {
    check_edge_softmax(&a, heads, [("x", x.len()), ("out", out.len())])?;
    softmax::edge_softmax(a.indptr, heads, x, out);
    Ok(())
}

fn edge_softmax_backward<S: Scalar>(
    _device: &Cpu<S>,
    a: Csr<'_, Cpu<S>>,
    heads: usize,
    y: &[S],
    dout: &[S],
    dx: &mut [S],
) -> Result<()> {
    check_edge_softmax(&a, heads, [("y", y.len()), ("dout", dout.len()), ("dx", dx.len())])?;
    softmax::edge_softmax_backward(a.indptr, heads, y, dout, dx);
    Ok(())
}

fn head_dot<S: Scalar>(
    _device: &Cpu<S>,
    x: Matrix<'_, Cpu<S>>,
    a: &[S],
    heads: usize,
    out: &mut [S],
) -> Result<()> {
    check_dot::<Cpu<S>>(&x, &a, heads, &out)?;
    softmax::head_dot(x, a, heads, out);
    Ok(())
}

fn head_dot_backward_input<S: Scalar>(
    _device: &Cpu<S>,
    a: &[S],
    heads: usize,
    dout: &[S],
    dx: MatrixMut<'_, Cpu<S>>,
    write: Write,
) -> Result<()> {
    check_dot_input::<Cpu<S>>(&a, heads, &dout, &dx)?;
    softmax::head_dot_backward_input(a, dx.cols / heads, dout, dx, write);
    Ok(())
}

fn head_dot_backward_vector<S: Scalar>(
    _device: &Cpu<S>,
    x: Matrix<'_, Cpu<S>>,
    heads: usize,
    dout: &[S],
    da: &mut [S],
) -> Result<()> {
    check_dot_vector::<Cpu<S>>(&x, heads, &dout, &da)?;
    softmax::head_dot_backward_vector(x, x.cols / heads, dout, da);
    Ok(())
}

#[allow(clippy::too_many_arguments)]
fn gat<S: Scalar>(
    _device: &Cpu<S>,
    a: Csr<'_, Cpu<S>>,
    spec: AttentionSpec<'_, Cpu<S>>,
    z: Matrix<'_, Cpu<S>>,
    score_src: &[S],
    score_dst: &[S],
    out: MatrixMut<'_, Cpu<S>>,
    max: &mut [S],
    sum: &mut [S],
) -> Result<()> {
    check_csr(&a)?;
    check_gat::<Cpu<S>>(&a, &spec, &z, &score_src, &score_dst, &out, &max, &sum)?;
    gat::forward(a, spec, z, score_src, score_dst, out, max, sum);
    Ok(())
}

fn gat_backward<S: Scalar>(
    _device: &Cpu<S>,
    transpose: Csr<'_, Cpu<S>>,
    spec: AttentionSpec<'_, Cpu<S>>,
    saved: GatSaved<'_, Cpu<S>>,
    gradients: GatGradients<'_, Cpu<S>>,
) -> Result<()> {
    check_csr(&transpose)?;
    check_gat_backward(&transpose, &spec, &saved, &gradients)?;
    gat::backward(transpose, spec, saved, gradients)
}

fn gatv2<S: Scalar>(
    _device: &Cpu<S>,
    a: Csr<'_, Cpu<S>>,
    spec: AttentionSpec<'_, Cpu<S>>,
    operands: Gatv2Operands<'_, Cpu<S>>,
    out: MatrixMut<'_, Cpu<S>>,
    max: &mut [S],
    sum: &mut [S],
) -> Result<()> {
    check_csr(&a)?;
    check_gatv2::<Cpu<S>>(&a, &spec, &operands, &out, &max, &sum)?;
    gatv2::forward(a, spec, operands, out, max, sum);
    Ok(())
}

#[allow(clippy::too_many_arguments)]
fn gatv2_backward_destinations<S: Scalar>(
    _device: &Cpu<S>,
    a: Csr<'_, Cpu<S>>,
    spec: AttentionSpec<'_, Cpu<S>>,
    operands: Gatv2Operands<'_, Cpu<S>>,
    max: &[S],
    sum: &[S],
    dout: Matrix<'_, Cpu<S>>,
    dz_dst: MatrixMut<'_, Cpu<S>>,
    dattention: MatrixMut<'_, Cpu<S>>,
    messages: &mut [S],
) -> Result<()> {
    check_csr(&a)?;
    let stats = [&max, &sum];
    check_gatv2_destinations(&a, &spec, &operands, stats, &dout, &dz_dst, &dattention, &messages)?;
    let gradients = [dz_dst.data, dattention.data];
    gatv2::backward_destinations(a, spec, operands, [max, sum], dout, gradients, messages);
    Ok(())
}

fn gatv2_backward_sources<S: Scalar>(
    _device: &Cpu<S>,
    transpose: Csr<'_, Cpu<S>>,
    spec: AttentionSpec<'_, Cpu<S>>,
    operands: Gatv2Operands<'_, Cpu<S>>,
    dout: Matrix<'_, Cpu<S>>,
    messages: &[S],
    dz_src: MatrixMut<'_, Cpu<S>>,
) -> Result<()> {
    check_csr(&transpose)?;
    check_gatv2_sources::<Cpu<S>>(&transpose, &spec, &operands, &dout, &messages, &dz_src)?;
    gatv2::backward_sources(transpose, spec, operands, dout, messages, dz_src);
    Ok(())
}
