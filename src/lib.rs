#![doc = include_str!("../README.md")]
#![deny(missing_docs)]

pub mod array;
pub mod data;
pub mod device;
mod error;
pub mod graph;
pub mod rng;

pub use error::{Error, Result};
