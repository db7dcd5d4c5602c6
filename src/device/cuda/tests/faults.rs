//! The emulator finds the faults that `cuda/emulate/faults.cu` plants, each in the modes that are meant for it, and
//! nothing in their sound twins.

// A panic is how these tests fail.
#![allow(clippy::unwrap_used)]

use std::ffi::{CString, c_char, c_void};
use std::process::Command;
use std::ptr::null_mut;

use super::choose_schedule;
use crate::device::cuda::text;
use crate::device::{Cuda, Storage};

/// The mode that the build script chose.
const MODE: &str = env!("COHOP_EMULATE_MODE");
/// Names the fault that the test `child` runs.
const CHILD: &str = "COHOP_EMULATE_FAULT";
/// Threads of all blocks, and so elements of the kernels' arrays.
const THREADS: i32 = 128;
const SCHEDULES: std::ops::Range<u64> = 0..20;

unsafe extern "C" {
    fn cohop_emulate_fault(
        name: *const c_char,
        faulty: bool,
        x: *const i32,
        out: *mut i32,
        stream: *mut c_void,
    ) -> i32;
    fn cohop_emulate_message() -> *const c_char;
}

/// How a fault shows.
#[derive(Clone, Copy, PartialEq)]
enum Shown {
    /// Not at all, or by chance.
    Hardly,
    /// As wrong results.
    WrongResults,
    /// As an error with this message.
    Error(&'static str),
    /// The process ends with this message.
    Abort(&'static str),
}
use Shown::{Abort, Error, Hardly, WrongResults};

/// Tests that a fault shows, by the mode.
macro_rules! faults {
    ($($name:ident: $plain:expr, $asan:expr, $race:expr;)*) => {
        $(
            #[test]
            fn $name() {
                let shown = match MODE {
                    "plain" => $plain,
                    "asan" => $asan,
                    _ => $race,
                };
                check(stringify!($name), shown);
            }
        )*
    };
}

// Schedules show most missing barriers in plain and asan modes; the race mode shows all, and where.
faults! {
    missing_barrier_after_initialisation: WrongResults, WrongResults, Error("nothing has written");
    missing_barrier_before_reading: WrongResults, WrongResults, Error("nothing has written");
    missing_barrier_before_overwriting: WrongResults, WrongResults, Error("race on shared memory");
    missing_syncwarp: WrongResults, WrongResults, Error("nothing has written");
    shuffle_as_syncwarp: Hardly, Hardly, Error("not ordered after the write");
    non_atomic_update: Hardly, Hardly, Error("not ordered after the write");
    race_between_blocks: Hardly, Hardly, Error("race on global memory");
    race_of_wide_copies: Hardly, Hardly, Error("race on shared memory");
    race_of_bytes: Hardly, Hardly, Error("race on shared memory");
    uninitialised_shared_memory: WrongResults, WrongResults, Error("nothing has written");
    out_of_bounds_in_global_memory: Hardly, Abort("heap-buffer-overflow"), Hardly;
    out_of_bounds_in_static_shared_memory: Hardly, Abort("index 64 out of bounds"), Hardly;
    out_of_bounds_in_dynamic_shared_memory: Hardly, Abort("heap-buffer-overflow"), Hardly;
    misaligned_vector: Hardly, Abort("misaligned address"), Hardly;
    misaligned_vector_in_shared_memory: Hardly, Abort("misaligned address"), Hardly;
    misaligned_atomic: Error("misaligned"), Error("misaligned"), Error("misaligned");
    deadlock: Error("deadlock"), Error("deadlock"), Error("deadlock");
    divergent_barrier: Error("different barriers"), Error("different barriers"), Error("different barriers");
    mask_without_the_own_lane: Error("own mask"), Error("own mask"), Error("own mask");
    different_masks: Error("different masks"), Error("different masks"), Error("different masks");
    shuffle_from_outside_the_mask: WrongResults, WrongResults, WrongResults;
    failed_assertion: Error("assertion failed"), Error("assertion failed"), Error("assertion failed");
    trap: Error("__trap"), Error("__trap"), Error("__trap");
    exception: Error("thrown in a kernel"), Error("thrown in a kernel"), Error("thrown in a kernel");
    too_much_static_shared_memory: Error("48 KiB"), Error("48 KiB"), Error("48 KiB");
    too_much_dynamic_shared_memory: Error("invalid launch"), Error("invalid launch"), Error("invalid launch");
    too_many_threads: Error("invalid launch"), Error("invalid launch"), Error("invalid launch");
    empty_grid: Error("invalid launch"), Error("invalid launch"), Error("invalid launch");
}

fn check(name: &str, shown: Shown) {
    for schedule in SCHEDULES {
        assert_eq!(run(name, false, schedule), Outcome::Right, "the sound twin, schedule {schedule}");
    }
    match shown {
        Hardly => {}
        Abort(message) => {
            let (succeeded, output) = run_in_child(name);
            assert!(!succeeded && output.contains(message), "{output}");
        }
        WrongResults => {
            let seen = SCHEDULES.filter(|&schedule| run(name, true, schedule) == Outcome::Wrong).count();
            assert!(seen > 0, "no schedule shows it");
        }
        Error(message) => {
            for schedule in SCHEDULES {
                let outcome = run(name, true, schedule);
                let is_shown =
                    matches!(&outcome, Outcome::Error(text) if text.contains(message) && text.contains(name));
                assert!(is_shown, "schedule {schedule}: {outcome:?}");
            }
        }
    }
}

#[derive(Debug, PartialEq)]
enum Outcome {
    Right,
    Wrong,
    Error(String),
}

/// Launches the kernel `name`, or its sound twin, in `stream`, or at once if it is null. Returns the launcher's code.
///
/// # Safety
/// Both arrays hold [`THREADS`] elements at least; a faulty kernel may go beyond them.
pub(in crate::device::cuda) unsafe fn launch_fault(
    name: &str,
    faulty: bool,
    x: *const i32,
    out: *mut i32,
    stream: *mut c_void,
) -> i32 {
    let name = CString::new(name).unwrap();
    // SAFETY: the caller's promise.
    unsafe { cohop_emulate_fault(name.as_ptr(), faulty, x, out, stream) }
}

fn run(name: &str, faulty: bool, schedule: u64) -> Outcome {
    choose_schedule(schedule);
    let device = Cuda::<f32>::new(0).unwrap();
    let x = device.upload(&(0..THREADS).collect::<Vec<i32>>()).unwrap();
    let out = device.upload(&vec![-1; THREADS as usize]).unwrap();
    device.synchronize().unwrap();
    // SAFETY: both hold as many elements as the kernels have threads. Faulty kernels that go beyond them run only in
    // `child`, which the address sanitizer ends.
    let code = unsafe { launch_fault(name, faulty, x.pointer(), out.pointer(), null_mut()) };
    if code != 0 {
        // SAFETY: text that ends with a zero, valid until this thread's next launch.
        return Outcome::Error(unsafe { text(cohop_emulate_message()) });
    }
    let all_right = device.download(out.view()).unwrap().iter().all(|&saw| saw == 1);
    if all_right { Outcome::Right } else { Outcome::Wrong }
}

/// Whether a process of its own that runs the fault succeeds, and what it says.
fn run_in_child(name: &str) -> (bool, String) {
    let program = std::env::current_exe().unwrap();
    let arguments = ["--exact", "device::cuda::tests::faults::child", "--ignored", "--nocapture"];
    let output = Command::new(program).args(arguments).env(CHILD, name).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
#[ignore = "what the tests that expect an abort run in a process of their own"]
fn child() {
    let name = std::env::var(CHILD).expect("the fault's name");
    for schedule in SCHEDULES {
        run(&name, true, schedule);
    }
}

#[test]
fn faults_are_repeated_by_their_schedule() {
    if MODE == "race" {
        let message = |schedule| match run("non_atomic_update", true, schedule) {
            // Addresses differ.
            Outcome::Error(text) => {
                text.split(" at 0x").map(|part| part[12..].to_string()).collect::<String>()
            }
            outcome => panic!("{outcome:?}"),
        };
        for schedule in SCHEDULES {
            assert_eq!(message(schedule), message(schedule));
        }
    }
}
