//! Counting sorts of edges by relation and row.

/// `items` by ascending key, ties in their order.
pub(super) fn stable_sort(items: &[u32], n_keys: usize, key: impl Fn(u32) -> usize) -> Vec<u32> {
    let mut next = vec![0u32; n_keys + 1];
    items.iter().for_each(|&item| next[key(item) + 1] += 1);
    for i in 0..n_keys {
        next[i + 1] += next[i];
    }
    let mut sorted = vec![0; items.len()];
    for &item in items {
        let slot = &mut next[key(item)];
        sorted[*slot as usize] = item;
        *slot += 1;
    }
    sorted
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
    pub fn new(
        order: Vec<u32>,
        n_relations: usize,
        relation: impl Fn(u32) -> usize,
        row_of: impl Fn(u32) -> u32,
    ) -> Self {
        let mut offsets = vec![0u32; n_relations + 1];
        let (mut row, mut indptr) = (Vec::new(), Vec::new());
        let mut group = vec![0u32; order.len()];
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
        Grouping { order, offsets, row, indptr, group }
    }
}
