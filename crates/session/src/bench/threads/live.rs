//! Runner of the search that times a real command on this machine.
//!
//! Input: candidates. Output: seconds of one run of each; what disturbed the runs; the signal that ended them.

use countersteer_lab::threads::candidates::Candidate;
use countersteer_lab::threads::search;
use tempfile::NamedTempFile;

use super::error::ThreadsError;
use super::form::CommandForm;
use crate::bench::disturbance::{Disturbance, Observer};
use crate::bench::places::place;
use crate::bench::runner::{CommandRunner, RunResult};
use crate::bench::series::{BenchArm, Conditions, once};
use crate::steering::here::SteeredMachine;

/// Command on this machine.
pub(crate) struct ThreadsCommand<'a> {
    pub form: &'a CommandForm,
    pub here: &'a SteeredMachine,
    pub prepare: Option<&'a str>,
    pub runner: &'a mut CommandRunner,
    pub observer: Observer,
    pub disturbance: Disturbance,
    pub answers: Option<Answers>,
    /// Runs so far.
    pub runs: u64,
    /// Share of the CPUs' time that the last run and other programs used.
    pub busy: Option<f64>,
    /// Signal that ended the search.
    pub signal: Option<i32>,
}

/// Comparison of what runs write.
pub(crate) struct Answers {
    file: NamedTempFile,
    /// Command line and output of the first run.
    first: Option<(String, Vec<u8>)>,
}

impl Answers {
    /// # Errors
    /// No temporary file can be created.
    pub fn new() -> Result<Self, ThreadsError> {
        let file = NamedTempFile::new().map_err(ThreadsError::Output)?;
        Ok(Self { file, first: None })
    }

    fn check(&mut self, command: &str) -> Result<(), ThreadsError> {
        let written = std::fs::read(self.file.path()).map_err(ThreadsError::Output)?;
        match &self.first {
            None => self.first = Some((command.to_owned(), written)),
            Some((_, expected)) if *expected == written => {}
            Some((first, _)) => {
                return Err(ThreadsError::OtherAnswer {
                    command: command.to_owned(),
                    first: first.clone(),
                });
            }
        }
        Ok(())
    }
}

/// The command with a candidate, by the kernel's CPU numbers.
pub fn arm(form: &CommandForm, candidate: &Candidate, here: &SteeredMachine) -> BenchArm {
    let cpus = here.numbers.os_set(&candidate.cpus);
    let place = place(&candidate.name, cpus, candidate.confined, here);
    form.arm(place, (candidate.threads, candidate.chunking.0))
}

impl search::CandidateTimer for ThreadsCommand<'_> {
    fn seconds(&mut self, candidate: &Candidate) -> anyhow::Result<Option<f64>> {
        let arm = arm(self.form, candidate, self.here);
        let conditions = Conditions {
            prepare: self.prepare,
            ignores_failure: false,
            output: self.answers.as_ref().map(|answers| answers.file.path()),
        };
        self.runs += 1;
        let run = match once(&arm, conditions, self.runs, self.runner, &mut self.observer)? {
            RunResult::Ended(run) => run,
            RunResult::Interrupted(signal) => {
                self.signal = Some(signal);
                return Ok(None);
            }
        };
        let before_s = self.disturbance.other_s();
        self.observer.end(&arm.place, &run, &mut self.disturbance);
        // Threads that wait because other programs have the CPU do not need more of their kind.
        let other_s = (self.disturbance.other_s() - before_s).max(0.0);
        let cpus_s = run.elapsed_s * arm.place.cpus.len() as f64;
        self.busy = Some((run.user_s + run.system_s + other_s) / cpus_s);
        if let Some(answers) = &mut self.answers {
            answers.check(&arm.command.text)?;
        }
        Ok(Some(run.elapsed_s))
    }

    fn busy(&self) -> Option<f64> {
        self.busy
    }
}
