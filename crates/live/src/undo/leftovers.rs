//! Leftovers of killed processes in the folder of journals, other than journals: sockets without a listener, and files that
//! were not yet renamed to their final names.
//!
//! Input: the folder. Effect: the leftovers are removed. Sockets are created and removed only under [`hold`], so a socket
//! that refuses a connection is a leftover.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

use countersteer_sysfs::procfs::PROC;

/// Limit on the number of attempts to lock a folder that another process holds.
const TRIES: u32 = 200;
/// Time between two attempts.
const TRY: Duration = Duration::from_millis(10);

/// Locks a folder of journals while the value exists, for creating or removing sockets there.
///
/// # Errors
/// Fails if another process holds the lock for seconds, or if the folder cannot be opened.
pub fn hold(folder: &Path) -> io::Result<Flock<File>> {
    let mut file = File::open(folder)?;
    for _ in 0..TRIES {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(held) => return Ok(held),
            Err((back, Errno::EWOULDBLOCK | Errno::EINTR)) => file = back,
            Err((_, errno)) => return Err(errno.into()),
        }
        std::thread::sleep(TRY);
    }
    Err(io::ErrorKind::WouldBlock.into())
}

/// True if a socket has a listener. Never blocks.
#[must_use]
pub fn listens(path: &Path) -> bool {
    // A socket whose queue is full has a listener, too.
    matches!(knock(path), Ok(()) | Err(Errno::EAGAIN))
}

fn knock(path: &Path) -> nix::Result<()> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let own = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(own.as_raw_fd(), &UnixAddr::new(path)?)
}

/// Removes the leftovers of ended processes. Files that cannot be read or removed are left.
pub(super) fn sweep(folder: &Path) {
    let Ok(_held) = hold(folder) else { return };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    for path in paths {
        let stale = match path.extension().and_then(|e| e.to_str()) {
            Some("sock") => knock(&path) == Err(Errno::ECONNREFUSED),
            Some("new") => author(&path).is_some_and(is_gone),
            _ => false,
        };
        if stale {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Returns the PID with which a file's name begins; `None` if it begins with none.
fn author(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.split('-').next()?.parse().ok()
}

fn is_gone(pid: u32) -> bool {
    !PROC.has(pid)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn what_is_left_over_is_removed_and_the_rest_stays() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        drop(UnixListener::bind(at("run-7.sock")).unwrap());
        drop(UnixListener::bind(at("daemon.sock")).unwrap());
        let answered = UnixListener::bind(at("run-8.sock")).unwrap();
        // A PID beyond the largest possible one, and this one.
        std::fs::write(at("4194400-0.new"), "").unwrap();
        let own = format!("{}-0.new", std::process::id());
        std::fs::write(at(&own), "").unwrap();
        std::fs::write(at("whatever.else"), "").unwrap();
        assert!(listens(&at("run-8.sock")) && !listens(&at("run-7.sock")));
        sweep(folder.path());
        let mut left: Vec<String> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, [own.as_str(), "run-8.sock", "whatever.else"]);
        drop(answered);
    }

    #[test]
    fn a_full_queue_has_a_listener_and_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run-7.sock");
        let _deaf = UnixListener::bind(&path).unwrap();
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let mut waiting = Vec::new();
        loop {
            let own = socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
            let knocked = connect(own.as_raw_fd(), &UnixAddr::new(&path).unwrap());
            waiting.push(own);
            if knocked.is_err() || waiting.len() > 10_000 {
                break;
            }
        }
        assert!(listens(&path));
        sweep(folder.path());
        assert!(path.exists());
    }
}
