//! Counting sorts of edges by relation and row.

use crate::error::{Result, try_capacity, try_filled};

const WHAT: &str = "a block's edges by relation";

/// `items` by ascending key, ties in their order.
///
/// Errors: there is no memory for another list of them.
pub(super) fn stable_sort(items: &[u32], n_keys: usize, key: impl Fn(u32) -> usize) -> Result<Vec<u32>> {
    let asked = format_args!("{} edges by {n_keys} keys", items.len());
    let mut next = try_filled(WHAT, 0u32, n_keys + 1, asked)?;
    items.iter().for_each(|&item| next[key(item) + 1] += 1);
    for i in 0..n_keys {
        next[i + 1] += next[i];
    }
    let mut sorted = try_filled(WHAT, 0, items.len(), asked)?;
    for &item in items {
        let slot = &mut next[key(item)];
        sorted[*slot as usize] = item;
        *slot += 1;
    }
    Ok(sorted)
}

/// Edges in groups of the same relation and row.
pub(super) struct Grouping {
    /// `[n_edge]`: edges by group.
    pub order: Vec<u32>,
    /// `[n_relations + 1]`: groups of each relation.
    pub offsets: Vec<u32>,
    /// `[n_group]`
    pub row: Vec<u32>,
    /// `[n_group + 1]`: edges of each group.
    pub indptr: Vec<u32>,
    /// `[n_edge]`, by edge: its group.
    pub group: Vec<u32>,
}

impl Grouping {
    /// From edges sorted by (relation, row).
    ///
    /// Errors: there is no memory for them.
    pub fn new(
        order: Vec<u32>,
        n_relations: usize,
        relation: impl Fn(u32) -> usize,
        row_of: impl Fn(u32) -> u32,
    ) -> Result<Self> {
        let n = order.len();
        let asked = format_args!("{n} edges of {n_relations} relations");
        let mut offsets = try_filled(WHAT, 0u32, n_relations + 1, asked)?;
        // A group has at least one edge.
        let (mut row, mut indptr) = (try_capacity(WHAT, n, asked)?, try_capacity(WHAT, n + 1, asked)?);
        let mut group = try_filled(WHAT, 0u32, n, asked)?;
        let mut current = None;
        for (position, &e) in order.iter().enumerate() {
            let key = (relation(e), row_of(e));
            if current != Some(key) {
                current = Some(key);
                row.push(key.1);
                indptr.push(position as u32);
                offsets[key.0 + 1] += 1;
            }
            group[e as usize] = row.len() as u32 - 1;
        }
        indptr.push(order.len() as u32);
        for r in 0..n_relations {
            offsets[r + 1] += offsets[r];
        }
        Ok(Grouping { order, offsets, row, indptr, group })
    }
}
