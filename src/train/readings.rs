//! What steps leave on the device, and the host reads later: losses, and numbers of right predictions.

use std::mem::take;

use super::report::Sums;
use crate::comm::{Stage, Sum};
use crate::coop::Group;
use crate::device::{Device, FeatureElement, Scalar};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Steps between two readings where reading means waiting, for a device or for other processing elements.
const INTERVAL: usize = 16;

/// The steps that have not been read.
pub(super) struct Readings<D: Device> {
    /// Where the gradients of each step begin.
    pub(super) one: Tensor<D>,
    losses: D::Buffer<D::Scalar>,
    right: D::Buffer<u32>,
    interval: usize,
    steps: Vec<Step>,
}

/// A step, as far as the host knows it.
struct Step {
    index: u64,
    n_labelled: u64,
}

impl<D: Device> Readings<D> {
    /// Errors: the device fails.
    pub(super) fn new(device: &D, group: &Group<D>) -> Result<Self> {
        let mut losses = device.allocate(INTERVAL)?;
        device.fill(D::Scalar::from_f64(0.0), D::view_mut(&mut losses))?;
        // Where the host has the values at hand, they are read at once.
        let at_hand = D::as_host(D::view(&losses)).is_some() && group.size() == 1;
        let interval = if at_hand { 1 } else { INTERVAL };
        let mut right = device.allocate(INTERVAL)?;
        device.fill(0, D::view_mut(&mut right))?;
        let mut one = Tensor::allocate(device, 1, 1)?;
        device.fill(D::Scalar::from_f64(1.0), one.make_mut(device)?.data)?;
        Ok(Readings { one, losses, right, interval, steps: Vec::with_capacity(INTERVAL) })
    }

    /// Counts a step's right predictions, of this processing element's `scores` for `labels`.
    ///
    /// Errors: the device fails.
    pub(super) fn count(&mut self, device: &D, scores: &Tensor<D>, labels: D::View<'_, i32>) -> Result<()> {
        let slot = self.steps.len()..self.steps.len() + 1;
        device.count_right(scores.matrix(), labels, D::slice_mut(D::view_mut(&mut self.right), slot))
    }

    /// Ends a step: batch `index` of the epoch, with `n_labelled` labelled seeds over all processing elements, and this
    /// one's `loss: [1, 1]`.
    ///
    /// Errors: the device fails.
    pub(super) fn add(&mut self, device: &D, [index, n_labelled]: [u64; 2], loss: &Tensor<D>) -> Result<()> {
        let slot = self.steps.len()..self.steps.len() + 1;
        device.copy(loss.view(), D::slice_mut(D::view_mut(&mut self.losses), slot))?;
        self.steps.push(Step { index, n_labelled });
        Ok(())
    }

    /// Whether it is time to read. The same on all processing elements, which take the same steps.
    pub(super) fn are_due(&self) -> bool {
        self.steps.len() >= self.interval
    }

    /// Adds what has not been read to `sums`, in the order of the steps. Collective.
    ///
    /// Errors: [`Error::Diverged`] names the first step whose loss is not finite; those of the device and of
    /// communication.
    pub(super) fn read(&mut self, device: &D, group: &Group<D>, sums: &mut Sums) -> Result<()> {
        let steps = take(&mut self.steps);
        if steps.is_empty() {
            return Ok(());
        }
        let losses = device.download(D::slice(D::view(&self.losses), 0..steps.len()))?;
        let right = device.download(D::slice(D::view(&self.right), 0..steps.len()))?;
        device.fill(0, D::view_mut(&mut self.right))?;
        let mut losses: Vec<f64> = losses.into_iter().map(FeatureElement::widen_f64).collect();
        let mut right: Vec<u64> = right.into_iter().map(u64::from).collect();
        if let Ok(peers) = group.peers() {
            peers.communicator().all_reduce_sum(Stage::Other, Sum::F64(&mut losses))?;
            peers.communicator().all_reduce_sum(Stage::Other, Sum::U64(&mut right))?;
        }
        for (step, (loss, right)) in steps.iter().zip(losses.into_iter().zip(right)) {
            if !loss.is_finite() {
                return Err(Error::Diverged { epoch: sums.report.epoch, batch: step.index, loss });
            }
            sums.add(step.n_labelled, right, loss);
        }
        Ok(())
    }
}
