//! Faults of the host's side, planted, show for some schedule; their sound twins never show anything.

// A panic is how these tests fail.
#![allow(clippy::unwrap_used)]

use super::super::tests::choose_schedule;
use super::super::tests::faults::launch_fault;
use crate::device::{Cuda, Storage};
use crate::error::Error;

const SCHEDULES: std::ops::Range<u64> = 0..20;
const LEN: usize = 1000;

/// Runs `body(faulty)` for each schedule, and checks that it shows the fault, by `false`, and nothing in its twin.
fn shows(body: impl Fn(&Cuda<f32>, bool) -> bool) {
    let right = |faulty: bool, schedule| {
        choose_schedule(schedule);
        body(&Cuda::new(0).unwrap(), faulty)
    };
    for schedule in SCHEDULES {
        assert!(right(false, schedule), "the sound twin, schedule {schedule}");
    }
    // Where blocks are freed, the address sanitizer would end the process.
    if super::Driver::POOLED {
        assert!(SCHEDULES.filter(|&schedule| !right(true, schedule)).count() >= 5);
    }
}

fn ones() -> Vec<i32> {
    vec![1; LEN]
}

#[test]
fn a_stream_that_does_not_wait_for_another() {
    shows(|device, faulty| {
        let beside = device.beside().unwrap();
        let mut x = device.upload(&vec![0; LEN]).unwrap();
        beside.fill(1, x.view_mut()).unwrap();
        if !faulty {
            device.wait_for(&beside.record().unwrap()).unwrap();
        }
        device.download(x.view()).unwrap() == ones()
    });
}

#[test]
fn an_event_that_is_recorded_too_early() {
    shows(|device, faulty| {
        let beside = device.beside().unwrap();
        let mut x = device.upload(&vec![0; LEN]).unwrap();
        let early = beside.record().unwrap();
        beside.fill(1, x.view_mut()).unwrap();
        let late = beside.record().unwrap();
        device.wait_for(if faulty { &early } else { &late }).unwrap();
        device.download(x.view()).unwrap() == ones()
    });
}

/// The host waits for an event, and not for what was queued after it.
#[test]
fn a_host_that_does_not_reach_an_event() {
    shows(|device, faulty| {
        let beside = device.beside().unwrap();
        let mut x = device.upload(&vec![0; LEN]).unwrap();
        device.fill(1, x.view_mut()).unwrap();
        let done = device.record().unwrap();
        if !faulty {
            device.reach(&done).unwrap();
        }
        beside.download(x.view()).unwrap() == ones()
    });
    choose_schedule(1);
    let device = Cuda::<f32>::new(0).unwrap();
    let mut x = device.upload(&[0]).unwrap();
    let first = device.record().unwrap();
    device.fill(1, x.view_mut()).unwrap();
    let second = device.record().unwrap();
    device.reach(&first).unwrap();
    assert!(first.is_done() && !second.is_done());
    device.reach(&second).unwrap();
    assert!(second.is_done());
}

/// The pool of a device does not know of other streams that read its buffers.
#[test]
fn a_buffer_that_is_dropped_while_another_stream_reads_it() {
    shows(|device, faulty| {
        let beside = device.beside().unwrap();
        let mut x = device.allocate::<i32>(LEN).unwrap();
        let mut out = beside.allocate::<i32>(LEN).unwrap();
        device.fill(1, x.view_mut()).unwrap();
        beside.wait_for(&device.record().unwrap()).unwrap();
        beside.copy(x.view(), out.view_mut()).unwrap();
        if !faulty {
            device.wait_for(&beside.record().unwrap()).unwrap();
        }
        drop(x);
        // The same block, where memory is pooled.
        let mut next = device.allocate::<i32>(LEN).unwrap();
        device.fill(2, next.view_mut()).unwrap();
        device.synchronize().unwrap();
        beside.download(out.view()).unwrap() == ones()
    });
}

/// What a new buffer holds is not what the last one in its place did.
#[test]
fn a_buffer_that_is_read_before_it_is_written() {
    choose_schedule(2);
    let device = Cuda::<f32>::new(0).unwrap();
    drop(device.upload(&ones()).unwrap());
    let fresh = device.allocate::<i32>(LEN).unwrap();
    assert_eq!(device.download(fresh.view()).unwrap(), vec![-1; LEN]);
}

#[test]
fn page_locked_memory_that_is_changed_before_its_copy_has_run() {
    shows(|device, faulty| {
        let host = device.host();
        let mut x = host.allocate::<i32>(1 << 17).unwrap();
        x.fill(1);
        let to = device.allocate::<i32>(x.len()).unwrap();
        // SAFETY: both hold as many elements; that the source is changed too early is the fault.
        unsafe {
            let bytes = size_of_val(&x[..]);
            device.driver().copy_to_device(x.as_ptr().cast(), to.pointer().cast(), bytes).unwrap();
        }
        if !faulty {
            device.synchronize().unwrap();
        }
        x.fill(2);
        let right = device.download(to.view()).unwrap().iter().all(|&x| x == 1);
        device.synchronize().unwrap();
        right
    });
}

#[test]
fn page_locked_memory_that_is_freed_before_its_copy_has_run() {
    shows(|device, faulty| {
        let mut x = ones();
        let (memory, bytes) = (x.as_mut_ptr().cast(), size_of_val(&x[..]));
        let to = device.allocate::<i32>(LEN).unwrap();
        // SAFETY: both hold as many elements, and `x` lives until all has run; that it is unlocked is the fault.
        unsafe {
            assert!(device.driver().pin(memory, bytes));
            device.driver().copy_to_device(memory, to.pointer().cast(), bytes).unwrap();
            if !faulty {
                device.synchronize().unwrap();
            }
            device.driver().unpin(memory);
        }
        device.synchronize().is_ok()
    });
}

/// The launcher succeeds; what comes after it does not.
#[test]
fn errors_of_kernels_surface_later_and_stay() {
    for schedule in SCHEDULES {
        choose_schedule(schedule);
        let device = Cuda::<f32>::new(0).unwrap();
        let [x, out] = [(); 2].map(|()| device.upload(&ones()).unwrap());
        let stream = device.stream().unwrap();
        // SAFETY: both hold more elements than the kernel has threads.
        let code = unsafe { launch_fault("failed_assertion", true, x.pointer(), out.pointer(), stream) };
        assert_eq!(code, 0);
        for _ in 0..2 {
            let error = device.synchronize().unwrap_err();
            let is_told =
                matches!(&error, Error::Device { message, .. } if message.contains("failed_assertion"));
            assert!(is_told, "{error}");
        }
        assert!(device.upload(&ones()).is_err() && device.beside().is_err());
        // Other devices go on.
        assert!(Cuda::<f32>::new(0).unwrap().upload(&ones()).is_ok());
    }
}

#[test]
fn streams_of_several_devices_wait_for_each_other() {
    shows(|device, faulty| {
        let other = Cuda::<f32>::new(1).unwrap();
        let mut x = device.upload(&vec![0; LEN]).unwrap();
        other.fill(1, x.view_mut()).unwrap();
        if !faulty {
            device.wait_for(&other.record().unwrap()).unwrap();
        }
        device.download(x.view()).unwrap() == ones()
    });
}

#[test]
fn there_are_as_many_devices_as_the_emulator_has() {
    let error = Cuda::<f32>::new(super::N_DEVICES).unwrap_err();
    assert!(error.to_string().contains("the emulator has 4"), "{error}");
}
