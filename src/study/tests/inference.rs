//! Sampled inference against predictions of the trainer itself, counted directly.

use std::sync::Arc;

use crate::data::{Dataset, SbmData};
use crate::device::Cpu;
use crate::graph::Sbm;
use crate::sample::{Fanouts, SamplerConfig};
use crate::study::{InferenceConfig, inference};
use crate::train::{EvalMode, TrainConfig, Trainer};

fn trained(folder: &std::path::Path) -> (Arc<Dataset>, f64) {
    let graph = Sbm { n_vertices: 600, mean_degree: 12.0, ..SbmData::default().graph };
    let dataset = Arc::new(SbmData { graph, dim: 8, ..SbmData::default() }.generate().unwrap());
    let sampler = SamplerConfig { fanouts: Fanouts(vec![4, 4]), ..SamplerConfig::default() };
    let eval = EvalMode::Full;
    let config = TrainConfig { sampler, epochs: 4, batch_size: Some(32), eval, ..TrainConfig::default() };
    let mut trainer = Trainer::new(Cpu::<f32>::new(), dataset.clone(), config).unwrap();
    let outcome = trainer.fit(&mut ()).unwrap();
    trainer.save(folder).unwrap();
    (dataset, outcome.test_acc)
}

#[test]
fn rows_are_the_trainers_predictions_counted_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    let (dataset, test_acc) = trained(folder.path());
    let config = InferenceConfig { fanouts: vec![2, 1 << 20], batch_size: 50 };
    let rows = inference(&dataset, folder.path(), &config, &mut ()).unwrap();
    assert_eq!(rows.iter().map(|row| row.fanout).collect::<Vec<_>>(), [Some(2), Some(1 << 20), None]);
    assert_eq!(rows[2].accuracy, test_acc);
    // A fanout above all degrees is the full neighbourhood; a small one is another.
    assert!((rows[1].accuracy - rows[2].accuracy).abs() <= 2.0 / rows[1].vertices as f64, "{rows:?}");
    assert_ne!(rows[0].by_degree, rows[2].by_degree);
    for row in &rows {
        assert_eq!(row.vertices, dataset.test_idx.len());
        assert!(row.seconds > 0.0 && row.macro_f1 > 0.0 && row.macro_f1 <= 1.0);
        let right: f64 = row.by_degree.iter().map(|bin| bin.accuracy * bin.vertices as f64).sum();
        assert!((right - row.accuracy * row.vertices as f64).abs() <= 1e-6, "{row:?}");
        for bin in &row.by_degree {
            let inside = |&&v: &&u32| (bin.least..=bin.most).contains(&dataset.graph.in_degree(v));
            assert_eq!(bin.vertices, dataset.test_idx.iter().filter(inside).count(), "{bin:?}");
            assert!(bin.most == 2 * bin.least.max(1) - 1 || (bin.least, bin.most) == (0, 0), "{bin:?}");
        }
    }
}

#[test]
fn wrong_arguments_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (dataset, _) = trained(folder.path());
    let refused = |dataset: &Arc<Dataset>, config: &InferenceConfig| {
        inference(dataset, folder.path(), config, &mut ()).unwrap_err().to_string()
    };
    let config = InferenceConfig::default();
    assert!(
        refused(&dataset, &InferenceConfig { batch_size: 0, ..config.clone() }).contains("batch_size is 0")
    );
    assert!(
        refused(&dataset, &InferenceConfig { fanouts: vec![3, 0], ..config.clone() }).contains("fanouts")
    );
    let untested = Arc::new(Dataset { test_idx: Vec::new(), ..Dataset::clone(&dataset) });
    assert!(refused(&untested, &config).contains("test_idx"));
}
