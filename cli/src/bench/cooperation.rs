//! What cooperation saves in time: epochs of one processing element (PE), and of several on the same threads that have
//! a part of each batch each (independent) or share it (cooperative).

use super::Bench;
use super::measure::{Times, measure};
use super::row::{Amount, Counts};
use super::training::Run;
use cohop::batch::DataOnDevice;
use cohop::comm::{Communicator, Stage, Sum, threads};
use cohop::coop::{FirstLayer, Mode, RowTransport};
use cohop::device::{Cpu, Device};
use cohop::graph::PartitionMethod;
use cohop::nn::ModelKind;
use cohop::train::{ParallelConfig, Trainer};
use cohop::{Error, Result};

/// Numbers of PEs.
const PES: [usize; 3] = [2, 4, 8];

pub(super) fn all<D: Device<Scalar = f32>>(bench: &mut Bench<'_, D>) -> Result<()> {
    // PEs on one GPU would wait for each other.
    if !bench.on_host {
        return Ok(());
    }
    if bench.wants("cooperation_serial") {
        epochs(bench, "cooperation_serial", Mode::Serial, 1)?;
    }
    for pes in PES {
        for (work, mode) in
            [("cooperation_independent", Mode::Independent), ("cooperation_cooperative", Mode::Cooperative)]
        {
            if bench.wants(work) {
                epochs(bench, work, mode, pes)?;
            }
        }
    }
    Ok(())
}

/// What the first PE measures.
struct Measured {
    times: Times,
    amount: Amount,
}

fn epochs<D: Device<Scalar = f32>>(
    bench: &mut Bench<'_, D>,
    work: &'static str,
    mode: Mode,
    pes: usize,
) -> Result<()> {
    let size = bench.size(pes);
    bench.bar.set_message(format!("{work} {size}"));
    bench.bar.tick();
    let run = Run::new(bench.workload, ModelKind::Sage, DataOnDevice::Nothing);
    let protocol = bench.protocol;
    let parallel = ParallelConfig {
        mode,
        partition: PartitionMethod::Random,
        first_layer: FirstLayer::Whole,
        row_transport: RowTransport::Auto,
    };
    let one = |communicator: Communicator| -> Result<(Option<Measured>, u64)> {
        let device = Cpu::<f32>::new();
        let mut trainer = Trainer::new(device.clone(), run.dataset.clone(), run.config.clone())?;
        let (control, rank) = (communicator.duplicate()?, communicator.rank());
        if mode != Mode::Serial {
            trainer = trainer.join(parallel, communicator)?;
        }
        let report = trainer.run_epoch(&mut ())?;
        run.check(work, &report)?;
        let mut epoch = || trainer.run_epoch(&mut ()).map(drop);
        let mut measured = None;
        if rank == 0 {
            let times = measure(protocol, || go_on(&control, true).map(drop), |()| epoch())?;
            go_on(&control, false)?;
            let per_batch = |count: u64| Some(count as f64 / run.n_batches as f64);
            let amount = Amount {
                parts: run.n_batches,
                edges: per_batch(report.edges),
                input_rows: per_batch(report.input_vertices),
                ..Amount::new(1.0, "batches/s")
            };
            measured = Some(Measured { times, amount });
        } else {
            while go_on(&control, false)? {
                epoch()?;
            }
        }
        Ok((measured, device.memory_statistics().peak_bytes))
    };
    let by_pe = threads::run(pes, one)?;
    let peak_bytes = by_pe.iter().map(|(_, peak)| *peak).max();
    let measured = by_pe.into_iter().find_map(|(measured, _)| measured);
    let Measured { times, amount } = measured.ok_or_else(|| Error::invalid("pes", pes, "at least 1"))?;
    bench.keep(work, size, &amount, times, Counts { peak_bytes, asked: None }, None)
}

/// Whether one of the PEs wants another epoch. All ask at the same time.
fn go_on(control: &Communicator, wanted: bool) -> Result<bool> {
    let mut wanted = [u64::from(wanted)];
    control.all_reduce_sum(Stage::Other, Sum::U64(&mut wanted))?;
    Ok(wanted[0] > 0)
}
