//! Command that starts this program again: recorders, cleanup processes and runs of a trial are separate processes.
//!
//! By default it is the executable of this process. A program that embeds this one as a library (an interpreter, say) sets
//! another command here.

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

/// Sets the command that starts this program and the folder of its files. Must be called before anything is started; later calls
/// have no effect.
pub fn give(words: Vec<OsString>, folder: PathBuf) {
    let _ = GIVEN.set(Given { words, folder });
}

/// Returns the command that was set; `None` by default.
pub fn given() -> Option<Command> {
    let (first, rest) = GIVEN.get()?.words.split_first()?;
    let mut command = Command::new(first);
    command.args(rest);
    Some(command)
}

/// Returns the command that starts this program, without arguments.
///
/// # Errors
/// Fails if the executable of this process cannot be found.
pub fn command() -> io::Result<Command> {
    given().map_or_else(|| std::env::current_exe().map(Command::new), Ok)
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
    if let Some(given) = GIVEN.get() {
        return Some(given.folder.clone());
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
    fn a_program_is_its_file_until_another_command_is_given() {
        let own = std::env::current_exe().unwrap();
        assert!(given().is_none());
        assert_eq!(command().unwrap().get_program(), own);
        assert_eq!(folder().as_deref(), own.parent());
    }
}
