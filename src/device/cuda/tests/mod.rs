//! How test bodies run on CUDA: on the emulator over several schedules, on a GPU if there is one.

#[cfg(feature = "emulate")]
pub(super) mod faults;

#[cfg(feature = "emulate")]
pub(crate) use super::sample::tests::compare_draws;
#[cfg(feature = "emulate")]
use super::{dtype, ffi};
use crate::device::{Cuda, Scalar};
#[cfg(feature = "emulate")]
use crate::error::Result;

/// Runs `body` on a CUDA device.
///
/// On the emulator: for `COHOP_EMULATE_SEEDS` schedules (default 3), of which number 0 is in order. On a GPU: once.
/// Without a GPU it says that it skips the test; with `COHOP_CUDA_REQUIRED` set it fails.
pub(crate) fn on_cuda<S: Scalar>(body: impl Fn(&Cuda<S>)) {
    let device = match Cuda::<S>::new(0) {
        Ok(device) => device,
        Err(error) if std::env::var_os("COHOP_CUDA_REQUIRED").is_none() => {
            eprintln!("SKIPPED: {error}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    for schedule in schedules() {
        choose_schedule(schedule);
        body(&device);
    }
}

#[cfg(feature = "emulate")]
fn schedules() -> std::ops::Range<u64> {
    0..std::env::var("COHOP_EMULATE_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(3)
}

#[cfg(not(feature = "emulate"))]
fn schedules() -> std::ops::Range<u64> {
    0..1
}

/// The order in which the emulator runs the threads of this thread's launches.
#[cfg(feature = "emulate")]
pub(crate) fn choose_schedule(seed: u64) {
    unsafe extern "C" {
        fn cohop_emulate_set_seed(seed: u64);
    }
    // SAFETY: sets a number of the calling thread.
    unsafe { cohop_emulate_set_seed(seed) };
}

#[cfg(not(feature = "emulate"))]
pub(crate) fn choose_schedule(_: u64) {}

/// Launches a gather of more rows than a grid has blocks for.
#[cfg(feature = "emulate")]
pub(crate) fn gather_too_much(device: &Cuda<f32>) -> Result<()> {
    let (rows, nothing) = (1 << 45, std::ptr::null_mut::<u32>());
    let (scalar, status, stream) = (dtype::<f32>(), device.status(), device.stream()?);
    // SAFETY: such a grid cannot be launched, so that nothing is read or written.
    let code = unsafe {
        ffi::cohop_gather(scalar, scalar, rows, 1, nothing.cast(), 1, nothing, nothing.cast(), status, stream)
    };
    device.check("gather", code)
}
