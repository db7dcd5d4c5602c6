//! The program as a user runs it.

mod bench;
mod command_line;
mod study;
