//! The first error after which a GPU's context cannot be used any more, kept for all calls that come later.

// The emulator keeps the errors of each device's works itself.
#![cfg_attr(feature = "emulate", allow(dead_code))]

use std::sync::OnceLock;

use crate::error::{Error, Result};

/// What failed, as [`Error::Device`] says it.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) operation: &'static str,
    pub(super) code: i32,
    pub(super) name: String,
    pub(super) message: String,
}

impl Failure {
    pub(super) fn into_error(self) -> Error {
        let Failure { operation, code, name, message } = self;
        Error::Device { operation, code, name, message }
    }
}

/// Whether CUDA's context is lost after the error: every later call returns it, or one that says less.
fn is_sticky(code: i32) -> bool {
    // Memory and links that fail, accesses to wrong addresses, time limits, assertions, what the hardware refuses, and
    // a context that has been destroyed.
    matches!(code, 214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721)
}

/// The error that a context was lost by, if it was.
#[derive(Debug, Default)]
pub(super) struct Lost(OnceLock<Failure>);

impl Lost {
    /// Errors: that by which the context was lost.
    pub(super) fn check(&self) -> Result<()> {
        self.0.get().map_or(Ok(()), |failure| Err(failure.clone().into_error()))
    }

    /// The error to be returned for `failure`: itself, or, once the context is lost, what it was lost by.
    pub(super) fn fail(&self, failure: Failure) -> Error {
        if !is_sticky(failure.code) {
            return self.check().err().unwrap_or_else(|| failure.into_error());
        }
        let first = self.0.get_or_init(|| {
            let message =
                format!("{}; nothing more can run on this device until the process ends", failure.message);
            Failure { message, ..failure }
        });
        first.clone().into_error()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(operation: &'static str, code: i32) -> Failure {
        Failure { operation, code, name: format!("ERROR_{code}"), message: ": why".into() }
    }

    #[test]
    fn the_first_error_that_loses_the_context_is_returned_ever_after() {
        let lost = Lost::default();
        // Out of memory, an invalid value, and a launch that asks for too much leave the context as it is.
        for code in [1, 2, 9, 98, 701, 999] {
            let error = lost.fail(failure("try", code)).to_string();
            assert_eq!(error, format!("try failed on the device: ERROR_{code} ({code}): why"));
            assert!(lost.check().is_ok());
        }
        let first = lost.fail(failure("gather", 700)).to_string();
        let expected = "gather failed on the device: ERROR_700 (700): why; nothing more can run on this device until \
                        the process ends";
        assert_eq!(first, expected);
        // Whatever comes later, and whatever notices it.
        for code in [700, 719, 1, 2] {
            assert_eq!(lost.fail(failure("later", code)).to_string(), expected);
            assert_eq!(lost.check().unwrap_err().to_string(), expected);
        }
    }
}
