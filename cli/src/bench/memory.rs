//! Benchmarks that only move memory: copy and gather.

use half::f16;
use rayon::prelude::*;

use super::Bench;
use super::check::{Values, agree, part, wrong};
use super::row::Amount;
use cohop::Result;
use cohop::device::{Device, FeatureElement, MatrixMut};

/// A copy that is larger than caches: the reference for shares of bandwidth.
pub(super) fn copy<D: Device<Scalar = f32>>(bench: &mut Bench<'_, D>) -> Result<()> {
    let mebibytes = if bench.is_full_size() { 256 } else { 4 };
    let len = mebibytes << 18;
    let amount = Amount::moved(2.0 * 4.0 * len as f64);
    let size = format!("{mebibytes}MiB");
    let values = Values(1);
    let x = values.host(len);
    let check = |copied: &[f32]| {
        let right = copied.par_iter().enumerate().all(|(position, &value)| value == values.at(position));
        if right { Ok(()) } else { wrong("copy", "another array", "the same array") }
    };
    if bench.on_host {
        // One part per thread: long copies bypass the caches.
        let share = len.div_ceil(rayon::current_num_threads());
        let copy = |to: &mut [f32]| {
            to.par_chunks_mut(share).zip(x.par_chunks(share)).for_each(|(to, from)| to.copy_from_slice(from));
            Ok(())
        };
        let mut to = vec![0.0f32; len];
        copy(&mut to)?;
        check(&to)?;
        return bench.time("copy", size, amount, || copy(&mut to));
    }
    let device = bench.device;
    let (x, mut to) = (device.upload(&x)?, device.allocate::<f32>(len)?);
    device.copy(D::view(&x), D::view_mut(&mut to))?;
    check(&device.download(D::view(&to))?)?;
    bench.time_kernel("copy", size, amount, || device.copy(D::view(&x), D::view_mut(&mut to)))
}

/// Gathers half of a table's rows in random order, widened to f32 or unchanged.
pub(super) fn gather<D: Device<Scalar = f32>>(bench: &mut Bench<'_, D>) -> Result<()> {
    if !bench.wants("gather") {
        return Ok(());
    }
    rows(bench, 100, "100f32", |value| value)?;
    rows(bench, 128, "128f16->f32", f16::from_f32)?;
    // Unwidened rows of 128 f16 have 256 bytes: for a gather the same as 64 f32.
    rows(bench, 64, "128f16", |value| value)
}

fn rows<D: Device<Scalar = f32>, E: FeatureElement>(
    bench: &mut Bench<'_, D>,
    dim: usize,
    name: &str,
    narrow: impl Fn(f32) -> E + Sync,
) -> Result<()> {
    let device = bench.device;
    let n_table = if bench.is_full_size() { 1_000_000 } else { 2_000 };
    let n_out = n_table / 2;
    let values = Values(2);
    let element = |position: usize| narrow(values.at(position));
    let host: Vec<E> = (0..n_table * dim).into_par_iter().map(element).collect();
    let table = device.upload(&host)?;
    drop(host);
    let index: Vec<u32> = (0..n_out).map(|i| (Values(3).word(i) % n_table as u64) as u32).collect();
    let on_device = device.upload(&index)?;
    let mut out = device.allocate::<f32>(n_out * dim)?;
    let gather = |out: &mut D::Buffer<f32>| {
        let out = MatrixMut::from_view(D::view_mut(out), n_out, dim)?;
        device.gather(D::view(&table), n_table, D::view(&on_device), out)
    };
    gather(&mut out)?;
    for i in (0..n_out).step_by(n_out / 20) {
        let found = part(device, &out, i * dim..(i + 1) * dim)?;
        let first = index[i] as usize * dim;
        let expected: Vec<f64> = (first..first + dim).map(|position| element(position).widen_f64()).collect();
        agree("gather", &found, &expected)?;
    }
    let bytes = (n_out * (dim * (size_of::<E>() + size_of::<f32>()) + size_of::<u32>())) as f64;
    bench.time_kernel("gather", format!("{n_out}of{n_table}x{name}"), Amount::moved(bytes), || {
        gather(&mut out)
    })
}
