//! The best policy for a program, determined once and remembered, as a value.
//!
//! Input: an [`Auto`], which names a program. [`Auto::judge`] finds the stored verdict, or records and simulates the program. Output
//! of [`JudgedProgram::run`]: the program's exit code, and a verdict that has the gain measured in this run.
//!
//! ```no_run
//! use countersteer_session::auto::Auto;
//! use countersteer_session::this_program;
//!
//! this_program::set_steer("/usr/bin/steer".as_ref()); // records the program
//! let judged = Auto::new(vec!["make".into(), "-j8".into()]).judge()?;
//! println!("{}: {}", judged.verdict.policy, judged.verdict.why);
//! let done = judged.run()?;
//! # let _ = done.exit_code;
//! # Ok::<(), anyhow::Error>(())
//! ```

use std::sync::Arc;

use countersteer_lab::LoadedMachine;
use countersteer_model::evidence::GainDecision as TrialVerdict;
use countersteer_model::trial::{Gain, TrialPlan};
use countersteer_model::units::Nanos;
use countersteer_policies::{FOREGROUND, LINUX, reach};
use countersteer_report::judge::{Ranking, Verdict};

use crate::advice::{self, Advice};
use crate::bpf::Bpf;
use crate::live::{Live, Targets, with_foreground};
use crate::steering::ab_trial::{AbTrial, AlternatingPolicies};
use crate::steering::here::SteeredMachine;
use crate::steering::job::{self, Job, JobResult, Placing};
use crate::steering::programs;
use crate::steering::socket;
use crate::steering::supervisor::RunControl;
use crate::verdicts::{Measured, Remembered, Verdicts, identity, sha256};

/// Fraction of each block that is excluded from the measurement at the block's start.
const SETTLE: f64 = 0.2;
const CONFIDENCE: f64 = 0.95;
/// Equivalence margin: gains and losses in speed up to this fraction count as no difference.
const MARGIN: f64 = 0.01;

/// Program that runs under the best policy for it.
pub struct Auto {
    /// Program and its arguments.
    pub command: Vec<String>,
    /// True to ignore the stored verdict.
    pub again: bool,
    /// Time after which the recording of a new program ends.
    pub duration: Nanos,
    /// Length of a block under the policy, and under Linux.
    pub block: Nanos,
    pub linux_block: Nanos,
    /// Name of a running program that Linux alone schedules, and that must not wait longer; `None` without one.
    pub foreground: Option<String>,
    /// Name or file of a machine; `None` for the detected one.
    pub machine: Option<String>,
    pub seed: u64,
}

/// Program whose best policy is known.
pub struct JudgedProgram {
    pub verdict: Remembered,
    verdicts: Verdicts,
    auto: Auto,
}

impl Auto {
    /// Begins with the defaults of `steer auto`: 20 s of recording, blocks of 20 s under the policy and 5 s under Linux.
    #[must_use]
    pub fn new(command: Vec<String>) -> Self {
        let duration = Advice::new(Vec::new()).duration;
        let Live { machine, seed, .. } = Live::new(Targets::Command(Vec::new()));
        Self {
            command,
            again: false,
            duration,
            block: Nanos::from_millis(20_000),
            linux_block: Nanos::from_millis(5_000),
            foreground: None,
            machine,
            seed,
        }
    }

    /// Finds the stored verdict on the program, or records and simulates the program, and stores the verdict.
    ///
    /// # Errors
    /// The program, the machine or the foreground program does not exist, or the verdicts cannot be read or written.
    pub fn judge(self) -> anyhow::Result<JudgedProgram> {
        if let Some(program) = &self.foreground {
            programs::running(program)?;
        }
        let machine = advice::machine(self.machine.as_deref())?;
        let mut verdicts = Verdicts::load()?;
        let (executable, identity) = identity(&self.command)?;
        let machine_sha256 = sha256(&machine.text.text);
        let known = verdicts.find(&identity, &machine_sha256).cloned();
        let verdict = match known.filter(|_| !self.again) {
            Some(known) => {
                say!("stored verdict: {}", known.why);
                known
            }
            None => {
                let found = self.simulated(&machine);
                say!("{}", found.why);
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
        Ok(JudgedProgram {
            verdict,
            verdicts,
            auto: self,
        })
    }

    /// Records and simulates the program, and chooses a policy. If this fails, the program is left to Linux and the verdict holds
    /// for this run only.
    fn simulated(&self, machine: &Arc<LoadedMachine>) -> ChosenPolicy {
        let advice = Advice {
            duration: self.duration,
            ..Advice::new(vec![self.command.clone()])
        };
        match advice.on(Arc::clone(machine)).run() {
            Ok(Some(advised)) => found(&advised.rankings[0]),
            Ok(None) => {
                let why = "left to Linux: no policy has anything to do on this machine";
                ChosenPolicy::linux(why.into(), true)
            }
            Err(why) => ChosenPolicy::linux(format!("left to Linux, not judged: {why:#}"), false),
        }
    }

    fn plan(&self) -> TrialPlan {
        TrialPlan {
            policy: self.block,
            baseline: self.linux_block,
            settle: SETTLE,
            confidence: CONFIDENCE,
            margin: MARGIN,
        }
    }
}

impl JudgedProgram {
    /// Runs the program under its policy, in blocks that alternate with Linux, and updates the verdict.
    ///
    /// # Errors
    /// The program cannot be started or steered, or the verdicts cannot be written.
    pub fn run(mut self) -> anyhow::Result<JobResult> {
        let (done, ab_trial) = conduct(&self.auto, self.unless_it_disturbs())?;
        let Some(ab_trial) = ab_trial else {
            return Ok(done);
        };
        let foreground = ab_trial.foreground();
        let rejected = foreground.as_ref().filter(|f| f.rejection().is_some());
        let after = match rejected {
            Some(foreground) => Some(disturbing(&self.verdict, foreground.program())),
            None => learned(&self.verdict, &ab_trial.trial().overall()),
        };
        if let Some(said) = foreground.as_ref().and_then(|f| f.sentence()) {
            say!("{said}");
        }
        if let Some(after) = after {
            self.verdicts.remember(after);
            self.verdicts.save()?;
        }
        drop(foreground);
        Ok(done)
    }

    /// Policy of the verdict; `linux` if the foreground program waits longer under it.
    fn unless_it_disturbs(&self) -> &str {
        let disturbed = |program: &&String| self.verdict.disturbs.contains(program);
        match self.auto.foreground.as_ref().filter(disturbed) {
            Some(program) => {
                say!(
                    "left to Linux: {program} waits longer for a CPU under {}",
                    self.verdict.policy
                );
                LINUX
            }
            None => &self.verdict.policy,
        }
    }
}

/// Adds a foreground program that waits longer under the policy.
fn disturbing(before: &Remembered, program: &str) -> Remembered {
    let mut after = before.clone();
    after.disturbs.push(program.to_owned());
    after
}

/// Policy chosen for a program, with the reason.
struct ChosenPolicy {
    policy: String,
    why: String,
    /// True if the verdict depends only on the program and machine, so it is stored for later runs.
    holds: bool,
}

impl ChosenPolicy {
    fn linux(why: String, holds: bool) -> Self {
        let policy = LINUX.to_owned();
        Self { policy, why, holds }
    }
}

fn found(ranking: &Ranking) -> ChosenPolicy {
    let best = ranking.best().filter(|_| ranking.verdict == Verdict::Use);
    match best {
        Some(best) => ChosenPolicy {
            policy: best.policy.clone(),
            why: ranking.sentence(),
            holds: true,
        },
        None => ChosenPolicy::linux(ranking.sentence(), true),
    }
}

/// Runs the program in blocks that alternate between the policy and Linux. For the policy `linux`, there are no blocks and no
/// trial.
fn conduct(auto: &Auto, spec: &str) -> anyhow::Result<(JobResult, Option<AbTrial>)> {
    job::restore()?;
    let here = SteeredMachine::look(auto.machine.as_deref())?;
    let mut programs = programs::of_command(&auto.command)?;
    let mut ab_trial = (!reach::places_nothing(spec)).then(|| AbTrial::new(auto.plan()));
    let foreground = auto.foreground.as_deref();
    if let Some(program) = foreground {
        programs = programs::beside(programs, &programs::running(program)?)?;
        ab_trial = ab_trial.map(|trial| trial.with_foreground(program));
    }
    let spec = with_foreground(spec, foreground)?;
    let baseline = baseline_of(foreground);
    let policy = here.policy(&spec)?;
    let control = RunControl::default();
    control.lock().stand_back = true;
    let policy = match &ab_trial {
        Some(trial) => {
            let linux = here.policy(&baseline)?;
            let margin = Some(MARGIN);
            Box::new(AlternatingPolicies::new(
                trial, policy, linux, margin, &control,
            ))
        }
        None => policy,
    };
    ab_trial = ab_trial.map(|trial| trial.between(&spec, &baseline));
    let job = Job {
        placing: Placing::AFFINITY,
        seed: auto.seed,
        ab_trial: ab_trial.clone(),
        latency: foreground.map(|_| Bpf::Auto),
        ..Job::new(spec, policy, control, socket::name("auto"))
    };
    let done = job::conduct(job, here, programs)?;
    Ok((done, ab_trial))
}

/// Baseline of the trial.
fn baseline_of(foreground: Option<&str>) -> String {
    let with = |program| countersteer_policies::with_param(LINUX, FOREGROUND, program);
    foreground.map_or_else(|| LINUX.to_owned(), with)
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
