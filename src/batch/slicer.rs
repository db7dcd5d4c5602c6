//! Slicing: features and labels of given vertices, in host memory.

use std::sync::{Arc, Mutex, PoisonError};

use super::column_slices::ColumnSlices;
use super::{BatchInput, NarrowRows, OneHot};
use crate::block::{Block, RelationNeeds};
use crate::cache::{AnyFeatureCache, Counts, Policy};
use crate::coop::{Group, InputTerms};
use crate::data::{Dataset, Features, SparseFeatures};
use crate::device::cpu::{RowCopy, copy_rows};
use crate::device::{
    Cpu, CpuBuffer, Device, FeatureElement, Gather, IndexedRows, Method, Sample, SampleSpec, Scalar, Storage,
    aggregate_gathered,
};
use crate::error::{Error, Result, check_ids, check_length};
use crate::pattern::Pattern;
use crate::rng::{Dependence, Kappa, Variates};
use crate::sample::{Sampler, SamplerConfig};
use crate::tape::{Aggregate, SparseRows};
use crate::tensor::Tensor;

/// What a model needs from its batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchNeeds {
    /// Blocks know their sources' in-degrees (with edge weights: the sums of these), for
    /// [`Block::symmetric_weights`].
    pub degrees: bool,
    /// Blocks know their edges' ids in the graph.
    pub edge_ids: bool,
    /// Blocks have their edges' weights in the graph, by which sums and means over them are then weighted.
    pub edge_weights: bool,
    /// The first thing that the first layer does with dense features, if that does not depend on parameters. A source
    /// may then aggregate rows while it gathers them ([`BatchInput::Aggregated`]), but need not: so the sources' rows,
    /// the largest matrix of a batch, are never written.
    pub input_aggregate: Option<Aggregate>,
    /// The linear aggregates of dense features with which the first layer begins, each followed by a product with a
    /// weight: so that processing elements may share it by columns ([`BatchInput::Sliced`]).
    pub input_terms: Option<InputTerms>,
    /// Blocks come with their edges grouped by relation. A source of your own need not do that: what is missing is made
    /// at first use, for which a step on a device waits.
    pub relations: Option<RelationNeeds>,
}

/// Slices features and labels of one data set. Cheap to clone and to share between workers.
#[derive(Clone, Debug)]
pub struct Slicer<S: Scalar> {
    cpu: Cpu<S>,
    dataset: Arc<Dataset>,
    needs: BatchNeeds,
    cache: Option<Arc<Mutex<AnyFeatureCache>>>,
    narrow_rows: bool,
    slices: Option<Arc<ColumnSlices<S>>>,
}

impl<S: Scalar> Slicer<S> {
    /// A slicer of `dataset`. Allocates rows from `cpu` (for a GPU, its [`host`](Storage::host)).
    pub fn new(cpu: Cpu<S>, dataset: Arc<Dataset>, needs: BatchNeeds) -> Self {
        Slicer { cpu, dataset, needs, cache: None, narrow_rows: false, slices: None }
    }

    /// The slicer with a cache of `n_rows` feature rows. Its contents, and so the counts of hits, depend on the order
    /// in which batches are sliced: one after the other.
    ///
    /// Errors: the features are sparse, or there are none; and those of [`AnyFeatureCache::new`].
    pub fn with_cache(mut self, policy: Policy, n_rows: usize) -> Result<Self> {
        let cache = AnyFeatureCache::new(policy, n_rows, &self.dataset.features)?;
        self.cache = Some(Arc::new(Mutex::new(cache)));
        Ok(self)
    }

    /// Whether rows that are stored in 16 bits, and that nothing is done with before a model begins, stay so
    /// ([`BatchInput::Narrow`]): for rows that are to be copied to a device. Not unless this is called.
    pub fn with_narrow_rows(mut self, narrow_rows: bool) -> Self {
        self.narrow_rows = narrow_rows;
        self
    }

    /// The slicer with this processing element's columns of the features alone, which makes the first layer's
    /// aggregates together with the others' (P³): [`input`](Slicer::input) is then collective, and gives
    /// [`BatchInput::Sliced`].
    ///
    /// Errors: there is a cache; the model's first layer does not begin with a linear aggregate of the features, or
    /// they are sparse or there are none; the slice does not fit in memory; a mapped value is not finite; and `group`
    /// is one processing element alone.
    pub fn with_column_slices<D: Device<Scalar = S>>(mut self, group: &Group<D>) -> Result<Self> {
        if self.cache.is_some() {
            let expected = "none with the first layer p3, which has its columns of all rows in memory";
            return Err(Error::invalid("cache", "given", expected));
        }
        let Some(terms) = self.needs.input_terms else {
            let expected = "whole for this model: p3 needs a first layer that begins with a linear aggregate of the \
                            features (sage, gcn, gin, rgcn), without input_dropout and input embedding; attention \
                            (gat, gatv2, rgat), a maximum and sage-ri are none";
            return Err(Error::invalid("first layer", "p3", expected));
        };
        let slices = ColumnSlices::new(&self.cpu, &self.dataset.features, terms, group)?;
        self.slices = Some(Arc::new(slices));
        Ok(self)
    }

    /// Whether there are columns of the features instead of whole rows.
    pub(super) fn has_column_slices(&self) -> bool {
        self.slices.is_some()
    }

    /// The allocator of the rows' memory.
    pub fn cpu(&self) -> &Cpu<S> {
        &self.cpu
    }

    /// The data set.
    pub fn dataset(&self) -> &Arc<Dataset> {
        &self.dataset
    }

    /// What the model needs from its batches.
    pub fn needs(&self) -> BatchNeeds {
        self.needs
    }

    /// Whether there is a cache.
    pub fn has_cache(&self) -> bool {
        self.cache.is_some()
    }

    /// The configuration, completed by what the model needs.
    pub(super) fn completed(&self, config: SamplerConfig) -> SamplerConfig {
        let BatchNeeds { edge_ids, edge_weights, .. } = self.needs;
        SamplerConfig {
            edge_ids: config.edge_ids || edge_ids,
            edge_weights: config.edge_weights || edge_weights,
            ..config
        }
    }

    /// A sampler whose blocks have what the model needs.
    ///
    /// Errors: `config` has no layers.
    pub fn sampler(&self, config: SamplerConfig) -> Result<Sampler> {
        let sampler = Sampler::new(self.completed(config))?;
        Ok(if self.needs.degrees { sampler.with_degrees() } else { sampler })
    }

    /// The block of all in-edges of `dst` (unique ids).
    ///
    /// Errors: an id is out of range or repeated, or the block has more edges than `u32` can count.
    pub fn full_block(&self, dst: &[u32]) -> Result<Block<Cpu<S>>> {
        let graph = self.cpu.load_graph(&self.dataset.graph)?;
        let BatchNeeds { edge_ids, edge_weights, .. } = self.needs;
        let (method, fanout) = (Method::Full, usize::MAX);
        let spec = SampleSpec { method, fanout, per_relation: false, edge_ids, edge_weights };
        let variates = Variates::new(0, 0, Kappa::INDEPENDENT, Dependence::default());
        let block = Block::from_valid(self.cpu.sample_block(&graph, dst, &spec, &variates, 0)?)?;
        if !self.needs.degrees {
            return Ok(block);
        }
        block.with_degrees_in(&self.cpu, &graph)
    }

    /// `[vertices.len()]`: classes.
    ///
    /// Errors: a vertex is out of range.
    pub fn labels(&self, vertices: &[u32]) -> Result<CpuBuffer<i32>> {
        self.check_vertices(vertices)?;
        let mut labels = self.cpu.allocate::<i32>(vertices.len())?;
        for (label, &v) in labels.iter_mut().zip(vertices) {
            *label = self.dataset.labels[v as usize];
        }
        Ok(labels)
    }

    /// The input of a model whose first block is `block`: the sources' rows, or their aggregate if the model needs only
    /// that.
    ///
    /// Errors: those of [`rows`](Slicer::rows).
    pub fn input(&self, block: &Block<Cpu<S>>) -> Result<BatchInput<Cpu<S>>> {
        if let Some(slices) = &self.slices {
            return slices.input(block);
        }
        let Some(aggregate) = self.needs.input_aggregate else {
            return self.rows_as(block.src(), self.narrow_rows);
        };
        match &self.dataset.features {
            Features::F32(x) => self.aggregated(x.data(), block, aggregate),
            Features::F16(x) => self.aggregated(x.data(), block, aggregate),
            Features::Bf16(x) => self.aggregated(x.data(), block, aggregate),
            Features::Sparse(_) | Features::None => self.rows(block.src()),
        }
    }

    /// [`input`](Slicer::input), or with a cache the sources' [`cached_rows`](Slicer::cached_rows), and how many rows
    /// were loaded.
    pub(super) fn cached_input(&self, block: &Block<Cpu<S>>) -> Result<(BatchInput<Cpu<S>>, Counts)> {
        if self.cache.is_some() {
            let narrow = self.narrow_rows && self.needs.input_aggregate.is_none();
            let (rows, counts) = self.cached_rows_as(block.src(), narrow)?;
            return Ok((self.input_of(rows, block)?, counts));
        }
        Ok((self.input(block)?, Counts { hits: 0, misses: block.n_src() as u64 }))
    }

    /// [`input`](Slicer::input), of the sources' `rows`: to the bit the same, so that it does not show in the results
    /// of training where rows came from.
    pub(super) fn input_of(
        &self,
        rows: BatchInput<Cpu<S>>,
        block: &Block<Cpu<S>>,
    ) -> Result<BatchInput<Cpu<S>>> {
        let aggregate = self.needs.input_aggregate;
        let rows = if self.narrow_rows && aggregate.is_none() { rows } else { rows.widened(&self.cpu)? };
        let (BatchInput::Dense(x), Some(aggregate)) = (&rows, aggregate) else { return Ok(rows) };
        let weights = aggregate.weights(&self.cpu, block)?;
        let own = aggregate.own_factors(&self.cpu, block)?;
        let cols = if own.is_some() { x.cols() } else { 2 * x.cols() };
        let mut out = Tensor::allocate(&self.cpu, block.n_dst(), cols)?;
        aggregate_gathered(&self.cpu, x.matrix(), block.csr(), weights, own, out.make_mut(&self.cpu)?)?;
        Ok(BatchInput::Aggregated(out, aggregate))
    }

    fn aggregated<E: FeatureElement>(
        &self,
        table: &[E],
        block: &Block<Cpu<S>>,
        aggregate: Aggregate,
    ) -> Result<BatchInput<Cpu<S>>> {
        let features = &self.dataset.features;
        let rows = IndexedRows { table, n_table: features.n_rows(), index: block.src() };
        let weights = aggregate.weights(&self.cpu, block)?;
        let own = aggregate.own_factors(&self.cpu, block)?;
        let cols = if own.is_some() { features.dim() } else { 2 * features.dim() };
        let mut out = Tensor::allocate(&self.cpu, block.n_dst(), cols)?;
        self.cpu.gather_aggregate(rows, block.csr(), weights, own, out.make_mut(&self.cpu)?)?;
        // Sums of finite numbers may overflow: that is no fault of a row.
        self.check_sliced(&out, block.src())?;
        Ok(BatchInput::Aggregated(out, aggregate))
    }

    /// [`rows`](Slicer::rows), from the cache if there is one; and the counts of hits and misses.
    ///
    /// Errors: those of [`rows`](Slicer::rows).
    pub fn cached_rows(&self, vertices: &[u32]) -> Result<(BatchInput<Cpu<S>>, Counts)> {
        self.cached_rows_as(vertices, false)
    }

    /// [`cached_rows`](Slicer::cached_rows) for other processing elements: in the stored type, if that has 16 bits.
    pub(super) fn rows_to_send(&self, vertices: &[u32]) -> Result<(BatchInput<Cpu<S>>, Counts)> {
        self.cached_rows_as(vertices, true)
    }

    /// [`cached_rows`](Slicer::cached_rows), or with `narrow` those in 16 bits as they are stored.
    fn cached_rows_as(&self, vertices: &[u32], narrow: bool) -> Result<(BatchInput<Cpu<S>>, Counts)> {
        let Some(cache) = &self.cache else {
            let misses = vertices.len() as u64;
            return Ok((self.rows_as(vertices, narrow)?, Counts { hits: 0, misses }));
        };
        let shape = [vertices.len(), self.dataset.features.dim()];
        // The lock is poisoned only after a panic, which ends the run anyway.
        let mut cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
        let n = shape[0] * shape[1];
        match &mut *cache {
            AnyFeatureCache::F16(cache) if narrow => {
                let mut rows = self.cpu.allocate(n)?;
                let counts = cache.gather_stored(vertices, &mut rows)?;
                self.check_narrow(&rows, vertices)?;
                Ok((BatchInput::Narrow(NarrowRows::of_f16(rows, shape)), counts))
            }
            AnyFeatureCache::Bf16(cache) if narrow => {
                let mut rows = self.cpu.allocate(n)?;
                let counts = cache.gather_stored(vertices, &mut rows)?;
                self.check_narrow(&rows, vertices)?;
                Ok((BatchInput::Narrow(NarrowRows::of_bf16(rows, shape)), counts))
            }
            cache => {
                let (rows, counts) = cache.gather(&self.cpu, vertices)?;
                self.check_sliced(&rows, vertices)?;
                Ok((BatchInput::Dense(rows), counts))
            }
        }
    }

    /// `[vertices.len(), dim]`: feature rows, widened to the scalar.
    ///
    /// Errors: a vertex is out of range, a mapped value is NaN or infinite (the error names it and the file), or there
    /// are more than `u32::MAX` sparse entries.
    pub fn rows(&self, vertices: &[u32]) -> Result<BatchInput<Cpu<S>>> {
        self.rows_as(vertices, false)
    }

    /// [`rows`](Slicer::rows), or with `narrow` those in 16 bits as they are stored.
    fn rows_as(&self, vertices: &[u32], narrow: bool) -> Result<BatchInput<Cpu<S>>> {
        let shape = [vertices.len(), self.dataset.features.dim()];
        match &self.dataset.features {
            Features::F16(x) if narrow => {
                let rows = self.stored_rows(x.data(), vertices)?;
                Ok(BatchInput::Narrow(NarrowRows::of_f16(rows, shape)))
            }
            Features::Bf16(x) if narrow => {
                let rows = self.stored_rows(x.data(), vertices)?;
                Ok(BatchInput::Narrow(NarrowRows::of_bf16(rows, shape)))
            }
            Features::F32(x) => self.dense_rows(x.data(), vertices),
            Features::F16(x) => self.dense_rows(x.data(), vertices),
            Features::Bf16(x) => self.dense_rows(x.data(), vertices),
            Features::Sparse(x) => self.sparse_rows(x, vertices),
            Features::None => {
                self.check_vertices(vertices)?;
                let ids = self.cpu.upload(vertices)?;
                Ok(BatchInput::OneHot(OneHot::new(ids, self.dataset.n_vertices())))
            }
        }
    }

    fn check_vertices(&self, vertices: &[u32]) -> Result<()> {
        check_ids("vertices", vertices, self.dataset.n_vertices())
    }

    fn dense_rows<E: FeatureElement>(&self, table: &[E], vertices: &[u32]) -> Result<BatchInput<Cpu<S>>> {
        let features = &self.dataset.features;
        let mut out = Tensor::allocate(&self.cpu, vertices.len(), features.dim())?;
        self.cpu.gather(table, features.n_rows(), vertices, out.make_mut(&self.cpu)?)?;
        self.check_sliced(&out, vertices)?;
        Ok(BatchInput::Dense(out))
    }

    /// `[vertices.len(), dim]`
    fn stored_rows<E: FeatureElement>(&self, table: &[E], vertices: &[u32]) -> Result<CpuBuffer<E>> {
        self.check_vertices(vertices)?;
        let dim = self.dataset.features.dim();
        let mut out = self.cpu.allocate(vertices.len() * dim)?;
        let copies: Vec<RowCopy> = (0..).zip(vertices).map(|(to, &from)| RowCopy { to, from }).collect();
        copy_rows(table, &copies, &mut out, dim, |row, out| out.copy_from_slice(row));
        self.check_narrow(&out, vertices)?;
        Ok(out)
    }

    /// [`check_sliced`](Slicer::check_sliced) of rows as they are stored.
    fn check_narrow<E: FeatureElement>(&self, rows: &[E], vertices: &[u32]) -> Result<()> {
        let features = &self.dataset.features;
        if !features.are_unchecked() || rows.iter().all(|value| value.widen_f32().is_finite()) {
            return Ok(());
        }
        features.check_rows(vertices)
    }

    /// Checks the rows of `vertices` at their first touch, if they are mapped: what came of them (the rows, or sums of
    /// them) is read while it is in the processor's caches, and the rows themselves only if that is not finite.
    fn check_sliced(&self, out: &Tensor<Cpu<S>>, vertices: &[u32]) -> Result<()> {
        let features = &self.dataset.features;
        if !features.are_unchecked() || S::all_finite(out.view()) {
            return Ok(());
        }
        features.check_rows(vertices)
    }

    fn sparse_rows(&self, x: &SparseFeatures, vertices: &[u32]) -> Result<BatchInput<Cpu<S>>> {
        self.check_vertices(vertices)?;
        let mut indptr = self.cpu.allocate::<u32>(vertices.len() + 1)?;
        let mut n = 0u64;
        indptr[0] = 0;
        for (end, &v) in indptr[1..].iter_mut().zip(vertices) {
            n += x.checked_row(v as usize)?.1.len() as u64;
            *end = u32::try_from(n).map_err(|_| Error::TooLarge {
                what: "the minibatch's sparse features",
                count: n,
                limit: u32::MAX.into(),
            })?;
        }
        let mut indices = self.cpu.allocate::<u32>(n as usize)?;
        let mut values = self.cpu.allocate::<S>(n as usize)?;
        let mut names = self.cpu.allocate::<u32>(n as usize)?;
        for (ends, &v) in indptr.windows(2).zip(vertices) {
            let to = ends[0] as usize..ends[1] as usize;
            let (from, columns, row) = x.checked_row(v as usize)?;
            check_length("feature indices, which were changed,", columns.len(), to.len())?;
            indices[to.clone()].copy_from_slice(columns);
            for (i, at) in to.enumerate() {
                values[at] = S::from_f64(f64::from(row[i]));
                // The entry's position is its name. Beyond 2^32 entries names repeat, which only correlates dropouts.
                names[at] = (from + i as u64) as u32;
            }
        }
        let pattern = Pattern::from_valid(vertices.len(), x.dim(), indptr, indices)?;
        Ok(BatchInput::Sparse(SparseRows::new(pattern, values, names)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{DataOnDevice, DeviceSampling};
    use crate::data::npy::{self, Dtype};
    use crate::data::{self, Dense, FeatureDtype, Split};
    use crate::graph::Graph;

    /// A NaN has the same error wherever the rows are, and by whichever way they reach a batch.
    #[test]
    fn a_mapped_row_is_checked_when_it_is_sliced() {
        let folder = tempfile::tempdir().unwrap();
        let graph = Graph::from_edges(4, &[(0, 1), (2, 1), (3, 0), (1, 3)]).unwrap();
        let features = Features::dense(vec![0.5; 4 * 33], 4, 33).unwrap();
        let split = Split { train: vec![0, 1], val: vec![], test: vec![2] };
        let whole = Dataset::new("small", graph, features, vec![0, 1, 0, 1], 2, split).unwrap();
        for (dtype, stored) in [(Dtype::F32, FeatureDtype::F32), (Dtype::F16, FeatureDtype::F16)] {
            for bad in [f32::NAN, f32::INFINITY] {
                Dataset { features: whole.features.to_dtype(stored).unwrap(), ..whole.clone() }
                    .write(folder.path())
                    .unwrap();
                let mut values = vec![1f32; 4 * 33];
                values[2 * 33 + 32] = bad;
                let path = folder.path().join("feat.npy");
                std::fs::remove_file(&path).unwrap();
                if dtype == Dtype::F32 {
                    npy::write(&path, dtype, &[4, 33], &values).unwrap();
                } else {
                    let narrow: Vec<half::f16> = values.iter().map(|&v| half::f16::from_f32(v)).collect();
                    npy::write(&path, dtype, &[4, 33], &narrow).unwrap();
                }
                let in_memory = Dense::new(values, 4, 33).unwrap_err();
                let in_memory = format!("{}: {in_memory}", path.display());
                let dataset = Arc::new(data::load(folder.path()).unwrap());
                let same = |result: Result<()>| assert_eq!(result.unwrap_err().to_string(), in_memory);
                let needs = BatchNeeds { input_aggregate: Some(Aggregate::Mean), ..BatchNeeds::default() };
                let slicer = Slicer::new(Cpu::<f32>::new(), dataset.clone(), needs);
                slicer.rows(&[0, 1, 3]).unwrap();
                same(slicer.rows(&[0, 2, 1]).map(|_| ()));
                slicer.input(&slicer.full_block(&[0, 3]).unwrap()).unwrap();
                same(slicer.input(&slicer.full_block(&[0, 1]).unwrap()).map(|_| ()));
                slicer.rows_to_send(&[0, 1, 3]).unwrap();
                same(slicer.rows_to_send(&[0, 2, 1]).map(|_| ()));
                let cached = slicer.clone().with_cache(Policy::Lru, 2).unwrap();
                cached.cached_rows(&[0, 1]).unwrap();
                same(cached.cached_rows(&[2]).map(|_| ()));
                same(cached.rows_to_send(&[2]).map(|_| ()));
                let config = SamplerConfig::default();
                same(DeviceSampling::new(&Cpu::new(), slicer, config, DataOnDevice::All).map(|_| ()));
                same(dataset.features.row_normalize().map(|_| ()));
                same(dataset.features.to_dtype(FeatureDtype::Bf16).map(|_| ()));
            }
        }
    }
}
