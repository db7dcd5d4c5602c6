//! How processing elements share the work.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// How processing elements (PEs) share a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// One PE trains alone.
    Serial,
    /// Each PE trains on its own minibatch, of its share of the seeds.
    Independent,
    /// All PEs process one minibatch together.
    Cooperative,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Mode::Serial => "serial",
            Mode::Independent => "independent",
            Mode::Cooperative => "cooperative",
        })
    }
}

impl FromStr for Mode {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "serial" => Ok(Mode::Serial),
            "independent" => Ok(Mode::Independent),
            "cooperative" => Ok(Mode::Cooperative),
            _ => Err(Error::invalid("mode", name, "serial, independent or cooperative")),
        }
    }
}
