//! `out = gain ⊙ (x − mean) / √(var + ε) + bias`, per column (Ioffe & Szegedy 2015).
//!
//! In training `mean` and `var` (biased) are the batch's, and the gradient flows through them:
//! `dx = gain/σ ⊙ (dout − mean(dout) − x̂ ⊙ mean(dout ⊙ x̂))`. In inference they are the running averages.

use std::sync::Arc;

use super::{BackwardStep, Op, ParameterId, RowPeers, Tape, Var};
use crate::device::{Device, Storage, Write};
use crate::error::Result;
use crate::tensor::Tensor;

/// Statistics of one batch norm over one batch, for its running averages.
#[derive(Debug)]
pub struct BatchStatistics<D: Storage> {
    /// The running mean and variance, as given to [`Tape::batch_norm`].
    pub running: [ParameterId; 2],
    /// `[1, dim]`
    pub mean: Tensor<D>,
    /// `[1, dim]`: the unbiased variance, `Σ (x − mean)² / (n − 1)`.
    pub variance: Tensor<D>,
}

/// Added to the variance: PyTorch's default.
const EPSILON: f64 = 1e-5;

impl<D: Device> Tape<D> {
    /// Normalises the columns of `x: [n, dim]`; `gain, bias: [1, dim]`.
    ///
    /// On a training tape the batch's own statistics are used, and recorded under the ids of the `running` mean and
    /// variance (see [`take_statistics`](Tape::take_statistics)). Batches of fewer than two rows have no variance: for
    /// these, and on inference tapes, the running values are used, each `[1, dim]`.
    ///
    /// Errors: `gain`, `bias` or a running value that is used does not have one element per column of `x`; those of
    /// communication, on a tape [with peers](Tape::with_peers).
    pub fn batch_norm(
        &self,
        x: Var,
        gain: Var,
        bias: Var,
        running: [(ParameterId, &Tensor<D>); 2],
    ) -> Result<Var> {
        let [rows, dim] = self.shape_of(x)?;
        let device = self.device();
        let peers = self.peers.as_ref().filter(|_| self.is_training());
        let n = peers.map_or(Ok(rows), |peers| peers.sum_rows(rows))?;
        let (mean, variance, factor, from_batch) = if self.is_training() && n >= 2 {
            let x = self.value(x);
            let (mut mean, mut squares) =
                (Tensor::allocate(device, 1, dim)?, Tensor::allocate(device, 1, dim)?);
            device.moments(x.matrix(), mean.make_mut(device)?.data, squares.make_mut(device)?.data)?;
            if let Some(peers) = peers {
                (mean, squares) = over_peers(device, peers.as_ref(), [rows, n], mean, squares)?;
            }
            let mut variance = Tensor::allocate(device, 1, dim)?;
            let unbiased = 1.0 / (n - 1) as f64;
            device.scale(unbiased, squares.view(), variance.make_mut(device)?.data, Write::Assign)?;
            self.statistics.borrow_mut().push(BatchStatistics {
                running: running.map(|(id, _)| id),
                mean: mean.clone(),
                variance,
            });
            (mean, squares, 1.0 / n as f64, true)
        } else {
            (running[0].1.clone(), running[1].1.clone(), 1.0, false)
        };
        let mut inverse_std = Tensor::allocate(device, 1, dim)?;
        device.inverse_square_root(variance.view(), factor, EPSILON, inverse_std.make_mut(device)?.data)?;
        let n_total = if from_batch { n } else { 0 };
        self.apply(BatchNorm { mean, inverse_std, n_total, peers: peers.cloned() }, &[x, gain, bias])
    }
}

/// The mean of all peers' `n` rows, and their squared deviations from it, of those of this one's `rows`: with the mean
/// `m` of all, `Σ (x − m)² = Σ (x − mean)² + rows (mean − m)²` over its own.
fn over_peers<D: Device>(
    device: &D,
    peers: &dyn RowPeers<D>,
    [rows, n]: [usize; 2],
    mean: Tensor<D>,
    mut squares: Tensor<D>,
) -> Result<(Tensor<D>, Tensor<D>)> {
    let mut share = Tensor::allocate(device, 1, mean.cols())?;
    device.scale(rows as f64 / n as f64, mean.view(), share.make_mut(device)?.data, Write::Assign)?;
    let all = peers.sum(device, &share)?;
    let mut between = Tensor::allocate(device, 1, mean.cols())?;
    device.sum_squared_deviation(mean.matrix(), all.view(), between.make_mut(device)?.data)?;
    device.scale(rows as f64, between.view(), squares.make_mut(device)?.data, Write::Add)?;
    Ok((all, peers.sum(device, &squares)?))
}

struct BatchNorm<D: Device> {
    mean: Tensor<D>,
    inverse_std: Tensor<D>,
    /// Number of rows, over all peers, from which the statistics come; 0 if they are constants.
    n_total: usize,
    peers: Option<Arc<dyn RowPeers<D>>>,
}

impl<D: Device> Op<D> for BatchNorm<D> {
    type Saved = ();

    fn name(&self) -> &'static str {
        "batch_norm"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        let (x, gain, bias) = (inputs[0], inputs[1], inputs[2]);
        let mut out = Tensor::allocate(device, x.rows(), x.cols())?;
        device.normalize(
            x.matrix(),
            self.mean.view(),
            self.inverse_std.view(),
            gain.view(),
            bias.view(),
            out.make_mut(device)?,
        )?;
        Ok((out, ()))
    }

    fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let (x, gain) = (step.inputs[0], step.inputs[1]);
        let mut dgain = Tensor::allocate(device, 1, x.cols())?;
        let mut dbias = Tensor::allocate(device, 1, x.cols())?;
        device.normalize_backward_parameters(
            x.matrix(),
            self.mean.view(),
            self.inverse_std.view(),
            step.gradient.matrix(),
            dgain.make_mut(device)?.data,
            dbias.make_mut(device)?.data,
        )?;
        let mut dx = None;
        // This is collective: it relies on `wanted` being the same on all peers.
        if step.wanted[0] {
            let (mut all_dgain, mut all_dbias) = (dgain.clone(), dbias.clone());
            if let Some(peers) = self.peers.as_ref().filter(|_| self.n_total > 0) {
                all_dgain = peers.sum(device, &dgain)?;
                all_dbias = peers.sum(device, &dbias)?;
            }
            let mut out = Tensor::allocate(device, x.rows(), x.cols())?;
            device.normalize_backward(
                x.matrix(),
                self.mean.view(),
                self.inverse_std.view(),
                gain.view(),
                step.gradient.matrix(),
                all_dgain.view(),
                all_dbias.view(),
                self.n_total,
                out.make_mut(device)?,
            )?;
            dx = Some(out);
        }
        Ok(vec![dx, Some(dgain), Some(dbias)])
    }
}
