//! The command that starts this program again: recorders, cleanup processes and runs of a trial are processes of their own.
//!
//! Usually it is the file of this process. Where this program is a library in another (an interpreter, say), that one says here
//! how it is started.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getppid};

struct Given {
    words: Vec<OsString>,
    folder: PathBuf,
}

static GIVEN: OnceLock<Given> = OnceLock::new();

/// Says once, before anything is started, which words start this program, and in which folder the files lie that belong to it.
/// Later calls change nothing.
pub fn give(words: Vec<OsString>, folder: PathBuf) {
    let _ = GIVEN.set(Given { words, folder });
}

/// The command that was given, if any.
pub fn given() -> Option<Command> {
    let (first, rest) = GIVEN.get()?.words.split_first()?;
    let mut command = Command::new(first);
    command.args(rest);
    Some(command)
}

/// The command that starts this program; arguments follow.
///
/// # Errors
/// The file of this process cannot be found.
pub fn command() -> io::Result<Command> {
    given().map_or_else(|| std::env::current_exe().map(Command::new), Ok)
}

/// The kernel kills the process when the thread that starts it ends, however it does: for processes that this thread waits for. What
/// they have forked themselves goes on.
pub fn end_with_this_thread(command: &mut Command) {
    let parent = Pid::this();
    let tie = move || {
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        if getppid() == parent {
            Ok(())
        } else {
            // It ended before the tie was there.
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
    };
    // SAFETY: between fork and exec only two system calls are made; nothing is allocated, no lock taken.
    unsafe { command.pre_exec(tie) };
}

/// The folder of what belongs to this program.
pub fn folder() -> Option<PathBuf> {
    if let Some(given) = GIVEN.get() {
        return Some(given.folder.clone());
    }
    let own = std::env::current_exe().ok()?;
    own.parent().map(Into::into)
}

/// The user's folder for what can be made again: that of XDG_CACHE_HOME, or `~/.cache`.
pub fn cache_folder() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let home = || variable("HOME").map(|home| PathBuf::from(home).join(".cache"));
    variable("XDG_CACHE_HOME").map(PathBuf::from).or_else(home)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_its_file_until_another_command_is_given() {
        let own = std::env::current_exe().unwrap();
        assert!(given().is_none());
        assert_eq!(command().unwrap().get_program(), own);
        assert_eq!(folder().as_deref(), own.parent());
    }
}
