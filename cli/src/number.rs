//! Values of options, checked while the command line is read: a wrong one is wrong usage, and named.

use std::str::FromStr;

use cohop::Error;
use cohop::graph::PartitionMethod;
use cohop::sample::Fanouts;

/// A whole number from `least` to `most`, which `T` can hold.
pub(super) fn whole<T>(least: u64, most: u64) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync
where
    T: TryFrom<u64>,
{
    move |text| {
        let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(format!("{text:?} is not a whole number"));
        }
        // Only if it is too large it cannot be parsed.
        let number = digits.parse().unwrap_or(u64::MAX);
        if number < least || (number > 0 && text.starts_with('-')) {
            return Err(format!("{text} is below {least}"));
        }
        let too_large = || format!("{text} is above {most}");
        if number > most || digits.parse::<u64>().is_err() {
            return Err(too_large());
        }
        T::try_from(number).map_err(|_| too_large())
    }
}

/// Any whole number of at least 0.
pub(super) fn any<T: TryFrom<u64>>() -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync {
    whole(0, u64::MAX)
}

/// A whole number from `least` to `most`.
pub(super) fn between(least: u64, most: u64) -> impl Fn(&str) -> Result<usize, String> + Clone + Send + Sync {
    whole(least, most)
}

/// A whole number of at least 1.
pub(super) fn at_least_one() -> impl Fn(&str) -> Result<usize, String> + Clone + Send + Sync {
    whole(1, u64::MAX)
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

/// Fanouts, none of which is 0: a layer without neighbours is none of a graph neural network.
pub(super) fn fanouts(text: &str) -> Result<Fanouts, String> {
    let fanouts: Fanouts = setting(text)?;
    match fanouts.0.contains(&0) {
        true => {
            Err("a fanout of 0 samples nothing: expected at least 1 each (full or -1 for all)".to_owned())
        }
        false => Ok(fanouts),
    }
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
    fn what_is_wrong_with_a_number_is_said_in_plain_words() {
        let one_to_nine = whole::<u32>(1, 9);
        assert_eq!((one_to_nine("1"), one_to_nine("+9"), any::<u64>()("-0")), (Ok(1), Ok(9), Ok(0)));
        for (text, message) in [
            ("x", "\"x\" is not a whole number"),
            ("", "\"\" is not a whole number"),
            ("1.5", "\"1.5\" is not a whole number"),
            ("1e3", "\"1e3\" is not a whole number"),
            ("-", "\"-\" is not a whole number"),
            ("0", "0 is below 1"),
            ("-3", "-3 is below 1"),
            ("10", "10 is above 9"),
            ("99999999999999999999", "99999999999999999999 is above 9"),
        ] {
            assert_eq!(one_to_nine(text), Err(message.to_owned()));
        }
        assert_eq!(any::<u64>()("18446744073709551615"), Ok(u64::MAX));
        let beyond = Err("18446744073709551616 is above 18446744073709551615".to_owned());
        assert_eq!(any::<u64>()("18446744073709551616"), beyond);
    }

    #[test]
    fn fanouts_are_at_least_one() {
        assert_eq!(fanouts("10,full,-1").unwrap().0, [10, usize::MAX, usize::MAX]);
        assert!(fanouts("10,0").unwrap_err().starts_with("a fanout of 0 samples nothing"));
        assert!(fanouts("x").unwrap_err().starts_with("expected whole numbers"));
    }

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
