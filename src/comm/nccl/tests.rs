use super::*;
use crate::comm::{Stage, tests as body};

/// What `run` returns, unless there is no GPU or no NCCL, which is said; with COHOP_NCCL_REQUIRED set that is a
/// failure.
fn run_or_skip<T: Send>(
    n_pes: usize,
    body: impl Fn(Communicator, Cuda<f32>) -> Result<T> + Sync,
) -> Option<Result<Vec<T>>> {
    match run(n_pes, body) {
        Err(error @ (Error::NoCudaDevice { .. } | Error::Unavailable { .. }))
            if std::env::var_os("COHOP_NCCL_REQUIRED").is_none() =>
        {
            eprintln!("SKIPPED: {error}");
            None
        }
        outcome => Some(outcome),
    }
}

/// As many PEs as there are GPUs, four at most.
fn n_pes() -> usize {
    match Cuda::<f32>::new(0).map(|_| CudaContext::device_count()) {
        Ok(Ok(count)) => count.clamp(1, 4) as usize,
        _ => 1,
    }
}

#[test]
fn what_holds_over_every_transport() {
    if let Some(outcome) = run_or_skip(1, |communicator, _| body::all(&communicator, 8)) {
        outcome.unwrap();
    }
    if n_pes() > 1
        && let Some(outcome) = run_or_skip(n_pes(), |communicator, _| body::all(&communicator, 8))
    {
        outcome.unwrap();
    }
}

#[test]
fn arguments_that_do_not_fit_are_refused() {
    assert!(matches!(run(0, |_, _| Ok(())), Err(Error::InvalidArgument { .. })));
    if let Some(outcome) = run_or_skip(100_000, |_, _| Ok(())) {
        let error = outcome.unwrap_err();
        assert!(error.to_string().contains("one processing element per GPU"), "{error}");
    }
    let refusals = |communicator: Communicator, _| {
        body::refusals(&communicator);
        Ok(())
    };
    if let Some(outcome) = run_or_skip(n_pes(), refusals) {
        outcome.unwrap();
    }
}

#[test]
fn what_fails_on_one_is_returned_and_fails_on_all() {
    let last = n_pes() - 1;
    let outcome = run_or_skip(n_pes(), |communicator, _| {
        let mut ones = [1u64; 5000];
        communicator.all_reduce_sum(Stage::Other, Sum::U64(&mut ones))?;
        if communicator.rank() == last {
            return Err(Error::invalid("dim", 3, "an even number"));
        }
        communicator.all_reduce_sum(Stage::Other, Sum::U64(&mut ones))
    });
    if let Some(outcome) = outcome {
        let error = outcome.unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { argument: "dim", .. }), "{error}");
    }
    // An abort reaches duplicates.
    let outcome = run_or_skip(n_pes(), |communicator, _| {
        let duplicate = communicator.duplicate()?;
        communicator.abort("it has had enough");
        duplicate.broadcast(Stage::Other, 0, &mut [0u8; 100])
    });
    if let Some(outcome) = outcome {
        let error = outcome.unwrap_err();
        assert!(error.to_string().contains("it has had enough"), "{error}");
    }
}

#[test]
fn without_a_gpu_or_nccl_there_is_an_error_and_no_panic() {
    match run(1, |communicator, device| Ok((communicator.size(), format!("{device:?}")))) {
        Ok(results) => assert_eq!(results[0].0, 1),
        Err(error) => {
            assert!(matches!(error, Error::NoCudaDevice { .. } | Error::Unavailable { .. }), "{error}")
        }
    }
}

#[test]
fn parts_are_aligned_and_do_not_overlap() {
    let lengths = [0, 1, 256, 0, 257, 4000];
    let (parts, total) = offsets(lengths.into_iter());
    assert_eq!(parts.iter().map(|part| part.1).collect::<Vec<_>>(), lengths);
    assert!(parts.iter().all(|part| part.0 % ALIGNMENT == 0));
    assert!(parts.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
    assert_eq!(total, 256 + 256 + 512 + 4096);
    assert_eq!(offsets(std::iter::empty()), (vec![], 0));
}
