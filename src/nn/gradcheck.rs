//! Gradient-check cases of the layers: inputs and all parameters.

use super::{Gcn, Gin, GraphSage, Input, Layer, ParameterId, Parameters, Pass};
use crate::device::Cpu;
use crate::error::Result;
use crate::tape::Aggregate;
use crate::tape::gradcheck::{Case, Report, Shape, check, random, random_block};

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
    ]
}

fn layer(
    device: &Device,
    shape: Shape,
    seed: u64,
    make: impl Fn(&mut Parameters<Device>) -> Result<Box<dyn Layer<Device>>>,
) -> Result<Report> {
    let block = random_block(device, shape, seed)?;
    let mut parameters = Parameters::new(seed);
    let layer = make(&mut parameters)?;
    // Zero biases and unit gains would hide mistakes in their gradients.
    let ids: Vec<(ParameterId, bool)> = parameters.iter().map(|(id, p)| (id, p.trainable)).collect();
    let mut inputs = vec![random(device, shape.n_src, shape.dim, seed)?];
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
        layer.forward(&pass, &block, &Input::Dense(vars[0]))
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
