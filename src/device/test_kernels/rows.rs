//! Gather and scatter: kernels with one index per row.

use half::{bf16, f16};
use proptest::prelude::*;

use super::{Expected, Guarded, Random, dims, for_cases, test_devices, to_f64};
use crate::device::{FeatureElement, Gather, Scalar};
use crate::error::Error;

test_devices! {
    gather gather_wide_rows gather_from_host_memory gather_out_of_range narrow_index
    narrow_index_out_of_range
    scatter_add scatter_add_wide_rows scatter_add_to_few_rows scatter_out_of_range_writes_nothing
}

fn check_gather<D: Gather, E: FeatureElement>(device: &D, table: &[E], dim: usize, n_out: usize, seed: u64) {
    let mut random = Random(seed);
    let n_table = table.len().checked_div(dim).unwrap_or(7);
    let index: Vec<u32> =
        (0..if n_table == 0 { 0 } else { n_out }).map(|_| random.index(n_table) as u32).collect();
    let (table_view, index_view) = (Guarded::new(device, table), Guarded::new(device, &index));
    let mut out = Guarded::poisoned(device, index.len() * dim);
    device.gather(table_view.view(), n_table, index_view.view(), out.matrix_mut(index.len(), dim)).unwrap();
    let expected = index.iter().flat_map(|&i| &table[i as usize * dim..][..dim]);
    let expected: Vec<f64> =
        expected.map(|value| D::Scalar::from_f64(value.widen_f64()).widen_f64()).collect();
    assert_eq!(to_f64(&out.read()), expected);
}

/// From tables of every type.
fn check_gathers<D: Gather>(device: &D, n_table: usize, n_out: usize, dim: usize, seed: u64) {
    let table = Random(!seed).values::<f64>(n_table * dim, false);
    check_gather(device, &table, dim, n_out, seed);
    let narrow: Vec<f32> = table.iter().map(|&v| v as f32).collect();
    check_gather(device, &narrow, dim, n_out, seed);
    let narrow: Vec<f16> = table.iter().map(|&v| f16::from_f64(v)).collect();
    check_gather(device, &narrow, dim, n_out, seed);
    let narrow: Vec<bf16> = table.iter().map(|&v| bf16::from_f64(v)).collect();
    check_gather(device, &narrow, dim, n_out, seed);
}

fn gather<D: Gather>(device: &D) {
    let shapes = (0..60usize, prop_oneof![0..60usize, Just(1500)], dims(), any::<u64>());
    for_cases(shapes, |(n_table, n_out, dim, seed)| check_gathers(device, n_table, n_out, dim, seed));
}

fn gather_wide_rows<D: Gather>(device: &D) {
    for dim in [1023, 1024, 2050] {
        check_gathers(device, 7, 11, dim, 5);
    }
}

/// Rows of a table on the host are those of the same table on the device, bit for bit.
fn gather_from_host_memory<D: Gather>(device: &D) {
    fn check<D: Gather, E: FeatureElement>(
        device: &D,
        n_table: usize,
        dim: usize,
        narrow: impl Fn(f64) -> E,
    ) {
        let mut random = Random(dim as u64);
        let table: Vec<E> = random.values::<f64>(n_table * dim, false).into_iter().map(narrow).collect();
        let index: Vec<u32> = (0..50).map(|_| random.index(n_table) as u32).collect();
        let index = Guarded::new(device, &index);
        let (on_device, on_host) = (device.upload(&table).unwrap(), device.upload_to_host(&table).unwrap());
        let rows = |table| {
            let mut out = Guarded::poisoned(device, 50 * dim);
            device.gather(D::view(table), n_table, index.view(), out.matrix_mut(50, dim)).unwrap();
            bytemuck::cast_slice::<D::Scalar, u8>(&out.read()).to_vec()
        };
        assert_eq!(rows(&on_host), rows(&on_device));
        assert_eq!(device.download(D::view(&on_host)).unwrap(), table);
    }
    for (n_table, dim) in [(1, 1), (40, 7), (40, 8), (300, 100), (40, 0)] {
        check(device, n_table, dim, |v| v as f32);
        check(device, n_table, dim, f16::from_f64);
        check(device, n_table, dim, bf16::from_f64);
    }
}

fn gather_out_of_range<D: Gather>(device: &D) {
    let table = Guarded::new(device, &[1f32; 6]);
    for index in [[0, 3, 1], [0, u32::MAX, 1]] {
        let mut out = Guarded::poisoned(device, 6);
        let index_view = Guarded::new(device, &index);
        let gathered = device.gather(table.view(), 3, index_view.view(), out.matrix_mut(3, 2));
        let error = gathered.and_then(|()| device.synchronize()).unwrap_err();
        let Error::IndexOutOfRange { position: 1, value, limit: 3, .. } = error else { panic!("{error}") };
        assert_eq!(value, i64::from(index[1]));
        out.read();
    }
    // Rows without columns are checked too.
    let empty = Guarded::new(device, &[0f32; 0]);
    let mut out = Guarded::poisoned(device, 0);
    let index = Guarded::new(device, &[3]);
    let gathered = device.gather(empty.view(), 3, index.view(), out.matrix_mut(1, 0));
    assert!(gathered.and_then(|()| device.synchronize()).is_err());
    // And those of a table without rows.
    let mut out = Guarded::poisoned(device, 2);
    let gathered = device.gather(empty.view(), 0, Guarded::new(device, &[0]).view(), out.matrix_mut(1, 2));
    let error = gathered.and_then(|()| device.synchronize()).unwrap_err();
    assert!(matches!(error, Error::IndexOutOfRange { position: 0, value: 0, limit: 0, .. }), "{error}");
    out.read();
    // Lengths that do not fit.
    let mut out = Guarded::poisoned(device, 4);
    let index = Guarded::new(device, &[0, 1, 2]);
    assert!(device.gather(table.view(), 3, index.view(), out.matrix_mut(2, 2)).is_err());
    let index = Guarded::new(device, &[0, 1]);
    assert!(device.gather(table.view(), 4, index.view(), out.matrix_mut(2, 2)).is_err());
}

fn check_scatter_add<D: Gather>(
    device: &D,
    rows: usize,
    n_out: usize,
    dim: usize,
    integers: bool,
    random: &mut Random,
) {
    let index: Vec<u32> = (0..rows).map(|_| random.index(n_out) as u32).collect();
    let x = random.values::<D::Scalar>(rows * dim, integers);
    let start = random.values::<D::Scalar>(n_out * dim, integers);
    let mut expected = Expected::from(to_f64(&start));
    for (i, &j) in index.iter().enumerate() {
        for c in 0..dim {
            expected.add(j as usize * dim + c, x[i * dim + c].widen_f64());
        }
    }
    let mut out = Guarded::new(device, &start);
    let (x, index) = (Guarded::new(device, &x), Guarded::new(device, &index));
    device.scatter_add(x.matrix(rows, dim), index.view(), out.matrix_mut(n_out, dim)).unwrap();
    expected.check(&out.read(), integers);
}

fn scatter_add<D: Gather>(device: &D) {
    let shapes = (prop_oneof![0..60usize, Just(1500)], 0..40usize, dims(), any::<bool>(), any::<u64>());
    for_cases(shapes, |(rows, n_out, dim, integers, seed)| {
        let rows = if n_out == 0 { 0 } else { rows };
        check_scatter_add(device, rows, n_out, dim, integers, &mut Random(seed));
    });
}

fn scatter_add_wide_rows<D: Gather>(device: &D) {
    for dim in [1023, 1024] {
        check_scatter_add(device, 150, 3, dim, false, &mut Random(5));
    }
}

/// Most rows are added to the same few.
fn scatter_add_to_few_rows<D: Gather>(device: &D) {
    for (rows, n_out, dim) in [(100_000, 1, 4), (20_000, 2, 3), (3_000, 70, 8)] {
        check_scatter_add(device, rows, n_out, dim, true, &mut Random(7));
    }
}

fn scatter_out_of_range_writes_nothing<D: Gather>(device: &D) {
    let x = Guarded::new(device, &[D::Scalar::from_f64(1.0); 6]);
    let index = Guarded::new(device, &[0, 1, 2]);
    let mut out = Guarded::new(device, &[D::Scalar::from_f64(5.0); 4]);
    let scattered = device.scatter_add(x.matrix(3, 2), index.view(), out.matrix_mut(2, 2));
    let error = scattered.and_then(|()| device.synchronize()).unwrap_err();
    assert!(matches!(error, Error::IndexOutOfRange { position: 2, value: 2, limit: 2, .. }), "{error}");
    assert_eq!(to_f64(&out.read()), [5.0; 4]);
    assert!(device.scatter_add(x.matrix(2, 3), index.view(), out.matrix_mut(2, 2)).is_err());
    assert!(device.scatter_add(x.matrix(6, 1), index.view(), out.matrix_mut(2, 2)).is_err());
}

fn narrow_index<D: Gather>(device: &D) {
    for_cases((prop_oneof![0..70usize, Just(70_001)], any::<u64>()), |(len, seed)| {
        let mut random = Random(seed);
        let index: Vec<u32> = (0..len).map(|_| random.word() as u32).collect();
        let wide: Vec<u64> = index.iter().map(|&i| i.into()).collect();
        let (wide, mut out) = (Guarded::new(device, &wide), Guarded::poisoned(device, len));
        device.narrow_index(wide.view(), 1 << 32, out.view_mut()).unwrap();
        assert_eq!(out.read(), index);
    });
}

fn narrow_index_out_of_range<D: Gather>(device: &D) {
    let mut out = Guarded::poisoned(device, 3);
    for (bad, told) in [(7, 7), (1 << 32, 1 << 32), (u64::MAX, i64::MAX)] {
        let index = Guarded::new(device, &[6, bad, 0]);
        let result = device.narrow_index(index.view(), 7, out.view_mut());
        let error = result.and_then(|()| device.synchronize()).unwrap_err();
        let Error::IndexOutOfRange { array: "index", position: 1, value, limit: 7 } = error else {
            panic!("{error}")
        };
        assert_eq!(value, told);
    }
    let index = Guarded::new(device, &[0; 3]);
    let error = device.narrow_index(index.view(), (1 << 32) + 1, out.view_mut()).unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    let few = D::slice(index.view(), 0..2);
    assert!(device.narrow_index(few, 7, out.view_mut()).is_err());
}
