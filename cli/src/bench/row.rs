//! The printed results of a benchmark.

use serde::Serialize;

use super::measure::Times;
use crate::table::{Table, bytes};
use cohop::Result;

/// How much work a run does.
#[derive(Clone, Debug)]
pub(super) struct Amount {
    /// For one part of a run; per second it is in `unit`.
    pub value: f64,
    /// The unit of the amount per second.
    pub unit: &'static str,
    /// Number of equal parts of a run; results are per part.
    pub parts: usize,
    /// Bytes that a part must move if nothing stays in a cache; only if memory limits the speed.
    pub bytes: Option<f64>,
    /// Sampled edges per part.
    pub edges: Option<f64>,
    /// Feature rows that a part loads.
    pub input_rows: Option<f64>,
}

impl Amount {
    pub(super) fn new(value: f64, unit: &'static str) -> Self {
        Amount { value, unit, parts: 1, bytes: None, edges: None, input_rows: None }
    }

    /// The amount of `n` multiplications and additions.
    pub(super) fn multiply_adds(n: f64) -> Self {
        Amount::new(2.0 * n / 1e9, "GFLOP/s")
    }

    /// The amount of moved bytes.
    pub(super) fn moved(bytes: f64) -> Self {
        Amount::new(bytes / 1e9, "GB/s").bytes(bytes)
    }

    /// The amount of `n` edges of the graph.
    pub(super) fn graph_edges(n: usize) -> Self {
        Amount::new(n as f64 / 1e6, "M edges/s")
    }

    pub(super) fn bytes(self, bytes: f64) -> Self {
        Amount { bytes: Some(bytes), ..self }
    }
}

/// What a GPU was asked to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Asked {
    /// Times that the host waited for it.
    pub waits: u64,
    /// Kernels launched, but for those of CUDA's libraries.
    pub launches: u64,
}

impl Asked {
    pub(super) fn since(self, before: Asked) -> Asked {
        Asked { waits: self.waits - before.waits, launches: self.launches - before.launches }
    }
}

/// What was counted in the first run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Peak bytes of buffers, on the CPU.
    pub peak_bytes: Option<u64>,
    /// On a GPU.
    pub asked: Option<Asked>,
}

/// The result of one benchmark.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    peer: &'static str,
    work: &'static str,
    size: String,
    threads: usize,
    seconds_median: f64,
    seconds_min: f64,
    seconds_max: f64,
    runs: usize,
    spread: f64,
    throughput: f64,
    unit: &'static str,
    quiet_runs: usize,
    all_runs: usize,
    other_cores: f64,
    /// Of how many runs in a row, timed on the device, each of these is the mean.
    pub repeats: Option<usize>,
    /// Bytes moved, if nothing stays in a cache.
    #[serde(rename = "effective_GBps")]
    effective_gbps: Option<f64>,
    /// Bandwidth relative to a copy's.
    copy_share: Option<f64>,
    edges_per_batch: Option<f64>,
    edges_per_second: Option<f64>,
    input_rows_per_batch: Option<f64>,
    /// Peak bytes of buffers that a run allocates.
    peak_bytes: Option<u64>,
    /// Times that the host waited for the device, for a part.
    waits: Option<f64>,
    /// Kernels launched on the device, for a part.
    launches: Option<f64>,
    device: String,
    version: &'static str,
}

impl Row {
    pub(super) fn new(
        work: &'static str,
        size: String,
        times: &Times,
        amount: &Amount,
        counts: Counts,
        copy_rate: f64,
        device: String,
    ) -> Self {
        let rate = amount.bytes.map(|bytes| bytes / times.median());
        Row {
            peer: "cohop",
            work,
            size,
            threads: rayon::current_num_threads(),
            seconds_median: times.median(),
            seconds_min: times.min(),
            seconds_max: times.max(),
            runs: times.runs(),
            spread: times.spread(),
            throughput: amount.value / times.median(),
            unit: amount.unit,
            quiet_runs: times.quiet_runs,
            all_runs: times.all_runs,
            other_cores: times.other_cores,
            repeats: None,
            effective_gbps: rate.map(|rate| rate / 1e9),
            copy_share: rate.map(|rate| rate / copy_rate),
            edges_per_batch: amount.edges,
            edges_per_second: amount.edges.map(|edges| edges / times.median()),
            input_rows_per_batch: amount.input_rows,
            peak_bytes: counts.peak_bytes,
            waits: counts.asked.map(|asked| asked.waits as f64 / amount.parts as f64),
            launches: counts.asked.map(|asked| asked.launches as f64 / amount.parts as f64),
            device,
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}

/// The table of all rows.
pub(super) fn print(rows: &[Row]) -> Result<()> {
    let head = ["work", "size", "median", "min", "max", "runs", "quiet", "spread", "amount/s", "unit"];
    let last = ["GB/s", "of copy", "memory", "waits", "launches"];
    // Only GPUs count what they are asked to do.
    let n_last = if rows.iter().any(|row| row.waits.is_some()) { 5 } else { 3 };
    let mut table = Table::new(2, head.into_iter().chain(last.into_iter().take(n_last)));
    for row in rows {
        let optional = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let cells = [
            row.work.to_owned(),
            row.size.clone(),
            seconds(row.seconds_median),
            seconds(row.seconds_min),
            seconds(row.seconds_max),
            row.runs.to_string(),
            format!("{}/{}", row.quiet_runs, row.all_runs),
            percent(row.spread),
            significant(row.edges_per_second.map_or(row.throughput, |edges| edges / 1e6)),
            if row.edges_per_second.is_some() { "M edges/s" } else { row.unit }.to_owned(),
            optional(row.effective_gbps.map(significant)),
            optional(row.copy_share.map(percent)),
            optional(row.peak_bytes.map(|peak| bytes(peak as f64))),
            optional(row.waits.map(significant)),
            optional(row.launches.map(significant)),
        ];
        table.row(cells.into_iter().take(head.len() + n_last));
    }
    table.print()
}

fn seconds(value: f64) -> String {
    let (scaled, unit) = match value {
        v if v < 1e-3 => (v * 1e6, "µs"),
        v if v < 1.0 => (v * 1e3, "ms"),
        v => (v, "s"),
    };
    format!("{} {unit}", significant(scaled))
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// Three digits or more.
fn significant(value: f64) -> String {
    let decimals = match value {
        v if v < 10.0 => 2,
        v if v < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!(seconds(0.0123), "12.3 ms");
        assert_eq!(seconds(4.0), "4.00 s");
        assert_eq!(seconds(12.3e-6), "12.3 µs");
        assert_eq!((percent(0.256), significant(1234.0)), ("26 %".to_owned(), "1234".to_owned()));
    }
}
