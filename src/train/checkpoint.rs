//! Checkpoints: one safetensors file with parameters, optimiser state, the best epoch's parameters and, in its
//! metadata, the configuration and counters as JSON.
//!
//! All randomness is a function of the seed and of counters, so a resumed run gives the same bits.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::TrainConfig;
use super::best::{Best, Stall};
use super::evaluate::Evaluation;
use super::fingerprint::Fingerprint;
use super::trainer::Trainer;
use crate::coop::{FirstLayer, Mode};
use crate::data::Dataset;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::graph::PartitionMethod;
use crate::nn::tensor_file::{self, TensorFile};
use crate::nn::{Model, Parameter};
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
    /// What tells that data set from others, with the split and the type of features that were chosen.
    pub data: Fingerprint,
    /// The processing elements that trained together; `None` for one alone.
    pub parallel: Option<ParallelInfo>,
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
    /// The trainer's [`notes`](Trainer::notes).
    pub notes: BTreeMap<String, String>,
}

/// The processing elements of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParallelInfo {
    /// How they shared a batch.
    pub mode: Mode,
    /// How vertices were assigned to owners in cooperative mode.
    pub partition: PartitionMethod,
    /// How they shared the first layer.
    #[serde(default)]
    pub first_layer: FirstLayer,
    /// Their number.
    pub pes: usize,
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

const VERSION: u32 = 2;

/// No run does more epochs or steps. What is counted on from here does not overflow.
const MAX_COUNT: u64 = 1 << 53;

fn path_of(folder: &Path) -> PathBuf {
    folder.join(FILE)
}

/// Reads a checkpoint's description of its run, without its tensors.
///
/// Errors: the file in `folder` cannot be read, is no checkpoint, is damaged, or has another version.
pub fn read_info(folder: &Path) -> Result<CheckpointInfo> {
    Ok(Opened::read(folder)?.info)
}

/// A checkpoint that was read.
pub(super) struct Opened {
    pub info: CheckpointInfo,
    file: TensorFile,
}

impl Opened {
    /// Errors: the file cannot be read, is no checkpoint or is damaged.
    pub fn read(folder: &Path) -> Result<Self> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let path = path_of(folder);
        let file = TensorFile::read(&path)?;
        let json = file.text(METADATA_KEY)?;
        let wrong = |e| Error::format(&path, e);
        // Others have other fields.
        let Version { version } = serde_json::from_str(&json).map_err(wrong)?;
        if version != VERSION {
            return Err(Error::format(&path, format!("has version {version}, expected {VERSION}")));
        }
        file.has_checksum()?;
        let info: CheckpointInfo = serde_json::from_str(&json).map_err(wrong)?;
        let best = info.best.map_or(0, |best| best.epoch);
        let counts = [("epoch", info.epoch), ("step", info.step), ("best epoch", best)];
        for (what, count) in counts.into_iter().chain([("stall", info.stall.longest())]) {
            if count > MAX_COUNT {
                let problem = format!("has {what} {count}: expected at most {MAX_COUNT}");
                return Err(Error::format(&path, problem));
            }
        }
        Ok(Opened { info, file })
    }

    /// The parameters of the best epoch, or of the last where there is no best one, for a model with such parameters.
    ///
    /// Errors: their names or shapes are not the model's, or the device is out of memory.
    pub fn best_parameters<D: Device>(&self, device: &D, model: &dyn Model<D>) -> Result<Vec<Tensor<D>>> {
        let tensors = self.file.tensors()?;
        let kind = if self.info.best.is_some() { "best" } else { "parameter" };
        let of = |p: &Parameter<D>| tensors.get(device, &format!("{kind}.{}", p.name), p.value.shape());
        model.parameters().iter().map(|(_, p)| of(p)).collect()
    }
}

/// The JSON of a checkpoint, which JSON without NaN and infinities can hold.
fn json_of(folder: &Path, info: &CheckpointInfo) -> Result<String> {
    let json = serde_json::to_string(info).map_err(|e| Error::format(folder, e))?;
    // NaN and infinities become `null`: an error to read, or nothing instead of something.
    if serde_json::from_str::<CheckpointInfo>(&json).ok().as_ref() != Some(info) {
        let problem = "not written: a number of the run's settings or measures is not finite";
        return Err(Error::format(path_of(folder), problem));
    }
    Ok(json)
}

impl<D: Device, M: Model<D>> Trainer<D, M> {
    /// Writes the whole state of the run to `folder`, which is created if it is missing. The file is replaced in one
    /// step: after a crash the old one is still there. After `Ok` the new one is on the disk. Of two runs that save to
    /// the same folder the last one wins: see [`CheckpointLock`](super::CheckpointLock).
    ///
    /// Errors: a number of the run is not finite, the file cannot be written, or the device fails.
    pub fn save(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder).map_err(|e| Error::no_folder(folder, e))?;
        let info = CheckpointInfo {
            version: VERSION,
            dataset: self.dataset().name.clone(),
            data: self.fingerprint.clone(),
            parallel: self.parallel,
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
            notes: self.notes.clone(),
        };
        let json = json_of(folder, &info)?;
        let texts = HashMap::from([(METADATA_KEY.to_owned(), json)]);
        tensor_file::write(self.device(), &path_of(folder), self.named_tensors(), texts)
    }

    /// Restores the state of the run that [`save`](Trainer::save) wrote to `folder`; the model must have the same
    /// parameters, and the data set must be the same.
    ///
    /// Errors: the file cannot be read, is no checkpoint or is damaged, its parameters have other names or shapes, or
    /// the run was on another data set or split.
    pub fn load(&mut self, folder: &Path) -> Result<()> {
        let opened = Opened::read(folder)?;
        opened.info.data.check_print(&self.fingerprint, &self.dataset().name, true)?;
        self.restore(opened)
    }

    /// Restores a state, on whatever data set.
    fn restore(&mut self, Opened { info, file }: Opened) -> Result<()> {
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
        self.notes = info.notes;
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
    /// The run of a built-in model that [`save`](Trainer::save) wrote to `folder`, on the same data set with the same
    /// split and type of features ([`CheckpointInfo::data`] has both). `adjust` may change settings that past epochs
    /// did not depend on, such as the number of epochs or workers. A run of several processing elements has yet to
    /// [`join`](Trainer::join) them; [`CheckpointInfo::parallel`] says how it did.
    ///
    /// Errors: those of [`load`](Trainer::load) and [`new`](Trainer::new).
    pub fn resume(
        device: D,
        dataset: Arc<Dataset>,
        folder: &Path,
        adjust: impl FnOnce(&mut TrainConfig),
    ) -> Result<Self> {
        let opened = Opened::read(folder)?;
        opened.info.data.check(&dataset, true)?;
        Trainer::resume_opened(device, dataset, opened, adjust)
    }

    /// [`resume`](Trainer::resume) on a data set that may be another one, for which the model has the right shape.
    ///
    /// Errors: those of [`resume`](Trainer::resume), but for other data.
    pub fn resume_on_other_data(
        device: D,
        dataset: Arc<Dataset>,
        folder: &Path,
        adjust: impl FnOnce(&mut TrainConfig),
    ) -> Result<Self> {
        Trainer::resume_opened(device, dataset, Opened::read(folder)?, adjust)
    }

    fn resume_opened(
        device: D,
        dataset: Arc<Dataset>,
        opened: Opened,
        adjust: impl FnOnce(&mut TrainConfig),
    ) -> Result<Self> {
        let mut config = opened.info.config.clone();
        adjust(&mut config);
        let mut trainer = Trainer::new(device, dataset, config)?;
        trainer.restore(opened)?;
        Ok(trainer)
    }
}

#[cfg(test)]
mod tests;
