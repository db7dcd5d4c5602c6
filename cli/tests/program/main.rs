//! The program as a user runs it.

// A panic is how these fail.
#![allow(clippy::unwrap_used)]

mod bench;
mod command_line;
mod data;
mod import;
mod infer;
mod runs;
mod study;
mod weights;
