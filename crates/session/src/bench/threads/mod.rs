//! Number of threads of a command, and cores for them, as a value.
//!
//! Input: a [`ThreadsSearch`], whose command has `{n}` or `{threads}`. Output: [`ThreadsResult`] with the trials of candidates, and paired
//! comparisons of the best ones with the default.
//!
//! ```no_run
//! use countersteer_session::bench::threads::ThreadsSearch;
//!
//! let search = ThreadsSearch::new(["xz", "-T{n}", "-kc", "file"].map(String::from).to_vec());
//! if let Some(findings) = search.run()?.findings {
//!     print!("{}", findings.table());
//! }
//! # Ok::<(), anyhow::Error>(())
//! ```

pub mod error;
pub mod finals;
pub mod form;
pub mod live;
pub mod result;

use std::path::Path;
use std::time::Duration;

use countersteer_lab::threads::candidates::{Candidate, candidates, chunked};
use countersteer_lab::threads::search::{self, SearchLimits, SearchResult, search};
use countersteer_model::cpunumbers::CpuNumbers;
use countersteer_model::cpuset::CpuSet;
use countersteer_model::topology::Topology;
use countersteer_model::units::Nanos;

use super::disturbance::{Disturbance, Observer};
use super::places::places;
use super::runner::CommandRunner;
use super::series::{BenchArm, Conditions, MeasuredArm};
use crate::library;
use crate::steering::here::SteeredMachine;
use finals::{FinalsEnd, compare, finalists};
use form::{CommandForm, ThreadsWay};
use live::{Answers, ThreadsCommand, arm};
use result::ThreadsResult;

/// Most trials of a search without and with `{chunk}`.
const TRIALS: u64 = 8;
const TRIALS_WITH_CHUNKINGS: u64 = 12;

/// Command whose best number of threads is sought.
#[derive(Clone, Debug)]
pub struct ThreadsSearch {
    /// Program and its arguments.
    pub command: Vec<String>,
    /// Places that candidates can use: `all`, names of core types or caches, or lists of CPUs.
    pub on: Vec<String>,
    /// Environment variables of the program, each as `NAME=VALUE`.
    pub env: Vec<String>,
    /// Values of `{chunk}`; empty for the OpenMP schedules.
    pub chunk: Vec<String>,
    /// Largest number of candidates that are run; `None` for 8, with `{chunk}` 12.
    pub trials: Option<u64>,
    /// Number of unmeasured runs before the search.
    pub warmup: u64,
    /// Shell command that is executed before each run.
    pub prepare: Option<String>,
    /// Number of rounds of the comparison with the default; `None` for at least 10, until the result is certain.
    pub repeat: Option<u64>,
    /// Time after which no new round begins.
    pub duration: Nanos,
    /// Difference in speed up to which two arms count as equal; a fraction.
    pub margin: f64,
    /// True to fail if the program's output differs between runs of the search.
    pub check_output: bool,
    /// True to show the output of the program.
    pub show_output: bool,
    /// Name or file of a machine; `None` for the detected one.
    pub machine: Option<String>,
    pub seed: u64,
}

/// Results of a search.
pub struct Searched {
    /// `None` if a signal ended the search before the first trial.
    pub findings: Option<ThreadsResult>,
    /// Signal that ended it early.
    pub signal: Option<i32>,
}

/// Runner of a search without trials.
struct Nothing;

impl search::CandidateTimer for Nothing {
    fn seconds(&mut self, _: &Candidate) -> anyhow::Result<Option<f64>> {
        Ok(None)
    }
}

impl ThreadsSearch {
    /// Begins with the defaults of `steer threads`: all CPUs, one warm-up run, a margin of 1 %, at most 60 s of comparison.
    #[must_use]
    pub fn new(command: Vec<String>) -> Self {
        Self {
            command,
            on: vec!["all".into()],
            env: Vec::new(),
            chunk: Vec::new(),
            trials: None,
            warmup: 1,
            prepare: None,
            repeat: None,
            duration: Nanos::from_millis(60_000),
            margin: 0.01,
            check_output: false,
            show_output: false,
            machine: None,
            seed: 1,
        }
    }

    fn form(&self) -> anyhow::Result<CommandForm> {
        CommandForm::new(&self.command, &self.env, &self.chunk)
    }

    /// Predicts the times of all candidates, relative to the default, without running the program. The machine can be another one.
    ///
    /// # Errors
    /// The command has no place for the number of threads, or the machine or a place does not exist.
    pub fn predict(&self) -> anyhow::Result<ThreadsResult> {
        let form = self.form()?;
        if let Some(name) = &self.machine {
            let machine = library::loaded(name)?;
            let numbers = CpuNumbers::new(machine.machine.os_cpu_numbers());
            let all = candidates(&machine.topology, &machine.topology.groups[0].cpus);
            let all = chunked(all, &form.chunkings());
            return self.expected(&form, all, &machine.topology, &numbers);
        }
        let (here, all) = self.candidates(&form)?;
        self.expected(&form, all, &here.topology, &here.numbers)
    }

    fn expected(
        &self,
        form: &CommandForm,
        mut all: Vec<Candidate>,
        topology: &Topology,
        numbers: &CpuNumbers,
    ) -> anyhow::Result<ThreadsResult> {
        let found = search(&mut all, topology, &mut Nothing, self.limits(form))?;
        Ok(ThreadsResult::of(form, &all, numbers, &found))
    }

    /// This machine, and the candidates on it.
    fn candidates(&self, form: &CommandForm) -> anyhow::Result<(SteeredMachine, Vec<Candidate>)> {
        let here = SteeredMachine::look(self.machine.as_deref())?;
        let places = places(&self.on, &here)?.into_iter();
        let allowed: CpuSet = places
            .flat_map(|p| p.cpus.iter().collect::<Vec<_>>())
            .collect();
        let allowed = here.numbers.own_set(&allowed);
        let all = chunked(candidates(&here.topology, &allowed), &form.chunkings());
        Ok((here, all))
    }

    fn limits(&self, form: &CommandForm) -> SearchLimits {
        let trials = match form.chunkings().len() {
            0 => TRIALS,
            _ => TRIALS_WITH_CHUNKINGS,
        };
        SearchLimits {
            trials: self.trials.unwrap_or(trials) as usize,
            seed: self.seed,
            ..SearchLimits::default()
        }
    }

    /// Runs the command with the most promising candidates, and compares the best ones with the default.
    ///
    /// # Errors
    /// The command has no place for the number of threads, cannot be run or fails, or a place does not exist.
    pub fn run(&self) -> anyhow::Result<Searched> {
        let form = &self.form()?;
        let (here, mut all) = self.candidates(form)?;
        let here = &here;
        let mut runner = CommandRunner::new(self.show_output)?;
        let mut live = ThreadsCommand {
            form,
            here,
            prepare: self.prepare.as_deref(),
            runner: &mut runner,
            observer: Observer::new(Path::new("/")),
            disturbance: Disturbance::default(),
            answers: self.check_output.then(Answers::new).transpose()?,
            runs: 0,
            busy: None,
            signal: None,
        };
        let found = self.searched(&mut all, here, &mut live)?;
        let mut signal = live.signal;
        let disturbed = live.disturbance.words();
        if signal.is_some() && found.trials.is_empty() {
            let findings = None;
            return Ok(Searched { findings, signal });
        }
        let mut findings = ThreadsResult::of(form, &all, &here.numbers, &found);
        let finalists = finalists(&found);
        if signal.is_none() && !finalists.is_empty() {
            let rows = std::iter::once(0).chain(finalists).map(|row| &all[row]);
            let arms: Vec<BenchArm> = rows.clone().map(|c| arm(form, c, here)).collect();
            let ways: Vec<ThreadsWay> = rows.map(|c| (c.threads, c.chunking.0)).collect();
            let mut runs = vec![MeasuredArm::default(); arms.len()];
            signal = self.compared(&arms, &mut runner, &mut runs)?;
            findings.judge(form, &arms, &ways, &runs, self.margin);
        }
        findings.warnings.extend(disturbed);
        Ok(Searched {
            findings: Some(findings),
            signal,
        })
    }

    /// Compares the arms in rounds. Returns the signal that ended it early.
    fn compared(
        &self,
        arms: &[BenchArm],
        runner: &mut CommandRunner,
        runs: &mut [MeasuredArm],
    ) -> anyhow::Result<Option<i32>> {
        let conditions = Conditions {
            prepare: self.prepare.as_deref(),
            ..Conditions::default()
        };
        let end = FinalsEnd {
            rounds: self.repeat,
            most: Duration::from_nanos(self.duration.0),
            margin: self.margin,
            seed: self.seed,
        };
        let mut observer = Observer::new(Path::new("/"));
        compare(arms, conditions, end, runner, &mut observer, runs)
    }

    /// Warms up, then searches.
    fn searched(
        &self,
        all: &mut Vec<Candidate>,
        here: &SteeredMachine,
        live: &mut ThreadsCommand<'_>,
    ) -> anyhow::Result<SearchResult> {
        for _ in 0..self.warmup {
            if search::CandidateTimer::seconds(live, &all[0])?.is_none() {
                return Ok(SearchResult::default());
            }
        }
        live.disturbance = Disturbance::default();
        let limits = self.limits(live.form);
        search(all, &here.topology, live, limits)
    }
}
