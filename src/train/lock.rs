//! One run at a time on a checkpoint folder.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

use super::checkpoint::FILE;
use crate::error::{Error, Result};
use crate::nn::tensor_file::TEMPORARY;

/// Name of the file that is locked.
const LOCK: &str = "lock";

/// A checkpoint folder that no other process uses as long as this lives, if that asks too. The file `lock` in the
/// folder stays behind; the lock itself ends with the process, however it ends.
#[derive(Debug)]
pub struct CheckpointLock {
    folder: PathBuf,
    _file: File,
}

impl CheckpointLock {
    /// Makes the folder if it is missing, locks it, and removes what a run that was killed has left unfinished in it.
    ///
    /// Errors: another run has locked it, or nothing can be written there.
    pub fn take(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).map_err(|e| Error::no_folder(folder, e))?;
        let path = folder.join(LOCK);
        // Neither emptied nor written: what a link may point to stays as it is.
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = open.map_err(|e| Error::io(&path, e))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let what = format!("the checkpoint folder {}", folder.display());
                let remedy = "another run is using it; wait for its end, or choose another folder".to_owned();
                return Err(Error::Unavailable { what, remedy });
            }
            Err(TryLockError::Error(e)) => return Err(Error::io(path, e)),
        }
        let lock = CheckpointLock { folder: folder.to_owned(), _file: file };
        lock.check_and_tidy()?;
        Ok(lock)
    }

    /// Whether there is a checkpoint in the folder.
    pub fn has_checkpoint(&self) -> bool {
        fs::symlink_metadata(self.folder.join(FILE)).is_ok()
    }

    /// Removes unfinished files, and sees whether new ones can be made.
    fn check_and_tidy(&self) -> Result<()> {
        let io = |e| Error::io(&self.folder, e);
        for entry in fs::read_dir(&self.folder).map_err(io)? {
            let name = entry.map_err(io)?.file_name();
            let name = name.to_string_lossy();
            if name.strip_prefix(FILE).is_some_and(|rest| rest.starts_with('.') && rest.ends_with(TEMPORARY))
            {
                let path = self.folder.join(&*name);
                fs::remove_file(&path).map_err(|e| Error::io(path, e))?;
            }
        }
        if self.folder.join(FILE).is_dir() {
            let problem = "is a folder: expected a checkpoint or nothing";
            return Err(Error::format(self.folder.join(FILE), problem));
        }
        tempfile::tempfile_in(&self.folder).map(|_| ()).map_err(io)
    }
}

#[cfg(test)]
mod tests {
    // A panic is how these fail.
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_folder_is_for_one_run_and_is_tidied() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("new/run");
        let lock = CheckpointLock::take(&folder).unwrap();
        assert!(!lock.has_checkpoint());
        let error = CheckpointLock::take(&folder).unwrap_err().to_string();
        assert!(error.contains(&folder.display().to_string()) && error.contains("another run"), "{error}");
        drop(lock);
        for name in ["checkpoint.safetensors.123-4.new", "checkpoint.safetensors", "notes.new"] {
            fs::write(folder.join(name), "x").unwrap();
        }
        assert!(CheckpointLock::take(&folder).unwrap().has_checkpoint());
        let mut left: Vec<_> = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["checkpoint.safetensors", "lock", "notes.new"]);
    }

    #[test]
    fn a_folder_that_cannot_be_one_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "x").unwrap();
        assert!(matches!(CheckpointLock::take(&folder.path().join("file")), Err(Error::Io { .. })));
        fs::create_dir_all(folder.path().join("run").join(FILE)).unwrap();
        assert!(matches!(CheckpointLock::take(&folder.path().join("run")), Err(Error::Format { .. })));
    }
}
