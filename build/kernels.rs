//! The kernels' compilers: nvcc, and g++ over the emulator.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Builds those that the features ask for; of both, the emulator: so `--all-features` needs no nvcc.
pub(super) fn build() {
    println!("cargo:rerun-if-changed=cuda");
    if cfg!(all(feature = "cuda", feature = "emulate")) {
        println!(
            "cargo:warning=features `cuda` and `emulate`: the kernels run on the emulator, not on a GPU"
        );
    }
    if cfg!(feature = "emulate") {
        build_emulated(Mode::from_environment());
    } else {
        build_cuda();
    }
}

/// The files of a folder that end in `.extension`, in order of their names.
fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("the folder {folder}: {error}"));
    let paths = entries.map(|entry| entry.expect("an entry of a folder").path());
    let mut files: Vec<_> = paths.filter(|path| path.extension().is_some_and(|e| e == extension)).collect();
    files.sort();
    files
}

fn kernels() -> Vec<PathBuf> {
    files("cuda", "cu")
}

fn stem(path: &Path) -> String {
    path.file_stem().expect("a file's name").to_string_lossy().into_owned()
}

/// `80,90,100`: machine code for each, and PTX of the last for what comes after it.
const DEFAULT_ARCHITECTURES: &str = "80,90,100";

fn build_cuda() {
    for variable in ["CUDA_HOME", "COHOP_CUDA_ARCHITECTURES"] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    let home = PathBuf::from(env::var_os("CUDA_HOME").expect(
        "the feature `cuda` needs a CUDA 13 toolkit: set CUDA_HOME (tools/install-cuda fetches one that needs no GPU)",
    ));
    let nvcc = home.join("bin/nvcc");
    assert!(nvcc.exists(), "CUDA_HOME is {}, but there is no {}", home.display(), nvcc.display());
    let libraries = ["lib64", "lib"].map(|name| home.join(name));
    let library = libraries.iter().find(|folder| folder.join("libcudart_static.a").exists());
    let library =
        library.unwrap_or_else(|| panic!("no libcudart_static.a in CUDA_HOME = {}", home.display()));
    let architectures = env::var("COHOP_CUDA_ARCHITECTURES").unwrap_or_else(|_| DEFAULT_ARCHITECTURES.into());
    let architectures: Vec<_> = architectures.split(',').map(str::trim).collect();
    // For the check of the GPU and its driver, in `src/device/cuda/support.rs`.
    println!("cargo:rustc-env=COHOP_CUDA_COMPILED_FOR={}", architectures.join(","));
    println!("cargo:rustc-env=COHOP_CUDA_TOOLKIT={}", toolkit_version(&nvcc));
    // SAFETY: the build script has no other thread yet. cc takes nvcc from the variable NVCC; given as the compiler,
    // its
    // host flags would lose their prefix.
    unsafe { env::set_var("NVCC", &nvcc) };
    let files = kernels();
    let next = AtomicUsize::new(0);
    let jobs = env::var("NUM_JOBS").ok().and_then(|jobs| jobs.parse().ok()).unwrap_or(1);
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    compile_cuda(file, &architectures);
                }
            });
        }
    });
    println!("cargo:rustc-link-search=native={}", library.display());
    println!("cargo:rustc-link-lib=static=cudart_static");
    for library in ["rt", "pthread", "dl"] {
        println!("cargo:rustc-link-lib={library}");
    }
}

/// The compiler's version, as drivers number theirs: 13010 for 13.1.
fn toolkit_version(nvcc: &Path) -> u32 {
    let said = Command::new(nvcc).arg("--version").output();
    let said = said.unwrap_or_else(|error| panic!("{} --version: {error}", nvcc.display())).stdout;
    let said = String::from_utf8_lossy(&said);
    // Cuda compilation tools, release 13.1, V13.1.80
    let release = said.split("release ").nth(1).and_then(|rest| rest.split(',').next());
    let (major, minor) = release.and_then(|release| release.trim().split_once('.')).unwrap_or_default();
    match (major.parse::<u32>(), minor.parse::<u32>()) {
        (Ok(major), Ok(minor)) => major * 1000 + minor * 10,
        _ => panic!("{} --version does not say its release: {said}", nvcc.display()),
    }
}

/// A library of its own for each file: of several files in one, nvcc would make code that it links once more.
fn compile_cuda(file: &Path, architectures: &[&str]) {
    let mut build = cc::Build::new();
    // The profile is not followed: with -G, which cc adds to debug builds, kernels are unusably slow.
    build.cuda(true).cudart("none").std("c++17").opt_level(3).debug(false).warnings(false);
    for architecture in architectures {
        build.flag("-gencode").flag(format!("arch=compute_{architecture},code=sm_{architecture}"));
    }
    let last = architectures.last().expect("COHOP_CUDA_ARCHITECTURES names at least one");
    build.flag("-gencode").flag(format!("arch=compute_{last},code=compute_{last}"));
    // Compressed to a quarter of what the default leaves; it is unpacked once, when a kernel is first used.
    build.flag("-lineinfo").flag("--extended-lambda").flag("--compress-mode=size");
    if stem(file).starts_with("sample") {
        // Samplers decide by the same roundings as on the CPU: no multiplication is fused with an addition.
        build.flag("--fmad=false");
    }
    build.file(file).compile(&format!("cohop_{}", stem(file)));
}

/// What the emulator looks for.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    /// Wrong results, deadlocks, wrong masks.
    Plain,
    /// And accesses out of bounds.
    Asan,
    /// And accesses that nothing orders.
    Race,
}

impl Mode {
    fn from_environment() -> Self {
        println!("cargo:rerun-if-env-changed=COHOP_EMULATE");
        match env::var("COHOP_EMULATE").as_deref() {
            Err(_) | Ok("" | "plain") => Mode::Plain,
            Ok("asan") => Mode::Asan,
            Ok("race") => Mode::Race,
            Ok(other) => panic!("COHOP_EMULATE is {other}: expected plain, asan or race"),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Mode::Plain => "plain",
            Mode::Asan => "asan",
            Mode::Race => "race",
        }
    }

    fn build(self) -> cc::Build {
        let mut build = cc::Build::new();
        build.cpp(true).std("c++17").include("cuda").opt_level(1).warnings(true).flag("-Wno-unknown-pragmas");
        // As on the device: a decision must not hang on a fused rounding.
        build.flag("-g").flag("-fno-omit-frame-pointer").flag("-ffp-contract=off");
        if self == Mode::Asan {
            build.flag("-fsanitize=address,undefined").flag("-fno-sanitize-recover=all");
        }
        if self == Mode::Race {
            build.define("EMULATE_RACE", None);
        }
        build
    }
}

fn build_emulated(mode: Mode) {
    if mode == Mode::Asan {
        // rustc links with -nodefaultlibs, and libasan must come before every other library.
        for library in ["asan", "ubsan"] {
            println!("cargo:rustc-link-lib=dylib={library}");
        }
    }
    mode.build().files(files("cuda/emulate", "cpp")).compile("cohop_emulate");
    let mut build = mode.build();
    if mode == Mode::Race {
        build.flag("-fsanitize=thread").flag("--param=tsan-instrument-func-entry-exit=0");
    }
    build.flag("-xc++").files(kernels()).files(files("cuda/emulate", "cu")).compile("cohop_kernels");
    println!("cargo:rustc-env=COHOP_EMULATE_MODE={}", mode.name());
    println!("cargo:rustc-link-lib=static=cohop_emulate");
}
