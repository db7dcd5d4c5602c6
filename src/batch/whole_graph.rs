//! One batch of all vertices and edges.

use std::sync::Arc;

use super::{Batch, BatchInput, BatchSource, Preparation, Slicer};
use crate::block::Block;
use crate::cache::Counts;
use crate::device::{Device, IGNORED};
use crate::error::{Error, Result, try_collect};
use crate::sample::SamplerConfig;

/// All layers over one block that holds the whole graph, on the device; only the labels change with the seeds.
#[derive(Clone, Debug)]
pub struct WholeGraph<D: Device> {
    slicer: Slicer<D::Scalar>,
    n_layers: usize,
    block: Arc<Block<D>>,
    input: BatchInput<D>,
    loaded: Counts,
}

impl<D: Device> WholeGraph<D> {
    /// The slicer's data set, copied to `device`, for `n_layers` layers.
    ///
    /// Errors: the graph has more than `u32::MAX` edges, or the device fails or is out of memory.
    pub fn new(device: &D, slicer: Slicer<D::Scalar>, n_layers: usize) -> Result<Self> {
        let all = all_vertices(slicer.dataset().n_vertices())?;
        let block = slicer.full_block(&all)?;
        let loaded = Counts { hits: 0, misses: all.len() as u64 };
        let input = slicer.input(&block)?.to_device(device)?.widened(device)?;
        let block = Arc::new(Block::from_host(device, block)?);
        if let Some(needs) = slicer.needs().relations {
            block.group_relations(device, needs)?;
        }
        Ok(WholeGraph { slicer, n_layers, block, input, loaded })
    }
}

fn all_vertices(n: usize) -> Result<Vec<u32>> {
    try_collect("the list of all vertices", 0..n as u32, format_args!("there are {n} vertices"))
}

impl<D: Device> BatchSource<D> for WholeGraph<D> {
    fn batch(&self, _: &D, seeds: &[u32], _: u64) -> Result<Batch<D>> {
        let n = self.block.n_dst();
        if let Some(position) = seeds.iter().position(|&seed| seed as usize >= n) {
            return Err(Error::IndexOutOfRange {
                array: "seeds",
                position: position as u64,
                value: seeds[position].into(),
                limit: n as u64,
            });
        }
        let all = all_vertices(n)?;
        let mut labels = self.slicer.labels(&all)?;
        labels.fill(IGNORED);
        for &seed in seeds {
            labels[seed as usize] = self.slicer.dataset().labels[seed as usize];
        }
        Ok(Batch {
            blocks: vec![self.block.clone(); self.n_layers],
            input: self.input.clone(),
            seeds: all,
            seed_row: Some(seeds.to_vec()),
            labels,
            exchange: None,
            loaded: self.loaded,
            sample_seconds: 0.0,
            gather_seconds: 0.0,
        })
    }

    fn with_sampler(&self, _: SamplerConfig) -> Result<Arc<dyn BatchSource<D>>> {
        Ok(Arc::new(self.clone()))
    }

    fn preparation(&self) -> Preparation {
        Preparation::OnDemand
    }
}
