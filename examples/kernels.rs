//! Kernels on one's own arrays: no graph, no tape, nothing copied.
//!
//! `cargo run --release --example kernels`

use cohop::prelude::*;

pub(crate) fn main() -> Result<()> {
    // A graph as somebody else has it: in-edges by destination. 0 ← 1, 0 ← 2, 1 ← 2, 3 ← 0.
    let indptr: Vec<u32> = vec![0, 2, 3, 3, 4];
    let indices: Vec<u32> = vec![1, 2, 2, 0];
    let x: Vec<f32> = vec![1.0, 10.0, 2.0, 20.0, 3.0, 30.0, 4.0, 40.0]; // [4, 2]

    let device = Cpu::<f32>::new();
    // Checked once: offsets that fall or a column out of range are errors here, and cannot reach a kernel.
    let a = Csr::new(&indptr, &indices, 4)?;
    let features = Matrix::new(&x, 4, 2)?;

    // SpMM: the mean over each vertex's in-edges. A vertex without any gets 0.
    let mut inverse_degree = vec![0.0; 4];
    device.inverse_degree(&indptr, 0.0, &mut inverse_degree)?;
    let mut mean = vec![0.0; 8];
    let weights = Weights::per_row(&inverse_degree);
    device.spmm(a, weights, features, MatrixMut::new(&mut mean, 4, 2)?, Write::Assign)?;
    println!("means: {mean:?}");
    assert_eq!(mean, [2.5, 25.0, 3.0, 30.0, 0.0, 0.0, 1.0, 10.0]);

    // SDDMM: for each edge the product of its two ends' rows.
    let mut scores = vec![0.0; indices.len()];
    device.sddmm_dot(a, features, features, 1, &mut scores, Write::Assign)?; // one head
    println!("scores: {scores:?}");
    assert_eq!(scores, [202.0, 303.0, 606.0, 404.0]);

    // Slicing: rows of a table by index.
    let mut rows = vec![0.0; 4];
    device.gather(&x, 4, &[3, 1], MatrixMut::new(&mut rows, 2, 2)?)?;
    assert_eq!(rows, [4.0, 40.0, 2.0, 20.0]);

    // Mistakes are errors that name the array, its value and what was expected.
    if let Err(error) = Csr::<Cpu>::new(&[0, 1], &[7], 4) {
        println!("a column out of range: {error}");
    }
    if let Err(error) = device.gather(&x, 4, &[4], MatrixMut::new(&mut rows[..2], 1, 2)?) {
        println!("a row out of range: {error}");
    }
    Ok(())
}
