//! Child process of a module. A thread writes and reads, so that a module can be late without holding up the counts for long.

use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use countersteer_sysfs::signals::block_sigpipe;

use crate::interrupt::Helper;

/// Time limit for the first line.
const START: Duration = Duration::from_secs(5);
/// Time limit for the answer to an interval.
const ANSWER: Duration = Duration::from_millis(500);
/// Time limit for a module to end after its input has ended.
const END: Duration = Duration::from_millis(500);
/// Time limit for a module to be seen as ended after its output has ended.
const END_SEEN: Duration = Duration::from_millis(100);
/// Maximum number of bytes in a line.
const LONGEST: u64 = 1 << 20;

type Answered = Result<String, String>;

/// Running module; dropping this value ends it.
pub(crate) struct RunningModule {
    child: Helper,
    /// Lines to write; `None` when the module's input has ended.
    ask: Option<Sender<String>>,
    answers: Receiver<Answered>,
}

impl RunningModule {
    pub fn start(file: &Path) -> Result<Self, String> {
        let no_pipe = |why| format!("no pipe can be made: {why}");
        let (input, writer) = std::io::pipe().map_err(no_pipe)?;
        let (reader, output) = std::io::pipe().map_err(no_pipe)?;
        let mut command = Command::new(file);
        // Ctrl-C is for the counted program; a module ends with its input.
        command.stdin(input).stdout(output).process_group(0);
        let child = Helper::start(&mut command)
            .map_err(|why| format!("{} cannot be started: {why}", file.display()))?;
        // Closes this process's copies of the module's ends.
        drop(command);
        let (ask, asked) = channel();
        let (answer, answers) = channel();
        std::thread::Builder::new()
            .name("module".into())
            .spawn(move || converse(writer, reader, &asked, &answer))
            .map_err(|why| format!("no thread can be started: {why}"))?;
        Ok(Self {
            child,
            ask: Some(ask),
            answers,
        })
    }

    /// Returns the first line.
    pub fn hello(&mut self) -> Answered {
        self.heard(START, "says nothing")
    }

    /// Returns the answer to a line.
    pub fn ask(&mut self, line: &str) -> Answered {
        if let Some(ask) = &self.ask {
            // A module that has ended cannot be asked, and the answer says so.
            let _ = ask.send(line.to_owned());
        }
        self.heard(ANSWER, "does not answer")
    }

    fn heard(&mut self, limit: Duration, what: &str) -> Answered {
        let answer = match self.answers.recv_timeout(limit) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => {
                Err(format!("it {what} within {} s", limit.as_secs_f64()))
            }
            Err(RecvTimeoutError::Disconnected) => Err("it has ended".into()),
        };
        answer.map_err(|why| match self.ended(END_SEEN) {
            Some(status) => format!("{why} ({status})"),
            None => why,
        })
    }

    /// Waits for the module's end, up to a limit; returns its exit status.
    fn ended(&self, limit: Duration) -> Option<ExitStatus> {
        let asked = Instant::now();
        loop {
            let ended = self.child.ended().ok().flatten();
            if ended.is_some() || asked.elapsed() >= limit {
                return ended;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for RunningModule {
    fn drop(&mut self) {
        self.ask = None;
        self.ended(END);
        self.child.kill_group();
    }
}

/// Passes lines on until one cannot be written or read.
fn converse(
    mut writer: PipeWriter,
    reader: PipeReader,
    asked: &Receiver<String>,
    answer: &Sender<Answered>,
) {
    // A module may end before it has read its line.
    if block_sigpipe().is_err() {
        return;
    }
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = String::new();
        let heard = match (&mut reader).take(LONGEST).read_line(&mut line) {
            Ok(_) if line.ends_with('\n') => Ok(line),
            Ok(0) => Err("it has ended".to_owned()),
            Ok(_) => Err("its line is too long, or has no end".to_owned()),
            Err(why) => Err(format!("its line cannot be read: {why}")),
        };
        if answer.send(heard).is_err() {
            return;
        }
        let Ok(line) = asked.recv() else { return };
        if writer.write_all(line.as_bytes()).is_err()
            && answer.send(Err("it reads no more".into())).is_err()
        {
            return;
        }
    }
}
