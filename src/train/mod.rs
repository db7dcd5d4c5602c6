//! Training, evaluation and inference: batch preparation, the loop, checkpoints.
//!
//! [`Trainer`] does everything:
//!
//! ```no_run
//! use std::sync::Arc;
//! use cohop::{data, device::Cpu, train::{TrainConfig, Trainer}};
//! # fn main() -> cohop::Result<()> {
//! let dataset = Arc::new(data::load("sbm")?);
//! let mut trainer = Trainer::new(Cpu::<f32>::new(), dataset, TrainConfig::default())?;
//! let outcome = trainer.fit(&mut ())?;
//! println!("test accuracy {:.3}", outcome.test_acc);
//! # Ok(())
//! # }
//! ```

mod best;
mod checkpoint;
mod class_weights;
mod config;
mod digest;
mod evaluate;
mod fingerprint;
mod full_inference;
mod loader;
mod lock;
mod metrics;
mod pace;
mod pipeline;
mod predict;
mod readings;
mod report;
mod schedule;
mod tally;
mod trainer;

pub use checkpoint::{BestInfo, CheckpointInfo, FILE as CHECKPOINT_FILE, ParallelInfo, read_info};
pub use class_weights::ClassWeights;
pub use config::{CacheConfig, EvalMode, MAX_WORKERS, Metric, ParallelConfig, TrainConfig};
pub use evaluate::{Evaluation, infer_batches};
pub use fingerprint::Fingerprint;
pub use full_inference::infer_full;
pub use loader::Loader;
pub use lock::CheckpointLock;
pub use metrics::{accuracy, argmax_rows, macro_f1, mean_nll, roc_auc};
pub use pipeline::Pipeline;
pub use report::{EpochReport, Observer, Outcome};
pub use schedule::LrSchedule;
pub use trainer::{StopAt, Trainer};

#[cfg(test)]
mod tests;
