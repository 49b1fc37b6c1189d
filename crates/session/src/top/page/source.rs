//! Child processes that print the lines of the page: `steer top --json`, on this machine or over ssh.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, PipeReader, Read};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context;
use countersteer_profiler::this_program;

use super::history::HostHistory;
use super::{HERE, locked};
use crate::error::{FaultKind, failure};
use crate::interrupt::Helper;
use crate::remote;

/// Maximum number of bytes in a line.
const LONGEST: u64 = 1 << 16;
/// Time limit for a child process to end after SIGINT, before it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// Child process, whose lines a thread reads. Dropping this value ends it.
pub(crate) struct LineSource {
    child: Arc<Helper>,
    /// True if the end of the child is expected.
    ends: Arc<AtomicBool>,
}

impl LineSource {
    /// Starts to read from a host. `words` are the arguments of the child process.
    pub fn start(
        host: &str,
        words: &[OsString],
        history: Arc<Mutex<HostHistory>>,
    ) -> anyhow::Result<Self> {
        let (reader, writer) = std::io::pipe().context("cannot make a pipe")?;
        let mut command = if host == HERE {
            let mut command: Command =
                this_program::command().context("cannot start this host's counting")?;
            command.args(words);
            command
        } else {
            remote::command(host, words)?
        };
        command.stdin(Stdio::null()).stdout(writer);
        let started = Helper::start(&mut command);
        let name = command.get_program().display().to_string();
        // Closes this process's copy of the writer, so that the lines end when the child ends.
        drop(command);
        let child = Arc::new(started.map_err(|why| {
            failure(
                FaultKind::Missing,
                format!("cannot start {name}: {why}; install it"),
            )
        })?);
        let ends = Arc::new(AtomicBool::new(false));
        let of_thread = (Arc::clone(&child), Arc::clone(&ends));
        std::thread::Builder::new()
            .name("lines".into())
            .spawn(move || read(reader, &of_thread.0, &history, &of_thread.1))
            .context("cannot start a thread")?;
        Ok(Self { child, ends })
    }

    /// Asks the child process to end.
    pub fn interrupt(&self) {
        self.ends.store(true, Ordering::Relaxed);
        self.child.interrupt();
    }
}

impl Drop for LineSource {
    fn drop(&mut self) {
        self.interrupt();
        let asked = Instant::now();
        while matches!(self.child.ended(), Ok(None)) && asked.elapsed() < GRACE {
            std::thread::sleep(GRACE / 1000);
        }
        // Killing fails if the child has ended.
        let _ = self.child.kill();
    }
}

/// Adds lines to the history until they end, or until one is wrong.
fn read(reader: PipeReader, child: &Helper, history: &Mutex<HostHistory>, ends: &AtomicBool) {
    let mut reader = BufReader::new(reader);
    let wrong = loop {
        let mut line = String::new();
        match (&mut reader).take(LONGEST).read_line(&mut line) {
            Ok(0) => break None,
            Ok(_) => {
                if let Err(why) = locked(history).add(&line) {
                    break Some(why);
                }
            }
            Err(why) => break Some(why.to_string()),
        }
    };
    // The child's next line ends it, since it is no longer read.
    drop(reader);
    let note = match wrong {
        Some(why) => {
            // Killing fails if the child has ended.
            let _ = child.kill();
            format!("stopped: {why}")
        }
        None => match child.wait() {
            Ok(status) => format!("has ended ({status}); these are its last values"),
            Err(why) => format!("has ended ({why})"),
        },
    };
    let mut history = locked(history);
    history.note = note;
    if !ends.load(Ordering::Relaxed) {
        say!("{} {}", history.name, history.note);
    }
}
