//! Values of options, checked while the command line is read: a wrong one is wrong usage, and named.

use std::str::FromStr;

use clap::builder::RangedU64ValueParser;

use cohop::Error;
use cohop::graph::PartitionMethod;

/// A whole number from `least` to `most`.
pub(super) fn between(least: u64, most: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(least..=most)
}

/// A whole number of at least 1.
pub(super) fn at_least_one() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

fn number(text: &str, expected: &str, valid: impl Fn(f64) -> bool) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|&x: &f64| x.is_finite() && valid(x))
        .ok_or_else(|| format!("expected {expected}"))
}

/// At least 0.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    number(text, "a finite number of at least 0", |x| x >= 0.0)
}

/// Above 0.
pub(super) fn positive(text: &str) -> Result<f64, String> {
    number(text, "a finite number above 0", |x| x > 0.0)
}

/// At least 0 and below 1.
pub(super) fn share(text: &str) -> Result<f64, String> {
    number(text, "a number of at least 0 and below 1", |x| (0.0..1.0).contains(&x))
}

/// At least 0 and at most 1.
pub(super) fn probability(text: &str) -> Result<f64, String> {
    number(text, "a number between 0 and 1", |x| (0.0..=1.0).contains(&x))
}

/// A setting of the library. What is wrong is told without the library's name for it: clap names the option.
pub(super) fn setting<T: FromStr<Err = Error>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: Error| match error {
        Error::InvalidArgument { expected, .. } => format!("expected {expected}"),
        error => error.to_string(),
    })
}

/// A way to assign vertices to owners, if this program has it.
pub(super) fn partition(text: &str) -> Result<PartitionMethod, String> {
    match setting(text)? {
        PartitionMethod::Metis if cfg!(not(feature = "metis")) => {
            Err("this program was built without the feature `metis`".to_owned())
        }
        method => Ok(method),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_as_named() {
        assert_eq!((rate("0"), share("0"), probability("1")), (Ok(0.0), Ok(0.0), Ok(1.0)));
        assert_eq!(positive("1e-3"), Ok(1e-3));
        for text in ["nan", "inf", "-1", "x", ""] {
            for parse in [rate, positive, share, probability] {
                assert!(parse(text).is_err(), "{text}");
            }
        }
        assert!(share("1").is_err() && probability("1.1").is_err() && positive("0").is_err());
    }
}
