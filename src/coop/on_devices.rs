//! Exchange between devices of one process: each reads what it needs in the others' memory, by kernels, or copies it
//! from there. Nothing passes through the host, and no thread waits for a device: threads meet only to tell each other
//! where memory is, and what follows what.

use std::ops::Range;

use super::{ExchangePlan, Peers};
use crate::comm::{Offered, Stage};
use crate::device::{Device, Element, FeatureElement, OfferedRows};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

impl<D: Device> Peers<D> {
    /// Copies to `out` what the other PEs have for this one: of each PE's `x`, its range.
    pub(super) fn exchange_on_devices<T: Element>(
        &self,
        device: &D,
        stage: Stage,
        x: D::View<'_, T>,
        ranges: &[Range<usize>],
        mut out: D::ViewMut<'_, T>,
        receive_counts: &[usize],
    ) -> Result<()> {
        let rank = self.communicator().rank();
        let bounds: Vec<[usize; 2]> = ranges.iter().map(|range| [range.start, range.end]).collect();
        let counts: Vec<usize> = ranges.iter().map(Range::len).collect();
        let offer = device.offer(x)?;
        let number = offer.number();
        let own: [&[u8]; 2] = [bytemuck::bytes_of(&number), bytemuck::cast_slice(bounds.as_flattened())];
        self.reading(device, stage, (&counts, size_of::<T>()), &own, |offered| {
            let mut end = 0;
            for (sender, theirs) in offered.iter().enumerate() {
                let bounds: &[usize] = bytemuck::cast_slice(theirs[1]);
                let (start, count) = (bounds[2 * rank], bounds[2 * rank + 1] - bounds[2 * rank]);
                if count != receive_counts[sender] {
                    let expected = receive_counts[sender];
                    let problem =
                        format!("processing element {sender} sends {count} elements, expected {expected}");
                    return Err(Error::Communication { rank, problem });
                }
                let to = D::slice_mut(D::reborrow(&mut out), end..end + count);
                end += count;
                device.copy_offered(number_of(theirs, 0), start, to)?;
            }
            Ok(())
        })
    }

    /// Calls `read` with what all PEs offer, and makes this device's later work wait until all others have read.
    fn reading(
        &self,
        device: &D,
        stage: Stage,
        traffic: (&[usize], usize),
        own: &[&[u8]],
        read: impl FnOnce(Offered<'_>) -> Result<()>,
    ) -> Result<()> {
        let communicator = self.communicator();
        communicator.window(stage, traffic, own, read)??;
        let mut nothing = device.allocate::<u8>(0)?;
        let done = device.offer(D::view(&nothing))?;
        let (none, number) = (vec![0; communicator.size()], done.number());
        communicator.window(stage, (&none, 0), &[bytemuck::bytes_of(&number)], |offered| {
            let mut all = offered.iter();
            all.try_for_each(|theirs| device.copy_offered(number_of(theirs, 0), 0, D::view_mut(&mut nothing)))
        })?
    }
}

impl<D: Device> ExchangePlan<D> {
    /// [`fetch`](ExchangePlan::fetch) by a kernel that reads the owners' tables.
    pub(super) fn read_owned_on_devices<E: FeatureElement>(
        &self,
        device: &D,
        peers: &Peers<D>,
        stage: Stage,
        owned: D::View<'_, E>,
        cols: usize,
    ) -> Result<Tensor<D>> {
        let mut out = Tensor::allocate(device, self.n_needed(), cols)?;
        let offers = [device.offer(owned)?, device.offer(D::view(&self.send_rows))?].map(|offer| {
            // The offer is kept until all have read.
            (offer.number(), offer)
        });
        let numbers = [offers[0].0, offers[1].0];
        let own: [&[u8]; 2] = [bytemuck::bytes_of(&numbers), bytemuck::cast_slice(&self.send_counts)];
        let traffic = (&self.send_counts[..], cols * size_of::<E>());
        peers.reading(device, stage, traffic, &own, |offered| {
            let from: Vec<OfferedRows> =
                offered.iter().map(|theirs| rows_for(theirs, peers.communicator().rank())).collect();
            device.gather_offered::<E>(&from, D::view(&self.order), out.make_mut(device)?)
        })?;
        Ok(out)
    }

    /// [`give_back`](ExchangePlan::give_back) by kernels that read the tables of those that needed rows.
    pub(super) fn read_needed_on_devices(
        &self,
        device: &D,
        peers: &Peers<D>,
        stage: Stage,
        needed: &Tensor<D>,
    ) -> Result<Tensor<D>> {
        let mut sum = Tensor::zeros(device, self.n_owned, needed.cols())?;
        let (table, order) = (device.offer(needed.view())?, device.offer(D::view(&self.order))?);
        let numbers = [table.number(), order.number()];
        let own: [&[u8]; 2] = [bytemuck::bytes_of(&numbers), bytemuck::cast_slice(&self.receive_counts)];
        let traffic = (&self.receive_counts[..], needed.cols() * size_of::<D::Scalar>());
        peers.reading(device, stage, traffic, &own, |offered| {
            let mut end = 0;
            // One after the other, so that sums are in rank order.
            for (theirs, &count) in offered.iter().zip(&self.send_counts) {
                let from = rows_for(theirs, peers.communicator().rank());
                let index = D::slice(D::view(&self.send_rows), end..end + count);
                end += count;
                device.add_offered(&from, index, sum.make_mut(device)?)?;
            }
            Ok(())
        })?;
        Ok(sum)
    }
}

/// The number of a PE's offer.
fn number_of(offered: &[&[u8]], nth: usize) -> u64 {
    bytemuck::pod_read_unaligned(&offered[0][nth * size_of::<u64>()..(nth + 1) * size_of::<u64>()])
}

/// Of a PE's table, the rows for PE `rank`.
fn rows_for(offered: &[&[u8]], rank: usize) -> OfferedRows {
    let counts: &[usize] = bytemuck::cast_slice(offered[1]);
    let start = counts[..rank].iter().sum();
    let range = start..start + counts[rank];
    OfferedRows { table: number_of(offered, 0), rows: number_of(offered, 1), range }
}
