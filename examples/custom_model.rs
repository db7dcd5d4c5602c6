//! A model of one's own in the trainer: two hops of means without weights, then a perceptron (as in SGC, Wu et al.
//! 2019).
//!
//! `cargo run --release --example custom_model`

use std::sync::Arc;

use cohop::batch::Batch;
use cohop::data::SbmData;
use cohop::device::Activation;
use cohop::graph::Sbm;
use cohop::nn::{Initializer, Input, Model, ParameterId, Parameters, Pass};
use cohop::prelude::*;
use cohop::tape::{Aggregate, Var};
use cohop::train::{EvalMode, TrainConfig, Trainer};

#[derive(Debug)]
struct Smoothed<D: Device> {
    hidden: ParameterId,
    out: ParameterId,
    n_classes: usize,
    parameters: Parameters<D>,
}

impl<D: Device> Smoothed<D> {
    fn new(device: &D, [n_features, width, n_classes]: [usize; 3], seed: u64) -> Result<Self> {
        let mut parameters = Parameters::new(seed);
        let mut add = |name, shape| parameters.add(device, 0, name, shape, Initializer::Glorot);
        let (hidden, out) = (add("hidden", [n_features, width])?, add("out", [width, n_classes])?);
        Ok(Smoothed { hidden, out, n_classes, parameters })
    }
}

impl<D: Device> Model<D> for Smoothed<D> {
    fn parameters(&self) -> &Parameters<D> {
        &self.parameters
    }

    fn parameters_mut(&mut self) -> &mut Parameters<D> {
        &mut self.parameters
    }

    fn n_layers(&self) -> usize {
        2 // of a batch: how far it reaches
    }

    fn n_outputs(&self) -> usize {
        self.n_classes
    }

    fn forward(&self, tape: &Tape<D>, batch: &Batch<D>) -> Result<Var> {
        let pass = Pass { tape, parameters: &self.parameters };
        let Input::Dense(mut x) = Input::new(tape, &batch.input)? else {
            return Err(Error::invalid("features", "sparse or none", "dense ones"));
        };
        for (i, block) in batch.blocks.iter().enumerate() {
            if i > 0 {
                x = batch.sources(tape, i, x)?; // where processing elements cooperate, some rows come from others
            }
            let own = tape.prefix(x, block.n_dst())?;
            x = tape.add(own, tape.aggregate(block, x, Aggregate::Mean)?)?;
        }
        let hidden = tape.linear(&[(x, pass.parameter(self.hidden))], None, Some(Activation::Relu))?;
        tape.linear(&[(hidden, pass.parameter(self.out))], None, None)
    }
}

pub(crate) fn main() -> Result<()> {
    let graph = Sbm { n_vertices: 3000, ..SbmData::default().graph };
    let dataset = Arc::new(SbmData { graph, ..SbmData::default() }.generate()?);
    let cpu = Cpu::<f32>::new();
    let model = Smoothed::new(&cpu, [dataset.features.dim(), 32, dataset.n_classes], 0)?;
    let config = TrainConfig { batch_size: Some(256), eval: EvalMode::Sampled, ..TrainConfig::default() };
    let outcome = Trainer::with_model(cpu, dataset, config, model)?.fit(&mut ())?;
    println!("test accuracy {:.3}", outcome.test_acc);
    assert!(outcome.test_acc > 0.5, "there are 8 classes");
    Ok(())
}
