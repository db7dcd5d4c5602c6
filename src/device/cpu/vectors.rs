//! Code compiled for the widest vectors that the machine has.

use std::sync::OnceLock;

use crate::error::Plain;

/// The vectors that a kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::device::cpu) enum Vectors {
    /// What every machine of the target has.
    Portable,
    /// 256 bits, with fused multiply-add.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    Avx2,
    /// 512 bits, and twice as many registers.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    Avx512,
}

impl Vectors {
    /// The widest of this machine, or narrower ones if the environment variable `COHOP_VECTORS` asks for them: to test,
    /// and to measure, what other machines run.
    #[inline]
    pub(in crate::device::cpu) fn get() -> Vectors {
        static VECTORS: OnceLock<Vectors> = OnceLock::new();
        *VECTORS.get_or_init(|| {
            let name = std::env::var_os("COHOP_VECTORS").map(|name| name.to_string_lossy().into_owned());
            Vectors::named(name.as_deref())
        })
    }

    fn named(name: Option<&str>) -> Vectors {
        let widest = Vectors::widest();
        let problem = match name {
            None => return widest,
            Some("portable") => return Vectors::Portable,
            #[cfg(target_arch = "x86_64")]
            Some("avx2") if widest != Vectors::Portable => return Vectors::Avx2,
            #[cfg(target_arch = "x86_64")]
            Some("avx512") if widest == Vectors::Avx512 => return Vectors::Avx512,
            Some("avx2" | "avx512") => "which this machine does not have",
            Some(_) => "expected portable, avx2 or avx512",
        };
        log::warn!("COHOP_VECTORS is {}: {problem}; using the widest", Plain(name.unwrap_or_default()));
        widest
    }

    /// Which of the functions of [`vectorized`] this machine can run.
    fn widest() -> Vectors {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            let avx2 = has!("sse3")
                && has!("ssse3")
                && has!("sse4.1")
                && has!("sse4.2")
                && has!("popcnt")
                && has!("avx")
                && has!("avx2")
                && has!("bmi1")
                && has!("bmi2")
                && has!("fma")
                && has!("lzcnt");
            let avx512 = has!("avx512f")
                && has!("avx512bw")
                && has!("avx512cd")
                && has!("avx512dq")
                && has!("avx512vl");
            match (avx2, avx512) {
                (true, true) => return Vectors::Avx512,
                (true, false) => return Vectors::Avx2,
                (false, _) => {}
            }
        }
        Vectors::Portable
    }
}

/// Runs a closure compiled for the [`Vectors`] of this machine, which it is told. Mark the closure `#[inline(always)]`,
/// and inside prefer loops to closures: only what is inlined is compiled so.
///
/// A macro, so that the compiled code belongs to the module that it is written in: a function of another crate, or of
/// one module, would have the code of all kernels compiled one after the other (two thirds of the crate's build).
///
/// With a scalar type before the closure, the widest vectors are for those of 32 bits only: what computes in 64 bits
/// are gradient checks, and a third kind of every kernel costs users more time to build than checks ever take.
macro_rules! vectorized {
    ($body:expr $(,)?) => {
        vectorized!(f32, $body)
    };
    ($scalar:ty, $body:expr $(,)?) => {{
        use $crate::device::cpu::vectors::Vectors;

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "sse3,ssse3,sse4.1,sse4.2,popcnt,avx,avx2,bmi1,bmi2,fma,lzcnt")]
        fn avx2<R>(body: impl FnOnce(Vectors) -> R) -> R {
            body(Vectors::Avx2)
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "sse3,ssse3,sse4.1,sse4.2,popcnt,avx,avx2,bmi1,bmi2,fma,lzcnt")]
        #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
        fn avx512<R>(body: impl FnOnce(Vectors) -> R) -> R {
            body(Vectors::Avx512)
        }

        #[inline(always)]
        fn dispatch<S, R>(body: impl FnOnce(Vectors) -> R) -> R {
            match Vectors::get() {
                // SAFETY: `Vectors::widest` has found each of the features.
                #[cfg(target_arch = "x86_64")]
                Vectors::Avx512 if const { size_of::<S>() <= 4 } => unsafe { avx512(body) },
                // SAFETY: as above; it has found these too if it has found the wider ones.
                #[cfg(target_arch = "x86_64")]
                Vectors::Avx2 | Vectors::Avx512 => unsafe { avx2(body) },
                _ => body(Vectors::Portable),
            }
        }

        dispatch::<$scalar, _>($body)
    }};
}
pub(in crate::device::cpu) use vectorized;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_can_be_chosen() {
        let widest = Vectors::widest();
        assert_eq!(Vectors::named(None), widest);
        assert_eq!(Vectors::named(Some("wide")), widest);
        assert_eq!(Vectors::named(Some("portable")), Vectors::Portable);
        let narrower = if widest == Vectors::Avx512 { Vectors::Avx2 } else { widest };
        assert_eq!(Vectors::named(Some("avx2")), narrower);
        assert_eq!(
            vectorized!(
                #[inline(always)]
                |vectors| vectors
            ),
            Vectors::get()
        );
    }
}
