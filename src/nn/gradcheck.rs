//! Gradient checks of layers, with respect to their inputs and all parameters.

use std::sync::Arc;

use super::{
    Aggregator, Decomposition, Gat, Gatv2, Gcn, Gin, GraphSage, Heads, Input, Layer, ParameterId, Parameters,
    Pass, Rgat, RgatOptions, Rgcn, SageRi, SageRiHead,
};
use crate::batch::OneHot;
use crate::block::Block;
use crate::device::{Activation, Device};
use crate::error::Result;
use crate::tape::gradcheck::{
    Case, Report, Shape, check, random, random_block, random_typed_block, random_weighted_block,
    random_weights,
};
use crate::tape::{Aggregate, AttentionOptions, Var};

/// One case for every layer, in both orders of aggregation and transformation where there are two.
pub fn layers<D: Device<Scalar = f64>>() -> Vec<Case<D>> {
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
            name: "GraphSAGE, sum",
            run: |d, s, z| {
                layer(d, s, z, |p| {
                    Ok(Box::new(GraphSage::new(d, p, 0, s.dim, s.dim)?.with_aggregator(Aggregator::Sum)))
                })
            },
        },
        Case {
            name: "GraphSAGE, max",
            run: |d, s, z| {
                layer(d, s, z, |p| {
                    Ok(Box::new(GraphSage::new(d, p, 0, s.dim, 2)?.with_aggregator(Aggregator::Max)))
                })
            },
        },
        Case {
            name: "GAT, concatenated heads",
            run: |d, s, z| {
                layer(d, s, z, |p| {
                    Ok(Box::new(Gat::new(d, p, 0, s.dim, 2, attention(3), Heads::Concatenate)?))
                })
            },
        },
        Case {
            name: "GAT, one head",
            run: |d, s, z| {
                layer(d, s, z, |p| Ok(Box::new(Gat::new(d, p, 0, s.dim, 1, attention(1), Heads::Mean)?)))
            },
        },
        Case {
            name: "GATv2, mean of heads",
            run: |d, s, z| {
                layer(d, s, z, |p| Ok(Box::new(Gatv2::new(d, p, 0, s.dim, 3, attention(2), Heads::Mean)?)))
            },
        },
        Case { name: "GraphSAGE-RI, first layer and head", run: sage_ri },
        Case {
            name: "GraphSAGE-RI, later layer",
            run: |d, s, z| layer(d, s, z, |p| Ok(Box::new(SageRi::new(d, p, 1, s.dim, s.dim, 0.3)?))),
        },
        Case {
            name: "GIN, transformed first",
            run: |d, s, z| layer(d, s, z, |p| Ok(Box::new(Gin::new(d, p, 0, s.dim, 1, 2)?))),
        },
        Case {
            name: "GraphSAGE, weighted mean",
            run: |d, s, z| weighted(d, s, z, |p| Ok(Box::new(GraphSage::new(d, p, 0, s.dim, s.dim + 1)?))),
        },
        Case {
            name: "GraphSAGE, weighted sum, transformed first",
            run: |d, s, z| {
                weighted(d, s, z, |p| {
                    Ok(Box::new(GraphSage::new(d, p, 0, s.dim, s.dim - 1)?.with_aggregator(Aggregator::Sum)))
                })
            },
        },
        Case {
            name: "GCN, weighted, symmetric",
            run: |d, s, z| {
                weighted(d, s, z, |p| Ok(Box::new(Gcn::new(d, p, 0, s.dim, s.dim, Aggregate::Symmetric)?)))
            },
        },
        Case {
            name: "GCN, weighted mean",
            run: |d, s, z| {
                weighted(d, s, z, |p| Ok(Box::new(Gcn::new(d, p, 0, s.dim, s.dim, Aggregate::MeanWithSelf)?)))
            },
        },
        Case {
            name: "GIN, weighted",
            run: |d, s, z| weighted(d, s, z, |p| Ok(Box::new(Gin::new(d, p, 0, s.dim, 4, 2)?))),
        },
        Case { name: "R-GCN, weighted", run: |d, s, z| rgcn_weighted(d, s, z, Some(s.dim)) },
        Case { name: "R-GCN, weighted, one-hot", run: |d, s, z| rgcn_weighted(d, s, z, None) },
        Case { name: "R-GCN", run: |d, s, z| rgcn(d, s, z, 3, Decomposition::Full) },
        Case { name: "R-GCN, one relation", run: |d, s, z| rgcn(d, s, z, 1, Decomposition::Full) },
        Case { name: "R-GCN, bases", run: |d, s, z| rgcn(d, s, z, 4, Decomposition::Basis(2)) },
        Case { name: "R-GCN, blocks", run: |d, s, z| rgcn(d, s, z, 3, Decomposition::BlockDiagonal(s.dim)) },
        Case { name: "R-GAT", run: |d, s, z| rgat(d, s, z, 3, Heads::Concatenate) },
        Case { name: "R-GAT, one relation, mean of heads", run: |d, s, z| rgat(d, s, z, 1, Heads::Mean) },
        Case { name: "R-GAT, one-hot", run: rgat_one_hot },
        Case { name: "R-GCN, one-hot", run: |d, s, z| rgcn_one_hot(d, s, z, Decomposition::Full) },
        Case { name: "R-GCN, one-hot, bases", run: |d, s, z| rgcn_one_hot(d, s, z, Decomposition::Basis(2)) },
    ]
}

fn rgcn<D: Device<Scalar = f64>>(
    device: &D,
    s: Shape,
    seed: u64,
    n_relations: usize,
    d: Decomposition,
) -> Result<Report> {
    let block = random_typed_block(device, s, n_relations, seed)?;
    let shape = [s.dim, 2 * s.dim];
    check_layer(device, &block, Some(s.dim), seed, |p| {
        Ok(Box::new(Rgcn::new(device, p, 0, n_relations, shape, d, n_relations == 4)?))
    })
}

fn rgcn_weighted<D: Device<Scalar = f64>>(
    device: &D,
    s: Shape,
    seed: u64,
    dim: Option<usize>,
) -> Result<Report> {
    let typed = random_typed_block(device, s, 3, seed)?;
    let csr = typed.csr();
    let (indptr, indices) = (device.download(csr.indptr)?, device.download(csr.indices)?);
    let types = typed.edge_type().map(|types| device.download(types)).transpose()?.unwrap_or_default();
    let block = Block::from_csr(device, s.n_src, &indptr, &indices)?
        .with_edge_weights(device, device.upload(&random_weights(s.n_edge, seed))?)?
        .with_edge_types(device.upload(&types)?)?;
    check_layer(device, &Arc::new(block), dim, seed, |p| {
        let shape = [dim.unwrap_or(s.n_src), 2];
        Ok(Box::new(Rgcn::new(device, p, 0, 3, shape, Decomposition::Full, false)?))
    })
}

fn rgat<D: Device<Scalar = f64>>(
    device: &D,
    s: Shape,
    seed: u64,
    n_relations: usize,
    heads: Heads,
) -> Result<Report> {
    let block = random_typed_block(device, s, n_relations, seed)?;
    let options = RgatOptions { n_heads: 2, heads, slope: 0.2 };
    check_layer(device, &block, Some(s.dim), seed, |p| {
        let shape = [s.dim, 3];
        Ok(Box::new(Rgat::new(device, p, 0, n_relations, shape, options, Decomposition::Full)?))
    })
}

fn rgat_one_hot<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64) -> Result<Report> {
    let block = random_typed_block(device, s, 3, seed)?;
    let options = RgatOptions { n_heads: 1, heads: Heads::Concatenate, slope: 0.2 };
    check_layer(device, &block, None, seed, |p| {
        let shape = [s.n_src, 2];
        Ok(Box::new(Rgat::new(device, p, 0, 3, shape, options, Decomposition::Basis(2))?))
    })
}

fn rgcn_one_hot<D: Device<Scalar = f64>>(
    device: &D,
    s: Shape,
    seed: u64,
    d: Decomposition,
) -> Result<Report> {
    let block = random_typed_block(device, s, 3, seed)?;
    check_layer(device, &block, None, seed, |p| {
        Ok(Box::new(Rgcn::new(device, p, 0, 3, [s.n_src, 2], d, true)?))
    })
}

fn attention(heads: usize) -> AttentionOptions {
    AttentionOptions { heads, slope: 0.2, self_loop: true, dropout: 0.3 }
}

fn sage_ri<D: Device<Scalar = f64>>(device: &D, shape: Shape, seed: u64) -> Result<Report> {
    let block = random_block(device, shape, seed)?;
    let mut parameters = Parameters::new(seed);
    let layer = SageRi::new(device, &mut parameters, 0, shape.dim, 3, 0.3)?;
    let head = SageRiHead::new(device, &mut parameters, &[shape.dim, 3], 2)?;
    check_parameters(device, [shape.n_src, shape.dim], seed, &parameters, |pass, x| {
        let h = layer.forward(pass, &block, &Input::Dense(x), None)?;
        head.forward(pass, shape.n_dst, &[Input::Dense(x), Input::Dense(h)])
    })
}

fn layer<D: Device<Scalar = f64>>(
    device: &D,
    shape: Shape,
    seed: u64,
    make: impl Fn(&mut Parameters<D>) -> Result<Box<dyn Layer<D>>>,
) -> Result<Report> {
    check_layer(device, &random_block(device, shape, seed)?, Some(shape.dim), seed, make)
}

fn weighted<D: Device<Scalar = f64>>(
    device: &D,
    shape: Shape,
    seed: u64,
    make: impl Fn(&mut Parameters<D>) -> Result<Box<dyn Layer<D>>>,
) -> Result<Report> {
    check_layer(device, &random_weighted_block(device, shape, seed)?, Some(shape.dim), seed, make)
}

/// Checks a layer of your own over `block`, with respect to `dim` random features of each source and to all trainable
/// parameters, which are random too. Without `dim` the input is the sources' one-hot ids. `make` adds the layer's
/// parameters.
///
/// Errors: those of `make` and of the layer.
pub fn check_layer<D: Device<Scalar = f64>>(
    device: &D,
    block: &Arc<Block<D>>,
    dim: Option<usize>,
    seed: u64,
    make: impl Fn(&mut Parameters<D>) -> Result<Box<dyn Layer<D>>>,
) -> Result<Report> {
    let mut parameters = Parameters::new(seed);
    let layer = make(&mut parameters)?;
    let n_src = block.n_src();
    check_parameters(device, [n_src, dim.unwrap_or(0)], seed, &parameters, |pass, x| {
        let input = match dim {
            Some(_) => Input::Dense(x),
            None => Input::OneHot(OneHot::new(device.upload(&device.download(block.src())?)?, n_src)),
        };
        layer.forward(pass, block, &input, Some(Activation::LeakyRelu { slope: 0.5 }))
    })
}

/// Checks `forward` of `[n_src, dim]` random features, with respect to these and to all trainable parameters, which are
/// random too. For layers over blocks of your own, and for whole models.
///
/// Errors: those of `forward`.
pub fn check_parameters<D: Device<Scalar = f64>>(
    device: &D,
    [n_src, dim]: [usize; 2],
    seed: u64,
    parameters: &Parameters<D>,
    forward: impl Fn(&Pass<'_, D>, Var) -> Result<Var>,
) -> Result<Report> {
    // Zero biases and unit gains would hide mistakes in their gradients.
    let ids: Vec<(ParameterId, bool)> = parameters.iter().map(|(id, p)| (id, p.trainable)).collect();
    let mut inputs = vec![random(device, n_src, dim, seed)?];
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
            tape.bind_parameter(*id, var);
        }
        forward(&Pass { tape, parameters }, vars[0])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::test_kernels::test_f64_devices;

    test_f64_devices! { every_layer_agrees_with_finite_differences }

    fn every_layer_agrees_with_finite_differences<D: Device<Scalar = f64>>(device: &D) {
        for case in layers() {
            let report = case.run_all(device, 2).unwrap();
            assert!(report.passed(), "{}: {report:?}", case.name);
            assert!(report.derivatives > 0, "{} compared nothing", case.name);
        }
    }
}
