//! Numbers of neighbours per layer, and their text form.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The fanout of each layer, from the seeds outward; `usize::MAX` means all neighbours. Written `15,10,5`; `full` or
/// `-1` means all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fanouts(pub Vec<usize>);

impl FromStr for Fanouts {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let fanout = |part: &str| match part.trim() {
            "full" | "-1" => Some(usize::MAX),
            number => number.parse().ok(),
        };
        let fanouts: Option<Vec<usize>> = text.split(',').map(fanout).collect();
        fanouts.map(Fanouts).ok_or_else(|| {
            let expected =
                "whole numbers (full or -1 for all), one per layer from the seeds outward, as 15,10,5";
            Error::invalid("fanouts", format!("{text:?}"), expected)
        })
    }
}

impl fmt::Display for Fanouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (layer, &fanout) in self.0.iter().enumerate() {
            let separator = if layer > 0 { "," } else { "" };
            if fanout == usize::MAX {
                write!(f, "{separator}full")?;
            } else {
                write!(f, "{separator}{fanout}")?;
            }
        }
        Ok(())
    }
}

impl TryFrom<String> for Fanouts {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Fanouts> for String {
    fn from(fanouts: Fanouts) -> String {
        fanouts.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fanouts_are_read_and_written() {
        for (text, fanouts) in [
            ("15,10,5", vec![15, 10, 5]),
            ("full", vec![usize::MAX]),
            (" -1, 3 ,full,0", vec![usize::MAX, 3, usize::MAX, 0]),
        ] {
            let parsed: Fanouts = text.parse().unwrap();
            assert_eq!(parsed.0, fanouts);
            assert_eq!(parsed.to_string().parse::<Fanouts>().unwrap(), parsed);
            let json = serde_json::to_string(&parsed).unwrap();
            assert_eq!(serde_json::from_str::<Fanouts>(&json).unwrap(), parsed);
        }
        for text in ["", "15,", "-2", "15;10", "1.5", "all"] {
            let error = text.parse::<Fanouts>().unwrap_err().to_string();
            assert!(error.contains("as 15,10,5"), "{error}");
        }
    }
}
