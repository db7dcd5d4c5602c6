//! Progress of a training run on a terminal.

use std::path::PathBuf;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{Global, output};
use cohop::Result;
use cohop::device::Device;
use cohop::train::{EpochReport, Observer, Trainer};

/// Shows a bar per epoch, prints a line (or a JSON object) per epoch, and writes checkpoints.
pub(super) struct Progress {
    bar: ProgressBar,
    json: bool,
    quiet: bool,
    epochs: u64,
    checkpoint: Option<PathBuf>,
    epoch_start: Instant,
}

impl Progress {
    pub(super) fn new(global: &Global, epochs: u64, checkpoint: Option<PathBuf>) -> Self {
        // Without a terminal on stderr indicatif draws nothing.
        let target = if global.quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let style = ProgressStyle::with_template("{prefix} [{bar:20}] {pos}/{len} {wide_msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        Progress {
            bar: ProgressBar::with_draw_target(None, target).with_style(style.progress_chars("=> ")),
            json: global.json,
            quiet: global.quiet,
            epochs,
            checkpoint,
            epoch_start: Instant::now(),
        }
    }
}

impl<D: Device> Observer<D> for Progress {
    fn epoch_begins(&mut self, epoch: u64, n_batches: usize) {
        self.bar.set_length(n_batches as u64);
        self.bar.set_prefix(format!("epoch {}/{}", epoch + 1, self.epochs));
        self.bar.reset();
        self.epoch_start = Instant::now();
    }

    fn batch_done(&mut self, index: usize, report: &EpochReport) {
        let seconds = self.epoch_start.elapsed().as_secs_f64();
        self.bar.set_message(format!(
            "loss {:.4}, train {:.4}, {:.1} batches/s, {} edges/s",
            report.loss,
            report.train_acc,
            (index + 1) as f64 / seconds,
            indicatif::HumanCount((report.edges as f64 / seconds) as u64)
        ));
        self.bar.set_position(index as u64 + 1);
    }

    fn epoch_done(&mut self, trainer: &Trainer<D>, report: &EpochReport) -> Result<()> {
        if let Some(folder) = &self.checkpoint {
            trainer.save(folder)?;
        }
        if self.json {
            return output::json(report);
        }
        if self.quiet {
            return Ok(());
        }
        let val = report.val_acc.map_or_else(String::new, |v| format!("  val {v:.4}"));
        let text = format!(
            "epoch {:>3}  loss {:.4}  train {:.4}{val}  {:.2} s  {} edges",
            report.epoch + 1,
            report.loss,
            report.train_acc,
            report.seconds,
            indicatif::HumanCount(report.edges)
        );
        self.bar.suspend(|| output::line(text))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
