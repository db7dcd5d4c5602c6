//! Questions that samplers ask the owners of vertices.

use crate::comm::{Communicator, Stage};
use crate::device::Element;
use crate::error::Result;
use crate::graph::Partition;

/// Sends values per vertex to the vertices' owners, and brings their answers back.
pub(super) struct Question<'a> {
    communicator: &'a Communicator,
    /// Positions in the list of vertices, grouped by owner and ascending within each group.
    pub order: Vec<u32>,
    /// `[n_pes]`: the number of vertices that this PE asks each owner about.
    pub counts: Vec<usize>,
    /// `[n_pes]`: the number of vertices that each PE asks this one about.
    pub asked_counts: Vec<usize>,
}

impl<'a> Question<'a> {
    /// Sends `vertices` to their owners. Returns those that this PE receives too, in order of the PEs that sent them.
    /// Collective.
    ///
    /// Errors: those of communication.
    pub(super) fn ask(
        communicator: &'a Communicator,
        partition: &Partition,
        vertices: &[u32],
    ) -> Result<(Self, Vec<u32>)> {
        let mut counts = vec![0; partition.n_pes()];
        for &vertex in vertices {
            counts[partition.owner(vertex)] += 1;
        }
        let mut next: Vec<usize> =
            counts.iter().scan(0, |sum, &n| Some(std::mem::replace(sum, *sum + n))).collect();
        let (mut order, mut sorted) = (vec![0; vertices.len()], vec![0; vertices.len()]);
        for (position, &vertex) in vertices.iter().enumerate() {
            let next = &mut next[partition.owner(vertex)];
            order[*next] = position as u32;
            sorted[*next] = vertex;
            *next += 1;
        }
        let (asked, asked_counts) = communicator.exchange_lists(Stage::Sample, &sorted, &counts)?;
        Ok((Question { communicator, order, counts, asked_counts }, asked))
    }

    /// Sends each vertex's entry of `values` to its owner. Returns the values that this PE receives, in order of the
    /// PEs that sent them. Collective.
    ///
    /// Errors: those of communication.
    pub(super) fn send<T: Element>(&self, values: &[T]) -> Result<Vec<T>> {
        let sorted: Vec<T> = self.order.iter().map(|&i| values[i as usize]).collect();
        self.communicator.all_to_all_v_new(Stage::Sample, &sorted, &self.counts, &self.asked_counts)
    }

    /// Sends back one of `answers` per received value, in that order, and stores the answers that this PE receives in
    /// `out`, in the order of the vertices. Collective.
    ///
    /// Errors: those of communication.
    pub(super) fn answer<T: Element>(&self, answers: &[T], out: &mut [T]) -> Result<()> {
        let sorted =
            self.communicator.all_to_all_v_new(Stage::Sample, answers, &self.asked_counts, &self.counts)?;
        for (&i, value) in self.order.iter().zip(sorted) {
            out[i as usize] = value;
        }
        Ok(())
    }
}
