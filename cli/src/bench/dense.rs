//! Dense products in the shapes of minibatch layers.

use super::Bench;
use super::check::{Values, agree, row};
use super::row::Amount;
use cohop::Result;
use cohop::device::{Device, Write};
use cohop::tensor::Tensor;

pub(super) fn gemm<D: Device<Scalar = f32>>(bench: &mut Bench<'_, D>) -> Result<()> {
    if !bench.wants("gemm_f32") {
        return Ok(());
    }
    let long = if bench.is_full_size() { 100_000 } else { 1_000 };
    product(bench, [long, 100, 256], false)?;
    product(bench, [long, 256, 256], false)?;
    product(bench, [256, long, 256], true)?;
    product(bench, [long / 5, 512, 512], false)
}

/// `op(a) · b` with `op(a): [m, k]`, `b: [k, n]`.
fn product<D: Device<Scalar = f32>>(
    bench: &mut Bench<'_, D>,
    [m, k, n]: [usize; 3],
    transpose: bool,
) -> Result<()> {
    let device = bench.device;
    let [rows, cols] = if transpose { [k, m] } else { [m, k] };
    let (a_values, b_values) = (Values(4), Values(5));
    let a = a_values.tensor(device, rows, cols)?;
    let b = b_values.tensor(device, k, n)?;
    let mut out = Tensor::allocate(device, m, n)?;
    let multiply = |out: &mut Tensor<D>| {
        device.gemm(a.matrix(), transpose, b.matrix(), false, out.make_mut(device)?, Write::Assign)
    };
    multiply(&mut out)?;
    for i in (0..m).step_by(m / 5) {
        let left = |l: usize| a_values.at(if transpose { l * m + i } else { i * k + l });
        let element = |j: usize| (0..k).map(|l| f64::from(left(l)) * f64::from(b_values.at(l * n + j))).sum();
        // Terms have both signs: the rounding error of their sum depends on their number, not on the sum's size.
        let scale = (k as f64).sqrt();
        let expected: Vec<f64> = (0..8).map(element).map(|sum: f64| sum / scale).collect();
        let found: Vec<f32> = row(device, &out, i as u32)?[..8].iter().map(|v| v / scale as f32).collect();
        agree("gemm_f32", &found, &expected)?;
    }
    let name = format!("{m}x{k}*{k}x{n}{}", if transpose { "(TN)" } else { "" });
    let amount = Amount::multiply_adds((m * k * n) as f64);
    bench.time_kernel("gemm_f32", name, amount, || multiply(&mut out))
}
