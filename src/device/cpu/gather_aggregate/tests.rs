//! The pass against the two kernels that it stands for, bit for bit: those are tested against naive loops.

use half::{bf16, f16};
use proptest::prelude::*;

use super::*;
use crate::device::test_kernels::Random;
use crate::device::{Gather, Matrix, Spmm};

/// A block, and factors for all that can have some.
struct Problem<S> {
    n_dst: usize,
    n_src: usize,
    indptr: Vec<u32>,
    indices: Vec<u32>,
    edge: Vec<S>,
    row: Vec<S>,
    column: Vec<S>,
    own: Vec<S>,
}

impl<S: Scalar> Problem<S> {
    fn new(n_dst: usize, n_src: usize, hub: usize, random: &mut Random) -> Self {
        let mut indptr = vec![0];
        let mut indices = Vec::new();
        for t in 0..n_dst {
            let degree = if t == n_dst / 2 { hub } else { random.index(9) };
            indices.extend((0..degree).map(|_| random.index(n_src) as u32));
            indptr.push(indices.len() as u32);
        }
        let mut values = |len| random.values(len, false);
        let (edge, row) = (values(indices.len()), values(n_dst));
        Problem { n_dst, n_src, indptr, edge, row, column: values(n_src), own: values(n_dst), indices }
    }

    fn csr(&self) -> Csr<'_, Cpu<S>> {
        Csr {
            n_rows: self.n_dst,
            n_cols: self.n_src,
            indptr: &self.indptr,
            indices: &self.indices,
            edge: None,
        }
    }

    /// The pass, and the same by a gather and a sparse product.
    fn both<E: FeatureElement>(
        &self,
        table: &[E],
        dim: usize,
        index: &[u32],
        [edge, row, column, own]: [bool; 4],
    ) -> [Vec<S>; 2] {
        let cpu = Cpu::<S>::new();
        let weights = Weights {
            edge: edge.then_some(&self.edge[..]),
            row: row.then_some(&self.row[..]),
            column: column.then_some(&self.column[..]),
        };
        let own = own.then_some(&self.own[..]);
        let cols = if own.is_some() { dim } else { 2 * dim };
        let n_table = 2 * self.n_src;
        let nan = S::from_f64(f64::NAN);
        let mut fused = vec![nan; self.n_dst * cols];
        let out = MatrixMut::new(&mut fused[..], self.n_dst, cols).unwrap();
        let rows = IndexedRows { table, n_table, index };
        cpu.gather_aggregate(rows, self.csr(), weights, own, out).unwrap();

        let (mut x, mut sums) = (vec![nan; self.n_src * dim], vec![nan; self.n_dst * dim]);
        cpu.gather(table, n_table, index, MatrixMut::new(&mut x[..], self.n_src, dim).unwrap()).unwrap();
        let x = Matrix::new(&x[..], self.n_src, dim).unwrap();
        let out = MatrixMut::new(&mut sums[..], self.n_dst, dim).unwrap();
        cpu.spmm(self.csr(), weights, x, out, Write::Assign).unwrap();
        let row = |t: usize| -> Vec<S> {
            let (x, sum) = (&x.data[t * dim..][..dim], &sums[t * dim..][..dim]);
            match own {
                None => [x, sum].concat(),
                Some(own) => x.iter().zip(sum).map(|(&x, &sum)| own[t] * x + sum).collect(),
            }
        };
        [fused, (0..self.n_dst).flat_map(row).collect()]
    }
}

fn check<E: FeatureElement, S: Scalar>(
    [n_dst, extra, dim, hub]: [usize; 4],
    factors: [bool; 4],
    seed: u64,
    element: impl Fn(f32) -> E,
) {
    let mut random = Random(seed);
    let problem = Problem::<S>::new(n_dst, n_dst + extra, hub, &mut random);
    let n_table = 2 * problem.n_src;
    let table: Vec<E> = random.values::<f32>(n_table * dim, false).into_iter().map(element).collect();
    let index: Vec<u32> = (0..problem.n_src).map(|_| random.index(n_table) as u32).collect();
    let [fused, apart] = problem.both(&table, dim, &index, factors);
    assert_eq!(bytemuck::cast_slice::<S, u8>(&fused), bytemuck::cast_slice::<S, u8>(&apart));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_pass_has_the_bits_of_a_gather_and_a_product(
        n_dst in 1..60usize,
        extra in 0..100usize,
        dim in prop_oneof![4 => 0..=70usize, 1 => Just(100), 1 => Just(128), 1 => Just(300)],
        hub in prop_oneof![Just(0usize), Just(65), Just(700)],
        factors in any::<[bool; 4]>(),
        seed in any::<u64>(),
    ) {
        let sizes = [n_dst, extra, dim, hub];
        check::<f32, f32>(sizes, factors, seed, |value| value);
        check::<f16, f32>(sizes, factors, seed, f16::from_f32);
        check::<bf16, f32>(sizes, factors, seed, bf16::from_f32);
        check::<f32, f64>(sizes, factors, seed, |value| value);
        check::<f16, f64>(sizes, factors, seed, f16::from_f32);
    }
}

/// Enough rows that four threads share them.
#[test]
fn any_number_of_threads_gives_the_same_bits() {
    for threads in [1, 4] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            check::<f32, f32>([3000, 500, 40, 20_000], [false, true, true, false], 7, |value| value)
        });
    }
}

#[test]
fn arguments_that_do_not_fit_are_errors() {
    let cpu = Cpu::<f32>::new();
    let problem = Problem::<f32>::new(4, 6, 3, &mut Random(1));
    let table = [1f32; 10 * 3];
    let call = |n_table, index: &[u32], own: Option<&[f32]>, cols: usize| {
        let mut out = vec![0f32; 4 * cols];
        let out = MatrixMut::new(&mut out[..], 4, cols).unwrap();
        cpu.gather_aggregate(
            IndexedRows { table: &table, n_table, index },
            problem.csr(),
            Weights::ones(),
            own,
            out,
        )
    };
    let index = [9, 0, 3, 3, 1, 2];
    call(10, &index, None, 6).unwrap();
    call(10, &index, Some(&problem.own), 3).unwrap();
    assert!(call(10, &index, None, 7).is_err(), "an odd number of columns");
    assert!(call(10, &index, None, 4).is_err(), "columns that are not those of the table");
    assert!(call(10, &index, Some(&problem.own[1..]), 3).is_err(), "a factor too few");
    assert!(call(10, &index[1..], None, 6).is_err(), "an index too few");
    assert!(call(9, &index, None, 6).is_err(), "a shorter table");
    let out_of_range = call(10, &[9, 0, 3, 10, 1, 2], None, 6);
    assert!(matches!(out_of_range, Err(Error::IndexOutOfRange { position: 3, value: 10, limit: 10, .. })));
}
