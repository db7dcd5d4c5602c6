//! Weighted models: against formulas, against the graph whose edges are repeated instead of weighted, in whole runs.

use std::sync::Arc;

use cohop::batch::{
    Batch, BatchNeeds, BatchSource, DataOnDevice, DeviceSampling, HostSampling, Slicer, WholeGraph,
};
use cohop::block::Block;
use cohop::data::{Dataset, Features, Split};
use cohop::device::{Cpu, Device, FeatureElement, LaborIterations, Method, SampledBlock, Scalar};
use cohop::graph::{Graph, GraphBuilder};
use cohop::nn::{Aggregator, Between, GraphSage, Layer, Model, ModelConfig, ModelKind, Parameters, Stack};
use cohop::rng;
use cohop::sample::{Fanouts, SamplerConfig};
use cohop::tape::{Aggregate, Tape};
use cohop::tensor::Tensor;
use cohop::train::{EvalMode, TrainConfig, Trainer, infer_full};

use crate::common::{Fresh, assert_close, on_devices};

const KINDS: [ModelKind; 6] =
    [ModelKind::Sage, ModelKind::Gcn, ModelKind::GcnMean, ModelKind::Gin, ModelKind::SageRi, ModelKind::Rgcn];

const N: usize = 40;
const DIM: usize = 4;

/// 160 random edges, without parallel ones, as (source, destination); vertices from 36 on have no in-edges, and of the
/// in-edges of vertex 3 all weights are 0.
fn edges() -> Vec<(u32, u32)> {
    let end = |which: u64, e: u64, below: u64| rng::bounded(5, which, e, below) as u32;
    let mut edges: Vec<(u32, u32)> =
        (0..160).map(|e| (end(1, e, N as u64), end(2, e, 36))).filter(|(s, t)| s != t).collect();
    edges.extend([(1, 3), (2, 3)]);
    edges.sort_unstable_by_key(|&(s, t)| (t, s));
    edges.dedup();
    edges
}

/// Integers from 0 to 3.
fn weight(e: usize, (_, destination): (u32, u32)) -> u32 {
    if destination == 3 { 0 } else { rng::bounded(6, 0, e as u64, 4) as u32 }
}

fn relation((source, destination): (u32, u32)) -> u16 {
    ((source + destination) % 2) as u16
}

fn dataset(graph: Graph) -> Arc<Dataset> {
    let values: Vec<f32> = (0..(N * DIM) as u64).map(|i| rng::normal(7, 0, i) as f32).collect();
    let labels = (0..N as i32).map(|v| v % 3).collect::<Vec<_>>();
    let split = Split { train: (0..20).collect(), val: (20..30).collect(), test: (30..40).collect() };
    let features = Features::dense(values, N, DIM).unwrap();
    Arc::new(Dataset::new("weighted", graph, features, labels, 3, split).unwrap())
}

/// The graph with these weights.
fn weighted(weight: impl Fn(usize, (u32, u32)) -> f32) -> Arc<Dataset> {
    let edges = edges();
    let types: Vec<u16> = edges.iter().map(|&edge| relation(edge)).collect();
    let weights: Vec<f32> = edges.iter().enumerate().map(|(e, &edge)| weight(e, edge)).collect();
    dataset(GraphBuilder::new(N as u64, &edges).types(&types, 2).weights(&weights).build().unwrap())
}

/// The graph in which each edge is there as often as its weight says, and so many times more.
fn repeated(more: u32) -> Arc<Dataset> {
    let edges = edges().into_iter().enumerate();
    let edges: Vec<(u32, u32)> =
        edges.flat_map(|(e, edge)| vec![edge; (weight(e, edge) + more) as usize]).collect();
    let types: Vec<u16> = edges.iter().map(|&edge| relation(edge)).collect();
    dataset(GraphBuilder::new(N as u64, &edges).types(&types, 2).build().unwrap())
}

fn model(kind: ModelKind, weighted: bool, hidden: usize) -> ModelConfig {
    ModelConfig {
        kind,
        n_features: DIM,
        hidden,
        n_classes: 3,
        n_layers: 2,
        dropout: 0.0,
        n_relations: if kind == ModelKind::Rgcn { 2 } else { 0 },
        weighted,
        ..ModelConfig::default()
    }
}

fn sampler(method: Method, fanout: usize) -> SamplerConfig {
    SamplerConfig { method, fanouts: Fanouts(vec![fanout; 2]), ..SamplerConfig::default() }
}

/// Scores of a batch of all training vertices and the gradients of all parameters, in f64.
fn run<D: Device>(
    device: &D,
    model: &Stack<D>,
    source: &dyn BatchSource<D>,
    dataset: &Dataset,
) -> Vec<Vec<f64>> {
    let batch: Batch<D> = source.batch(device, &dataset.train_idx, 3).unwrap();
    let values = |tensor: &Tensor<D>| -> Vec<f64> {
        tensor.to_vec(device).unwrap().into_iter().map(|x| x.widen_f64()).collect()
    };
    let tape = Tape::training(device, 1);
    let scores = model.forward(&tape, &batch).unwrap();
    let n_seeds = dataset.train_idx.len();
    let (_, asked) = batch.rows_asked_for(&tape.value(scores).to_vec(device).unwrap(), 3);
    let mut all = vec![asked.into_iter().map(|x| x.widen_f64()).collect()];
    let labels = device.upload(&batch.labels).unwrap();
    let loss = tape.log_softmax_nll(scores, labels, 1.0 / n_seeds as f64).unwrap();
    let gradients = tape.backward(loss).unwrap();
    for (id, _) in model.parameters.iter().filter(|(_, p)| p.trainable) {
        all.push(gradients.of_parameter(id).map(&values).unwrap_or_default());
    }
    assert!(all.len() > 4 && all[0].len() == 3 * n_seeds);
    all
}

/// How near results must be.
fn near<D: Device>(what: &str, found: &[Vec<f64>], expected: &[Vec<f64>]) {
    let tolerance = if size_of::<D::Scalar>() == 4 { 1e-4 } else { 1e-11 };
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert_close(what, found, expected, |_, expected| tolerance * (1.0 + expected.abs()));
    }
}

/// The sources of batches of full neighbourhoods.
fn whole_neighbourhoods<D: Device>(device: &D, slicer: &Slicer<D::Scalar>) -> Vec<Box<dyn BatchSource<D>>> {
    let slicer = || slicer.clone();
    let full = || sampler(Method::Full, usize::MAX);
    vec![
        Box::new(WholeGraph::new(device, slicer(), 2).unwrap()),
        Box::new(HostSampling::new(slicer(), full()).unwrap()),
        Box::new(HostSampling::new(slicer(), sampler(Method::NEIGHBOR, usize::MAX)).unwrap()),
        Box::new(HostSampling::new(slicer(), sampler(Method::LABOR_STAR, 1000)).unwrap()),
        Box::new(DeviceSampling::new(device, slicer(), full(), DataOnDevice::All).unwrap()),
    ]
}

/// Both orders of aggregation and product, and features that are aggregated while they are gathered.
fn equal_to_repeated_edges<D: Fresh>() {
    let device = D::fresh();
    for more in [0, 1] {
        let (weighted, repeated) = (weighted(|e, edge| (weight(e, edge) + more) as f32), repeated(more));
        for kind in KINDS {
            // An edge of weight 0 still brings its source's row into the batch, which a batch norm sees.
            if more == 0 && matches!(kind, ModelKind::Gin | ModelKind::SageRi) {
                continue;
            }
            for hidden in [DIM - 2, DIM + 3] {
                let of_weights = Stack::new(&device, &model(kind, true, hidden), 3).unwrap();
                let of_repeats = Stack::new(&device, &model(kind, false, hidden), 3).unwrap();
                assert!(of_weights.needs().edge_weights && !of_repeats.needs().edge_weights);
                let what = format!("{kind:?} {hidden}");
                check_repeats(&device, &what, [&of_weights, &of_repeats], [&weighted, &repeated]);
            }
        }
    }
}

fn check_repeats<D: Device>(device: &D, what: &str, models: [&Stack<D>; 2], data: [&Arc<Dataset>; 2]) {
    let slicers: Vec<_> = models
        .iter()
        .zip(data)
        .map(|(model, data)| Slicer::new(device.host(), data.clone(), model.needs()))
        .collect();
    // Batch norms see all rows of a batch: the same in both.
    let [found, expected] = [0, 1].map(|i| {
        let of = |source: Box<dyn BatchSource<D>>| run(device, models[i], &*source, data[i]);
        whole_neighbourhoods(device, &slicers[i]).into_iter().map(of).collect::<Vec<_>>()
    });
    for (number, (found, expected)) in found.iter().zip(&expected).enumerate() {
        near::<D>(&format!("{what}, source {number}"), found, expected);
    }
    let needs = BatchNeeds { input_aggregate: None, ..models[0].needs() };
    let of_rows = WholeGraph::new(device, Slicer::new(device.host(), data[0].clone(), needs), 2).unwrap();
    near::<D>(&format!("{what}, from rows"), &run(device, models[0], &of_rows, data[0]), &expected[0]);
    // Layer by layer, in chunks.
    let [found, expected] = [0, 1].map(|i| {
        let vertices: Vec<u32> = (0..data[i].n_vertices() as u32).collect();
        let all = infer_full(device, models[i], &slicers[i], &vertices, 7, 1).unwrap();
        vec![all.into_iter().map(|x| x.widen_f64()).collect::<Vec<f64>>()]
    });
    near::<D>(&format!("{what}, layer by layer"), &found, &expected);
}

#[test]
fn integer_weights_equal_repeated_edges() {
    on_devices!(equal_to_repeated_edges);
}

fn sums_equal_repeated_edges<D: Fresh>() {
    let device = D::fresh();
    let stack = |weighted: bool| {
        let mut parameters = Parameters::new(5);
        let mut layer = |number, shape: [usize; 2]| -> Box<dyn Layer<D>> {
            let layer = GraphSage::new(&device, &mut parameters, number, shape[0], shape[1]).unwrap();
            Box::new(layer.with_aggregator(Aggregator::Sum))
        };
        let layers = vec![layer(0, [DIM, 6]), layer(1, [6, 3])];
        let stack = Stack::from_layers(parameters, layers, 3, Between::default()).unwrap();
        if weighted { stack.with_edge_weights() } else { stack }
    };
    let (weighted, repeated) = (weighted(|e, edge| weight(e, edge) as f32), repeated(0));
    check_repeats(&device, "sum", [&stack(true), &stack(false)], [&weighted, &repeated]);
}

#[test]
fn sums_with_integer_weights_equal_those_over_repeated_edges() {
    on_devices!(sums_equal_repeated_edges);
}

const METHODS: [Method; 6] = [
    Method::Full,
    Method::NEIGHBOR,
    Method::Neighbor { replace: true, weighted: false },
    Method::LABOR_0,
    Method::LABOR_STAR,
    Method::Labor { iterations: LaborIterations::Fixed(1), fixed_size: true, layer_dependent: false },
];

/// In samples too, weights of 1 change nothing, and other weights do.
fn weights_of_one<D: Fresh>() {
    let device = D::fresh();
    let (ones, others) = (weighted(|_, _| 1.0), weighted(|e, edge| 0.5 + weight(e, edge) as f32));
    for kind in KINDS {
        for method in METHODS {
            let scores = |weighted: bool, dataset: &Arc<Dataset>| {
                let model = Stack::new(&device, &model(kind, weighted, 6), 3).unwrap();
                let slicer = Slicer::new(device.host(), dataset.clone(), model.needs());
                let on_host = HostSampling::new(slicer.clone(), sampler(method, 3)).unwrap();
                let found = run(&device, &model, &on_host, dataset);
                let on_device =
                    DeviceSampling::new(&device, slicer, sampler(method, 3), DataOnDevice::All).unwrap();
                let what = format!("{kind:?} {method:?}");
                near::<D>(
                    &format!("{what} on the device"),
                    &run(&device, &model, &on_device, dataset),
                    &found,
                );
                found
            };
            let plain = scores(false, &ones);
            near::<D>(&format!("{kind:?} {method:?}"), &scores(true, &ones), &plain);
            let largest =
                |x: &[f64], y: &[f64]| x.iter().zip(y).fold(0.0, |m: f64, (x, y)| m.max((x - y).abs()));
            assert!(largest(&scores(true, &others)[0], &plain[0]) > 1e-2, "{kind:?} {method:?}");
        }
    }
}

#[test]
fn weights_of_one_are_no_weights() {
    on_devices!(weights_of_one);
}

/// Each aggregation of a block with weights and estimator weights, or either, by its definition.
fn formulas<D: Fresh>() {
    let device = D::fresh();
    let (n_dst, n_src, indptr, indices) =
        (4usize, 6usize, [0u32, 3, 3, 5, 9], [5u32, 0, 4, 1, 3, 0, 5, 2, 2]);
    let weights = [0.5, 2.0, 0.25, 0.0, 0.0, 1.0, 0.0, 3.0, 0.125];
    let estimates = [0.5, 0.25, 0.25, 0.75, 0.25, 0.125, 0.375, 0.25, 0.25];
    // In the whole graph: numbers of in-edges, and sums of weights.
    let (degree, sum): ([u64; 6], [f64; 6]) = ([6, 1, 2, 8, 4, 0], [4.5, 0.0, 0.0, 5.5, 2.0, 0.0]);
    let x: Vec<f64> = (0..2 * n_src as u64).map(|i| rng::normal(1, 0, i)).collect();
    for (has_weights, has_estimates) in [(true, false), (true, true), (false, true), (false, false)] {
        let w = |e: usize| if has_weights { weights[e] } else { 1.0 };
        let upload = |values: &[f64]| {
            let values: Vec<D::Scalar> = values.iter().map(|&v| D::Scalar::from_f64(v)).collect();
            device.upload(&values).unwrap()
        };
        let src: Vec<u32> = (0..n_src as u32).collect();
        let [indptr_on, indices_on, src] = [&indptr[..], &indices, &src].map(|a| device.upload(a).unwrap());
        let mut parts = SampledBlock::<D>::new(src, indptr_on, indices_on);
        parts.weight = has_estimates.then(|| upload(&estimates));
        parts.edge_weight = has_weights.then(|| upload(&weights));
        let block = Block::new(&device, parts).unwrap();
        let of_degree = |v: u32| degree[v as usize];
        let total = |v: u32| if has_weights { sum[v as usize] } else { degree[v as usize] as f64 };
        let block = Arc::new(if has_weights {
            block.with_weighted_degrees(&device, of_degree, total).unwrap()
        } else {
            block.with_degrees(&device, of_degree).unwrap()
        });
        let tape = Tape::inference(&device);
        let values: Vec<D::Scalar> = x.iter().map(|&v| D::Scalar::from_f64(v)).collect();
        let rows = tape.constant(Tensor::from_slice(&device, n_src, 2, &values).unwrap());
        for aggregate in [Aggregate::Sum, Aggregate::Mean, Aggregate::MeanWithSelf, Aggregate::Symmetric] {
            let mut out = tape.aggregate(&block, rows, aggregate).unwrap();
            if aggregate.includes_self() {
                out = tape.add(out, tape.own_part(&block, rows, aggregate).unwrap()).unwrap();
            }
            let mut expected = vec![0.0; 2 * n_dst];
            for t in 0..n_dst {
                let row = indptr[t] as usize..indptr[t + 1] as usize;
                let k = row.len() as f64;
                let h = |e: usize| if has_estimates { estimates[e] } else { 1.0 / k };
                let (all, shares): (f64, f64) =
                    (row.clone().map(w).sum(), row.clone().map(|e| h(e) * w(e)).sum());
                let mean = |e: usize| if shares > 0.0 { h(e) * w(e) / shares } else { 0.0 };
                let root = |v: usize| (total(v as u32) + 1.0).sqrt();
                let factor = |e: usize| match aggregate {
                    Aggregate::Sum => w(e),
                    Aggregate::Mean => mean(e),
                    Aggregate::MeanWithSelf => mean(e) * all / (all + 1.0),
                    Aggregate::Symmetric => {
                        degree[t] as f64 * h(e) * w(e) / (root(t) * root(indices[e] as usize))
                    }
                };
                let own = match aggregate {
                    Aggregate::Sum | Aggregate::Mean => 0.0,
                    Aggregate::MeanWithSelf => 1.0 / (all + 1.0),
                    Aggregate::Symmetric => 1.0 / root(t).powi(2),
                };
                for c in 0..2 {
                    let edges: f64 = row.clone().map(|e| factor(e) * x[2 * indices[e] as usize + c]).sum();
                    expected[2 * t + c] = edges + own * x[2 * t + c];
                }
            }
            let found = tape.value(out).to_vec(&device).unwrap();
            let found: Vec<f64> = found.into_iter().map(|x| x.widen_f64()).collect();
            near::<D>(&format!("{aggregate:?} {has_weights} {has_estimates}"), &[found], &[expected]);
        }
    }
}

#[test]
fn aggregations_are_their_formulas() {
    on_devices!(formulas);
}

/// `D^(-1/2) (A + I) D^(-1/2) x` with a dense matrix of weights: what PyTorch Geometric's `gcn_norm` gives.
#[test]
fn symmetric_normalisation_is_that_of_the_dense_matrix() {
    let cpu = Cpu::<f64>::new();
    let dataset = weighted(|e, edge| weight(e, edge) as f32 * 0.3);
    let mut matrix = vec![[0.0f64; N]; N];
    for (e, &(s, t)) in edges().iter().enumerate() {
        matrix[t as usize][s as usize] += f64::from(weight(e, (s, t)) as f32 * 0.3);
    }
    (0..N).for_each(|v| matrix[v][v] += 1.0);
    let degree: Vec<f64> = matrix.iter().map(|row| row.iter().sum()).collect();
    let needs = BatchNeeds { degrees: true, edge_weights: true, ..BatchNeeds::default() };
    let slicer = Slicer::new(cpu.clone(), dataset, needs);
    let block = Arc::new(slicer.full_block(&(0..N as u32).collect::<Vec<_>>()).unwrap());
    let x: Vec<f64> = (0..N as u64).map(|i| rng::normal(2, 0, i)).collect();
    let expected: Vec<f64> =
        (0..N).map(|t| (0..N).map(|s| matrix[t][s] * x[s] / (degree[t] * degree[s]).sqrt()).sum()).collect();
    let tape = Tape::inference(&cpu);
    let x = tape.constant(Tensor::from_slice(&cpu, N, 1, &x).unwrap());
    let edges = tape.aggregate(&block, x, Aggregate::Symmetric).unwrap();
    let out = tape.add(edges, tape.own_part(&block, x, Aggregate::Symmetric).unwrap()).unwrap();
    near::<Cpu<f64>>("GCN", &[tape.value(out).to_vec(&cpu).unwrap()], &[expected]);
}

#[test]
fn what_has_no_meaning_is_an_error() {
    let cpu = Cpu::<f32>::new();
    let dataset = weighted(|e, edge| weight(e, edge) as f32);
    let config = |kind, weighted| TrainConfig {
        model: ModelConfig { n_features: 0, n_relations: 0, ..model(kind, weighted, 6) },
        ..TrainConfig::default()
    };
    let error = |dataset: &Arc<Dataset>, config| {
        Trainer::new(cpu.clone(), dataset.clone(), config).unwrap_err().to_string()
    };
    for kind in [ModelKind::Gat, ModelKind::Gatv2, ModelKind::Rgat] {
        let found = error(&dataset, config(kind, true));
        assert!(found.starts_with(&format!("weighted is set for {kind:?}")), "{found}");
    }
    let found = error(&repeated(0), config(ModelKind::Sage, true));
    assert!(found.starts_with("weighted is set"), "{found}");
    for (method, name) in [
        (Method::Neighbor { replace: false, weighted: true }, "weighted"),
        (Method::Neighbor { replace: true, weighted: true }, "weighted"),
        (Method::PINSAGE_WALK, "random walks"),
    ] {
        let found =
            error(&dataset, TrainConfig { sampler: sampler(method, 3), ..config(ModelKind::Sage, true) });
        assert!(found.starts_with(&format!("sampler is {name}, for a weighted model")), "{found}");
    }
    // A layer that takes the maximum.
    let block = |weights: &[f32]| {
        let block = Block::from_csr(&cpu, 2, &[0, 2], &[0, 1]).unwrap();
        block.with_edge_weights(&cpu, cohop::device::Storage::upload(&cpu, weights).unwrap())
    };
    let mut parameters = Parameters::new(0);
    let layer = GraphSage::new(&cpu, &mut parameters, 0, 1, 1).unwrap().with_aggregator(Aggregator::Max);
    let tape = Tape::inference(&cpu);
    let x = tape.constant(Tensor::zeros(&cpu, 2, 1).unwrap());
    let pass = cohop::nn::Pass { tape: &tape, parameters: &parameters };
    let block_of = Arc::new(block(&[1.0, 2.0]).unwrap());
    let found = layer.forward(&pass, &block_of, &cohop::nn::Input::Dense(x), None).unwrap_err().to_string();
    assert!(found.contains("with edge weights"), "{found}");
    // Weights that no mean can have are refused by name.
    for (bad, shown) in [(-0.5, "-0.5"), (f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
        let found = block(&[1.0, bad]).unwrap_err().to_string();
        assert!(found.starts_with(&format!("edge_weight is {shown} at position 1")), "{found}");
        let graph = Graph::from_edges(2, &[(0, 1), (1, 0)]).unwrap();
        let found = graph.with_edge_weights(vec![1.0, bad]).unwrap_err().to_string();
        assert!(found.starts_with(&format!("edge_weight is {shown} at position 1")), "{found}");
    }
    assert!(block(&[1.0]).is_err());
}

/// A checkpoint keeps the setting: a resumed run and predictions use the weights, and data without them is refused.
#[test]
fn a_checkpoint_keeps_the_setting() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = weighted(|e, edge| 0.5 + weight(e, edge) as f32);
    for eval in [EvalMode::Full, EvalMode::Sampled] {
        let mut config = TrainConfig { epochs: 4, eval, batch_size: Some(8), ..TrainConfig::default() };
        config.model.weighted = true;
        let cpu = Cpu::<f32>::new;
        let run = |trainer: &mut Trainer<Cpu<f32>>, epochs| {
            for _ in 0..epochs {
                trainer.run_epoch(&mut ()).unwrap();
            }
            let cpu = trainer.device();
            trainer.model.parameters.iter().map(|(_, p)| p.value.to_vec(cpu).unwrap()).collect::<Vec<_>>()
        };
        let new = |config: &TrainConfig| Trainer::new(cpu(), dataset.clone(), config.clone()).unwrap();
        let whole = run(&mut new(&config), 4);
        let mut first = new(&config);
        run(&mut first, 2);
        first.save(folder.path()).unwrap();
        let mut resumed = Trainer::resume(cpu(), dataset.clone(), folder.path(), |_| {}).unwrap();
        assert_eq!(run(&mut resumed, 2), whole);
        first.restore_best().unwrap();
        let scores = first.predict(&[0, 5, 39]).unwrap();
        let read = Trainer::to_predict(cpu(), dataset.clone(), folder.path(), |_| {}).unwrap();
        assert_eq!(read.predict(&[0, 5, 39]).unwrap(), scores);
        let error = Trainer::to_predict(cpu(), repeated(0), folder.path(), |_| {}).unwrap_err();
        assert!(error.to_string().starts_with("weighted is set"), "{error}");
        config.model.weighted = false;
        assert_ne!(run(&mut new(&config), 4), whole);
    }
}
