//! What holds over every transport: the bodies of tests of each. `tests/mpi.rs`, whose test is a program of its own,
//! includes this file by its path, and has what it imports under the same names.

use super::{Communicator, Error, Result, Stage, Sum};
use crate::testing::Random;

/// Of very different magnitudes, so that sums show their order.
fn float(random: &mut Random) -> f64 {
    let magnitude = [1e-4, 1e-2, 1.0, 1e2, 1e4][random.index(5)];
    (random.word() as f64 / u64::MAX as f64 - 0.5) * magnitude
}

/// Every test, for a number of seeds.
pub fn all(communicator: &Communicator, n_seeds: u64) -> Result<()> {
    for seed in 0..n_seeds {
        all_to_all_v(communicator, seed)?;
        reductions(communicator, seed)?;
        broadcast(communicator, seed)?;
        all_gather_v(communicator, seed)?;
    }
    communicator.barrier()?;
    duplicates_of_two_threads(communicator)?;
    statistics(communicator)
}

/// Against what each PE draws for all others.
pub fn all_to_all_v(communicator: &Communicator, seed: u64) -> Result<()> {
    let (rank, n_pes) = (communicator.rank(), communicator.size());
    let mut random = Random(seed);
    let max_count = [1, 3, 50][random.index(3)];
    let counts: Vec<Vec<usize>> = (0..n_pes)
        .map(|_| (0..n_pes).map(|_| random.index(2) * random.index(max_count + 1)).collect())
        .collect();
    let element = |from: usize, to: usize, i: usize| (from * 10_000 + to * 100 + i) as u32;
    let message = |from: usize, to: usize| (0..counts[from][to]).map(move |i| element(from, to, i));
    let send: Vec<u32> = (0..n_pes).flat_map(|to| message(rank, to)).collect();
    let expected: Vec<u32> = (0..n_pes).flat_map(|from| message(from, rank)).collect();

    let receive_counts = communicator.exchange_counts(Stage::Sample, &counts[rank])?;
    assert_eq!(receive_counts, counts.iter().map(|row| row[rank]).collect::<Vec<_>>());
    let received = communicator.all_to_all_v_new(Stage::Sample, &send, &counts[rank], &receive_counts)?;
    assert_eq!(received, expected);
    // Another width, into a slice with something in it.
    let wide: Vec<f64> = send.iter().map(|&value| value.into()).collect();
    let mut receive = vec![-1.0; expected.len()];
    communicator.all_to_all_v(Stage::Forward, &wide, &counts[rank], &mut receive, &receive_counts)?;
    assert_eq!(receive, expected.iter().map(|&value| value.into()).collect::<Vec<f64>>());
    Ok(())
}

/// Bit for bit what one PE gets that has the values of all.
pub fn reductions(communicator: &Communicator, seed: u64) -> Result<()> {
    let (rank, n_pes) = (communicator.rank(), communicator.size());
    let mut random = Random(!seed);
    // Short and long: on both sides of every limit, and less than one element for each PE.
    let len = [0, 1, 2, 7, 1024, 1025, 5000, 40_000][seed as usize % 8];
    let values: Vec<Vec<f64>> = (0..n_pes).map(|_| (0..len).map(|_| float(&mut random)).collect()).collect();
    let f32s: Vec<Vec<f32>> = values.iter().map(|row| row.iter().map(|&v| v as f32).collect()).collect();
    let u64s: Vec<Vec<u64>> = values.iter().map(|row| row.iter().map(|v| v.to_bits()).collect()).collect();

    let mut sum = values[rank].clone();
    communicator.all_reduce_sum(Stage::Parameter, Sum::F64(&mut sum))?;
    assert!(sum.iter().map(|v| v.to_bits()).eq(fold(&values, |a, b| a + b).map(f64::to_bits)));
    let mut sum = f32s[rank].clone();
    communicator.all_reduce_sum(Stage::Parameter, Sum::F32(&mut sum))?;
    assert!(sum.iter().map(|v| v.to_bits()).eq(fold(&f32s, |a, b| a + b).map(f32::to_bits)));
    let mut sum = u64s[rank].clone();
    communicator.all_reduce_sum(Stage::Parameter, Sum::U64(&mut sum))?;
    assert!(sum.iter().copied().eq(fold(&u64s, u64::wrapping_add)));
    let mut max = values[rank].clone();
    communicator.all_reduce_max(Stage::Sample, &mut max)?;
    assert!(max.iter().copied().eq(fold(&values, f64::max)));

    let mut max = [if rank == n_pes - 1 { f64::NAN } else { 1.0 }, -1.0];
    communicator.all_reduce_max(Stage::Sample, &mut max)?;
    assert!(max[0].is_nan() && max[1] == -1.0);
    // Nothing is added to the first value: -0 stays.
    let mut zero = [-0f32];
    communicator.all_reduce_sum(Stage::Parameter, Sum::F32(&mut zero))?;
    assert!(zero[0].is_sign_negative());
    Ok(())
}

fn fold<T: Copy>(rows: &[Vec<T>], combine: impl Fn(T, T) -> T) -> impl Iterator<Item = T> {
    (0..rows[0].len()).map(move |i| rows.iter().map(|row| row[i]).reduce(&combine).unwrap())
}

pub fn broadcast(communicator: &Communicator, seed: u64) -> Result<()> {
    let (rank, n_pes) = (communicator.rank(), communicator.size());
    let mut random = Random(seed ^ 0xb0);
    let root = random.index(n_pes);
    let sent: Vec<u16> = (0..random.index(1000)).map(|_| random.word() as u16).collect();
    let mut values = if rank == root { sent.clone() } else { vec![0; sent.len()] };
    communicator.broadcast(Stage::Other, root, &mut values)?;
    assert_eq!(values, sent);
    Ok(())
}

pub fn all_gather_v(communicator: &Communicator, seed: u64) -> Result<()> {
    let (rank, n_pes) = (communicator.rank(), communicator.size());
    let mut random = Random(seed ^ 0xa6);
    let rows: Vec<Vec<i32>> =
        (0..n_pes).map(|_| (0..random.index(5)).map(|_| random.word() as i32).collect()).collect();
    let (gathered, counts) = communicator.all_gather_v(Stage::Other, &rows[rank])?;
    assert_eq!(counts, rows.iter().map(Vec::len).collect::<Vec<_>>());
    assert_eq!(gathered, rows.concat());
    Ok(())
}

/// Two threads per PE, each with its own communicator, at different paces.
pub fn duplicates_of_two_threads(communicator: &Communicator) -> Result<()> {
    let duplicate = communicator.duplicate()?;
    let rounds = |communicator: &Communicator, sign: f64| -> Result<()> {
        let n_pes = communicator.size() as f64;
        for i in 0..200 {
            let mut values = vec![sign * f64::from(i); if i % 50 == 0 { 3000 } else { 3 }];
            communicator.all_reduce_sum(Stage::Other, Sum::F64(&mut values))?;
            assert!(values.iter().all(|&v| v == sign * f64::from(i) * n_pes));
            let counts = vec![i as usize; communicator.size()];
            assert_eq!(communicator.exchange_counts(Stage::Other, &counts)?, counts);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| rounds(&duplicate, -1.0));
        let mine = rounds(communicator, 1.0);
        other.join().unwrap().and(mine)
    })
}

/// Exact, and what the arguments tell.
pub fn statistics(communicator: &Communicator) -> Result<()> {
    let (rank, n_pes) = (communicator.rank(), communicator.size());
    communicator.reset_statistics();
    assert_eq!(communicator.statistics().total().bytes, 0);
    // Three u32 to every higher rank, one to itself, nothing to lower ones.
    let counts = |from: usize, to: usize| match to.cmp(&from) {
        std::cmp::Ordering::Less => 0,
        std::cmp::Ordering::Equal => 1,
        std::cmp::Ordering::Greater => 3,
    };
    let send_counts: Vec<usize> = (0..n_pes).map(|to| counts(rank, to)).collect();
    let receive_counts: Vec<usize> = (0..n_pes).map(|from| counts(from, rank)).collect();
    let send = vec![7u32; send_counts.iter().sum()];
    communicator.all_to_all_v_new(Stage::Feature, &send, &send_counts, &receive_counts)?;
    communicator.duplicate()?.broadcast(Stage::Backward, 0, &mut [0u16; 5])?;
    communicator.all_reduce_sum(Stage::Parameter, Sum::F32(&mut vec![0.0; 4 * n_pes]))?;
    communicator.barrier()?;
    let statistics = communicator.statistics();
    let higher = (n_pes - 1 - rank) as u64;
    let others = (n_pes - 1) as u64;
    let of = |stage| (statistics.stage(stage).messages, statistics.stage(stage).bytes);
    assert_eq!(of(Stage::Feature), (higher, higher * 12));
    assert_eq!(of(Stage::Backward), if rank == 0 { (others, others * 10) } else { (0, 0) });
    // A share of four to each other PE, and the sums of its own share.
    assert_eq!(of(Stage::Parameter), (2 * others, 2 * others * 16));
    assert_eq!(of(Stage::Other), (0, 0));
    assert_eq!(of(Stage::Sample), (0, 0));
    assert!(statistics.stage(Stage::Other).seconds > 0.0);
    assert_eq!(
        statistics.total().bytes,
        Stage::ALL.iter().map(|&stage| statistics.stage(stage).bytes).sum::<u64>()
    );
    Ok(())
}

/// Arguments that do not fit are typed errors, and the PE's later collectives fail. Last: nothing works afterwards.
pub fn refusals(communicator: &Communicator) {
    let n_pes = communicator.size();
    let counts = vec![1; n_pes];
    let short = vec![0u32; n_pes - 1];
    let error = communicator.all_to_all_v_new(Stage::Other, &short, &counts, &counts).unwrap_err();
    let (actual, expected) = (n_pes as u64 - 1, n_pes as u64);
    assert!(
        matches!(error, Error::WrongLength { array: "send", actual: a, expected: e } if (a, e) == (actual, expected)),
        "{error}"
    );
    let error = communicator.barrier().unwrap_err();
    assert!(matches!(error, Error::Communication { rank, .. } if rank == communicator.rank()), "{error}");
    assert!(error.to_string().contains("send has"), "{error}");
}
