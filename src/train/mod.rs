//! Training, evaluation and inference: batch preparation, the loop, checkpoints.
//!
//! [`Trainer`] is the whole of it:
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

mod checkpoint;
mod config;
mod evaluate;
mod metrics;
mod on_device;
mod parallel;
mod pipeline;
mod predict;
mod prepare;
mod report;
mod trainer;

pub use checkpoint::{BestInfo, CheckpointInfo, FILE as CHECKPOINT_FILE, read_info};
pub use config::{CacheConfig, DataOnDevice, EvalMode, Metric, TrainConfig};
pub use evaluate::{Evaluation, infer_full, infer_sampled};
pub use metrics::{accuracy, argmax_rows, mean_nll, roc_auc};
pub use parallel::{ParallelConfig, ParallelMode};
pub(crate) use parallel::{independent_sampler, share_of};
pub use pipeline::Pipeline;
pub use prepare::{Batch, BatchInput, HostBatch, HostInput, Preparer};
pub use report::{EpochReport, Observer, Outcome};
pub use trainer::Trainer;
