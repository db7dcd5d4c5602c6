//! The work of layers against numbers worked out by hand, and against models that are really built.

use std::sync::Arc;

use approx::assert_relative_eq;

use crate::coop::{FirstLayer, InputTerms, Mode};
use crate::device::{Cpu, Method};
use crate::graph::{PartitionMethod, Rmat};
use crate::nn::{Decomposition, Model, ModelConfig, ModelKind, Stack};
use crate::sample::Fanouts;
use crate::study::{
    BlockSize, CostConfig, CostRow, Machine, ModesConfig, SizesRow, Work, layer_work, modes, p3_terms,
    predict_model, sizes, with_random_relations,
};

pub(super) const KINDS: [ModelKind; 9] = [
    ModelKind::Sage,
    ModelKind::Gcn,
    ModelKind::GcnMean,
    ModelKind::Gin,
    ModelKind::Gat,
    ModelKind::Gatv2,
    ModelKind::SageRi,
    ModelKind::Rgcn,
    ModelKind::Rgat,
];

/// 6 feature columns, 4 hidden, of 2 heads each where there are heads, 3 classes, 5 relations.
fn model(kind: ModelKind, n_layers: usize) -> ModelConfig {
    ModelConfig {
        kind,
        n_features: 6,
        hidden: 4,
        n_classes: 3,
        n_layers,
        heads: if kind.attends() { 2 } else { 1 },
        n_relations: if kind.relates() { 5 } else { 0 },
        ..ModelConfig::default()
    }
}

const BLOCK: BlockSize = BlockSize {
    destinations: 10,
    sources: 30,
    edges: 50,
    owned: 20,
    received: 12,
    sent: 7,
    destination_groups: 35,
    source_groups: 45,
    weighted: false,
};

/// By layer; a head's belong to the last one.
#[test]
fn parameters_are_those_of_models_that_are_built() {
    let cpu = Cpu::<f32>::new();
    let mut configs = Vec::new();
    for kind in KINDS {
        for n_layers in 1..=3 {
            let config = model(kind, n_layers);
            configs.push(ModelConfig { embedding: 8, ..config.clone() });
            configs.push(ModelConfig { heads: 3, output_heads: 2, ..config.clone() });
            if config.n_relations > 0 {
                for shares in [false, true] {
                    let decomposition = Decomposition::Basis(2);
                    configs.push(ModelConfig { decomposition, root_shares_bases: shares, ..config.clone() });
                }
                let classes = ModelConfig { n_classes: 6, ..config.clone() };
                configs.push(ModelConfig { decomposition: Decomposition::BlockDiagonal(2), ..classes });
            }
            configs.push(config);
        }
    }
    for config in configs {
        let stack = Stack::new(&cpu, &config, 0).unwrap();
        let mut built = vec![0; config.n_layers];
        for (_, parameter) in stack.parameters.iter().filter(|(_, parameter)| parameter.trainable) {
            built[parameter.layer.min(config.n_layers - 1)] +=
                parameter.value.rows() * parameter.value.cols();
        }
        let counted: Vec<usize> = (0..config.n_layers)
            .map(|layer| layer_work(&config, layer, &BLOCK).unwrap().parameters as usize)
            .collect();
        assert_eq!(counted, built, "{config:?}");
        assert_eq!(counted.iter().sum::<usize>(), stack.parameters.n_trainable());
        // What P³ is told is what the layer says.
        match stack.needs().input_terms {
            None => assert!(p3_terms(&config).is_err(), "{config:?}"),
            Some(terms) => assert_eq!(p3_terms(&config).unwrap(), terms, "{config:?}"),
        }
    }
    let rgcn = p3_terms(&model(ModelKind::Rgcn, 2)).unwrap();
    assert_eq!((rgcn, rgcn.n_terms()), (InputTerms::Relations(5), 6));
}

#[test]
fn work_by_hand() {
    let work = |kind, layer| layer_work(&model(kind, 2), layer, &BLOCK).unwrap();
    // The first layer takes 6 columns to 4: products first. SpMM of 4 columns over 50 edges to 10 rows and to 30:
    // 4 · 4 · (50 + 10) + 4 · (50 + 10), and 4 · 4 · 80 + 4 · 80 bytes.
    let sums = Work { bytes: 1200.0 + 1600.0, operations: 2.0 * 2.0 * 4.0 * 50.0 };
    let gcn = work(ModelKind::GcnMean, 0);
    assert_eq!(gcn.sparse, sums);
    // Forward, and the weight's gradient: [30, 6] by [6, 4], twice.
    let bytes = 2.0 * 4.0 * (180.0 + 24.0 + 120.0);
    assert_eq!(gcn.dense, Work { bytes, operations: 2.0 * 2.0 * 720.0 });
    assert_eq!((gcn.edges, gcn.operations_per_edge()), (50.0, 16.0));
    // 12 rows of 6 columns.
    assert_eq!(gcn.exchanged_bytes, 288.0);
    // GraphSAGE also multiplies the destinations' own rows: [10, 6] by [6, 4], twice.
    let sage = work(ModelKind::Sage, 0);
    assert_eq!(sage.sparse, sums);
    assert_eq!(sage.dense.operations, gcn.dense.operations + 2.0 * 2.0 * 240.0);
    // The second takes 4 columns to 3, and there is a gradient of its input: a third product.
    let second = work(ModelKind::GcnMean, 1);
    assert_eq!(second.dense.operations, 3.0 * 2.0 * 30.0 * 4.0 * 3.0);
    assert_eq!(second.sparse.operations, 2.0 * 2.0 * 3.0 * 50.0);
    // Rows of 4 columns, and their gradients.
    assert_eq!(second.exchanged_bytes, 2.0 * 12.0 * 4.0 * 4.0);
    // Wider than its input, a first layer sums first, and no gradient goes back to the sources.
    let wide = ModelConfig { hidden: 8, ..model(ModelKind::GcnMean, 2) };
    let wide = layer_work(&wide, 0, &BLOCK).unwrap();
    assert_eq!(wide.sparse, Work { bytes: 4.0 * 6.0 * 60.0 + 240.0, operations: 600.0 });
    assert_eq!(wide.dense.operations, 2.0 * 2.0 * 10.0 * 6.0 * 8.0);
    // GAT: two heads of 4, 50 + 10 messages.
    let gat = work(ModelKind::Gat, 0);
    assert_eq!(gat.dense.operations, 2.0 * 2.0 * 30.0 * 6.0 * 8.0);
    let forward = 60.0 * (16.0 + 14.0) + 40.0 * 16.0;
    let backward = 60.0 * (32.0 + 14.0) + 160.0 + 50.0 * 4.0 + 40.0 * 32.0;
    assert_eq!(gat.sparse.operations, forward + backward);
    let alone = ModelConfig { self_loops: false, ..model(ModelKind::Gat, 2) };
    assert!(layer_work(&alone, 0, &BLOCK).unwrap().sparse.operations < gat.sparse.operations);
    // R-GCN: 3 · 50 · 6 + 35 · (24 + 48) = 3420 against 3 · 50 · 4 + 45 · (24 + 120) = 7080: sums first, 35 products
    // forward, 45 for the weights' gradient (of sums over sources, which have 4 columns), and the destinations' own.
    let rgcn = work(ModelKind::Rgcn, 0);
    assert_eq!(rgcn.dense.operations, 2.0 * 24.0 * (35.0 + 45.0) + 2.0 * 2.0 * 10.0 * 24.0);
    assert_eq!(rgcn.sparse.operations, 2.0 * 50.0 * (6.0 + 4.0) + 35.0 * 4.0);
    // GIN's first map is its own hidden width wide; its sum has a gradient, as ε has.
    let gin = ModelConfig { hidden: 7, ..model(ModelKind::Gin, 1) };
    let gin = layer_work(&gin, 0, &BLOCK).unwrap();
    assert_eq!(gin.dense.operations, 3.0 * 2.0 * 10.0 * (6.0 * 7.0 + 7.0 * 3.0));
    assert_eq!(gin.sparse.operations, 2.0 * 50.0 * 6.0);
}

#[test]
fn every_model_has_work_and_wrong_ones_are_refused() {
    for kind in KINDS {
        for layer in 0..2 {
            let work = layer_work(&model(kind, 2), layer, &BLOCK).unwrap();
            assert!(work.sparse.bytes > 0.0 && work.dense.operations > 0.0, "{kind:?}");
            let empty = layer_work(&model(kind, 2), layer, &BlockSize::default()).unwrap();
            assert_eq!((empty.sparse.operations, empty.dense.operations), (0.0, 0.0), "{kind:?}");
            assert_eq!((empty.operations_per_edge(), empty.exchanged_bytes), (0.0, 0.0));
        }
        assert!(layer_work(&model(kind, 2), 2, &BLOCK).unwrap_err().to_string().contains("layer is 2"));
    }
    let without = ModelConfig { n_relations: 0, ..model(ModelKind::Rgcn, 2) };
    assert!(layer_work(&without, 0, &BLOCK).unwrap_err().to_string().contains("n_relations is 0"));
    let without = ModelConfig { hidden: 0, ..model(ModelKind::Sage, 2) };
    assert!(layer_work(&without, 0, &BLOCK).is_err());
}

fn config() -> ModesConfig {
    ModesConfig {
        sampler: Method::LABOR_0,
        fanouts: Fanouts(vec![5, 5, 5]),
        pes: vec![1, 4],
        batch_size: 128,
        batches: 3,
        partition: PartitionMethod::Random,
        widths: vec![64, 64, 64, 16],
        cache_rows: Some(50),
        ..ModesConfig::default()
    }
}

fn counted(relations: usize) -> Vec<SizesRow> {
    let graph = Rmat::graph500(11, 10, 3).generate().unwrap();
    let graph = Arc::new(with_random_relations(&graph, relations, 0).unwrap());
    let pool: Vec<u32> = (0..1024).collect();
    sizes(&graph, &pool, &config(), true, &mut ()).unwrap()
}

/// Blocks are those of `modes`, whatever the edges' relations.
#[test]
fn sizes_are_the_counts_of_both_modes() {
    let graph = Arc::new(Rmat::graph500(11, 10, 3).generate().unwrap());
    let pool: Vec<u32> = (0..1024).collect();
    let expected = modes(&graph, &pool, &config(), &mut ()).unwrap();
    for (row, expected) in counted(4).iter().zip(&expected) {
        assert_eq!((row.n_pes, row.independent.len()), (expected.n_pes, 3));
        for (batches, expected) in
            [(&row.independent, &expected.independent), (&row.cooperative, &expected.cooperative)]
        {
            let found = crate::study::sizes::mode_row(batches);
            assert_eq!(found.vertices, expected.vertices);
            assert_eq!(found.sources, expected.sources);
            assert_eq!(found.edges, expected.edges);
            assert_eq!(found.received, expected.received);
            assert_eq!((found.inputs, found.loaded), (expected.inputs, expected.loaded));
            for pe in batches.iter().flatten() {
                for block in &pe.blocks {
                    // Groups are at most as many as edges, and at least as many as their rows with edges.
                    assert!((1..=block.edges).contains(&block.destination_groups));
                    assert!((1..=block.edges).contains(&block.source_groups));
                    assert!(block.destination_groups <= 4 * block.destinations);
                }
            }
            let sum = |of: fn(&BlockSize) -> u64| -> u64 {
                batches.iter().flatten().flat_map(|pe| &pe.blocks).map(of).sum()
            };
            assert_eq!(sum(|block| block.sent), sum(|block| block.received));
        }
    }
    assert!(sizes(&graph, &pool, &config(), true, &mut ()).unwrap_err().to_string().contains("edge types"));
    assert!(with_random_relations(&graph, 0, 0).is_err());
}

fn machine() -> CostConfig {
    CostConfig {
        machine: Machine::preset("8xA100").unwrap(),
        independent_miss_rate: 0.05,
        cooperative_miss_rate: 0.05,
        row_bytes: 4 * 64,
        widths: vec![],
    }
}

fn of(kind: ModelKind) -> ModelConfig {
    ModelConfig { n_features: 64, hidden: 64, n_classes: 16, ..model(kind, 3) }
}

fn cooperative(rows: &[CostRow]) -> &CostRow {
    rows.iter().find(|row| row.mode == Mode::Cooperative).unwrap()
}

/// On the same batches, a model with more work for each edge hides more of the exchange, which is the same.
#[test]
fn costlier_models_gain_more_from_cooperation() {
    let counted = &counted(5)[1];
    let predict = |kind| predict_model(counted, &of(kind), &[FirstLayer::Whole], &machine()).unwrap();
    let speedup = |kind| {
        let rows = predict(kind);
        let row = cooperative(&rows);
        let model = row.model.as_ref().unwrap();
        assert_relative_eq!(row.speedup, rows[0].seconds / row.seconds, max_relative = 1e-12);
        assert_eq!(model.layers.len(), 3);
        (row.speedup, model.speedup)
    };
    let gcn = speedup(ModelKind::GcnMean);
    for kind in [ModelKind::Rgcn, ModelKind::Rgat, ModelKind::Gatv2, ModelKind::Gat] {
        let costlier = speedup(kind);
        assert!(costlier.0 > gcn.0 && costlier.1 > gcn.1, "{kind:?}: {costlier:?}, gcn {gcn:?}");
    }
}
