//! Which processing element owns which vertex, and which part of a graph it holds.

use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Graph;
use super::in_edges::{Held, InEdges};
use crate::error::{Error, Result, check_length, try_collect, try_extend, try_filled};
use crate::rng::{self, Purpose};

/// How vertices are assigned to processing elements (PEs).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartitionMethod {
    /// Ranges of about equal length of a random permutation (Cooperative Minibatching §4).
    Random,
    /// Ranges of about equal length.
    Contiguous,
    /// By a hash of each vertex's id: no PE needs to know the others' vertices.
    Hash,
    /// METIS's k-way partition (Karypis & Kumar 1998), in which few edges cross PEs: see [`Partition::of_graph`].
    Metis,
}

impl FromStr for PartitionMethod {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "random" => Ok(PartitionMethod::Random),
            "contiguous" => Ok(PartitionMethod::Contiguous),
            "hash" => Ok(PartitionMethod::Hash),
            "metis" => Ok(PartitionMethod::Metis),
            _ => Err(Error::invalid("partition", name, "random, contiguous, hash or metis")),
        }
    }
}

/// An owner for each vertex.
#[derive(Clone, Debug)]
pub struct Partition {
    owner: Vec<u16>,
    n_pes: usize,
}

/// The most PEs of a partition.
pub const MAX_PES: usize = 1 << 16;

impl Partition {
    /// Assigns the vertices of `graph` to `n_pes` PEs. A PE may get none.
    ///
    /// [`PartitionMethod::Metis`] looks at the edges, in both directions and without self-loops: with the same seed it
    /// gives the same partition on machines with the same C library. For the other methods see [`new`](Partition::new).
    ///
    /// Errors: `n_pes` is not in `1..=MAX_PES`. For METIS also [`Error::Unavailable`] without the cargo feature
    /// `metis`, [`Error::TooLarge`] above 2^31 - 2 vertices or 2^31 - 1 edges (counted in both directions), or METIS
    /// fails.
    pub fn of_graph(method: PartitionMethod, graph: &Graph, n_pes: usize, seed: u64) -> Result<Self> {
        if method != PartitionMethod::Metis {
            return Partition::new(method, graph.n_vertices(), n_pes, seed);
        }
        check_pes(n_pes)?;
        Ok(Partition { owner: super::metis::owners(graph, n_pes, seed)?, n_pes })
    }

    /// Assigns `n_vertices` vertices to `n_pes` PEs. A PE may get none. The same on every machine.
    ///
    /// Errors: `n_pes` is not in `1..=MAX_PES`; [`PartitionMethod::Metis`], which needs the graph; no memory.
    pub fn new(method: PartitionMethod, n_vertices: usize, n_pes: usize, seed: u64) -> Result<Self> {
        check_pes(n_pes)?;
        let stream = Purpose::Partition.stream(0);
        // PE p's range begins at ⌊p · n / P⌋.
        let of_place = |place: usize| {
            let (place, n) = (place as u128, n_vertices as u128);
            (((place + 1) * n_pes as u128 - 1) / n) as u16
        };
        let asked = format_args!("there are {n_vertices} vertices");
        let mut owner = try_filled("the vertices' owners", 0u16, n_vertices, asked)?;
        match method {
            PartitionMethod::Contiguous => {
                owner.iter_mut().enumerate().for_each(|(place, owner)| *owner = of_place(place));
            }
            PartitionMethod::Random => {
                let mut order = try_collect("the vertices' order", 0..n_vertices as u32, asked)?;
                rng::shuffle(seed, stream, &mut order);
                for (place, &vertex) in order.iter().enumerate() {
                    owner[vertex as usize] = of_place(place);
                }
            }
            PartitionMethod::Hash => {
                for (vertex, owner) in (0u64..).zip(&mut owner) {
                    *owner = rng::bounded(seed, stream, vertex, n_pes as u64) as u16;
                }
            }
            PartitionMethod::Metis => {
                return Err(Error::invalid("partition", "metis, without a graph", "Partition::of_graph"));
            }
        }
        Ok(Partition { owner, n_pes })
    }

    /// A partition made elsewhere: `owner: [n_vertices]`.
    ///
    /// Errors: `n_pes` is not in `1..=MAX_PES`, or an owner is not below it.
    pub fn from_owners(owner: Vec<u16>, n_pes: usize) -> Result<Self> {
        check_pes(n_pes)?;
        if let Some(position) = owner.iter().position(|&p| usize::from(p) >= n_pes) {
            return Err(Error::IndexOutOfRange {
                array: "owner",
                position: position as u64,
                value: owner[position].into(),
                limit: n_pes as u64,
            });
        }
        Ok(Partition { owner, n_pes })
    }

    /// Number of PEs.
    pub fn n_pes(&self) -> usize {
        self.n_pes
    }

    /// Number of vertices.
    pub fn n_vertices(&self) -> usize {
        self.owner.len()
    }

    /// The PE that owns a vertex. Panics if the vertex is out of range.
    pub fn owner(&self, vertex: u32) -> usize {
        self.owner[vertex as usize].into()
    }

    /// The vertices of a PE, ascending.
    pub fn vertices(&self, pe: usize) -> Vec<u32> {
        (0..self.owner.len() as u32).filter(|&v| self.owner(v) == pe).collect()
    }

    /// `[n_vertices]`: the PE that owns each vertex.
    #[cfg(feature = "metis")]
    pub(super) fn into_owners(self) -> Vec<u16> {
        self.owner
    }
}

fn check_pes(n_pes: usize) -> Result<()> {
    if (1..=MAX_PES).contains(&n_pes) {
        return Ok(());
    }
    Err(Error::invalid("n_pes", n_pes, format!("between 1 and {MAX_PES}")))
}

/// One processing element's part of a partitioned graph: the in-edges of the vertices that it owns.
///
/// Vertices and edges keep the ids that they have in the whole graph, so samples are the same. Besides its share of the
/// edges a shard takes `4 · n_vertices` bytes, to find a vertex's row.
#[derive(Clone, Debug)]
pub struct Shard {
    partition: Arc<Partition>,
    pe: usize,
    vertices: Vec<u32>,
    row_of: Vec<u32>,
    indptr: Vec<u64>,
    first_edge: Vec<u64>,
    indices: Vec<u32>,
    edge_type: Option<Vec<u16>>,
    edge_weight: Option<Vec<f32>>,
    n_relations: usize,
}

/// Marks a vertex without a row.
const NOT_HELD: u32 = u32::MAX;

impl Shard {
    /// The shard of PE `pe`: a copy of its part of `graph`. Reads only its rows.
    ///
    /// Errors: `partition` is of another number of vertices than `graph`, `pe` is not below its number of PEs, or there
    /// is no memory for the shard.
    pub fn new(graph: &Graph, partition: &Arc<Partition>, pe: usize) -> Result<Self> {
        check_length("owner", partition.n_vertices(), graph.n_vertices())?;
        if pe >= partition.n_pes() {
            return Err(Error::invalid("pe", pe, format!("below the partition's {}", partition.n_pes())));
        }
        let (what, asked) = ("a shard of the graph", graph.size());
        let vertices = partition.vertices(pe);
        let mut row_of = try_filled(what, NOT_HELD, graph.n_vertices(), &asked)?;
        let (mut indptr, mut first_edge) = (vec![0], Vec::new());
        let mut indices = Vec::new();
        let (mut edge_type, mut edge_weight) =
            (graph.edge_type().map(|_| Vec::new()), graph.edge_weight().map(|_| Vec::new()));
        for (row, &vertex) in vertices.iter().enumerate() {
            row_of[vertex as usize] = row as u32;
            let (first, end) = (graph.indptr()[vertex as usize], graph.indptr()[vertex as usize + 1]);
            let positions = first as usize..end as usize;
            first_edge.push(first);
            try_extend(&mut indices, what, graph.indices()[positions.clone()].iter().copied(), &asked)?;
            if let (Some(all), Some(own)) = (graph.edge_type(), &mut edge_type) {
                try_extend(own, what, all[positions.clone()].iter().copied(), &asked)?;
            }
            if let (Some(all), Some(own)) = (graph.edge_weight(), &mut edge_weight) {
                try_extend(own, what, all[positions].iter().copied(), &asked)?;
            }
            indptr.push(indices.len() as u64);
        }
        let (partition, n_relations) = (partition.clone(), graph.n_relations());
        Ok(Shard {
            partition,
            pe,
            vertices,
            row_of,
            indptr,
            first_edge,
            indices,
            edge_type,
            edge_weight,
            n_relations,
        })
    }

    /// The partition that this is a part of.
    pub fn partition(&self) -> &Arc<Partition> {
        &self.partition
    }

    /// The PE that holds this shard.
    pub fn pe(&self) -> usize {
        self.pe
    }

    /// The vertices held, ascending.
    pub fn vertices(&self) -> &[u32] {
        &self.vertices
    }

    /// The position of a vertex among those held; `None` if it is not held.
    pub fn row_of(&self, vertex: u32) -> Option<usize> {
        self.row_of.get(vertex as usize).filter(|&&row| row != NOT_HELD).map(|&row| row as usize)
    }

    /// Number of edges held.
    pub fn n_edges(&self) -> u64 {
        self.indices.len() as u64
    }

    /// Number of relations of the whole graph; 0 without edge types.
    pub fn n_relations(&self) -> usize {
        self.n_relations
    }

    /// Number of in-edges of a vertex; `None` if it is not held.
    pub fn in_degree(&self, vertex: u32) -> Option<u64> {
        self.row_of(vertex).map(|row| self.indptr[row + 1] - self.indptr[row])
    }

    /// The sum of the weights of a vertex's in-edges, without weights their number; `None` if it is not held. Adds them
    /// up anew.
    pub fn weighted_in_degree(&self, vertex: u32) -> Option<f64> {
        let row = self.row_of(vertex)?;
        let (first, end) = (self.indptr[row], self.indptr[row + 1]);
        let weights = self.edge_weight.as_ref().map(|weights| &weights[first as usize..end as usize]);
        Some(weights.map_or((end - first) as f64, super::sum))
    }

    /// The in-edges held.
    pub(crate) fn in_edges(&self) -> InEdges<'_> {
        InEdges {
            n_vertices: self.row_of.len(),
            indptr: &self.indptr,
            indices: &self.indices,
            edge_type: self.edge_type.as_deref(),
            edge_weight: self.edge_weight.as_deref(),
            held: Some(Held::Shard { row_of: &self.row_of, first_edge: &self.first_edge }),
            remaining: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Rmat;

    #[cfg(not(feature = "metis"))]
    const METHODS: [PartitionMethod; 3] =
        [PartitionMethod::Random, PartitionMethod::Contiguous, PartitionMethod::Hash];
    #[cfg(feature = "metis")]
    const METHODS: [PartitionMethod; 4] =
        [PartitionMethod::Random, PartitionMethod::Contiguous, PartitionMethod::Hash, PartitionMethod::Metis];

    /// A ring, which every method can partition.
    fn ring(n_vertices: usize) -> Graph {
        let n = n_vertices as u32;
        let edges: Vec<(u32, u32)> = (0..n).map(|v| (v, (v + 1) % n)).collect();
        Graph::from_edges(n_vertices as u64, &edges).unwrap()
    }

    #[test]
    fn every_vertex_has_one_owner_and_shares_are_even() {
        for method in METHODS {
            for n_vertices in [0, 1, 5, 1000] {
                for n_pes in [1, 2, 3, 8, 17] {
                    let partition = Partition::of_graph(method, &ring(n_vertices), n_pes, 3).unwrap();
                    let shares: Vec<_> = (0..n_pes).map(|pe| partition.vertices(pe)).collect();
                    let mut all = shares.concat();
                    all.sort_unstable();
                    assert!(all.iter().copied().eq(0..n_vertices as u32), "{method:?}");
                    if matches!(method, PartitionMethod::Random | PartitionMethod::Contiguous) {
                        let even = n_vertices / n_pes;
                        assert!(shares.iter().all(|s| s.len() == even || s.len() == even + 1), "{method:?}");
                    }
                }
            }
        }
        assert!(Partition::new(PartitionMethod::Hash, 5, 0, 0).is_err());
        assert!(Partition::from_owners(vec![0, 2, 1], 2).unwrap_err().to_string().contains("owner[1] = 2"));
    }

    #[test]
    fn shards_hold_the_rows_of_their_vertices() {
        let graph = Rmat::graph500(6, 8, 5).generate().unwrap();
        let weights = (0..graph.n_edges()).map(|e| e as f32).collect::<Vec<_>>();
        let types = (0..graph.n_edges()).map(|e| (e % 3) as u16).collect::<Vec<_>>();
        let graph = graph.with_edge_weights(weights).unwrap().with_edge_types(types, 3).unwrap();
        for method in METHODS {
            let partition = Arc::new(Partition::of_graph(method, &graph, 3, 9).unwrap());
            let shards: Vec<_> = (0..3).map(|pe| Shard::new(&graph, &partition, pe).unwrap()).collect();
            assert_eq!(shards.iter().map(Shard::n_edges).sum::<u64>(), graph.n_edges());
            for vertex in 0..graph.n_vertices() as u32 {
                for (pe, shard) in shards.iter().enumerate() {
                    if partition.owner(vertex) != pe {
                        assert_eq!((shard.row_of(vertex), shard.in_degree(vertex)), (None, None));
                        continue;
                    }
                    let (edges, all) = (shard.in_edges(), graph.in_edges());
                    assert_eq!(edges.sources(vertex).unwrap(), all.sources(vertex).unwrap());
                    assert_eq!(shard.vertices()[shard.row_of(vertex).unwrap()], vertex);
                    for (own, number) in edges.positions(vertex).zip(all.positions(vertex)) {
                        assert_eq!(own + edges.shift(vertex), number);
                        assert_eq!(edges.edge_weight.unwrap()[own as usize], number as f32);
                        assert_eq!(edges.edge_type.unwrap()[own as usize], (number % 3) as u16);
                    }
                }
            }
        }
        let other = Arc::new(Partition::new(PartitionMethod::Hash, 3, 3, 9).unwrap());
        assert!(Shard::new(&graph, &other, 0).is_err());
    }
}
