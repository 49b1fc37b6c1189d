//! Undoing what was changed on the machine, whatever becomes of this process.
//!
//! Input: steps, told before a change is made. Output: they are carried out, the last first, when this process is done or
//! has been killed: a [`Keeper`] reads them from a pipe and acts when that ends.

use std::io::BufRead;
use std::path::Path;
use std::process::Command;

use nix::sys::signal::Signal;

use super::OnlineError;
use crate::keeper::Keeper;

/// Something to be done at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Writes a line into a file.
    Write(&'a Path, &'a str),
    /// Removes a folder of the kernel's.
    Remove(&'a Path),
    /// Lets a process run on and ends it.
    End(u32),
    /// Lets a process run on.
    Continue(u32),
}

/// A process that waits for the end of this one, and undoes.
#[derive(Debug)]
pub struct Undo(Keeper);

impl Undo {
    /// Starts the process; `command` is a program that calls [`keep`]. It is waited for when this is dropped.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(command: Command) -> Result<Self, OnlineError> {
        let failed = |source| OnlineError::Process {
            doing: "start the process that undoes changes".into(),
            source,
            mend: "nothing was changed",
        };
        Keeper::start(command).map(Self).map_err(failed)
    }

    /// Tells a step; to be called before what it undoes.
    ///
    /// # Errors
    /// The process is gone: then nothing must be changed.
    pub fn at_end(&mut self, step: &Step<'_>) -> Result<(), OnlineError> {
        let line = match step {
            Step::Write(path, text) => format!("write\t{}\t{text}\n", path.display()),
            Step::Remove(path) => format!("remove\t{}\n", path.display()),
            Step::End(pid) => format!("end\t{pid}\n"),
            Step::Continue(pid) => format!("continue\t{pid}\n"),
        };
        self.0.tell(&line).map_err(|source| OnlineError::Process {
            doing: "tell how to undo a change".into(),
            source,
            mend: "the process that undoes changes was ended; run the command again",
        })
    }
}

/// Reads steps until their end, then carries them out, the last first.
pub fn keep(steps: impl BufRead) {
    let lines: Vec<String> = steps.lines().map_while(Result::ok).collect();
    for line in lines.iter().rev() {
        let mut words = line.splitn(3, '\t');
        let what = words.next();
        let of = words.next().unwrap_or_default();
        let text = words.next().unwrap_or_default();
        // Each is tried, whatever became of the others.
        let _ = match what {
            Some("write") => std::fs::write(of, format!("{text}\n")),
            Some("remove") => remove(Path::new(of)),
            Some("end") => send(of, Signal::SIGKILL),
            Some("continue") => send(of, Signal::SIGCONT),
            _ => Ok(()),
        };
    }
}

/// A process that has just been ended is in its control group for a moment longer.
fn remove(folder: &Path) -> std::io::Result<()> {
    for _ in 0..50 {
        match std::fs::remove_dir(folder) {
            Err(e) if e.kind() == std::io::ErrorKind::ResourceBusy => {}
            done => return done,
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    std::fs::remove_dir(folder)
}

/// Sends a signal to a process, if it is there.
fn send(pid: &str, signal: Signal) -> std::io::Result<()> {
    if let Ok(pid) = pid.parse() {
        // One that has ended is not missed.
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_carried_out_the_last_first() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("schemata");
        let folder = dir.path().join("group");
        std::fs::create_dir(&folder).unwrap();
        let sleeper = Command::new("sleep").arg("60").spawn().unwrap();
        let lines = format!(
            "write\t{0}\tL3:0=fff\nwrite\t{0}\tL3:0=f\nremove\t{1}\nend\t{2}\nnonsense\n",
            file.display(),
            folder.display(),
            sleeper.id()
        );
        keep(lines.as_bytes());
        assert_eq!(
            std::fs::read_to_string(&file).unwrap(),
            "L3:0=fff\n",
            "what was told first is what stays"
        );
        assert!(!folder.exists());
        assert!(!{ sleeper }.wait().unwrap().success());
    }
}
