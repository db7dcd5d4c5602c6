//! Feature rows of 16 bits.

use std::sync::Arc;

use half::{bf16, f16};

use crate::comm::Stage;
use crate::coop::{ExchangePlan, Peers};
use crate::device::{Cpu, CpuBuffer, Device, Element, Half, Scalar};
use crate::error::Result;
use crate::tensor::Tensor;

/// Dense feature rows in the type of 16 bits in which they are stored, `[n_rows, dim]`: half of the bytes to be moved,
/// and to be kept until the batch is computed. Cloning shares them.
#[derive(Debug)]
pub struct NarrowRows<D: Device> {
    shape: [usize; 2],
    data: Data<D>,
}

#[derive(Debug)]
enum Data<D: Device> {
    F16(Arc<D::Buffer<f16>>),
    Bf16(Arc<D::Buffer<bf16>>),
}

impl<D: Device> Clone for NarrowRows<D> {
    fn clone(&self) -> Self {
        let data = match &self.data {
            Data::F16(data) => Data::F16(data.clone()),
            Data::Bf16(data) => Data::Bf16(data.clone()),
        };
        NarrowRows { shape: self.shape, data }
    }
}

impl<D: Device> NarrowRows<D> {
    /// `data` has as many elements as `shape` says.
    pub(crate) fn of_f16(data: D::Buffer<f16>, shape: [usize; 2]) -> Self {
        NarrowRows { shape, data: Data::F16(Arc::new(data)) }
    }

    /// `data` has as many elements as `shape` says.
    pub(crate) fn of_bf16(data: D::Buffer<bf16>, shape: [usize; 2]) -> Self {
        NarrowRows { shape, data: Data::Bf16(Arc::new(data)) }
    }

    /// `[n_rows, dim]`
    pub fn shape(&self) -> [usize; 2] {
        self.shape
    }

    /// The rows in the device's scalar: exact.
    ///
    /// Errors: the device fails or is out of memory.
    pub fn widened(&self, device: &D) -> Result<Tensor<D>> {
        match &self.data {
            Data::F16(data) => self.widened_as(device, data),
            Data::Bf16(data) => self.widened_as(device, data),
        }
    }

    fn widened_as<E: Half>(&self, device: &D, data: &D::Buffer<E>) -> Result<Tensor<D>> {
        let mut wide = Tensor::allocate(device, self.shape[0], self.shape[1])?;
        device.widen(D::view(data), wide.make_mut(device)?.data)?;
        Ok(wide)
    }
}

impl<S: Scalar> NarrowRows<Cpu<S>> {
    /// Moves rows from the host to `device` (on the CPU: the same memory, unless it is shared).
    ///
    /// Errors: the device fails or is out of memory.
    // As for a batch's other parts: it moves, though names of this kind borrow elsewhere.
    #[allow(clippy::wrong_self_convention)]
    pub(super) fn to_device<D: Device<Scalar = S>>(self, device: &D) -> Result<NarrowRows<D>> {
        let shape = self.shape;
        Ok(match self.data {
            Data::F16(data) => NarrowRows::of_f16(moved(device, data)?, shape),
            Data::Bf16(data) => NarrowRows::of_bf16(moved(device, data)?, shape),
        })
    }

    /// The rows that a processing element needs, of those that it and the others own; `plan` says which. Collective.
    ///
    /// Errors: those of communication.
    pub(super) fn fetch(
        &self,
        peers: &Peers<Cpu<S>>,
        plan: &ExchangePlan<Cpu<S>>,
        stage: Stage,
    ) -> Result<Self> {
        let shape = [plan.n_needed(), self.shape[1]];
        Ok(match &self.data {
            Data::F16(data) => NarrowRows::of_f16(plan.fetch_rows(peers, stage, data, shape[1])?, shape),
            Data::Bf16(data) => NarrowRows::of_bf16(plan.fetch_rows(peers, stage, data, shape[1])?, shape),
        })
    }
}

/// A host buffer on `device`: the same memory on the CPU, if nobody else has it.
fn moved<D: Device, T: Element>(device: &D, data: Arc<CpuBuffer<T>>) -> Result<D::Buffer<T>> {
    match Arc::try_unwrap(data) {
        Ok(data) => device.adopt(data),
        Err(shared) => device.upload(&shared),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchInput, BatchNeeds, Slicer};
    use crate::cache::Policy;
    use crate::data::{Dataset, FeatureDtype, SbmData};
    use crate::graph::Sbm;
    use crate::tape::Aggregate;

    const VERTICES: [u32; 6] = [5, 0, 99, 5, 17, 64];
    const DIM: usize = 7;

    fn dataset(dtype: FeatureDtype) -> Arc<Dataset> {
        let graph = Sbm { n_vertices: 100, ..SbmData::default().graph };
        let dataset = SbmData { graph, dim: DIM, ..SbmData::default() }.generate().unwrap();
        Arc::new(Dataset { features: dataset.features.to_dtype(dtype).unwrap(), ..dataset })
    }

    fn dense(input: BatchInput<Cpu<f32>>) -> Vec<f32> {
        match input.widened(&Cpu::new()).unwrap() {
            BatchInput::Dense(x) => x.view().to_vec(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn rows_stay_as_they_are_stored_until_they_are_widened() {
        for dtype in [FeatureDtype::F16, FeatureDtype::Bf16, FeatureDtype::F32] {
            let slicer = Slicer::new(Cpu::<f32>::new(), dataset(dtype), BatchNeeds::default());
            let expected = dense(slicer.rows(&VERTICES).unwrap());
            let block = slicer.full_block(&VERTICES[..3]).unwrap();
            let of_block = dense(slicer.rows(block.src()).unwrap());
            for slicer in [slicer.clone(), slicer.with_cache(Policy::Lru, 3).unwrap()] {
                let slicer = slicer.with_narrow_rows(true);
                for _ in 0..2 {
                    let (rows, _) = slicer.rows_to_send(&VERTICES).unwrap();
                    assert_eq!(matches!(rows, BatchInput::Narrow(_)), dtype != FeatureDtype::F32);
                    assert_eq!(rows.n_rows(), VERTICES.len());
                    assert_eq!(dense(rows), expected);
                    let (rows, _) = slicer.cached_input(&block).unwrap();
                    assert_eq!(matches!(rows, BatchInput::Narrow(_)), dtype != FeatureDtype::F32);
                    assert_eq!(dense(rows), of_block);
                }
                assert!(slicer.rows_to_send(&[100]).is_err());
            }
        }
    }

    /// What a model does not need as it is stored is aggregated from there, in the device's scalar.
    #[test]
    fn aggregates_are_not_narrow() {
        let needs = BatchNeeds { input_aggregate: Some(Aggregate::Mean), ..BatchNeeds::default() };
        let slicer = Slicer::new(Cpu::<f32>::new(), dataset(FeatureDtype::F16), needs).with_narrow_rows(true);
        let block = slicer.full_block(&VERTICES[..3]).unwrap();
        for slicer in [slicer.clone(), slicer.with_cache(Policy::Lru, 3).unwrap()] {
            assert!(slicer.cached_input(&block).unwrap().0.is_aggregated());
        }
    }

    #[cfg(feature = "emulate")]
    #[test]
    fn half_of_the_bytes_are_copied_to_a_device() {
        let device = crate::device::Cuda::<f32>::new(0).unwrap();
        for (dtype, bytes) in [(FeatureDtype::F16, 2), (FeatureDtype::Bf16, 2), (FeatureDtype::F32, 4)] {
            let host =
                Slicer::new(Cpu::<f32>::new(), dataset(dtype), BatchNeeds::default()).with_narrow_rows(true);
            let (rows, _) = host.rows_to_send(&VERTICES).unwrap();
            let expected = dense(host.rows(&VERTICES).unwrap());
            let before = device.activity().bytes_to_device;
            let rows = rows.to_device(&device).unwrap();
            assert_eq!(device.activity().bytes_to_device - before, (VERTICES.len() * DIM * bytes) as u64);
            let BatchInput::Dense(rows) = rows.widened(&device).unwrap() else { unreachable!() };
            assert_eq!(rows.to_vec(&device).unwrap(), expected);
        }
    }
}
