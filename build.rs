//! Compiles `cuda/*.cu`: by nvcc with the feature `cuda`, by g++ over the emulator with `emulate`.

// The default build does not wait for the crate `cc`.
#[cfg(any(feature = "cuda", feature = "emulate"))]
#[path = "build/kernels.rs"]
mod kernels;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=build");
    #[cfg(feature = "bindings")]
    bindings();
    #[cfg(any(feature = "cuda", feature = "emulate"))]
    kernels::build();
}

/// Writes `src/device/cuda/ffi.rs`, which is committed: the default build needs neither bindgen nor libclang.
#[cfg(feature = "bindings")]
fn bindings() {
    println!("cargo:rerun-if-changed=cuda/cohop.h");
    bindgen::Builder::default()
        .header("cuda/cohop.h")
        .allowlist_function("cohop_.*")
        .allowlist_type("cohop_.*")
        .newtype_enum("cohop_.*")
        .anon_fields_prefix("field")
        .allowlist_var("COHOP_.*")
        .merge_extern_blocks(true)
        .raw_line("#![allow(missing_docs, non_camel_case_types, clippy::pub_underscore_fields)]")
        .generate()
        .expect("bindings of cuda/cohop.h")
        .write_to_file("src/device/cuda/ffi.rs")
        .expect("src/device/cuda/ffi.rs");
}
