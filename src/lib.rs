#![doc = include_str!("../README.md")]

pub mod array;
pub mod batch;
pub mod block;
pub mod cache;
pub mod comm;
pub mod coop;
pub mod data;
pub mod device;
mod error;
pub mod graph;
mod huge_pages;
pub mod nn;
pub mod pattern;
pub mod prelude;
pub mod rng;
pub mod sample;
pub mod study;
pub mod tape;
pub mod tensor;
pub mod train;

pub use error::{Error, Result};
