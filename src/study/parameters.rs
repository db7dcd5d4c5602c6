//! Numbers of parameters of the built-in models' layers, without building them.

use crate::nn::{Decomposition, ModelConfig, ModelKind};

/// Trainable scalars of layer `layer` of a model; the head's are those of the last layer.
pub(super) fn parameters(model: &ModelConfig, layer: usize) -> u64 {
    let product = |sizes: &[usize]| sizes.iter().fold(1u64, |all, &size| all.saturating_mul(size as u64));
    let (k, n) = (model.width(layer), model.width(layer + 1));
    let is_last = layer + 1 == model.n_layers;
    let (heads, dim) =
        if is_last { (model.output_heads, model.n_classes) } else { (model.heads, model.hidden) };
    let width = heads * dim;
    let relations = |cols: usize| match model.decomposition {
        Decomposition::Full => product(&[model.n_relations, k, cols]),
        Decomposition::Basis(bases) => product(&[model.n_relations, bases]) + product(&[bases, k, cols]),
        Decomposition::BlockDiagonal(blocks) => product(&[model.n_relations, k, cols / blocks.max(1)]),
    };
    // A mean of heads has the columns of one.
    let bias = if is_last { dim } else { width };
    let own = match model.kind {
        ModelKind::Sage => product(&[2, k, n]) + n as u64,
        ModelKind::Gcn | ModelKind::GcnMean => product(&[k, n]) + n as u64,
        ModelKind::Gin => {
            let hidden = model.hidden;
            // ε, two maps, gain and shift of the batch norm.
            1 + product(&[k + 1, hidden]) + 2 * hidden as u64 + product(&[hidden + 1, n])
        }
        ModelKind::Gat => product(&[k + 2, width]) + bias as u64,
        ModelKind::Gatv2 => product(&[2, k + 1, width]) + (width + bias) as u64,
        ModelKind::Rgcn => {
            let root = match model.decomposition {
                Decomposition::Basis(bases) if model.root_shares_bases => bases as u64,
                _ => product(&[k, n]),
            };
            relations(n) + root + n as u64
        }
        ModelKind::Rgat => {
            let scores = product(&[2, model.n_relations, k, heads]);
            relations(width) + scores + product(&[k, width]) + bias as u64
        }
        ModelKind::SageRi => {
            let residual = if layer == 0 { product(&[k + 1, n]) } else { 0 };
            let classes = model.n_classes;
            let stages: usize = (0..=model.n_layers).map(|stage| model.width(stage)).sum();
            let head = product(&[stages + 1, 2 * classes]) + product(&[2 * classes + 1, classes]);
            product(&[2, k, n]) + 2 * n as u64 + residual + if is_last { head } else { 0 }
        }
    };
    let embedding = if layer == 0 { product(&[model.n_features, model.embedding]) } else { 0 };
    own.saturating_add(embedding)
}

/// Scalars of a layer's parameters that are not trained: a batch norm's running mean and variance.
pub(super) fn statistics(model: &ModelConfig, layer: usize) -> f64 {
    match model.kind {
        ModelKind::Gin => 2.0 * model.hidden as f64,
        ModelKind::SageRi => 2.0 * model.width(layer + 1) as f64,
        _ => 0.0,
    }
}
