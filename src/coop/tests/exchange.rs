//! Plans move the right rows, both ways.

use std::sync::Arc;

use proptest::prelude::*;
#[cfg(feature = "emulate")]
use proptest::strategy::ValueTree;

use crate::comm::threads::packed::run_packed;
use crate::comm::{Communicator, Stage, threads};
use crate::coop::{ExchangePlan, Peers, exchange};
use crate::device::{Cpu, Device};
use crate::error::Result;
use crate::tape::Tape;
use crate::tensor::Tensor;

/// Rows that an element needs: (owner, row), without repeats.
type Wants = Vec<(usize, u32)>;

/// How many rows each element owns, which rows each needs, and the rows' width.
fn problems() -> impl Strategy<Value = (Vec<usize>, Vec<Wants>, usize)> {
    (1..5usize, 0..4usize).prop_flat_map(|(n_pes, cols)| {
        let sizes = prop::collection::vec(0..6usize, n_pes);
        sizes.prop_flat_map(move |sizes| {
            let all: Vec<(usize, u32)> =
                sizes.iter().enumerate().flat_map(|(p, &n)| (0..n as u32).map(move |row| (p, row))).collect();
            let len = all.len();
            let wants = prop::collection::vec(prop::sample::subsequence(all, 0..=len).prop_shuffle(), n_pes);
            (Just(sizes), wants, Just(cols))
        })
    })
}

/// The plan of PE `rank`.
fn plan(cpu: &Cpu<f64>, rank: usize, sizes: &[usize], wants: &[Wants]) -> ExchangePlan<Cpu<f64>> {
    let n_pes = sizes.len();
    let of = |p: usize, owner: usize| wants[p].iter().enumerate().filter(move |(_, (o, _))| *o == owner);
    let send: Vec<Vec<u32>> = (0..n_pes).map(|p| of(p, rank).map(|(_, &(_, row))| row).collect()).collect();
    let order: Vec<Vec<u32>> = (0..n_pes).map(|q| of(rank, q).map(|(i, _)| i as u32).collect()).collect();
    let counts = |lists: &[Vec<u32>]| lists.iter().map(Vec::len).collect();
    ExchangePlan::new(cpu, sizes[rank], &send.concat(), counts(&send), &order.concat(), counts(&order))
        .unwrap()
}

/// Weights whose sum depends on the order of additions.
fn weight(rank: usize) -> f64 {
    (rank + 1) as f64 / 3.0 + [0.0, 1e10, 0.1, -1e10, 7.0][rank % 5]
}

fn value(owner: usize, row: u32, column: usize) -> f64 {
    (owner * 100 + row as usize * 10 + column) as f64
}

/// What a PE has after rows were fetched, their gradients sent back, and numbers added up: needed rows, gradients of
/// the owned ones, sums.
fn fetched<D: Device<Scalar = f64>>(
    device: &D,
    communicator: Communicator,
    problem: (&[usize], &[Wants], usize),
) -> Result<[Vec<f64>; 3]> {
    fetched_over(device, Peers::new(device, communicator), problem)
}

fn fetched_over<D: Device<Scalar = f64>>(
    device: &D,
    peers: Peers<D>,
    (sizes, wants, cols): (&[usize], &[Wants], usize),
) -> Result<[Vec<f64>; 3]> {
    let rank = peers.communicator().rank();
    let plan = Arc::new(ExchangePlan::from_host(device, plan(&Cpu::new(), rank, sizes, wants))?);
    let owned: Vec<f64> =
        (0..sizes[rank] as u32).flat_map(|row| (0..cols).map(move |c| value(rank, row, c))).collect();
    let tape = Tape::training(device, 0);
    let x = tape.leaf(Tensor::from_slice(device, sizes[rank], cols, &owned)?);
    let fetched = exchange(&tape, &peers, &plan, x)?;
    let needed = tape.value(fetched);
    // The gradient of Σ weight · fetched: for each owner, the sum of weights over the PEs that need a row.
    let weights = vec![weight(rank); wants[rank].len() * cols];
    let weights = Tensor::from_slice(device, wants[rank].len(), cols, &weights)?;
    let sum = tape.dot(fetched, weights)?;
    let gradients = tape.backward(sum)?;
    // Sums whose bits depend on the order of additions.
    let thirds: Vec<f64> = (0..cols).map(|c| value(rank, 1, c) / 3.0 + 1e10 / (rank + 3) as f64).collect();
    let sum = peers.all_reduce(device, Stage::Other, &Tensor::from_slice(device, 1, cols, &thirds)?)?;
    Ok([needed.to_vec(device)?, gradients.of(x).unwrap().to_vec(device)?, sum.to_vec(device)?])
}

/// Whatever the way of rows between devices, some of them the same one, for several orders of their streams: the bits
/// of the host's.
#[cfg(feature = "emulate")]
#[test]
fn devices_exchange_what_hosts_do() {
    use crate::coop::RowTransport;
    use crate::device::Cuda;
    use crate::device::cuda::tests::choose_schedule;

    const ALL: [RowTransport; 4] =
        [RowTransport::Read, RowTransport::Copy, RowTransport::Nccl, RowTransport::Host];
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    // All need all rows of all, which are many: in the last one.
    let all: Wants = (0..4).flat_map(|owner| (0..50).map(move |row| (owner, row))).collect();
    for schedule in 0..25 {
        let (sizes, wants, cols) = match schedule {
            24 => (vec![50; 4], vec![all.clone(); 4], 3),
            _ => problems().new_tree(&mut runner).unwrap().current(),
        };
        let problem = (&sizes[..], &wants[..], cols);
        let on_hosts = run_packed(sizes.len(), |c| fetched(&Cpu::new(), c, problem)).unwrap();
        let read = threads::run(sizes.len(), |c| fetched(&Cpu::new(), c, problem)).unwrap();
        assert_eq!(read, on_hosts);
        for n_devices in [1, 4] {
            let one = Cuda::new(0).unwrap();
            let body = |communicator: Communicator, transport| {
                choose_schedule(schedule);
                let number = communicator.rank() % n_devices;
                let device = if number == 0 { one.clone() } else { Cuda::new(number)? };
                let peers = Peers::connect(&device, communicator, transport)?;
                if transport != RowTransport::Auto {
                    assert_eq!(peers.transport(), transport);
                }
                fetched_over(&device, peers, problem)
            };
            for transport in ALL {
                if transport == RowTransport::Nccl && n_devices < sizes.len() {
                    let refused = threads::run(sizes.len(), |c| body(c, transport)).unwrap_err();
                    assert!(refused.to_string().contains("two ranks have one device"), "{refused}");
                    continue;
                }
                let found = threads::run(sizes.len(), |c| body(c, transport)).unwrap();
                assert_eq!(found, on_hosts, "schedule {schedule}, {transport} on {n_devices} devices");
            }
            // Where transports share no memory: by NCCL, or by a library that takes memory of devices.
            for transport in [RowTransport::Auto, RowTransport::Mpi] {
                let found = run_packed(sizes.len(), |c| body(c, transport)).unwrap();
                assert_eq!(found, on_hosts, "schedule {schedule}, {transport} on {n_devices} devices");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rows_arrive_where_they_are_needed_and_gradients_go_back((sizes, wants, cols) in problems()) {
        let body = |communicator: Communicator| {
            let (cpu, rank) = (Cpu::<f64>::new(), communicator.rank());
            let [needed, gradient, _] = fetched(&cpu, communicator.duplicate()?, (&sizes, &wants, cols))?;
            let plan = plan(&cpu, rank, &sizes, &wants);
            let names: Vec<u32> = (0..sizes[rank] as u32).map(|row| row * 7 + rank as u32).collect();
            let named = plan.fetch_values(&communicator, Stage::Other, &names)?;
            // Row i as a list of i % 3 numbers.
            let mut indptr = vec![0u32];
            let mut lists = Vec::new();
            for (i, &name) in names.iter().enumerate() {
                lists.extend(vec![name; i % 3]);
                indptr.push(lists.len() as u32);
            }
            let listed = plan.fetch_lists(&communicator, Stage::Other, (&indptr, &lists))?;
            Ok((needed, gradient, named, listed))
        };
        // By reading each other's memory, and by packing and sending.
        let results = threads::run(sizes.len(), body).unwrap();
        prop_assert_eq!(&results, &run_packed(sizes.len(), body).unwrap());
        for (rank, (needed, gradient, named, (indptr, lists))) in results.iter().enumerate() {
            let expected: Vec<f64> = wants[rank]
                .iter()
                .flat_map(|&(owner, row)| (0..cols).map(move |c| value(owner, row, c)))
                .collect();
            prop_assert_eq!(needed, &expected);
            for row in 0..sizes[rank] as u32 {
                let needing = wants.iter().enumerate().filter(|(_, w)| w.contains(&(rank, row)));
                let sum = needing.fold(0.0, |sum, (p, _)| sum + weight(p));
                for c in 0..cols {
                    prop_assert_eq!(gradient[row as usize * cols + c], sum);
                }
            }
            for (i, &(owner, row)) in wants[rank].iter().enumerate() {
                let name = row * 7 + owner as u32;
                prop_assert_eq!(named[i], name);
                let list = &lists[indptr[i] as usize..indptr[i + 1] as usize];
                prop_assert_eq!(list, &vec![name; row as usize % 3][..]);
            }
        }
    }
}
