//! R-GCN against the outputs and gradients of another library, in f64 and f32.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use cohop::block::Block;
use cohop::device::Scalar;
use cohop::nn::{Decomposition, Input, Layer, Parameters, Pass, Rgcn};
use cohop::tape::Tape;
use cohop::tensor::Tensor;

use crate::common::{self, Fresh, assert_close, on_devices};
use crate::npz;

/// Number of relations of the files; relation 2 has no edges.
const N_RELATIONS: usize = 4;

/// All arrays of a file, row after row.
struct Golden {
    floats: HashMap<String, Vec<f64>>,
    whole: HashMap<String, Vec<i64>>,
}

impl Golden {
    fn read(path: &Path) -> Self {
        let (mut floats, mut whole) = (HashMap::new(), HashMap::new());
        for name in npz::names(path) {
            let array = npz::array(path, &name);
            if array.is_float() {
                floats.insert(name, array.floats());
            } else {
                whole.insert(name, array.integers());
            }
        }
        Golden { floats, whole }
    }

    fn number(&self, name: &str) -> usize {
        self.whole[name][0] as usize
    }
}

/// Panics unless all values agree up to a share of the largest one.
#[track_caller]
fn check_values<S: Scalar>(what: &str, actual: &[S], expected: &[f64]) {
    let tolerance = if size_of::<S>() == 4 { 1e-4 } else { 1e-6 };
    let largest = expected.iter().fold(1e-12f64, |m, v| m.max(v.abs()));
    assert_close(what, actual, expected, |_, _| tolerance * largest);
}

/// Runs our layer on the file's input and parameters, and compares the output and every gradient.
fn compare<D: Fresh>(golden: &Golden, decomposition: Decomposition, names: &[(&str, &str)]) {
    let device = D::fresh();
    let narrow = |values: &[f64]| values.iter().map(|&v| D::Scalar::from_f64(v)).collect::<Vec<D::Scalar>>();
    let (n_dst, n_src) = (golden.number("n_dst"), golden.number("n_src"));
    let mut indptr = vec![0u32; n_dst + 1];
    golden.whole["dst"].iter().for_each(|&t| indptr[t as usize + 1] += 1);
    (0..n_dst).for_each(|t| indptr[t + 1] += indptr[t]);
    let indices: Vec<u32> = golden.whole["src"].iter().map(|&s| s as u32).collect();
    let types: Vec<u16> = golden.whole["edge_type"].iter().map(|&r| r as u16).collect();
    assert!(!types.contains(&2), "a relation without edges");
    let block = Block::from_csr(&device, n_src, &indptr, &indices).unwrap();
    let block = Arc::new(block.with_edge_types(device.upload(&types).unwrap()).unwrap());

    let x = &golden.floats["x_src"];
    let (in_dim, out_dim) = (x.len() / n_src, golden.floats["out"].len() / n_dst);
    let mut parameters = Parameters::new(0);
    let layer =
        Rgcn::new(&device, &mut parameters, 0, N_RELATIONS, [in_dim, out_dim], decomposition, false).unwrap();
    let ids: Vec<_> = names
        .iter()
        .map(|&(ours, theirs)| (parameters.find(&format!("layers.0.{ours}")).unwrap(), theirs))
        .collect();
    assert_eq!(ids.len(), parameters.len(), "every parameter is compared");
    for &(id, theirs) in &ids {
        let [rows, cols] = parameters.get(id).value.shape();
        let value = narrow(&golden.floats[&format!("param.{theirs}")]);
        parameters.set(id, Tensor::from_slice(&device, rows, cols, &value).unwrap()).unwrap();
    }

    let tape = Tape::training(&device, 0);
    let leaf = tape.leaf(Tensor::from_slice(&device, n_src, in_dim, &narrow(x)).unwrap());
    let pass = Pass { tape: &tape, parameters: &parameters };
    let out = layer.forward(&pass, &block, &Input::Dense(leaf), None).unwrap();
    check_values("out", &tape.value(out).to_vec(&device).unwrap(), &golden.floats["out"]);
    let cotangent =
        Tensor::from_slice(&device, n_dst, out_dim, &narrow(&golden.floats["cotangent"])).unwrap();
    let loss = tape.dot(out, cotangent).unwrap();
    let gradients = tape.backward(loss).unwrap();
    let of = |gradient: Option<&Tensor<D>>| gradient.unwrap().to_vec(&device).unwrap();
    check_values("gradient of x", &of(gradients.of(leaf)), &golden.floats["grad.x_src"]);
    for &(id, theirs) in &ids {
        let expected = &golden.floats[&format!("grad.param.{theirs}")];
        check_values(&format!("gradient of {theirs}"), &of(gradients.of_parameter(id)), expected);
    }
}

fn check(file: &str, decomposition: Decomposition, weights: &[(&str, &str)]) {
    let Some(path) = common::shared(Path::new("golden").join(file)) else { return };
    let golden = Golden::read(&path);
    let names: Vec<(&str, &str)> =
        weights.iter().copied().chain([("root", "root"), ("bias", "bias")]).collect();
    on_devices!(compare, &golden, decomposition, &names);
}

#[test]
fn full_matrices() {
    check("rgcn_full.npz", Decomposition::Full, &[("weight", "weight")]);
}

#[test]
fn bases() {
    let names = [("bases", "weight"), ("coefficients", "comp")];
    check("rgcn_basis.npz", Decomposition::Basis(2), &names);
}

#[test]
fn block_diagonal_matrices() {
    check("rgcn_blockdiag.npz", Decomposition::BlockDiagonal(2), &[("blocks", "weight")]);
}
