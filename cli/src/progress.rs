//! Progress of a training run on a terminal.

use std::path::PathBuf;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::plot::{Plot, Scale, Series};
use super::signals::Signals;
use super::train::Log;
use super::{Global, output};
use cohop::Result;
use cohop::device::Device;
use cohop::train::{EpochReport, Metric, Observer, Trainer};

/// Shows a bar per epoch, prints a line (or a JSON object) per epoch, and writes checkpoints.
pub(super) struct Progress {
    bar: ProgressBar,
    json: bool,
    quiet: bool,
    epochs: u64,
    checkpoint: Option<PathBuf>,
    log: Option<Log>,
    plot: Option<PathBuf>,
    /// Training and validation loss, training and validation accuracy, validation ROC AUC, by epoch from 1.
    curves: [Vec<(f64, f64)>; 5],
    epoch_start: Instant,
    signals: Signals,
    /// Whether it was said that a signal came.
    said: bool,
}

impl Progress {
    pub(super) fn new(global: &Global, epochs: u64, checkpoint: Option<PathBuf>, signals: Signals) -> Self {
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
            log: None,
            plot: None,
            curves: Default::default(),
            epoch_start: Instant::now(),
            signals,
            said: false,
        }
    }

    /// Also writes a line per epoch, and draws curves at the end.
    pub(super) fn with_files(mut self, log: Option<Log>, plot: Option<PathBuf>) -> Self {
        (self.log, self.plot) = (log, plot);
        self
    }

    /// Draws the curves, if asked to.
    pub(super) fn plot(&self) -> Result<()> {
        let Some(path) = &self.plot else { return Ok(()) };
        let names = [
            "training loss",
            "validation loss",
            "training accuracy",
            "validation accuracy",
            "validation ROC AUC",
        ];
        let has_auc = !self.curves[4].is_empty();
        let series = names.into_iter().zip(&self.curves).filter(|(_, points)| !points.is_empty());
        let plot = Plot {
            title: "Training".to_owned(),
            x_label: "epoch".to_owned(),
            y_label: if has_auc { "loss, accuracy, ROC AUC" } else { "loss, accuracy" }.to_owned(),
            x_scale: Scale::Linear,
            series: series
                .map(|(name, points)| Series { name: name.to_owned(), points: points.clone() })
                .collect(),
            even: None,
        };
        plot.write(path)
    }

    fn remember(&mut self, report: &EpochReport) {
        let EpochReport { val_loss, val_acc, val_auc, .. } = *report;
        let values = [Some(report.loss), val_loss, Some(report.train_acc), val_acc, val_auc];
        for (curve, value) in self.curves.iter_mut().zip(values) {
            curve.extend(value.map(|value| ((report.epoch + 1) as f64, value)));
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
        // Losses may be read only every some batches: before the first time there is none.
        let is_read = report.loss != 0.0 || report.train_acc != 0.0;
        let learned = if is_read {
            format!("loss {:.4}, train {:.4}, ", report.loss, report.train_acc)
        } else {
            String::new()
        };
        self.bar.set_message(format!(
            "{learned}{:.1} batches/s, {} edges/s",
            (index + 1) as f64 / seconds,
            indicatif::HumanCount((report.edges as f64 / seconds) as u64)
        ));
        self.bar.set_position(index as u64 + 1);
        if self.signals.came() && !self.said {
            self.said = true;
            let what = if self.checkpoint.is_some() { "epoch" } else { "batch" };
            self.bar.suspend(|| {
                output::message(format_args!(
                    "cohop: stopping after this {what}; a second signal stops at once"
                ));
            });
        }
    }

    fn epoch_done(&mut self, trainer: &Trainer<D>, report: &EpochReport) -> Result<()> {
        // Before the checkpoint: a resumed run drops lines of epochs that the checkpoint does not know of.
        if let Some(log) = &mut self.log {
            log.add(report)?;
        }
        if self.plot.is_some() {
            self.remember(report);
        }
        if let Some(folder) = &self.checkpoint {
            trainer.save(folder)?;
        }
        if self.json {
            return output::json(report);
        }
        if self.quiet {
            return Ok(());
        }
        let mut val = report.val_acc.map_or_else(String::new, |v| format!("  val {v:.4}"));
        if let (Metric::Auc, Some(auc)) = (trainer.config().metric, report.val_auc) {
            val += &format!("  val AUC {auc:.4}");
        }
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
