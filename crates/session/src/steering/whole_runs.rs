//! Trials of whole runs: a workload runs from start to end under one of two arms. The order within each pair of runs is random.
//!
//! Input: two arms ([`TrialSide`]) and the commands. Output: [`Gain`]s with confidence intervals that are valid at any time of the
//! trial. They compare wall time, run-queue latency, or a score that the user's command prints. Unlike a trial of blocks within
//! one run, this needs no counters. An arm may be anything that starts programs: another scheduler, `taskset`, `nice`.
//!
//! ```
//! use countersteer_session::steering::whole_runs::{RunsTrial, TrialSide};
//!
//! let nice = TrialSide::parse("nice -n 5")?;
//! let mut trial = RunsTrial::new(vec![vec!["sleep".into(), "0.05".into()]], nice);
//! trial.pairs = Some(2);
//! let found = trial.run()?;
//! println!("{:+.1} % of {} pairs", found.overall.gain * 100.0, found.overall.pairs);
//! # Ok::<(), anyhow::Error>(())
//! ```

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use countersteer_files::name::original;
use countersteer_model::evidence::Evidence;
use countersteer_model::topology::Topology;
use countersteer_model::trial::Gain;
use countersteer_model::workload::{Workload, WorkloadProgram};
use countersteer_policies::LINUX;
use countersteer_profiler::this_program;
use countersteer_sysfs::launch::ProgramStreams;
use countersteer_sysfs::sched_ext;
use countersteer_sysfs::signals::EndSignals;
use rand::{RngExt, SeedableRng};

use super::error::SteeringError;
use super::here::usable;
use super::job;
use super::summary::{ProgramTally, SteeringSummary};
use crate::error::{FaultKind, kind_of};
use crate::interrupt::{Helper, TemporaryFolder, unusable};
use crate::live::{Live, Targets};
use crate::notice;

/// Arm of a trial: the policy, command prefix or scheduler under which the programs run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrialSide {
    /// Name and parameters of a policy for `steer run`; `linux` is a policy, too.
    Policy(String),
    /// Words that precede each program's command: `taskset -c 0-3`, `nice -n 5`, `numactl -N 0`, `gamemoderun`.
    Prefix(Vec<String>),
    /// Command of a sched_ext scheduler, which is loaded for the run: `scx_lavd --performance`.
    Scheduler(Vec<String>),
}

/// Measure by which whole runs are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum RunMeasure {
    /// Elapsed time of each program
    Wall,
    /// Mean run-queue latency
    Latency,
    /// 99th percentile of run-queue latency, measured by BPF programs (root)
    LatencyP99,
}

impl RunMeasure {
    /// Measures by name, as on command lines.
    pub const NAMES: [(&'static str, Self); 3] = [
        ("wall", Self::Wall),
        ("latency", Self::Latency),
        ("latency-p99", Self::LatencyP99),
    ];
}

/// Trial of whole runs of commands: its arms, the number of runs, and rules for the verdict.
#[derive(Clone, Debug)]
pub struct RunsTrial {
    /// Programs with their arguments, which run at the same time.
    pub commands: Vec<Vec<String>>,
    /// The arm on trial, and the baseline.
    pub sides: [TrialSide; 2],
    pub by: RunMeasure,
    /// Shell command that prints a score after each run; greater is better. The file $STEER_OUTPUT contains the programs'
    /// output.
    pub score: Option<String>,
    /// Maximum number of pairs of runs. By default ten, or as many as fit into ten seconds if the runs are short.
    pub pairs: Option<u64>,
    pub until: Option<Duration>,
    /// True to end once a gain, a loss or equivalence is certain for all programs together.
    pub until_decided: bool,
    /// Confidence of the intervals, and difference up to which two arms count as equal; fractions.
    pub confidence: f64,
    pub margin: f64,
    pub seed: u64,
    /// Folder for the records of all runs, which replace earlier ones; `None` to record nothing.
    pub records: Option<PathBuf>,
}

/// Results of a trial of whole runs.
#[derive(Clone, Debug)]
pub struct RunsResult {
    /// Gain of each program, and of all together.
    pub gains: Vec<Gain>,
    pub overall: Gain,
    /// Signal that ended the trial early; `None` without one.
    pub signal: Option<i32>,
}

/// Maximum number of pairs of runs, unless the user gives one.
const PAIRS: u64 = 10;
/// Minimum number of pairs before a trial of short runs may end.
const LEAST_PAIRS: u64 = 3;
/// Time limit of a trial of short runs.
const SHORT: Duration = Duration::from_millis(9_500);

/// Results of the pairs of runs completed so far.
#[derive(Default)]
struct MeasuredPairs {
    programs: BTreeMap<String, Evidence>,
    overall: Evidence,
}

impl MeasuredPairs {
    /// Returns the gain of each program, and the gain of all programs together.
    fn gains(&self, confidence: f64, margin: f64) -> (Vec<Gain>, Gain) {
        let gain = |program: &str, e: &Evidence| Gain {
            program: program.into(),
            pairs: e.pairs(),
            gain: e.gain(),
            interval: e.interval(confidence),
            verdict: e.verdict(confidence, margin),
        };
        let programs = self.programs.iter().map(|(name, e)| gain(name, e));
        (programs.collect(), gain("all", &self.overall))
    }

    /// Adds the values of one pair of runs, by program: `mine` under the first arm, `base` under the second. Greater values are
    /// better.
    fn add(&mut self, mine: BTreeMap<String, f64>, base: &BTreeMap<String, f64>) {
        let logs: Vec<(String, f64)> = mine
            .into_iter()
            .filter_map(|(program, value)| Some((value / base.get(&program)?, program)))
            .map(|(ratio, program)| (program, ratio.ln()))
            .filter(|(_, log)| log.is_finite())
            .collect();
        if !logs.is_empty() {
            let sum: f64 = logs.iter().map(|l| l.1).sum();
            self.overall.push(sum / logs.len() as f64);
        }
        for (program, log) in logs {
            self.programs.entry(program).or_default().push(log);
        }
    }
}

impl TrialSide {
    /// Parses an arm: the name of a policy, or a command whose program exists.
    ///
    /// # Errors
    /// The text names neither a policy nor an existing program.
    pub fn parse(text: &str) -> Result<Self, SteeringError> {
        let name = text.split(':').next().unwrap_or(text).trim();
        if countersteer_policies::by_name(name).is_some() {
            return Ok(Self::Policy(text.to_owned()));
        }
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        if countersteer_sysfs::launch::find_program(&words).is_err() {
            return Err(SteeringError::UnknownSide {
                name: name.to_owned(),
                known: countersteer_policies::names().join(", "),
            });
        }
        let base = Path::new(&words[0])
            .file_name()
            .map(|n| n.to_string_lossy().into_owned());
        Ok(if base.is_some_and(|b| b.starts_with("scx_")) {
            Self::Scheduler(words)
        } else {
            Self::Prefix(words)
        })
    }

    pub fn name(&self) -> String {
        match self {
            Self::Policy(spec) => spec.clone(),
            Self::Prefix(words) | Self::Scheduler(words) => words.join(" "),
        }
    }
}

impl RunsTrial {
    /// Begins with the defaults of `steer trial --by wall`: against Linux, 95 % intervals, a margin of 1 %.
    #[must_use]
    pub fn new(commands: Vec<Vec<String>>, side: TrialSide) -> Self {
        Self {
            commands,
            sides: [side, TrialSide::Policy(LINUX.into())],
            by: RunMeasure::Wall,
            score: None,
            pairs: None,
            until: None,
            until_decided: false,
            confidence: 0.95,
            margin: 0.01,
            seed: 1,
            records: None,
        }
    }

    /// Runs pairs until their number or the time limit is reached, a verdict ends the trial, or a signal arrives.
    ///
    /// # Errors
    /// A program fails, an arm cannot be set up, or a policy is dropped.
    pub fn run(&self) -> anyhow::Result<RunsResult> {
        let root = Path::new("/");
        let topology = Arc::new(Topology::new(&countersteer_sysfs::topology::detect(root)?));
        for side in &self.sides {
            if let TrialSide::Policy(spec) = side {
                usable(spec, &topology)?;
            }
        }
        job::restore()?;
        let output = self.score.as_ref();
        let output = output.map(|_| TemporaryFolder::folder("trial"));
        let output = output.transpose()?;
        let output = output.as_ref().map(|folder| folder.path().join("output"));
        let mut measured = MeasuredPairs::default();
        let signal = self.pairs(output.as_deref(), &mut measured)?;
        let (gains, overall) = measured.gains(self.confidence, self.margin);
        Ok(RunsResult {
            gains,
            overall,
            signal,
        })
    }

    /// Runs pairs and adds their results. Returns the signal that ends the trial early, if any.
    fn pairs(
        &self,
        output: Option<&Path>,
        measured: &mut MeasuredPairs,
    ) -> anyhow::Result<Option<i32>> {
        let mut signals = EndSignals::listen().context("cannot listen for signals")?;
        let mut rng = rand_pcg::Pcg64::seed_from_u64(self.seed);
        let began = Instant::now();
        for pair in 1..=self.pairs.unwrap_or(PAIRS) {
            let first = usize::from(rng.random::<bool>());
            let mut worth = [BTreeMap::new(), BTreeMap::new()];
            for side in [first, 1 - first] {
                let records = self.records.as_deref();
                let record = records.map(|dir| record_of(dir, pair, side));
                let run = self.one_run(&self.sides[side], output, record);
                // A run that a signal has ended is not evaluated, and its programs have not failed.
                if let Some((signal, _)) = signals.pending() {
                    return Ok(Some(signal));
                }
                worth[side] = run?;
            }
            let [mine, base] = worth;
            measured.add(mine, &base);
            let overall = &measured.overall;
            let decided = overall.verdict(self.confidence, self.margin).is_some();
            if (self.until_decided && decided) || self.is_long_enough(pair, began.elapsed()) {
                break;
            }
        }
        Ok(None)
    }

    /// Returns true if a trial has reached its time limit after this number of pairs. The results have no influence.
    fn is_long_enough(&self, pairs: u64, took: Duration) -> bool {
        match (self.until, self.pairs) {
            (Some(most), _) => took >= most,
            (None, Some(_)) => false,
            (None, None) => {
                let pair = took / u32::try_from(pairs).unwrap_or(u32::MAX);
                let are_short = pair * LEAST_PAIRS as u32 <= SHORT;
                are_short && pairs >= LEAST_PAIRS && took + pair > SHORT
            }
        }
    }

    /// Runs the workload once under an arm. Returns a score for each program, or only that of the user's command; greater is
    /// better.
    fn one_run(
        &self,
        side: &TrialSide,
        output: Option<&Path>,
        record: Option<PathBuf>,
    ) -> anyhow::Result<BTreeMap<String, f64>> {
        let (policy, prefix) = match side {
            TrialSide::Policy(spec) => (spec.as_str(), &[][..]),
            TrialSide::Prefix(words) => (LINUX, &words[..]),
            TrialSide::Scheduler(_) => (LINUX, &[][..]),
        };
        let _scheduler = match side {
            TrialSide::Scheduler(words) => Some(loaded(words, Path::new("/"))?),
            _ => None,
        };
        let programs = self.commands.iter().map(|c| program(c, prefix)).collect();
        let errors = tempfile::tempfile().map_err(|why| unusable(&std::env::temp_dir(), &why))?;
        let errors = Arc::new(errors);
        let place = output.unwrap_or(Path::new("/dev/null"));
        let streams = ProgramStreams {
            output: Arc::new(File::create(place).map_err(|why| unusable(place, &why))?),
            errors: Arc::clone(&errors),
        };
        let live = Live {
            policy: policy.to_owned(),
            record,
            latency: self.by == RunMeasure::LatencyP99,
            streams: Some(streams),
            ..Live::new(Targets::Programs(Workload {
                program: programs,
                ..Workload::default()
            }))
        };
        let quiet = notice::quiet();
        let done = live.run();
        drop(quiet);
        let refused = |kind, said| SteeringError::RefusedRun {
            side: side.name(),
            kind,
            said,
        };
        let done = done.map_err(|error| refused(kind_of(&error), format!("{error:#}")))?;
        if done.exit_code != 0 {
            return Err(SteeringError::FailedRun {
                side: side.name(),
                code: done.exit_code,
                said: first_lines(&errors),
            }
            .into());
        }
        if let Some(why) = &done.summary.dropped {
            return Err(refused(
                FaultKind::Internal,
                format!("the policy was dropped: {why}"),
            )
            .into());
        }
        match (&self.score, output) {
            (Some(command), Some(output)) => Ok(BTreeMap::from([(
                "score".to_owned(),
                score(command, output)?,
            )])),
            _ => Ok(worth(self.by, &done.summary)),
        }
    }
}

/// Returns the path of the record of one run; `side` is the index of the arm.
fn record_of(dir: &Path, pair: u64, side: usize) -> PathBuf {
    dir.join(format!("{pair:02}-{}.rec", ["policy", "baseline"][side]))
}

/// Returns the first three lines of the programs' standard error.
fn first_lines(errors: &File) -> String {
    let mut bytes = vec![0; 4096];
    let length = errors.read_at(&mut bytes, 0).unwrap_or(0);
    let said = String::from_utf8_lossy(&bytes[..length]);
    let first: Vec<&str> = said.lines().take(3).collect();
    match first[..] {
        [] => "it printed no error".to_owned(),
        _ => first.join("; "),
    }
}

/// Returns the inverse of each program's elapsed time or run-queue latency, so that greater is better.
fn worth(by: RunMeasure, summary: &SteeringSummary) -> BTreeMap<String, f64> {
    let value = |p: &ProgramTally| match by {
        RunMeasure::Wall => p.elapsed_s.map(|s| 1.0 / s),
        RunMeasure::Latency => p.wait.map(|wait| 1.0 / wait.mean_ms),
        RunMeasure::LatencyP99 => Some(1.0 / p.wait?.percentiles?.p99_ms),
    };
    let named = |p: &ProgramTally| Some((p.name.clone(), value(p)?));
    summary.programs.iter().filter_map(named).collect()
}

/// Puts a prefix before a program's command. The program keeps the name of the original command.
fn program(command: &[String], prefix: &[String]) -> WorkloadProgram {
    let name = Path::new(&command[0])
        .file_name()
        .map(|n| n.to_string_lossy().into_owned());
    let mut program = WorkloadProgram::of_command([prefix, command].concat());
    program.name = name;
    program
}

/// Runs the user's command for the score, and parses the last word that it prints as a positive number.
fn score(command: &str, output: &Path) -> anyhow::Result<f64> {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", command])
        .env("STEER_OUTPUT", output)
        .stdin(Stdio::null());
    this_program::end_with_this_thread(&mut shell);
    let printed = shell.output().context("cannot start a shell for --score")?;
    let text = String::from_utf8_lossy(&printed.stdout);
    let number = text
        .split_whitespace()
        .last()
        .and_then(|word| word.parse().ok());
    let number = number.filter(|n: &f64| printed.status.success() && *n > 0.0);
    Ok(number.ok_or_else(|| SteeringError::Score {
        command: command.to_owned(),
        printed: text.trim().to_owned(),
    })?)
}

/// Starts the process of a sched_ext scheduler and waits until the kernel uses it. The scheduler is unloaded when the returned
/// process ends. `root` is the folder that contains `sys`.
fn loaded(words: &[String], root: &Path) -> anyhow::Result<Helper> {
    const MOST: Duration = Duration::from_secs(10);
    /// Time limit for the kernel to unload the previous run's scheduler.
    const LEAVES: Duration = Duration::from_secs(2);
    let began = Instant::now();
    while sched_ext::is_enabled(root) {
        if began.elapsed() > LEAVES {
            return Err(SteeringError::OtherScheduler {
                name: words[0].clone(),
                other: sched_ext::loaded(root).unwrap_or_else(|| "of another program".into()),
            }
            .into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut command = Command::new(original(&words[0]));
    command
        .args(words[1..].iter().map(|word| original(word)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let scheduler =
        Helper::start(&mut command).with_context(|| format!("cannot start {}", words[0]))?;
    let began = Instant::now();
    while !sched_ext::is_enabled(root) {
        if let Some(status) = scheduler.ended()? {
            let name = words[0].clone();
            return Err(SteeringError::SchedulerEnded { name, status }.into());
        }
        if began.elapsed() > MOST {
            return Err(SteeringError::SchedulerLate {
                name: words[0].clone(),
                after_s: MOST.as_secs(),
            }
            .into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(scheduler)
}

#[cfg(test)]
mod tests {
    use countersteer_fuzz::fake_root::write;

    use super::*;

    #[test]
    fn trials_of_short_runs_end_within_ten_seconds_and_others_when_they_should() {
        let ends = |pairs, until, done, seconds| {
            let trial = RunsTrial {
                pairs,
                until,
                ..RunsTrial::new(Vec::new(), TrialSide::Policy("linux".into()))
            };
            trial.is_long_enough(done, Duration::from_secs_f64(seconds))
        };
        // Pairs of one second: nine pairs.
        assert!(!ends(None, None, 8, 8.0) && ends(None, None, 9, 9.0));
        // At least three pairs; no early end if three of them already take longer.
        assert!(!ends(None, None, 2, 6.0) && ends(None, None, 3, 9.0));
        assert!(!ends(None, None, 3, 12.0));
        // Explicit limits take precedence.
        assert!(!ends(Some(10), None, 9, 9.0));
        assert!(ends(None, Some(Duration::from_secs(5)), 1, 5.0));
        assert!(!ends(None, Some(Duration::from_secs(50)), 9, 9.0));
    }

    #[test]
    fn a_scheduler_is_not_loaded_beside_another_one() {
        let root = tempfile::tempdir().unwrap();
        let files = [
            ("sys/kernel/sched_ext/state", "enabled\n"),
            ("sys/kernel/sched_ext/root/ops", "rusty\n"),
        ];
        write(root.path(), &files);
        let Err(error) = loaded(&["true".into()], root.path()) else {
            unreachable!("it is loaded");
        };
        assert!(
            error.to_string().contains("the scheduler rusty is"),
            "{error}"
        );
    }

    #[test]
    fn sides_are_policies_or_commands() {
        assert_eq!(
            TrialSide::parse("hsf:sf=steps").unwrap(),
            TrialSide::Policy("hsf:sf=steps".into())
        );
        let nice = ["nice", "-n", "5"].map(str::to_owned).to_vec();
        assert_eq!(
            TrialSide::parse("nice -n 5").unwrap(),
            TrialSide::Prefix(nice)
        );
        let error = TrialSide::parse("fastest").unwrap_err().to_string();
        assert!(error.contains("neither a policy nor a program"), "{error}");
    }
}
