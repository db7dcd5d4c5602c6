//! Faults of the host's side, planted, show for some schedule; their sound twins never show anything.

// A panic is how these tests fail.
#![allow(clippy::unwrap_used)]

use super::super::tests::choose_schedule;
use super::super::tests::faults::launch_fault;
use super::Driver;
use super::nccl::Nccl;
use crate::device::cuda::CudaBuffer;
use crate::device::cuda::link::Part;
use crate::device::cuda::memory::Address;
use crate::device::{Cuda, Exchange, Storage};
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
    if Driver::POOLED {
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
        let mut x = memmap2::MmapMut::map_anon(1 << 16).unwrap();
        let (memory, bytes) = (x.as_mut_ptr(), x.len());
        let to = device.allocate::<u8>(bytes).unwrap();
        // SAFETY: both hold as many elements, and `x` lives until all has run; that it is unlocked is the fault.
        unsafe {
            assert!(device.driver().pin(memory, bytes));
            device.driver().copy_to_device(memory, to.pointer(), bytes).unwrap();
            if !faulty {
                device.synchronize().unwrap();
            }
            device.driver().unpin(memory);
        }
        device.synchronize().is_ok()
    });
}

/// Others' memory would be locked too, and unlocked.
#[test]
fn page_locks_of_pages_that_are_shared() {
    shows(|device, faulty| {
        let mut x = memmap2::MmapMut::map_anon(1 << 16).unwrap();
        let (memory, bytes) = (x.as_mut_ptr(), x.len());
        let (start, end) = if faulty { (64, bytes - 64) } else { (0, bytes) };
        // SAFETY: the memory is unlocked before it is freed.
        unsafe {
            assert_eq!(device.driver().pin(memory.add(start), end - start), !faulty);
            device.driver().unpin(memory.add(start));
        }
        match device.synchronize() {
            Ok(()) => true,
            Err(error) => {
                assert!(error.to_string().contains("not whole pages"), "{error}");
                false
            }
        }
    });
    // What the host allocates for a device is locked in whole pages, or not at all.
    let device = Cuda::<f32>::new(0).unwrap();
    for len in [1, 65_535, 65_537, 100_001, 524_289] {
        let mut x = device.host().allocate::<f32>(len).unwrap();
        x.fill(2.0);
        let uploaded = device.adopt(x).unwrap();
        assert_eq!(device.download(uploaded.view()).unwrap(), vec![2.0; len]);
    }
}

/// Free blocks of other sizes and streams are given back, once, before the error.
#[test]
fn memory_that_other_streams_keep_for_reuse_is_given_back() {
    const MIB: usize = 1 << 20;
    for schedule in SCHEDULES {
        choose_schedule(schedule);
        let device = Cuda::<f32>::new(0).unwrap();
        let beside = device.beside().unwrap();
        // The blocks of both streams are free, but for what is queued.
        for stream in [&device, &beside] {
            let mut x = stream.allocate::<u8>(3 * MIB).unwrap();
            stream.fill(1, x.view_mut()).unwrap();
        }
        let kept = device.allocate::<u8>(MIB).unwrap();
        if Driver::POOLED {
            // What is used already: it is full.
            device.driver().limit_memory(8 * MIB);
        }
        let large = device.allocate::<u8>(6 * MIB).unwrap();
        if Driver::POOLED {
            let error = beside.allocate::<u8>(2 * MIB).unwrap_err();
            assert!(matches!(error, Error::Device { operation: "allocate", code: 2, .. }), "{error}");
            assert!(error.to_string().contains("2097152 bytes were requested"), "{error}");
            // It is no error of the device: all goes on, and what is given up can be had.
            drop(large);
            assert!(beside.allocate::<u8>(2 * MIB).is_ok());
        }
        drop(kept);
        device.synchronize().unwrap();
    }
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
        // Whatever is called, the first error is what it returns.
        let (n, mut scratch) = (x.len(), out);
        let calls = [
            device.upload(&ones()).map(drop),
            device.beside().map(drop),
            device.allocate::<i32>(n).map(drop),
            device.send(ones()).map(drop),
            device.upload_to_host(&ones()).map(drop),
            device.download(x.view()).map(drop),
            device.fill(1, scratch.view_mut()),
            device.copy(x.view(), scratch.view_mut()),
            device.record().map(drop),
            device.offer(x.view()).map(drop),
        ];
        for (i, call) in calls.into_iter().enumerate() {
            let error = call.unwrap_err().to_string();
            assert!(error.contains("failed_assertion"), "call {i}: {error}");
        }
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

/// Each rank's device and communicator, on threads of their own.
fn ranks<T: Send>(size: usize, seed: u64, body: impl Fn(usize, &Cuda<f32>, &Nccl) -> T + Sync) -> Vec<T> {
    let id = Nccl::new_id().unwrap();
    std::thread::scope(|scope| {
        let spawn = |rank| {
            let (id, body) = (&id, &body);
            scope.spawn(move || {
                choose_schedule(seed);
                let device = Cuda::new(rank).unwrap();
                let nccl = Nccl::connect(device.driver(), id, rank, size).unwrap();
                body(rank, &device, &nccl)
            })
        };
        let threads: Vec<_> = (0..size).map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn part(peer: usize, buffer: &CudaBuffer<i32>) -> Part {
    Part { peer, address: Address(buffer.pointer().cast()), bytes: LEN * size_of::<i32>() }
}

/// Each rank sends to the next, after a kernel that makes what it sends.
#[test]
fn groups_run_in_stream_order_and_meet() {
    for seed in SCHEDULES {
        let received = ranks(4, seed, |rank, device, nccl| {
            let mut sent = device.upload(&vec![-1; LEN]).unwrap();
            let received = device.upload(&vec![-2; LEN]).unwrap();
            device.fill(rank as i32, sent.view_mut()).unwrap();
            let (to, from) = (part((rank + 1) % 4, &sent), part((rank + 3) % 4, &received));
            // SAFETY: both buffers live until the stream has been waited for.
            unsafe { nccl.group(device.driver(), vec![to], vec![from]).unwrap() };
            device.fill(-3, sent.view_mut()).unwrap();
            device.download(received.view()).unwrap()
        });
        for (rank, received) in received.iter().enumerate() {
            assert_eq!(*received, vec![(rank as i32 + 3) % 4; LEN]);
        }
    }
}

/// What the parent test reads of a child's end; the child runs with little patience.
fn hangs(name: &str, said: &str) {
    let program = std::env::current_exe().unwrap();
    let test = format!("device::cuda::driver::tests::{name}");
    let output = std::process::Command::new(program)
        .args(["--exact", &test, "--ignored", "--nocapture"])
        .env("COHOP_EMULATE_PATIENCE", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    assert!(text.contains(said), "{text}");
}

/// Prints the errors that ranks have, of which there is one at least.
fn print_errors(outcomes: Vec<Result<(), Error>>) {
    let errors: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
    assert!(!errors.is_empty());
    errors.iter().for_each(|error| println!("{error}"));
}

#[test]
fn a_group_that_nobody_matches_hangs_and_is_reported() {
    hangs(
        "child_with_an_unmatched_group",
        "a group of rank 0 has sends or receives that ranks [1] do not match",
    );
}

#[test]
#[ignore = "what a test that expects a hang runs in a process of its own"]
fn child_with_an_unmatched_group() {
    print_errors(ranks(2, 0, |rank, device, nccl| {
        let buffer = device.upload(&ones()).unwrap();
        let (send, receive) = if rank == 0 { (vec![part(1, &buffer)], vec![]) } else { (vec![], vec![]) };
        // SAFETY: the buffer lives until the stream has been waited for.
        unsafe { nccl.group(device.driver(), send, receive)? };
        device.synchronize()
    }));
}

#[test]
fn groups_of_two_streams_that_ranks_begin_in_other_orders_hang_and_are_reported() {
    hangs("child_with_two_orders", "waits for its device, which is at one of rank");
}

#[test]
#[ignore = "what a test that expects a hang runs in a process of its own"]
fn child_with_two_orders() {
    let second = Nccl::new_id().unwrap();
    print_errors(ranks(2, 0, |rank, device, first| {
        let second = Nccl::connect(device.driver(), &second, rank, 2).unwrap();
        let beside = device.beside().unwrap();
        let [a, b, c, d] = [(); 4].map(|()| device.upload(&ones()).unwrap());
        let of = |nccl: &Nccl, device: &Cuda<f32>, sent, received| {
            let (send, receive) = (vec![part(1 - rank, sent)], vec![part(1 - rank, received)]);
            // SAFETY: the buffers live until both streams have been waited for.
            unsafe { nccl.group(device.driver(), send, receive) }
        };
        if rank == 0 {
            of(first, device, &a, &b)?;
            of(&second, &beside, &c, &d)?;
        } else {
            of(&second, &beside, &c, &d)?;
            of(first, device, &a, &b)?;
        }
        device.synchronize().and(beside.synchronize())
    }));
}

#[test]
fn groups_of_other_sizes_are_errors() {
    let outcomes = ranks(2, 0, |rank, device, nccl| {
        let buffer = device.upload(&ones()).unwrap();
        let mut part = part(1 - rank, &buffer);
        part.bytes -= 4 * rank;
        let (send, receive) = if rank == 0 { (vec![part], vec![]) } else { (vec![], vec![part]) };
        // SAFETY: the buffer lives until the stream has been waited for.
        unsafe { nccl.group(device.driver(), send, receive).unwrap() };
        device.synchronize()
    });
    for outcome in outcomes {
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains("rank 0 sends 4000 bytes to rank 1, which receives 3996"), "{error}");
    }
}

/// Who waits for what will not come any more is told.
#[test]
fn an_abort_ends_what_waits() {
    for seed in 0..4 {
        let outcomes = ranks(2, seed, |rank, device, nccl| {
            let buffer = device.upload(&ones()).unwrap();
            if rank == 0 {
                // SAFETY: the buffer lives until the stream has been waited for.
                unsafe { nccl.group(device.driver(), vec![part(1, &buffer)], vec![]).unwrap() };
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            nccl.abort();
            device.synchronize().unwrap();
            nccl.check().unwrap_err().to_string()
        });
        assert!(outcomes.iter().all(|error| error.contains("aborted")), "{outcomes:?}");
    }
}
