//! Starts the program that is to be counted.
//!
//! Input: a command. Output: a process that waits before its `exec` until counters are open. It has the environment, directory
//! and streams of this process. Counting begins with the program's first instruction.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use countersteer_files::name::original;
use countersteer_model::cpuset::CpuSet;
use nix::fcntl::OFlag;
use nix::sched::{CpuSet as Mask, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{
    ForkResult, Pid, dup2_stderr, dup2_stdin, dup2_stdout, execvp, fork, getpgid, pipe2, read,
    write,
};

use crate::procfs::PROC;

/// Reason why a program does not run.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The program does not exist.
    #[error("{program} was not found{}; check the name, or give a path", if program.contains('/') { "" } else { " in PATH" })]
    NotFound {
        /// Name as the user wrote it.
        program: String,
    },
    /// The program did not start.
    #[error("cannot start {program}: {source}")]
    Start {
        /// Name as the user wrote it.
        program: String,
        source: io::Error,
    },
    /// The output of a program cannot be stored.
    #[error("cannot write the program's output to {}: {source}; name another file", path.display())]
    Output { path: PathBuf, source: io::Error },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitEnding {
    /// Exited by itself, with this code.
    Exited(i32),
    Signaled(i32),
}

impl ExitEnding {
    /// Returns the exit code that a shell would report.
    #[must_use]
    pub const fn code(self) -> i32 {
        match self {
            Self::Exited(code) => code,
            Self::Signaled(signal) => 128 + signal,
        }
    }
}

/// Files that replace a program's standard output and standard error. Its standard input is then empty.
#[derive(Clone, Debug)]
pub struct ProgramStreams {
    pub output: Arc<File>,
    pub errors: Arc<File>,
}

impl ProgramStreams {
    /// Creates a file for both streams.
    ///
    /// # Errors
    /// Fails if the file cannot be created.
    pub fn to(path: &Path) -> Result<Self, LaunchError> {
        let created = countersteer_files::write::create(path);
        let output = Arc::new(created.map_err(|source| LaunchError::Output {
            path: path.to_owned(),
            source,
        })?);
        Ok(Self {
            errors: Arc::clone(&output),
            output,
        })
    }
}

/// Program that waits before its `exec`.
#[derive(Debug)]
pub struct WaitingProgram {
    program: String,
    pid: Pid,
    gate: Option<OwnedFd>,
    failure: OwnedFd,
}

/// Starts a command up to its `exec`, with the streams of this process unless others are given.
///
/// # Errors
/// Fails if the program is missing or no process can be created.
pub fn hold(
    command: &[String],
    bind: Option<&CpuSet>,
    streams: Option<&ProgramStreams>,
) -> Result<WaitingProgram, LaunchError> {
    let program = command.first().cloned().unwrap_or_default();
    let failed = |e: io::Error| LaunchError::Start {
        program: program.clone(),
        source: e,
    };
    let invalid = |_| {
        failed(io::Error::new(
            io::ErrorKind::InvalidInput,
            "an argument contains a NUL character",
        ))
    };
    let arguments = command
        .iter()
        .map(|a| CString::new(original(a).into_vec()).map_err(invalid))
        .collect::<Result<Vec<_>, _>>()?;
    find_program(command)?;
    let Some(first) = arguments.first() else {
        return Err(LaunchError::NotFound { program });
    };
    let empty = streams.map(|_| File::open("/dev/null")).transpose();
    let empty = empty.map_err(failed)?;
    let (opened, gate) = pipe2(OFlag::O_CLOEXEC).map_err(|e| failed(e.into()))?;
    let (failure, fails) = pipe2(OFlag::O_CLOEXEC).map_err(|e| failed(e.into()))?;
    let mask = bind.map(mask);
    // SAFETY: until `exec` the child calls only functions that are safe after a fork of a threaded process. These are system
    // calls on existing memory, and `execvp`, which does not allocate in the supported C libraries.
    match unsafe { fork() }.map_err(|e| failed(e.into()))? {
        ForkResult::Parent { child } => Ok(WaitingProgram {
            program,
            pid: child,
            gate: Some(gate),
            failure,
        }),
        ForkResult::Child => {
            drop((gate, failure));
            if let Some(mask) = &mask {
                let _ = sched_setaffinity(Pid::from_raw(0), mask);
            }
            if let (Some(input), Some(streams)) = (&empty, streams) {
                let _ = dup2_stdin(input)
                    .and_then(|()| dup2_stdout(&streams.output))
                    .and_then(|()| dup2_stderr(&streams.errors));
            }
            // A parent that gives up closes the gate without a byte: then the program must not run.
            if read(&opened, &mut [0]) == Ok(1) {
                let Err(errno) = execvp(first, &arguments);
                let _ = write(&fails, &(errno as i32).to_ne_bytes());
            }
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(127) }
        }
    }
}

/// Returns the file of a command's program. It runs before anything else, because a misspelt name should be the first error shown.
///
/// # Errors
/// Fails if the program does not exist.
pub fn find_program(command: &[String]) -> Result<PathBuf, LaunchError> {
    let program = command.first().cloned().unwrap_or_default();
    let name = original(&program);
    let found = if program.contains('/') {
        Some(PathBuf::from(&name)).filter(|path| path.exists())
    } else {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let mut paths = std::env::split_paths(&folders).map(|folder| folder.join(&name));
        paths.find(|path| path.is_file())
    };
    found.ok_or(LaunchError::NotFound { program })
}

fn mask(cpus: &CpuSet) -> Mask {
    let mut mask = Mask::new();
    // The mask holds every CPU that the caller found online; larger numbers are skipped.
    for cpu in cpus.iter() {
        let _ = mask.set(cpu.index());
    }
    mask
}

impl WaitingProgram {
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.as_raw().unsigned_abs()
    }

    /// Releases the program.
    ///
    /// # Errors
    /// Fails if it cannot be executed.
    pub fn release(&mut self) -> Result<(), LaunchError> {
        let Some(gate) = self.gate.take() else {
            return Ok(());
        };
        let failed = |source: io::Error| LaunchError::Start {
            program: self.program.clone(),
            source,
        };
        File::from(gate).write_all(&[1]).map_err(failed)?;
        // The other end closes at the `exec`, or sends the error of a failed one.
        let mut errno = [0; 4];
        let copy = self.failure.try_clone().map_err(failed)?;
        if File::from(copy).read_exact(&mut errno).is_err() {
            return Ok(());
        }
        let source = io::Error::from_raw_os_error(i32::from_ne_bytes(errno));
        Err(match source.kind() {
            io::ErrorKind::NotFound => LaunchError::NotFound {
                program: self.program.clone(),
            },
            _ => LaunchError::Start {
                program: self.program.clone(),
                source,
            },
        })
    }

    /// Waits until the program has ended.
    #[must_use]
    pub fn wait(&self) -> ExitEnding {
        loop {
            match waitpid(self.pid, None) {
                Ok(WaitStatus::Exited(_, code)) => return ExitEnding::Exited(code),
                Ok(WaitStatus::Signaled(_, signal, _)) => {
                    return ExitEnding::Signaled(signal as i32);
                }
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(_) => return ExitEnding::Exited(0),
            }
        }
    }

    /// Returns the ending of the program; `None` while it runs.
    #[must_use]
    pub fn ended(&self) -> Option<ExitEnding> {
        match waitpid(self.pid, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(_, code)) => Some(ExitEnding::Exited(code)),
            Ok(WaitStatus::Signaled(_, signal, _)) => Some(ExitEnding::Signaled(signal as i32)),
            _ => None,
        }
    }

    /// Sends a signal to the program. SIGINT also goes to the processes of its process group that it has started, as Ctrl-C would: a
    /// shell ends by it only with the command that it waits for.
    pub fn signal(&self, signal: i32) {
        let Ok(signal) = Signal::try_from(signal) else {
            return;
        };
        let mut all = vec![self.pid];
        let mut nth = 0;
        while signal == Signal::SIGINT && nth < all.len() {
            let children = PROC.children(all[nth].as_raw().unsigned_abs()).into_iter();
            let children = children.map(|pid| Pid::from_raw(pid.cast_signed()));
            let group = getpgid(Some(self.pid));
            all.extend(children.filter(|child| getpgid(Some(*child)) == group));
            nth += 1;
        }
        for pid in all {
            let _ = kill(pid, signal);
        }
    }
}

impl Drop for WaitingProgram {
    /// A program that was never released ends when the gate closes. It must not remain as a zombie.
    fn drop(&mut self) {
        if self.gate.take().is_some() {
            let _ = waitpid(self.pid, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn a_program_waits_until_it_is_released() {
        let output = tempfile::NamedTempFile::new().unwrap();
        let script = command(&["sh", "-c", "echo done; exit 7"]);
        let streams = ProgramStreams::to(output.path()).unwrap();
        let mut held = hold(&script, None, Some(&streams)).unwrap();
        let own = PROC.executable(std::process::id());
        assert_eq!(
            PROC.executable(held.pid()),
            own,
            "it has executed nothing yet"
        );
        assert_eq!(held.ended(), None);
        held.release().unwrap();
        assert_eq!(held.wait(), ExitEnding::Exited(7));
        assert_eq!(std::fs::read_to_string(output.path()).unwrap(), "done\n");
    }

    #[test]
    fn a_program_that_is_not_there_or_not_released_leaves_nothing() {
        let missing = hold(&command(&["no-such-program"]), None, None).unwrap_err();
        assert!(missing.to_string().contains("not found in PATH"));
        let folder = tempfile::tempdir().unwrap();
        let folder = command(&[folder.path().to_str().unwrap()]);
        let refused = hold(&folder, None, None).unwrap().release().unwrap_err();
        assert!(refused.to_string().contains("cannot start"), "{refused}");
        let held = hold(&command(&["true"]), None, None).unwrap();
        let pid = held.pid();
        drop(held);
        assert!(!PROC.has(pid), "no zombie");
        assert_eq!(ExitEnding::Signaled(9).code(), 137);
    }
}
