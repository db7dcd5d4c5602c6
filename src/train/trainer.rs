//! The training loop.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::best::{Best, Stall};
use super::checkpoint::ParallelInfo;
use super::config::ParallelConfig;
use super::evaluate::Evaluation;
use super::fingerprint::Fingerprint;
use super::loader::{Loader, telling_others};
use super::pace::Pace;
use super::pipeline::computing;
use super::readings::Readings;
use super::report::{EpochReport, Observer, Outcome, Sums, peak_rss_bytes};
use super::{LrSchedule, TrainConfig};
use crate::batch::{
    Batch, BatchSource, Cooperative, DataOnDevice, DeviceSampling, HostSampling, Independent, Slicer,
    WholeGraph,
};
use crate::comm::Communicator;
use crate::coop::{FirstLayer, Group, Mode};
use crate::data::Dataset;
use crate::device::{Device, Method, Scalar};
use crate::error::{Error, Result};
use crate::graph::Partition;
use crate::nn::{Model, Optimizer, Stack};
use crate::rng::{self, Purpose};
use crate::sample::Batches;
use crate::tape::{Tape, Var};
use crate::tensor::Tensor;

/// Where a run ends that is asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopAt {
    /// Before the next batch; what the epoch has done so far is lost unless the caller keeps the trainer.
    Batch,
    /// After the epoch and what the observer does with it.
    Epoch,
}

/// How a run is asked to stop.
#[derive(Debug)]
struct Stop {
    flag: Arc<AtomicBool>,
    at: StopAt,
    /// Whether a processing element has seen its flag; the same on all.
    heard: bool,
}

/// Trains one model on one data set: the built-in [`Stack`], or any [`Model`].
#[derive(Debug)]
pub struct Trainer<D: Device, M = Stack<D>> {
    pub(super) device: D,
    pub(super) config: TrainConfig,
    pub(super) slicer: Slicer<D::Scalar>,
    /// The model with its current parameters.
    pub model: M,
    pub(super) optimizer: Optimizer<D>,
    pub(super) source: Arc<dyn BatchSource<D>>,
    /// The source's group.
    pub(super) group: Group<D>,
    pub(super) epoch: u64,
    pub(super) best: Option<Best<D>>,
    pub(super) stall: Stall,
    /// Of the data set as it was given.
    pub(super) fingerprint: Fingerprint,
    pub(super) parallel: Option<ParallelInfo>,
    /// Texts of the caller's own that go into checkpoints, and come back from them.
    pub notes: BTreeMap<String, String>,
    stop: Option<Stop>,
    /// How much each class counts in the loss; `None`: equally.
    class_weights: Option<Vec<f64>>,
}

impl<D: Device> Trainer<D> {
    /// A trainer of the built-in model that `config` describes, before its first epoch.
    ///
    /// Errors: the data set has no labels or no training vertices; numbers of features, classes, relations or fanouts
    /// do not fit it; and those of the source of batches and the device.
    pub fn new(device: D, dataset: Arc<Dataset>, mut config: TrainConfig) -> Result<Self> {
        let fingerprint = Fingerprint::of(&dataset);
        let dataset = config.transformed(dataset)?;
        let model = config.built_in_model(&device, &dataset)?;
        Trainer::over(device, dataset, config, model, fingerprint)
    }

    /// One of several trainers that train the same model together, one per processing element (PE) of `communicator`;
    /// all get the same data set and configuration. Its methods are collective: all PEs call them in the same order.
    ///
    /// The batch size is that of all PEs together. At most one thread per PE prepares batches.
    ///
    /// Errors: those of [`new`](Trainer::new) and [`join`](Trainer::join).
    pub fn parallel(
        device: D,
        dataset: Arc<Dataset>,
        config: TrainConfig,
        parallel: ParallelConfig,
        communicator: Communicator,
    ) -> Result<Self> {
        Trainer::new(device, dataset, config)?.join(parallel, communicator)
    }
}

impl<D: Device, M: Model<D>> Trainer<D, M> {
    /// A trainer of your own model, with the source of batches that `config` describes; its settings for the built-in
    /// model are ignored.
    ///
    /// Errors: the fanouts do not fit the model, the data set has no training vertices, or those of the source of
    /// batches and the device.
    pub fn with_model(device: D, dataset: Arc<Dataset>, config: TrainConfig, model: M) -> Result<Self> {
        let fingerprint = Fingerprint::of(&dataset);
        let dataset = config.transformed(dataset)?;
        Trainer::over(device, dataset, config, model, fingerprint)
    }

    /// The same trainer with your own source. Validation gets other neighbourhoods from it by
    /// [`with_sampler`](BatchSource::with_sampler).
    pub fn with_source(mut self, source: Arc<dyn BatchSource<D>>) -> Self {
        self.group = source.group();
        self.source = source;
        self
    }

    fn over(
        device: D,
        dataset: Arc<Dataset>,
        config: TrainConfig,
        model: M,
        fingerprint: Fingerprint,
    ) -> Result<Self> {
        config.check(&dataset, model.n_layers(), model.n_outputs())?;
        Trainer::unchecked(device, dataset, config, model, fingerprint)
    }

    /// A trainer whose configuration was checked, as far as it will be used.
    pub(super) fn unchecked(
        device: D,
        dataset: Arc<Dataset>,
        config: TrainConfig,
        model: M,
        fingerprint: Fingerprint,
    ) -> Result<Self> {
        let device = device.with_precision(config.precision);
        config.check_edge_weights(&dataset, model.needs())?;
        let class_weights = config.class_weights.by_class(&dataset, model.n_outputs())?;
        let optimizer = Optimizer::new(&device, config.optimizer, model.parameters())?;
        let slicer = Slicer::new(device.host(), dataset, model.needs());
        // What goes to another device goes as it is stored.
        let mut slicer = slicer.with_narrow_rows(!D::RUNS_ON_POOL);
        if let Some(cache) = config.cache {
            slicer = slicer.with_cache(cache.policy, cache.rows)?;
        }
        let source: Arc<dyn BatchSource<D>> =
            if config.batch_size.is_none() && config.sampler.method == Method::Full {
                Arc::new(WholeGraph::new(&device, slicer.clone(), model.n_layers())?)
            } else {
                sampling(&device, &slicer, &config)?
            };
        let group = Group::alone();
        let (epoch, best, stall) = (0, None, Stall::default());
        let (parallel, notes, stop) = (None, BTreeMap::new(), None);
        Ok(Trainer {
            device,
            config,
            slicer,
            model,
            optimizer,
            source,
            group,
            epoch,
            best,
            stall,
            fingerprint,
            parallel,
            notes,
            stop,
            class_weights,
        })
    }

    /// Makes [`fit`](Trainer::fit) and [`run_epoch`](Trainer::run_epoch) end with [`Error::Interrupted`] soon after
    /// `flag` is set, by a signal's handler for instance. Of several processing elements, all end if one's flag is set.
    pub fn stop_when(&mut self, flag: Arc<AtomicBool>, at: StopAt) {
        self.stop = Some(Stop { flag, at, heard: false });
    }

    /// Whether this processing element is asked to stop: 0 or 1.
    fn asked_to_stop(&self) -> u64 {
        self.stop.as_ref().map_or(0, |stop| u64::from(stop.flag.load(Ordering::Relaxed)))
    }

    /// Takes note of how many processing elements are asked to stop. Errors if the run ends here.
    fn hear_stop(&mut self, asked: u64, here: StopAt) -> Result<()> {
        let epochs = self.epoch;
        let Some(stop) = &mut self.stop else { return Ok(()) };
        stop.heard |= asked > 0;
        if stop.heard && stop.at == here { Err(Error::Interrupted { epochs }) } else { Ok(()) }
    }

    /// Makes this trainer, which is in the same state on all PEs, one of several, as [`parallel`](Trainer::parallel)
    /// does. Collective.
    ///
    /// Errors: configuration or data differ between PEs (on all of them), the mode is serial, the partition cannot be
    /// made, data is on the device in cooperative mode or with the first layer p3, and those
    /// of [`Slicer::with_column_slices`] and of communication.
    pub fn join(mut self, parallel: ParallelConfig, communicator: Communicator) -> Result<Self> {
        let n_pes = communicator.size();
        self.compare(parallel, &communicator)?;
        let ParallelConfig { mode, partition, first_layer, row_transport } = parallel;
        self.parallel = Some(ParallelInfo { mode, partition, first_layer, pes: n_pes });
        let graph = &self.slicer.dataset().graph;
        let partition = match parallel.mode {
            Mode::Cooperative => {
                Some(Partition::of_graph(parallel.partition, graph, n_pes, self.config.seed)?)
            }
            Mode::Independent | Mode::Serial => None,
        };
        let group = Group::connect(&self.device, parallel.mode, communicator, row_transport)?;
        if first_layer == FirstLayer::P3 {
            self.config.check_column_slices(&self.device)?;
            self.slicer = self.slicer.with_column_slices(&group)?;
        }
        let Some(partition) = partition else {
            let source = sampling(&self.device, &self.slicer, &self.config)?;
            let independent = Independent::new(&*source, self.config.sampler.clone(), group)?;
            return Ok(self.with_source(Arc::new(independent)));
        };
        self.cooperate(&Arc::new(partition), group)
    }

    /// Makes this trainer, which is in the same state on all PEs, one of several that cooperate; `partition` says which
    /// PE owns which vertex. Collective.
    ///
    /// Errors: `partition` is for another number of PEs or vertices, `group` is one PE alone, or data is on the device.
    pub fn cooperate(self, partition: &Arc<Partition>, group: Group<D>) -> Result<Self> {
        let data = self.config.data_on_device;
        if data != DataOnDevice::Nothing {
            let expected = "Nothing where several processing elements cooperate";
            return Err(Error::invalid("data_on_device", format!("{data:?}"), expected));
        }
        let sampler = self.config.sampler.clone();
        let source = Cooperative::new(self.slicer.clone(), sampler, partition, group)?;
        Ok(self.with_source(Arc::new(source)))
    }

    /// The configuration, completed by the data set.
    pub fn config(&self) -> &TrainConfig {
        &self.config
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The data set.
    pub fn dataset(&self) -> &Arc<Dataset> {
        self.slicer.dataset()
    }

    /// Number of epochs done.
    pub fn epochs_done(&self) -> u64 {
        self.epoch
    }

    /// Trains until the last epoch or until patience runs out, restores the best epoch's parameters, and tests with
    /// them.
    ///
    /// Errors: no training vertex has a label, the metric is the area under the ROC curve and all validation labels are
    /// the same, those of [`run_epoch`](Trainer::run_epoch), of testing, and of the observer.
    pub fn fit(&mut self, observer: &mut impl Observer<D, M>) -> Result<Outcome> {
        let start = Instant::now();
        if self.epoch < self.config.epochs {
            let tells = self.group.rank() == 0;
            self.config.check_labels(self.dataset(), self.model.n_outputs(), tells)?;
            if tells {
                self.config.mention_unused_weights(self.dataset(), self.model.needs());
            }
        }
        let mut stopped_early = false;
        while self.epoch < self.config.epochs {
            let report = self.run_epoch(observer)?;
            observer.epoch_done(self, &report)?;
            if self.epoch < self.config.epochs {
                self.hear_stop(0, StopAt::Epoch)?;
            }
            let validated = self.epoch.is_multiple_of(self.config.eval_every);
            if validated && self.config.patience.is_some_and(|patience| self.stall.epochs() >= patience) {
                stopped_early = self.epoch < self.config.epochs;
                break;
            }
        }
        let best_epoch = self.best.as_ref().map_or(self.epoch.saturating_sub(1), |best| best.epoch);
        let best = self.best_validation().unwrap_or(Evaluation::NONE);
        self.restore_best()?;
        let test = self.evaluate(&self.dataset().test_idx)?;
        Ok(Outcome {
            test_acc: test.accuracy,
            test_auc: test.measured_auc(),
            best_val_acc: best.accuracy,
            best_val_auc: best.measured_auc(),
            best_epoch,
            stopped_early,
            seconds: start.elapsed().as_secs_f64(),
        })
    }

    /// One pass over the training vertices, and a validation if it is due.
    ///
    /// Errors: [`Error::Diverged`] if a loss is not finite, and those of sampling, communication and the device.
    pub fn run_epoch(&mut self, observer: &mut impl Observer<D, M>) -> Result<EpochReport> {
        let start = Instant::now();
        let mut sums = Sums::new(self.epoch);
        sums.report.lr = self.set_lr()?;
        self.run_batches(observer, &mut sums)?;
        let eval_start = Instant::now();
        let val = if (self.epoch + 1).is_multiple_of(self.config.eval_every) {
            match self.evaluate(&self.dataset().val_idx) {
                Err(Error::NotFinite { array: super::predict::SCORES, .. }) => {
                    return Err(Error::DivergedInValidation { epoch: self.epoch });
                }
                other => other?,
            }
        } else {
            Evaluation::NONE
        };
        let mut report = sums.report;
        let EpochReport { vertices, edges, input_vertices, cache_hits, cache_misses, .. } = report;
        let counts = [vertices, edges, input_vertices, cache_hits, cache_misses, self.asked_to_stop()];
        let asked;
        [
            report.vertices,
            report.edges,
            report.input_vertices,
            report.cache_hits,
            report.cache_misses,
            asked,
        ] = self.group.sum(counts)?;
        (report.exchanged_bytes, report.exchange_seconds) = self.group.take_exchanged()?;
        report.eval_seconds = eval_start.elapsed().as_secs_f64();
        report.seconds = start.elapsed().as_secs_f64();
        report.peak_rss_bytes = peak_rss_bytes();
        if !val.accuracy.is_nan() {
            (report.val_acc, report.val_loss) = (Some(val.accuracy), Some(val.loss));
            report.val_auc = val.measured_auc();
            self.hear_of_validation(val);
        }
        let heard = if self.dataset().val_idx.is_empty() { Some(report.loss) } else { report.val_loss };
        if let Some(loss) = heard {
            self.stall.plateau.hear(self.config.lr_schedule, loss);
        }
        self.epoch += 1;
        if self.epoch < self.config.epochs {
            self.hear_stop(asked, StopAt::Batch)?;
        }
        Ok(report)
    }

    /// Sets and returns the learning rate of the coming epoch.
    fn set_lr(&mut self) -> Result<f64> {
        let schedule = self.config.lr_schedule;
        if schedule != LrSchedule::Constant {
            let factor = schedule.factor(self.epoch, self.config.epochs, &self.stall.plateau);
            self.optimizer.set_lr(self.config.optimizer.lr() * factor)?;
        }
        Ok(self.optimizer.lr())
    }

    /// The loss of a batch, with one factor for all processing elements.
    fn loss(
        &self,
        tape: &Tape<D>,
        logits: Var,
        labels: &[i32],
        uploaded: D::Buffer<i32>,
        n_labelled: u64,
    ) -> Result<Var> {
        let Some(weights) = &self.class_weights else {
            return tape.log_softmax_nll(logits, uploaded, 1.0 / n_labelled.max(1) as f64);
        };
        let of_label = |&label: &i32| usize::try_from(label).ok().and_then(|label| weights.get(label));
        let rows: Vec<f64> = labels.iter().map(|label| of_label(label).copied().unwrap_or(0.0)).collect();
        let total = self.group.sum_loss(rows.iter().sum())?;
        let rows: Vec<D::Scalar> = rows.into_iter().map(D::Scalar::from_f64).collect();
        let n = rows.len();
        let rows = Tensor::from_buffer(self.device.send(rows)?, n, 1)?;
        let factor = if total > 0.0 { 1.0 / total } else { 0.0 };
        tape.weighted_log_softmax_nll(logits, uploaded, rows, factor)
    }

    fn run_batches(&mut self, observer: &mut impl Observer<D, M>, sums: &mut Sums) -> Result<()> {
        let train_idx = self.dataset().train_idx.clone();
        let batch_size = self.config.batch_size.unwrap_or(train_idx.len());
        let epoch = Batches::new(train_idx, batch_size, self.config.seed)?.epoch(self.epoch);
        let batches: Vec<_> = epoch.iter().map(|(number, seeds)| (number, seeds.to_vec())).collect();
        let numbers: Vec<u64> = batches.iter().map(|(number, _)| *number).collect();
        observer.epoch_begins(self.epoch, numbers.len());
        let mut readings = Readings::new(&self.device, &self.group)?;
        let mut pace = Pace::new();
        let exchanged_before = self.group.exchange_seconds();
        let mut loader = Loader::new(&self.device, self.source.clone(), self.config.workers, batches)?;
        telling_others(&self.group.clone(), || {
            for (index, number) in numbers.into_iter().enumerate() {
                let waiting = Instant::now();
                let Some(batch) = loader.next() else { break };
                let batch = batch?;
                sums.report.wait_seconds += waiting.elapsed().as_secs_f64();
                sums.report.sample_seconds += batch.sample_seconds;
                sums.report.gather_seconds += batch.gather_seconds;
                let start = Instant::now();
                computing(&self.group.clone(), || {
                    self.step(&batch, index as u64, number, &mut readings, sums)?;
                    pace.keep(&self.device)
                })?;
                sums.count(&batch);
                sums.report.compute_seconds += start.elapsed().as_secs_f64();
                sums.report.exchange_seconds = self.group.exchange_seconds() - exchanged_before;
                observer.batch_done(index, &sums.report);
            }
            // What the device has still to do is part of the steps.
            let start = Instant::now();
            readings.read(&self.device, &self.group, sums)?;
            sums.report.compute_seconds += start.elapsed().as_secs_f64();
            Ok(())
        })
    }

    /// Forward, backward and optimiser on one batch.
    fn step(
        &mut self,
        batch: &Batch<D>,
        index: u64,
        number: u64,
        readings: &mut Readings<D>,
        sums: &mut Sums,
    ) -> Result<()> {
        let [n_labelled, asked] = self.group.sum([batch.n_labelled(), self.asked_to_stop()])?;
        self.hear_stop(asked, StopAt::Batch)?;
        let (device, group) = (&self.device, &self.group);
        let tape = group.tape(device, rng::derive(self.config.seed, Purpose::Dropout.stream(0), number));
        let logits = self.model.forward(&tape, batch)?;
        let labels = device.send(batch.labels.to_vec())?;
        readings.count(device, &tape.value(logits), D::view(&labels))?;
        let loss = self.loss(&tape, logits, &batch.labels, labels, n_labelled)?;
        readings.add(device, [index, n_labelled], &tape.value(loss))?;
        if readings.are_due() {
            readings.read(device, group, sums)?;
        }
        let statistics = tape.take_statistics();
        let gradients = tape.backward_from(loss, readings.one.clone())?;
        let parameters = self.model.parameters_mut();
        let mut gradients = group.sum_gradients(device, gradients)?;
        if let Some(norm) = self.config.clip_norm {
            gradients.clip_norm(device, norm)?;
        }
        let statistics = group.share_statistics(device, statistics)?;
        self.optimizer.step(device, parameters, &gradients)?;
        parameters.update_statistics(device, &statistics)
    }
}

/// One processing element's source of sampled batches, made on the device or the host.
fn sampling<D: Device>(
    device: &D,
    slicer: &Slicer<D::Scalar>,
    config: &TrainConfig,
) -> Result<Arc<dyn BatchSource<D>>> {
    let (slicer, sampler) = (slicer.clone(), config.sampler.clone());
    Ok(match config.data_on_device {
        DataOnDevice::Nothing => Arc::new(HostSampling::new(slicer, sampler)?),
        data => Arc::new(DeviceSampling::new(device, slicer, sampler, data)?),
    })
}
