//! Attention on CUDA; see `cuda/attention.cuh`, and `cuda/edge_softmax.cu`, `cuda/head_dot.cu`, `cuda/gat.cu`,
//! `cuda/gatv2.cu` and `cuda/gatv2_backward.cu`.

use super::memory::pointer_or_null;
use super::{Cuda, CudaBuffer, CudaView, CudaViewMut, adds, dtype, ffi};
use crate::device::attention::{
    check_dot, check_dot_input, check_dot_vector, check_edge_softmax, check_gat, check_gat_backward,
    check_gatv2, check_gatv2_destinations, check_gatv2_sources,
};
use crate::device::{
    Attention, AttentionSpec, Csr, GatGradients, GatSaved, Gatv2Operands, Matrix, MatrixMut, Scalar, Write,
    check_csr_lengths,
};
use crate::error::Result;

/// Scratch memory of the kernels for rows with many entries.
struct Scratch<S> {
    hubs: CudaBuffer<u32>,
    records: CudaBuffer<S>,
}

impl<S: Scalar> Cuda<S> {
    /// A launcher's view of the messages of `a`, of which the first `n_own` rows have self-loops, with `width` columns
    /// and `n_record` scalars per piece.
    fn messages(
        &self,
        a: &Csr<'_, Self>,
        spec: &AttentionSpec<'_, Self>,
        n_own: usize,
        width: usize,
        n_record: usize,
    ) -> Result<(ffi::cohop_messages, Scratch<S>)> {
        let n_edge = a.indices.len() as u64;
        // SAFETY: a function of its argument.
        let n_segments = unsafe { ffi::cohop_attention_segments(n_edge) } as usize;
        let scratch = Scratch::<S> {
            hubs: self.scratch(n_segments)?,
            records: self.scratch(2 * n_segments * n_record)?,
        };
        let dropout = spec.dropout.as_ref();
        let messages = ffi::cohop_messages {
            n_rows: a.n_rows as u64,
            n_edge,
            indptr: a.indptr.pointer(),
            indices: a.indices.pointer(),
            edge: pointer_or_null(a.edge),
            n_own: if spec.self_loop { n_own as u64 } else { 0 },
            heads: spec.heads as u64,
            dim: (width / spec.heads) as u64,
            slope: spec.slope,
            vertices: pointer_or_null(dropout.map(|dropout| dropout.vertices)),
            threshold: dropout.map_or(0, |dropout| (dropout.p * 2f64.powi(32)) as u32),
            scale: dropout.map_or(1.0, |dropout| 1.0 / (1.0 - dropout.p)),
            seed: dropout.map_or(0, |dropout| dropout.seed),
            stream_number: dropout.map_or(0, |dropout| dropout.stream),
            hubs: scratch.hubs.pointer(),
            records: scratch.records.pointer().cast(),
        };
        Ok((messages, scratch))
    }

    /// Scratch memory of edge softmax.
    fn edge_scratch(&self, n_edge: usize, heads: usize) -> Result<Scratch<S>> {
        // SAFETY: a function of its argument.
        let n_segments = unsafe { ffi::cohop_edge_softmax_segments(n_edge as u64) } as usize;
        Ok(Scratch { hubs: self.scratch(n_segments)?, records: self.scratch(3 * n_segments * 2 * heads)? })
    }
}

impl<S: Scalar> Attention for Cuda<S> {
    fn edge_softmax(
        &self,
        a: Csr<'_, Self>,
        heads: usize,
        x: CudaView<'_, S>,
        out: CudaViewMut<'_, S>,
    ) -> Result<()> {
        check_edge_softmax(&a, heads, [("x", x.len()), ("out", out.len())])?;
        let scratch = self.edge_scratch(a.n_edge(), heads)?;
        let (hubs, records) = (scratch.hubs.pointer(), scratch.records.pointer().cast());
        let (n_rows, n_edge, heads) = (a.n_rows as u64, a.n_edge() as u64, heads as u64);
        let (indptr, x, out) = (a.indptr.pointer(), x.pointer().cast(), out.pointer().cast());
        let (status, stream) = (self.status(), self.stream()?);
        // SAFETY: `indptr` holds `n_rows + 1` offsets, of which those beyond `n_edge` are reported, not followed; `x`
        // and `out` hold `n_edge * heads` scalars, and the scratch memory is as large as the launcher asks.
        let code = unsafe {
            ffi::cohop_edge_softmax(
                dtype::<S>(),
                n_rows,
                n_edge,
                heads,
                indptr,
                x,
                hubs,
                records,
                out,
                status,
                stream,
            )
        };
        self.check("edge_softmax", code)
    }

    fn edge_softmax_backward(
        &self,
        a: Csr<'_, Self>,
        heads: usize,
        y: CudaView<'_, S>,
        dout: CudaView<'_, S>,
        dx: CudaViewMut<'_, S>,
    ) -> Result<()> {
        check_edge_softmax(&a, heads, [("y", y.len()), ("dout", dout.len()), ("dx", dx.len())])?;
        let scratch = self.edge_scratch(a.n_edge(), heads)?;
        let (hubs, records) = (scratch.hubs.pointer(), scratch.records.pointer().cast());
        let (n_rows, n_edge, heads) = (a.n_rows as u64, a.n_edge() as u64, heads as u64);
        let (indptr, y) = (a.indptr.pointer(), y.pointer().cast());
        let (dout, dx) = (dout.pointer().cast(), dx.pointer().cast());
        let (status, stream) = (self.status(), self.stream()?);
        // SAFETY: as in `edge_softmax`; `y`, `dout` and `dx` hold `n_edge * heads` scalars.
        let code = unsafe {
            ffi::cohop_edge_softmax_backward(
                dtype::<S>(),
                n_rows,
                n_edge,
                heads,
                indptr,
                y,
                dout,
                hubs,
                records,
                dx,
                status,
                stream,
            )
        };
        self.check("edge_softmax_backward", code)
    }

    fn head_dot(
        &self,
        x: Matrix<'_, Self>,
        a: CudaView<'_, S>,
        heads: usize,
        out: CudaViewMut<'_, S>,
    ) -> Result<()> {
        check_dot::<Self>(&x, &a, heads, &out)?;
        let (rows, dim, heads) = (x.rows as u64, (x.cols / heads) as u64, heads as u64);
        let (x, a, out) = (x.data.pointer().cast(), a.pointer().cast(), out.pointer().cast());
        let stream = self.stream()?;
        // SAFETY: `x` holds `rows * heads * dim` scalars, `a` `heads * dim`, and `out` `rows * heads`.
        let code = unsafe { ffi::cohop_head_dot(dtype::<S>(), rows, heads, dim, x, a, out, stream) };
        self.check("head_dot", code)
    }

    fn head_dot_backward_input(
        &self,
        a: CudaView<'_, S>,
        heads: usize,
        dout: CudaView<'_, S>,
        dx: MatrixMut<'_, Self>,
        write: Write,
    ) -> Result<()> {
        check_dot_input::<Self>(&a, heads, &dout, &dx)?;
        let (rows, dim, heads) = (dx.rows as u64, (dx.cols / heads) as u64, heads as u64);
        let (a, dout, dx) = (a.pointer().cast(), dout.pointer().cast(), dx.data.pointer().cast());
        let stream = self.stream()?;
        // SAFETY: `dx` holds `rows * heads * dim` scalars, `a` `heads * dim`, and `dout` `rows * heads`.
        let code = unsafe {
            ffi::cohop_head_dot_backward_input(
                dtype::<S>(),
                rows,
                heads,
                dim,
                a,
                dout,
                dx,
                adds(write),
                stream,
            )
        };
        self.check("head_dot_backward_input", code)
    }

    fn head_dot_backward_vector(
        &self,
        x: Matrix<'_, Self>,
        heads: usize,
        dout: CudaView<'_, S>,
        da: CudaViewMut<'_, S>,
    ) -> Result<()> {
        check_dot_vector::<Self>(&x, heads, &dout, &da)?;
        let (rows, dim, heads) = (x.rows as u64, (x.cols / heads) as u64, heads as u64);
        // SAFETY: a function of its argument.
        let n_parts = unsafe { ffi::cohop_head_dot_parts(rows) } as usize;
        let scratch = self.scratch::<S>(n_parts * x.cols)?;
        let (x, dout) = (x.data.pointer().cast(), dout.pointer().cast());
        let (sums, da) = (scratch.pointer().cast(), da.pointer().cast());
        let stream = self.stream()?;
        // SAFETY: `x` holds `rows * heads * dim` scalars, `dout` `rows * heads`, `da` `heads * dim`, and the scratch
        // memory as many per part.
        let code = unsafe {
            ffi::cohop_head_dot_backward_vector(dtype::<S>(), rows, heads, dim, x, dout, sums, da, stream)
        };
        self.check("head_dot_backward_vector", code)
    }

    fn gat(
        &self,
        a: Csr<'_, Self>,
        spec: AttentionSpec<'_, Self>,
        z: Matrix<'_, Self>,
        score_src: CudaView<'_, S>,
        score_dst: CudaView<'_, S>,
        out: MatrixMut<'_, Self>,
        max: CudaViewMut<'_, S>,
        sum: CudaViewMut<'_, S>,
    ) -> Result<()> {
        check_csr_lengths(&a)?;
        check_gat::<Self>(&a, &spec, &z, &score_src, &score_dst, &out, &max, &sum)?;
        let (messages, _scratch) = self.messages(&a, &spec, a.n_rows, z.cols, 2 * spec.heads + z.cols)?;
        let (z, score_src) = (z.data.pointer().cast(), score_src.pointer().cast());
        let (score_dst, out) = (score_dst.pointer().cast(), out.data.pointer().cast());
        let (max, sum, stream) = (max.pointer().cast(), sum.pointer().cast(), self.stream()?);
        // SAFETY: `messages` describes `a`, whose entries are in range by construction, and is read before this
        // returns; the other arrays have the shapes that the contract requires, and the outputs are exclusive.
        let code = unsafe {
            ffi::cohop_gat(dtype::<S>(), &messages, z, score_src, score_dst, out, max, sum, stream)
        };
        self.check("gat", code)
    }

    fn gat_backward(
        &self,
        transpose: Csr<'_, Self>,
        spec: AttentionSpec<'_, Self>,
        saved: GatSaved<'_, Self>,
        gradients: GatGradients<'_, Self>,
    ) -> Result<()> {
        check_csr_lengths(&transpose)?;
        check_gat_backward(&transpose, &spec, &saved, &gradients)?;
        let (n_dst, heads, width) = (transpose.n_cols, spec.heads, saved.z.cols);
        let (messages, _scratch) = self.messages(&transpose, &spec, n_dst, width, heads + width)?;
        let stats = self.scratch::<S>(n_dst * heads * 4)?;
        let saved = ffi::cohop_gat_saved {
            z: saved.z.data.pointer().cast(),
            score_src: saved.score_src.pointer().cast(),
            score_dst: saved.score_dst.pointer().cast(),
            max: saved.max.pointer().cast(),
            sum: saved.sum.pointer().cast(),
            out: saved.out.data.pointer().cast(),
            dout: saved.dout.data.pointer().cast(),
        };
        let (dz, dscore_src) = (gradients.dz.data.pointer().cast(), gradients.dscore_src.pointer().cast());
        let dscore_dst_own = gradients.dscore_dst_own.pointer().cast();
        let dscore_edge = gradients.dscore_edge.pointer().cast();
        let (n_dst, stats, stream) = (n_dst as u64, stats.pointer().cast(), self.stream()?);
        // SAFETY: as in `gat`; `stats` holds four scalars per destination and head.
        let code = unsafe {
            ffi::cohop_gat_backward(
                dtype::<S>(),
                &messages,
                n_dst,
                &saved,
                stats,
                dz,
                dscore_src,
                dscore_dst_own,
                dscore_edge,
                stream,
            )
        };
        self.check("gat_backward", code)
    }

    fn gatv2(
        &self,
        a: Csr<'_, Self>,
        spec: AttentionSpec<'_, Self>,
        operands: Gatv2Operands<'_, Self>,
        out: MatrixMut<'_, Self>,
        max: CudaViewMut<'_, S>,
        sum: CudaViewMut<'_, S>,
    ) -> Result<()> {
        check_csr_lengths(&a)?;
        check_gatv2::<Self>(&a, &spec, &operands, &out, &max, &sum)?;
        let (messages, _scratch) = self.messages(&a, &spec, a.n_rows, out.cols, 2 * spec.heads + out.cols)?;
        let (z_src, z_dst) = (operands.z_src.data.pointer().cast(), operands.z_dst.data.pointer().cast());
        let (attention, out) = (operands.attention.pointer().cast(), out.data.pointer().cast());
        let (max, sum, stream) = (max.pointer().cast(), sum.pointer().cast(), self.stream()?);
        // SAFETY: as in `gat`.
        let code = unsafe {
            ffi::cohop_gatv2(dtype::<S>(), &messages, z_src, z_dst, attention, out, max, sum, stream)
        };
        self.check("gatv2", code)
    }

    fn gatv2_backward_destinations(
        &self,
        a: Csr<'_, Self>,
        spec: AttentionSpec<'_, Self>,
        operands: Gatv2Operands<'_, Self>,
        max: CudaView<'_, S>,
        sum: CudaView<'_, S>,
        dout: Matrix<'_, Self>,
        dz_dst: MatrixMut<'_, Self>,
        dattention: MatrixMut<'_, Self>,
        messages: CudaViewMut<'_, S>,
    ) -> Result<()> {
        check_csr_lengths(&a)?;
        let stats = [&max, &sum];
        check_gatv2_destinations(&a, &spec, &operands, stats, &dout, &dz_dst, &dattention, &messages)?;
        let (heads, width) = (spec.heads, dout.cols);
        let (described, scratch) = self.messages(&a, &spec, a.n_rows, width, heads + 4 * width)?;
        let totals = self.scratch::<S>(scratch.hubs.len() * heads)?;
        let (z_src, z_dst) = (operands.z_src.data.pointer().cast(), operands.z_dst.data.pointer().cast());
        let (attention, dout) = (operands.attention.pointer().cast(), dout.data.pointer().cast());
        let (max, sum, totals) = (max.pointer().cast(), sum.pointer().cast(), totals.pointer().cast());
        let (dz_dst, dattention) = (dz_dst.data.pointer().cast(), dattention.data.pointer().cast());
        let (messages, stream) = (messages.pointer().cast(), self.stream()?);
        // SAFETY: as in `gat`; `totals` holds one scalar per segment and head.
        let code = unsafe {
            ffi::cohop_gatv2_backward_destinations(
                dtype::<S>(),
                &described,
                z_src,
                z_dst,
                attention,
                max,
                sum,
                dout,
                totals,
                dz_dst,
                dattention,
                messages,
                stream,
            )
        };
        self.check("gatv2_backward_destinations", code)
    }

    fn gatv2_backward_sources(
        &self,
        transpose: Csr<'_, Self>,
        spec: AttentionSpec<'_, Self>,
        operands: Gatv2Operands<'_, Self>,
        dout: Matrix<'_, Self>,
        messages: CudaView<'_, S>,
        dz_src: MatrixMut<'_, Self>,
    ) -> Result<()> {
        check_csr_lengths(&transpose)?;
        check_gatv2_sources::<Self>(&transpose, &spec, &operands, &dout, &messages, &dz_src)?;
        let width = dz_src.cols;
        let (described, _scratch) = self.messages(&transpose, &spec, transpose.n_cols, width, width)?;
        let (z_src, z_dst) = (operands.z_src.data.pointer().cast(), operands.z_dst.data.pointer().cast());
        let (attention, dout) = (operands.attention.pointer().cast(), dout.data.pointer().cast());
        let (messages, dz_src) = (messages.pointer().cast(), dz_src.data.pointer().cast());
        let stream = self.stream()?;
        // SAFETY: as in `gat`; the positions of a transpose are below `n_edge` by construction.
        let code = unsafe {
            ffi::cohop_gatv2_backward_sources(
                dtype::<S>(),
                &described,
                z_src,
                z_dst,
                attention,
                dout,
                messages,
                dz_src,
                stream,
            )
        };
        self.check("gatv2_backward_sources", code)
    }
}
