//! Checkpoints: damaged, and made by somebody who knows how a checksum is calculated.

use std::path::Path;
use std::sync::Arc;

use cohop::Result;
use cohop::data::Dataset;
use cohop::device::Cpu;
use cohop::nn::ModelKind;
use cohop::train::{TrainConfig, Trainer, read_info};

use crate::data_set::{dense, refused, ring};
use crate::mutate::{mutate, put_number, put_word};
use crate::random::Random;
use crate::{End, File, Target};

pub const DAMAGED: Target = Target {
    name: "damaged-checkpoint",
    samples,
    change: |files, random| damage(&mut files[0].1, random),
    load: must_be_refused,
};

pub const FORGED: Target = Target {
    name: "forged-checkpoint",
    samples,
    change: |files, random| forge(&mut files[0].1, random),
    load: |folder, _, _| go_on(folder),
};

/// The file of a checkpoint's folder.
const FILE: &str = "checkpoint.safetensors";

fn data() -> Result<Arc<Dataset>> {
    Ok(Arc::new(ring(dense()?)?))
}

fn samples() -> Result<Vec<Vec<File>>> {
    let io = |error| cohop::Error::io("a temporary folder", error);
    [ModelKind::Sage, ModelKind::Gin, ModelKind::Gat]
        .into_iter()
        .map(|kind| {
            let mut config =
                TrainConfig { batch_size: Some(8), epochs: 2, workers: 0, ..TrainConfig::default() };
            (config.model.kind, config.model.hidden) = (kind, 8);
            let mut trainer = Trainer::new(Cpu::<f32>::new(), data()?, config)?;
            trainer.fit(&mut ())?;
            let folder = tempfile::tempdir().map_err(io)?;
            trainer.save(folder.path())?;
            Ok(vec![(FILE.to_owned(), std::fs::read(folder.path().join(FILE)).map_err(io)?)])
        })
        .collect()
}

fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.index(2) {
        mutate(bytes, random);
    }
}

fn resume(folder: &Path) -> Result<Trainer<Cpu<f32>>> {
    Trainer::resume(Cpu::new(), data()?, folder, |config| (config.epochs, config.workers) = (3, 0))
}

/// Whatever has changed, nobody reads it.
fn must_be_refused(folder: &Path, before: &[File], _: &mut Random) -> Result<End, String> {
    let bytes = std::fs::read(folder.join(FILE)).map_err(|error| error.to_string())?;
    let is_whole = bytes == before[0].1;
    let ends = [
        ("read_info", read_info(folder).err()),
        ("resume", resume(folder).err()),
        (
            "to_predict",
            data().and_then(|data| Trainer::to_predict(Cpu::<f32>::new(), data, folder, |_| {})).err(),
        ),
    ];
    for (what, end) in ends {
        match end {
            None if !is_whole => return Err(format!("{what} reads a damaged checkpoint")),
            Some(error) if is_whole => {
                return Err(format!("{what} refuses a checkpoint that is whole: {error}"));
            }
            Some(error) => {
                refused(&error)?;
            }
            None => {}
        }
    }
    Ok(if is_whole { End::Loaded } else { End::Refused })
}

/// Changes to the description or the numbers, with a checksum that goes with them.
fn forge(bytes: &mut Vec<u8>, random: &mut Random) {
    let begin = 8 + u64::from_le_bytes(*bytes.first_chunk().expect("a length is there")) as usize;
    let (mut header, mut values) = (bytes[8..begin].to_vec(), bytes[begin..].to_vec());
    for _ in 0..=random.index(3) {
        match random.index(8) {
            0..4 => put_number(&mut header, random),
            4 => put_word(&mut header, random),
            5 => mutate(&mut header, random),
            _ => mutate(&mut values, random),
        }
    }
    *bytes = [&(header.len() as u64).to_le_bytes()[..], &header, &values].concat();
    let entry = br#""checksum":""#;
    let place = bytes.windows(entry.len()).position(|window| window == entry).map(|at| at + entry.len());
    if let Some(digits) = place.and_then(|at| bytes.get_mut(at..at + 8)) {
        digits.fill(b'0');
    }
    let checksum = format!("{:08x}", crc32fast::hash(bytes));
    if let Some(digits) = place.and_then(|at| bytes.get_mut(at..at + 8)) {
        digits.copy_from_slice(checksum.as_bytes());
    }
}

/// Trains on, predicts and saves, unless an error says why not.
fn go_on(folder: &Path) -> Result<End, String> {
    let predict = || Trainer::to_predict(Cpu::<f32>::new(), data()?, folder, |_| {})?.predict(&[0, 39]);
    if let Err(error) = predict() {
        refused(&error)?;
    }
    let mut trainer = match resume(folder) {
        Ok(trainer) => trainer,
        Err(error) => return refused(&error),
    };
    let saved = folder.join("again");
    match trainer.run_epoch(&mut ()).and_then(|_| trainer.save(&saved)) {
        Ok(()) => read_info(&saved).map(|_| End::Loaded).map_err(|error| format!("what was saved: {error}")),
        Err(error) => refused(&error).map(|_| End::Loaded),
    }
}
