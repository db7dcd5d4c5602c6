//! What processing elements compare before they train together: different settings or data would make them call
//! different collectives, or train on a mixture.

use super::config::{ParallelConfig, TrainConfig};
use super::trainer::Trainer;
use crate::comm::{Communicator, Stage};
use crate::data::{Dataset, Dense, Features};
use crate::device::{Device, FeatureElement};
use crate::error::{Error, Result};
use crate::nn::Model;

/// What is compared.
const PARTS: [&str; 3] = ["data set", "settings", "number of epochs done"];

/// How many entries of each large array are compared.
const SAMPLE: usize = 4096;

/// FNV-1a over 64-bit words.
struct Digest(u64);

impl Digest {
    fn new() -> Self {
        Digest(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        self.0 ^= self.0 >> 29;
    }

    /// The length and evenly spaced entries, the first and the last among them.
    fn add_sample<T: Copy>(&mut self, array: &[T], word: impl Fn(T) -> u64) {
        self.add(array.len() as u64);
        let n = array.len().min(SAMPLE);
        for i in 0..n {
            let position = (array.len() - 1) as u128 * i as u128 / (n.max(2) - 1) as u128;
            self.add(word(array[position as usize]));
        }
    }

    fn add_rows<T: FeatureElement>(&mut self, rows: &Dense<T>) {
        self.add(size_of::<T>() as u64);
        self.add_sample(rows.data(), |x| x.widen_f64().to_bits());
    }
}

/// `workers` is left out: results do not depend on it.
fn of_settings(config: &TrainConfig, parallel: ParallelConfig) -> Result<u64> {
    let settings = (TrainConfig { workers: 0, ..config.clone() }, parallel);
    let text = serde_json::to_string(&settings).map_err(|e| Error::invalid("configuration", e, "JSON"))?;
    let mut digest = Digest::new();
    text.bytes().for_each(|byte| digest.add(u64::from(byte)));
    Ok(digest.0)
}

fn of_data(dataset: &Dataset) -> u64 {
    let mut digest = Digest::new();
    let graph = &dataset.graph;
    digest.add_sample(graph.indptr(), |x| x);
    digest.add_sample(graph.indices(), u64::from);
    digest.add_sample(graph.edge_type().unwrap_or_default(), u64::from);
    digest.add_sample(graph.edge_weight().unwrap_or_default(), |x| u64::from(x.to_bits()));
    digest.add(dataset.features.dim() as u64);
    match &dataset.features {
        Features::None => {}
        Features::F32(rows) => digest.add_rows(rows),
        Features::F16(rows) => digest.add_rows(rows),
        Features::Bf16(rows) => digest.add_rows(rows),
        Features::Sparse(rows) => {
            digest.add_sample(rows.indptr(), |x| x);
            digest.add_sample(rows.indices(), u64::from);
            digest.add_sample(rows.values(), |x| u64::from(x.to_bits()));
        }
    }
    digest.add(dataset.n_classes as u64);
    digest.add_sample(&dataset.labels, |x| x as u64);
    for vertices in [&dataset.train_idx, &dataset.val_idx, &dataset.test_idx] {
        digest.add(vertices.len() as u64);
        vertices.iter().for_each(|&v| digest.add(u64::from(v)));
    }
    digest.0
}

impl<D: Device, M: Model<D>> Trainer<D, M> {
    /// `Ok` if all processing elements have the same settings and data; else an error on all of them. Collective.
    pub(super) fn compare(&self, parallel: ParallelConfig, communicator: &Communicator) -> Result<()> {
        // Settings are completed by the data set, so it comes first.
        let own = [of_data(self.dataset()), of_settings(&self.config, parallel)?, self.epoch];
        let mut first = own;
        communicator.broadcast(Stage::Other, 0, &mut first)?;
        // One more than the rank of an element that differs; 0: none does.
        let rank = communicator.rank();
        let mut differs = [0.0; PARTS.len()];
        for ((flag, own), first) in differs.iter_mut().zip(own).zip(first) {
            *flag = if own == first { 0.0 } else { (rank + 1) as f64 };
        }
        communicator.all_reduce_max(Stage::Other, &mut differs)?;
        communicator.reset_statistics();
        match differs.iter().zip(PARTS).find(|(flag, _)| **flag > 0.0) {
            None => Ok(()),
            Some((flag, part)) => Err(Error::Communication {
                rank: *flag as usize - 1,
                problem: format!("{part} other than on processing element 0"),
            }),
        }
    }
}
