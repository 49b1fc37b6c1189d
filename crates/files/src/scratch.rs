//! Folders for temporary files, which are removed when this process ends, in any way.
//!
//! Input: the system's folder for temporary files. Output: a folder. A shell waits at a pipe; only this process holds the other
//! end. If this process is killed, the shell kills the processes that still work in the folder, found by their command lines. It
//! then removes the folder. It starts before the folder is made, so that a kill at any moment leaves nothing behind.

use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::Builder;

/// Script of the shell. Arguments: the folder, and the text by which processes are found, or nothing. Processes may start others
/// until they are found, and write while the folder is removed, so the shell tries again for some seconds.
const REMOVER: &str = r#"
trap "" HUP INT TERM
read -r end
round=0 found=
while [ $round -lt 100 ] && { [ -d "$1" ] || [ -n "$found" ]; }; do
    [ $round -lt 2 ] || sleep 0.1 || sleep 1
    round=$((round + 1)) found=
    [ -z "$2" ] || for file in $(grep -alsF -e "$2" /proc/[0-9]*/cmdline); do
        pid=${file#/proc/} pid=${pid%/cmdline}
        [ "$pid" = $$ ] || ! kill -KILL "$pid" || found=$pid
    done
    rm -rf -- "$1"
done
"#;

/// Folder that is removed at the end of this value or of this process.
#[derive(Debug)]
pub struct Scratch {
    folder: PathBuf,
    remover: Remover,
}

impl Scratch {
    /// Makes a folder whose name begins with `prefix`.
    ///
    /// # Errors
    /// The system's folder for temporary files does not exist, is full, or may not be written to.
    pub fn new(prefix: &str) -> io::Result<Self> {
        Self::with_text(prefix, |_| OsStr::new(""))
    }

    /// Makes a folder for processes whose command lines contain its name. They are killed if this process is.
    ///
    /// # Errors
    /// As for [`Scratch::new`].
    pub fn of_processes(prefix: &str) -> io::Result<Self> {
        // Not the whole path: in any of its lines, `grep` would see a text to look for.
        Self::with_text(prefix, |name| name)
    }

    fn with_text(prefix: &str, text: fn(&OsStr) -> &OsStr) -> io::Result<Self> {
        let made = Builder::new().prefix(prefix).make(|folder| {
            let name = folder.file_name().unwrap_or_default();
            let mut remover = Remover::start([folder.as_os_str(), text(name)]);
            if let Err(why) = DirBuilder::new().mode(0o700).create(folder) {
                // A folder of this name may be another process's.
                remover.kill();
                return Err(why);
            }
            Ok(remover)
        })?;
        let (remover, folder) = made.into_parts();
        let folder = folder.keep()?;
        Ok(Self { folder, remover })
    }

    /// Returns the folder's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::fs::remove_dir_all(&self.folder).is_ok() {
            // Nothing is left to do. The end of the pipe would come later if another process has inherited it.
            self.remover.kill();
        }
    }
}

/// Shell that removes a folder; `None` without a shell.
#[derive(Debug)]
struct Remover(Option<Child>);

impl Remover {
    fn start(arguments: [&OsStr; 2]) -> Self {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", REMOVER, "sh"]).args(arguments);
        // Signals to this process's group must not reach the shell.
        shell.process_group(0).current_dir("/");
        shell
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self(shell.spawn().ok())
    }

    /// Ends the shell before it removes anything.
    fn kill(&mut self) {
        if let Some(shell) = &mut self.0 {
            let _ = shell.kill();
        }
    }
}

impl Drop for Remover {
    fn drop(&mut self) {
        if let Some(shell) = &mut self.0 {
            drop(shell.stdin.take());
            let _ = shell.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_with_its_value_and_takes_what_is_in_it_along() {
        let scratch = Scratch::new("steer-scratch-").unwrap();
        let path = scratch.path().to_owned();
        std::fs::create_dir(path.join("a")).unwrap();
        std::fs::write(path.join("a/b"), "").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }

    #[test]
    fn a_folder_of_another_process_stays() {
        let others = tempfile::tempdir().unwrap();
        let start = || Remover::start([others.path().as_os_str(), OsStr::new("")]);
        let mut remover = start();
        remover.kill();
        drop(remover);
        assert!(others.path().exists());
        drop(start());
        assert!(!others.path().exists());
    }
}
