//! Timing on a machine that other processes use too: runs during which they were busy are repeated.
//!
//! Works of the host are timed by its clock. A kernel on a GPU is timed by events on the GPU, around so many launches
//! that they take some milliseconds: by the host's clock, a kernel of ten microseconds would be timed together with its
//! launch and the wait for it, which take as long.

use std::time::Instant;

use cohop::Result;

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Protocol {
    /// Warm-up runs, which do not count.
    pub warmup: usize,
    /// Wanted number of quiet runs.
    pub runs: usize,
    /// A series ends after this time, but not before it has three runs.
    pub max_seconds: f64,
}

/// A run is quiet if other processes kept at most this many cores busy.
const QUIET_CORES: f64 = 0.15;
/// With this many quiet runs the others are dropped; a series has at least this many runs.
const FEW: usize = 3;
/// A series has at most this many times the wanted number of runs.
const MOST_TRIES: usize = 3;

/// The runs of one work.
#[derive(Clone, Debug)]
pub(super) struct Times {
    /// Seconds of each kept run, ascending.
    seconds: Vec<f64>,
    /// Runs during which the machine was quiet.
    pub quiet_runs: usize,
    /// Runs after the warm-up, kept or not.
    pub all_runs: usize,
    /// Median of the cores that other processes kept busy.
    pub other_cores: f64,
}

impl Times {
    fn new(runs: &[Run], wanted: usize) -> Self {
        let few = FEW.min(wanted);
        let quiet: Vec<f64> = runs.iter().filter(|run| run.is_quiet()).map(|run| run.seconds).collect();
        let quiet_runs = quiet.len();
        let mut seconds = quiet;
        if quiet_runs < few {
            seconds = runs.iter().map(|run| run.seconds).collect();
        }
        seconds.sort_by(f64::total_cmp);
        let mut others: Vec<f64> = runs.iter().map(|run| run.other_cores).collect();
        others.sort_by(f64::total_cmp);
        Times { seconds, quiet_runs, all_runs: runs.len(), other_cores: median(&others) }
    }

    /// The number of kept runs.
    pub(super) fn runs(&self) -> usize {
        self.seconds.len()
    }

    pub(super) fn median(&self) -> f64 {
        median(&self.seconds)
    }

    pub(super) fn min(&self) -> f64 {
        self.seconds.first().copied().unwrap_or(f64::NAN)
    }

    pub(super) fn max(&self) -> f64 {
        self.seconds.last().copied().unwrap_or(f64::NAN)
    }

    /// The range divided by the median.
    pub(super) fn spread(&self) -> f64 {
        (self.max() - self.min()) / self.median()
    }

    /// The same runs, with the seconds of one of `parts` equal parts.
    pub(super) fn per_part(mut self, parts: usize) -> Self {
        self.seconds.iter_mut().for_each(|seconds| *seconds /= parts as f64);
        self
    }
}

/// The median of ascending values; NaN if there are none.
fn median(ascending: &[f64]) -> f64 {
    let middle = ascending.len() / 2;
    match ascending.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => ascending[middle],
        _ => (ascending[middle - 1] + ascending[middle]) / 2.0,
    }
}

#[derive(Clone, Copy, Debug)]
struct Run {
    seconds: f64,
    other_cores: f64,
}

impl Run {
    fn is_quiet(&self) -> bool {
        self.other_cores <= QUIET_CORES
    }
}

/// What a clock is given.
pub(super) type Work<'a> = &'a mut dyn FnMut() -> Result<()>;

/// A span between two events should not be shorter: their clock ticks every half microsecond.
const SPAN: f64 = 5e-3;
/// The most launches in a span.
const MOST_REPEATS: f64 = 1000.0;

/// How many runs of so many seconds make a [`SPAN`].
fn repeats(seconds: f64) -> usize {
    (SPAN / seconds.max(SPAN / MOST_REPEATS)).ceil() as usize
}

/// Times `run` by the host's clock, on the result of `setup`, which is not timed.
pub(super) fn measure<T>(
    protocol: Protocol,
    setup: impl FnMut() -> Result<T>,
    mut run: impl FnMut(T) -> Result<()>,
) -> Result<Times> {
    measure_by(protocol, setup, |given| {
        let start = Instant::now();
        run(given)?;
        Ok(start.elapsed().as_secs_f64())
    })
}

/// Times `run` by `clock`, which returns the seconds of what it is given, and is asked for several runs at once where
/// they are short; returns also how many.
pub(super) fn measure_repeated(
    protocol: Protocol,
    clock: impl Fn(Work<'_>) -> Result<f64>,
    mut run: impl FnMut() -> Result<()>,
) -> Result<(Times, usize)> {
    // The second run finds caches and memory as later ones do.
    clock(&mut run)?;
    let n = repeats(clock(&mut run)?);
    let span = |()| clock(&mut || (0..n).try_for_each(|_| run()));
    Ok((measure_by(protocol, || Ok(()), span)?.per_part(n), n))
}

/// Calls `run`, which returns its seconds, on the result of `setup`.
fn measure_by<T>(
    protocol: Protocol,
    mut setup: impl FnMut() -> Result<T>,
    mut run: impl FnMut(T) -> Result<f64>,
) -> Result<Times> {
    let Protocol { warmup, runs: wanted, max_seconds } = protocol;
    let begin = Instant::now();
    for _ in 0..warmup {
        run(setup()?)?;
    }
    let mut runs: Vec<Run> = Vec::new();
    while runs.len() < MOST_TRIES * wanted {
        let given = setup()?;
        let watch = Watch::start();
        let seconds = run(given)?;
        runs.push(Run { seconds, other_cores: watch.other_cores() });
        let quiet = runs.iter().filter(|run| run.is_quiet()).count();
        let late = begin.elapsed().as_secs_f64() > max_seconds && runs.len() >= FEW.min(wanted);
        if quiet >= wanted || late {
            break;
        }
    }
    Ok(Times::new(&runs, wanted))
}

/// Watches the machine's other processes. Counts them as idle if the system does not report them.
struct Watch {
    start: Instant,
    /// Busy ticks of all cores, and of this process.
    ticks: Option<(u64, u64)>,
}

/// Linux reports processor time to user programs in hundredths of a second, on all machines.
const TICKS_PER_SECOND: f64 = 100.0;

impl Watch {
    fn start() -> Self {
        Watch { ticks: busy_ticks(), start: Instant::now() }
    }

    fn other_cores(&self) -> f64 {
        let wall = self.start.elapsed().as_secs_f64();
        let (Some((all, own)), Some((all_now, own_now))) = (self.ticks, busy_ticks()) else {
            return 0.0;
        };
        let others = all_now.saturating_sub(all) as f64 - own_now.saturating_sub(own) as f64;
        // Both counts may lag by one tick.
        (others - 2.0).max(0.0) / TICKS_PER_SECOND / wall.max(1e-9)
    }
}

fn busy_ticks() -> Option<(u64, u64)> {
    let numbers =
        |line: &str| -> Vec<u64> { line.split_whitespace().map_while(|f| f.parse().ok()).collect() };
    let machine = std::fs::read_to_string("/proc/stat").ok()?;
    // user nice system idle iowait irq softirq steal; user includes the time of guests.
    let fields = numbers(machine.lines().next()?.strip_prefix("cpu")?);
    let busy = fields.iter().take(8).sum::<u64>() - fields.get(3)? - fields.get(4)?;
    // The program's name, in parentheses, may hold spaces. After it: state, then numbers, of which the 11th and 12th
    // are user and system time.
    let process = std::fs::read_to_string("/proc/self/stat").ok()?;
    let (_, after_name) = process.rsplit_once(')')?;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let time = |position: usize| fields.get(position).and_then(|f| f.parse::<u64>().ok());
    Some((busy, time(11)? + time(12)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disturbed_runs_are_dropped_if_there_are_enough_quiet_ones() {
        let run = |seconds, other_cores| Run { seconds, other_cores };
        let runs = [run(9.0, 1.0), run(3.0, 0.0), run(1.0, 0.1), run(2.0, 0.0)];
        let times = Times::new(&runs, 5);
        assert_eq!((times.runs(), times.quiet_runs, times.all_runs), (3, 3, 4));
        assert_eq!((times.min(), times.median(), times.max(), times.spread()), (1.0, 2.0, 3.0, 1.0));
        let times = Times::new(&runs[..3], 5);
        assert_eq!((times.runs(), times.quiet_runs, times.median()), (3, 2, 3.0));
        assert_eq!(times.per_part(3).median(), 1.0);
    }

    #[test]
    fn short_runs_are_timed_together() {
        assert_eq!([1.0, 5e-3, 4e-3, 1e-4, 1e-9, 0.0].map(repeats), [1, 1, 2, 50, 1000, 1000]);
        // A clock by which every run takes a millisecond.
        let calls = std::cell::Cell::new(0);
        let clock = |work: Work<'_>| {
            let before = calls.get();
            work()?;
            Ok(1e-3 * f64::from(calls.get() - before))
        };
        let protocol = Protocol { warmup: 1, runs: 3, max_seconds: 0.0 };
        let run = || {
            calls.set(calls.get() + 1);
            Ok(())
        };
        let (times, n) = measure_repeated(protocol, clock, run).unwrap();
        assert_eq!(n, 5);
        assert!((times.median() - 1e-3).abs() < 1e-9, "{}", times.median());
        // Two to choose how many, the warm-up, and three or more spans.
        assert!(calls.get() >= 2 + 5 * 4, "{}", calls.get());
    }

    #[test]
    fn a_series_has_a_warm_up_and_ends() {
        let mut calls = 0;
        let protocol = Protocol { warmup: 2, runs: 1, max_seconds: 0.0 };
        let times = measure(
            protocol,
            || Ok(()),
            |()| {
                calls += 1;
                Ok(())
            },
        );
        assert!(calls >= 3 && times.unwrap().runs() == 1);
        let fails = || cohop::Error::invalid("run", 1, "none");
        assert!(measure(protocol, || Ok(()), |()| Err(fails())).is_err());
    }
}
