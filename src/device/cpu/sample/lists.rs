//! A block as it grows: rows are sampled, and their sources get positions, by groups of some hundred edges.

use std::ops::Range;

use super::pick::{self, Pick};
use super::prefetch::prefetch;
use super::relabel::Relabel;
use super::{Job, walk};
use crate::device::sample::{check_edges, repeated};
use crate::error::{Result, try_reserve};
use crate::graph::InEdges;

/// A group ends at this many edges or rows: what it prefetches must stay in the first-level cache.
const GROUP_EDGES: usize = 256;
const GROUP_ROWS: usize = 64;

/// How many destinations ahead offsets, and then rows, are prefetched.
const OFFSETS_AHEAD: usize = 16;
const ROWS_AHEAD: usize = 4;

/// How many sources of such a row are prefetched, if all of them are read: the hardware prefetches later ones.
const SCANNED_AHEAD: usize = 128;

/// A block as it grows, and the group at work.
#[derive(Default)]
pub(super) struct Lists {
    /// May be longer than the sources found: only the first `n_src` count.
    pub(super) src: Vec<u32>,
    pub(super) n_src: usize,
    pub(super) indices: Vec<u32>,
    pub(super) edge_id: Vec<u64>,
    pub(super) edge_type: Vec<u16>,
    pub(super) edge_weight: Vec<f32>,
    /// Kept edges of the group.
    group: Vec<u64>,
    /// Their sources.
    sources: Vec<u32>,
}

impl Lists {
    /// Empties the lists and puts the destinations first.
    pub(super) fn begin(&mut self, dst: &[u32], relabel: &mut impl Relabel) -> Result<()> {
        self.indices.clear();
        self.edge_id.clear();
        self.edge_type.clear();
        self.edge_weight.clear();
        self.n_src = dst.len();
        if self.src.len() < dst.len() {
            let more = dst.len() - self.src.len();
            reserve(&mut self.src, more)?;
            self.src.resize(dst.len(), 0);
        }
        self.src[..dst.len()].copy_from_slice(dst);
        for (position, &vertex) in dst.iter().enumerate() {
            if let Some(&later) = dst.get(position + OFFSETS_AHEAD) {
                relabel.prefetch(later);
            }
            let position = position as u32;
            if relabel.position(vertex, position) != position {
                return Err(repeated(u64::from(position), vertex));
            }
        }
        Ok(())
    }

    /// Samples all rows with a picker of edges.
    pub(super) fn pick_rows<P: Pick>(
        &mut self,
        job: &Job,
        rows: Range<usize>,
        relabel: &mut impl Relabel,
        picker: &mut P,
        indptr: &mut [u32],
    ) -> Result<()> {
        let Job { graph, dst, .. } = *job;
        let InEdges { indptr: offsets, indices, .. } = graph;
        let mut row = rows.start;
        while row < rows.end {
            self.group.clear();
            let first_row = row;
            while row < rows.end && row - first_row < GROUP_ROWS && self.group.len() < GROUP_EDGES {
                if let Some(&later) = dst.get(row + OFFSETS_AHEAD) {
                    prefetch(offsets, graph.row(later));
                }
                if P::SCANS
                    && let Some(&later) = dst.get(row + ROWS_AHEAD)
                {
                    let row = graph.row(later);
                    let (first, end) = (offsets[row] as usize, offsets[row + 1] as usize);
                    for line in
                        (first..end.min(first.saturating_add(SCANNED_AHEAD))).step_by(64 / size_of::<u32>())
                    {
                        prefetch(indices, line);
                    }
                }
                let vertex = dst[row];
                let (edges, shift) = (graph.checked_positions(vertex)?, graph.shift(vertex));
                let n_before = self.indices.len() as u64 + self.group.len() as u64;
                let at_least = picker.at_least(edges.end - edges.start);
                check_edges(n_before.saturating_add(at_least))?;
                reserve(&mut self.group, at_least as usize)?;
                let first_kept = self.group.len();
                picker.pick(pick::Row { place: row, vertex, edges, shift }, &mut self.group);
                if job.spec.edge_ids {
                    reserve(&mut self.edge_id, self.group.len() - first_kept)?;
                    self.edge_id.extend(self.group[first_kept..].iter().map(|edge| edge + shift));
                }
                if !P::SCANS {
                    self.group[first_kept..].iter().for_each(|&edge| prefetch(indices, edge as usize));
                }
                row += 1;
                let n_edges = self.indices.len() as u64 + self.group.len() as u64;
                check_edges(n_edges)?;
                indptr[row] = n_edges as u32;
            }
            self.sources.clear();
            reserve(&mut self.sources, self.group.len())?;
            self.sources.extend(self.group.iter().map(|&edge| {
                let source = indices[edge as usize];
                relabel.prefetch(source);
                source
            }));
            graph.check_sources(&self.sources)?;
            self.append_sources(relabel)?;
            if let Some(edge_type) = graph.edge_type {
                reserve(&mut self.edge_type, self.group.len())?;
                self.edge_type.extend(self.group.iter().map(|&edge| edge_type[edge as usize]));
            }
            if let Some(edge_weight) = graph.edge_weight.filter(|_| job.spec.edge_weights) {
                reserve(&mut self.edge_weight, self.group.len())?;
                self.edge_weight.extend(self.group.iter().map(|&edge| edge_weight[edge as usize]));
            }
        }
        Ok(())
    }

    /// Samples all rows by walks.
    pub(super) fn walk_rows(
        &mut self,
        dst: &[u32],
        relabel: &mut impl Relabel,
        mut walks: walk::Walks,
        weight: &mut Vec<f64>,
        indptr: &mut [u32],
    ) -> Result<()> {
        for (row, &vertex) in dst.iter().enumerate() {
            self.sources.clear();
            walks.neighbors(row, vertex, &mut self.sources, weight)?;
            check_edges(self.indices.len() as u64 + self.sources.len() as u64)?;
            self.append_sources(relabel)?;
            indptr[row + 1] = self.indices.len() as u32;
        }
        Ok(())
    }

    /// Gives the group's sources their positions, and appends the new ones to the block's.
    #[inline(always)]
    fn append_sources(&mut self, relabel: &mut impl Relabel) -> Result<()> {
        // Room for one more than can be new: every source is written where the next new one belongs, and counted only
        // if it is new.
        let room = self.n_src + self.sources.len() + 1;
        if self.src.len() < room {
            let room = room.next_power_of_two();
            let more = room - self.src.len();
            reserve(&mut self.src, more)?;
            self.src.resize(room, 0);
        }
        reserve(&mut self.indices, self.sources.len())?;
        let mut n_src = self.n_src;
        let src = &mut self.src[..];
        self.indices.extend(self.sources.iter().map(|&source| {
            let position = relabel.position(source, n_src as u32);
            src[n_src] = source;
            n_src += usize::from(position as usize == n_src);
            position
        }));
        self.n_src = n_src;
        Ok(())
    }
}

/// Makes room in a list of the block for `n` more. Lists double: nearly always there is room.
#[inline(always)]
pub(super) fn reserve<T>(list: &mut Vec<T>, n: usize) -> Result<()> {
    if list.capacity() - list.len() >= n {
        return Ok(());
    }
    grow(list, n)
}

#[cold]
fn grow<T>(list: &mut Vec<T>, n: usize) -> Result<()> {
    let asked = format!("it has {} vertices or edges so far, and is to get {n} more", list.len());
    try_reserve(list, "the block of a batch", n, asked)
}
