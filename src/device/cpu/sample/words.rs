//! The variates of all vertices in one table, for batches that look at more in-edges than there are vertices.

use super::pick::for_words;
use super::relabel::MAX_STAMPED_VERTICES;
use crate::device::SampleSpec;
use crate::graph::InEdges;
use crate::huge_pages;
use crate::rng::Variates;

/// Variates by vertex. One table serves the layers of a batch that share a stream, and the batches that share a seed.
#[derive(Default)]
pub(super) struct Words {
    words: Vec<u32>,
    /// What they are the words of.
    of: Option<(Variates, u64)>,
}

impl Words {
    /// The table, `[n_vertices]`, if sampling `dst` looks at so many edges that making it pays: looking a word up takes a
    /// third of the time of making it, and a tenth if it is blended.
    pub(super) fn get(
        &mut self,
        graph: InEdges<'_>,
        dst: &[u32],
        spec: &SampleSpec,
        variates: &Variates,
        stream: u64,
    ) -> Option<&[u32]> {
        let n = graph.n_vertices;
        let has_them = self.of == Some((*variates, stream)) && self.words.len() == n;
        if !has_them {
            let degree = |&vertex: &u32| {
                let edges = graph.positions(vertex);
                edges.end - edges.start
            };
            let scanned: u64 = dst.iter().map(degree).filter(|&degree| degree > spec.fanout as u64).sum();
            if n > MAX_STAMPED_VERTICES || scanned < n as u64 {
                return None;
            }
            self.words.clear();
            if self.words.capacity() < n {
                self.words = Vec::with_capacity(n);
                huge_pages::prefer(self.words.spare_capacity_mut());
            }
            for_words(variates, stream, n as u64, |id| id, |_, words| self.words.extend_from_slice(words));
            self.of = Some((*variates, stream));
        }
        Some(&self.words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Method;
    use crate::graph::Rmat;
    use crate::rng::{Kappa, Purpose};

    #[test]
    fn a_table_is_made_where_many_edges_are_looked_at_and_holds_their_words() {
        let graph = Rmat::graph500(8, 10, 1).generate().unwrap();
        let n = graph.n_vertices() as u32;
        let spec = SampleSpec { method: Method::Full, fanout: 2, per_relation: false, edge_ids: false };
        let mut words = Words::default();
        let all: Vec<u32> = (0..n).collect();
        for (batch, kappa, layer) in [(0, 1, 0), (1, 1, 0), (1, 1, 1), (2, 4, 1), (3, 4, 1)] {
            let variates = Variates::new(7, batch, Kappa::steps(kappa).unwrap());
            let stream = Purpose::Source.stream(layer);
            // A single destination is not enough, unless the table is there.
            assert!(words.get(graph.in_edges(), &all[..1], &spec, &variates, stream).is_none());
            let table = words.get(graph.in_edges(), &all, &spec, &variates, stream).unwrap().to_vec();
            let expected: Vec<u32> = all.iter().map(|&v| variates.word(stream, v.into())).collect();
            assert_eq!(table, expected);
            assert!(words.get(graph.in_edges(), &all[..1], &spec, &variates, stream).is_some());
        }
    }
}
