//! Blocks of every method: their invariants, what is empty, and what is refused.

use approx::assert_abs_diff_eq;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;

/// What holds for every block, whatever was drawn.
fn check_block(graph: &Graph, dst: &[u32], spec: &SampleSpec, block: &NaiveBlock) {
    let (n_dst, n_src) = (dst.len(), block.src.len());
    assert_eq!(&block.src[..n_dst], dst);
    assert_eq!(block.indptr.len(), n_dst + 1);
    assert_eq!((block.indptr[0], block.indptr[n_dst] as usize), (0, block.indices.len()));
    let mut sorted = block.src.clone();
    sorted.sort();
    assert!(sorted.windows(2).all(|pair| pair[0] < pair[1]), "a source twice: {:?}", block.src);
    // New sources come in order of first occurrence, and none comes without an edge.
    let mut next = n_dst;
    for &position in &block.indices {
        assert!((position as usize) <= next, "{position} before {next}");
        next += usize::from(position as usize == next);
    }
    assert_eq!(next, n_src);
    let walks = !spec.method.takes_edges();
    for (row, &vertex) in dst.iter().enumerate() {
        let range = block.indptr[row] as usize..block.indptr[row + 1] as usize;
        let degree = graph.in_degree(vertex) as usize;
        if let Some(weight) = &block.weight {
            let expected = if range.is_empty() { 0.0 } else { 1.0 };
            assert_abs_diff_eq!(weight[range.clone()].iter().sum::<f64>(), expected, epsilon = 1e-12);
        }
        let sources: Vec<u32> = block.indices[range.clone()].iter().map(|&i| block.src[i as usize]).collect();
        if walks {
            assert!(sources.windows(2).all(|pair| pair[0] < pair[1]) && !sources.contains(&vertex));
            assert!(sources.len() <= spec.fanout);
            continue;
        }
        let edge_id = &block.edge_id[range];
        let first = graph.indptr()[vertex as usize];
        let replace = matches!(spec.method, Method::Neighbor { replace: true, .. });
        for pair in edge_id.windows(2) {
            assert!(pair[0] < pair[1] || replace && pair[0] == pair[1], "{edge_id:?}");
        }
        for (&edge, &source) in edge_id.iter().zip(&sources) {
            assert!((first..first + degree as u64).contains(&edge));
            assert_eq!(graph.indices()[edge as usize], source);
        }
        let kept = edge_id.len();
        match spec.method {
            Method::Full => assert_eq!(kept, degree),
            Method::Neighbor { replace: false, weighted: false } | Method::Labor { fixed_size: true, .. } => {
                assert_eq!(kept, degree.min(spec.fanout));
            }
            Method::Neighbor { replace: true, weighted: false } if spec.fanout < usize::MAX => {
                assert_eq!(kept, if degree > 0 { spec.fanout } else { 0 });
            }
            Method::Labor { fixed_size: false, .. } if degree <= spec.fanout => assert_eq!(kept, degree),
            Method::Neighbor { weighted: true, .. } => {
                let weight = graph.edge_weight().unwrap();
                let positive = |edge: u64| weight[edge as usize] > 0.0;
                assert!(edge_id.iter().all(|&edge| positive(edge)));
                let available = (first..first + degree as u64).filter(|&edge| positive(edge)).count();
                let drawn = if replace && available > 0 { spec.fanout } else { available.min(spec.fanout) };
                assert!(kept == drawn || spec.fanout == usize::MAX && kept == available);
            }
            _ => assert!(kept <= degree),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_method_gives_valid_blocks(
        rows in prop::collection::vec(prop::collection::vec(any::<u32>(), 0..30), 1..40),
        picks in prop::collection::vec(any::<bool>(), 40),
        number in 0u64..1000,
        layer in 0u32..4,
    ) {
        let n = rows.len() as u32;
        let graph = graph_of(rows.into_iter().map(|row| row.into_iter().map(|s| s % n).collect()).collect());
        let dst: Vec<u32> = (0..n).rev().filter(|&v| picks[v as usize]).collect();
        for (method, rotates) in methods() {
            for fanout in [0, 1, 2, 5, 11, usize::MAX] {
                for variates in [batch(number)].into_iter().chain(dependent_batches(number)) {
                    if variates.rotates() && !rotates {
                        continue;
                    }
                    let spec = spec(method, fanout);
                    let (graph_edges, variates) = (graph.in_edges(), &variates);
                    let (walked, numbers) = (None, None);
                    let job = Job {
                        graph: graph_edges, dst: &dst, spec: &spec, variates, layer, walked, numbers,
                    };
                    check_block(&graph, &dst, &spec, &fast_by(number % 2 == 0, &job).unwrap());
                }
            }
        }
    }
}

#[test]
fn nothing_comes_of_nothing() {
    let edgeless = Arc::new(Graph::from_csr(vec![0, 0], vec![]).unwrap());
    let edgeless = Arc::new(edgeless.as_ref().clone().with_edge_weights(vec![]).unwrap());
    let no_vertices = Arc::new(Graph::from_csr(vec![0], vec![]).unwrap().with_edge_weights(vec![]).unwrap());
    let loop_only = graph_of(vec![vec![0]]);
    let star = star(5);
    for (method, _) in methods() {
        for fanout in [0, 3, usize::MAX] {
            let sample = |graph, dst: &[u32]| fast(graph, dst, &spec(method, fanout), &batch(0));
            for (graph, dst) in
                [(&edgeless, &[0][..]), (&edgeless, &[]), (&no_vertices, &[]), (&star, &[3, 1]), (&star, &[])]
            {
                let block = sample(graph, dst);
                assert_eq!(block.src, dst);
                assert_eq!(block.indptr, vec![0; dst.len() + 1]);
                assert!(block.indices.is_empty());
            }
            if fanout == 0 && method != Method::Full {
                assert!(sample(&star, &[0]).indices.is_empty());
            }
            let block = sample(&loop_only, &[0]);
            assert_eq!(block.src, [0]);
            assert!(block.indices.iter().all(|&position| position == 0));
        }
    }
}

#[test]
fn edge_ids_types_and_weights_are_given_as_asked() {
    let graph = skewed(200, 10, 1);
    let dst: Vec<u32> = (0..50).collect();
    let untyped = Arc::new(Graph::from_csr(graph.indptr().to_vec(), graph.indices().to_vec()).unwrap());
    for method in [Method::Full, NEIGHBOR, LABOR_0, LABOR_STAR] {
        let cpu = Cpu::<f32>::new();
        let with_weights = SampleSpec { edge_weights: true, ..spec(method, 4) };
        let block = cpu.sample_block(&graph, &dst, &with_weights, &batch(0), 0).unwrap();
        let edge_id = block.edge_id.unwrap();
        let weights: Vec<f32> = edge_id.iter().map(|&e| graph.edge_weight().unwrap()[e as usize]).collect();
        assert!(weights.iter().any(|&w| w > 0.0));
        assert_eq!(block.edge_weight.unwrap()[..], weights);
        let types: Vec<u16> = edge_id.iter().map(|&e| graph.edge_type().unwrap()[e as usize]).collect();
        assert_eq!(block.edge_type.unwrap()[..], types);
        let without = SampleSpec { edge_ids: false, ..spec(method, 4) };
        let block = cpu.sample_block(&graph, &dst, &without, &batch(0), 0).unwrap();
        assert!(block.edge_id.is_none() && block.edge_weight.is_none());
        let block = cpu.sample_block(&untyped, &dst, &without, &batch(0), 0).unwrap();
        assert!(block.edge_id.is_none() && block.edge_type.is_none() && block.edge_weight.is_none());
        let error = cpu.sample_block(&untyped, &dst, &with_weights, &batch(0), 0).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { argument: "edge_weights", .. }), "{error}");
        assert_eq!(block.weight.is_some(), method == LABOR_STAR);
    }
    let block = Cpu::<f32>::new().sample_block(&graph, &dst, &spec(WALK, 4), &batch(0), 0).unwrap();
    assert!(block.edge_id.is_none() && block.edge_type.is_none() && block.weight.is_some());
    let of_walks = SampleSpec { edge_weights: true, ..spec(WALK, 4) };
    let error = Cpu::<f32>::new().sample_block(&graph, &dst, &of_walks, &batch(0), 0).unwrap_err();
    assert!(error.to_string().contains("random walks with edge weights"), "{error}");
}

fn error(graph: &Arc<Graph>, dst: &[u32], method: Method, fanout: usize, variates: &Variates) -> Error {
    Cpu::<f32>::new().sample_block(graph, dst, &spec(method, fanout), variates, 0).unwrap_err()
}

#[test]
fn ids_out_of_range_are_refused_before_anything_is_allocated() {
    let graph = star(9);
    for (method, _) in methods() {
        for vertex in [10, u32::MAX] {
            let cpu = Cpu::<f32>::new();
            let result = cpu.sample_block(&graph, &[3, vertex], &spec(method, 2), &batch(0), 0);
            let message = result.unwrap_err().to_string();
            assert_eq!(message, format!("dst[1] = {vertex} is out of range: expected a value below 10"));
            assert_eq!(cpu.memory_statistics().largest_bytes, 0);
        }
    }
}

#[test]
fn repeated_ids_are_refused_and_leave_no_trace() {
    let graph = skewed(300, 10, 2);
    let cpu = Cpu::<f64>::new();
    for (method, _) in methods() {
        let result = cpu.sample_block(&graph, &[5, 7, 5], &spec(method, 2), &batch(0), 0);
        let message = result.unwrap_err().to_string();
        assert!(
            message.contains("vertex 5 at position 2") && message.contains("without repeats"),
            "{message}"
        );
        let block = cpu.sample_block(&graph, &[7, 5], &spec(method, 2), &batch(0), 1).unwrap();
        assert_eq!(to_host(block), fast(&graph, &[7, 5], &spec(method, 2), &batch(0)));
    }
}

#[test]
fn methods_that_need_weights_or_independence_say_so() {
    let unweighted = Arc::new(Graph::from_csr(vec![0, 1, 1], vec![1]).unwrap());
    for method in [WEIGHTED, REPLACE_WEIGHTED] {
        let message = error(&unweighted, &[0], method, 2, &batch(0)).to_string();
        assert!(message.contains("a graph with edge weights"), "{message}");
    }
    let infinite = Variates::new(1, 9, Kappa::Infinite, Dependence::Rotate);
    for (method, rotates) in methods() {
        // The first step of a window depends on the next ones, though it has one seed.
        for number in [0, 3] {
            let sample =
                |variates| Cpu::<f32>::new().sample_block(&star(4), &[0], &spec(method, 2), variates, 0);
            let [renewed, rotated] = &dependent_batches(number);
            assert!(sample(renewed).is_ok(), "{method:?}");
            match sample(rotated) {
                Ok(_) => assert!(rotates, "{method:?}"),
                Err(error) => assert!(!rotates && error.to_string().contains("by renewal"), "{error}"),
            }
        }
        assert!(Cpu::<f32>::new().sample_block(&star(4), &[0], &spec(method, 2), &infinite, 0).is_ok());
    }
}

#[test]
fn impossible_walks_are_refused() {
    for restart in [-0.1, 1.1, f64::NAN] {
        let method = Method::Walk { walks: 1, length: 1, restart };
        assert!(matches!(error(&star(4), &[0], method, 2, &batch(0)), Error::InvalidArgument { .. }));
    }
    let endless = Method::Walk { walks: 1 << 16, length: 1 << 16, restart: 0.5 };
    assert!(matches!(
        error(&star(4), &[0], endless, 2, &batch(0)),
        Error::TooLarge { count: 0x1_0000_0000, .. }
    ));
}

/// Found out before the edges are drawn: they would take 32 GiB.
#[test]
fn blocks_of_too_many_edges_are_refused() {
    let result = error(&star(4), &[0], REPLACE, 1 << 32, &batch(0));
    assert!(matches!(result, Error::TooLarge { count: 0x1_0000_0000, .. }), "{result}");
}

/// A fanout far above all degrees costs nothing.
#[test]
fn huge_fanouts_allocate_nothing_by_their_number() {
    for method in [NEIGHBOR, LABOR_0, LABOR_STAR, WALK, WEIGHTED] {
        let spec = spec(method, usize::MAX - 1);
        assert!(fast(&star(4), &[0], &spec, &batch(0)).src.len() > 1);
    }
}
