//! P³ in the cost model: its bytes are those of the formula that training is tested against.

use std::sync::Arc;

use approx::assert_relative_eq;

use crate::coop::{FirstBlock, FirstLayer, Mode, p3_bytes};
use crate::graph::Rmat;
use crate::nn::{ModelConfig, ModelKind};
use crate::sample::Fanouts;
use crate::study::p3::{p3_parts, p3_traffic};
use crate::study::{
    CostConfig, CostRow, Machine, ModesConfig, SizesRow, layer_work, p3_terms, predict_model, sizes,
    with_random_relations,
};

const LINEAR: [ModelKind; 5] =
    [ModelKind::Sage, ModelKind::Gcn, ModelKind::GcnMean, ModelKind::Gin, ModelKind::Rgcn];

fn model(kind: ModelKind, n_features: usize, hidden: usize) -> ModelConfig {
    let n_relations = if kind == ModelKind::Rgcn { 3 } else { 0 };
    ModelConfig { kind, n_features, hidden, n_classes: 5, n_layers: 2, n_relations, ..ModelConfig::default() }
}

fn counted(n_pes: usize) -> SizesRow {
    let graph = Rmat::graph500(10, 8, 3).generate().unwrap();
    let graph = Arc::new(with_random_relations(&graph, 3, 0).unwrap());
    let config = ModesConfig {
        fanouts: Fanouts(vec![4, 4]),
        pes: vec![n_pes],
        batch_size: 60,
        batches: 2,
        ..ModesConfig::default()
    };
    let pool: Vec<u32> = (0..500).collect();
    sizes(&graph, &pool, &config, true, &mut ()).unwrap().remove(0)
}

#[test]
fn bytes_are_those_of_the_formula_that_training_keeps_to() {
    for n_pes in [1, 4] {
        let row = counted(n_pes);
        for (mode, batches) in [(Mode::Independent, &row.independent), (Mode::Cooperative, &row.cooperative)]
        {
            for (kind, batch) in LINEAR.iter().flat_map(|&kind| batches.iter().map(move |b| (kind, b))) {
                let model = model(kind, 10, 7);
                let firsts: Vec<FirstBlock> = batch
                    .iter()
                    .map(|pe| FirstBlock { n_dst: pe.blocks[1].destinations, n_edge: pe.blocks[1].edges })
                    .collect();
                let expected = p3_bytes(&firsts, p3_terms(&model).unwrap(), 7, 4);
                let traffic = p3_traffic(&model, mode, batch).unwrap();
                assert_eq!(traffic.blocks, expected.blocks as f64);
                assert_eq!(traffic.sums, (expected.forward + expected.backward) as f64);
                let parts = p3_parts(&model, batch).unwrap();
                let received = |which: usize| parts.iter().map(|part| part.received[which]).sum::<f64>();
                assert_eq!([received(0), received(1)], [traffic.blocks, traffic.sums], "{kind:?} {mode}");
                // Each column of each PE's sources is loaded once, by one PE.
                let sources: u64 = batch.iter().map(|pe| pe.blocks[1].sources).sum();
                let loaded: f64 = parts.iter().map(|part| part.loaded).sum();
                assert_relative_eq!(loaded, sources as f64, max_relative = 1e-12);
                if n_pes == 1 {
                    assert_eq!((traffic.blocks, traffic.sums, traffic.even_columns), (0.0, 0.0, None));
                }
            }
        }
    }
}

/// All PEs together multiply as often as with whole rows that are summed first.
#[test]
fn all_elements_together_do_the_layers_products() {
    let row = counted(4);
    let model = model(ModelKind::GcnMean, 8, 16);
    for batch in &row.cooperative {
        let parts = p3_parts(&model, batch).unwrap();
        let together: f64 = parts.iter().map(|part| part.work.dense.operations).sum();
        let apart = batch.iter().map(|pe| layer_work(&model, 0, &pe.blocks[1]).unwrap());
        assert_eq!(together, apart.map(|work| work.dense.operations).sum::<f64>());
    }
}

/// At `even_columns` whole rows move as many bytes; features that are wide pay, others do not.
#[test]
fn wide_features_and_narrow_layers_pay() {
    let row = counted(4);
    let config = CostConfig {
        // A network between the PEs, memory to load from.
        machine: Machine { interconnect: 1e9, storage: 1e11, ..Machine::preset("8xA100").unwrap() },
        independent_miss_rate: 1.0,
        cooperative_miss_rate: 1.0,
        row_bytes: 0,
        widths: vec![],
    };
    let both = [FirstLayer::Whole, FirstLayer::P3];
    let predict = |n_features: usize, hidden: usize| -> Vec<CostRow> {
        let config = CostConfig { row_bytes: 4 * n_features, ..config.clone() };
        predict_model(&row, &model(ModelKind::Sage, n_features, hidden), &both, &config).unwrap()
    };
    let p3 = |rows: &[CostRow], at: usize| rows[at].model.as_ref().unwrap().p3.unwrap();
    let rows = predict(64, 16);
    let labels: Vec<_> = rows.iter().map(|r| (r.mode, r.model.as_ref().unwrap().first_layer)).collect();
    let (independent, cooperative) = (Mode::Independent, Mode::Cooperative);
    assert_eq!(
        labels,
        [
            (independent, FirstLayer::Whole),
            (cooperative, FirstLayer::Whole),
            (independent, FirstLayer::P3),
            (cooperative, FirstLayer::P3)
        ]
    );
    for at in [2, 3] {
        let even = p3(&rows, at).even_columns.unwrap();
        let moved = |columns: usize| {
            let bytes = p3(&predict(columns, 16), at);
            (bytes.blocks + bytes.sums, bytes.whole_rows)
        };
        let (narrow, wide) = (moved(even as usize), moved(even as usize + 1));
        assert!(narrow.0 >= narrow.1 && wide.0 <= wide.1, "{even}: {narrow:?} {wide:?}");
        // Wider hidden layers move more.
        assert!(p3(&predict(64, 64), at).even_columns.unwrap() > even);
    }
    // Alone each PE loads whole rows itself, so that sums are sent in addition; together they save what crosses.
    let (wide, narrow) = (predict(2000, 16), predict(16, 64));
    assert!(wide[3].seconds < wide[1].seconds && narrow[3].seconds > narrow[1].seconds);
    assert!(wide[2].seconds > wide[0].seconds);
    assert_relative_eq!(wide[3].speedup, wide[0].seconds / wide[3].seconds, max_relative = 1e-12);
    assert_eq!((wide[1].break_even_share.is_some(), wide[3].break_even_share), (true, None));
}

#[test]
fn models_without_a_linear_beginning_have_no_form() {
    for kind in [ModelKind::Gat, ModelKind::Gatv2, ModelKind::Rgat, ModelKind::SageRi] {
        let error = p3_terms(&model(kind, 8, 8)).unwrap_err().to_string();
        assert!(error.contains("attention (gat, gatv2, rgat) and sage-ri have no p3 form"), "{error}");
    }
    let dropped = ModelConfig { input_dropout: 0.5, ..model(ModelKind::Sage, 8, 8) };
    assert!(p3_terms(&dropped).unwrap_err().to_string().contains("dropout of the input"));
}
