//! Programs that are simulated while they run (traced simulation without trace files).
//!
//! Stage: instead of a recording. Input: commands. Output: event streams of their threads ([`TraceSource`]). Each copy of a
//! program has its own process, which is started again for each run. Simulated time controls its progress: a thread far enough
//! ahead in its `queue` blocks in its next send.

mod process;
mod queue;

use std::sync::{Arc, Mutex, PoisonError};

use countersteer_cache::source::{Block, EventStream, ProgramCopy, TraceSource};
use countersteer_cache::wire::BlockHead;

use super::ProfileOptions;

pub use process::RunningProgram;
#[cfg(test)]
pub(crate) use queue::Queues;

/// Instructions of the block that replaces events of a failed program.
const NOTHING: u32 = 1 << 17;

/// Command whose program is simulated while it runs.
pub struct LiveSimulation(Arc<LiveCommand>);

struct LiveCommand {
    words: Vec<String>,
    /// Threads of the program, as recorded.
    threads: u32,
    failure: Mutex<Option<String>>,
}

impl LiveSimulation {
    /// Creates a source for a command whose profile has this many threads.
    #[must_use]
    pub fn new(words: Vec<String>, threads: u32) -> Self {
        Self(Arc::new(LiveCommand {
            words,
            threads: threads.max(1),
            failure: Mutex::default(),
        }))
    }
}

impl TraceSource for LiveSimulation {
    fn copy(&self) -> Arc<dyn ProgramCopy> {
        Arc::new(Copy {
            command: Arc::clone(&self.0),
            runs: Arc::default(),
        })
    }

    fn failure(&self) -> Option<String> {
        let failure = self.0.failure.lock();
        failure.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl LiveCommand {
    fn start(&self) -> Result<RunningProgram, String> {
        let mut options = ProfileOptions::new(self.words.clone());
        options.stdin_null = true;
        RunningProgram::start(&options).map_err(|error| error.to_string())
    }

    fn fail(&self, why: &str) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert_with(|| {
            format!(
                "`{}` could not be simulated while it runs: {why}",
                self.words.join(" ")
            )
        });
    }
}

struct Copy {
    command: Arc<LiveCommand>,
    runs: Arc<Mutex<Runs>>,
}

/// Processes of a copy that a thread may still read from: the newest, and older ones while they are referenced.
#[derive(Default)]
struct Runs {
    newest: Option<Arc<RunningProgram>>,
    /// Number of runs begun.
    count: u64,
}

impl ProgramCopy for Copy {
    fn stream(&self, thread: u32) -> Box<dyn EventStream> {
        // Threads beyond the program's own belong to further processes of it.
        let runs = if thread < self.command.threads {
            Arc::clone(&self.runs)
        } else {
            Arc::default()
        };
        Box::new(SimulatedThread {
            command: Arc::clone(&self.command),
            runs,
            thread: thread % self.command.threads,
            run: None,
            count: 0,
            taken: false,
            share: -1.0,
        })
    }
}

struct SimulatedThread {
    command: Arc<LiveCommand>,
    runs: Arc<Mutex<Runs>>,
    thread: u32,
    run: Option<Arc<RunningProgram>>,
    /// Number of the run that the thread reads from.
    count: u64,
    /// True if a block of this run was taken.
    taken: bool,
    /// Position where the last piece of work began, as a share of the run.
    share: f64,
}

impl SimulatedThread {
    /// Moves on to the next run.
    fn next_run(&mut self) -> Result<(), String> {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        if runs.count == self.count {
            runs.newest = Some(Arc::new(self.command.start()?));
            runs.count += 1;
        }
        self.count = runs.count;
        self.run = runs.newest.clone();
        self.taken = false;
        Ok(())
    }

    fn take(&mut self) -> Result<Block, String> {
        let mut empty = false;
        loop {
            if self.run.is_none() {
                self.next_run()?;
            }
            let Some(run) = &self.run else { continue };
            if let Some(block) = run.next_block(self.thread)? {
                self.taken = true;
                return Ok(block);
            }
            if !self.taken && empty {
                return Err(self.nothing(run));
            }
            empty = !self.taken;
            self.run = None;
        }
    }

    fn nothing(&self, run: &RunningProgram) -> String {
        let ending = run
            .ending()
            .map_or_else(String::new, |how| format!(" ({how})"));
        match run.threads() {
            0 => format!(
                "it executed nothing{ending}; `steer profile -- {}` shows what it says",
                self.command.words.join(" ")
            ),
            threads => format!(
                "its thread {} executed nothing{ending}, of {threads}; give the program fewer `threads`",
                self.thread + 1
            ),
        }
    }
}

impl EventStream for SimulatedThread {
    fn next_block(&mut self) -> Block {
        self.take().unwrap_or_else(|why| {
            self.command.fail(&why);
            let head = BlockHead {
                instructions: NOTHING,
                ..BlockHead::default()
            };
            let words = Arc::default();
            Block { head, words }
        })
    }

    /// A piece of work that does not follow the previous one begins a new run.
    fn begin(&mut self, share: f64, _behind: u32) -> bool {
        let again = share <= self.share && self.taken;
        self.share = share;
        if again {
            self.run = None;
        }
        again
    }
}
