//! Command that starts `steer`: recorders, cleanup processes and runs of a trial are separate processes.
//!
//! `steer` says by [`set_own`] that it is its own executable. A program that uses sessions as a library names one by
//! [`set_steer`], or any other command by [`give`]. Without a name, no helper process starts: the executable of a program that
//! is no `steer` would run its own `main` again.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getppid};

enum Starter {
    Own,
    Given {
        words: Vec<OsString>,
        folder: PathBuf,
    },
}

static STARTER: OnceLock<Starter> = OnceLock::new();

/// Declares that the executable of this process is `steer`. Has no effect after [`give`].
pub fn set_own() {
    let _ = STARTER.set(Starter::Own);
}

/// Sets the command that starts `steer`, and the folder of its files. Must be called before anything is started; later calls
/// have no effect.
pub fn give(words: Vec<OsString>, folder: PathBuf) {
    let _ = STARTER.set(Starter::Given { words, folder });
}

/// Sets the path of `steer`'s executable, of the same version as this library. Later calls have no effect.
pub fn set_steer(path: &Path) {
    let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
    give(vec![path.into()], folder);
}

/// Returns the command that starts `steer`, without arguments. It is found even if its file was replaced in the meantime.
///
/// # Errors
/// This program has not named one, or its executable cannot be found.
pub fn command() -> io::Result<Command> {
    match STARTER.get() {
        Some(Starter::Own) => {
            let path = std::env::current_exe()?;
            let is_there = path.exists();
            Ok(Command::new(if is_there {
                path
            } else {
                "/proc/self/exe".into()
            }))
        }
        Some(Starter::Given { words, .. }) if !words.is_empty() => {
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]);
            Ok(command)
        }
        _ => Err(io::Error::new(
            io::ErrorKind::NotFound,
            "this program has not named the `steer` that helper processes run (this_program::set_steer)",
        )),
    }
}

/// Makes the kernel kill the process when the thread that starts it ends. It suits processes that this thread waits for. Their
/// own children continue.
pub fn end_with_this_thread(command: &mut Command) {
    let parent = Pid::this();
    let tie = move || {
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        if getppid() == parent {
            Ok(())
        } else {
            // The parent ended before the signal was set.
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
    };
    // SAFETY: between fork and exec only two system calls are made; nothing is allocated, no lock taken.
    unsafe { command.pre_exec(tie) };
}

/// Returns the folder of this program's files.
pub fn folder() -> Option<PathBuf> {
    if let Some(Starter::Given { folder, .. }) = STARTER.get() {
        return Some(folder.clone());
    }
    let own = std::env::current_exe().ok()?;
    own.parent().map(Into::into)
}

/// Returns the user's cache folder: the value of `XDG_CACHE_HOME`, or `~/.cache`.
pub fn cache_folder() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let home = || variable("HOME").map(|home| PathBuf::from(home).join(".cache"));
    variable("XDG_CACHE_HOME").map(PathBuf::from).or_else(home)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_names_no_steer_starts_none() {
        let own = std::env::current_exe().unwrap();
        assert!(command().unwrap_err().to_string().contains("set_steer"));
        assert_eq!(folder().as_deref(), own.parent());
        set_steer(Path::new("/opt/bin/steer"));
        set_own();
        assert_eq!(command().unwrap().get_program(), "/opt/bin/steer");
        assert_eq!(folder().as_deref(), Some(Path::new("/opt/bin")));
    }
}
