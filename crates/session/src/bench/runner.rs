//! One timed run of a command.
//!
//! Input: words, CPUs. Output: elapsed time from the program's `exec` to its exit, and CPU time. Starting the process is not
//! part of it. A signal to this process ends the run and is reported.

use std::path::Path;
use std::time::Instant;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::units::Nanos;
use countersteer_sysfs::launch::{self, ExitEnding, ProgramStreams};
use countersteer_sysfs::pidfd;
use countersteer_sysfs::poll::Poller;
use signal_hook::consts::SIGKILL;

use super::error::BenchError;

/// Output of commands that is discarded.
const NOWHERE: &str = "/dev/null";
/// Time after which the wait for a run begins again; any time serves.
const WAIT: Nanos = Nanos::from_millis(60_000);

/// Run that ended by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EndedRun {
    pub elapsed_s: f64,
    pub user_s: f64,
    pub system_s: f64,
    pub ending: ExitEnding,
}

/// Result of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RunResult {
    Ended(EndedRun),
    /// This process received a signal.
    Interrupted(i32),
}

pub struct CommandRunner {
    poller: Poller,
    shows_output: bool,
}

impl CommandRunner {
    /// From now on, signals end a run instead of this process.
    ///
    /// # Errors
    /// The system refuses.
    pub fn new(shows_output: bool) -> anyhow::Result<Self> {
        let poller = Poller::new(Vec::new()).map_err(BenchError::Wait)?;
        Ok(Self {
            poller,
            shows_output,
        })
    }

    /// Runs a command, confined to CPUs, with its output going to a file, to nowhere, or to the streams of this process.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn run(
        &mut self,
        words: &[String],
        cpus: Option<&CpuSet>,
        output: Option<&Path>,
    ) -> anyhow::Result<RunResult> {
        let nowhere = (!self.shows_output).then(|| Path::new(NOWHERE));
        let streams = output.or(nowhere).map(ProgramStreams::to).transpose()?;
        let mut held = launch::hold(words, cpus, streams.as_ref())?;
        let exits = pidfd::open(held.pid()).map_err(BenchError::Wait)?;
        self.poller.await_also(exits);
        let before = countersteer_counters::children_cpu_time();
        let begun = Instant::now();
        held.release()?;
        let mut signal = None;
        loop {
            let (wake, _) = self.poller.wait(WAIT, &[]).map_err(BenchError::Wait)?;
            if let Some((number, only_here)) = wake.signal {
                // A signal of the terminal has reached the program already; the second one ends it in any case.
                match signal.replace(number) {
                    Some(_) => held.signal(SIGKILL),
                    None if only_here => held.signal(number),
                    None => {}
                }
            }
            if wake.ended {
                break;
            }
        }
        let elapsed_s = begun.elapsed().as_secs_f64();
        let ending = held.wait();
        if let Some(signal) = signal {
            return Ok(RunResult::Interrupted(signal));
        }
        let after = countersteer_counters::children_cpu_time();
        Ok(RunResult::Ended(EndedRun {
            elapsed_s,
            user_s: after.0.since(before.0).as_secs_f64(),
            system_s: after.1.since(before.1).as_secs_f64(),
            ending,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn a_run_has_its_time_and_its_end() {
        let mut runner = CommandRunner::new(false).unwrap();
        let mut run = |words: &[&str]| match runner.run(&command(words), None, None).unwrap() {
            RunResult::Ended(run) => run,
            RunResult::Interrupted(signal) => panic!("interrupted by {signal}"),
        };
        let slept = run(&["sleep", "0.2"]);
        assert!(
            slept.elapsed_s >= 0.2 && slept.user_s + slept.system_s < 0.1,
            "{slept:?}"
        );
        assert_eq!(slept.ending, ExitEnding::Exited(0));
        assert_eq!(run(&["sh", "-c", "exit 7"]).ending, ExitEnding::Exited(7));
        let busy = run(&[
            "sh",
            "-c",
            "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done",
        ]);
        assert!(
            busy.user_s > 0.0 && busy.user_s < busy.elapsed_s * 1.2,
            "{busy:?}"
        );
    }
}
