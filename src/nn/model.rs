//! A stack of layers for node classification.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    Decomposition, Gat, Gatv2, Gcn, Gin, GraphSage, Heads, Initializer, Input, Layer, ParameterId,
    Parameters, Pass, Rgat, RgatOptions, Rgcn, SageRi, SageRiHead,
};
use crate::block::Block;
use crate::device::{Activation, Device};
use crate::error::{Error, Result, check_length};
use crate::tape::{Aggregate, AttentionOptions, Tape, Var};

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
    /// [`Rgat`], for graphs with edge types: heads concatenated, in the last layer averaged.
    Rgat,
    /// [`Gat`]: heads concatenated, in the last layer averaged.
    Gat,
    /// [`Gatv2`], likewise.
    Gatv2,
    /// [`SageRi`] with a [`SageRiHead`].
    SageRi,
}

impl ModelKind {
    /// Whether the layers are attention layers.
    pub fn attends(self) -> bool {
        matches!(self, ModelKind::Gat | ModelKind::Gatv2 | ModelKind::Rgat)
    }
}

/// What a model is made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelConfig {
    /// The layer.
    pub kind: ModelKind,
    /// Number of input features; for vertices without features, number of vertices.
    pub n_features: usize,
    /// Width of the hidden layers; of each head in attention models.
    pub hidden: usize,
    /// Number of classes.
    pub n_classes: usize,
    /// Number of layers.
    pub n_layers: usize,
    /// Probability of dropping an element of a hidden layer's output; in [`SageRi`] that of its three dropouts.
    pub dropout: f64,
    /// Probability of dropping an element of the input.
    pub input_dropout: f64,
    /// Attention models: number of heads of the hidden layers.
    #[serde(default = "one")]
    pub heads: usize,
    /// Attention models: number of heads of the last layer, which are averaged.
    #[serde(default = "one")]
    pub output_heads: usize,
    /// Attention models: probability of dropping a message of a head.
    #[serde(default)]
    pub attention_dropout: f64,
    /// Attention models: whether a vertex attends to itself, besides what edges it has.
    #[serde(default = "yes")]
    pub self_loops: bool,
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
    /// R-GCN with bases: whether a vertex's own matrix is a combination of the bases too, as in the paper, where it is
    /// one more relation; else it is a parameter of its own.
    #[serde(default = "yes")]
    pub root_shares_bases: bool,
}

fn one() -> usize {
    1
}

fn yes() -> bool {
    true
}

/// The slope of LeakyReLU in attention layers, as in the paper.
const ATTENTION_SLOPE: f64 = 0.2;

/// A model: its configuration, layers and parameters.
///
/// Between two layers stand an activation (ELU in attention models, else ReLU) and a dropout; [`SageRi`] layers have
/// their own.
#[derive(Debug)]
pub struct Model<D: Device> {
    config: ModelConfig,
    embedding: Option<ParameterId>,
    layers: Vec<Box<dyn Layer<D>>>,
    head: Option<SageRiHead>,
    /// The parameters, in order of the layers.
    pub parameters: Parameters<D>,
}

impl ModelConfig {
    /// Columns before layer `layer`, which are those after the layer before it.
    fn width(&self, layer: usize) -> usize {
        match layer {
            0 if self.embedding > 0 => self.embedding,
            0 => self.n_features,
            _ if layer == self.n_layers && self.kind != ModelKind::SageRi => self.n_classes,
            _ if self.kind.attends() => self.hidden * self.heads,
            _ => self.hidden,
        }
    }

    fn layer<D: Device>(&self, device: &D, p: &mut Parameters<D>, i: usize) -> Result<Box<dyn Layer<D>>> {
        let (in_dim, out_dim) = (self.width(i), self.width(i + 1));
        let (n_heads, dim, heads) = if i + 1 == self.n_layers {
            (self.output_heads, self.n_classes, Heads::Mean)
        } else {
            (self.heads, self.hidden, Heads::Concatenate)
        };
        let attention = AttentionOptions {
            heads: n_heads,
            slope: ATTENTION_SLOPE,
            self_loop: self.self_loops,
            dropout: self.attention_dropout,
        };
        Ok(match self.kind {
            ModelKind::Sage => Box::new(GraphSage::new(device, p, i, in_dim, out_dim)?),
            ModelKind::Gcn => Box::new(Gcn::new(device, p, i, in_dim, out_dim, Aggregate::Symmetric)?),
            ModelKind::GcnMean => Box::new(Gcn::new(device, p, i, in_dim, out_dim, Aggregate::MeanWithSelf)?),
            ModelKind::Gin => Box::new(Gin::new(device, p, i, in_dim, self.hidden, out_dim)?),
            ModelKind::Gat => Box::new(Gat::new(device, p, i, in_dim, dim, attention, heads)?),
            ModelKind::Gatv2 => Box::new(Gatv2::new(device, p, i, in_dim, dim, attention, heads)?),
            ModelKind::SageRi => Box::new(SageRi::new(device, p, i, in_dim, out_dim, self.dropout)?),
            ModelKind::Rgcn => {
                let shape = [in_dim, out_dim];
                let (n, shares_bases) = (self.n_relations, self.root_shares_bases);
                Box::new(Rgcn::new(device, p, i, n, shape, self.decomposition, shares_bases)?)
            }
            ModelKind::Rgat => {
                let options = RgatOptions { n_heads, heads, slope: ATTENTION_SLOPE };
                let shape = [in_dim, dim];
                Box::new(Rgat::new(device, p, i, self.n_relations, shape, options, self.decomposition)?)
            }
        })
    }
}

impl<D: Device> Model<D> {
    /// A model with freshly initialised parameters, which are a function of `config` and `seed` alone.
    pub fn new(device: &D, config: ModelConfig, seed: u64) -> Result<Self> {
        if config.n_layers == 0 {
            return Err(Error::invalid("n_layers", 0, "at least 1"));
        }
        for (name, p) in [
            ("dropout", config.dropout),
            ("input_dropout", config.input_dropout),
            ("attention_dropout", config.attention_dropout),
        ] {
            if !(0.0..1.0).contains(&p) {
                return Err(Error::invalid(name, p, "at least 0 and below 1"));
            }
        }
        if config.hidden == 0 && (config.n_layers > 1 || config.kind == ModelKind::SageRi) {
            return Err(Error::invalid("hidden", 0, "at least 1"));
        }
        if config.kind.attends() && (config.heads == 0 || config.output_heads == 0) {
            return Err(Error::invalid("heads", 0, "at least 1"));
        }
        if config.kind == ModelKind::Rgat && config.attention_dropout > 0.0 {
            return Err(Error::invalid("attention_dropout", config.attention_dropout, "0 for R-GAT"));
        }
        let mut parameters = Parameters::new(seed);
        let embedding = if config.embedding > 0 {
            let shape = [config.n_features, config.embedding];
            Some(parameters.add(device, 0, "embedding", shape, Initializer::Glorot)?)
        } else {
            None
        };
        let layers = (0..config.n_layers)
            .map(|i| config.layer(device, &mut parameters, i))
            .collect::<Result<Vec<_>>>()?;
        let head = if config.kind == ModelKind::SageRi {
            let widths: Vec<usize> = (0..=config.n_layers).map(|i| config.width(i)).collect();
            Some(SageRiHead::new(device, &mut parameters, &widths, config.n_classes)?)
        } else {
            None
        };
        Ok(Model { config, embedding, layers, head, parameters })
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

    /// What the first layer does with dense features first of all, if it is the same whatever its parameters are: it
    /// may be done where the rows are gathered, so that they are never written ([`Input::Aggregated`]). `None` where
    /// the first layer is not linear in them, something comes before it, or transforming first moves fewer bytes.
    pub fn input_aggregate(&self) -> Option<Aggregate> {
        let config = &self.config;
        if config.embedding > 0 || config.input_dropout > 0.0 || config.width(0) > config.width(1) {
            return None;
        }
        match config.kind {
            ModelKind::Sage => Some(Aggregate::Mean),
            ModelKind::Gcn => Some(Aggregate::Symmetric),
            ModelKind::GcnMean => Some(Aggregate::MeanWithSelf),
            _ => None,
        }
    }

    /// Class scores of the seeds: `[n_dst of the last block, n_classes]`.
    ///
    /// `blocks` are in model order: the first one's sources are the rows of `input`.
    pub fn forward(&self, tape: &Tape<D>, blocks: &[Arc<Block<D>>], input: Input<D>) -> Result<Var> {
        self.forward_between(tape, blocks, input, |_, x| Ok(x))
    }

    /// [`forward`](Model::forward), where `between(i, x)` makes, of the rows `x` that came out of layer `i - 1`, those
    /// that layer `i` takes: `[n_src of block i, dim]`.
    pub fn forward_between(
        &self,
        tape: &Tape<D>,
        blocks: &[Arc<Block<D>>],
        input: Input<D>,
        between: impl Fn(usize, Var) -> Result<Var>,
    ) -> Result<Var> {
        check_length("blocks", blocks.len(), self.layers.len())?;
        let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else {
            return Err(Error::invalid("blocks", "empty", "one for each layer"));
        };
        let mut x = self.drop_out(tape, 0, first, &self.embed(tape, &input)?)?;
        let mut stages = vec![x.clone()];
        for (i, block) in blocks.iter().enumerate() {
            if let (true, Input::Dense(rows)) = (i > 0, &x) {
                x = self.drop_out(tape, i, block, &Input::Dense(between(i, *rows)?))?;
            }
            x = Input::Dense(self.layer(tape, i, block, &x)?);
            stages.push(x.clone());
        }
        match (&self.head, x) {
            (None, Input::Dense(out)) => Ok(out),
            _ => self.head(tape, last.n_dst(), &stages),
        }
    }

    /// One layer with the dropout before it and the activation after it: `[n_src, in]` to `[n_dst, out]`.
    pub fn forward_layer(
        &self,
        tape: &Tape<D>,
        layer: usize,
        block: &Arc<Block<D>>,
        x: &Input<D>,
    ) -> Result<Var> {
        let embedded = if layer == 0 { self.embed(tape, x)? } else { x.clone() };
        self.layer(tape, layer, block, &self.drop_out(tape, layer, block, &embedded)?)
    }

    /// The input as the first layer takes it: mapped linearly, if the model has an embedding.
    fn embed(&self, tape: &Tape<D>, x: &Input<D>) -> Result<Input<D>> {
        let Some(table) = self.embedding else { return Ok(x.clone()) };
        let [rows, cols] = x.shape(tape);
        let required = [rows, self.config.n_features];
        crate::device::check_same_shape("forward", "input", [rows, cols], "required", required)?;
        let pass = Pass { tape, parameters: &self.parameters };
        Ok(Input::Dense(x.project(&pass, rows, pass.parameter(table), None, None)?))
    }

    /// Whether class scores come not from the last layer but from [`forward_head`](Model::forward_head).
    pub fn has_head(&self) -> bool {
        self.head.is_some()
    }

    /// Class scores `[rows, n_classes]` of the vertices that the first `rows` rows of each of `stages` belong to: the
    /// input, and what [`forward_layer`](Model::forward_layer) gave for each layer. An error without a head.
    pub fn forward_head(&self, tape: &Tape<D>, rows: usize, stages: &[Input<D>]) -> Result<Var> {
        let mut stages = stages.to_vec();
        if let Some(input) = stages.first_mut() {
            *input = self.embed(tape, input)?;
        }
        self.head(tape, rows, &stages)
    }

    /// The head over stages of which the first is embedded.
    fn head(&self, tape: &Tape<D>, rows: usize, stages: &[Input<D>]) -> Result<Var> {
        let Some(head) = &self.head else {
            return Err(Error::invalid("model", "without a head", "one whose layers feed a head"));
        };
        head.forward(&Pass { tape, parameters: &self.parameters }, rows, stages)
    }

    /// The dropout before a layer.
    fn drop_out(
        &self,
        tape: &Tape<D>,
        layer: usize,
        block: &Arc<Block<D>>,
        x: &Input<D>,
    ) -> Result<Input<D>> {
        let width = self.config.width(layer);
        let required = match x {
            Input::Aggregated(_, aggregate) if aggregate.includes_self() => [block.n_dst(), width],
            Input::Aggregated(..) => [block.n_dst(), 2 * width],
            _ => [block.n_src(), width],
        };
        crate::device::check_same_shape("forward", "input", x.shape(tape), "required", required)?;
        match (layer, self.config.kind) {
            (0, _) => x.dropout(tape, self.config.input_dropout, block),
            (_, ModelKind::SageRi) => Ok(x.clone()),
            _ => x.dropout(tape, self.config.dropout, block),
        }
    }

    /// A layer and the activation after it.
    fn layer(&self, tape: &Tape<D>, layer: usize, block: &Arc<Block<D>>, x: &Input<D>) -> Result<Var> {
        let pass = Pass { tape, parameters: &self.parameters };
        let activation = match self.config.kind {
            _ if layer + 1 == self.layers.len() => None,
            ModelKind::SageRi => None,
            kind if kind.attends() => Some(Activation::Elu),
            _ => Some(Activation::Relu),
        };
        self.layers[layer].forward(&pass, block, x, activation)
    }
}
