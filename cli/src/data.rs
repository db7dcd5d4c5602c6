//! `--data` and related options.

use std::path::Path;

use clap::Args;
use cohop::data::{self, Dataset, FeatureDtype, Features, LoadOptions};
use cohop::train::{CheckpointInfo, Fingerprint};
use cohop::{Error, Result};

use crate::given::{self, Given};
use crate::number;

// The data set of a command. (No doc comment: clap would use it as the help of the command.)
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Data")]
pub(crate) struct DataArgs {
    /// A folder of .npy files, an .npz file, or a built-in data set: sbm, rmat
    #[arg(long = "data", value_name = "DATA", default_value = "sbm")]
    pub name: String,
    /// Which of several published splits to use
    #[arg(long, value_name = "K", value_parser = number::any::<usize>())]
    pub split: Option<usize>,
    /// Element type of features in memory; slicing a batch widens them
    #[arg(long, value_name = "f32|f16|bf16", value_parser = number::setting::<FeatureDtype>)]
    pub feature_dtype: Option<FeatureDtype>,
}

// The data set to predict on with a checkpoint. (No doc comment: clap would use it as the help of the command.)
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Data")]
pub(crate) struct DataAgainArgs {
    /// A folder of .npy files, an .npz file, or a built-in data set: sbm, rmat [default: that of training]
    #[arg(long = "data", value_name = "DATA")]
    name: Option<String>,
    /// Predict although the data set is not the one of training; it must fit the model
    #[arg(long)]
    other_data: bool,
    /// Which of several published splits to use [default: that of training]
    #[arg(long, value_name = "K", value_parser = number::any::<usize>())]
    split: Option<usize>,
    /// Element type of features in memory; slicing a batch widens them [default: that of training]
    #[arg(long, value_name = "f32|f16|bf16", value_parser = number::setting::<FeatureDtype>)]
    feature_dtype: Option<FeatureDtype>,
}

impl DataAgainArgs {
    /// `Ok` unless `path`, which an option asks to write, is a file of the data set that [`load`](DataAgainArgs::load)
    /// reads.
    pub fn check_not_of_data(&self, option: &'static str, path: &Path, info: &CheckpointInfo) -> Result<()> {
        let name = self.name.as_ref().or(info.notes.get(given::DATA));
        let (Some(Ok(data)), Ok(written)) = (name.map(std::fs::canonicalize), std::fs::canonicalize(path))
        else {
            return Ok(());
        };
        if written == data || written.parent() == Some(&data) {
            let expected = "another file: this one is the data set's, and would be replaced";
            return Err(Error::invalid(option, path.display(), expected));
        }
        Ok(())
    }

    /// [`DataArgs::load_again`] to predict.
    pub fn load(&self, given: &Given, info: &CheckpointInfo) -> Result<Dataset> {
        let Some(name) = self.name.as_ref().or(info.notes.get(given::DATA)) else {
            return Err(Error::invalid(
                "--data",
                "not given",
                "a data set: the checkpoint does not name any",
            ));
        };
        let (split, feature_dtype) = (self.split, self.feature_dtype);
        let data = DataArgs { name: name.clone(), split, feature_dtype };
        data.load_again(given, info, self.other_data, Again::Predict)
    }
}

/// What the model of a checkpoint is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    Train,
    Predict,
}

/// What keeps the model of a checkpoint's run from being used with a data set, even if it may be another one.
fn misfit(found: &Fingerprint, of_run: &Fingerprint, again: Again) -> Option<&'static str> {
    let without_features = found.features == "none" || of_run.features == "none";
    let pairs = [
        ("feature columns", found.columns, of_run.columns),
        // Then they are known by their numbers.
        (
            "vertices",
            u64::from(without_features) * found.vertices,
            u64::from(without_features) * of_run.vertices,
        ),
        ("relations", found.relations, of_run.relations),
        ("classes", found.classes, if again == Again::Predict { found.classes } else { of_run.classes }),
    ];
    pairs.into_iter().find(|(_, here, there)| here != there).map(|(what, ..)| what)
}

impl DataArgs {
    /// Loads the data set and applies the other options.
    pub fn load(&self) -> Result<Dataset> {
        Ok(self.load_with_notes()?.0)
    }

    /// [`load`](DataArgs::load), and what had to be converted.
    pub fn load_with_notes(&self) -> Result<(Dataset, Vec<String>)> {
        let (mut dataset, mut notes) = data::load_with_notes(&self.name, &LoadOptions::default())?;
        if let Some(k) = self.split {
            dataset.select_split(k)?;
        }
        if let Some(dtype) = self.feature_dtype {
            dataset.features = dataset.features.to_dtype(dtype)?;
            notes.push(format!("features are converted to {dtype}, as --feature-dtype asks"));
        }
        Ok((dataset, notes))
    }

    /// Loads the data set of a checkpoint's run to do something `again`, with its split and type of features, or what
    /// the command line has instead; `other` says whether it may be another data set.
    pub fn load_again(
        &self,
        given: &Given,
        info: &CheckpointInfo,
        other: bool,
        again: Again,
    ) -> Result<Dataset> {
        let name = self.name_again(given, info);
        let mut dataset = data::load(name)?;
        // As the command line has it.
        let renamed = |error| match error {
            Error::InvalidArgument { value, expected, .. } => {
                Error::invalid("data", value.replacen(&dataset.name, name, 1), expected)
            }
            error => error,
        };
        info.data.check_features(&dataset).map_err(renamed)?;
        let kind = |features: &Features| match features {
            Features::Sparse(_) => "sparse".to_owned(),
            dense => dense.dtype().map_or_else(|| "none".to_owned(), |dtype| dtype.to_string()),
        };
        let same_kind = kind(&dataset.features) == info.data.features || dataset.features.is_none();
        if let (false, Ok(dtype)) = (same_kind, info.data.features.parse::<FeatureDtype>()) {
            dataset.features = dataset.features.to_dtype(dtype)?;
        }
        let split = match (self.split, info.data.split) {
            // Another data set may have fewer.
            (None, Some(k)) if k < dataset.splits.len() => Some(k),
            (split, _) => split,
        };
        if let Some(k) = split {
            dataset.select_split(k)?;
        }
        if !other {
            let check = info.data.check(&dataset, !given.has("split"));
            check.map_err(|error| match error {
                Error::InvalidArgument { value, expected, .. } => {
                    let advice = match misfit(&Fingerprint::of(&dataset), &info.data, again) {
                        None => "--other-data allows it".to_owned(),
                        Some(what) => format!("its model cannot be used with another number of {what}"),
                    };
                    let value = value.replacen(&dataset.name, name, 1);
                    Error::invalid("data", value, format!("{expected}; {advice}"))
                }
                error => error,
            })?;
        }
        if let Some(dtype) = self.feature_dtype {
            dataset.features = dataset.features.to_dtype(dtype)?;
        }
        Ok(dataset)
    }

    /// The data set's name: that on the command line, or else that of a checkpoint's run.
    pub fn name_again<'a>(&'a self, given: &Given, info: &'a CheckpointInfo) -> &'a str {
        match info.notes.get(given::DATA) {
            Some(name) if !given.has("data") => name,
            _ => &self.name,
        }
    }

    /// The data set's name for the notes of a run: a path is made absolute, so that it can be found from elsewhere.
    pub fn lasting_name(&self) -> String {
        let absolute = std::fs::canonicalize(&self.name).ok();
        absolute.and_then(|path| path.to_str().map(str::to_owned)).unwrap_or_else(|| self.name.clone())
    }
}
