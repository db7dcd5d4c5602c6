//! A stack of layers for node classification.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    Decomposition, Gcn, Gin, GraphSage, Initializer, Input, Layer, ParameterId, Parameters, Pass, Rgcn,
};
use crate::block::Block;
use crate::device::{Activation, Device};
use crate::error::{Error, Result, check_length};
use crate::tape::{Aggregate, Tape, Var};

/// The layer that a model stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelKind {
    /// [`GraphSage`]
    Sage,
    /// [`Gcn`] with symmetric normalisation: for full neighbourhoods, or blocks with degrees.
    Gcn,
    /// [`Gcn`] with the mean over the block's edges and the vertex itself.
    GcnMean,
    /// [`Gin`]
    Gin,
    /// [`Rgcn`], for graphs with edge types.
    Rgcn,
}

/// What a model is made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelConfig {
    /// The layer.
    pub kind: ModelKind,
    /// Number of input features; for vertices without features, number of vertices.
    pub n_features: usize,
    /// Width of the hidden layers.
    pub hidden: usize,
    /// Number of classes.
    pub n_classes: usize,
    /// Number of layers.
    pub n_layers: usize,
    /// Probability of dropping an element of a hidden layer's output.
    pub dropout: f64,
    /// Probability of dropping an element of the input.
    pub input_dropout: f64,
    /// Width of a learned linear map of the input, without bias, before the first layer; 0: none. For vertices without
    /// features it is a table of trainable embeddings.
    #[serde(default)]
    pub embedding: usize,
    /// Number of relations; 0 for graphs without edge types.
    #[serde(default)]
    pub n_relations: usize,
    /// How relations' weight matrices are made of parameters.
    #[serde(default)]
    pub decomposition: Decomposition,
}

impl ModelConfig {
    /// Columns of what layer `layer` is given.
    fn in_dim(&self, layer: usize) -> usize {
        match (layer, self.embedding) {
            (0, 0) => self.n_features,
            (0, width) => width,
            _ => self.hidden,
        }
    }
}

/// A model: its configuration, layers and parameters.
///
/// Between two layers stand a ReLU and a dropout.
#[derive(Debug)]
pub struct Model<D: Device> {
    config: ModelConfig,
    embedding: Option<ParameterId>,
    layers: Vec<Box<dyn Layer<D>>>,
    /// The parameters, in order of the layers.
    pub parameters: Parameters<D>,
}

impl<D: Device> Model<D> {
    /// A model with freshly initialised parameters, which are a function of `config` and `seed` alone.
    pub fn new(device: &D, config: ModelConfig, seed: u64) -> Result<Self> {
        if config.n_layers == 0 {
            return Err(Error::invalid("n_layers", 0, "at least 1"));
        }
        for (name, p) in [("dropout", config.dropout), ("input_dropout", config.input_dropout)] {
            if !(0.0..1.0).contains(&p) {
                return Err(Error::invalid(name, p, "at least 0 and below 1"));
            }
        }
        if config.hidden == 0 && config.n_layers > 1 {
            return Err(Error::invalid("hidden", 0, "at least 1"));
        }
        let mut parameters = Parameters::new(seed);
        let embedding = if config.embedding > 0 {
            let shape = [config.n_features, config.embedding];
            Some(parameters.add(device, 0, "embedding", shape, Initializer::Glorot)?)
        } else {
            None
        };
        let mut layers = Vec::with_capacity(config.n_layers);
        for i in 0..config.n_layers {
            let in_dim = config.in_dim(i);
            let out_dim = if i + 1 == config.n_layers { config.n_classes } else { config.hidden };
            let p = &mut parameters;
            let layer: Box<dyn Layer<D>> = match config.kind {
                ModelKind::Sage => Box::new(GraphSage::new(device, p, i, in_dim, out_dim)?),
                ModelKind::Gcn => Box::new(Gcn::new(device, p, i, in_dim, out_dim, Aggregate::Symmetric)?),
                ModelKind::GcnMean => {
                    Box::new(Gcn::new(device, p, i, in_dim, out_dim, Aggregate::MeanWithSelf)?)
                }
                ModelKind::Gin => Box::new(Gin::new(device, p, i, in_dim, config.hidden, out_dim)?),
                ModelKind::Rgcn => {
                    let shape = [in_dim, out_dim];
                    Box::new(Rgcn::new(device, p, i, config.n_relations, shape, config.decomposition)?)
                }
            };
            layers.push(layer);
        }
        Ok(Model { config, embedding, layers, parameters })
    }

    /// The configuration.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Number of layers, and of the blocks that [`forward`](Model::forward) takes.
    pub fn n_layers(&self) -> usize {
        self.layers.len()
    }

    /// Whether blocks must be made with in-degrees.
    pub fn needs_degrees(&self) -> bool {
        self.config.kind == ModelKind::Gcn
    }

    /// Class scores of the seeds: `[n_dst of the last block, n_classes]`.
    ///
    /// `blocks` are in model order: the first one's sources are the rows of `input`.
    pub fn forward(&self, tape: &Tape<D>, blocks: &[Arc<Block<D>>], input: Input<D>) -> Result<Var> {
        check_length("blocks", blocks.len(), self.layers.len())?;
        let mut x = input;
        let mut out = None;
        for (i, block) in blocks.iter().enumerate() {
            let h = self.forward_layer(tape, i, block, &x)?;
            x = Input::Dense(h);
            out = Some(h);
        }
        out.ok_or_else(|| Error::invalid("blocks", "empty", "one for each layer"))
    }

    /// One layer with the dropout before it and the activation after it: `[n_src, in]` to `[n_dst, out]`.
    pub fn forward_layer(
        &self,
        tape: &Tape<D>,
        layer: usize,
        block: &Arc<Block<D>>,
        x: &Input<D>,
    ) -> Result<Var> {
        let pass = Pass { tape, parameters: &self.parameters };
        let shape = x.shape(tape);
        let required = [block.n_src(), if layer == 0 { self.config.n_features } else { self.config.hidden }];
        crate::device::check_same_shape("forward", "input", shape, "required", required)?;
        let embedded = match self.embedding {
            Some(table) if layer == 0 => {
                Some(Input::Dense(x.project(&pass, block.n_src(), pass.parameter(table), None, None)?))
            }
            _ => None,
        };
        let p = if layer == 0 { self.config.input_dropout } else { self.config.dropout };
        let x = embedded.as_ref().unwrap_or(x).dropout(tape, p, block)?;
        let h = self.layers[layer].forward(&pass, block, &x)?;
        if layer + 1 == self.layers.len() { Ok(h) } else { tape.activate(h, Activation::Relu) }
    }
}
