//! κ: how many consecutive minibatches depend on each other.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The number of minibatches over which the variates move from one seed to the next. Written `64` or `inf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Kappa {
    /// A number of minibatches; 1 makes them independent.
    Steps(NonZeroU64),
    /// All minibatches use the same variates: every vertex has one fixed neighbourhood.
    Infinite,
}

impl Kappa {
    /// Every minibatch has a different seed.
    pub const INDEPENDENT: Kappa = Kappa::Steps(NonZeroU64::MIN);

    /// A finite κ.
    ///
    /// Errors: `steps` is 0.
    pub fn steps(steps: u64) -> Result<Self> {
        NonZeroU64::new(steps).map(Kappa::Steps).ok_or_else(|| Error::invalid("kappa", steps, EXPECTED))
    }
}

impl Default for Kappa {
    fn default() -> Self {
        Kappa::INDEPENDENT
    }
}

const EXPECTED: &str = "a whole number of at least 1, or inf";

impl FromStr for Kappa {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text.eq_ignore_ascii_case("inf") {
            return Ok(Kappa::Infinite);
        }
        text.parse().map(Kappa::Steps).map_err(|_| Error::invalid("kappa", format!("{text:?}"), EXPECTED))
    }
}

impl fmt::Display for Kappa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kappa::Steps(steps) => steps.fmt(f),
            Kappa::Infinite => f.pad("inf"),
        }
    }
}

impl TryFrom<String> for Kappa {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Kappa> for String {
    fn from(kappa: Kappa) -> String {
        kappa.to_string()
    }
}
