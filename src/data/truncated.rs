//! What happens to a program whose mapped file somebody else truncates: by default the system ends it without a word.

#[cfg(target_os = "linux")]
const MESSAGE: &[u8] =
    b"cohop: a mapped file could not be read: a data file was changed or truncated while it was in \
use, or its disk has failed (SIGBUS)\n";

/// From now on a program that reads a mapped file beyond its end, because the file has been truncated meanwhile, ends
/// with a message on stderr and exit status 1, instead of the system's SIGBUS without one.
///
/// It replaces the handler of this signal for the whole process, so a library never calls it: the program `cohop` does,
/// and yours may. Nothing is cleaned up at such an end. Does nothing where there are no signals.
///
/// Errors: the system refuses the handler.
pub fn explain_truncated_files() -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: an all-zero `sigaction` is a valid value: no flags, an empty mask, the default action.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = end as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // On the thread's alternative stack, where it has one; and once only: a second fault ends the process.
        action.sa_flags = libc::SA_ONSTACK | libc::SA_RESETHAND;
        // SAFETY: `action` is initialised and outlives the call; the old action is not asked for. The handler is
        // async-signal-safe, see there.
        if unsafe { libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(target_os = "linux")]
extern "C" fn end(_signal: libc::c_int) {
    // SAFETY: `write` and `_exit` are async-signal-safe (signal-safety(7)); the message is constant, and nothing is
    // allocated, locked or unwound. Whether the message could be written makes no difference to what follows.
    unsafe {
        libc::write(libc::STDERR_FILENO, MESSAGE.as_ptr().cast(), MESSAGE.len());
        libc::_exit(1)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::Command;

    use crate::array::Array;

    const NAME: &str = "data::truncated::tests::a_truncated_file_ends_the_program_with_a_message";
    const CHILD: &str = "COHOP_TEST_TRUNCATED";

    /// This test runs itself once more as a child, which maps a file, truncates it, and reads what is gone.
    #[test]
    fn a_truncated_file_ends_the_program_with_a_message() {
        if let Some(path) = std::env::var_os(CHILD) {
            let path = std::path::Path::new(&path);
            super::explain_truncated_files().unwrap();
            let mapped: Array<u8> = Array::map(path, 0, 1 << 16).unwrap();
            std::fs::File::options().write(true).open(path).unwrap().set_len(0).unwrap();
            std::process::exit(40 + i32::from(std::hint::black_box(mapped.as_slice())[1 << 15]));
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("array");
        std::fs::write(&path, vec![1u8; 1 << 16]).unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args([NAME, "--exact", "--nocapture"])
            .env(CHILD, &path)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&child.stderr);
        assert_eq!(child.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("changed or truncated while it was in use"), "{stderr}");
    }
}
