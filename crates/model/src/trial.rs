//! A/B trials: a policy is compared with a baseline under the same live load, in randomised blocks.
//!
//! Input: observations, and the current arm. Output: for each program, the gain under the policy, with a confidence interval.
//!
//! Blocks come in pairs, one per arm, in random order, so that slow drifts (load, phases, temperature) affect both arms
//! equally. The beginning of each block is discarded, because caches and queues still reflect the other arm. Each pair yields
//! one logarithm of a ratio of rates per program. [`Evidence`] turns these into an interval that may be evaluated after every
//! pair. For a program, pairs are ignored in which it did not run in both blocks.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::RngExt;
use serde::{Deserialize, Serialize};

use crate::engine::Observation;
use crate::evidence::{Evidence, GainDecision};
use crate::policy::PolicyRng;
use crate::sample::Event;
use crate::units::{Nanos, ProgramId, ThreadId};

/// Time for which a program's name is kept after the last observation of the program. Counts of its last threads may arrive
/// late.
const NAME_KEPT: Nanos = Nanos::from_millis(10_000);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    Policy,
    /// Arm without the policy, usually plain Linux.
    Baseline,
}

/// Layout of the blocks of a trial, and the criteria for a decision.
#[derive(Clone, Copy, Debug)]
pub struct TrialPlan {
    /// Length of a block under the policy.
    pub policy: Nanos,
    /// Length of a block under the baseline.
    pub baseline: Nanos,
    /// Fraction of each block, 0 to 1, that is discarded at its beginning.
    pub settle: f64,
    /// Confidence level of the intervals, 0 to 1.
    pub confidence: f64,
    /// Equivalence margin: gains up to this value, in either direction, count as no difference; 0.01 is 1 %.
    pub margin: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrialMeasure {
    /// Work per second of wall time, in the unit in which the program reports it.
    Work,
    /// Instructions per second of wall time.
    Instructions,
    /// CPU time per second of wall time, used if instructions are not counted. This measures run-queue latency, but not the
    /// speed of running threads.
    CpuTime,
}

#[derive(Clone, Debug)]
pub struct Trial {
    plan: TrialPlan,
    first: Arm,
    /// True during the second block of a pair.
    second: bool,
    began: Nanos,
    last: Nanos,
    program_of: BTreeMap<ThreadId, Arc<str>>,
    /// Names of programs, with the time of the last observation of each. Threads that are never listed can be attributed only
    /// by their program.
    names: BTreeMap<ProgramId, (Arc<str>, Nanos)>,
    /// Work in the current pair by program and arm, and the time over which it was measured.
    done: BTreeMap<Arc<str>, [BlockWork; 2]>,
    time_s: [f64; 2],
    /// Confidence sequence of each program, from one log ratio per pair.
    ratios: BTreeMap<Arc<str>, Evidence>,
    overall: Evidence,
    measure: TrialMeasure,
    begun: bool,
}

/// Work of a program in one block.
#[derive(Clone, Copy, Debug, Default)]
struct BlockWork {
    work: f64,
    counted: f64,
}

/// Result of a trial for a program, or for all programs together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    pub program: String,
    /// Number of pairs in which the program ran under both arms.
    pub pairs: u64,
    /// Relative gain in speed under the policy: 0.05 is 5 %.
    pub gain: f64,
    /// Anytime-valid confidence interval of the gain, at the plan's confidence level. `None` while there are too few pairs.
    pub interval: Option<(f64, f64)>,
    /// Decision from the confidence interval; `None` while it allows none.
    pub verdict: Option<GainDecision>,
}

impl Trial {
    /// Creates a trial that starts with the first observation.
    #[must_use]
    pub fn new(plan: TrialPlan) -> Self {
        Self {
            plan,
            first: Arm::Baseline,
            second: false,
            began: Nanos::ZERO,
            last: Nanos::ZERO,
            program_of: BTreeMap::new(),
            names: BTreeMap::new(),
            done: BTreeMap::new(),
            time_s: [0.0; 2],
            ratios: BTreeMap::new(),
            overall: Evidence::default(),
            measure: TrialMeasure::CpuTime,
            begun: false,
        }
    }

    #[must_use]
    pub const fn arm(&self) -> Arm {
        match (self.first, self.second) {
            (first, false) => first,
            (Arm::Policy, true) => Arm::Baseline,
            (Arm::Baseline, true) => Arm::Policy,
        }
    }

    /// Adds an observation to the block of the current arm.
    pub fn observe(&mut self, seen: &Observation) {
        self.meet(seen);
        let settled = self.began + Nanos((self.length().0 as f64 * self.plan.settle) as u64);
        let column = self.arm() as usize;
        let span = seen.at.since(self.last);
        if self.begun && self.last >= settled {
            self.time_s[column] += span.as_secs_f64();
            for (thread, sample) in seen.samples.of_threads() {
                let counted = sample.counts.get(Event::Instructions);
                let work = sample.counts.get(Event::Work);
                self.measure = match (work, counted) {
                    (Some(_), _) => TrialMeasure::Work,
                    (None, Some(_)) if self.measure == TrialMeasure::CpuTime => {
                        TrialMeasure::Instructions
                    }
                    _ => self.measure,
                };
                let time = sample.ran().as_secs_f64();
                if let Some(program) = self.program_of.get(&thread) {
                    let done = &mut self.done.entry(Arc::clone(program)).or_default()[column];
                    done.work += work.unwrap_or_default();
                    done.counted += counted.unwrap_or(time);
                }
            }
        }
        self.last = seen.at;
        for event in &seen.events {
            if event.kind == crate::engine::ThreadEventKind::Exit {
                self.program_of.remove(&event.thread);
            }
        }
        for (thread, _) in &seen.ended {
            self.program_of.remove(thread);
        }
    }

    /// Records the programs of the observed threads, including threads that started and exited between two observations.
    fn meet(&mut self, seen: &Observation) {
        let listed = seen.threads.iter().map(|t| (t.program, &t.name));
        let programs = seen.programs.iter().map(|p| (p.id, &p.name));
        for (program, name) in listed.chain(programs) {
            let known = self.names.entry(program);
            known.or_insert_with(|| (Arc::clone(name), seen.at)).1 = seen.at;
        }
        for info in &seen.threads {
            self.program_of
                .entry(info.id)
                .or_insert_with(|| Arc::clone(&info.name));
        }
        for (thread, program) in &seen.ended {
            if let Some((name, heard_of)) = self.names.get_mut(program) {
                *heard_of = seen.at;
                self.program_of
                    .entry(*thread)
                    .or_insert_with(|| Arc::clone(name));
            }
        }
        self.names
            .retain(|_, (_, heard_of)| seen.at.since(*heard_of) <= NAME_KEPT);
    }

    /// Advances the trial to the time `now`. Returns true if the arm changes.
    pub fn turn(&mut self, now: Nanos, rng: &mut PolicyRng) -> bool {
        let before = self.arm();
        if !std::mem::replace(&mut self.begun, true) {
            self.first = draw(rng);
            (self.began, self.last) = (now, now);
            return self.arm() != before;
        }
        if now.since(self.began) < self.length() {
            return false;
        }
        self.began = now;
        self.second = !self.second;
        if !self.second {
            self.end_pair();
            self.first = draw(rng);
        }
        self.arm() != before
    }

    /// Drops the current pair: something else than the arm changed. The next call of [`Trial::turn`] begins another one.
    pub fn interrupt(&mut self) {
        self.first = self.arm();
        (self.begun, self.second) = (false, false);
        self.time_s = [0.0; 2];
        self.done.clear();
    }

    const fn length(&self) -> Nanos {
        match self.arm() {
            Arm::Policy => self.plan.policy,
            Arm::Baseline => self.plan.baseline,
        }
    }

    fn end_pair(&mut self) {
        let time_s = std::mem::take(&mut self.time_s);
        let mut logs = Vec::new();
        for (program, done) in std::mem::take(&mut self.done) {
            let has_work = done.iter().all(|arm| arm.work > 0.0);
            let rate = |arm: Arm| {
                let done = done[arm as usize];
                (if has_work { done.work } else { done.counted }) / time_s[arm as usize]
            };
            let log = (rate(Arm::Policy) / rate(Arm::Baseline)).ln();
            if log.is_finite() {
                logs.push(log);
                self.ratios.entry(program).or_default().push(log);
            }
        }
        if !logs.is_empty() {
            self.overall
                .push(logs.iter().sum::<f64>() / logs.len() as f64);
        }
    }

    /// Returns the quantity by which speed is measured. If only some programs report their work, the others are measured by
    /// instructions, or else CPU time.
    #[must_use]
    pub const fn measure(&self) -> TrialMeasure {
        self.measure
    }

    /// Returns the current gain of each program.
    #[must_use]
    pub fn gains(&self) -> Vec<Gain> {
        self.ratios
            .iter()
            .map(|(program, evidence)| self.gain(program, evidence))
            .collect()
    }

    /// Returns the current gain of all programs together: the geometric mean of their gains.
    #[must_use]
    pub fn overall(&self) -> Gain {
        self.gain("all", &self.overall)
    }

    fn gain(&self, program: &str, evidence: &Evidence) -> Gain {
        let TrialPlan {
            confidence, margin, ..
        } = self.plan;
        Gain {
            program: program.into(),
            pairs: evidence.pairs(),
            gain: evidence.gain(),
            interval: evidence.interval(confidence),
            verdict: evidence.verdict(confidence, margin),
        }
    }
}

fn draw(rng: &mut PolicyRng) -> Arm {
    if rng.random::<bool>() {
        Arm::Policy
    } else {
        Arm::Baseline
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ThreadInfo;
    use crate::sample::{Sample, Samples};
    use crate::units::{CoreTypeId, CpuId, ProgramId};
    use rand::SeedableRng;

    const MS: u64 = 1_000_000;

    fn plan(policy_ms: u64, baseline_ms: u64) -> TrialPlan {
        TrialPlan {
            policy: Nanos::from_millis(policy_ms),
            baseline: Nanos::from_millis(baseline_ms),
            settle: 0.2,
            confidence: 0.95,
            margin: 0.01,
        }
    }

    fn thread(id: u32) -> ThreadInfo {
        ThreadInfo {
            id: ThreadId(id),
            program: ProgramId(0),
            name: "p".into(),
            cpu: CpuId(0),
            runnable: true,
            nice: 0,
            allowed: Arc::default(),
            hint: None,
        }
    }

    /// Simulates one program with speed `fast` under the policy and 1 otherwise, with noise. The other arm has an after-effect
    /// in the first tenth of a block.
    fn run(plan: TrialPlan, fast: f64, noise: f64, seconds: u64) -> Trial {
        let mut trial = Trial::new(plan);
        let mut rng = PolicyRng::seed_from_u64(3);
        let mut since = 0;
        for step in 0..seconds * 10 {
            let at = Nanos(step * 100 * MS);
            let speed = if trial.arm() == Arm::Policy {
                fast
            } else {
                1.0
            };
            let speed = if step - since < 1 { 100.0 } else { speed }
                * (1.0 + noise * (rng.random::<f64>() - 0.5));
            let counts = [(Event::Instructions, speed * 1e8)];
            let tenth = Nanos::from_millis(100);
            let sample = Samples::of(
                Sample::of_thread(ThreadId(1), CpuId(0), CoreTypeId(0), at, tenth),
                1,
                &counts,
            );
            let seen = Observation {
                at,
                threads: vec![thread(1)],
                samples: sample,
                ..Observation::default()
            };
            trial.observe(&seen);
            if trial.turn(at, &mut rng) {
                since = step + 1;
            }
        }
        trial
    }

    #[test]
    fn an_interrupted_pair_does_not_count_and_the_arm_stays_until_the_next_turn() {
        let mut trial = run(plan(1000, 1000), 2.0, 0.0, 10);
        let (pairs, arm) = (trial.overall().pairs, trial.arm());
        trial.interrupt();
        assert_eq!((trial.arm(), trial.overall().pairs), (arm, pairs));
        let mut rng = PolicyRng::seed_from_u64(4);
        let end = Nanos(10_000 * MS);
        assert_eq!(trial.turn(end, &mut rng), trial.arm() != arm);
        // The first block of a pair begins, so its end is not that of a pair.
        trial.turn(end + Nanos::from_millis(1000), &mut rng);
        assert_eq!(trial.overall().pairs, pairs);
    }

    #[test]
    fn a_gain_is_found_and_after_effects_are_left_out() {
        for plan in [plan(1000, 1000), plan(1800, 600)] {
            let trial = run(plan, 1.25, 0.02, 60);
            let gains = trial.gains();
            let (low, high) = gains[0].interval.unwrap();
            assert!(gains[0].pairs > 15, "{gains:?}");
            assert!((gains[0].gain - 0.25).abs() < 0.01, "{gains:?}");
            assert!(low > 0.2 && low < gains[0].gain && high < 0.3, "{gains:?}");
            assert_eq!(trial.measure(), TrialMeasure::Instructions);
        }
    }

    #[test]
    fn noise_without_a_gain_stays_undecided() {
        let trial = run(plan(1000, 1000), 1.0, 0.5, 60);
        let (low, high) = trial.overall().interval.unwrap();
        assert!(low < 0.0 && high > 0.0, "{low} {high}");
    }

    #[test]
    fn one_pair_has_no_interval() {
        let trial = run(plan(1000, 1000), 1.1, 0.0, 3);
        assert_eq!((trial.overall().pairs, trial.overall().interval), (1, None));
        assert_eq!(run(plan(1000, 1000), 1.1, 0.0, 1).overall().pairs, 0);
    }

    #[test]
    fn threads_that_are_never_listed_count_for_their_program() {
        let mut trial = Trial::new(plan(1000, 1000));
        let mut rng = PolicyRng::seed_from_u64(3);
        for step in 0..600 {
            let at = Nanos(u64::from(step) * 100 * MS);
            let instructions = if trial.arm() == Arm::Policy { 2e8 } else { 1e8 };
            // A job that started and exited since the last observation.
            let job = ThreadId(100 + step);
            let tenth = Nanos::from_millis(100);
            let head = Sample::of_thread(job, CpuId(0), CoreTypeId(0), at, tenth);
            trial.observe(&Observation {
                at,
                threads: vec![thread(1)],
                ended: vec![(job, ProgramId(0))],
                samples: Samples::of(head, 1, &[(Event::Instructions, instructions)]),
                ..Observation::default()
            });
            trial.turn(at, &mut rng);
        }
        let gains = trial.gains();
        assert_eq!(gains.len(), 1, "{gains:?}");
        assert!((gains[0].gain - 1.0).abs() < 0.01, "{gains:?}");
        assert_eq!(trial.program_of.len(), 1, "jobs are forgotten");
    }

    #[test]
    fn names_outlive_threads_a_little_and_are_forgotten_then() {
        let mut trial = Trial::new(plan(1000, 1000));
        let seen =
            |ms: u64, threads: Vec<ThreadInfo>, ended: Vec<(ThreadId, ProgramId)>| Observation {
                at: Nanos(ms * MS),
                threads,
                ended,
                ..Observation::default()
            };
        trial.observe(&seen(0, vec![thread(1)], Vec::new()));
        trial.observe(&seen(9_000, Vec::new(), vec![(ThreadId(7), ProgramId(0))]));
        trial.observe(&seen(18_000, Vec::new(), Vec::new()));
        assert_eq!(trial.names.len(), 1);
        trial.observe(&seen(20_000, Vec::new(), Vec::new()));
        assert!(trial.names.is_empty());
    }
}
