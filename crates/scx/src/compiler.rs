//! Compiler that compiles the sources of others: within limits on time, memory and the size of its output.
//!
//! Input: a command. Output: the end of the compiler, and the beginning of its messages. Sources may include a named pipe or a
//! device, from which the compiler would read without end.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Time for a compilation; large schedulers take seconds.
pub const LONGEST: Duration = Duration::from_secs(60);
/// Limit on the addresses of each process of the compiler, in bytes.
const MOST_ADDRESSES: u64 = 4 << 30;
/// Limit on each file that the compiler writes, in bytes.
const MOST_WRITTEN: u64 = 256 << 20;
/// Bytes of messages that are kept.
const MOST_SAID: u64 = 1 << 20;

/// End of the compiler.
pub struct Compiled {
    pub status: ExitStatus,
    /// Its messages.
    pub said: String,
}

/// Runs a compiler. Returns `None` if it took longer than `longest` and was killed with the processes that it started.
///
/// # Errors
/// Fails if there is no such compiler.
pub fn compile(command: &mut Command, longest: Duration) -> io::Result<Option<Compiled>> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    limit(command);
    let mut child = command.spawn()?;
    let Some(messages) = child.stderr.take() else {
        return Err(io::Error::other("it has no standard error"));
    };
    let (ended, end) = mpsc::channel();
    let reader = std::thread::Builder::new().spawn(move || {
        // All processes of the compiler have the pipe, so its end is theirs.
        let _ = ended.send(beginning(messages));
    });
    let said = match reader {
        Ok(_) => end.recv_timeout(longest),
        Err(_) => Err(RecvTimeoutError::Disconnected),
    };
    let Ok(said) = said else {
        kill(&mut child);
        reader?;
        return Ok(None);
    };
    Ok(Some(Compiled {
        status: child.wait()?,
        said: String::from_utf8_lossy(&said).into_owned(),
    }))
}

/// Reads a stream to its end and returns its beginning.
fn beginning(mut stream: impl Read) -> Vec<u8> {
    let mut beginning = Vec::new();
    // An error is an end, too.
    let _ = (&mut stream).take(MOST_SAID).read_to_end(&mut beginning);
    let _ = io::copy(&mut stream, &mut io::sink());
    beginning
}

/// Limits the resources of a command.
fn limit(command: &mut Command) {
    // SAFETY: the structure is valid for the call.
    let addresses = lowered(MOST_ADDRESSES, |limit| unsafe {
        libc::getrlimit(libc::RLIMIT_AS, limit)
    });
    // SAFETY: as above.
    let written = lowered(MOST_WRITTEN, |limit| unsafe {
        libc::getrlimit(libc::RLIMIT_FSIZE, limit)
    });
    let set = move || {
        // SAFETY: the structures are valid for the calls.
        let failed = unsafe {
            libc::setrlimit(libc::RLIMIT_AS, &raw const addresses) != 0
                || libc::setrlimit(libc::RLIMIT_FSIZE, &raw const written) != 0
        };
        if failed {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    };
    // SAFETY: the function only makes system calls, as a process between fork and exec must.
    unsafe { command.pre_exec(set) };
}

/// Returns the limit that `get` finds, lowered to `most`.
fn lowered(most: u64, get: impl Fn(&mut libc::rlimit) -> libc::c_int) -> libc::rlimit {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // The call fails for unknown resources only, and these two are as old as Linux.
    get(&mut limit);
    let most = libc::rlim_t::try_from(most).unwrap_or(libc::RLIM_INFINITY);
    limit.rlim_cur = limit.rlim_cur.min(most);
    limit
}

/// Kills a process and those that it started. They belong to the process group of this program, so that Ctrl-C ends them.
fn kill(child: &mut Child) {
    let mut found = vec![child.id()];
    let mut next = 0;
    let send = |pid: u32, signal| {
        // SAFETY: the call takes numbers only.
        i32::try_from(pid).map(|pid| unsafe { libc::kill(pid, signal) })
    };
    while let Some(pid) = found.get(next).copied() {
        next += 1;
        // From now on, it starts no other process.
        let _ = send(pid, libc::SIGSTOP);
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.unwrap_or_default();
        found.extend(
            children
                .split_whitespace()
                .filter_map(|c| c.parse::<u32>().ok()),
        );
    }
    for pid in found {
        let _ = send(pid, libc::SIGKILL);
    }
    // It was killed, so this does not wait long.
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::OpenOptionsExt;
    use std::path::Path;
    use std::time::Instant;

    use super::*;

    fn pipe(path: &Path) {
        let made = Command::new("mkfifo").arg(path).status().unwrap();
        assert!(made.success());
    }

    #[test]
    fn a_compiler_that_waits_without_end_is_killed_with_all_its_processes() {
        let folder = tempfile::tempdir().unwrap();
        let header = folder.path().join("pipe.h");
        pipe(&header);
        let source = folder.path().join("a.c");
        std::fs::write(&source, "#include \"pipe.h\"\n").unwrap();
        let begun = Instant::now();
        let mut command = Command::new("cc");
        command
            .arg("-c")
            .arg(&source)
            .arg("-o")
            .arg(folder.path().join("a.o"));
        let compiled = compile(&mut command, Duration::from_millis(500)).unwrap();
        assert!(compiled.is_none());
        assert!(begun.elapsed() < Duration::from_secs(30));
        // The preprocessor may be a process of its own, and takes a moment to end.
        let is_read = || {
            let mut options = std::fs::File::options();
            options.write(true).custom_flags(libc::O_NONBLOCK);
            options.open(&header).is_ok()
        };
        while is_read() && begun.elapsed() < Duration::from_secs(30) {
            std::thread::yield_now();
        }
        assert!(!is_read());
    }

    #[test]
    fn messages_are_kept_up_to_a_limit() {
        let mut command = Command::new("sh");
        let script = "head -c 3000000 /dev/zero | tr '\\0' x >&2; exit 3";
        let compiled = compile(command.args(["-c", script]), LONGEST)
            .unwrap()
            .unwrap();
        assert_eq!(compiled.status.code(), Some(3));
        assert_eq!(compiled.said.len() as u64, MOST_SAID);
    }
}
