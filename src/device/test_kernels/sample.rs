//! Samplers: every device gives the CPU's block, bit for bit. (What the CPU's must be, its own tests say.)

use std::sync::Arc;

use super::{Random, test_devices};
use crate::device::{
    Cpu, Element, FeatureElement, LaborIterations, Method, Sample, SampleSpec, SampledBlock, Scalar, Storage,
};
use crate::error::Error;
use crate::graph::Graph;
use crate::rng::{Dependence, Kappa, Variates};

test_devices! {
    short_rows rows_beyond_a_warps_registers a_hub many_relations candidates_in_a_hash_table layers next_to_nothing
    wrong_destinations_are_errors what_graph_or_variates_lack_is_an_error too_many_edges_are_an_error
    degree_factors
}

const NEIGHBOR: Method = Method::NEIGHBOR;
const WEIGHTED: Method = Method::Neighbor { replace: false, weighted: true };
const REPLACE: Method = Method::Neighbor { replace: true, weighted: false };
const REPLACE_WEIGHTED: Method = Method::Neighbor { replace: true, weighted: true };
const WALK: Method = Method::Walk { walks: 20, length: 3, restart: 0.25 };

const fn labor(iterations: LaborIterations, fixed_size: bool) -> Method {
    Method::Labor { iterations, fixed_size, layer_dependent: false }
}

fn methods() -> Vec<Method> {
    let mut methods = vec![Method::Full, NEIGHBOR, WEIGHTED, REPLACE, REPLACE_WEIGHTED, WALK];
    for iterations in [LaborIterations::Fixed(0), LaborIterations::Fixed(2), LaborIterations::Converged] {
        methods.extend([false, true].map(|fixed_size| labor(iterations, fixed_size)));
    }
    methods
}

/// Whether the method can rotate.
fn can_rotate(method: Method) -> bool {
    matches!(method, Method::Full | Method::Labor { .. } | NEIGHBOR)
}

/// Independent, at the first step of a window, within one by rotation and by renewal, and always the same.
fn variates() -> [Variates; 5] {
    let dependent = Kappa::steps(10).unwrap();
    [
        Variates::new(1, 3, Kappa::INDEPENDENT, Dependence::default()),
        Variates::new(1, 20, dependent, Dependence::Rotate),
        Variates::new(1, 27, dependent, Dependence::Rotate),
        Variates::new(1, 27, dependent, Dependence::Renew),
        Variates::new(1, 3, Kappa::Infinite, Dependence::default()),
    ]
}

/// The race detector is slow; and with `f64`, only weights differ.
fn few_cases<D: Storage>() -> bool {
    size_of::<D::Scalar>() == 8
        || super::MOST_CASES.get() < u32::MAX
        || std::env::var("COHOP_EMULATE").is_ok_and(|mode| mode == "race")
}

/// A graph of rows of sources, of which a fifth has weight zero, and of relations.
fn graph_of(mut rows: Vec<Vec<u32>>, n_relations: usize) -> Arc<Graph> {
    let mut random = Random(7);
    let mut indptr = vec![0];
    for row in &mut rows {
        row.sort();
        indptr.push(indptr[indptr.len() - 1] + row.len() as u64);
    }
    let indices = rows.concat();
    let weight: Vec<f32> =
        indices.iter().map(|_| (random.value::<f32>(false) * 2.5 + 1.5).max(0.0)).collect();
    let relation: Vec<u16> = indices.iter().map(|_| random.index(n_relations) as u16).collect();
    let graph = Graph::from_csr(indptr, indices).unwrap();
    Arc::new(graph.with_edge_weights(weight).unwrap().with_edge_types(relation, n_relations).unwrap())
}

/// Rows of these degrees; sources with a bias to low ids, so that many come several times.
fn graph_of_degrees(n_vertices: usize, n_relations: usize, degree: impl Fn(usize) -> usize) -> Arc<Graph> {
    let mut random = Random(n_vertices as u64);
    let mut source = || {
        let uniform = random.value::<f64>(false).abs();
        (uniform * uniform * n_vertices as f64) as u32
    };
    let rows = (0..n_vertices).map(|vertex| (0..degree(vertex)).map(|_| source()).collect());
    graph_of(rows.collect(), n_relations)
}

/// A block on the host; floats as their bits.
#[derive(Debug, PartialEq)]
struct HostBlock {
    n_dst: usize,
    src: Vec<u32>,
    indptr: Vec<u32>,
    indices: Vec<u32>,
    edge_id: Option<Vec<u64>>,
    weight: Option<Vec<u64>>,
    edge_type: Option<Vec<u16>>,
    edge_weight: Option<Vec<u64>>,
}

fn to_host<D: Sample>(device: &D, block: &SampledBlock<D>) -> HostBlock {
    fn read<D: Storage, T: Element>(device: &D, buffer: &D::Buffer<T>) -> Vec<T> {
        device.download(D::view(buffer)).unwrap()
    }
    let bits = |weight: Vec<D::Scalar>| weight.iter().map(|w| w.widen_f64().to_bits()).collect();
    HostBlock {
        n_dst: block.n_dst,
        src: read(device, &block.src),
        indptr: read(device, &block.indptr),
        indices: read(device, &block.indices),
        edge_id: block.edge_id.as_ref().map(|edge_id| read(device, edge_id)),
        weight: block.weight.as_ref().map(|weight| bits(read(device, weight))),
        edge_type: block.edge_type.as_ref().map(|edge_type| read(device, edge_type)),
        edge_weight: block.edge_weight.as_ref().map(|weight| bits(read(device, weight))),
    }
}

/// A graph on a device and on the CPU.
struct Pair<'a, D: Sample> {
    device: &'a D,
    cpu: Cpu<D::Scalar>,
    on_device: D::Graph,
    graph: Arc<Graph>,
}

impl<'a, D: Sample> Pair<'a, D> {
    fn new(device: &'a D, graph: Arc<Graph>) -> Self {
        Pair { device, cpu: Cpu::new(), on_device: device.load_graph(&graph).unwrap(), graph }
    }

    #[track_caller]
    fn check(&self, dst: &[u32], spec: &SampleSpec, variates: &Variates, layer: u32) {
        let expected = self.cpu.sample_block(&self.graph, dst, spec, variates, layer).unwrap();
        let expected = to_host(&self.cpu, &expected);
        let dst = self.device.upload(dst).unwrap();
        let found = self.device.sample_block(&self.on_device, D::view(&dst), spec, variates, layer).unwrap();
        let found = to_host(self.device, &found);
        assert!(found == expected, "{spec:?}, {variates:?}, layer {layer}: {found:?}, not {expected:?}");
    }

    /// Every method with every fanout; with dependent minibatches too, and those that can by relation.
    fn check_all(&self, dst: &[u32], fanouts: &[usize], layer: u32) {
        let [independent, first_of_window, in_window, renewed, _] = variates();
        for (number, &fanout) in fanouts.iter().enumerate() {
            if few_cases::<D>() && number % 4 != 1 {
                continue;
            }
            for method in methods() {
                let spec = SampleSpec {
                    method,
                    fanout,
                    per_relation: false,
                    edge_ids: fanout != 1,
                    edge_weights: fanout != 5 && method.takes_edges(),
                };
                self.check(dst, &spec, &independent, layer);
                self.check(dst, &spec, &renewed, layer);
                if can_rotate(method) {
                    self.check(
                        dst,
                        &spec,
                        if number % 2 == 0 { &in_window } else { &first_of_window },
                        layer,
                    );
                }
            }
            for variates in [&independent, &in_window, &renewed] {
                let spec = SampleSpec {
                    method: NEIGHBOR,
                    fanout,
                    per_relation: true,
                    edge_ids: true,
                    edge_weights: false,
                };
                self.check(dst, &spec, variates, layer);
            }
        }
    }
}

fn short_rows<D: Sample>(device: &D) {
    let graph = graph_of_degrees(300, 3, |vertex| [0, 1, 3, 9, 20, 31, 32, 33, 64, 90, 128][vertex % 11]);
    let dst: Vec<u32> = (0..77).rev().map(|i| i * 3).collect();
    Pair::new(device, graph).check_all(&dst, &[0, 1, 5, 15, 20, 47, 70, 1500, usize::MAX], 1);
}

/// Beyond 128 in-edges selections take several looks at a row; beyond 128 draws subsets are sorted in memory.
fn rows_beyond_a_warps_registers<D: Sample>(device: &D) {
    let graph = graph_of_degrees(900, 3, |vertex| {
        [0, 129, 200, 1027, 2000, 4096, 4097][vertex % 7] * usize::from(vertex < 40)
    });
    Pair::new(device, graph).check_all(&[3, 8, 14, 2, 39, 6, 5, 500], &[1, 20, 70, 129, 1500, 4096], 0);
}

fn a_hub<D: Sample>(device: &D) {
    let graph = graph_of_degrees(5000, 4, |vertex| if vertex == 17 { 100_000 } else { vertex % 4 });
    Pair::new(device, graph).check_all(&[4, 17, 3, 4999], &[20_000, 70], 2);
}

fn many_relations<D: Sample>(device: &D) {
    let graph =
        graph_of_degrees(300, 50, |vertex| [0, 40, 120, 700, 5000][vertex % 5] * usize::from(vertex < 30));
    let pair = Pair::new(device, graph);
    for fanout in [0, 1, 3, 20, 200, usize::MAX] {
        for variates in &variates()[if few_cases::<D>() { 3 } else { 1 }..] {
            let spec = SampleSpec {
                method: NEIGHBOR,
                fanout,
                per_relation: true,
                edge_ids: true,
                edge_weights: false,
            };
            pair.check(&[2, 3, 4, 7, 0, 8, 11, 299], &spec, variates, 1);
        }
    }
}

/// The graph has more vertices than a few times the block's in-edges.
fn candidates_in_a_hash_table<D: Sample>(device: &D) {
    let graph = graph_of_degrees(20_000, 1, |vertex| vertex % 40);
    let pair = Pair::new(device, graph);
    let dst: Vec<u32> = (0..100).map(|i| i * 37).collect();
    let fanouts: &[usize] = if few_cases::<D>() { &[4] } else { &[1, 4, 15] };
    for &fanout in fanouts {
        for iterations in [LaborIterations::Fixed(1), LaborIterations::Fixed(3), LaborIterations::Converged] {
            for fixed_size in [false, true] {
                let method = labor(iterations, fixed_size);
                let spec =
                    SampleSpec { method, fanout, per_relation: false, edge_ids: true, edge_weights: false };
                pair.check(&dst, &spec, &variates()[0], 1);
                pair.check(&dst, &spec, &variates()[2], 0);
            }
        }
    }
}

/// Three layers, each of the sources of the one before.
fn layers<D: Sample>(device: &D) {
    let pair = Pair::new(device, graph_of_degrees(3000, 2, |vertex| vertex % 37));
    let dependent =
        Method::Labor { iterations: LaborIterations::Fixed(0), fixed_size: false, layer_dependent: true };
    let optimized =
        Method::Labor { iterations: LaborIterations::Converged, fixed_size: true, layer_dependent: true };
    for method in methods().into_iter().chain([dependent, optimized]) {
        let mut dst: Vec<u32> = vec![2999, 5, 77, 78];
        for layer in 0..3 {
            let spec = SampleSpec {
                method,
                fanout: 4,
                per_relation: false,
                edge_ids: layer != 1,
                edge_weights: layer != 2 && method.takes_edges(),
            };
            pair.check(&dst, &spec, &variates()[0], layer);
            let block = pair.cpu.sample_block(&pair.graph, &dst, &spec, &variates()[0], layer).unwrap();
            dst = block.src.to_vec();
        }
    }
}

fn next_to_nothing<D: Sample>(device: &D) {
    let graphs = [
        graph_of(vec![vec![]], 1),
        graph_of(vec![vec![0]], 1),
        graph_of(vec![vec![0; 300]], 2),
        graph_of(vec![vec![], vec![0, 0, 1], vec![]], 2),
    ];
    for graph in graphs {
        let last = graph.n_vertices() as u32 - 1;
        let pair = Pair::new(device, graph);
        pair.check_all(&[last], &[0, 3, usize::MAX], 0);
        pair.check_all(&[], &[0, 3], 0);
    }
    let bare = Arc::new(Graph::from_csr(vec![0, 1, 1], vec![1]).unwrap());
    let pair = Pair::new(device, bare);
    for method in [Method::Full, NEIGHBOR, WALK, labor(LaborIterations::Converged, false)] {
        for length in [0, 2] {
            let method =
                if method == WALK { Method::Walk { walks: 3, length, restart: 0.0 } } else { method };
            for edge_ids in [false, true] {
                let spec =
                    SampleSpec { method, fanout: 2, per_relation: false, edge_ids, edge_weights: false };
                pair.check(&[1, 0], &spec, &variates()[0], 0);
            }
        }
    }
}

/// The error of a device, and of the CPU.
fn errors<D: Sample>(pair: &Pair<D>, dst: &[u32], spec: &SampleSpec, variates: &Variates) -> [Error; 2] {
    let on_device = pair.device.upload(dst).unwrap();
    let found = pair.device.sample_block(&pair.on_device, D::view(&on_device), spec, variates, 0);
    let expected = pair.cpu.sample_block(&pair.graph, dst, spec, variates, 0);
    [found.unwrap_err(), expected.unwrap_err()]
}

#[track_caller]
fn check_error<D: Sample>(pair: &Pair<D>, dst: &[u32], spec: &SampleSpec, variates: &Variates) {
    let [found, expected] = errors(pair, dst, spec, variates);
    assert_eq!(found.to_string(), expected.to_string());
}

fn wrong_destinations_are_errors<D: Sample>(device: &D) {
    let pair = Pair::new(device, graph_of_degrees(50, 1, |vertex| vertex % 9));
    let mut last_twice: Vec<u32> = (0..50).collect();
    last_twice.push(49);
    for method in methods() {
        let spec = SampleSpec { method, fanout: 3, per_relation: false, edge_ids: true, edge_weights: false };
        let wrong =
            [&[3, 50][..], &[u32::MAX, 50, 3], &[5, 7, 5], &[9, 5, 5, 9, 5, 9], &[1, 1, 70, 90], &last_twice];
        for dst in wrong {
            check_error(&pair, dst, &spec, &variates()[0]);
        }
        // An error leaves no trace.
        pair.check(&[7, 5], &spec, &variates()[0], 0);
    }
}

fn what_graph_or_variates_lack_is_an_error<D: Sample>(device: &D) {
    let bare = Pair::new(device, Arc::new(Graph::from_csr(vec![0, 1, 1], vec![1]).unwrap()));
    let full = Pair::new(device, graph_of_degrees(50, 1, |vertex| vertex % 9));
    let spec = |method, per_relation| SampleSpec {
        method,
        fanout: 3,
        per_relation,
        edge_ids: true,
        edge_weights: false,
    };
    for method in [WEIGHTED, REPLACE_WEIGHTED] {
        check_error(&bare, &[0], &spec(method, false), &variates()[0]);
    }
    check_error(&bare, &[0], &spec(NEIGHBOR, true), &variates()[0]);
    let weights_of = |method| SampleSpec { edge_weights: true, ..spec(method, false) };
    check_error(&bare, &[0], &weights_of(NEIGHBOR), &variates()[0]);
    check_error(&full, &[0], &weights_of(WALK), &variates()[0]);
    for method in methods() {
        let goes_with_relations = matches!(method, Method::Full | NEIGHBOR);
        if !goes_with_relations {
            check_error(&full, &[0], &spec(method, true), &variates()[0]);
        }
        if !can_rotate(method) {
            check_error(&full, &[0], &spec(method, false), &variates()[1]);
        }
    }
    for restart in [-0.1, 1.1, f64::NAN] {
        let method = Method::Walk { walks: 1, length: 1, restart };
        check_error(&full, &[0], &spec(method, false), &variates()[0]);
    }
    let endless = Method::Walk { walks: 1 << 16, length: 1 << 16, restart: 0.5 };
    check_error(&full, &[0], &spec(endless, false), &variates()[0]);
}

/// They are counted before one is drawn. Of two rows that are too many together, the CPU would draw the first.
fn too_many_edges_are_an_error<D: Sample>(device: &D) {
    let pair = Pair::new(device, graph_of_degrees(50, 1, |_| 3));
    for fanout in [1 << 32, usize::MAX - 1] {
        let spec =
            |method| SampleSpec { method, fanout, per_relation: false, edge_ids: true, edge_weights: false };
        let [found, expected] = errors(&pair, &[1, 2], &spec(REPLACE), &variates()[0]);
        assert!(matches!(expected, Error::TooLarge { .. }), "{expected}");
        assert!(matches!(found, Error::TooLarge { .. }), "{found}");
        // A repeat is found first.
        check_error(&pair, &[1, 1], &spec(REPLACE), &variates()[0]);
        check_error(&pair, &[1, 1], &spec(REPLACE_WEIGHTED), &variates()[0]);
    }
}

#[cfg(any(feature = "cuda", feature = "emulate"))]
mod cuda {
    use super::*;
    use crate::device::Cuda;
    use crate::device::cuda::tests::on_cuda;

    /// The graph's sources are not checked: kernels do not follow one that is not a vertex, and report it.
    #[test]
    fn sources_out_of_range_are_reported() {
        on_cuda(|device: &Cuda| {
            let graph = Graph::from_csr_trusted(vec![0, 2, 4, 7], vec![1, 2, 5, u32::MAX, 0, 1, 9]).unwrap();
            let graph =
                graph.with_edge_weights(vec![1.0; 7]).unwrap().with_edge_types(vec![0; 7], 1).unwrap();
            let on_device = device.load_graph(&Arc::new(graph)).unwrap();
            let dst = device.upload(&[1]).unwrap();
            for method in methods() {
                let spec = SampleSpec {
                    method,
                    fanout: 2,
                    per_relation: false,
                    edge_ids: true,
                    edge_weights: false,
                };
                let result =
                    device.sample_block(&on_device, Cuda::<f32>::view(&dst), &spec, &variates()[0], 0);
                let is_reported = matches!(
                    result,
                    Err(Error::IndexOutOfRange { array: "index", position: 2 | 3, limit: 3, .. })
                );
                assert!(is_reported, "{method:?}: {result:?}");
                assert!(device.synchronize().is_ok());
            }
        });
    }
}

/// By the formulas, to the bit: with and without weights and estimates, isolated vertices and rows without edges too.
fn degree_factors<D: Sample>(device: &D) {
    let graph = graph_of_degrees(300, 3, |v| if v.is_multiple_of(7) { 0 } else { v % 40 });
    let loaded = device.load_graph(&graph).unwrap();
    let src: Vec<u32> = (0..300).rev().collect();
    let n_dst = 120;
    let n_edge = |t: u32| t % 5;
    let indptr: Vec<u32> = (0..=n_dst).map(|t| (0..t).map(n_edge).sum()).collect();
    let sums = graph.weighted_in_degrees().unwrap().unwrap();
    for (has_estimates, weighted) in [(false, false), (false, true), (true, false), (true, true)] {
        let (ids, ends) = (device.upload(&src).unwrap(), device.upload(&indptr).unwrap());
        let (ids, ends) = (D::view(&ids), D::view(&ends));
        let factors = device.degree_factors(&loaded, ids, ends, has_estimates, weighted).unwrap();
        let read = |x: &D::Buffer<D::Scalar>| device.download(D::view(x)).unwrap();
        let (row, column, own) = (read(&factors.row), read(&factors.column), read(&factors.own));
        let with_loop = |v: u32| if weighted { sums[v as usize] } else { graph.in_degree(v) as f64 } + 1.0;
        let expected: Vec<D::Scalar> =
            src.iter().map(|&v| D::Scalar::from_f64(1.0 / with_loop(v).sqrt())).collect();
        assert_eq!(column, expected);
        for (t, &v) in src[..n_dst as usize].iter().enumerate() {
            let k = n_edge(t as u32);
            let share = if has_estimates { 1.0 } else { f64::from(k) };
            let of_row = graph.in_degree(v) as f64 / share / with_loop(v).sqrt();
            assert_eq!(row[t], D::Scalar::from_f64(if k > 0 { of_row } else { 0.0 }), "{t}");
            assert_eq!(own[t], D::Scalar::from_f64(1.0 / with_loop(v)), "{t}");
        }
    }
    let unweighted = Arc::new(Graph::from_csr(vec![0, 1], vec![0]).unwrap());
    let (loaded, ids) = (device.load_graph(&unweighted).unwrap(), device.upload(&[0]).unwrap());
    let ends = device.upload(&[0, 1]).unwrap();
    assert!(device.degree_factors(&loaded, D::view(&ids), D::view(&ends), false, true).is_err());
    let none = device.upload::<u32>(&[]).unwrap();
    let zero = device.upload(&[0]).unwrap();
    let factors = device.degree_factors(&loaded, D::view(&none), D::view(&zero), false, false).unwrap();
    assert_eq!((D::len(&factors.row), D::len(&factors.column)), (0, 0));
}
