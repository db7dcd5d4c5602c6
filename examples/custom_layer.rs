//! A layer of one's own in the trainer: dot-product attention over edges that have features.
//!
//! `cargo run --release --example custom_layer`

use std::sync::Arc;

use cohop::nn::{Between, Initializer, Input, Layer, ParameterId, Parameters, Pass, Stack};
use cohop::prelude::*;
use cohop::train::{EvalMode, TrainConfig, Trainer};
use cohop::{data::SbmData, device::Activation, graph::Sbm, tape::Var};

const HEADS: usize = 2;

/// `out_t = W_own x_t + Σ_s softmax_s(⟨W_q x_t, W_k x_s⟩ / √d + W_e e_st) · W_v x_s`, per head.
#[derive(Debug)]
struct DotAttention {
    /// Query, key, value and own: `[in_dim, out_dim]` each; edge: `[edge_dim, heads]`.
    weights: [ParameterId; 5],
    /// `[edges of the graph, edge_dim]`
    edge_features: Tensor<Cpu>,
    out_dim: usize,
}

impl DotAttention {
    fn new(cpu: &Cpu, p: &mut Parameters<Cpu>, i: usize, dims: [usize; 2], e: &Tensor<Cpu>) -> Result<Self> {
        let mut add = |name, shape| p.add(cpu, i, name, shape, Initializer::Glorot);
        let [query, key, value, own] = ["query", "key", "value", "own"].map(|name| add(name, dims));
        let weights = [query?, key?, value?, own?, add("edge", [e.cols(), HEADS])?];
        Ok(DotAttention { weights, edge_features: e.clone(), out_dim: dims[1] })
    }
}

impl Layer<Cpu> for DotAttention {
    fn needs_edge_ids(&self) -> bool {
        true
    }

    fn forward(
        &self,
        pass: &Pass<'_, Cpu>,
        block: &Arc<Block<Cpu>>,
        x: &Input<Cpu>,
        activation: Option<Activation>,
    ) -> Result<Var> {
        let (tape, n_dst, n_src) = (pass.tape, block.n_dst(), block.n_src());
        let [w_query, w_key, w_value, w_own, w_edge] = self.weights.map(|id| pass.parameter(id));
        // Inputs of every kind can be multiplied by a weight: dense, sparse, and one-hot ids.
        let query = x.project(pass, n_dst, w_query, None, None)?;
        let key = x.project(pass, n_src, w_key, None, None)?;
        let factor = (self.out_dim as f64).powf(-0.5);
        let scores = tape.scale(tape.edge_dot(block, query, key, HEADS)?, factor)?;
        let edges = tape.edge_features(block, self.edge_features.view(), self.edge_features.shape())?;
        let scores = tape.add(scores, tape.linear(&[(edges, w_edge)], None, None)?)?; // [n_edge, heads]
        let value = x.project(pass, n_src, w_value, None, None)?;
        let messages = tape.aggregate_heads(block, value, tape.edge_softmax(block, scores)?)?;
        let out = tape.add(messages, x.project(pass, n_dst, w_own, None, None)?)?;
        activation.map_or(Ok(out), |f| tape.activate(out, f))
    }
}

pub(crate) fn main() -> Result<()> {
    let graph = Sbm { n_vertices: 3000, ..SbmData::default().graph };
    let dataset = Arc::new(SbmData { graph, ..SbmData::default() }.generate()?);
    let (cpu, graph) = (Cpu::new(), &dataset.graph);
    // One feature for each edge, by its number: one over the destination's in-degree.
    let degrees = (0..graph.n_vertices() as u32).map(|t| graph.in_degree(t) as usize);
    let features: Vec<f32> = degrees.flat_map(|n| vec![1.0 / n as f32; n]).collect();
    let edges = Tensor::from_slice(&cpu, features.len(), 1, &features)?;
    let (mut p, dim, n_classes) = (Parameters::new(0), dataset.features.dim(), dataset.n_classes);
    let first = DotAttention::new(&cpu, &mut p, 0, [dim, 32], &edges)?;
    let last = DotAttention::new(&cpu, &mut p, 1, [32, n_classes], &edges)?;
    let model = Stack::from_layers(p, vec![Box::new(first), Box::new(last)], n_classes, Between::default())?;
    let config = TrainConfig { batch_size: Some(256), eval: EvalMode::Sampled, ..TrainConfig::default() };
    let outcome = Trainer::with_model(cpu, dataset, config, model)?.fit(&mut ())?;
    println!("test accuracy {:.3}", outcome.test_acc);
    assert!(outcome.test_acc > 0.5, "there are 8 classes");
    Ok(())
}
