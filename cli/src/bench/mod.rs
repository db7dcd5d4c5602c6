//! `cohop bench`

mod attention;
mod check;
mod cooperation;
mod dense;
mod layers;
mod measure;
mod memory;
mod row;
mod sampling;
mod sparse;
mod training;
mod workload;

use std::any::Any;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use super::device::on_device;
use super::table::Table;
use super::{Global, number, output};
use cohop::device::{Cpu, Device, Storage};
use cohop::{Error, Result};
use measure::{Protocol, Times, Work, measure, measure_repeated};
use row::{Amount, Asked, Counts, Row};
use workload::{Size, Workload};

/// Measure the kernels on this machine
///
/// Checks every answer before timing it. Repeats runs during which other processes were busy, up to three times as many
/// runs in total. On a GPU, kernels and layers are timed by events on it, around as many launches as take 5 ms. "of
/// copy" is the bandwidth relative to a plain copy's; rows that are read again count again, so it can exceed 100 % if
/// they stay in a cache.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cohop bench
  cohop bench --only spmm,sddmm --runs 10
  cohop bench --size M --only sample,train --threads 2 --json
  cohop bench --device cuda --size M")]
pub(super) struct BenchArgs {
    /// Instead of a generated graph: a folder with the arrays rowptr, col, x, y, train, batches and etype as .npy
    /// files, as benches/peers/make_graph.py writes it; or a data set folder of any size, to measure sampling and
    /// training
    #[arg(long, value_name = "FOLDER", conflicts_with = "size")]
    data: Option<PathBuf>,
    /// The size of the generated graph
    #[arg(long, value_enum, default_value = "S")]
    size: Size,
    /// Run only benchmarks whose names contain one of these
    #[arg(long, value_delimiter = ',', value_name = "NAME,NAME,...")]
    only: Vec<String>,
    /// Columns of the dense operand of spmm, and, up to 128, of sddmm
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "64,128,256",
        value_name = "N,N,...",
        value_parser = number::at_least_one()
    )]
    widths: Vec<usize>,
    /// Sample this many batches, from the first on [default: all; for a generated graph 100]
    #[arg(long, value_name = "N", value_parser = number::at_least_one())]
    batches: Option<usize>,
    /// Print the names of all benchmarks
    #[arg(long)]
    list: bool,
    /// Counted runs of each benchmark
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = number::at_least_one())]
    runs: usize,
    /// Warm-up runs of each benchmark
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = number::any::<usize>())]
    warmup: usize,
    /// Stop a benchmark after this time, but not before three runs
    #[arg(
        long,
        default_value_t = 60.0,
        value_name = "S",
        value_parser = number::positive,
        allow_negative_numbers = true
    )]
    max_seconds: f64,
}

/// All benchmarks, with descriptions.
const WORKS: [(&str, &str); 35] = [
    ("copy", "all threads copy memory"),
    ("gather", "random rows of a table"),
    ("gemm_f32", "dense products"),
    ("transpose", "the graph's edges by source"),
    ("spmm_sum_fwd", "sum of the neighbours' rows"),
    ("spmm_sum_bwd", "its gradient"),
    ("spmm_mean_fwd", "mean of the neighbours' rows"),
    ("spmm_mean_bwd", "its gradient"),
    ("spmm_weighted_fwd", "sum with a weight on each edge"),
    ("spmm_weighted_bwd", "its gradient"),
    ("spmm_sum_bf16", "sum of the neighbours' rows in bf16, after rounding them"),
    ("spmm_sum_f16", "the same in f16, with a factor for each row"),
    ("spmm_max_fwd", "maximum of the neighbours' rows"),
    ("spmm_max_bwd", "its gradient"),
    ("sddmm_dot", "dot product of the rows at an edge's ends"),
    ("edge_softmax_fwd", "softmax over in-edges, 8 heads"),
    ("edge_softmax_bwd", "its gradient"),
    ("gat_fwd", "a GAT layer, 128 to 8 heads of 16"),
    ("gat_fwd+bwd", "with its gradients"),
    ("gatv2_fwd", "a GATv2 layer, 128 to 8 heads of 16"),
    ("gatv2_fwd+bwd", "with its gradients"),
    ("rgcn_fwd", "an R-GCN layer, 128 to 128"),
    ("rgcn_fwd+bwd", "with its gradients"),
    ("sample", "neighbour sampling, fanouts 15, 10, 5"),
    ("sample_labor0", "LABOR-0 sampling, fanouts 15, 10, 5"),
    ("sample_kappa64", "neighbour sampling likewise, κ = 64"),
    ("sample_labor0_kappa64", "LABOR-0 sampling likewise, κ = 64"),
    ("train_sage", "training GraphSAGE, 3 layers of 256, fanouts 15, 10, 5"),
    ("train_gcn", "training GCN likewise"),
    ("train_sage_on_device", "the same with minibatches made on a GPU"),
    ("train_sage_graph_on_device", "the same with features in the host's memory"),
    ("train_gcn_on_device", "the same with minibatches made on a GPU"),
    ("cooperation_serial", "training GraphSAGE likewise, by one processing element (PE)"),
    (
        "cooperation_independent",
        "the same by 2, 4 and 8 PEs on the same threads, each with its part of a batch",
    ),
    ("cooperation_cooperative", "the same by PEs that share each batch"),
];

/// What every benchmark needs, and the rows so far.
struct Bench<'a, D: Device<Scalar = f32>> {
    device: &'a D,
    workload: &'a Workload,
    only: &'a [String],
    widths: &'a [usize],
    protocol: Protocol,
    /// Whether the device uses the host's memory.
    on_host: bool,
    /// Bytes that a plain copy reads and writes per second.
    copy_rate: f64,
    json: bool,
    rows: Vec<Row>,
    bar: ProgressBar,
}

/// A benchmark of `--list`.
#[derive(Serialize)]
struct Listed {
    work: &'static str,
    measures: &'static str,
}

pub(super) fn run(global: &Global, args: &BenchArgs) -> Result<ExitCode> {
    if args.list {
        if global.json {
            WORKS.iter().try_for_each(|&(work, measures)| output::json(&Listed { work, measures }))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut table = Table::new(2, ["work", "what it measures"]);
        WORKS.iter().for_each(|(work, what)| table.row([*work, *what]));
        table.print()?;
        return Ok(ExitCode::SUCCESS);
    }
    for part in &args.only {
        if part.is_empty() || !WORKS.iter().any(|(work, _)| work.contains(part.as_str())) {
            let known: Vec<&str> = WORKS.iter().map(|(work, _)| *work).collect();
            let expected = format!("part of one of {}", known.join(" "));
            return Err(Error::invalid("--only", part, expected));
        }
    }
    if args.runs == 0 {
        return Err(Error::invalid("--runs", 0, "at least 1"));
    }
    if args.widths.contains(&0) {
        return Err(Error::invalid("--widths", 0, "at least 1"));
    }
    if args.batches == Some(0) {
        return Err(Error::invalid("--batches", 0, "at least 1"));
    }
    on_device!(global.device, f32, device => run_on(&device, global, args))
}

fn run_on<D: Device<Scalar = f32>>(device: &D, global: &Global, args: &BenchArgs) -> Result<ExitCode> {
    let mut workload = match &args.data {
        Some(folder) => Workload::read(folder, global.seed)?,
        None => Workload::generate(args.size, global.seed)?,
    };
    workload.batches.truncate(args.batches.unwrap_or(usize::MAX));
    // Without a terminal on stderr indicatif draws nothing.
    let target = if global.quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let style =
        ProgressStyle::with_template("{elapsed} {wide_msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
    let mut bench = Bench {
        device,
        workload: &workload,
        only: &args.only,
        widths: &args.widths,
        protocol: Protocol { warmup: args.warmup, runs: args.runs, max_seconds: args.max_seconds },
        on_host: D::as_host(D::view(&device.upload(&[0.0f32])?)).is_some(),
        copy_rate: f64::NAN,
        json: global.json,
        rows: Vec::new(),
        bar: ProgressBar::with_draw_target(None, target).with_style(style),
    };
    memory::copy(&mut bench)?;
    if workload.is_in_memory {
        memory::gather(&mut bench)?;
        dense::gemm(&mut bench)?;
        sparse::all(&mut bench)?;
        attention::edge_softmax(&mut bench)?;
        layers::all(&mut bench)?;
    }
    sampling::all(&mut bench)?;
    training::all(&mut bench)?;
    cooperation::all(&mut bench)?;
    bench.bar.finish_and_clear();
    if bench.rows.is_empty() {
        return Err(Error::invalid(
            "--only",
            args.only.join(","),
            "sampling or training, on a data set folder",
        ));
    }
    if !global.json {
        output::line(device.describe())?;
        row::print(&bench.rows)?;
    }
    Ok(ExitCode::SUCCESS)
}

impl<D: Device<Scalar = f32>> Bench<'_, D> {
    /// Whether to run a benchmark.
    fn wants(&self, work: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| work.contains(part.as_str()))
    }

    fn wants_any(&self, works: &[&str]) -> bool {
        works.iter().any(|work| self.wants(work))
    }

    /// Whether benchmarks that do not depend on the graph have their full size, since the graph is large.
    fn is_full_size(&self) -> bool {
        self.workload.graph().n_vertices() >= 1 << 16
    }

    /// A row's size: the graph's name and a parameter.
    fn size(&self, parameter: impl std::fmt::Display) -> String {
        format!("{},{parameter}", self.workload.name)
    }

    /// Times `run`, which asks a device for works of its stream and does not wait for it: on a GPU by events there.
    fn time_kernel(
        &mut self,
        work: &'static str,
        size: String,
        amount: Amount,
        mut run: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let Some(clock) = clock_of(self.device) else { return self.time(work, size, amount, run) };
        self.bar.set_message(format!("{work} {size}"));
        self.bar.tick();
        // Of one run, which also warms up.
        let before = asked(self.device);
        run()?;
        let asked = before.zip(asked(self.device)).map(|(before, after)| after.since(before));
        let (times, launches) = measure_repeated(self.protocol, clock, run)?;
        self.keep(work, size, &amount, times, Counts { peak_bytes: None, asked }, Some(launches))
    }

    /// Times `run`, which needs no preparation.
    fn time(
        &mut self,
        work: &'static str,
        size: String,
        amount: Amount,
        mut run: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        self.time_with(work, size, amount, || Ok(()), |()| run())
    }

    /// Times `run` on the result of `setup`, which is not timed, and keeps the row.
    fn time_with<T>(
        &mut self,
        work: &'static str,
        size: String,
        amount: Amount,
        mut setup: impl FnMut() -> Result<T>,
        mut run: impl FnMut(T) -> Result<()>,
    ) -> Result<()> {
        self.bar.set_message(format!("{work} {size}"));
        self.bar.tick();
        let device = self.device;
        let ready = || {
            let made = setup()?;
            device.synchronize()?;
            Ok(made)
        };
        let (times, counts) = {
            let mut ready = ready;
            let made = ready()?;
            let before = start_peak(device);
            let asked = asked(device);
            run(made)?;
            // Without the wait below, which is the benchmark's.
            let asked = asked.zip(self::asked(device)).map(|(before, after)| after.since(before));
            device.synchronize()?;
            let peak_bytes = peak(device).zip(before).map(|(peak, before)| peak.saturating_sub(before));
            // This was a warm-up run.
            let warmup = self.protocol.warmup.saturating_sub(1);
            let run = |made| {
                run(made)?;
                device.synchronize()
            };
            (measure(Protocol { warmup, ..self.protocol }, ready, run)?, Counts { peak_bytes, asked })
        };
        self.keep(work, size, &amount, times, counts, None)
    }

    /// Keeps the row of `times`; `repeats`: of how many runs each is the mean, if they were timed on the device.
    fn keep(
        &mut self,
        work: &'static str,
        size: String,
        amount: &Amount,
        times: Times,
        counts: Counts,
        repeats: Option<usize>,
    ) -> Result<()> {
        let times = times.per_part(amount.parts);
        let rate = amount.bytes.map(|bytes| bytes / times.median());
        if work == "copy" {
            self.copy_rate = rate.unwrap_or(f64::NAN);
            // All shares need the rate; the row is kept only if `--only` wants it.
            if !self.wants(work) {
                return Ok(());
            }
        }
        let mut row = Row::new(work, size, &times, amount, counts, self.copy_rate, self.device.describe());
        row.repeats = repeats;
        if self.json {
            output::json(&row)?;
        }
        self.rows.push(row);
        Ok(())
    }
}

/// A clock of a device that has one of its own: a GPU.
#[cfg(any(feature = "cuda", feature = "emulate"))]
fn clock_of<D: Storage>(device: &D) -> Option<impl Fn(Work<'_>) -> Result<f64> + use<D>> {
    let cuda = (device as &dyn Any).downcast_ref::<cohop::device::Cuda<f32>>()?.clone();
    Some(move |work: Work<'_>| cuda.time(work))
}

#[cfg(not(any(feature = "cuda", feature = "emulate")))]
fn clock_of<D: Storage>(_: &D) -> Option<fn(Work<'_>) -> Result<f64>> {
    None
}

/// Starts to record the peak memory of a device that counts its buffers: the CPU. Returns the bytes of live buffers.
fn start_peak<D: Storage>(device: &D) -> Option<u64> {
    let cpu = (device as &dyn Any).downcast_ref::<Cpu<f32>>()?;
    cpu.reset_peak_memory();
    Some(cpu.memory_statistics().live_bytes)
}

fn peak<D: Storage>(device: &D) -> Option<u64> {
    let cpu = (device as &dyn Any).downcast_ref::<Cpu<f32>>()?;
    Some(cpu.memory_statistics().peak_bytes)
}

/// What a device was asked to do since it was opened, if it counts that: a GPU does.
#[cfg(any(feature = "cuda", feature = "emulate"))]
fn asked<D: Storage>(device: &D) -> Option<Asked> {
    let cuda = (device as &dyn Any).downcast_ref::<cohop::device::Cuda<f32>>()?;
    let activity = cuda.activity();
    Some(Asked { waits: activity.waits, launches: activity.launches })
}

#[cfg(not(any(feature = "cuda", feature = "emulate")))]
fn asked<D: Storage>(_: &D) -> Option<Asked> {
    None
}
