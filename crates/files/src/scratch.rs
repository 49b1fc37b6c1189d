//! Folders for temporary files, which are removed when this process ends, in any way.
//!
//! Input: the system's folder for temporary files. Output: a folder. A shell waits at a pipe; only this process holds the other
//! end. If this process is killed, the shell kills the processes that still work in the folder, found by their command lines. It
//! then removes the folder.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::{Builder, TempDir};

/// Script of the shell. Arguments: the folder; the start of a word by which processes are found, or nothing; and the rest of the
/// word. It has two parts, so that the shell does not find itself.
const REMOVER: &str = r#"
trap "" HUP INT TERM
read -r end
[ -d "$1" ] || exit 0
if [ -n "$2" ]; then
    for round in 1 2; do
        for found in $(grep -alsF -e "$2$3" /proc/[0-9]*/cmdline); do
            found=${found#/proc/}
            kill -KILL "${found%/cmdline}"
        done
    done
fi
rm -rf -- "$1"
"#;

/// Folder that is removed at the end of this value or of this process.
#[derive(Debug)]
pub struct Scratch {
    folder: TempDir,
    /// `None` without a shell.
    remover: Option<Child>,
}

impl Scratch {
    /// Makes a folder whose name begins with `prefix`.
    ///
    /// # Errors
    /// The system's folder for temporary files does not exist, is full, or may not be written to.
    pub fn new(prefix: &str) -> io::Result<Self> {
        Self::of_processes(prefix, |_| (OsString::new(), OsString::new()))
    }

    /// Makes a folder for processes whose command lines contain a word. The word has two parts, of which neither is empty; `word`
    /// gets the folder. The processes are killed if this process is.
    ///
    /// # Errors
    /// As for [`Scratch::new`].
    pub fn of_processes(
        prefix: &str,
        word: impl FnOnce(&Path) -> (OsString, OsString),
    ) -> io::Result<Self> {
        let folder = Builder::new().prefix(prefix).tempdir()?;
        let (start, rest) = word(folder.path());
        let remover = remover([folder.path().as_os_str(), &start, &rest]);
        Ok(Self { folder, remover })
    }

    /// Returns the folder's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Starts the shell; `None` if there is none.
fn remover(arguments: [&OsStr; 3]) -> Option<Child> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", REMOVER, "sh"]).args(arguments);
    // Signals to this process's group must not reach the shell.
    shell.process_group(0).current_dir("/");
    shell
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    shell.spawn().ok()
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Removed here, so the shell has nothing left to do.
        let _ = std::fs::remove_dir_all(self.folder.path());
        if let Some(remover) = &mut self.remover {
            drop(remover.stdin.take());
            let _ = remover.wait();
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
}
