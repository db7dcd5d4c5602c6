use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::comm::{Stage, tests as body};

/// Fails the test if `body` is not done after ten seconds, where it would hang.
fn watched<R: Send + 'static>(body: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, waiting) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let result = body();
        // The other end is gone if the time is up.
        let _ = done.send(());
        result
    });
    // An interpreter takes longer.
    let limit = Duration::from_secs(if cfg!(miri) { 3600 } else { 10 });
    if waiting.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
        panic!("still waiting after {limit:?}");
    }
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Runs `body` on `n_pes` PEs. Returns each PE's error, empty if it has none, and the error of the run.
fn outcomes<T: Send + 'static>(
    n_pes: usize,
    body: impl Fn(Communicator) -> Result<T> + Send + Sync + 'static,
) -> (Vec<String>, Error) {
    watched(move || {
        let errors = Mutex::new(vec![String::new(); n_pes]);
        let error = run(n_pes, |communicator| {
            let rank = communicator.rank();
            let result = body(communicator);
            if let Err(error) = &result {
                errors.lock().unwrap()[rank] = error.to_string();
            }
            result
        })
        .map(drop)
        .unwrap_err();
        (errors.into_inner().unwrap(), error)
    })
}

fn assert_names(error: &str, rank: usize, part: &str) {
    assert!(error.starts_with(&format!("processing element {rank} failed")), "{error}");
    assert!(error.contains(part), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 64 }))]

    #[test]
    fn exchanges_equal_what_one_pe_would_compute(n_pes in 1usize..=8, seed: u64) {
        watched(move || run(n_pes, |communicator| {
            body::all_to_all_v(&communicator, seed)?;
            body::all_gather_v(&communicator, seed)?;
            body::broadcast(&communicator, seed)
        })).unwrap();
    }

    #[test]
    fn reductions_have_the_bits_of_rank_order(n_pes in 1usize..=8, seed: u64) {
        watched(move || run(n_pes, |communicator| body::reductions(&communicator, seed))).unwrap();
    }
}

#[test]
fn what_holds_over_every_transport() {
    for n_pes in [1, 2, 3] {
        watched(move || run(n_pes, |communicator| body::all(&communicator, 8))).unwrap();
    }
}

/// A window has what each PE offers, whole; lists go where their counts say, with or without one.
#[test]
fn windows_and_lists() {
    let body = |communicator: Communicator| {
        let (rank, n_pes) = (communicator.rank(), communicator.size());
        let counts: Vec<usize> = (0..n_pes).map(|to| (rank + 2 * to) % 3).collect();
        let send: Vec<u64> =
            counts.iter().enumerate().flat_map(|(to, &n)| vec![(10 * rank + to) as u64; n]).collect();
        let lists = communicator.exchange_lists(Stage::Sample, &send, &counts)?;
        let expected: Vec<usize> = (0..n_pes).map(|from| (from + 2 * rank) % 3).collect();
        let values: Vec<u64> =
            expected.iter().enumerate().flat_map(|(from, &n)| vec![(10 * from + rank) as u64; n]).collect();
        assert_eq!(lists, (values, expected));
        assert!(communicator.exchange_lists(Stage::Sample, &send, &counts[1..]).is_err());
        Ok(communicator.statistics())
    };
    for n_pes in [1, 2, 5] {
        let read = watched(move || run(n_pes, body)).unwrap();
        assert_eq!(
            read.iter().map(|of| (of.total().messages, of.total().bytes)).collect::<Vec<_>>(),
            watched(move || super::packed::run_packed(n_pes, body))
                .unwrap()
                .iter()
                .map(|of| (of.total().messages, of.total().bytes))
                .collect::<Vec<_>>()
        );
        watched(move || {
            run(n_pes, |communicator| {
                let rank = communicator.rank() as u8;
                let own: [&[u8]; 2] = [&vec![rank; 3 + rank as usize], &[rank, 7]];
                let counts = vec![1; communicator.size()];
                communicator.window(Stage::Other, (&counts, 1), &own, |offered| {
                    assert_eq!(offered.len(), communicator.size());
                    for (rank, slices) in offered.iter().enumerate() {
                        assert_eq!(slices[0], vec![rank as u8; 3 + rank]);
                        assert_eq!(slices[1], [rank as u8, 7]);
                    }
                })
            })
        })
        .unwrap();
    }
    let (errors, error) = outcomes(2, |communicator| match communicator.rank() {
        0 => communicator.window(Stage::Other, (&[0, 0], 1), &[&[1u8][..]], |_| ()),
        _ => communicator.barrier(),
    });
    assert_names(&error.to_string(), 1, "window");
    errors.iter().for_each(|error| assert_names(error, 1, "window"));
}

#[test]
fn duplicates_serve_two_threads() {
    watched(|| run(4, |communicator| body::duplicates_of_two_threads(&communicator))).unwrap();
}

#[test]
fn statistics_are_exact() {
    for n_pes in [1, 2, 5] {
        watched(move || run(n_pes, |communicator| body::statistics(&communicator))).unwrap();
    }
}

#[test]
fn more_pes_than_cores_make_progress() {
    watched(|| {
        run(16, |communicator| {
            for i in 0..1000u64 {
                let mut sum = [i];
                communicator.all_reduce_sum(Stage::Other, Sum::U64(&mut sum))?;
                assert_eq!(sum, [16 * i]);
            }
            Ok(())
        })
    })
    .unwrap();
}

#[test]
fn arguments_that_do_not_fit_are_refused() {
    watched(|| {
        run(3, |communicator| {
            body::refusals(&communicator);
            Ok(())
        })
    })
    .unwrap();
    assert!(matches!(communicators(0), Err(Error::InvalidArgument { .. })));
    let one = communicators(1).unwrap().pop().unwrap();
    let error = one.broadcast(Stage::Other, 1, &mut [0u8]).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { argument: "root", .. }), "{error}");
    let one = communicators(1).unwrap().pop().unwrap();
    let error = one.all_to_all_v_new(Stage::Other, &[0u8], &[1], &[usize::MAX]).unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    let one = communicators(1).unwrap().pop().unwrap();
    let counts = [usize::MAX, 2];
    let error = one.transport().all_to_all_v(&[0], &counts[..1], &mut [], &[0]).unwrap_err();
    assert!(matches!(error, Error::WrongLength { array: "send", .. }), "{error}");
    let error = check_exchange(2, 1, &counts, 0, &[0, 0]).unwrap_err();
    assert!(matches!(error, Error::TooLarge { what: "send_counts", .. }), "{error}");
}

#[test]
fn a_panic_fails_all() {
    let (errors, error) = outcomes(4, |communicator| {
        assert!(communicator.rank() != 2, "two is cursed");
        communicator.barrier()
    });
    assert_names(&error.to_string(), 2, "two is cursed");
    for rank in [0, 1, 3] {
        assert_names(&errors[rank], 2, "two is cursed");
    }
}

#[test]
fn the_error_of_one_fails_all_and_is_returned() {
    let (errors, error) = outcomes(4, |communicator| {
        communicator.barrier()?;
        if communicator.rank() == 1 {
            return Err(Error::invalid("dim", 3, "an even number"));
        }
        communicator.barrier()
    });
    assert!(matches!(error, Error::InvalidArgument { argument: "dim", .. }), "{error}");
    for rank in [0, 2, 3] {
        assert_names(&errors[rank], 1, "dim is 3: expected an even number");
    }
}

#[test]
fn wrong_sizes_fail_all() {
    let (errors, error) = outcomes(4, |communicator| {
        let len = if communicator.rank() == 3 { 5 } else { 4 };
        communicator.all_reduce_sum(Stage::Other, Sum::F32(&mut vec![0.0; len]))
    });
    assert_names(
        &error.to_string(),
        3,
        "of 5 f32, while processing element 0 called all_reduce_sum of 4 f32",
    );
    for own in errors {
        assert_eq!(own, error.to_string());
    }
    let (errors, error) = outcomes(4, |communicator| {
        // PE 1 sends one element too many to all others.
        let rank = communicator.rank();
        let counts: Vec<usize> = (0..4).map(|to| 2 + usize::from(rank == 1 && to != 1)).collect();
        let send = vec![0u16; counts.iter().sum()];
        communicator.all_to_all_v_new(Stage::Other, &send, &counts, &[2; 4])
    });
    assert_names(&error.to_string(), 1, "sends 6 bytes to processing element 0, which expects 4");
    for own in errors {
        assert_eq!(own, error.to_string());
    }
    let (_, error) = outcomes(3, |communicator| {
        communicator.broadcast(Stage::Other, usize::from(communicator.rank() == 2), &mut [0u8; 4])
    });
    assert_names(&error.to_string(), 2, "broadcast of 4 bytes from 1");
}

#[test]
fn other_collectives_fail_all() {
    let (errors, error) = outcomes(3, |communicator| {
        communicator.barrier()?;
        if communicator.rank() == 0 {
            communicator.all_reduce_max(Stage::Other, &mut [0.0])
        } else {
            communicator.barrier()
        }
    });
    assert_names(&error.to_string(), 0, "in collective 1 it called all_reduce_max of 1 f64, while");
    for own in errors {
        assert_eq!(own, error.to_string());
    }
}

#[test]
fn early_returns_fail_those_who_wait() {
    let (errors, error) = outcomes(3, |communicator| {
        if communicator.rank() == 1 {
            // Kept alive by the result, it is as good as gone.
            return Ok(Some(communicator));
        }
        // PE 1 may have left before or after they come.
        if communicator.rank() == 2 {
            std::thread::sleep(Duration::from_millis(30));
        }
        communicator.barrier().map(|()| None)
    });
    assert_names(&error.to_string(), 1, "it returned, while processing element");
    assert_eq!(errors[0], error.to_string());
    assert_eq!(errors[2], error.to_string());
}

#[test]
fn dropped_handles_fail_those_who_wait() {
    watched(|| {
        let mut communicators = communicators(3).unwrap();
        let last = communicators.pop().unwrap();
        let waiting: Vec<_> = communicators
            .into_iter()
            .map(|communicator| std::thread::spawn(move || communicator.barrier().unwrap_err()))
            .collect();
        std::thread::sleep(Duration::from_millis(10));
        drop(last);
        for thread in waiting {
            assert_names(&thread.join().unwrap().to_string(), 2, "dropped its communicator");
        }
    });
}

#[test]
fn failures_reach_duplicates() {
    // PE 0 waits on the duplicate while PE 1 fails elsewhere.
    let (errors, error) = outcomes(2, |communicator| {
        let duplicate = communicator.duplicate()?;
        if communicator.rank() == 0 {
            duplicate.barrier()
        } else {
            std::thread::sleep(Duration::from_millis(10));
            communicator.abort("it has had enough");
            communicator.barrier()
        }
    });
    assert_names(&error.to_string(), 1, "it has had enough");
    assert_eq!(errors, vec![error.to_string(); 2]);
    // Nor does a duplicate keep others waiting for a PE that has returned.
    let (errors, _) = outcomes(2, |communicator| {
        let duplicate = communicator.duplicate()?;
        if communicator.rank() == 0 { duplicate.barrier().map(|()| None) } else { Ok(Some(duplicate)) }
    });
    assert_names(&errors[0], 1, "it returned");
}

#[test]
fn two_threads_in_one_communicator_fail_all() {
    let is_over = AtomicBool::new(false);
    let (errors, error) = outcomes(2, move |communicator| {
        if communicator.rank() == 1 {
            // The first one waits for PE 0, the second one fails.
            let clone = communicator.clone();
            let other = std::thread::spawn(move || clone.barrier());
            let own = communicator.barrier();
            let result = other.join().unwrap().and(own);
            is_over.store(true, Ordering::Release);
            return result;
        }
        while !is_over.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        communicator.barrier()
    });
    assert_names(&error.to_string(), 1, "two of its threads");
    assert_eq!(errors, vec![error.to_string(); 2]);
}

#[test]
fn a_failure_during_exchanges_interrupts_none_of_them() {
    // Whenever PE 2 aborts, each exchange either fails on all or is whole on all.
    for round in 0..if cfg!(miri) { 3 } else { 20 } {
        watched(move || {
            let counts = Mutex::new(vec![0u32; 3]);
            run(3, |communicator| {
                let rank = communicator.rank();
                std::thread::scope(|scope| -> Result<()> {
                    let aborts = communicator.clone();
                    if rank == 2 {
                        scope.spawn(move || {
                            std::thread::sleep(Duration::from_micros(200 * round));
                            aborts.abort("it has had enough");
                        });
                    }
                    loop {
                        let mut values = vec![rank as f64; 5000];
                        communicator.all_reduce_sum(Stage::Other, Sum::F64(&mut values))?;
                        assert!(values.iter().all(|&v| v == 3.0));
                        counts.lock().unwrap()[rank] += 1;
                    }
                })
            })
            .unwrap_err();
            let counts = counts.into_inner().unwrap();
            assert!(counts.iter().all(|&count| count == counts[0]), "{counts:?}");
        });
    }
}
