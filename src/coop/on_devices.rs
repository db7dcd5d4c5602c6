//! Exchange between devices of one process: each copies what it needs from the others' memory. Nothing passes through
//! the host, and no thread waits for a device: threads meet only to tell each other where memory is, and what follows
//! what.

use std::ops::Range;

use super::Peers;
use crate::comm::{Offered, Stage};
use crate::device::{Device, Offer, Write};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

impl<D: Device> Peers<D> {
    /// `x` as the other PEs' devices can copy from it; `None` if they cannot. The same on all PEs.
    pub(super) fn offer(&self, device: &D, x: &Tensor<D>) -> Result<Option<Offer>> {
        if self.communicator().shares_memory() { device.offer(x.view()) } else { Ok(None) }
    }

    /// [`exchange`](Peers::exchange) of what is offered, rows of `cols` columns.
    pub(super) fn exchange_on_devices(
        &self,
        device: &D,
        stage: Stage,
        offer: &Offer,
        cols: usize,
        counts: &[usize],
        receive_counts: &[usize],
    ) -> Result<Tensor<D>> {
        let rank = self.communicator().rank();
        let mut out = Tensor::allocate(device, receive_counts.iter().sum(), cols)?;
        let traffic = (counts, cols * size_of::<D::Scalar>());
        let offer = offer.number();
        let own: [&[u8]; 2] = [bytemuck::bytes_of(&offer), bytemuck::cast_slice(counts)];
        self.copy_from_all(device, stage, traffic, &own, |offered| {
            let mut start = 0;
            for (sender, theirs) in offered.iter().enumerate() {
                let counts: &[usize] = bytemuck::cast_slice(theirs[1]);
                if counts[rank] != receive_counts[sender] {
                    let problem = format!(
                        "processing element {sender} sends {} rows, expected {}",
                        counts[rank], receive_counts[sender]
                    );
                    return Err(Error::Communication { rank, problem });
                }
                let from = counts[..rank].iter().sum::<usize>() * cols;
                let to = start..start + counts[rank] * cols;
                start = to.end;
                device.copy_offered(number(theirs), from, part(device, &mut out, to)?)?;
            }
            Ok(())
        })?;
        Ok(out)
    }

    /// [`all_reduce`](Peers::all_reduce) of what is offered.
    pub(super) fn all_reduce_on_devices(
        &self,
        device: &D,
        stage: Stage,
        offer: &Offer,
        [rows, cols]: [usize; 2],
    ) -> Result<Tensor<D>> {
        let (mut sum, mut theirs) =
            (Tensor::allocate(device, rows, cols)?, Tensor::allocate(device, rows, cols)?);
        let n = rows * cols;
        let to_each = vec![n; self.communicator().size()];
        let offer = offer.number();
        let own: [&[u8]; 1] = [bytemuck::bytes_of(&offer)];
        self.copy_from_all(device, stage, (&to_each, size_of::<D::Scalar>()), &own, |offered| {
            // In rank order, rounding after each addition, as on the host.
            for (rank, offered) in offered.iter().enumerate() {
                let to = if rank == 0 { &mut sum } else { &mut theirs };
                device.copy_offered(number(offered), 0, part(device, to, 0..n)?)?;
                if rank > 0 {
                    device.scale(1.0, theirs.view(), sum.make_mut(device)?.data, Write::Add)?;
                }
            }
            Ok(())
        })?;
        Ok(sum)
    }

    /// Calls `copy` with what all PEs offer, and makes this device's later work wait until all others have copied.
    fn copy_from_all(
        &self,
        device: &D,
        stage: Stage,
        traffic: (&[usize], usize),
        own: &[&[u8]],
        copy: impl FnOnce(Offered<'_>) -> Result<()>,
    ) -> Result<()> {
        let communicator = self.communicator();
        communicator.window(stage, traffic, own, copy)??;
        let mut nothing = device.allocate::<D::Scalar>(0)?;
        let Some(done) = device.offer(D::view(&nothing))? else { return Ok(()) };
        let (none, done_number) = (vec![0; communicator.size()], done.number());
        communicator.window(stage, (&none, 0), &[bytemuck::bytes_of(&done_number)], |offered| {
            let mut all = offered.iter();
            all.try_for_each(|theirs| device.copy_offered(number(theirs), 0, D::view_mut(&mut nothing)))
        })?
    }
}

/// The number of a PE's offer.
fn number(offered: &[&[u8]]) -> u64 {
    bytemuck::pod_read_unaligned(offered[0])
}

/// Elements of a tensor.
fn part<'a, D: Device>(
    device: &D,
    x: &'a mut Tensor<D>,
    range: Range<usize>,
) -> Result<D::ViewMut<'a, D::Scalar>> {
    Ok(D::slice_mut(x.make_mut(device)?.data, range))
}
