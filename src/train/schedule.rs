//! How the learning rate changes from epoch to epoch.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The learning rate's factor by epoch. Written `constant`, `step:EVERY:FACTOR`, `cosine` or `plateau:PATIENCE:FACTOR`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum LrSchedule {
    /// Always 1.
    #[default]
    Constant,
    /// Multiplied by `factor` after each `every` epochs.
    Step {
        /// Number of epochs.
        every: u64,
        /// Above 0, at most 1.
        factor: f64,
    },
    /// `(1 + cos(π epoch / epochs)) / 2`, where `epochs` is the largest number of epochs of the run.
    Cosine,
    /// Multiplied by `factor` when the validation loss (without validation, the training loss) has not fallen below its
    /// lowest value in `patience` evaluated epochs in a row.
    Plateau {
        /// Number of evaluated epochs.
        patience: u64,
        /// Above 0, at most 1.
        factor: f64,
    },
}

/// What [`LrSchedule::Plateau`] remembers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Plateau {
    lowest: Option<f64>,
    /// Losses heard since the lowest one or the last reduction.
    waited: u64,
    reductions: u32,
}

impl Plateau {
    /// Losses heard since the lowest one or the last reduction.
    pub fn waited(&self) -> u64 {
        self.waited
    }

    /// Hears of an epoch's loss.
    pub fn hear(&mut self, schedule: LrSchedule, loss: f64) {
        let LrSchedule::Plateau { patience, .. } = schedule else { return };
        if self.lowest.is_none_or(|lowest| loss < lowest) {
            (self.lowest, self.waited) = (Some(loss), 0);
            return;
        }
        self.waited += 1;
        if self.waited >= patience {
            self.waited = 0;
            self.reductions = self.reductions.saturating_add(1);
        }
    }
}

impl LrSchedule {
    /// `Ok` if a run can have this schedule.
    pub(super) fn check(self) -> Result<()> {
        let (count, factor) = match self {
            LrSchedule::Constant | LrSchedule::Cosine => return Ok(()),
            LrSchedule::Step { every, factor } => (every, factor),
            LrSchedule::Plateau { patience, factor } => (patience, factor),
        };
        if count > 0 && factor > 0.0 && factor <= 1.0 {
            return Ok(());
        }
        let expected = "a number of epochs of at least 1, and a factor above 0 and at most 1";
        Err(Error::invalid("lr_schedule", self, expected))
    }

    /// By what the learning rate is multiplied in `epoch` (from 0) of at most `epochs`.
    pub(super) fn factor(self, epoch: u64, epochs: u64, plateau: &Plateau) -> f64 {
        let power = |factor: f64, n: u64| factor.powi(i32::try_from(n).unwrap_or(i32::MAX));
        match self {
            LrSchedule::Constant => 1.0,
            LrSchedule::Step { every, factor } => power(factor, epoch / every.max(1)),
            LrSchedule::Cosine => {
                let share = (epoch as f64 / epochs.max(1) as f64).min(1.0);
                0.5 * (1.0 + (std::f64::consts::PI * share).cos())
            }
            LrSchedule::Plateau { factor, .. } => power(factor, u64::from(plateau.reductions)),
        }
    }
}

impl fmt::Display for LrSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LrSchedule::Constant => f.pad("constant"),
            LrSchedule::Step { every, factor } => write!(f, "step:{every}:{factor}"),
            LrSchedule::Cosine => f.pad("cosine"),
            LrSchedule::Plateau { patience, factor } => write!(f, "plateau:{patience}:{factor}"),
        }
    }
}

impl FromStr for LrSchedule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts: Vec<&str> = text.split(':').collect();
        let schedule = match parts[..] {
            ["constant"] => Some(LrSchedule::Constant),
            ["cosine"] => Some(LrSchedule::Cosine),
            [name @ ("step" | "plateau"), count, factor] => {
                count.parse().ok().zip(factor.parse().ok()).map(|(count, factor)| match name {
                    "step" => LrSchedule::Step { every: count, factor },
                    _ => LrSchedule::Plateau { patience: count, factor },
                })
            }
            _ => None,
        };
        let expected = "constant, step:EVERY:FACTOR, cosine or plateau:PATIENCE:FACTOR";
        let schedule = schedule.ok_or_else(|| Error::invalid("lr_schedule", text, expected))?;
        schedule.check()?;
        Ok(schedule)
    }
}

impl TryFrom<String> for LrSchedule {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<LrSchedule> for String {
    fn from(schedule: LrSchedule) -> String {
        schedule.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn factors(text: &str, losses: &[f64]) -> Vec<f64> {
        let schedule: LrSchedule = text.parse().unwrap();
        assert_eq!(schedule.to_string(), text);
        let mut plateau = Plateau::default();
        let factor = |(epoch, &loss): (u64, _)| {
            let factor = schedule.factor(epoch, losses.len() as u64, &plateau);
            plateau.hear(schedule, loss);
            factor
        };
        (0..).zip(losses).map(factor).collect()
    }

    #[test]
    fn by_hand() {
        assert_eq!(factors("constant", &[1.0; 3]), [1.0; 3]);
        assert_eq!(factors("step:2:0.5", &[1.0; 6]), [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]);
        let cosine = factors("cosine", &[1.0; 4]);
        let expected = [1.0, 0.853_553_390_593_273_8, 0.5, 0.146_446_609_406_726_2];
        assert!(cosine.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12), "{cosine:?}");
        let losses = [3.0, 2.0, 2.0, 2.5, 1.0, 1.5, f64::NAN, 0.5];
        assert_eq!(factors("plateau:2:0.5", &losses), [1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.25]);
    }

    #[test]
    fn what_is_no_schedule_says_so() {
        for text in
            ["", "step", "step:0:0.5", "step:2:0", "step:2:nan", "plateau:2:1.5", "cosine:3", "linear"]
        {
            let message = text.parse::<LrSchedule>().unwrap_err().to_string();
            assert!(message.starts_with("lr_schedule is "), "{message}");
        }
    }
}
