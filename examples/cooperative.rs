//! Four processing elements, threads of this process, train one model together: the same losses as one alone.
//!
//! `cargo run --release --example cooperative`

use std::sync::Arc;

use cohop::comm::threads;
use cohop::coop::{FirstLayer, Mode, RowTransport};
use cohop::data::SbmData;
use cohop::device::Cpu;
use cohop::graph::{PartitionMethod, Sbm};
use cohop::train::{EpochReport, ParallelConfig, TrainConfig, Trainer};

const EPOCHS: u64 = 3;

pub(crate) fn main() -> cohop::Result<()> {
    let graph = Sbm { n_vertices: 3000, ..SbmData::default().graph };
    let dataset = Arc::new(SbmData { graph, ..SbmData::default() }.generate()?);
    // Batch size and learning rate are those of the whole batch, however many share it.
    let config = TrainConfig { batch_size: Some(256), ..TrainConfig::default() };

    let alone = Trainer::new(Cpu::<f32>::new(), dataset.clone(), config.clone())?;
    let alone = epochs(alone)?;

    let parallel = ParallelConfig {
        mode: Mode::Cooperative,
        partition: PartitionMethod::Random,
        first_layer: FirstLayer::Whole,
        row_transport: RowTransport::Auto,
    };
    let of_each = threads::run(4, |communicator| {
        // Each has a device of its own, and the vertices that the partition gives it.
        let device = Cpu::<f32>::new();
        epochs(Trainer::parallel(device, dataset.clone(), config.clone(), parallel, communicator)?)
    })?;

    for (one, together) in alone.iter().zip(&of_each[0]) {
        println!(
            "epoch {}: loss {:.6} alone, {:.6} together; {} and {} edges; {} bytes exchanged",
            one.epoch, one.loss, together.loss, one.edges, together.edges, together.exchanged_bytes
        );
        assert_eq!(one.edges, together.edges, "the same batches");
        assert!((one.loss - together.loss).abs() < 1e-4, "up to the order of additions");
    }
    Ok(())
}

fn epochs(mut trainer: Trainer<Cpu<f32>>) -> cohop::Result<Vec<EpochReport>> {
    (0..EPOCHS).map(|_| trainer.run_epoch(&mut ())).collect()
}
