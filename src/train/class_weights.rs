//! How much each class counts in the loss.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::data::Dataset;
use crate::error::{Error, Result, try_filled};

/// How much each class counts: the loss is `Σ w(y) nll / Σ w(y)` over a batch's labelled seeds, where `y` is a seed's
/// class. Written `equal`, `balanced`, or weights with commas between them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ClassWeights {
    /// All the same.
    #[default]
    Equal,
    /// `n / (k n(y))` for a class with `n(y)` of the `n` labelled training vertices, of which there are `k` classes.
    Balanced,
    /// One for each class, at least 0.
    Given(Vec<f64>),
}

impl ClassWeights {
    /// The weight of each class; `None` if all are equal.
    pub(super) fn by_class(&self, dataset: &Dataset, n_classes: usize) -> Result<Option<Vec<f64>>> {
        match self {
            ClassWeights::Equal => Ok(None),
            ClassWeights::Balanced => {
                let asked = format_args!("there are {n_classes} classes");
                let mut counts = try_filled("the number of vertices of each class", 0u64, n_classes, asked)?;
                for &v in &dataset.train_idx[..] {
                    let label = usize::try_from(dataset.labels[v as usize]).ok();
                    if let Some(count) = label.and_then(|label| counts.get_mut(label)) {
                        *count += 1;
                    }
                }
                let n: u64 = counts.iter().sum();
                let k = counts.iter().filter(|&&count| count > 0).count();
                let weight = |&count: &u64| match count {
                    0 => 0.0,
                    _ => n as f64 / (k as f64 * count as f64),
                };
                Ok(Some(counts.iter().map(weight).collect()))
            }
            ClassWeights::Given(weights) => {
                if weights.len() != n_classes {
                    let expected = format!("one for each of the {n_classes} classes");
                    return Err(Error::invalid("class_weights", self, expected));
                }
                self.check()?;
                Ok(Some(weights.clone()))
            }
        }
    }

    fn check(&self) -> Result<()> {
        let ClassWeights::Given(weights) = self else { return Ok(()) };
        let valid = weights.iter().all(|w| w.is_finite() && *w >= 0.0);
        if valid && weights.iter().any(|&w| w > 0.0) {
            return Ok(());
        }
        let expected = "finite numbers of at least 0, at least one of them above 0";
        Err(Error::invalid("class_weights", self, expected))
    }
}

impl fmt::Display for ClassWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClassWeights::Equal => f.pad("equal"),
            ClassWeights::Balanced => f.pad("balanced"),
            ClassWeights::Given(weights) => {
                let texts: Vec<String> = weights.iter().map(f64::to_string).collect();
                f.write_str(&texts.join(","))
            }
        }
    }
}

impl FromStr for ClassWeights {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let weights = match text {
            "equal" => ClassWeights::Equal,
            "balanced" => ClassWeights::Balanced,
            _ => {
                let weights: Result<Vec<f64>, _> = text.split(',').map(|part| part.trim().parse()).collect();
                let expected = "balanced, or one number for each class, as 1,2.5,1";
                ClassWeights::Given(weights.map_err(|_| Error::invalid("class_weights", text, expected))?)
            }
        };
        weights.check()?;
        Ok(weights)
    }
}

impl TryFrom<String> for ClassWeights {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<ClassWeights> for String {
    fn from(weights: ClassWeights) -> String {
        weights.to_string()
    }
}
