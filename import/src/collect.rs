//! The sink of an import: edges are sorted by destination and source, in files if memory is too small.

use std::path::Path;

use bytemuck::Pod;
use cohop::graph::MAX_VERTICES;
use cohop::{Error, Result};

use crate::sink::Sink;
use crate::sort::{Sorted, Sorter};

/// An edge on its way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Edge {
    pub(crate) source: u32,
    pub(crate) destination: u32,
    pub(crate) kind: u16,
    /// Which edge the reader gave, or which of them this is the reverse of; 0 where nobody asks.
    pub(crate) number: u64,
    pub(crate) weight: f32,
}

impl Edge {
    fn ends(&self) -> u64 {
        u64::from(self.destination) << 32 | u64::from(self.source)
    }

    /// By what edges are sorted, before their numbers.
    pub(crate) fn key(&self) -> (u64, u16) {
        (self.ends(), self.kind)
    }
}

/// Numbers of edges share 64 bits with relations.
const NUMBER_BITS: u32 = 48;

/// What is sorted for an edge: ends; relation and number; weight. What edges do not have is left out, from behind.
trait Record: Pod + Ord + Send {
    fn new(edge: &Edge) -> Self;
    fn edge(self) -> Edge;
}

fn edge(ends: u64, kind_and_number: u64, weight: f32) -> Edge {
    Edge {
        source: ends as u32,
        destination: (ends >> 32) as u32,
        kind: (kind_and_number >> NUMBER_BITS) as u16,
        number: kind_and_number & ((1 << NUMBER_BITS) - 1),
        weight,
    }
}

fn kind_and_number(edge: &Edge) -> u64 {
    u64::from(edge.kind) << NUMBER_BITS | edge.number
}

impl Record for u64 {
    fn new(edge: &Edge) -> Self {
        edge.ends()
    }

    fn edge(self) -> Edge {
        edge(self, 0, 1.0)
    }
}

impl Record for [u64; 2] {
    fn new(edge: &Edge) -> Self {
        [edge.ends(), kind_and_number(edge)]
    }

    fn edge(self) -> Edge {
        edge(self[0], self[1], 1.0)
    }
}

impl Record for [u64; 3] {
    fn new(edge: &Edge) -> Self {
        [edge.ends(), kind_and_number(edge), u64::from(edge.weight.to_bits())]
    }

    fn edge(self) -> Edge {
        edge(self[0], self[1], f32::from_bits(self[2] as u32))
    }
}

/// Sorters of one kind of records.
trait Store {
    fn push(&mut self, edge: &Edge, added: bool) -> Result<()>;
    fn stream(self: Box<Self>) -> Result<Box<dyn Stream>>;
}

/// Edges by destination, source and relation; among equal ones the given before the added, then by number.
pub(crate) trait Stream {
    /// The next edge, and whether it was added. `None` after the last.
    fn next(&mut self) -> Result<Option<(Edge, bool)>>;
}

/// Given and added edges apart: so, records need no mark.
struct Pair<R> {
    given: Sorter<R>,
    added: Sorter<R>,
}

impl<R: Record + 'static> Store for Pair<R> {
    fn push(&mut self, edge: &Edge, added: bool) -> Result<()> {
        if added { self.added.push(R::new(edge)) } else { self.given.push(R::new(edge)) }
    }

    fn stream(self: Box<Self>) -> Result<Box<dyn Stream>> {
        let (mut given, mut added) = (self.given.sorted()?, self.added.sorted()?);
        let next = [next(&mut given)?, next(&mut added)?];
        Ok(Box::new(Both { given, added, next }))
    }
}

struct Both<R> {
    given: Sorted<R>,
    added: Sorted<R>,
    next: [Option<Edge>; 2],
}

fn next<R: Record>(sorted: &mut Sorted<R>) -> Result<Option<Edge>> {
    Ok(sorted.next()?.map(R::edge))
}

impl<R: Record> Stream for Both<R> {
    fn next(&mut self) -> Result<Option<(Edge, bool)>> {
        let added = match &self.next {
            [given, None] if given.is_none() => return Ok(None),
            [Some(given), Some(added)] => added.key() < given.key(),
            [given, _] => given.is_none(),
        };
        let following = if added { next(&mut self.added)? } else { next(&mut self.given)? };
        let edge = std::mem::replace(&mut self.next[usize::from(added)], following);
        Ok(edge.map(|edge| (edge, added)))
    }
}

/// What happens to each edge by itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turn {
    /// Sources become destinations.
    pub(crate) reverse: bool,
    /// The reverse edge is there too.
    pub(crate) undirected: bool,
    pub(crate) remove_self_loops: bool,
}

/// Sorts edges, and counts them.
pub(crate) struct Collector<'a> {
    folder: &'a Path,
    memory: u64,
    turn: Turn,
    /// Made for the first edge.
    store: Option<Box<dyn Store>>,
    /// Edges that were given.
    pub(crate) n_edges: u64,
    pub(crate) n_removed_loops: u64,
    /// The largest id, and the number of an edge that has it.
    pub(crate) largest: Option<(u32, u64)>,
    pub(crate) smallest: Option<u32>,
    pub(crate) largest_kind: u16,
}

impl<'a> Collector<'a> {
    /// Takes about `memory` bytes, and files in `folder`.
    pub(crate) fn new(folder: &'a Path, memory: u64, turn: Turn) -> Self {
        Collector {
            folder,
            memory,
            turn,
            store: None,
            n_edges: 0,
            n_removed_loops: 0,
            largest: None,
            smallest: None,
            largest_kind: 0,
        }
    }

    fn store_of<R: Record + 'static>(&self) -> Box<dyn Store> {
        let memory = if self.turn.undirected { self.memory / 2 } else { self.memory };
        let [given, added] = [(); 2].map(|()| Sorter::<R>::new(self.folder, memory));
        Box::new(Pair { given, added })
    }

    /// All edges, sorted.
    pub(crate) fn stream(mut self) -> Result<Box<dyn Stream>> {
        match self.store.take() {
            Some(store) => store.stream(),
            None => self.store_of::<u64>().stream(),
        }
    }
}

impl Sink for Collector<'_> {
    fn expect(&mut self, weights: bool, kinds: bool, features: bool) {
        if self.store.is_none() {
            self.store = Some(match (weights, kinds || features) {
                (true, _) => self.store_of::<[u64; 3]>(),
                (false, true) => self.store_of::<[u64; 2]>(),
                (false, false) => self.store_of::<u64>(),
            });
        }
    }

    fn edge(&mut self, source: u32, destination: u32, weight: f32, kind: u16) -> Result<()> {
        let number = self.n_edges;
        let fail = |value: String, expected: &str| Err(Error::invalid("an edge", value, expected));
        let larger = source.max(destination);
        if u64::from(larger) >= MAX_VERTICES {
            return fail(format!("({source}, {destination})"), "ids below 4294967295");
        }
        if !(weight.is_finite() && weight >= 0.0) {
            return fail(format!("edge {number} of weight {weight}"), "finite weights of at least 0");
        }
        if number >> NUMBER_BITS != 0 {
            return Err(Error::TooLarge { what: "the edge set", count: number, limit: 1 << NUMBER_BITS });
        }
        self.n_edges += 1;
        if self.largest.is_none_or(|(largest, _)| largest < larger) {
            self.largest = Some((larger, number));
        }
        let smaller = source.min(destination);
        self.smallest = Some(self.smallest.map_or(smaller, |smallest| smallest.min(smaller)));
        self.largest_kind = self.largest_kind.max(kind);
        if source == destination && self.turn.remove_self_loops {
            self.n_removed_loops += 1;
            return Ok(());
        }
        let (source, destination) =
            if self.turn.reverse { (destination, source) } else { (source, destination) };
        // -0 would sort behind all others.
        let edge = Edge { source, destination, kind, number, weight: weight.abs() };
        self.expect(true, true, true);
        let Some(store) = &mut self.store else { return Ok(()) };
        store.push(&edge, false)?;
        if self.turn.undirected && source != destination {
            store.push(&Edge { source: destination, destination: source, ..edge }, true)?;
        }
        Ok(())
    }
}
