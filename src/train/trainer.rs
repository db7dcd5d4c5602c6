//! The training loop.

use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::evaluate::Evaluation;
use super::metrics::argmax_rows;
use super::on_device::OnDevice;
use super::parallel::{Parallel, ParallelConfig, average_statistics};
use super::pipeline::{computing, prepared_ahead, queue_depth};
use super::prepare::{Batch, BatchInput, HostBatch};
use super::report::{EpochReport, Observer, Outcome, Sums, peak_rss_bytes};
use super::{DataOnDevice, Metric, Pipeline, Preparer, TrainConfig};
use crate::block::Block;
use crate::comm::Communicator;
use crate::coop::{exchange, sum_gradients};
use crate::data::Dataset;
use crate::device::{Device, FeatureElement, IGNORED, Method};
use crate::error::{Error, Result};
use crate::nn::{Model, Optimizer};
use crate::rng::{self, Purpose};
use crate::sample::{Batches, SamplerConfig};
use crate::tape::{Tape, Var};
use crate::tensor::Tensor;

/// The best epoch so far.
#[derive(Debug)]
pub(super) struct Best<D: Device> {
    pub epoch: u64,
    pub val: Evaluation,
    pub values: Vec<Tensor<D>>,
}

/// How long validation has not improved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Stall {
    /// Epochs since the best metric or the lowest loss.
    epochs: u64,
    best_metric: Option<f64>,
    lowest_loss: Option<f64>,
}

impl Stall {
    /// Loss often falls long after the metric has had its first peak, so either counts.
    fn hear(&mut self, metric: f64, loss: f64) {
        let metric_holds = self.best_metric.is_none_or(|best| metric >= best);
        let loss_holds = self.lowest_loss.is_none_or(|lowest| loss <= lowest);
        if metric_holds {
            self.best_metric = Some(metric);
        }
        if loss_holds {
            self.lowest_loss = Some(loss);
        }
        self.epochs = if metric_holds || loss_holds { 0 } else { self.epochs + 1 };
    }
}

/// A batch on its way to the device.
struct Staged<D: Device> {
    batch: Batch<D>,
    /// When it is there.
    ready: D::Event,
    sample_seconds: f64,
    gather_seconds: f64,
}

/// Tells the other processing elements if this one leaves an epoch by an error or a panic.
struct AbortGuard<D: Device> {
    /// `None` once all is well.
    parallel: Option<Arc<Parallel<D>>>,
    problem: Option<String>,
}

impl<D: Device> Drop for AbortGuard<D> {
    fn drop(&mut self) {
        if let Some(parallel) = &self.parallel {
            parallel.abort(self.problem.as_deref().unwrap_or("it panicked"));
        }
    }
}

/// Trains one model on one data set.
#[derive(Debug)]
pub struct Trainer<D: Device> {
    pub(super) device: D,
    pub(super) config: TrainConfig,
    pub(super) preparer: Preparer<D::Scalar>,
    /// The model as it is now.
    pub model: Model<D>,
    pub(super) optimizer: Optimizer<D>,
    pub(super) epoch: u64,
    pub(super) best: Option<Best<D>>,
    pub(super) stall: Stall,
    pub(super) whole: Option<Batch<D>>,
    pub(super) parallel: Option<Arc<Parallel<D>>>,
    on_device: Option<Arc<OnDevice<D>>>,
}

impl<D: Device> Trainer<D> {
    /// A trainer before its first epoch. Errors: a data set without labels, numbers of features, classes, relations or
    /// fanouts that do not fit, no training vertices.
    pub fn new(device: D, dataset: Arc<Dataset>, config: TrainConfig) -> Result<Self> {
        let mut trainer = Trainer::prepared(device, dataset, config)?;
        let data = trainer.config.data_on_device;
        if trainer.config.batch_size.is_none() && trainer.config.sampler.method == Method::Full {
            trainer.whole = Some(trainer.whole_graph()?);
        } else if data != DataOnDevice::Nothing {
            trainer.on_device = Some(Arc::new(OnDevice::new(&trainer.device, &trainer.preparer, data)?));
        }
        Ok(trainer)
    }

    /// One of several trainers that train the same model together, one for each processing element of `communicator`;
    /// all are given the same data set and configuration. Its methods are collective: all PEs call them in the same
    /// order. Errors as of [`new`](Trainer::new).
    ///
    /// The batch size is that of all PEs together. Batches are prepared by one thread, or by none.
    pub fn parallel(
        device: D,
        dataset: Arc<Dataset>,
        config: TrainConfig,
        parallel: ParallelConfig,
        communicator: Communicator,
    ) -> Result<Self> {
        Trainer::prepared(device, dataset, config)?.join(parallel, communicator)
    }

    /// Makes this trainer, which is in the same state everywhere, one of several as by [`parallel`](Trainer::parallel).
    pub fn join(mut self, parallel: ParallelConfig, communicator: Communicator) -> Result<Self> {
        let data = self.config.data_on_device;
        if data != DataOnDevice::Nothing {
            let expected = "Nothing where several processing elements train";
            return Err(Error::invalid("data_on_device", format!("{data:?}"), expected));
        }
        self.config.workers = self.config.workers.min(1);
        self.whole = None;
        let parallel = Parallel::new(&self.device, &self.preparer, parallel, communicator, self.config.seed)?;
        self.parallel = Some(Arc::new(parallel));
        Ok(self)
    }

    fn prepared(device: D, mut dataset: Arc<Dataset>, mut config: TrainConfig) -> Result<Self> {
        if config.row_normalize {
            let features = dataset.features.row_normalize()?;
            dataset = Arc::new(Dataset { features, ..Dataset::clone(&dataset) });
        }
        if config.inverse_relations && dataset.graph.edge_type().is_some() {
            let graph = Arc::new(dataset.graph.add_inverse_relations()?);
            dataset = Arc::new(Dataset { graph, ..Dataset::clone(&dataset) });
        }
        let one_hot = if dataset.features.is_none() { dataset.n_vertices() } else { 0 };
        fill(&mut config.model.n_features, dataset.features.dim().max(one_hot), "n_features")?;
        let n_relations = dataset.graph.n_relations();
        if config.model.n_relations == 0 {
            config.model.n_relations = n_relations;
        }
        if config.model.n_relations != n_relations {
            let expected = format!("the {n_relations} of the graph");
            return Err(Error::invalid("n_relations", config.model.n_relations, expected));
        }
        fill(&mut config.model.n_classes, dataset.n_classes, "n_classes")?;
        if dataset.train_idx.is_empty() {
            return Err(Error::invalid("train_idx", "empty", "at least one training vertex"));
        }
        if config.batch_size == Some(0) {
            return Err(Error::invalid("batch_size", 0, "at least 1"));
        }
        if config.metric == Metric::Auc && config.model.n_classes != 2 {
            let classes = format!("a data set of {} classes", config.model.n_classes);
            return Err(Error::invalid("metric", format!("auc with {classes}"), "two classes"));
        }
        if config.sampler.fanouts.0.len() != config.model.n_layers {
            let expected = format!("one for each of the model's {} layers", config.model.n_layers);
            return Err(Error::invalid("fanouts", &config.sampler.fanouts, expected));
        }
        let model = Model::new(&device, config.model.clone(), config.seed)?;
        let optimizer = Optimizer::new(&device, config.optimizer, &model.parameters)?;
        let mut preparer = Preparer::new(device.host(), dataset, model.needs_degrees())
            .with_input_aggregate(model.input_aggregate());
        if config.data_on_device != DataOnDevice::Nothing && config.cache.is_some() {
            return Err(Error::invalid("cache", "given", "none where minibatches are made on the device"));
        }
        if let Some(cache) = config.cache {
            preparer = preparer.with_cache(cache.policy, cache.rows)?;
            config.workers = config.workers.min(1);
        }
        Ok(Trainer {
            device,
            config,
            preparer,
            model,
            optimizer,
            epoch: 0,
            best: None,
            stall: Stall::default(),
            whole: None,
            parallel: None,
            on_device: None,
        })
    }

    /// All layers over one block that holds the whole graph; only training vertices have labels.
    fn whole_graph(&self) -> Result<Batch<D>> {
        let dataset = self.preparer.dataset();
        let all: Vec<u32> = (0..dataset.n_vertices() as u32).collect();
        let block = self.preparer.full_block(&all)?;
        let input = BatchInput::from_host(&self.device, self.preparer.input(&block)?)?;
        let block = Arc::new(Block::from_host(&self.device, block)?);
        let mut labels = self.preparer.labels(&all)?;
        let train = dataset.train_idx.iter().map(|&v| (v, labels[v as usize])).collect::<Vec<_>>();
        labels.fill(IGNORED);
        for (v, label) in train {
            labels[v as usize] = label;
        }
        Ok(Batch {
            blocks: vec![block; self.model.n_layers()],
            plans: Vec::new(),
            loaded: crate::cache::Counts { hits: 0, misses: all.len() as u64 },
            input,
            labels,
        })
    }

    /// The configuration, completed from the data set.
    pub fn config(&self) -> &TrainConfig {
        &self.config
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The data set.
    pub fn dataset(&self) -> &Arc<Dataset> {
        self.preparer.dataset()
    }

    /// Number of epochs done.
    pub fn epochs_done(&self) -> u64 {
        self.epoch
    }

    /// Trains until the last epoch or until patience runs out, and tests with the best epoch's parameters, which the
    /// model then has.
    pub fn fit(&mut self, observer: &mut impl Observer<D>) -> Result<Outcome> {
        let start = Instant::now();
        while self.epoch < self.config.epochs {
            let report = self.run_epoch(observer)?;
            observer.epoch_done(self, &report)?;
            if self.config.patience.is_some_and(|patience| self.stall.epochs >= patience) {
                break;
            }
        }
        let mut best_epoch = self.epoch.saturating_sub(1);
        let mut best_val_acc = f64::NAN;
        if let Some(best) = &self.best {
            (best_epoch, best_val_acc) = (best.epoch, best.val.accuracy);
        }
        self.restore_best()?;
        let test = self.evaluate(&self.preparer.dataset().test_idx)?;
        Ok(Outcome {
            test_acc: test.accuracy,
            test_auc: (!test.auc.is_nan()).then_some(test.auc),
            best_val_acc,
            best_epoch,
            seconds: start.elapsed().as_secs_f64(),
        })
    }

    /// Gives the model the parameters of the best epoch, if validation chose one.
    pub fn restore_best(&mut self) -> Result<()> {
        if let Some(best) = &self.best {
            let ids: Vec<_> = self.model.parameters.iter().map(|(id, _)| id).collect();
            for (id, value) in ids.into_iter().zip(&best.values) {
                self.model.parameters.set(id, value.clone())?;
            }
        }
        Ok(())
    }

    /// One pass over the training vertices, and a validation.
    pub fn run_epoch(&mut self, observer: &mut impl Observer<D>) -> Result<EpochReport> {
        let start = Instant::now();
        let mut sums = Sums::new(self.epoch);
        if let Some(batch) = self.whole.take() {
            observer.epoch_begins(self.epoch, 1);
            let result = self.step(&batch, 0, 1, &mut sums);
            self.whole = Some(batch);
            result?;
            observer.batch_done(0, &sums.report);
        } else {
            self.run_minibatches(observer, &mut sums)?;
        }
        let eval_start = Instant::now();
        let val = self.evaluate(&self.preparer.dataset().val_idx)?;
        let mut report = sums.report;
        if let Some(parallel) = &self.parallel {
            let EpochReport { vertices, edges, input_vertices, cache_hits, cache_misses, .. } = report;
            let counts = [vertices, edges, input_vertices, cache_hits, cache_misses];
            [report.vertices, report.edges, report.input_vertices, report.cache_hits, report.cache_misses] =
                parallel.sum(counts)?;
            let (bytes, seconds) = parallel.take_exchanged()?;
            (report.exchanged_bytes, report.exchange_seconds) = (bytes, seconds);
        }
        report.eval_seconds = eval_start.elapsed().as_secs_f64();
        report.seconds = start.elapsed().as_secs_f64();
        report.peak_rss_bytes = peak_rss_bytes();
        if !val.accuracy.is_nan() {
            (report.val_acc, report.val_loss) = (Some(val.accuracy), Some(val.loss));
            report.val_auc = (!val.auc.is_nan()).then_some(val.auc);
            let metric = self.config.metric;
            let better = |b: &Best<D>| {
                let (new, old) = (metric.of(&val), metric.of(&b.val));
                new > old || new == old && val.loss < b.val.loss
            };
            self.stall.hear(metric.of(&val), val.loss);
            if self.best.as_ref().is_none_or(better) {
                let values = self.model.parameters.iter().map(|(_, p)| p.value.clone()).collect();
                self.best = Some(Best { epoch: self.epoch, val, values });
            }
        }
        self.epoch += 1;
        Ok(report)
    }

    fn run_minibatches(&mut self, observer: &mut impl Observer<D>, sums: &mut Sums) -> Result<()> {
        let train_idx = self.preparer.dataset().train_idx.clone();
        let batch_size = self.config.batch_size.unwrap_or(train_idx.len());
        let epoch = Batches::new(train_idx, batch_size, self.config.seed)?.epoch(self.epoch);
        let n_batches = epoch.iter().len();
        observer.epoch_begins(self.epoch, n_batches);
        if let Some(on_device) = self.on_device.clone() {
            let sampler = self.preparer.sampler(self.config.sampler.clone())?;
            for (index, (number, seeds)) in epoch.iter().enumerate() {
                let made = on_device.minibatch(&self.device, &self.preparer, &sampler, seeds, number)?;
                sums.report.sample_seconds += made.sample_seconds;
                sums.report.gather_seconds += made.gather_seconds;
                self.step(&made.batch, index as u64, n_batches as u64, sums)?;
                observer.batch_done(index, &sums.report);
            }
            return Ok(());
        }
        let minibatch = self.minibatches(&self.config.sampler)?;
        // Workers also start the copies to the device, beside what it computes.
        let uploads = self.device.beside()?;
        let work = move |i: usize| {
            let (number, seeds) = epoch.batch(i);
            let host = minibatch(seeds, number)?;
            let (sample_seconds, gather_seconds) = (host.sample_seconds, host.gather_seconds);
            let batch = Batch::from_host(&uploads, host)?;
            Ok(Staged { batch, ready: uploads.record()?, sample_seconds, gather_seconds })
        };
        let workers = self.config.workers;
        let mut batches = match self.parallel {
            // A worker waits for those of other processing elements, so it needs a thread of its own.
            Some(_) => Pipeline::new(workers, queue_depth(workers), n_batches, work)?,
            None => prepared_ahead::<D, _>(workers, n_batches, work)?,
        };
        // Before the pipeline is left, whose worker may wait for the others: they must hear of a failure here.
        let mut leaving = AbortGuard { parallel: self.parallel.clone(), problem: None };
        let result = self.run_prepared(&mut batches, n_batches, observer, sums);
        match &result {
            Ok(()) => leaving.parallel = None,
            Err(error) => leaving.problem = Some(error.to_string()),
        }
        drop(leaving);
        result
    }

    fn run_prepared(
        &mut self,
        batches: &mut Pipeline<Staged<D>>,
        n_batches: usize,
        observer: &mut impl Observer<D>,
        sums: &mut Sums,
    ) -> Result<()> {
        for index in 0.. {
            let waiting = Instant::now();
            let Some(staged) = batches.next() else { break };
            let staged = staged?;
            sums.report.wait_seconds += waiting.elapsed().as_secs_f64();
            sums.report.sample_seconds += staged.sample_seconds;
            sums.report.gather_seconds += staged.gather_seconds;
            self.device.wait_for(&staged.ready)?;
            self.step(&staged.batch, index as u64, n_batches as u64, sums)?;
            observer.batch_done(index, &sums.report);
        }
        Ok(())
    }

    /// What makes this PE's part of the batch of given seeds and number.
    #[allow(clippy::type_complexity)]
    pub(super) fn minibatches(
        &self,
        sampler: &SamplerConfig,
    ) -> Result<Box<dyn Fn(&[u32], u64) -> Result<HostBatch<D::Scalar>> + Send + Sync>> {
        let preparer = self.preparer.clone();
        if let Some(parallel) = &self.parallel {
            let share = parallel.minibatches(&preparer, sampler)?;
            return Ok(Box::new(move |seeds, number| share.minibatch(seeds, number)));
        }
        let sampler = preparer.sampler(sampler.clone())?;
        Ok(Box::new(move |seeds, number| preparer.minibatch(&sampler, seeds, number)))
    }

    /// Class scores of a batch's seeds; with plans collective.
    pub(super) fn forward(&self, tape: &Tape<D>, batch: &Batch<D>) -> Result<Var> {
        let input = batch.input.on(tape);
        match &self.parallel {
            Some(parallel) if !batch.plans.is_empty() => {
                let between = |i: usize, x| exchange(tape, &parallel.peers, &batch.plans[i], x);
                self.model.forward_between(tape, &batch.blocks, input, between)
            }
            _ => self.model.forward(tape, &batch.blocks, input),
        }
    }

    /// Forward, backward and optimiser on one batch.
    fn step(&mut self, batch: &Batch<D>, index: u64, n_batches: u64, sums: &mut Sums) -> Result<()> {
        if self.parallel.is_some() {
            // Processing elements wait for each other.
            return self.compute_step(batch, index, n_batches, sums);
        }
        computing::<D, _>(|| self.compute_step(batch, index, n_batches, sums))
    }

    fn compute_step(&mut self, batch: &Batch<D>, index: u64, n_batches: u64, sums: &mut Sums) -> Result<()> {
        let start = Instant::now();
        let device = &self.device;
        let number = self.epoch * n_batches + index;
        let mut n_labelled = batch.labels.iter().filter(|&&l| l != IGNORED).count() as u64;
        if let Some(parallel) = &self.parallel {
            [n_labelled] = parallel.sum([n_labelled])?;
        }
        let mut tape =
            Tape::training(device, rng::derive(self.config.seed, Purpose::Dropout.stream(0), number));
        let together = self.parallel.as_ref().filter(|_| !batch.plans.is_empty());
        if let Some(parallel) = together {
            tape = tape.with_peers(Arc::new(parallel.peers.clone()));
        }
        let logits = self.forward(&tape, batch)?;
        let labels = device.upload(&batch.labels[..])?;
        let loss = tape.log_softmax_nll(logits, labels, 1.0 / n_labelled.max(1) as f64)?;
        let mut loss_value = tape.value(loss).item(device)?.widen_f64();
        let scores = tape.value(logits).to_vec(device)?;
        let predictions = argmax_rows(&scores, self.config.model.n_classes);
        let mut n_right = predictions.iter().zip(&batch.labels[..]).filter(|(p, l)| p == l).count() as u64;
        if let Some(parallel) = &self.parallel {
            loss_value = parallel.sum_loss(loss_value)?;
            [n_right] = parallel.sum([n_right])?;
        }
        if !loss_value.is_finite() {
            return Err(Error::Diverged { epoch: self.epoch, batch: index, loss: loss_value });
        }
        sums.add(n_labelled, n_right, loss_value);
        let mut statistics = tape.take_statistics();
        let mut gradients = tape.backward(loss)?;
        if let Some(parallel) = &self.parallel {
            gradients = sum_gradients(device, &parallel.peers, &gradients, self.model.parameters.len())?;
            if together.is_none() {
                statistics = average_statistics(device, &parallel.peers, statistics)?;
            }
        }
        self.optimizer.step(device, &mut self.model.parameters, &gradients)?;
        self.model.parameters.update_statistics(device, &statistics)?;
        device.synchronize()?;
        sums.count(batch);
        sums.report.compute_seconds += start.elapsed().as_secs_f64();
        Ok(())
    }
}

/// Takes a number that was left open from the data set; what was given must agree with it.
fn fill(value: &mut usize, from_data: usize, name: &'static str) -> Result<()> {
    if from_data == 0 {
        let what = if name == "n_classes" { "labels" } else { "vertices" };
        return Err(Error::invalid(name, 0, format!("at least 1: the data set has no {what}")));
    }
    if *value == 0 {
        *value = from_data;
    }
    if *value == from_data {
        return Ok(());
    }
    Err(Error::invalid(name, *value, format!("the data set's {from_data}")))
}
