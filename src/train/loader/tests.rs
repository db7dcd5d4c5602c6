//! Batches are the same whoever prepares them.

use std::sync::Mutex;

use super::*;
use crate::batch::{BatchInput, BatchNeeds, HostSampling, Slicer};
use crate::cache::{AnyFeatureCache, Counts, Policy};
use crate::data::{Dataset, SbmData};
use crate::device::Cpu;
use crate::graph::Sbm;
use crate::rng::Kappa;
use crate::sample::{Batches, Fanouts, SamplerConfig};

/// 6000 vertices, 600 of them to train on.
fn dataset() -> Arc<Dataset> {
    let graph = Sbm { n_vertices: 6000, ..SbmData::default().graph };
    Arc::new(SbmData { graph, dim: 4, ..SbmData::default() }.generate().unwrap())
}

fn config() -> SamplerConfig {
    let (fanouts, kappa) = (Fanouts(vec![5, 5]), Kappa::steps(8).unwrap());
    SamplerConfig { fanouts, kappa, seed: 4, ..SamplerConfig::default() }
}

/// The batches of two epochs.
fn batches(dataset: &Dataset) -> Vec<(u64, Vec<u32>)> {
    let batches = Batches::new(dataset.train_idx.clone(), 64, 4).unwrap();
    let of_epoch = |epoch| {
        let epoch = batches.epoch(epoch);
        epoch.iter().map(|(number, seeds)| (number, seeds.to_vec())).collect::<Vec<_>>()
    };
    (0..2).flat_map(of_epoch).collect()
}

fn rows(input: &BatchInput<Cpu<f32>>) -> Vec<f32> {
    match input {
        BatchInput::Dense(x) => x.view().to_vec(),
        other => panic!("{other:?}"),
    }
}

/// With caches of one and of several shards: the same hits, misses and rows for 0, 1, 2 and 4 workers on 1, 2 and 4
/// threads, and those of a cache that is asked for one batch after the other.
#[test]
fn a_caches_hits_do_not_depend_on_workers_and_threads() {
    let dataset = dataset();
    let slicer = Slicer::new(Cpu::<f32>::new(), dataset.clone(), BatchNeeds::default());
    for (policy, capacity) in [(Policy::Lru, 500), (Policy::Lru, 2500), (Policy::S3Fifo, 2500)] {
        let plain = HostSampling::new(slicer.clone(), config()).unwrap();
        let mut cache = AnyFeatureCache::new(policy, capacity, &dataset.features).unwrap();
        assert_eq!(cache.directory().n_shards() > 1, capacity > 2000);
        let expect = |(number, seeds): &(u64, Vec<u32>)| {
            let batch: Batch<Cpu<f32>> = plain.batch(&Cpu::new(), seeds, *number).unwrap();
            let (_, counts) = cache.gather(&Cpu::<f32>::new(), batch.blocks[0].src()).unwrap();
            (rows(&batch.input), counts)
        };
        let expected: Vec<(Vec<f32>, Counts)> = batches(&dataset).iter().map(expect).collect();
        assert!(expected.iter().all(|(_, counts)| counts.misses > 0) && expected[15].1.hits > 0);
        for n_threads in [1, 2, 4] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
            for workers in [0, 1, 2, 4] {
                let slicer = slicer.clone().with_cache(policy, capacity).unwrap();
                let source = Arc::new(HostSampling::new(slicer, config()).unwrap());
                let found: Vec<(Vec<f32>, Counts)> = pool.install(|| {
                    let loader = Loader::new(&Cpu::new(), source, workers, batches(&dataset)).unwrap();
                    loader.map(Result::unwrap).map(|batch| (rows(&batch.input), batch.loaded)).collect()
                });
                assert!(
                    found == expected,
                    "{policy}, {capacity} rows, {n_threads} threads, {workers} workers"
                );
            }
        }
    }
}

/// A source that begins nothing, and must be asked in order.
#[derive(Debug)]
struct InTurn {
    source: HostSampling<f32>,
    numbers: Mutex<Vec<u64>>,
}

impl BatchSource<Cpu<f32>> for InTurn {
    fn batch(&self, device: &Cpu<f32>, seeds: &[u32], number: u64) -> Result<Batch<Cpu<f32>>> {
        self.numbers.try_lock().expect("one at a time").push(number);
        self.source.batch(device, seeds, number)
    }

    fn with_sampler(&self, sampler: SamplerConfig) -> Result<Arc<dyn BatchSource<Cpu<f32>>>> {
        self.source.with_sampler(sampler)
    }

    fn preparation(&self) -> Preparation {
        Preparation::InOrder
    }
}

#[test]
fn a_source_that_depends_on_the_order_is_asked_in_it() {
    let dataset = dataset();
    let slicer = Slicer::new(Cpu::<f32>::new(), dataset.clone(), BatchNeeds::default());
    for workers in [0, 1, 4] {
        let source = HostSampling::new(slicer.clone(), config()).unwrap();
        let source = Arc::new(InTurn { source, numbers: Mutex::default() });
        let loader = Loader::new(&Cpu::new(), source.clone(), workers, batches(&dataset)).unwrap();
        let n = loader.map(Result::unwrap).count() as u64;
        assert!(n > 10 && source.numbers.lock().unwrap().iter().copied().eq(0..n));
    }
}
