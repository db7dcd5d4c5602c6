//! Whole-program tests, in one binary so that the generic kernels are compiled once.

// A panic is how these fail.
#![allow(clippy::unwrap_used)]

mod accuracy;
mod attention;
mod auc;
mod common;
mod cooperation;
mod cuda;
mod device_steps;
mod documentation;
mod edge_weights;
mod embedding;
mod examples;
mod first_layer;
mod golden_kernels;
mod golden_layers;
mod golden_relations;
mod input_aggregate;
mod layers;
mod line_length;
mod npz;
mod precision;
mod relations;
mod shared_data;
mod study;
mod training;
