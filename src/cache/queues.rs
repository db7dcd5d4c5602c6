//! Queues of slots in order of insertion.

use crate::error::{Result, try_collect};

/// Queues over the nodes `0..n_nodes`, each of which is in at most one; linked both ways, so that a node can leave from
/// the middle. Each operation is O(1).
#[derive(Clone)]
pub(super) struct Queues {
    /// The nodes' links, then one head per queue, which stands between its newest and its oldest node.
    links: Vec<Link>,
    n_nodes: u32,
}

#[derive(Clone, Copy)]
struct Link {
    newer: u32,
    older: u32,
}

impl Queues {
    /// Empty queues. `n_nodes + n_queues` must fit a `u32`.
    ///
    /// Errors: there is no memory for them.
    pub(super) fn new(n_nodes: u32, n_queues: u32) -> Result<Self> {
        let links = (0..n_nodes + n_queues).map(|i| Link { newer: i, older: i });
        let links = try_collect("a cache's queues", links, format_args!("{n_nodes} slots"))?;
        Ok(Queues { links, n_nodes })
    }

    /// Empties all queues.
    pub(super) fn clear(&mut self) {
        for head in self.n_nodes..self.links.len() as u32 {
            self.links[head as usize] = Link { newer: head, older: head };
        }
    }

    /// `node`, which is in no queue, becomes the newest of `queue`.
    #[inline]
    pub(super) fn push(&mut self, queue: u32, node: u32) {
        let head = self.n_nodes + queue;
        let older = self.links[head as usize].older;
        self.links[node as usize] = Link { newer: head, older };
        self.links[older as usize].newer = node;
        self.links[head as usize].older = node;
    }

    /// `node` leaves the queue that it is in.
    #[inline]
    pub(super) fn remove(&mut self, node: u32) {
        let Link { newer, older } = self.links[node as usize];
        self.links[newer as usize].older = older;
        self.links[older as usize].newer = newer;
    }

    /// The oldest node of `queue`.
    #[inline]
    pub(super) fn oldest(&self, queue: u32) -> Option<u32> {
        self.newer(self.n_nodes + queue)
    }

    /// The next newer node in the queue that `node` is in.
    #[inline]
    pub(super) fn newer(&self, node: u32) -> Option<u32> {
        let newer = self.links[node as usize].newer;
        (newer < self.n_nodes).then_some(newer)
    }
}
