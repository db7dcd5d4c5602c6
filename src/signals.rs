//! What a program says when the system is about to end it: by default, little or nothing.
//!
//! These functions replace handlers of signals for the whole process, so a library never calls them: the program
//! `cohop` does, and yours may. Nothing is cleaned up at such an end. They do nothing except on Linux.

#[cfg(target_os = "linux")]
const TRUNCATED: &[u8] =
    b"cohop: a mapped file could not be read: a data file was changed or truncated while it was in \
use, or its disk has failed (SIGBUS)\n";

#[cfg(target_os = "linux")]
const ABORTED: &[u8] =
    b"cohop: gave up, as the lines above say (SIGABRT). If an allocation has failed: the system gives no more memory, \
so ask for less, as by smaller batches, fanouts or caches, or fewer threads\n";

/// From now on a program that reads a mapped file beyond its end, because the file has been truncated meanwhile, ends
/// with a message on stderr and exit status 1, instead of the system's SIGBUS without one.
///
/// Errors: the system refuses the handler.
pub fn explain_truncated_files() -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    handle(libc::SIGBUS, end_truncated)?;
    Ok(())
}

/// From now on a program that aborts ends with a message on stderr and exit status 1, instead of SIGABRT and its dump
/// of memory.
///
/// What is large, and what a file or an option gives the size of, is an [`Error`](crate::Error) if there is no memory
/// for it. The many small things of a program and its libraries are not, and abort: where something large has taken
/// all but the last of the memory, one of them may be the first that finds none.
///
/// Errors: the system refuses the handler.
pub fn explain_aborts() -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    handle(libc::SIGABRT, end_aborted)?;
    Ok(())
}

#[cfg(target_os = "linux")]
fn handle(signal: libc::c_int, handler: extern "C" fn(libc::c_int)) -> std::io::Result<()> {
    // SAFETY: an all-zero `sigaction` is a valid value: no flags, an empty mask, the default action.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    // On the thread's alternative stack, where it has one; and once only: a second fault ends the process.
    action.sa_flags = libc::SA_ONSTACK | libc::SA_RESETHAND;
    // SAFETY: `action` is initialised and outlives the call; the old action is not asked for. The handlers are
    // async-signal-safe, see `end`.
    match unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[cfg(target_os = "linux")]
extern "C" fn end_truncated(_signal: libc::c_int) {
    end(TRUNCATED);
}

#[cfg(target_os = "linux")]
extern "C" fn end_aborted(_signal: libc::c_int) {
    end(ABORTED);
}

#[cfg(target_os = "linux")]
fn end(message: &'static [u8]) {
    // SAFETY: `write` and `_exit` are async-signal-safe (signal-safety(7)); the message is constant, and nothing is
    // allocated, locked or unwound. Whether the message could be written makes no difference to what follows.
    unsafe {
        libc::write(libc::STDERR_FILENO, message.as_ptr().cast(), message.len());
        libc::_exit(1)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use crate::array::Array;

    const CHILD: &str = "COHOP_TEST_SIGNAL";

    /// Runs the test `name` once more as a child, which finds `value` in its environment, and must end with status 1
    /// and a message.
    fn ends_with(name: &str, value: &Path, message: &str) {
        let child = Command::new(std::env::current_exe().expect("the test's own program"))
            .args([&format!("signals::tests::{name}"), "--exact", "--nocapture"])
            .env(CHILD, value)
            .output()
            .expect("a child that runs");
        let stderr = String::from_utf8_lossy(&child.stderr);
        assert_eq!(child.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains(message), "{stderr}");
    }

    /// The child maps a file, truncates it, and reads what is gone.
    #[test]
    fn a_truncated_file_ends_the_program_with_a_message() {
        if let Some(path) = std::env::var_os(CHILD) {
            let path = Path::new(&path);
            super::explain_truncated_files().unwrap();
            let mapped: Array<u8> = Array::map(path, 0, 1 << 16).unwrap();
            std::fs::File::options().write(true).open(path).unwrap().set_len(0).unwrap();
            std::process::exit(40 + i32::from(std::hint::black_box(mapped.as_slice())[1 << 15]));
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("array");
        std::fs::write(&path, vec![1u8; 1 << 16]).unwrap();
        let message = "changed or truncated while it was in use";
        ends_with("a_truncated_file_ends_the_program_with_a_message", &path, message);
    }

    #[test]
    fn an_allocation_that_fails_ends_the_program_with_a_message() {
        if std::env::var_os(CHILD).is_some() {
            super::explain_aborts().unwrap();
            let list: Vec<u8> = Vec::with_capacity(std::hint::black_box(isize::MAX as usize));
            std::process::exit(40 + i32::from(std::hint::black_box(list).is_empty()));
        }
        let message = "the system gives no more memory";
        ends_with("an_allocation_that_fails_ends_the_program_with_a_message", Path::new("any"), message);
    }
}
