//! A block's edges by relation.

use super::Block;
use crate::device::{Csr, Device, Direction, RelationEdges, RelationGroups};
use crate::error::{Error, Result, check_length};
use crate::pattern::{Pattern, get_or_try_init};

/// What layers over typed edges need of their blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelationNeeds {
    /// Number of relations.
    pub n_relations: usize,
    /// Whether the groups of a relation and a vertex are transformed one by one, as attention over relations does it
    /// ([`Tape::relation_transform`](crate::tape::Tape::relation_transform)).
    pub ends: bool,
}

impl<D: Device> Block<D> {
    /// The edges grouped by relation and destination, and by relation and source. Made by the first call.
    ///
    /// Errors: the block has no edge types, one of them is not below `n_relations`, or `n_relations` is not that of the
    /// first call.
    pub fn relations(&self, device: &D, n_relations: usize) -> Result<&RelationEdges<D>> {
        let edges = get_or_try_init(&self.relations, || {
            let edge_type = self.edge_type().ok_or_else(|| {
                Error::invalid("block", "without edge types", "one sampled from a graph with relations")
            })?;
            device.group_relations(self.csr(), edge_type, n_relations, self.edge_factors(device)?)
        })?;
        check_length("relations", n_relations, edges.by_source.n_relations())?;
        Ok(edges)
    }

    /// A block of its own: its destinations are the groups of a relation and a destination ([`Direction::Forward`]) or
    /// source ([`Direction::Backward`]) of this block's edges, and each has one in-edge, of its relation, from its
    /// vertex among this block's sources. Made by the first call.
    ///
    /// Errors: those of [`relations`](Block::relations).
    pub(crate) fn relation_ends(
        &self,
        device: &D,
        n_relations: usize,
        direction: Direction,
    ) -> Result<&RelationEdges<D>> {
        let (groups, _) = self.relations(device, n_relations)?.groups(direction);
        let [destinations, sources] = &self.relation_ends;
        let ends = if direction == Direction::Forward { destinations } else { sources };
        get_or_try_init(ends, || one_edge_a_group(device, groups, self.n_src()))
    }

    /// The edges by destination, with the group of their relation and source as columns. Made by the first call.
    ///
    /// Errors: those of [`relations`](Block::relations).
    pub(crate) fn relation_messages(&self, device: &D, n_relations: usize) -> Result<&Pattern<D>> {
        let edges = self.relations(device, n_relations)?;
        get_or_try_init(&self.relation_messages, || {
            let copy = |from: D::View<'_, u32>| -> Result<D::Buffer<u32>> {
                let mut out = device.allocate(D::view_len(&from))?;
                device.copy(from, D::view_mut(&mut out))?;
                Ok(out)
            };
            let (indptr, indices) = (copy(self.csr().indptr)?, copy(D::view(&edges.source_group))?);
            Pattern::from_valid(edges.n_dst, edges.by_source.n_groups(), indptr, indices)
        })
    }

    /// Makes what layers over relations need, so that steps find it made: on a device, the host reads how many groups
    /// there are.
    ///
    /// Errors: those of [`relations`](Block::relations).
    pub(crate) fn group_relations(&self, device: &D, needs: RelationNeeds) -> Result<()> {
        self.relations(device, needs.n_relations)?;
        if needs.ends {
            for direction in [Direction::Forward, Direction::Backward] {
                self.relation_ends(device, needs.n_relations, direction)?;
            }
            self.relation_messages(device, needs.n_relations)?;
        }
        Ok(())
    }
}

/// The edges of a block whose destinations are `groups`, and whose sources are `n_rows`.
fn one_edge_a_group<D: Device>(
    device: &D,
    groups: &RelationGroups<D>,
    n_rows: usize,
) -> Result<RelationEdges<D>> {
    let n_groups = u32::try_from(groups.n_groups()).map_err(|_| Error::TooLarge {
        what: "the set of relations' vertices",
        count: groups.n_groups() as u64,
        limit: u32::MAX.into(),
    })?;
    let indptr: Vec<u32> = (0..=n_groups).collect();
    let relation: Vec<u16> = (0u16..=u16::MAX)
        .zip(groups.offsets.windows(2))
        .flat_map(|(r, ends)| std::iter::repeat_n(r, (ends[1] - ends[0]) as usize))
        .collect();
    let (indptr, relation) = (device.send(indptr)?, device.send(relation)?);
    let csr = Csr {
        n_rows: groups.n_groups(),
        n_cols: n_rows,
        indptr: D::view(&indptr),
        indices: D::view(&groups.row),
        edge: None,
        longest_row: Some(1),
    };
    device.group_relations(csr, D::view(&relation), groups.n_relations(), None)
}
