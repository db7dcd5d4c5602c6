//! The examples run to their end; each checks what it shows.

#[path = "../../examples/cooperative.rs"]
mod cooperative;
#[path = "../../examples/train.rs"]
mod train;

#[test]
fn cooperative_training_equals_training_alone() {
    cooperative::main().unwrap();
}

#[test]
fn the_loop_of_one_page_trains() {
    train::main().unwrap();
}
