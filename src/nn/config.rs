//! Configuration of the built-in models.

use serde::{Deserialize, Serialize};

use super::stack::check_probability;
use super::{
    Decomposition, Gat, Gatv2, Gcn, Gin, GraphSage, Heads, Layer, Parameters, Rgat, RgatOptions, Rgcn, SageRi,
};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::tape::{Aggregate, AttentionOptions};

/// The layer that a model stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelKind {
    /// [`GraphSage`]
    Sage,
    /// [`Gcn`] with symmetric normalisation, which needs blocks with degrees; meant for full neighbourhoods.
    Gcn,
    /// [`Gcn`] with the mean over a vertex's edges in the block and the vertex itself.
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
    /// [`SageRi`] with a [`SageRiHead`](super::SageRiHead).
    SageRi,
}

impl ModelKind {
    /// Whether the layers can weight neighbours by the edges' weights in the graph ([`ModelConfig::weighted`]).
    /// Attention makes weights of its own.
    pub fn takes_edge_weights(self) -> bool {
        !self.attends()
    }

    /// Whether the layers are attention layers.
    pub fn attends(self) -> bool {
        matches!(self, ModelKind::Gat | ModelKind::Gatv2 | ModelKind::Rgat)
    }

    /// Whether the layers have weights for each relation, and need a graph with relations.
    pub fn relates(self) -> bool {
        matches!(self, ModelKind::Rgcn | ModelKind::Rgat)
    }
}

/// The configuration of a built-in model.
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
    /// GAT and GATv2: probability of dropping a message of a head. Must be 0 for R-GAT, which has no such dropout.
    #[serde(default)]
    pub attention_dropout: f64,
    /// GAT and GATv2: whether a vertex also attends to itself, in addition to its in-edges.
    #[serde(default = "yes")]
    pub self_loops: bool,
    /// Width of a learned linear map of the input, without bias, before the first layer; 0: none. For vertices without
    /// features this map is a table of trainable embeddings.
    #[serde(default)]
    pub embedding: usize,
    /// Number of relations; 0 for graphs without edge types.
    #[serde(default)]
    pub n_relations: usize,
    /// How relations' weight matrices are made of parameters.
    #[serde(default)]
    pub decomposition: Decomposition,
    /// R-GCN with bases: whether a vertex's own matrix is a combination of the bases too, as in the paper, which treats
    /// the vertex itself as one more relation. Otherwise it is a separate parameter.
    #[serde(default = "yes")]
    pub root_shares_bases: bool,
    /// Whether sums and means over neighbours are weighted by the edges' weights in the graph, which must have them.
    #[serde(default)]
    pub weighted: bool,
}

impl Default for ModelConfig {
    /// GraphSAGE with two layers of 64. The numbers of features, classes and relations are 0: a
    /// [`Trainer`](crate::train::Trainer) takes them from its data.
    fn default() -> Self {
        ModelConfig {
            kind: ModelKind::Sage,
            n_features: 0,
            hidden: 64,
            n_classes: 0,
            n_layers: 2,
            dropout: 0.3,
            input_dropout: 0.0,
            heads: 1,
            output_heads: 1,
            attention_dropout: 0.0,
            self_loops: true,
            embedding: 0,
            n_relations: 0,
            decomposition: Decomposition::Full,
            root_shares_bases: true,
            weighted: false,
        }
    }
}

fn one() -> usize {
    1
}

fn yes() -> bool {
    true
}

/// The most columns of a hidden layer, with all its heads.
pub const MAX_WIDTH: usize = 1 << 20;
/// The most layers.
pub const MAX_LAYERS: usize = 1000;

/// The slope of LeakyReLU in attention layers, as in the GAT paper.
const ATTENTION_SLOPE: f64 = 0.2;

impl ModelConfig {
    /// `Ok` if a model can be made from these values, as far as they alone say.
    ///
    /// Errors: those of [`Stack::new`](super::Stack::new), but those of the layers.
    pub fn check(&self) -> Result<()> {
        if self.n_layers == 0 || self.n_layers > MAX_LAYERS {
            return Err(Error::invalid("n_layers", self.n_layers, format!("1 to {MAX_LAYERS}")));
        }
        let parts = match self.decomposition {
            Decomposition::Full => 0,
            Decomposition::Basis(n) | Decomposition::BlockDiagonal(n) => n,
        };
        let sizes = [
            ("hidden", self.hidden),
            ("heads", self.heads),
            ("output_heads", self.output_heads),
            ("embedding", self.embedding),
            ("number of bases or blocks", parts),
        ];
        if let Some((name, size)) = sizes.into_iter().find(|(_, size)| *size > MAX_WIDTH) {
            return Err(Error::invalid(name, size, format!("at most {MAX_WIDTH}")));
        }
        if self.kind.attends() && self.hidden * self.heads > MAX_WIDTH {
            let product = format!("{} of {} heads", self.hidden, self.heads);
            return Err(Error::invalid("hidden", product, format!("at most {MAX_WIDTH} with all heads")));
        }
        check_probability("dropout", self.dropout)?;
        check_probability("input_dropout", self.input_dropout)?;
        check_probability("attention_dropout", self.attention_dropout)?;
        let has_hidden = self.n_layers > 1 || matches!(self.kind, ModelKind::SageRi | ModelKind::Gin);
        let at_least_one = [
            ("n_classes", self.n_classes, true),
            ("hidden", self.hidden, has_hidden),
            ("heads", self.heads, self.kind.attends()),
            ("output_heads", self.output_heads, self.kind.attends()),
        ];
        if let Some((name, ..)) = at_least_one.into_iter().find(|&(_, size, needed)| needed && size == 0) {
            return Err(Error::invalid(name, 0, "at least 1"));
        }
        if self.weighted && !self.kind.takes_edge_weights() {
            let found = format!("set for {:?}", self.kind);
            return Err(Error::invalid(
                "weighted",
                found,
                "a model without attention, which weights edges itself",
            ));
        }
        if self.kind == ModelKind::Rgat && self.attention_dropout > 0.0 {
            return Err(Error::invalid("attention_dropout", self.attention_dropout, "0 for R-GAT"));
        }
        Ok(())
    }

    /// Columns of the input of layer `layer`, which is the output of the layer before it; `layer` may be the number of
    /// layers, for the output of the last one.
    pub fn width(&self, layer: usize) -> usize {
        match layer {
            0 if self.embedding > 0 => self.embedding,
            0 => self.n_features,
            _ if layer == self.n_layers && self.kind != ModelKind::SageRi => self.n_classes,
            _ if self.kind.attends() => self.hidden * self.heads,
            _ => self.hidden,
        }
    }

    pub(super) fn layer<D: Device>(
        &self,
        device: &D,
        p: &mut Parameters<D>,
        i: usize,
    ) -> Result<Box<dyn Layer<D>>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_zero_are_errors_where_they_are_used() {
        let config = |kind| ModelConfig { kind, n_features: 3, n_classes: 2, ..ModelConfig::default() };
        let wrong = |config: ModelConfig| match config.check() {
            Err(Error::InvalidArgument { argument, .. }) => Some(argument),
            other => other.map(|()| None).unwrap(),
        };
        use ModelKind::{Gat, Gatv2, Gcn, GcnMean, Gin, Rgat, Rgcn, Sage, SageRi};
        for kind in [Sage, Gcn, GcnMean, Gin, Rgcn, Rgat, Gat, Gatv2, SageRi] {
            assert_eq!(wrong(config(kind)), None);
            assert_eq!(wrong(ModelConfig { n_classes: 0, ..config(kind) }), Some("n_classes"));
            assert_eq!(wrong(ModelConfig { n_layers: 0, ..config(kind) }), Some("n_layers"));
            assert_eq!(wrong(ModelConfig { hidden: 0, ..config(kind) }), Some("hidden"));
            let needs_hidden = matches!(kind, Gin | SageRi).then_some("hidden");
            assert_eq!(
                wrong(ModelConfig { hidden: 0, n_layers: 1, ..config(kind) }),
                needs_hidden,
                "{kind:?}"
            );
            let heads = |name| kind.attends().then_some(name);
            assert_eq!(wrong(ModelConfig { heads: 0, ..config(kind) }), heads("heads"));
            assert_eq!(wrong(ModelConfig { output_heads: 0, ..config(kind) }), heads("output_heads"));
        }
    }
}
