//! Gradient-check cases of the layers: inputs and all parameters.

use std::sync::Arc;

use super::{Decomposition, Gcn, Gin, GraphSage, Input, Layer, OneHot, ParameterId, Parameters, Pass, Rgcn};
use crate::block::Block;
use crate::device::Cpu;
use crate::error::Result;
use crate::tape::Aggregate;
use crate::tape::gradcheck::{Case, Report, Shape, check, random, random_block, random_typed_block};

type Device = Cpu<f64>;

/// One case for every layer, in both orders of aggregation and transformation where there are two.
pub fn layers() -> Vec<Case> {
    vec![
        Case {
            name: "GraphSAGE, aggregated first",
            run: |d, s, z| layer(d, s, z, |p| Ok(Box::new(GraphSage::new(d, p, 0, s.dim, s.dim + 1)?))),
        },
        Case {
            name: "GraphSAGE, transformed first",
            run: |d, s, z| layer(d, s, z, |p| Ok(Box::new(GraphSage::new(d, p, 0, s.dim, s.dim - 1)?))),
        },
        Case {
            name: "GCN, symmetric",
            run: |d, s, z| {
                layer(d, s, z, |p| Ok(Box::new(Gcn::new(d, p, 0, s.dim, s.dim + 1, Aggregate::Symmetric)?)))
            },
        },
        Case {
            name: "GCN, mean, transformed first",
            run: |d, s, z| {
                layer(d, s, z, |p| {
                    Ok(Box::new(Gcn::new(d, p, 0, s.dim, s.dim - 1, Aggregate::MeanWithSelf)?))
                })
            },
        },
        Case {
            name: "GIN",
            run: |d, s, z| layer(d, s, z, |p| Ok(Box::new(Gin::new(d, p, 0, s.dim, 4, 2)?))),
        },
        Case {
            name: "GIN, transformed first",
            run: |d, s, z| layer(d, s, z, |p| Ok(Box::new(Gin::new(d, p, 0, s.dim, 1, 2)?))),
        },
        Case { name: "R-GCN", run: |d, s, z| rgcn(d, s, z, 3, Decomposition::Full) },
        Case { name: "R-GCN, one relation", run: |d, s, z| rgcn(d, s, z, 1, Decomposition::Full) },
        Case { name: "R-GCN, bases", run: |d, s, z| rgcn(d, s, z, 4, Decomposition::Basis(2)) },
        Case { name: "R-GCN, blocks", run: |d, s, z| rgcn(d, s, z, 3, Decomposition::BlockDiagonal(s.dim)) },
        Case { name: "R-GCN, one-hot", run: |d, s, z| rgcn_one_hot(d, s, z, Decomposition::Full) },
        Case { name: "R-GCN, one-hot, bases", run: |d, s, z| rgcn_one_hot(d, s, z, Decomposition::Basis(2)) },
    ]
}

fn rgcn(device: &Device, s: Shape, seed: u64, n_relations: usize, d: Decomposition) -> Result<Report> {
    let block = random_typed_block(device, s, n_relations, seed)?;
    let shape = [s.dim, 2 * s.dim];
    over(device, &block, Some(s.dim), seed, |p| Ok(Box::new(Rgcn::new(device, p, 0, n_relations, shape, d)?)))
}

fn rgcn_one_hot(device: &Device, s: Shape, seed: u64, d: Decomposition) -> Result<Report> {
    let block = random_typed_block(device, s, 3, seed)?;
    over(device, &block, None, seed, |p| Ok(Box::new(Rgcn::new(device, p, 0, 3, [s.n_src, 2], d)?)))
}

fn layer(
    device: &Device,
    shape: Shape,
    seed: u64,
    make: impl Fn(&mut Parameters<Device>) -> Result<Box<dyn Layer<Device>>>,
) -> Result<Report> {
    over(device, &random_block(device, shape, seed)?, Some(shape.dim), seed, make)
}

/// Checks a layer over a block with `dim` features, or (without) over the sources' one-hot ids.
fn over(
    device: &Device,
    block: &Arc<Block<Device>>,
    dim: Option<usize>,
    seed: u64,
    make: impl Fn(&mut Parameters<Device>) -> Result<Box<dyn Layer<Device>>>,
) -> Result<Report> {
    let mut parameters = Parameters::new(seed);
    let layer = make(&mut parameters)?;
    // Zero biases and unit gains would hide mistakes in their gradients.
    let ids: Vec<(ParameterId, bool)> = parameters.iter().map(|(id, p)| (id, p.trainable)).collect();
    let mut inputs = vec![random(device, block.n_src(), dim.unwrap_or(0), seed)?];
    for &(id, trainable) in &ids {
        let [rows, cols] = parameters.get(id).value.shape();
        if trainable {
            inputs.push(random(device, rows, cols, seed + 10 + id.index() as u64)?);
        }
    }
    check(device, &inputs, seed, |tape, vars| {
        // The leaves made by the check stand in for the parameters.
        let trainable = ids.iter().filter(|(_, trainable)| *trainable);
        for ((id, _), &var) in trainable.zip(&vars[1..]) {
            tape.bind_parameter(id.index(), var);
        }
        let pass = Pass { tape, parameters: &parameters };
        let input = match dim {
            Some(_) => Input::Dense(vars[0]),
            None => Input::OneHot(OneHot::new(block.clone(), block.n_src())),
        };
        layer.forward(&pass, block, &input)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layer_agrees_with_finite_differences() {
        let device = Cpu::new();
        for case in layers() {
            let report = case.run_all(&device, 2).unwrap();
            assert!(report.passed(), "{}: {report:?}", case.name);
            assert!(report.derivatives > 0, "{} compared nothing", case.name);
        }
    }
}
