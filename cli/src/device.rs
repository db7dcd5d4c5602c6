//! `--device`

use std::str::FromStr;

use cohop::{Error, Result};

/// Where to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeviceName {
    Cpu,
    /// A GPU, by number; without one the first, or those of the machine in turn.
    Cuda(Option<usize>),
}

impl FromStr for DeviceName {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let number = |text: &str| text.parse().ok().map(|number| DeviceName::Cuda(Some(number)));
        let device = match name {
            "cpu" => Some(DeviceName::Cpu),
            "cuda" => Some(DeviceName::Cuda(None)),
            _ => name.strip_prefix("cuda:").and_then(number),
        };
        device.ok_or_else(|| Error::invalid("device", name, "cpu, cuda or cuda:N"))
    }
}

/// Runs `$body` with `$device` bound to the named device, which computes in `$scalar`.
#[cfg(any(feature = "cuda", feature = "emulate"))]
macro_rules! on_device {
    ($name:expr, $scalar:ty, $device:ident => $body:expr) => {
        match $name {
            $crate::device::DeviceName::Cpu => {
                let $device = cohop::device::Cpu::<$scalar>::new();
                $body
            }
            $crate::device::DeviceName::Cuda(ordinal) => {
                let $device = cohop::device::Cuda::<$scalar>::new(ordinal.unwrap_or(0))?;
                $body
            }
        }
    };
}

/// Runs `$body` with `$device` bound to the named device, which computes in `$scalar`.
#[cfg(not(any(feature = "cuda", feature = "emulate")))]
macro_rules! on_device {
    ($name:expr, $scalar:ty, $device:ident => $body:expr) => {
        match $name {
            $crate::device::DeviceName::Cpu => {
                let $device = cohop::device::Cpu::<$scalar>::new();
                $body
            }
            $crate::device::DeviceName::Cuda(_) => {
                let expected = "cpu: this program was built without the feature `cuda`";
                Err(cohop::Error::invalid("--device", "cuda", expected))
            }
        }
    };
}

pub(super) use on_device;
