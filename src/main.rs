//! The command line of cohop.

use std::process::ExitCode;

fn main() -> ExitCode {
    cohop::cli::main()
}
