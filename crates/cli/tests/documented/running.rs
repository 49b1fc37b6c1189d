//! A started command line: its output, its end, and an interrupt as from a terminal.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Longest time of anything that is waited for, also on a machine that other tests keep busy.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Command in a process group of its own; the whole group ends with this value.
pub struct Started {
    child: Child,
    said: File,
}

impl Started {
    pub fn new(command: &mut Command) -> Self {
        // Both streams go to a file, which need not be read while the command runs.
        let said = tempfile::tempfile().unwrap();
        command
            .stdin(Stdio::null())
            .stdout(said.try_clone().unwrap())
            .stderr(said.try_clone().unwrap())
            .process_group(0);
        let child = command.spawn().unwrap();
        Self { child, said }
    }

    /// Output so far, of both streams.
    pub fn said(&self) -> String {
        let length = self.said.metadata().unwrap().len();
        let mut bytes = vec![0; usize::try_from(length).unwrap()];
        // Not by `read`, which would move the place where the command writes.
        self.said.read_exact_at(&mut bytes, 0).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits for the end; `None` if it does not come within this time.
    pub fn end(&mut self, limit: Duration) -> Option<ExitStatus> {
        let begun = Instant::now();
        loop {
            let ended = self.child.try_wait().unwrap();
            if ended.is_some() || begun.elapsed() > limit {
                return ended;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until it can be interrupted and the output contains a text; false if the command ends without it.
    pub fn says(&mut self, text: &str) -> bool {
        self.reaches(|started| started.catches_interrupts() && started.said().contains(text))
    }

    /// Waits until it can be interrupted and a file exists; false if the command ends without it.
    pub fn makes(&mut self, file: &Path) -> bool {
        self.reaches(|started| started.catches_interrupts() && file.exists())
    }

    /// True if `steer` has replaced the shell, and handles SIGINT.
    fn catches_interrupts(&self) -> bool {
        let status = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(status).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        // SIGINT is signal 2.
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        status.starts_with("Name:\tsteer\n") && caught.is_some_and(|mask| mask & 2 != 0)
    }

    fn reaches(&mut self, holds: impl Fn(&Self) -> bool) -> bool {
        let begun = Instant::now();
        while !holds(self) {
            let ended = self.end(Duration::from_millis(10)).is_some();
            if ended || begun.elapsed() > PATIENCE {
                return holds(self);
            }
        }
        true
    }

    /// Interrupts it, as Ctrl-C on a terminal does.
    pub fn interrupt(&self) {
        self.signal("-INT");
    }

    fn signal(&self, signal: &str) {
        let group = format!("-{}", self.child.id());
        let mut kill = Command::new("kill");
        // It may have ended already.
        let _ = kill
            .args([signal, "--", &group])
            .stderr(Stdio::null())
            .status();
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.signal("-KILL");
        let _ = self.child.wait();
    }
}
