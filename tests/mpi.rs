//! What holds over every transport, over MPI; and how jobs end. Run by `tools/test-mpi`, which says how by the first
//! argument.

// A panic is how these fail.
#![allow(clippy::unwrap_used)]

use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use cohop::comm::{Communicator, Stage, Sum, mpi};
use cohop::{Error, Result};

#[path = "../src/comm/tests.rs"]
mod body;
#[path = "../src/testing/random.rs"]
mod testing;

fn main() -> ExitCode {
    let scenario = std::env::args().nth(1).unwrap_or_else(|| "all".to_owned());
    let run = |communicator: Communicator| run(&communicator, &scenario);
    let mut options = mpi::Options::default();
    if scenario == "split" {
        options.max_message_bytes = 100;
    }
    if scenario == "stop" {
        options.timeout = Duration::from_secs(2);
    }
    let result = mpi::run_with(options, run);
    match result {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// PE 1 does something else than the others in the scenarios that end the job.
fn run(communicator: &Communicator, scenario: &str) -> Result<String> {
    let is_odd = communicator.rank() == 1;
    match scenario {
        "split" => body::all(communicator, 8)?,
        "refuse" => body::refusals(communicator),
        "abort" if is_odd => communicator.abort("it has had enough"),
        "error" if is_odd => return Err(Error::invalid("dim", 3, "an even number")),
        "panic" if is_odd => panic!("one is cursed"),
        "exit" if is_odd => std::process::exit(3),
        "return" if is_odd => {}
        "length" => {
            communicator.all_reduce_sum(Stage::Other, Sum::F32(&mut vec![0.0; 4 + usize::from(is_odd)]))?
        }
        "counts" => {
            let counts = vec![2 + usize::from(is_odd); communicator.size()];
            let send = vec![0u16; counts.iter().sum()];
            communicator.all_to_all_v_new(Stage::Other, &send, &counts, &vec![2; communicator.size()])?;
        }
        "collective" if is_odd => communicator.all_reduce_max(Stage::Other, &mut [0.0])?,
        "threads" if is_odd => {
            // One waits for the others, which do not come; the other one fails.
            let (results, first) = mpsc::channel();
            for communicator in [communicator.clone(), communicator.clone()] {
                let results = results.clone();
                std::thread::spawn(move || results.send(communicator.barrier()));
            }
            first.recv().expect("a result of a thread")?;
        }
        "threads" => loop {
            std::thread::park();
        },
        "stop" if is_odd => loop {
            std::thread::park();
        },
        "abort" | "error" | "panic" | "exit" | "return" | "collective" | "stop" => loop {
            communicator.barrier()?;
        },
        _ => body::all(communicator, 40)?,
    }
    Ok(format!("processing element {} of {} is done: {scenario}", communicator.rank(), communicator.size()))
}
