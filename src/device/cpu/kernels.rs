//! Kernels are compiled in this crate, once for each scalar, and not again in every crate that uses them.
//!
//! Generic code is compiled where it is used. So the implementation of a kernel trait for `Cpu<S>` only calls a method
//! of a trait of `S`, and that method is not generic: its body, the generic function of the same name, is compiled
//! here.

/// Implements a kernel trait for every `Cpu<S>` by the functions of these names, which take the device first.
///
/// The second trait is one of those that [`Kernels`](super::Kernels) lists.
macro_rules! kernels {
    (impl $family:ident by $kernels:ident {
        $(type $associated:ident = $value:ty;)*
        $(fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty;)*
    }) => {
        impl<S: Scalar> $family for Cpu<S> {
            $(type $associated = $value;)*
            $(fn $name(&self, $($argument: $type),*) -> $result {
                <S as $kernels<S>>::$name(self, $($argument),*)
            })*
        }

        #[allow(clippy::too_many_arguments)]
        pub trait $kernels<S> {
            $(fn $name(device: &Cpu<S>, $($argument: $type),*) -> $result
            where
                S: Scalar;)*
        }

        kernels!(@for f32, $kernels $(, $name($($argument: $type),*) -> $result)*);
        kernels!(@for f64, $kernels $(, $name($($argument: $type),*) -> $result)*);
    };
    (@for $scalar:ident, $kernels:ident $(, $name:ident($($argument:ident: $type:ty),*) -> $result:ty)*) => {
        const _: () = {
            // The name that the types above have for it.
            type S = $scalar;

            impl $kernels<S> for S {
                $(fn $name(device: &Cpu<S>, $($argument: $type),*) -> $result {
                    $name(device, $($argument),*)
                })*
            }
        };
    };
}

pub(super) use kernels;
