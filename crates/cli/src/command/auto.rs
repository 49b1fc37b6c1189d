//! `steer auto`: chooses the best policy for a program on this machine, stores this verdict, and runs the program under the
//! policy.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use countersteer_lab::LoadedMachine;
use countersteer_lab::error::{Kind, failure};
use countersteer_model::evidence::Verdict as TrialVerdict;
use countersteer_model::trial::{Gain, TrialPlan};
use countersteer_model::units::Nanos;
use countersteer_policies::FOREGROUND;
use countersteer_report::judge::{Ranking, Verdict};
use countersteer_report::table;

use super::{print, print_json, try_};
use crate::args::HereArgs;
use crate::bpf::Bpf;
use crate::error;
use crate::live::with_foreground;
use crate::steering::ab_trial::{AbTrial, AlternatingPolicies};
use crate::steering::engine::EngineName;
use crate::steering::job::{self, Done, Job};
use crate::steering::programs;
use crate::steering::supervisor::Control;
use crate::values::time;
use crate::verdicts::{Measured, Remembered, Verdicts, identity, sha256};

/// Arguments of `steer auto`, which runs a program under the best policy for this machine, determined once and stored.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[group(skip)]
pub struct Args {
    #[command(subcommand)]
    kept: Option<Kept>,
    /// Judge the program again and ignore the stored verdict
    #[arg(long)]
    again: bool,
    /// Print the verdict without running the program; a new program still runs once, to be recorded
    #[arg(long)]
    dry_run: bool,
    /// Maximum recording time
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "20s")]
    duration: Nanos,
    /// Length of each time block under the policy
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "20s")]
    block: Nanos,
    /// Length of each time block under Linux
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "5s")]
    linux_block: Nanos,
    /// Name of a running program that comes first: Linux alone schedules it, all other threads get a lower weight, and a policy is
    /// rejected if that program's run-queue latency rises
    #[arg(long, value_name = "PROGRAM")]
    foreground: Option<String>,
    #[command(flatten)]
    here: HereArgs,
    /// Program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    command: Vec<String>,
}

#[derive(Debug, clap::Subcommand)]
enum Kept {
    /// List the stored verdicts
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Delete the stored verdicts on a program, or all stored verdicts
    Forget {
        /// Delete all verdicts
        #[arg(long, conflicts_with = "program")]
        all: bool,
        /// Path of the program, or the last components of this path
        #[arg(required_unless_present = "all")]
        program: Option<String>,
    },
    /// Write the stored verdicts to a file
    Export {
        /// Output file
        file: PathBuf,
    },
    /// Add the verdicts of a file to the stored verdicts
    Import {
        /// Input file
        file: PathBuf,
    },
}

/// Fraction of each block that is excluded from the measurement at the block's start.
const SETTLE: f64 = 0.2;
const CONFIDENCE: f64 = 0.95;
/// Equivalence margin: gains and losses in speed up to this fraction count as no difference.
const MARGIN: f64 = 0.01;
const SEEDS: u64 = 3;
const LINUX: &str = "linux";

/// Runs `steer auto`; returns the exit code of the started program.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(kept) = &args.kept {
        return keep(kept).map(|()| ExitCode::SUCCESS);
    }
    if let Some(program) = &args.foreground {
        programs::running(program)?;
    }
    let machine = try_::machine(args.here.machine.as_deref())?;
    let mut verdicts = Verdicts::load()?;
    let (executable, identity) = identity(&args.command)?;
    let machine_sha256 = sha256(&machine.text.text);
    let known = verdicts.find(&identity, &machine_sha256).cloned();
    let verdict = match known.filter(|_| !args.again) {
        Some(known) => {
            eprintln!("steer: stored verdict: {}", known.why);
            known
        }
        None => {
            let found = judge(args, &machine)?;
            eprintln!("steer: {}", found.why);
            let verdict = Remembered {
                program: executable.display().to_string(),
                identity,
                machine: machine.machine.name.clone(),
                machine_sha256,
                policy: found.policy,
                why: found.why,
                measured: None,
                disturbs: Vec::new(),
            };
            if found.holds {
                verdicts.remember(verdict.clone());
                verdicts.save()?;
            }
            verdict
        }
    };
    if args.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    let (done, ab_trial) = conduct(args, unless_it_disturbs(args, &verdict))?;
    let Some(ab_trial) = ab_trial else {
        return Ok(ExitCode::from(done.exit_code));
    };
    let foreground = ab_trial.foreground();
    let rejected = foreground.as_ref().filter(|f| f.rejection().is_some());
    let after = match rejected {
        Some(foreground) => Some(disturbing(&verdict, foreground.program())),
        None => learned(&verdict, &ab_trial.trial().overall()),
    };
    if let Some(said) = foreground.and_then(|f| f.sentence()) {
        eprintln!("steer: {said}");
    }
    if let Some(after) = after {
        verdicts.remember(after);
        verdicts.save()?;
    }
    Ok(ExitCode::from(done.exit_code))
}

/// Policy of a verdict; `linux` if the foreground program waits longer under it.
fn unless_it_disturbs<'a>(args: &Args, verdict: &'a Remembered) -> &'a str {
    let disturbed = |program: &&String| verdict.disturbs.contains(program);
    match args.foreground.as_ref().filter(disturbed) {
        Some(program) => {
            eprintln!(
                "steer: left to Linux: {program} waits longer for a CPU under {}",
                verdict.policy
            );
            LINUX
        }
        None => &verdict.policy,
    }
}

/// Adds a foreground program that waits longer under the policy.
fn disturbing(before: &Remembered, program: &str) -> Remembered {
    let mut after = before.clone();
    after.disturbs.push(program.to_owned());
    after
}

/// Policy chosen for a program, with the reason.
struct Found {
    policy: String,
    why: String,
    /// True if the verdict depends only on the program and machine, so it is stored for later runs.
    holds: bool,
}

impl Found {
    fn linux(why: String, holds: bool) -> Self {
        let policy = LINUX.to_owned();
        Self { policy, why, holds }
    }
}

/// Records and simulates the program, and chooses a policy. If this fails, the program runs under Linux and no verdict is
/// stored.
fn judge(args: &Args, machine: &Arc<LoadedMachine>) -> anyhow::Result<Found> {
    let ranking = match try_::ranking(&args.command, machine, args.duration, SEEDS) {
        Ok(Some(ranking)) => ranking,
        Ok(None) => {
            let why = "left to Linux: no policy has anything to do on this machine";
            return Ok(Found::linux(why.into(), true));
        }
        Err(why) => {
            let why = format!("left to Linux, not judged: {why:#}");
            return Ok(Found::linux(why, false));
        }
    };
    Ok(found(&ranking))
}

fn found(ranking: &Ranking) -> Found {
    let best = ranking.best().filter(|_| ranking.verdict == Verdict::Use);
    match best {
        Some(best) => Found {
            policy: best.policy.clone(),
            why: ranking.sentence(),
            holds: true,
        },
        None => Found::linux(ranking.sentence(), true),
    }
}

/// Runs the program in blocks that alternate between the policy and Linux. For the policy `linux`, there are no blocks and no
/// trial.
fn conduct(args: &Args, spec: &str) -> anyhow::Result<(Done, Option<AbTrial>)> {
    job::restore()?;
    let here = args.here.look()?;
    let mut programs = programs::of_command(&args.command)?;
    let mut ab_trial = (spec != LINUX).then(|| AbTrial::new(plan(args)));
    let foreground = args.foreground.as_deref();
    if let Some(program) = foreground {
        programs = programs::beside(programs, &programs::running(program)?)?;
        ab_trial = ab_trial.map(|trial| trial.with_foreground(program));
    }
    let spec = &with_foreground(spec, foreground)?;
    let baseline = &baseline_of(foreground);
    let policy = here.policy(spec)?;
    let control = Control::default();
    control.lock().stand_back = true;
    let policy = match &ab_trial {
        Some(trial) => {
            let linux = here.policy(baseline)?;
            let margin = Some(MARGIN);
            Box::new(AlternatingPolicies::new(
                trial, policy, linux, margin, &control,
            ))
        }
        None => policy,
    };
    let job = Job {
        spec,
        // With the sched_ext scheduler, the Linux blocks would not run under Linux's own scheduler.
        engine: EngineName::Affinity,
        steal_above: None,
        period: Nanos::from_millis(100),
        until: Nanos::NEVER,
        dry: false,
        seed: args.here.seed,
        record: None,
        tell: None,
        ab_trial: ab_trial.clone(),
        sides: ab_trial.as_ref().map(|_| [spec.as_str(), baseline]),
        latency: foreground.map(|_| Bpf::Auto),
        forgetful: false,
        socket: format!("auto-{}.sock", std::process::id()),
        metrics: None,
        control,
        exit: error::exit,
    };
    let done = job::conduct(job, policy, &here, programs)?;
    Ok((done, ab_trial))
}

/// Baseline of the trial.
fn baseline_of(foreground: Option<&str>) -> String {
    let with = |program| countersteer_policies::with_param(LINUX, FOREGROUND, program);
    foreground.map_or_else(|| LINUX.to_owned(), with)
}

fn plan(args: &Args) -> TrialPlan {
    TrialPlan {
        policy: args.block,
        baseline: args.linux_block,
        settle: SETTLE,
        confidence: CONFIDENCE,
        margin: MARGIN,
    }
}

/// Updates a verdict with the gain measured in a run; returns `None` if no pair of blocks was completed. A policy that is
/// certainly not faster is replaced by `linux`.
fn learned(before: &Remembered, gain: &Gain) -> Option<Remembered> {
    if gain.pairs == 0 {
        return None;
    }
    let measured = Measured {
        gain: gain.gain,
        interval: gain.interval,
        pairs: gain.pairs,
    };
    // A short run does not replace the evidence of a long one.
    let earlier = before.measured.as_ref().filter(|m| m.pairs > gain.pairs);
    let percent = 100.0 * gain.gain;
    let mut after = Remembered {
        measured: Some(earlier.cloned().unwrap_or(measured)),
        ..before.clone()
    };
    if matches!(
        gain.verdict,
        Some(TrialVerdict::Slower | TrialVerdict::Equivalent)
    ) {
        after.policy = LINUX.into();
        after.why = format!(
            "left to Linux: in {} pairs of blocks {} made {percent:+.1} %",
            gain.pairs, before.policy
        );
    }
    Some(after)
}

fn keep(kept: &Kept) -> anyhow::Result<()> {
    let mut verdicts = Verdicts::load()?;
    match kept {
        Kept::List { json: true } => print_json(&verdicts.all),
        Kept::List { json: false } => {
            let rows = verdicts.all.iter().map(|v| {
                let measured = v.measured.as_ref();
                let gain =
                    measured.map_or_else(|| "-".into(), |m| format!("{:+.1} %", 100.0 * m.gain));
                vec![
                    v.program.clone(),
                    v.machine.clone(),
                    v.policy.clone(),
                    gain,
                    v.why.clone(),
                ]
            });
            let head = ["program", "machine", "policy", "measured", "why"];
            print(&table::plain(&head, rows))
        }
        Kept::Forget { all, program } => {
            let before = verdicts.all.len();
            let ends = |v: &Remembered| {
                let of = |name: &String| Path::new(&v.program).ends_with(name);
                *all || program.as_ref().is_some_and(of)
            };
            verdicts.all.retain(|v| !ends(v));
            let forgotten = before - verdicts.all.len();
            if forgotten == 0 && !all {
                let why = "there is no verdict on that program; `steer auto list` shows them";
                return Err(failure(Kind::Missing, why));
            }
            verdicts.save()?;
            print(&format!("forgotten: {forgotten}"))
        }
        Kept::Export { file } => verdicts.export(file),
        Kept::Import { file } => {
            let count = verdicts.import(file)?;
            verdicts.save()?;
            print(&format!("imported: {count}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(measured: Option<Measured>) -> Remembered {
        Remembered {
            program: "/bin/a".into(),
            identity: "build-id:01".into(),
            machine: "m".into(),
            machine_sha256: "02".into(),
            policy: "hsf".into(),
            why: "Use hsf".into(),
            measured,
            disturbs: Vec::new(),
        }
    }

    #[test]
    fn a_policy_that_loses_its_blocks_is_remembered_as_linux() {
        let before = stored(None);
        let gain = |pairs, gain, verdict| Gain {
            program: "all".into(),
            pairs,
            gain,
            interval: None,
            verdict,
        };
        assert_eq!(learned(&before, &gain(0, 0.0, None)), None);
        let open = learned(&before, &gain(2, -0.02, None)).unwrap();
        assert_eq!(
            (open.policy.as_str(), open.measured.unwrap().pairs),
            ("hsf", 2)
        );
        let lost = learned(&before, &gain(8, -0.02, Some(TrialVerdict::Slower))).unwrap();
        assert_eq!(lost.policy, "linux");
        assert!(
            lost.why.contains("8 pairs of blocks hsf made -2.0 %"),
            "{}",
            lost.why
        );
    }

    #[test]
    fn a_short_run_does_not_replace_the_evidence_of_a_long_one() {
        let before = stored(Some(Measured {
            gain: 0.1,
            interval: Some((0.08, 0.12)),
            pairs: 40,
        }));
        let gain = |pairs| Gain {
            program: "all".into(),
            pairs,
            gain: 0.3,
            interval: None,
            verdict: None,
        };
        assert_eq!(learned(&before, &gain(1)).unwrap(), before);
        let longer = learned(&before, &gain(41)).unwrap();
        assert_eq!(longer.measured.unwrap().gain, 0.3);
    }
}
