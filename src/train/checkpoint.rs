//! Checkpoints: one safetensors file with parameters, optimiser state, the best epoch's parameters and, in its
//! metadata, the configuration and counters as JSON.
//!
//! All randomness is a function of the seed and of counters, so a resumed run gives the same bits.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::TrainConfig;
use super::evaluate::Evaluation;
use super::trainer::{Best, Stall, Trainer};
use crate::data::Dataset;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::nn::Model;
use crate::nn::tensor_file::{self, TensorFile};
use crate::tensor::Tensor;

/// Name of the file in a checkpoint folder.
pub const FILE: &str = "checkpoint.safetensors";

/// The key of the JSON in the file's metadata.
const METADATA_KEY: &str = "cohop";

/// The contents of a checkpoint besides its tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckpointInfo {
    /// Version of the format.
    pub version: u32,
    /// Name of the data set trained on.
    pub dataset: String,
    /// The run's configuration, completed by the data set.
    pub config: TrainConfig,
    /// Number of epochs done.
    pub epoch: u64,
    /// Number of optimiser steps taken.
    pub step: u64,
    /// The epoch with the best validation accuracy.
    pub best: Option<BestInfo>,
    /// For how long validation has not improved.
    #[serde(default)]
    stall: Stall,
}

/// The best epoch of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BestInfo {
    /// From 0.
    pub epoch: u64,
    /// Validation accuracy.
    pub val_acc: f64,
    /// Validation loss.
    pub val_loss: f64,
    /// Validation area under the ROC curve, if there are two classes.
    #[serde(default)]
    pub val_auc: Option<f64>,
}

const VERSION: u32 = 1;

fn path_of(folder: &Path) -> PathBuf {
    folder.join(FILE)
}

/// Reads a checkpoint's description of its run, without its tensors.
///
/// Errors: the file in `folder` cannot be read, is no checkpoint, or has another version.
pub fn read_info(folder: &Path) -> Result<CheckpointInfo> {
    let path = path_of(folder);
    info_of(&path, &TensorFile::read(&path)?)
}

fn info_of(path: &Path, file: &TensorFile) -> Result<CheckpointInfo> {
    let json = file.text(METADATA_KEY)?;
    let info: CheckpointInfo = serde_json::from_str(&json).map_err(|e| Error::format(path, e))?;
    if info.version != VERSION {
        return Err(Error::format(path, format!("has version {}, expected {VERSION}", info.version)));
    }
    Ok(info)
}

impl<D: Device, M: Model<D>> Trainer<D, M> {
    /// Writes the whole state of the run to `folder`, which is created if it is missing. The file is replaced in one
    /// step: after a crash the old one is still there.
    ///
    /// Errors: the file cannot be written, or the device fails.
    pub fn save(&self, folder: &Path) -> Result<()> {
        let io = |e| Error::io(folder, e);
        std::fs::create_dir_all(folder).map_err(io)?;
        let info = CheckpointInfo {
            version: VERSION,
            dataset: self.dataset().name.clone(),
            config: self.config().clone(),
            epoch: self.epoch,
            step: self.optimizer.n_steps(),
            best: self.best.as_ref().map(|b| BestInfo {
                epoch: b.epoch,
                val_acc: b.val.accuracy,
                val_loss: b.val.loss,
                val_auc: (!b.val.auc.is_nan()).then_some(b.val.auc),
            }),
            stall: self.stall,
        };
        let json = serde_json::to_string(&info).map_err(|e| Error::format(folder, e))?;
        let texts = HashMap::from([(METADATA_KEY.to_owned(), json)]);
        tensor_file::write(self.device(), &path_of(folder), self.named_tensors(), texts)
    }

    /// Restores the state of the run that [`save`](Trainer::save) wrote to `folder`; the model must have the same
    /// parameters.
    ///
    /// Errors: the file cannot be read or is no checkpoint, or its parameters have other names or shapes.
    pub fn load(&mut self, folder: &Path) -> Result<()> {
        let path = path_of(folder);
        let file = TensorFile::read(&path)?;
        let info = info_of(&path, &file)?;
        let tensors = file.tensors()?;
        let device = self.device.clone();
        let read = |name: String, shape: [usize; 2]| tensors.get(&device, &name, shape);
        // Read everything before changing anything.
        let (mut values, mut state, mut best) = (Vec::new(), Vec::new(), Vec::new());
        for ((_, parameter), moments) in self.model.parameters().iter().zip(self.optimizer.state()) {
            let (name, shape) = (&parameter.name, parameter.value.shape());
            values.push(read(format!("parameter.{name}"), shape)?);
            let moments = (0..moments.len()).map(|k| read(format!("optimizer.{k}.{name}"), shape));
            state.push(moments.collect::<Result<Vec<_>>>()?);
            if info.best.is_some() {
                best.push(read(format!("best.{name}"), shape)?);
            }
        }
        self.optimizer.load_state(info.step, state)?;
        let parameters = self.model.parameters_mut();
        let ids: Vec<_> = parameters.iter().map(|(id, _)| id).collect();
        for (id, value) in ids.into_iter().zip(values) {
            parameters.set(id, value)?;
        }
        self.epoch = info.epoch;
        self.stall = info.stall;
        self.best = info.best.map(|b| Best {
            epoch: b.epoch,
            val: Evaluation { loss: b.val_loss, accuracy: b.val_acc, auc: b.val_auc.unwrap_or(f64::NAN) },
            values: best,
        });
        Ok(())
    }

    fn named_tensors(&self) -> Vec<(String, &Tensor<D>)> {
        let mut named = Vec::new();
        for (id, p) in self.model.parameters().iter() {
            named.push((format!("parameter.{}", p.name), &p.value));
            for (k, moment) in self.optimizer.state()[id.index()].iter().enumerate() {
                named.push((format!("optimizer.{k}.{}", p.name), moment));
            }
            if let Some(best) = &self.best {
                named.push((format!("best.{}", p.name), &best.values[id.index()]));
            }
        }
        named
    }
}

impl<D: Device> Trainer<D> {
    /// The run of a built-in model that [`save`](Trainer::save) wrote to `folder`, on the same data set. `adjust` may
    /// change settings that past epochs did not depend on, such as the number of epochs or workers.
    ///
    /// Errors: those of [`load`](Trainer::load) and [`new`](Trainer::new).
    pub fn resume(
        device: D,
        dataset: Arc<Dataset>,
        folder: &Path,
        adjust: impl FnOnce(&mut TrainConfig),
    ) -> Result<Self> {
        let mut config = read_info(folder)?.config;
        adjust(&mut config);
        let mut trainer = Trainer::new(device, dataset, config)?;
        trainer.load(folder)?;
        Ok(trainer)
    }
}
