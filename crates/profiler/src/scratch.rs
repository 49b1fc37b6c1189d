//! Scratch directory of a recording, which is removed when this process ends, in any way.
//!
//! Input: the system's folder for temporary files. Output: a directory. A shell waits at a pipe; only this process holds the
//! other end. If this process is killed, the shell kills the remaining processes of the recording, found by QEMU's command line.
//! It then removes the directory.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::ProfileError;

/// Script of the shell. Arguments: the directory, and the directory as escaped in QEMU's command line.
const REMOVER: &str = r#"
trap "" HUP INT TERM
read -r end
[ -d "$1" ] || exit 0
for round in 1 2; do
    for found in $(grep -alsF "dir=$2" /proc/[0-9]*/cmdline); do
        found=${found#/proc/}
        kill -KILL "${found%/cmdline}"
    done
done
rm -rf -- "$1"
"#;

/// Directory that is removed at the end.
pub struct Scratch {
    directory: tempfile::TempDir,
    /// `None` without a shell.
    remover: Option<Child>,
}

impl Scratch {
    pub fn new() -> Result<Self, ProfileError> {
        let directory = tempfile::Builder::new().prefix("steer-profile-").tempdir();
        let directory = directory.map_err(|source| ProfileError::Scratch {
            path: std::env::temp_dir(),
            source,
        })?;
        let mut remover = Command::new("/bin/sh");
        remover
            .args(["-c", REMOVER, "sh"])
            .arg(directory.path())
            .arg(super::launch::escaped(directory.path()));
        // Signals to this process's group must not reach the shell.
        remover.process_group(0).current_dir("/");
        remover
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let remover = remover.spawn().ok();
        Ok(Self { directory, remover })
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Removed here, so the shell has nothing left to do.
        let _ = std::fs::remove_dir_all(self.directory.path());
        if let Some(remover) = &mut self.remover {
            drop(remover.stdin.take());
            let _ = remover.wait();
        }
    }
}
