//! Where CUDA's libraries are: cuBLAS and NCCL come with distributions, with CUDA itself or from PyPI, each under names
//! and in folders of its own.
//!
//! They are opened when they are first needed, so that the same binary runs where they are missing. Looked through, in
//! this order:
//!
//! 1. the folders that `COHOP_CUDA_LIBRARIES` names, with colons between them;
//! 2. what the dynamic linker knows: `LD_LIBRARY_PATH`, and what the distribution has installed;
//! 3. `CUDA_HOME` and `CUDA_PATH`, then `VIRTUAL_ENV` and `CONDA_PREFIX`, then `/usr/local/cuda`.
//!
//! Each folder may be the one with the libraries, a toolkit's (`lib64`, `lib`, `targets/*/lib` in it), a Python
//! environment (`lib/python*/site-packages` in it), its `site-packages` (`nvidia/*/lib` in it), or one of the packages
//! in there, whose neighbours are looked through too: NCCL lies beside CUDA.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use libloading::Library;

use crate::error::{Error, Result};

/// Folders, with colons between them, where libraries are looked for first.
const FIRST: &str = "COHOP_CUDA_LIBRARIES";
/// Where they are looked for last.
const LAST: [&str; 4] = ["CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "CONDA_PREFIX"];
/// Where NVIDIA's installer puts a toolkit.
const INSTALLED: &str = "/usr/local/cuda";

/// Opens a library by the first of its `names` that is found, such as `["libnccl.so.2", "libnccl.so"]`.
///
/// Errors: [`Error::Unavailable`] with the places that were looked through, and why a file that is there cannot be
/// opened.
pub(crate) fn open_library(names: &[&str]) -> Result<Library> {
    open_library_with(names, &[])
}

/// As [`open_library`]; `needed` are the names of libraries that it needs, which may lie beside it where the dynamic
/// linker does not look. Those stay open.
pub(crate) fn open_library_with(names: &[&str], needed: &[&str]) -> Result<Library> {
    open_from(&Places::new(&|name| std::env::var_os(name)), names, needed)
}

/// What is looked through.
struct Places {
    /// Before the dynamic linker is asked: for each folder that was named, those in and around it.
    first: Vec<Vec<PathBuf>>,
    /// After it.
    last: Vec<Vec<PathBuf>>,
}

impl Places {
    /// By the values of environment variables.
    fn new(variable: &dyn Fn(&str) -> Option<OsString>) -> Self {
        let named = variable(FIRST).unwrap_or_default();
        // A path that is not absolute would depend on the folder in which the program is started.
        let is_usable = |folder: &PathBuf| folder.is_absolute();
        let first = std::env::split_paths(&named).filter(is_usable);
        let last = LAST.iter().filter_map(|name| variable(name)).map(PathBuf::from).filter(is_usable);
        let last = last.chain([PathBuf::from(INSTALLED)]);
        Places { first: first.map(folders_in).collect(), last: last.map(folders_in).collect() }
    }
}

fn open_from(places: &Places, names: &[&str], needed: &[&str]) -> Result<Library> {
    let mut problems = Vec::new();
    let mut try_files = |places: &[Vec<PathBuf>]| {
        files_in(places, names).iter().find_map(|path| match open_file(path, needed) {
            Ok(library) => {
                log::debug!("{} is opened", path.display());
                Some(library)
            }
            Err(problem) => {
                problems.push(problem);
                None
            }
        })
    };
    if let Some(library) = try_files(&places.first) {
        return Ok(library);
    }
    for name in names {
        // SAFETY: NVIDIA's libraries, and those that stand in for them, may be loaded at any time by any thread.
        if let Ok(library) = unsafe { Library::new(*name) } {
            log::debug!("{name} is opened where the dynamic linker finds it");
            return Ok(library);
        }
    }
    if let Some(library) = try_files(&places.last) {
        return Ok(library);
    }
    let mut remedy = format!(
        "install it where the dynamic linker finds it, or name its folder in {FIRST}; also looked through were {}",
        LAST.join(", ")
    );
    if !problems.is_empty() {
        remedy = format!("{remedy}; what was found cannot be opened: {}", problems.join("; "));
    }
    Err(Error::Unavailable { what: names.join(" or "), remedy })
}

/// Opens the library at `path`, if need be after those beside it that it needs. The error says why it cannot be opened.
fn open_file(path: &Path, needed: &[&str]) -> std::result::Result<Library, String> {
    // SAFETY: as in `open_from`.
    let open = |path: &Path| unsafe { Library::new(path) };
    open(path)
        .or_else(|error| {
            let beside = needed.iter().map(|name| path.with_file_name(name)).filter(|path| path.is_file());
            let opened: Vec<Library> = beside.filter_map(|path| open(&path).ok()).collect();
            if opened.is_empty() {
                return Err(error);
            }
            // The linker takes what is open already by its name, wherever it lies.
            opened.into_iter().for_each(std::mem::forget);
            open(path)
        })
        // The linker's own words, which name the file.
        .map_err(|error| std::error::Error::source(&error).unwrap_or(&error).to_string())
}

/// The files of those names in the folders: for each folder that was named, by the names' order.
fn files_in(places: &[Vec<PathBuf>], names: &[&str]) -> Vec<PathBuf> {
    let by_name = |folders: &Vec<PathBuf>| -> Vec<_> {
        names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name))).collect()
    };
    places.iter().flat_map(by_name).filter(|path| path.is_file()).collect()
}

/// The folders in and around `folder` that may hold libraries; those that are there.
fn folders_in(folder: PathBuf) -> Vec<PathBuf> {
    let mut folders = vec![folder.clone()];
    folders.extend(["lib64", "lib"].map(|name| folder.join(name)));
    folders.extend(within(&folder.join("targets"), "lib"));
    folders.extend(packages(&folder));
    // `…/site-packages/nvidia/cu13`, and its neighbours.
    if let Some(parent) = folder.parent().filter(|parent| parent.ends_with("nvidia")) {
        folders.extend(within(parent, "lib"));
    }
    for environment in within(&folder.join("lib"), "site-packages") {
        folders.extend(packages(&environment));
    }
    folders.retain(|folder| folder.is_dir());
    folders
}

/// The folders of the libraries that `site_packages` holds as Python packages.
fn packages(site_packages: &Path) -> Vec<PathBuf> {
    within(&site_packages.join("nvidia"), "lib")
}

/// The folders called `name` in the folders of `folder`, in order of their paths.
fn within(folder: &Path, name: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut folders: Vec<_> =
        entries.map(|entry| entry.path().join(name)).filter(|path| path.is_dir()).collect();
    folders.sort_unstable();
    folders
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The files of those names that are found, by the values of the variables, relative to `root`.
    fn found(root: &Path, variables: &[(&str, &str)], names: &[&str]) -> Vec<String> {
        let value = |name: &str| {
            let parts = variables.iter().find(|(variable, _)| *variable == name)?.1.split(':');
            let paths = parts.map(|part| if part.is_empty() { part.into() } else { root.join(part) });
            Some(std::env::join_paths(paths).unwrap())
        };
        let Places { first, last } = Places::new(&value);
        let files = files_in(&first, names).into_iter().chain(files_in(&last, names));
        let inside = files.filter_map(|path| Some(path.strip_prefix(root).ok()?.to_str()?.to_string()));
        inside.collect()
    }

    #[test]
    fn libraries_are_found_where_packages_put_them() {
        let root = tempfile::tempdir().unwrap();
        let files = [
            "plain/libnccl.so",
            "plain/libnccl.so.2",
            "toolkit/lib64/libcublas.so.12",
            "toolkit/targets/x86_64-linux/lib/libnccl.so.2",
            "venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcublas.so.13",
            "venv/lib/python3.12/site-packages/nvidia/cublas/lib/libcublas.so.12",
            "venv/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2",
            "venv/lib/libnccl.so.2",
        ];
        for file in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let found = |variables: &[_], names: &[_]| found(root.path(), variables, names);
        let nccl = ["libnccl.so.2", "libnccl.so"];
        let cublas = ["libcublas.so.13", "libcublas.so.12", "libcublas.so"];
        let packages = "venv/lib/python3.12/site-packages";
        // The variables' order, and the names' within each.
        assert_eq!(found(&[(FIRST, "plain")], &nccl), ["plain/libnccl.so.2", "plain/libnccl.so"]);
        assert_eq!(
            found(&[("CUDA_HOME", "toolkit"), (FIRST, "none:plain")], &nccl),
            ["plain/libnccl.so.2", "plain/libnccl.so", "toolkit/targets/x86_64-linux/lib/libnccl.so.2"]
        );
        assert_eq!(found(&[("CUDA_PATH", "toolkit")], &cublas), ["toolkit/lib64/libcublas.so.12"]);
        // A Python environment, its packages, and one of these with its neighbours.
        let expected = ["nccl/lib/libnccl.so.2"].map(|file| format!("{packages}/nvidia/{file}"));
        let one = format!("{packages}/nvidia/cu13");
        for (variable, folder) in [("CUDA_HOME", &one[..]), (FIRST, packages), ("CUDA_HOME", packages)] {
            assert_eq!(found(&[(variable, folder)], &nccl), expected, "{variable}={folder}");
        }
        assert_eq!(
            found(&[("VIRTUAL_ENV", "venv")], &nccl),
            ["venv/lib/libnccl.so.2".to_string(), expected[0].clone()]
        );
        // The newest first.
        assert_eq!(
            found(&[("CONDA_PREFIX", "venv")], &cublas),
            ["cu13/lib/libcublas.so.13", "cublas/lib/libcublas.so.12"]
                .map(|f| format!("{packages}/nvidia/{f}"))
        );
        assert!(found(&[], &nccl).is_empty() && found(&[(FIRST, "")], &nccl).is_empty());
    }

    /// Not in the folder in which the program happens to be started.
    #[test]
    fn relative_folders_are_passed_over() {
        for variable in [FIRST, "CUDA_HOME"] {
            let Places { first, last } =
                Places::new(&|name| (name == variable).then(|| OsString::from("src:.:")));
            assert!(first.iter().chain(&last).flatten().all(|folder| folder.is_absolute()), "{variable}");
        }
    }

    #[test]
    fn missing_and_broken_libraries_are_errors_that_name_them() {
        let name = "libcohop_is_no_library.so";
        let text = |folders| {
            let error = open_from(&Places { first: vec![folders], last: vec![] }, &[name, "libno.so.2"], &[]);
            match error.unwrap_err() {
                error @ Error::Unavailable { .. } => error.to_string(),
                error => panic!("{error}"),
            }
        };
        let missing = text(vec![]);
        assert!(missing.starts_with(&format!("{name} or libno.so.2 is not available: ")), "{missing}");
        assert!(missing.contains(FIRST) && !missing.contains("cannot be opened"), "{missing}");
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(name), "no library").unwrap();
        let broken = text(vec![folder.path().into()]);
        assert!(
            broken.contains("cannot be opened") && broken.contains(folder.path().to_str().unwrap()),
            "{broken}"
        );
    }

    /// The system's own, which any program has.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_library_is_opened_by_the_linkers_names() {
        let library = open_library(&["libno_such.so.9", "libc.so.6"]).unwrap();
        // SAFETY: the function of the C library, which takes and returns a number.
        let labs = unsafe { library.get::<unsafe extern "C" fn(i64) -> i64>(b"labs\0").unwrap() };
        // SAFETY: no conditions.
        assert_eq!(unsafe { labs(-7) }, 7);
        assert!(open_library_with(&["libc.so.6"], &["libno_such.so.9"]).is_ok());
    }
}
