//! `--log FILE.csv`: a line per epoch.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use cohop::train::EpochReport;
use cohop::{Error, Result};

const HEADER: &str = "epoch,lr,loss,train_acc,val_loss,val_acc,val_auc,seconds,eval_seconds,batches,vertices,edges,\
                      input_vertices,exchanged_bytes,peak_rss_bytes";

/// The file that gets the lines.
pub(crate) struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    /// A new file; or for a resumed run that has done `epochs_done` epochs, the one that is there, without lines of
    /// later epochs.
    pub fn open(path: &Path, resumed: bool, epochs_done: u64) -> Result<Self> {
        let io = |e| Error::io(path, e);
        let mut text = format!("{HEADER}\n");
        if resumed && path.exists() {
            let old = fs::read_to_string(path).map_err(io)?;
            let mut lines = old.lines();
            if lines.next().is_some_and(|header| header != HEADER) {
                return Err(Error::format(
                    path,
                    format!("is no log of a run: its first line is not {HEADER}"),
                ));
            }
            for line in lines {
                let epoch: Option<u64> = line.split(',').next().and_then(|epoch| epoch.parse().ok());
                // What a run that was stopped began to write has fewer fields.
                let whole = line.split(',').count() == HEADER.split(',').count();
                if whole && epoch.is_some_and(|epoch| epoch < epochs_done) {
                    text.push_str(line);
                    text.push('\n');
                }
            }
        }
        // Beside it first: a run that is killed here must not lose the lines that there are.
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        fs::write(&new, text).and_then(|()| fs::rename(&new, path)).map_err(io)?;
        let file = OpenOptions::new().append(true).open(path).map_err(io)?;
        Ok(Log { path: path.to_owned(), file })
    }

    pub fn add(&mut self, report: &EpochReport) -> Result<()> {
        let optional = |x: Option<f64>| x.map_or_else(String::new, |x| x.to_string());
        let fields = [
            report.epoch.to_string(),
            report.lr.to_string(),
            report.loss.to_string(),
            report.train_acc.to_string(),
            optional(report.val_loss),
            optional(report.val_acc),
            optional(report.val_auc),
            report.seconds.to_string(),
            report.eval_seconds.to_string(),
            report.batches.to_string(),
            report.vertices.to_string(),
            report.edges.to_string(),
            report.input_vertices.to_string(),
            report.exchanged_bytes.to_string(),
            report.peak_rss_bytes.to_string(),
        ];
        let line = format!("{}\n", fields.join(","));
        self.file.write_all(line.as_bytes()).map_err(|e| Error::io(&self.path, e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resumed_run_appends_and_drops_what_it_does_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.csv");
        let report = |epoch, loss| EpochReport { epoch, loss, val_acc: Some(0.5), ..EpochReport::default() };
        let mut log = Log::open(&path, true, 0).unwrap();
        for epoch in 0..3 {
            log.add(&report(epoch, 1.0)).unwrap();
        }
        std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"1,0.1").unwrap();
        let mut log = Log::open(&path, true, 2).unwrap();
        log.add(&report(2, 0.25)).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[0] == HEADER && lines[2].starts_with("1,0,1,0,,0.5,,"), "{text}");
        assert!(lines[3].starts_with("2,0,0.25,"), "{text}");
        Log::open(&path, false, 0).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{HEADER}\n"));
        fs::write(&path, "precious\n").unwrap();
        assert!(Log::open(&path, true, 0).is_err());
    }
}
