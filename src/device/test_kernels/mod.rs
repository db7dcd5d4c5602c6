//! One test body per kernel, for every device and scalar: each compares with a naive form in f64.
//!
//! Buffers have guards at both ends that must not change, and outputs that are to be overwritten hold NaN beforehand.

mod attention;
mod batch_norm;
mod elementwise;
mod exchange;
#[cfg(feature = "emulate")]
mod failures;
mod gather_aggregate;
mod gemm;
mod loss;
mod naive;
mod narrow;
mod optimizer;
mod relation;
mod rows;
mod sample;
mod sparse;
mod sparse_hubs;
mod sparse_not_finite;
mod threads;

use std::fmt::Debug;

use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

use crate::device::{Cpu, Element, Matrix, MatrixMut, Scalar, Storage, Write};
pub(crate) use crate::testing::Random;
use crate::testing::assert_close;

/// Makes a test of each body for each device.
macro_rules! test_devices {
    ($($body:ident)*) => {
        test_devices!(@ cpu_f32, $crate::device::test_kernels::on_cpu::<f32>, $($body)*);
        test_devices!(@ cpu_f64, $crate::device::test_kernels::on_cpu::<f64>, $($body)*);
        #[cfg(any(feature = "cuda", feature = "emulate"))]
        test_devices!(@ cuda_f32, $crate::device::cuda::tests::on_cuda::<f32>, $($body)*);
        #[cfg(any(feature = "cuda", feature = "emulate"))]
        test_devices!(@ cuda_f64, $crate::device::cuda::tests::on_cuda::<f64>, $($body)*);
        /// For [`failures`](super::failures).
        #[cfg(feature = "emulate")]
        #[allow(dead_code)]
        pub(super) const BODIES: &[super::NamedBody] = &[$((stringify!($body), $body)),*];
    };
    (@ $name:ident, $run:expr, $($body:ident)*) => {
        mod $name {
            $(
                #[test]
                fn $body() {
                    $run(super::$body);
                }
            )*
        }
    };
}
pub(crate) use test_devices;

/// The same for the devices that compute in `f64`.
macro_rules! test_f64_devices {
    ($($body:ident)*) => {
        $crate::device::test_kernels::test_devices!(
            @ cpu_f64, $crate::device::test_kernels::on_cpu::<f64>, $($body)*
        );
        #[cfg(any(feature = "cuda", feature = "emulate"))]
        $crate::device::test_kernels::test_devices!(
            @ cuda_f64, $crate::device::cuda::tests::on_cuda::<f64>, $($body)*
        );
    };
}
pub(crate) use test_f64_devices;

pub(crate) use naive::Typed;

/// A test's name and body.
#[cfg(feature = "emulate")]
type NamedBody = (&'static str, fn(&crate::device::Cuda<f32>));

/// Runs `body` on the CPU.
pub(crate) fn on_cpu<S: Scalar>(body: impl Fn(&Cpu<S>)) {
    body(&Cpu::new());
}

thread_local! {
    /// The most cases that this thread's tests run.
    static MOST_CASES: std::cell::Cell<u32> = const { std::cell::Cell::new(u32::MAX) };
}

/// Runs `body` on values of `strategy`, the same ones every time: 96, or `COHOP_TEST_CASES`.
fn for_cases<T: Debug>(strategy: impl Strategy<Value = T>, body: impl Fn(T)) {
    let cases = std::env::var("COHOP_TEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(96);
    let cases = MOST_CASES.get().min(cases);
    let mut config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    if MOST_CASES.get() < u32::MAX {
        // Tests that set the limit expect failures, which need not be simplified.
        config.max_shrink_iters = 0;
    }
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let outcome = runner.run(&strategy, |value| {
        body(value);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

/// Numbers of columns: every tail of a vector's width, and usual widths.
fn dims() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0..=70usize, 1 => Just(100), 1 => Just(128), 1 => Just(256)]
}

fn writes() -> impl Strategy<Value = Write> {
    prop_oneof![Just(Write::Assign), Just(Write::Add)]
}

impl Random {
    /// In [-1, 1), or an integer in -8..=8: sums of those are exact in any order.
    fn value<S: Scalar>(&mut self, integers: bool) -> S {
        let uniform = self.uniform();
        S::from_f64(if integers { (8.5 * uniform).trunc() } else { uniform })
    }

    pub(crate) fn values<S: Scalar>(&mut self, len: usize, integers: bool) -> Vec<S> {
        (0..len).map(|_| self.value(integers)).collect()
    }

    fn shuffled(&mut self, len: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..len as u32).collect();
        for i in (1..len).rev() {
            order.swap(i, self.index(i + 1));
        }
        order
    }
}

/// A value of which all bits are set: NaN as a float.
fn poison<T: Element>() -> T {
    bytemuck::pod_read_unaligned(&vec![0xff; size_of::<T>()])
}

/// Elements on a device between two guards.
struct Guarded<D: Storage, T: Element = <D as Storage>::Scalar> {
    device: D,
    buffer: D::Buffer<T>,
    len: usize,
}

/// Elements of a guard: for most lengths the elements are aligned, as vector loads need it; for some they are not.
fn guard(len: usize) -> usize {
    if len % 5 == 1 { 19 } else { 16 }
}

impl<D: Storage, T: Element> Guarded<D, T> {
    fn new(device: &D, values: &[T]) -> Self {
        let guard = guard(values.len());
        let mut all = vec![poison::<T>(); guard];
        all.extend(values);
        all.extend(vec![poison::<T>(); guard]);
        Guarded { device: device.clone(), buffer: device.upload(&all).unwrap(), len: values.len() }
    }

    fn poisoned(device: &D, len: usize) -> Self {
        Guarded::new(device, &vec![poison(); len])
    }

    fn view(&self) -> D::View<'_, T> {
        D::slice(D::view(&self.buffer), guard(self.len)..guard(self.len) + self.len)
    }

    fn view_mut(&mut self) -> D::ViewMut<'_, T> {
        D::slice_mut(D::view_mut(&mut self.buffer), guard(self.len)..guard(self.len) + self.len)
    }

    /// The elements, after checking the guards.
    fn read(&self) -> Vec<T> {
        let all = self.device.download(D::view(&self.buffer)).unwrap();
        let guard = guard(self.len);
        for (i, value) in all.iter().enumerate() {
            let is_guard = i < guard || i >= guard + self.len;
            let is_intact = bytemuck::bytes_of(value).iter().all(|&byte| byte == 0xff);
            assert!(
                !is_guard || is_intact,
                "guard {} was overwritten with {value:?}",
                i as isize - guard as isize
            );
        }
        all[guard..guard + self.len].to_vec()
    }
}

impl<D: Storage> Guarded<D> {
    /// An output for `write`: poisoned, or with values to be added to; and those values, or zeros.
    fn output(device: &D, len: usize, write: Write, random: &mut Random, integers: bool) -> (Self, Vec<f64>) {
        match write {
            Write::Assign => (Guarded::poisoned(device, len), vec![0.0; len]),
            Write::Add => {
                let values = random.values::<D::Scalar>(len, integers);
                (Guarded::new(device, &values), to_f64(&values))
            }
        }
    }

    fn matrix(&self, rows: usize, cols: usize) -> Matrix<'_, D> {
        Matrix::from_view(self.view(), rows, cols).unwrap()
    }

    fn matrix_mut(&mut self, rows: usize, cols: usize) -> MatrixMut<'_, D> {
        MatrixMut::from_view(self.view_mut(), rows, cols).unwrap()
    }
}

fn to_f64<S: Scalar>(values: &[S]) -> Vec<f64> {
    values.iter().map(|&v| v.widen_f64()).collect()
}

/// Reference values, and for each the sum of the absolute values that it was added up from: rounding scales with it.
struct Expected {
    values: Vec<f64>,
    magnitudes: Vec<f64>,
    /// What must be added to the values to make them exact sums.
    rounded: Vec<f64>,
    /// Numbers of terms added: rounding of a running sum of n terms grows with √n.
    terms: Vec<f64>,
}

impl Expected {
    /// Starts from what an output held.
    fn from(values: Vec<f64>) -> Self {
        let magnitudes = values.iter().map(|v| v.abs()).collect();
        Expected::scaled(values, magnitudes)
    }

    /// Values whose rounding scales with `magnitudes`.
    fn scaled(values: Vec<f64>, magnitudes: Vec<f64>) -> Self {
        let zeros = vec![0.0; values.len()];
        Expected { rounded: zeros.clone(), terms: zeros, values, magnitudes }
    }

    fn zeros(len: usize) -> Self {
        Expected::from(vec![0.0; len])
    }

    /// Adds, and keeps what rounding takes away (Knuth's two-sum): a sum in f64 of a long row must be better than the
    /// kernel's.
    fn add(&mut self, i: usize, term: f64) {
        let before = self.values[i];
        let sum = before + term;
        let other = sum - before;
        self.rounded[i] += (before - (sum - other)) + (term - other);
        self.values[i] = sum;
        self.magnitudes[i] += term.abs();
        self.terms[i] += 1.0;
    }

    /// Panics unless all values agree up to rounding; or exactly, where arithmetic in integers makes that so.
    #[track_caller]
    fn check<S: Scalar>(&self, actual: &[S], exact: bool) {
        let epsilon = if exact { 0.0 } else { S::epsilon().widen_f64() };
        let sums = self.values.iter().zip(&self.rounded).map(|(value, rounded)| value + rounded);
        assert_close("out", actual, &sums.collect::<Vec<_>>(), |i, expected| {
            let relative = epsilon * (2.0 * self.terms[i].sqrt()).max(64.0);
            relative * (self.magnitudes[i] + expected.abs())
        });
    }
}
