//! Where readers put edges.

use cohop::Result;

/// Takes edges in any order.
pub(crate) trait Sink {
    /// The edge whose number is that of the call, from 0.
    fn edge(&mut self, source: u32, destination: u32, weight: f32, kind: u16) -> Result<()>;

    /// Says what edges have, before the first of them: weights, types, features. Who does not say may give everything,
    /// and sorting takes more room.
    fn expect(&mut self, _weights: bool, _kinds: bool, _features: bool) {}
}
