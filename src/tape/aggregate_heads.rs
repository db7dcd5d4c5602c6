//! `out[t, h, :] = Σ_e w[e, h] · x[s(e), h, :]` over the in-edges of `t`.
//!
//! `dx[s, h, :] = Σ_e w[e, h] · dout[t(e), h, :]` by the block's transpose;
//! `dw[e, h] = ⟨dout[t(e), h, :], x[s(e), h, :]⟩`.

use std::sync::Arc;

use super::{BackwardStep, Op, Tape, Var};
use crate::block::Block;
use crate::device::{Csr, Device, Write, check_same_shape};
use crate::error::Result;
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// Sums over a destination's in-edges of `x: [n_src, heads · dim]`, each head times the edge's own factor for it,
    /// `w: [n_edge, heads]`: `[n_dst, heads · dim]`, 0 for a destination without edges. With
    /// [`edge_softmax`](Tape::edge_softmax) of [`edge_dot`](Tape::edge_dot) as factors, this is dot-product attention.
    /// No pass makes a matrix of `[n_edge, heads · dim]`.
    ///
    /// Errors: `x` does not have one row per source, `w` does not have one row per edge, or the number of heads is 0 or
    /// does not divide the columns of `x`.
    pub fn aggregate_heads(&self, block: &Arc<Block<D>>, x: Var, w: Var) -> Result<Var> {
        self.apply(AggregateHeads { block: block.clone() }, &[x, w])
    }
}

struct AggregateHeads<D: Device> {
    block: Arc<Block<D>>,
}

/// The sums over the rows of `a`.
fn sums<D: Device>(device: &D, a: Csr<'_, D>, x: &Tensor<D>, w: &Tensor<D>) -> Result<Tensor<D>> {
    let mut out = Tensor::allocate(device, a.n_rows, x.cols())?;
    device.spmm_heads(a, w.view(), w.cols(), x.matrix(), out.make_mut(device)?, Write::Assign)?;
    Ok(out)
}

impl<D: Device> Op<D> for AggregateHeads<D> {
    type Saved = ();

    fn name(&self) -> &'static str {
        "aggregate_heads"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        let (x, w) = (inputs[0], inputs[1]);
        let required = [self.block.n_edge(), w.cols()];
        check_same_shape("aggregate_heads", "w", w.shape(), "required", required)?;
        let out = sums(device, self.block.csr(), x, w)?;
        Ok((out, ()))
    }

    fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let (x, w, dout) = (step.inputs[0], step.inputs[1], &step.gradient);
        let mut gradients = vec![None, None];
        if step.wanted[0] {
            gradients[0] = Some(sums(device, self.block.transpose(device)?, dout, w)?);
        }
        if step.wanted[1] {
            let mut dw = Tensor::allocate(device, w.rows(), w.cols())?;
            let data = dw.make_mut(device)?.data;
            device.sddmm_dot(self.block.csr(), x.matrix(), dout.matrix(), w.cols(), data, Write::Assign)?;
            gradients[1] = Some(dw);
        }
        Ok(gradients)
    }
}

#[cfg(test)]
mod tests {
    use approx::abs_diff_eq;

    use super::*;
    use crate::device::test_kernels::test_f64_devices;
    use crate::tape::gradcheck::random;

    test_f64_devices! { dot_product_attention_is_its_formula wrong_shapes_are_errors }

    const INDPTR: [u32; 4] = [0, 3, 3, 5];
    const INDICES: [u32; 5] = [1, 3, 1, 0, 2];
    const HEADS: usize = 2;
    const DIM: usize = 3;

    fn dot_product_attention_is_its_formula<D: Device<Scalar = f64>>(device: &D) {
        let block = Arc::new(Block::from_csr(device, 4, &INDPTR, &INDICES).unwrap());
        let width = HEADS * DIM;
        let [q, k, v] = [(3, 1), (4, 2), (4, 3)].map(|(n, seed)| random(device, n, width, seed).unwrap());
        let tape = Tape::inference(device);
        let [q_var, k_var, v_var] = [&q, &k, &v].map(|x| tape.constant(x.clone()));
        let scores = tape.edge_dot(&block, q_var, k_var, HEADS).unwrap();
        let weights = tape.edge_softmax(&block, scores).unwrap();
        let out = tape.value(tape.aggregate_heads(&block, v_var, weights).unwrap());
        let out = out.to_vec(device).unwrap();
        let [q, k, v] = [&q, &k, &v].map(|x| x.to_vec(device).unwrap());
        for t in 0..3 {
            let sources = &INDICES[INDPTR[t] as usize..INDPTR[t + 1] as usize];
            for h in 0..HEADS {
                let score = |s: usize| -> f64 {
                    (0..DIM).map(|c| q[t * width + h * DIM + c] * k[s * width + h * DIM + c]).sum()
                };
                let powers: Vec<f64> = sources.iter().map(|&s| score(s as usize).exp()).collect();
                let total: f64 = powers.iter().sum();
                for c in h * DIM..(h + 1) * DIM {
                    let terms = sources.iter().zip(&powers).map(|(&s, p)| p * v[s as usize * width + c]);
                    let expected = if sources.is_empty() { 0.0 } else { terms.sum::<f64>() / total };
                    let value = out[t * width + c];
                    assert!(abs_diff_eq!(value, expected, epsilon = 1e-12), "{t}, {c}: {value}, {expected}");
                }
            }
        }
    }

    fn wrong_shapes_are_errors<D: Device<Scalar = f64>>(device: &D) {
        let block = Arc::new(Block::from_csr(device, 4, &INDPTR, &INDICES).unwrap());
        let tape = Tape::inference(device);
        let var = |rows, cols| tape.constant(random(device, rows, cols, 1).unwrap());
        for (x, w) in [([4, 6], [4, 2]), ([4, 6], [5, 4]), ([3, 6], [5, 2]), ([4, 6], [5, 0])] {
            assert!(tape.aggregate_heads(&block, var(x[0], x[1]), var(w[0], w[1])).is_err(), "{x:?} {w:?}");
        }
        for (q, k, heads) in
            [([3, 6], [4, 6], 4), ([3, 6], [4, 6], 0), ([4, 6], [4, 6], 2), ([3, 6], [4, 3], 1)]
        {
            assert!(tape.edge_dot(&block, var(q[0], q[1]), var(k[0], k[1]), heads).is_err(), "{q:?} {k:?}");
        }
    }
}
