//! Sampling without given edges against sampling a graph that never had them.

use super::*;
use crate::graph::EdgeSet;

/// A third of the edges, and all of one vertex.
fn some_edges(graph: &Graph) -> EdgeSet {
    let third = (0..graph.n_edges()).filter(|&e| bounded(8, 0, e, 3) == 0);
    third.chain(graph.indptr()[5]..graph.indptr()[6]).collect()
}

/// The graph without `excluded`, and its edges' ids in `graph`.
fn removed(graph: &Graph, excluded: &EdgeSet) -> (Arc<Graph>, Vec<u64>) {
    let numbers: Vec<u64> = (0..graph.n_edges()).filter(|e| !excluded.ids().contains(e)).collect();
    let before = |end: &u64| numbers.iter().filter(|&number| number < end).count() as u64;
    let of = |e: &u64| *e as usize;
    let indptr: Vec<u64> = graph.indptr().iter().map(before).collect();
    let indices: Vec<u32> = numbers.iter().map(|e| graph.indices()[of(e)]).collect();
    let weight: Vec<f32> = numbers.iter().map(|e| graph.edge_weight().unwrap()[of(e)]).collect();
    let relation: Vec<u16> = numbers.iter().map(|e| graph.edge_type().unwrap()[of(e)]).collect();
    let graph = Graph::from_csr(indptr, indices).unwrap();
    let graph = graph.with_edge_weights(weight).unwrap().with_edge_types(relation, 3).unwrap();
    (Arc::new(graph), numbers)
}

fn excluding(
    graph: &Arc<Graph>,
    dst: &[u32],
    spec: &SampleSpec,
    variates: &Variates,
    excluded: &EdgeSet,
) -> SampledBlock<Cpu<f64>> {
    Cpu::<f64>::new().sample_block_excluding(graph, dst, spec, variates, 1, excluded).unwrap()
}

#[test]
fn draws_of_vertices_give_the_block_of_the_graph_without_the_edges() {
    let graph = skewed(400, 12, 3);
    let excluded = some_edges(&graph);
    let (without, numbers) = removed(&graph, &excluded);
    let dst: Vec<u32> = (0..200).map(|i| i * 2).chain([5, 7]).collect();
    for (method, rotates) in methods() {
        if method == WEIGHTED {
            continue;
        }
        for fanout in [0, 1, 3, usize::MAX] {
            let [renewed, rotated] = dependent_batches(4);
            let mut all = vec![batch(4), renewed];
            if rotates && method != NEIGHBOR {
                all.push(rotated);
            }
            for variates in all {
                if fanout == usize::MAX && matches!(method, Method::Neighbor { replace: true, .. }) {
                    continue;
                }
                let spec = SampleSpec { edge_weights: method.takes_edges(), ..spec(method, fanout) };
                let mut block = Cpu::<f64>::new().sample_block(&without, &dst, &spec, &variates, 1).unwrap();
                if let Some(edge_id) = &mut block.edge_id {
                    edge_id.iter_mut().for_each(|id| *id = numbers[*id as usize]);
                }
                let found = excluding(&graph, &dst, &spec, &variates, &excluded);
                let types = |block: &SampledBlock<Cpu<f64>>| block.edge_type.as_ref().map(|t| t.to_vec());
                assert_eq!(types(&found), types(&block), "{method:?}, {fanout}");
                let weights = |block: &SampledBlock<Cpu<f64>>| block.edge_weight.as_ref().map(|w| w.to_vec());
                assert_eq!(weights(&found), weights(&block), "{method:?}, {fanout}");
                assert_eq!(to_host(found), to_host(block), "{method:?}, {fanout}");
            }
        }
    }
}

/// Bottom-k samples are nested: the `2 k` smallest draws are the `k` smallest, and the `k` smallest without these.
#[test]
fn draws_of_edges_are_those_of_the_whole_graph() {
    let graph = skewed(400, 12, 3);
    let dst: Vec<u32> = (0..400).collect();
    let k = 3;
    let cases = [
        (spec(WEIGHTED, k), batch(2)),
        (spec(WEIGHTED, k), dependent_batches(2)[0]),
        (spec(NEIGHBOR, k), dependent_batches(2)[1]),
        (SampleSpec { per_relation: true, ..spec(NEIGHBOR, k) }, batch(2)),
    ];
    for (spec, variates) in cases {
        let kept = |spec: &SampleSpec, excluded: &EdgeSet| {
            excluding(&graph, &dst, spec, &variates, excluded).edge_id.unwrap().to_vec()
        };
        let first: EdgeSet = kept(&spec, &EdgeSet::default()).into_iter().collect();
        let second = kept(&spec, &first);
        assert!(!second.is_empty() && second.iter().all(|&id| !first.contains(id)));
        let both: EdgeSet = first.ids().iter().copied().chain(second).collect();
        let expected = kept(&SampleSpec { fanout: 2 * k, ..spec }, &EdgeSet::default());
        assert_eq!(both.ids(), expected, "{spec:?}");
    }
}

#[test]
fn an_edge_that_is_none_is_an_error() {
    let graph = star(3);
    let excluded: EdgeSet = [1, 3].into_iter().collect();
    let (spec, cpu) = (spec(Method::Full, 1), Cpu::<f64>::new());
    let error = cpu.sample_block_excluding(&graph, &[0], &spec, &batch(0), 0, &excluded).unwrap_err();
    assert!(matches!(
        error,
        Error::IndexOutOfRange { array: "excluded edges", position: 1, value: 3, limit: 3 }
    ));
}
