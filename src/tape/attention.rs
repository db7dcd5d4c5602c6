//! What the fused attention operations share.

use std::sync::Arc;

use super::Tape;
use crate::block::Block;
use crate::device::{AttentionDropout, AttentionSpec, Device};
use crate::error::Result;

/// How a destination attends to its messages; see [`Attention`](crate::device::Attention).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionOptions {
    /// Number of heads; divides the columns of the messages.
    pub heads: usize,
    /// LeakyReLU's slope on the negative side.
    pub slope: f64,
    /// Whether each destination also sends a message to itself, in addition to its in-edges.
    pub self_loop: bool,
    /// Probability of dropping a message of a head, after the softmax; none on an inference tape.
    pub dropout: f64,
}

/// Options, the block that they apply to, and the seed and stream of this operation's dropout.
pub(super) struct Attend<D: Device> {
    pub block: Arc<Block<D>>,
    pub options: AttentionOptions,
    seed: u64,
    stream: Option<u64>,
}

impl<D: Device> Tape<D> {
    pub(super) fn attend(&self, block: &Arc<Block<D>>, options: AttentionOptions) -> Result<Attend<D>> {
        let stream = self.next_dropout(options.dropout)?;
        Ok(Attend { block: block.clone(), options, seed: self.seed, stream })
    }
}

impl<D: Device> Attend<D> {
    pub fn spec(&self) -> AttentionSpec<'_, D> {
        let AttentionOptions { heads, slope, self_loop, dropout } = self.options;
        let dropout = self.stream.map(|stream| AttentionDropout {
            p: dropout,
            seed: self.seed,
            stream,
            vertices: self.block.src(),
        });
        AttentionSpec { heads, slope, self_loop, dropout }
    }
}
