//! Rows gathered and aggregated in one pass: against a naive loop, and bit for bit against the kernels one after the
//! other.

use half::{bf16, f16};
use proptest::prelude::*;

use super::naive::Pattern;
use super::{Expected, Guarded, Random, dims, for_cases, test_devices, to_f64};
use crate::device::{
    Csr, Device, FeatureElement, IndexedRows, MatrixMut, Scalar, Weights, gather_aggregate_apart,
};
use crate::error::{Error, Result};

test_devices! {
    gather_aggregate gather_aggregate_of_hubs gather_aggregate_out_of_range gather_aggregate_wrong_shapes
}

/// Which factors there are.
#[derive(Clone, Copy, Debug)]
struct With {
    edge: bool,
    row: bool,
    column: bool,
    own: bool,
}

/// On a block `a` (columns: the destinations, then others) and a table of twice as many rows as it has columns.
fn check<D: Device, E: FeatureElement>(
    device: &D,
    a: &Pattern,
    dim: usize,
    with: With,
    seed: u64,
    narrow: impl Fn(f64) -> E,
) {
    let mut random = Random(seed);
    let n_table = 2 * a.n_cols;
    let table: Vec<E> = random.values::<f64>(n_table * dim, false).into_iter().map(narrow).collect();
    let index: Vec<u32> = (0..a.n_cols).map(|_| random.index(n_table) as u32).collect();
    let mut factors = |is_there: bool, len| is_there.then(|| random.values::<D::Scalar>(len, false));
    let edge = factors(with.edge, a.n_edge());
    let row = factors(with.row, a.n_rows);
    let column = factors(with.column, a.n_cols);
    let own = factors(with.own, a.n_rows);

    let cols = if with.own { dim } else { 2 * dim };
    let sums = cols - dim;
    let mut expected = Expected::zeros(a.n_rows * cols);
    let factor =
        |factor: &Option<Vec<D::Scalar>>, i: usize| factor.as_ref().map_or(1.0, |f| f[i].widen_f64());
    let x = |j: usize, c: usize| table[index[j] as usize * dim + c].widen_f64();
    for t in 0..a.n_rows {
        (0..dim).for_each(|c| expected.add(t * cols + c, factor(&own, t) * x(t, c)));
    }
    for (t, j, e) in a.entries() {
        let weight = factor(&edge, e) * factor(&row, t) * factor(&column, j);
        (0..dim).for_each(|c| expected.add(t * cols + sums + c, weight * x(j, c)));
    }

    let (table, index) = (Guarded::new(device, &table), Guarded::new(device, &index));
    let (indptr, indices) = (Guarded::new(device, &a.indptr), Guarded::new(device, &a.indices));
    let upload = |factor: &Option<Vec<D::Scalar>>| factor.as_ref().map(|f| Guarded::new(device, f));
    let (edge, row, column, own) = (upload(&edge), upload(&row), upload(&column), upload(&own));
    let rows = IndexedRows { table: table.view(), n_table, index: index.view() };
    let csr = Csr {
        n_rows: a.n_rows,
        n_cols: a.n_cols,
        indptr: indptr.view(),
        indices: indices.view(),
        edge: None,
        longest_row: None,
    };
    let weights = Weights {
        edge: edge.as_ref().map(Guarded::view),
        row: row.as_ref().map(Guarded::view),
        column: column.as_ref().map(Guarded::view),
    };
    let own = own.as_ref().map(Guarded::view);
    let mut fused = Guarded::poisoned(device, a.n_rows * cols);
    device.gather_aggregate(rows, csr, weights, own, fused.matrix_mut(a.n_rows, cols)).unwrap();
    let fused = fused.read();
    expected.check(&fused, false);
    let mut apart = Guarded::poisoned(device, a.n_rows * cols);
    gather_aggregate_apart(device, rows, csr, weights, own, apart.matrix_mut(a.n_rows, cols)).unwrap();
    let bits = |values: &[D::Scalar]| to_f64(values).into_iter().map(f64::to_bits).collect::<Vec<_>>();
    assert_eq!(bits(&fused), bits(&apart.read()));
}

/// From tables of every type.
fn check_tables<D: Device>(device: &D, a: &Pattern, dim: usize, with: With, seed: u64) {
    check(device, a, dim, with, seed, |v| v);
    check(device, a, dim, with, seed, |v| v as f32);
    check(device, a, dim, with, seed, f16::from_f64);
    check(device, a, dim, with, seed, bf16::from_f64);
}

fn factors() -> impl Strategy<Value = With> {
    any::<[bool; 4]>().prop_map(|[edge, row, column, own]| With { edge, row, column, own })
}

/// A third of the rows are empty.
fn gather_aggregate<D: Device>(device: &D) {
    let shapes = (0..60usize, 0..60usize, prop_oneof![Just(0), Just(1), 2..30usize], dims());
    for_cases((shapes, factors(), any::<u64>()), |((n_dst, others, max_degree, dim), with, seed)| {
        let a = Pattern::random(n_dst, n_dst + others, max_degree, false, &mut Random(!seed));
        check_tables(device, &a, dim, with, seed);
    });
}

/// Rows whose sums are cut into chunks on a GPU and into runs on the CPU.
fn gather_aggregate_of_hubs<D: Device>(device: &D) {
    for (i, dim) in [1, 12, 100, 300].into_iter().enumerate() {
        let a = Pattern::of_row_lengths(&[3, 0, 700, 512, 513, 1, 2500], 40, &mut Random(i as u64));
        let with = With { edge: i < 2, row: i != 1, column: i == 2, own: i % 2 == 0 };
        check_tables(device, &a, dim, with, 7);
    }
}

/// Two destinations, the second without edges, and two more sources; rows of two columns of a table of five.
fn small<D: Device>(device: &D, index: [u32; 4], own: Option<&[f64]>, cols: usize) -> Result<Vec<f64>> {
    small_of(device, 5, index, own, cols)
}

/// The same of a table of `n_table` rows.
fn small_of<D: Device>(
    device: &D,
    n_table: usize,
    index: [u32; 4],
    own: Option<&[f64]>,
    cols: usize,
) -> Result<Vec<f64>> {
    let values = |values: &[f64]| values.iter().map(|&v| D::Scalar::from_f64(v)).collect::<Vec<_>>();
    let table = device.upload(&(0..2 * n_table).map(|v| v as f32).collect::<Vec<_>>())?;
    let (index, own) = (device.upload(&index)?, own.map(|own| device.upload(&values(own))).transpose()?);
    let (indptr, indices) = (device.upload(&[0u32, 2, 2])?, device.upload(&[2u32, 1])?);
    let rows = IndexedRows { table: D::view(&table), n_table, index: D::view(&index) };
    let (indptr, indices) = (D::view(&indptr), D::view(&indices));
    let csr = Csr { n_rows: 2, n_cols: 4, indptr, indices, edge: None, longest_row: None };
    let mut out = device.upload(&vec![D::Scalar::from_f64(-1.0); 2 * cols])?;
    let to = MatrixMut::from_view(D::view_mut(&mut out), 2, cols)?;
    device.gather_aggregate(rows, csr, Weights::ones(), own.as_ref().map(D::view), to)?;
    Ok(to_f64(&device.download(D::view(&out))?))
}

/// Also of a source that no edge has.
fn gather_aggregate_out_of_range<D: Device>(device: &D) {
    for position in 0..4 {
        for value in [5, u32::MAX] {
            let mut index = [4, 0, 3, 1];
            index[position] = value;
            let error = small(device, index, None, 4).unwrap_err();
            let Error::IndexOutOfRange { position: found, value: of, limit: 5, .. } = error else {
                panic!("{error}")
            };
            assert_eq!((found, of), (position as u64, i64::from(value)));
        }
    }
    let error = small_of(device, 0, [0; 4], None, 4).unwrap_err();
    assert!(matches!(error, Error::IndexOutOfRange { value: 0, limit: 0, .. }), "{error}");
}

fn gather_aggregate_wrong_shapes<D: Device>(device: &D) {
    let index = [4, 0, 3, 1];
    assert_eq!(small(device, index, None, 4).unwrap(), [8.0, 9.0, 6.0, 8.0, 0.0, 1.0, 0.0, 0.0]);
    assert_eq!(small(device, index, Some(&[0.5, 2.0]), 2).unwrap(), [10.0, 12.5, 0.0, 2.0]);
    assert!(small(device, index, None, 5).is_err(), "an odd number of columns");
    assert!(small(device, index, None, 2).is_err(), "columns that are not those of the table");
    assert!(small(device, index, Some(&[1.0]), 2).is_err(), "a factor too few");
    assert!(small(device, index, Some(&[1.0, 1.0]), 4).is_err(), "columns for rows of their own");
}
