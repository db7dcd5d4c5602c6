//! Reports of a training run's epochs and outcome, and the trait that receives them.

use serde::Serialize;

use super::Trainer;
use crate::batch::Batch;
use crate::device::Device;
use crate::error::Result;
use crate::nn::Stack;

/// What happened in an epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EpochReport {
    /// From 0.
    pub epoch: u64,
    /// Mean training loss over the epoch's seeds.
    pub loss: f64,
    /// Training accuracy, measured during training, with dropout.
    pub train_acc: f64,
    /// Learning rate.
    pub lr: f64,
    /// Validation accuracy after the epoch; `None` without validation vertices, or if no validation was due.
    pub val_acc: Option<f64>,
    /// Validation loss.
    pub val_loss: Option<f64>,
    /// Validation area under the ROC curve; `None` unless there are two classes.
    pub val_auc: Option<f64>,
    /// Wall-clock seconds, evaluation included.
    pub seconds: f64,
    /// Seconds spent sampling, summed over workers.
    pub sample_seconds: f64,
    /// Seconds spent slicing features, summed over workers.
    pub gather_seconds: f64,
    /// Seconds of forward, backward and optimiser. On a device, which does steps while the host goes on: seconds in
    /// which the host gave it steps or waited for their ends, the last one's included; what the device did while the
    /// host waited for a batch is in `wait_seconds`.
    pub compute_seconds: f64,
    /// Seconds of exchange between processing elements.
    pub exchange_seconds: f64,
    /// Seconds that training waited for batches.
    pub wait_seconds: f64,
    /// Seconds of validation.
    pub eval_seconds: f64,
    /// Number of minibatches.
    pub batches: u64,
    /// Destination vertices of all layers of all batches.
    pub vertices: u64,
    /// Edges of all layers of all batches.
    pub edges: u64,
    /// Rows of features loaded.
    pub input_vertices: u64,
    /// Bytes sent between processing elements.
    pub exchanged_bytes: u64,
    /// Feature rows found in the cache.
    pub cache_hits: u64,
    /// Feature rows not found in the cache; all rows if there is none.
    pub cache_misses: u64,
    /// The process's peak resident memory; 0 if the system does not report it.
    pub peak_rss_bytes: u64,
}

/// Result of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Test accuracy with the parameters of the best epoch; NaN without test vertices.
    pub test_acc: f64,
    /// Test area under the ROC curve; `None` unless there are two classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_auc: Option<f64>,
    /// Validation accuracy of the best epoch; NaN without validation vertices.
    pub best_val_acc: f64,
    /// Validation area under the ROC curve of the best epoch; `None` unless there are two classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_val_auc: Option<f64>,
    /// The best epoch (without validation vertices: the last).
    pub best_epoch: u64,
    /// Whether the run ended before its last epoch, as patience ran out.
    pub stopped_early: bool,
    /// Wall-clock seconds of the run.
    pub seconds: f64,
}

/// Receives a run's progress. All methods do nothing by default; `()` is an observer that ignores everything.
pub trait Observer<D: Device, M = Stack<D>> {
    /// An epoch of `n_batches` begins.
    fn epoch_begins(&mut self, _epoch: u64, _n_batches: usize) {}
    /// Batch `index` of the epoch is done, or a device has been given all of it and may be two batches behind; `report`
    /// holds the sums so far, of this processing element. Loss and
    /// accuracy may be those of some batches ago: on a device, and where processing elements add them up, they are
    /// read every 16 batches and at the end.
    fn batch_done(&mut self, _index: usize, _report: &EpochReport) {}
    /// An epoch is done.
    ///
    /// Errors: any; an error ends the run.
    fn epoch_done(&mut self, _trainer: &Trainer<D, M>, _report: &EpochReport) -> Result<()> {
        Ok(())
    }
}

impl<D: Device, M> Observer<D, M> for () {}

/// Sums over an epoch's batches.
pub(super) struct Sums {
    pub report: EpochReport,
    labelled: f64,
}

impl Sums {
    pub fn new(epoch: u64) -> Self {
        let report = EpochReport { epoch, ..EpochReport::default() };
        Sums { report, labelled: 0.0 }
    }

    /// Adds `n_labelled` seeds, of which `n_right` were predicted correctly, with the mean loss `loss`. `loss` and
    /// `train_acc` of the report stay means over all labelled seeds so far.
    pub fn add(&mut self, n_labelled: u64, n_right: u64, loss: f64) {
        if n_labelled > 0 {
            let n = n_labelled as f64;
            let share = n / (self.labelled + n);
            self.report.loss += (loss - self.report.loss) * share;
            self.report.train_acc += (n_right as f64 / n - self.report.train_acc) * share;
            self.labelled += n;
        }
    }

    pub fn count<D: Device>(&mut self, batch: &Batch<D>) {
        let report = &mut self.report;
        report.batches += 1;
        report.vertices += batch.blocks.iter().map(|b| b.n_dst() as u64).sum::<u64>();
        report.edges += batch.blocks.iter().map(|b| b.n_edge() as u64).sum::<u64>();
        report.input_vertices += batch.loaded.accesses();
        report.cache_hits += batch.loaded.hits;
        report.cache_misses += batch.loaded.misses;
    }
}

/// The process's peak resident memory; 0 if the system does not report it.
pub(super) fn peak_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kibibytes = line.and_then(|l| l.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}
