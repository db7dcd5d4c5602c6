//! `--data` and related options.

use clap::Args;
use cohop::Result;
use cohop::data::{self, Dataset, FeatureDtype};

// The data set of a command. (No doc comment: clap would use it as the help of the command.)
#[derive(Debug, Args)]
#[command(next_help_heading = "Data")]
pub(crate) struct DataArgs {
    /// A folder of .npy files, an .npz file, or a built-in data set: sbm, rmat
    #[arg(long = "data", value_name = "DATA", default_value = "sbm")]
    pub name: String,
    /// Which of several published splits to use
    #[arg(long, value_name = "K")]
    pub split: Option<usize>,
    /// Element type of features in memory; slicing a batch widens them
    #[arg(long, value_name = "f32|f16|bf16")]
    pub feature_dtype: Option<FeatureDtype>,
}

impl DataArgs {
    /// Loads the data set and applies the other options.
    pub fn load(&self) -> Result<Dataset> {
        let mut dataset = data::load(&self.name)?;
        if let Some(k) = self.split {
            dataset.select_split(k)?;
        }
        if let Some(dtype) = self.feature_dtype {
            dataset.features = dataset.features.to_dtype(dtype)?;
        }
        Ok(dataset)
    }
}
