//! Rows that devices pack, and read where other devices have them.

use half::f16;
use proptest::prelude::*;

use super::{Guarded, Random, dims, for_cases, test_devices, to_f64};
use crate::device::{Exchange, OfferedRows, Scalar};
use crate::error::Error;

test_devices! {
    pack_rows pack_rows_out_of_range gather_offered add_offered offered_rows_out_of_range
}

fn pack_rows<D: Exchange>(device: &D) {
    let shapes = (1..60usize, 0..60usize, dims(), any::<u64>());
    for_cases(shapes, |(n_table, n_out, dim, seed)| {
        let mut random = Random(seed);
        let index: Vec<u32> = (0..n_out).map(|_| random.index(n_table) as u32).collect();
        let index_view = Guarded::new(device, &index);
        let table: Vec<f16> =
            random.values::<f64>(n_table * dim, false).into_iter().map(f16::from_f64).collect();
        let names: Vec<u32> = (0..(n_table * dim) as u32).collect();
        let expected = |i: usize| index[i / dim] as usize * dim + i % dim;
        let mut out = device.upload(&vec![f16::NAN; n_out * dim]).unwrap();
        let table_view = Guarded::new(device, &table);
        device.pack_rows(table_view.view(), dim, index_view.view(), D::view_mut(&mut out)).unwrap();
        let found = device.download(D::view(&out)).unwrap();
        assert!((0..n_out * dim).all(|i| found[i].to_bits() == table[expected(i)].to_bits()));
        let mut out = device.upload(&vec![u32::MAX; n_out * dim]).unwrap();
        let names_view = Guarded::new(device, &names);
        device.pack_rows(names_view.view(), dim, index_view.view(), D::view_mut(&mut out)).unwrap();
        let found = device.download(D::view(&out)).unwrap();
        assert!((0..n_out * dim).all(|i| found[i] == names[expected(i)]));
    });
}

fn pack_rows_out_of_range<D: Exchange>(device: &D) {
    let (table, index) = (device.upload(&[1u32, 2, 3]).unwrap(), device.upload(&[2u32, 3]).unwrap());
    let mut out = device.upload(&[0u32; 2]).unwrap();
    let packed = device.pack_rows(D::view(&table), 1, D::view(&index), D::view_mut(&mut out));
    let error = packed.and_then(|()| device.synchronize()).unwrap_err();
    assert!(matches!(error, Error::IndexOutOfRange { position: 1, value: 3, limit: 3, .. }), "{error}");
    let short =
        device.pack_rows(D::view(&table), 1, D::view(&index), D::slice_mut(D::view_mut(&mut out), 0..1));
    assert!(short.is_err());
}

/// Tables, of each the rows that are asked for, and the order of all: what a device offers itself.
fn gather_offered<D: Exchange>(device: &D) {
    if !D::OFFERS {
        assert!(device.offer(D::view(&device.allocate::<f32>(1).unwrap())).is_err());
        return;
    }
    let shapes = (prop::collection::vec((1..30usize, 0..40usize), 0..5), dims(), any::<u64>());
    for_cases(shapes, |(tables, dim, seed)| {
        let mut random = Random(seed);
        let n: usize = tables.iter().map(|table| table.1).sum();
        let mut order: Vec<u32> = (0..n as u32).collect();
        for i in (1..n).rev() {
            order.swap(i, random.index(i + 1));
        }
        let (mut kept, mut from, mut expected) = (Vec::new(), Vec::new(), vec![0.0; n * dim]);
        let mut j = 0;
        for (n_table, n_rows) in tables {
            let table: Vec<f16> =
                random.values::<f64>(n_table * dim, false).into_iter().map(f16::from_f64).collect();
            // Rows before those that are asked for.
            let rows: Vec<u32> = (0..n_rows + 3).map(|_| random.index(n_table) as u32).collect();
            for &row in &rows[3..] {
                for column in 0..dim {
                    expected[order[j] as usize * dim + column] = table[row as usize * dim + column].to_f64();
                }
                j += 1;
            }
            let (table, rows) = (device.upload(&table).unwrap(), device.upload(&rows).unwrap());
            let offers = (device.offer(D::view(&table)).unwrap(), device.offer(D::view(&rows)).unwrap());
            assert!(device.reaches(offers.0.number()).unwrap());
            from.push(OfferedRows {
                table: offers.0.number(),
                rows: offers.1.number(),
                range: 3..3 + n_rows,
            });
            kept.push((table, rows, offers));
        }
        let mut out = Guarded::poisoned(device, n * dim);
        let order = Guarded::new(device, &order);
        device.gather_offered::<f16>(&from, order.view(), out.matrix_mut(n, dim)).unwrap();
        assert_eq!(to_f64(&out.read()), expected);
    });
}

fn add_offered<D: Exchange>(device: &D) {
    if !D::OFFERS {
        return;
    }
    let shapes = (1..30usize, 0..30usize, dims(), any::<u64>());
    for_cases(shapes, |(n_table, n_rows, dim, seed)| {
        let mut random = Random(seed);
        let n_out = n_rows + 2;
        let table: Vec<D::Scalar> = random.values(n_table * dim, false);
        let rows: Vec<u32> = (0..n_rows).map(|_| random.index(n_table) as u32).collect();
        let index: Vec<u32> = (0..n_rows as u32).rev().collect();
        let mut expected: Vec<D::Scalar> = random.values(n_out * dim, false);
        let mut out = Guarded::new(device, &expected);
        for (&row, &to) in rows.iter().zip(&index) {
            for column in 0..dim {
                expected[to as usize * dim + column] += table[row as usize * dim + column];
            }
        }
        let (table, rows) = (device.upload(&table).unwrap(), device.upload(&rows).unwrap());
        let offers = (device.offer(D::view(&table)).unwrap(), device.offer(D::view(&rows)).unwrap());
        let from = OfferedRows { table: offers.0.number(), rows: offers.1.number(), range: 0..n_rows };
        let index = Guarded::new(device, &index);
        device.add_offered(&from, index.view(), out.matrix_mut(n_out, dim)).unwrap();
        assert_eq!(to_f64(&out.read()), to_f64(&expected));
    });
}

fn offered_rows_out_of_range<D: Exchange>(device: &D) {
    if !D::OFFERS {
        return;
    }
    let table = device.upload(&[D::Scalar::from_f64(1.0); 6]).unwrap();
    let (rows, order) = (device.upload(&[0u32, 3]).unwrap(), device.upload(&[0u32, 1]).unwrap());
    let offers = (device.offer(D::view(&table)).unwrap(), device.offer(D::view(&rows)).unwrap());
    let from = |range| OfferedRows { table: offers.0.number(), rows: offers.1.number(), range };
    let mut out = Guarded::poisoned(device, 4);
    let gathered = device.gather_offered::<D::Scalar>(&[from(0..2)], D::view(&order), out.matrix_mut(2, 2));
    let error = gathered.and_then(|()| device.synchronize()).unwrap_err();
    assert!(matches!(error, Error::IndexOutOfRange { position: 1, value: 3, limit: 3, .. }), "{error}");
    let mut out = Guarded::new(device, &[D::Scalar::from_f64(0.0); 4]);
    let added = device.add_offered(&from(0..2), D::view(&order), out.matrix_mut(2, 2));
    let error = added.and_then(|()| device.synchronize()).unwrap_err();
    assert!(matches!(error, Error::IndexOutOfRange { value: 3, .. }), "{error}");
    // Beyond the list, and withdrawn.
    assert!(device.add_offered(&from(1..3), D::view(&order), out.matrix_mut(2, 2)).is_err());
    let late = from(0..2);
    drop(offers);
    assert!(device.add_offered(&late, D::view(&order), out.matrix_mut(2, 2)).is_err());
}
