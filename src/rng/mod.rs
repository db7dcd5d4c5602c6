//! Counter-based random numbers: every variate is a pure function of a seed and of what is drawn.

mod philox;

pub use philox::philox4x32;

/// The random source of one minibatch: two seeds, and how far between them it stands (DESIGN §6).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Variates {
    z1: u64,
    z2: u64,
    cos: f64,
    sin: f64,
}
