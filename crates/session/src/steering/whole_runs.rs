//! Trials of whole runs: a workload runs from start to end under one of two arms. The order within each pair of runs is random.
//!
//! Input: two arms ([`TrialSide`]) and the commands. Output: [`Gain`]s with confidence intervals that are valid at any time of the
//! trial. They compare wall time, run-queue latency, or a score that the user's command prints. Unlike a trial of blocks within
//! one run, this needs no counters. An arm may be anything that starts programs: another scheduler, `taskset`, `nice`.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use countersteer_files::name::original;
use countersteer_lab::error::FaultKind;
use countersteer_model::evidence::Evidence;
use countersteer_model::topology::Topology;
use countersteer_model::trial::Gain;
use countersteer_model::workload::{Workload, WorkloadProgram};
use countersteer_profiler::this_program;
use countersteer_sysfs::sched_ext;
use rand::{RngExt, SeedableRng};

use super::error::SteeringError;
use super::here::usable;
use crate::interrupt::{Helper, TemporaryFolder, unusable};

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

/// Number of runs, and rules for the verdict.
pub struct RunsPlan<'a> {
    pub sides: [&'a TrialSide; 2],
    pub commands: &'a [Vec<String>],
    pub by: RunMeasure,
    /// Shell command that prints a score after each run; greater is better. The file $STEER_OUTPUT contains the programs'
    /// output.
    pub score: Option<&'a str>,
    /// Maximum number of pairs of runs. By default ten, or as many as fit into ten seconds if the runs are short.
    pub pairs: Option<u64>,
    pub until: Option<Duration>,
    pub until_decided: bool,
    pub confidence: f64,
    pub margin: f64,
    pub seed: u64,
    /// Folder for the records of all runs; `None` to record nothing.
    pub records: Option<&'a Path>,
}

/// Start of a line of this program's own.
const OWN: &str = "steer: ";
/// Maximum number of pairs of runs, unless the user gives one.
const PAIRS: u64 = 10;
/// Minimum number of pairs before a trial of short runs may end.
const LEAST_PAIRS: u64 = 3;
/// Time limit of a trial of short runs.
const SHORT: Duration = Duration::from_millis(9_500);

/// Results of the pairs of runs completed so far.
#[derive(Default)]
pub struct MeasuredPairs {
    programs: BTreeMap<String, Evidence>,
    overall: Evidence,
}

impl MeasuredPairs {
    /// Returns the gain of each program, and the gain of all programs together.
    pub fn gains(&self, confidence: f64, margin: f64) -> (Vec<Gain>, Gain) {
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

/// Runs pairs until their number or the time limit is reached, or a verdict ends the trial. Adds each pair's result to
/// `measured` at once.
///
/// # Errors
/// A program fails, or an arm cannot be set up.
pub fn run(plan: &RunsPlan<'_>, measured: &Mutex<MeasuredPairs>) -> anyhow::Result<()> {
    let root = Path::new("/");
    let topology = Arc::new(Topology::new(&countersteer_sysfs::topology::detect(root)?));
    for side in plan.sides {
        if let TrialSide::Policy(spec) = side {
            usable(spec, &topology)?;
        }
    }
    pairs(plan, measured, TemporaryFolder::folder("trial")?.path())
}

fn pairs(
    plan: &RunsPlan<'_>,
    measured: &Mutex<MeasuredPairs>,
    scratch: &Path,
) -> anyhow::Result<()> {
    let mut rng = rand_pcg::Pcg64::seed_from_u64(plan.seed);
    let began = Instant::now();
    for pair in 1..=plan.pairs.unwrap_or(PAIRS) {
        let first = usize::from(rng.random::<bool>());
        let mut worth = [BTreeMap::new(), BTreeMap::new()];
        for side in [first, 1 - first] {
            let record = plan.records.map(|dir| record_of(dir, pair, side));
            worth[side] = one_run(plan, plan.sides[side], scratch, record)?;
        }
        let [mine, base] = worth;
        let mut measured = measured.lock().unwrap_or_else(PoisonError::into_inner);
        measured.add(mine, &base);
        let overall = &measured.overall;
        let decided = overall.verdict(plan.confidence, plan.margin).is_some();
        if (plan.until_decided && decided) || is_long_enough(plan, pair, began.elapsed()) {
            break;
        }
    }
    Ok(())
}

/// Returns true if a trial has reached its time limit after this number of pairs. The results have no influence.
fn is_long_enough(plan: &RunsPlan<'_>, pairs: u64, took: Duration) -> bool {
    match (plan.until, plan.pairs) {
        (Some(most), _) => took >= most,
        (None, Some(_)) => false,
        (None, None) => {
            let pair = took / u32::try_from(pairs).unwrap_or(u32::MAX);
            let are_short = pair * LEAST_PAIRS as u32 <= SHORT;
            are_short && pairs >= LEAST_PAIRS && took + pair > SHORT
        }
    }
}

/// Returns the path of the record of one run; `side` is the index of the arm.
fn record_of(dir: &Path, pair: u64, side: usize) -> PathBuf {
    dir.join(format!("{pair:02}-{}.rec", ["policy", "baseline"][side]))
}

/// Runs the workload once under an arm. Returns a score for each program, or only that of the user's command; greater is
/// better.
fn one_run(
    plan: &RunsPlan<'_>,
    side: &TrialSide,
    scratch: &Path,
    record: Option<PathBuf>,
) -> anyhow::Result<BTreeMap<String, f64>> {
    let (policy, prefix) = match side {
        TrialSide::Policy(spec) => (spec.as_str(), &[][..]),
        TrialSide::Prefix(words) => ("linux", &words[..]),
        TrialSide::Scheduler(_) => ("linux", &[][..]),
    };
    let _scheduler = match side {
        TrialSide::Scheduler(words) => Some(loaded(words, Path::new("/"))?),
        _ => None,
    };
    let workload = Workload {
        name: String::new(),
        title: String::new(),
        cgroup: Vec::new(),
        hotplug: Vec::new(),
        program: plan.commands.iter().map(|c| program(c, prefix)).collect(),
    };
    let file = scratch.join("programs.toml");
    let text = toml::to_string(&workload)?;
    std::fs::write(&file, text).map_err(|why| unusable(&file, &why))?;
    let (summary, output) = (scratch.join("summary.json"), scratch.join("output"));
    // That of an earlier run, if any.
    let _ = std::fs::remove_file(&summary);
    let mut steer = this_program::command()?;
    steer
        .args(["run", "-P"])
        .arg(original(policy))
        .arg("-w")
        .arg(&file)
        .arg("--summary")
        .arg(&summary);
    if plan.by == RunMeasure::LatencyP99 {
        steer.arg("--latency");
    }
    if let Some(record) = record {
        steer.arg("--force").arg("--output").arg(record);
    }
    let log = scratch.join("log");
    let create = |path: &Path| File::create(path).map_err(|why| unusable(path, &why));
    steer
        .stdin(Stdio::null())
        .stdout(create(&output)?)
        .stderr(create(&log)?);
    let run = Helper::start(&mut steer).context("cannot start a run")?;
    let status = run.wait()?;
    if !status.success() {
        return Err(failed(side, status, &log, summary.exists()).into());
    }
    match plan.score {
        Some(command) => Ok(BTreeMap::from([(
            "score".to_owned(),
            score(command, &output)?,
        )])),
        None => worth(plan.by, &summary),
    }
}

/// Returns an error for a failed run. If the programs ended, there is a summary, and the error has the first three lines that they
/// printed to stderr. Otherwise it has the last message of `steer`, and its kind.
fn failed(side: &TrialSide, status: ExitStatus, log: &Path, ended: bool) -> SteeringError {
    let bytes = std::fs::read(log).unwrap_or_default();
    let said = String::from_utf8_lossy(&bytes);
    let side = side.name();
    // Lines that start with `steer: ` come from `steer`, not from the programs.
    let is_own = |line: &&str| !line.starts_with(OWN);
    if !ended
        && let Some(code) = status.code()
        && let Some((_, last)) = said.rsplit_once(OWN)
    {
        let (kind, said) = (FaultKind::of_exit(code), last.trim().to_owned());
        return SteeringError::RefusedRun { side, kind, said };
    }
    let first: Vec<&str> = said.lines().filter(is_own).take(3).collect();
    let said = match first[..] {
        [] => "it printed no error".to_owned(),
        _ => first.join("; "),
    };
    SteeringError::FailedRun { side, status, said }
}

/// Reads the summary of a run. Returns the inverse of each program's elapsed time or run-queue latency, so that greater is
/// better.
fn worth(by: RunMeasure, summary: &Path) -> anyhow::Result<BTreeMap<String, f64>> {
    let text = std::fs::read_to_string(summary).context("a run left no summary")?;
    let summary: serde_json::Value = serde_json::from_str(&text)?;
    let programs = summary["programs"].as_array().into_iter().flatten();
    let value = |p: &serde_json::Value| match by {
        RunMeasure::Wall => p["elapsed_s"].as_f64().map(|s| 1.0 / s),
        RunMeasure::Latency => p["wait"]["mean_ms"].as_f64().map(|ms| 1.0 / ms),
        RunMeasure::LatencyP99 => p["wait"]["p99_ms"].as_f64().map(|ms| 1.0 / ms),
    };
    let named = |p: &serde_json::Value| Some((p["name"].as_str()?.to_owned(), value(p)?));
    Ok(programs.filter_map(named).collect())
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

    fn plan<'a>(side: &'a TrialSide, pairs: Option<u64>, until: Option<Duration>) -> RunsPlan<'a> {
        RunsPlan {
            sides: [side, side],
            commands: &[],
            by: RunMeasure::Wall,
            score: None,
            pairs,
            until,
            until_decided: false,
            confidence: 0.95,
            margin: 0.01,
            seed: 1,
            records: None,
        }
    }

    #[test]
    fn trials_of_short_runs_end_within_ten_seconds_and_others_when_they_should() {
        let side = TrialSide::Policy("linux".into());
        let ends = |pairs, until, done, seconds| {
            is_long_enough(
                &plan(&side, pairs, until),
                done,
                Duration::from_secs_f64(seconds),
            )
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
