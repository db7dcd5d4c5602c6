//! Dense products in the shapes that training has; throughput is floating-point operations.

use std::hint::black_box;

use crate::support::{Random, assert_close, rounding};
use cohop::device::{Cpu, Gemm, Matrix, MatrixMut, Write};
use criterion::{Criterion, Throughput, criterion_group};

/// `op(a) · b` with `op(a): [m, k]`, `b: [k, n]`.
struct Product {
    a: Vec<f32>,
    b: Vec<f32>,
    m: usize,
    k: usize,
    n: usize,
    transpose_a: bool,
}

impl Product {
    fn new([m, k, n]: [usize; 3], transpose_a: bool) -> Self {
        let mut random = Random(3);
        Product { a: random.values(m * k), b: random.values(k * n), m, k, n, transpose_a }
    }

    fn run(&self, out: &mut [f32]) {
        let &Product { m, k, n, transpose_a, .. } = self;
        let (rows, cols) = if transpose_a { (k, m) } else { (m, k) };
        let a = Matrix::<Cpu>::new(black_box(&self.a[..]), rows, cols).unwrap();
        let b = Matrix::<Cpu>::new(&self.b[..], k, n).unwrap();
        let out = MatrixMut::new(out, m, n).unwrap();
        Cpu::<f32>::new().gemm(a, transpose_a, b, false, out, Write::Assign).unwrap();
    }

    fn naive(&self) -> Vec<f32> {
        let &Product { m, k, n, transpose_a, .. } = self;
        let a = |i: usize, l: usize| self.a[if transpose_a { l * m + i } else { i * k + l }];
        let element = |i: usize, j: usize| (0..k).map(|l| a(i, l) * self.b[l * n + j]).sum();
        (0..m * n).map(|position| element(position / n, position % n)).collect()
    }
}

fn bench(criterion: &mut Criterion) {
    for transpose_a in [false, true] {
        let small = Product::new([67, 45, 33], transpose_a);
        let mut out = vec![f32::NAN; 67 * 33];
        small.run(&mut out);
        assert_close("out", &out, &small.naive(), rounding);
    }
    let mut group = criterion.benchmark_group("gemm");
    for (name, shape, transpose_a) in [
        ("forward, 100 features", [100_000, 100, 256], false),
        ("forward, 256 features", [100_000, 256, 256], false),
        ("weight gradient", [256, 100_000, 256], true),
        ("first layer of a citation graph", [2700, 1433, 16], false),
        ("its weight gradient", [1433, 2700, 16], true),
        ("a batch of 1024", [1024, 256, 256], false),
    ] {
        let product = Product::new(shape, transpose_a);
        let mut out = vec![0.0; shape[0] * shape[2]];
        group.sample_size(20).throughput(Throughput::Elements(2 * shape.iter().product::<usize>() as u64));
        group.bench_function(name, |bencher| bencher.iter(|| product.run(&mut out)));
    }
}

criterion_group!(benches, bench);
