//! Layers one after the other.

use std::sync::Arc;

use super::model::no_head;
use super::{
    Initializer, Input, Layer, LayerByLayer, Model, ModelConfig, ModelKind, ParameterId, Parameters, Pass,
    SageRiHead,
};
use crate::batch::{Batch, BatchNeeds};
use crate::block::Block;
use crate::device::{Activation, Device, check_same_shape};
use crate::error::{Error, Result, check_length};
use crate::tape::{Tape, Var};

/// A stack of layers for node classification, with an activation and a dropout between each two of them.
#[derive(Debug)]
pub struct Stack<D: Device> {
    embedding: Option<ParameterId>,
    layers: Vec<Box<dyn Layer<D>>>,
    head: Option<SageRiHead>,
    /// Columns of the (embedded) input and of each layer's output; empty for layers of the caller's own.
    widths: Vec<usize>,
    n_outputs: usize,
    between: Between,
    edge_weights: bool,
    /// The parameters, in order of the layers.
    pub parameters: Parameters<D>,
}

/// What stands before and between the layers of a [`Stack`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Between {
    /// Probability of dropping an element of the input.
    pub input_dropout: f64,
    /// Probability of dropping an element of a layer's output before the next layer; `None`: the layers have dropouts
    /// of their own, or need none.
    pub dropout: Option<f64>,
    /// The activation of all layers but the last; `None`: the layers have activations of their own, or need none.
    pub activation: Option<Activation>,
}

impl Default for Between {
    /// ReLU, nothing dropped.
    fn default() -> Self {
        Between { input_dropout: 0.0, dropout: Some(0.0), activation: Some(Activation::Relu) }
    }
}

impl<D: Device> Stack<D> {
    /// A built-in model with freshly initialised parameters, which are a function of `config` and `seed` alone.
    ///
    /// Errors: `config` has no layers, no classes, hidden layers of width 0, no heads, a probability that is not at
    /// least 0 and below 1, attention dropout for R-GAT, or edge weights for an attention model; and those of the
    /// layers.
    pub fn new(device: &D, config: &ModelConfig, seed: u64) -> Result<Self> {
        config.check()?;
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
        let widths: Vec<usize> = (0..=config.n_layers).map(|i| config.width(i)).collect();
        let residual = config.kind == ModelKind::SageRi;
        let head = if residual {
            Some(SageRiHead::new(device, &mut parameters, &widths, config.n_classes)?)
        } else {
            None
        };
        let between = Between {
            input_dropout: config.input_dropout,
            dropout: (!residual).then_some(config.dropout),
            activation: match config.kind {
                _ if residual => None,
                kind if kind.attends() => Some(Activation::Elu),
                _ => Some(Activation::Relu),
            },
        };
        let (n_outputs, edge_weights) = (config.n_classes, config.weighted);
        Ok(Stack { embedding, layers, head, widths, n_outputs, between, edge_weights, parameters })
    }

    /// A stack of your own layers, whose parameters are in `parameters`; the last layer's output has `n_outputs`
    /// columns.
    ///
    /// Errors: `layers` is empty, or a probability in `between` is not at least 0 and below 1.
    pub fn from_layers(
        parameters: Parameters<D>,
        layers: Vec<Box<dyn Layer<D>>>,
        n_outputs: usize,
        between: Between,
    ) -> Result<Self> {
        if layers.is_empty() {
            return Err(Error::invalid("layers", "empty", "at least one"));
        }
        check_probability("input_dropout", between.input_dropout)?;
        check_probability("dropout", between.dropout.unwrap_or(0.0))?;
        Ok(Stack {
            embedding: None,
            layers,
            head: None,
            widths: Vec::new(),
            n_outputs,
            between,
            edge_weights: false,
            parameters,
        })
    }

    /// The same stack over blocks with their edges' weights in the graph, by which sums and means over neighbours are
    /// then weighted. Attention layers do not use them.
    pub fn with_edge_weights(self) -> Self {
        Stack { edge_weights: true, ..self }
    }

    /// The input of the first layer: mapped linearly, if there is an embedding.
    fn embed(&self, tape: &Tape<D>, x: &Input<D>) -> Result<Input<D>> {
        let Some(table) = self.embedding else { return Ok(x.clone()) };
        let rows = x.shape(tape)[0];
        let required = [rows, self.parameters.get(table).value.rows()];
        check_same_shape("forward", "input", x.shape(tape), "required", required)?;
        let pass = Pass { tape, parameters: &self.parameters };
        Ok(Input::Dense(x.project(&pass, rows, pass.parameter(table), None, None)?))
    }

    /// The head's scores; the first stage is already embedded.
    fn head(&self, tape: &Tape<D>, rows: usize, stages: &[Input<D>]) -> Result<Var> {
        let head = self.head.as_ref().ok_or_else(no_head)?;
        head.forward(&Pass { tape, parameters: &self.parameters }, rows, stages)
    }

    /// `Ok` if `x` has the shape that a layer takes for `block`.
    fn check_input(&self, tape: &Tape<D>, layer: usize, block: &Block<D>, x: &Input<D>) -> Result<()> {
        let Some(&width) = self.widths.get(layer) else { return Ok(()) };
        check_same_shape("forward", "input", x.shape(tape), "required", x.required_shape(block, width))
    }

    /// The dropout before a layer; row `i` of `x` is source `i` of `block`.
    fn drop_out(
        &self,
        tape: &Tape<D>,
        layer: usize,
        block: &Arc<Block<D>>,
        x: &Input<D>,
    ) -> Result<Input<D>> {
        match (layer, self.between.dropout) {
            (0, _) => x.dropout(tape, self.between.input_dropout, block),
            (_, None) => Ok(x.clone()),
            (_, Some(p)) => x.dropout(tape, p, block),
        }
    }

    /// A layer and the activation after it.
    fn layer(&self, tape: &Tape<D>, layer: usize, block: &Arc<Block<D>>, x: &Input<D>) -> Result<Var> {
        let pass = Pass { tape, parameters: &self.parameters };
        let is_last = layer + 1 == self.layers.len();
        let activation = self.between.activation.filter(|_| !is_last);
        self.layers[layer].forward(&pass, block, x, activation)
    }
}

impl<D: Device> Model<D> for Stack<D> {
    fn parameters(&self) -> &Parameters<D> {
        &self.parameters
    }

    fn parameters_mut(&mut self) -> &mut Parameters<D> {
        &mut self.parameters
    }

    fn n_layers(&self) -> usize {
        self.layers.len()
    }

    fn n_outputs(&self) -> usize {
        self.n_outputs
    }

    fn needs(&self) -> BatchNeeds {
        // The source may aggregate for the first layer only if the layer takes the rows as they are.
        let is_first = self.embedding.is_none() && self.between.input_dropout == 0.0;
        let first = self.layers.first().filter(|_| is_first);
        BatchNeeds {
            degrees: self.layers.iter().any(|layer| layer.needs_degrees()),
            edge_ids: self.layers.iter().any(|layer| layer.needs_edge_ids()),
            edge_weights: self.edge_weights,
            input_terms: first.and_then(|layer| layer.input_terms()),
            input_aggregate: first.and_then(|layer| layer.input_aggregate()),
            relations: self.layers.iter().find_map(|layer| layer.relation_needs()),
        }
    }

    fn forward(&self, tape: &Tape<D>, batch: &Batch<D>) -> Result<Var> {
        let blocks = &batch.blocks;
        check_length("blocks", blocks.len(), self.layers.len())?;
        let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else {
            return Err(Error::invalid("blocks", "empty", "one for each layer"));
        };
        let embedded = self.embed(tape, &Input::new(tape, &batch.input)?)?;
        self.check_input(tape, 0, first, &embedded)?;
        let mut x = self.drop_out(tape, 0, first, &embedded)?;
        let mut stages = vec![x.clone()];
        for (i, block) in blocks.iter().enumerate() {
            if i > 0 {
                // Before the exchange, so that elements are dropped once, by their row's owner: sources are numbered by
                // vertex, and the rows here are those of the last block's destinations.
                x = self.drop_out(tape, i, &blocks[i - 1], &x)?;
                if let Input::Dense(rows) = &x {
                    x = Input::Dense(batch.sources(tape, i, *rows)?);
                }
                self.check_input(tape, i, block, &x)?;
            }
            x = Input::Dense(self.layer(tape, i, block, &x)?);
            stages.push(x.clone());
        }
        match (&self.head, x) {
            (None, Input::Dense(out)) => Ok(out),
            _ => self.head(tape, last.n_dst(), &stages),
        }
    }

    fn layer_by_layer(&self) -> Option<&dyn LayerByLayer<D>> {
        Some(self)
    }
}

impl<D: Device> LayerByLayer<D> for Stack<D> {
    fn forward_layer(
        &self,
        tape: &Tape<D>,
        layer: usize,
        block: &Arc<Block<D>>,
        x: &Input<D>,
    ) -> Result<Var> {
        let embedded = if layer == 0 { self.embed(tape, x)? } else { x.clone() };
        self.check_input(tape, layer, block, &embedded)?;
        self.layer(tape, layer, block, &self.drop_out(tape, layer, block, &embedded)?)
    }

    fn has_head(&self) -> bool {
        self.head.is_some()
    }

    fn forward_head(&self, tape: &Tape<D>, rows: usize, stages: &[Input<D>]) -> Result<Var> {
        let mut stages = stages.to_vec();
        if let Some(input) = stages.first_mut() {
            *input = self.embed(tape, input)?;
        }
        self.head(tape, rows, &stages)
    }
}

/// `Ok` if `p` is at least 0 and below 1.
pub(super) fn check_probability(name: &'static str, p: f64) -> Result<()> {
    if (0.0..1.0).contains(&p) { Ok(()) } else { Err(Error::invalid(name, p, "at least 0 and below 1")) }
}
