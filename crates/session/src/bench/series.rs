//! Rounds of timed runs: each arm once per round, in random order, until the limits are reached.
//!
//! Input: arms, limits. Output: runs by arm. The n-th runs of all arms are of one round, so that their ratios are pairs.

use std::path::Path;
use std::time::{Duration, Instant};

use countersteer_model::evidence::Evidence;
use countersteer_model::policy::PolicyRng;
use countersteer_report::judge::Median;
use countersteer_sysfs::launch::ExitEnding;
use rand::{RngExt, SeedableRng};

use super::commands::{TimedCommand, filled, words_of};
use super::disturbance::{Disturbance, Observer};
use super::error::BenchError;
use super::places::NamedCpus;
use super::runner::{CommandRunner, EndedRun, RunResult};
use crate::notice;

/// Confidence of all intervals.
pub const CONFIDENCE: f64 = 0.95;
/// Rounds of a series that has no other limit, and measured time of each arm.
const ROUNDS: usize = 10;
const ARM_S: f64 = 3.0;
/// Rounds in any case.
const MOST_ROUNDS: usize = 1_000;
/// Time after which progress is shown.
const SOON: Duration = Duration::from_secs(2);

/// Command on CPUs.
#[derive(Clone, Debug)]
pub struct BenchArm {
    pub command: TimedCommand,
    pub place: NamedCpus,
}

/// Measurements of an arm.
#[derive(Clone, Debug, Default)]
pub struct MeasuredArm {
    pub runs: Vec<EndedRun>,
    pub disturbance: Disturbance,
}

/// End of a series.
#[derive(Clone, Copy, Debug, Default)]
pub struct SeriesLimits {
    /// Number of rounds; nothing else counts then.
    pub repeat: Option<u64>,
    /// Half-width of each median's interval relative to it at which to end.
    pub within: Option<f64>,
    /// Equivalence margin: the series ends when all arms are decided against the first.
    pub margin: Option<f64>,
    /// Time after which no round begins.
    pub most: Option<Duration>,
}

/// Conditions of every run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Conditions<'a> {
    /// Shell command before each run.
    pub prepare: Option<&'a str>,
    pub ignores_failure: bool,
    /// File that receives what the command writes.
    pub output: Option<&'a Path>,
}

/// Arms, and how they are run.
pub struct ArmSeries<'a> {
    pub arms: &'a [BenchArm],
    pub warmups: u64,
    pub conditions: Conditions<'a>,
    pub limits: SeriesLimits,
    pub seed: u64,
}

impl MeasuredArm {
    /// Elapsed times in seconds, in the order of the runs.
    pub fn times_s(&self) -> Vec<f64> {
        self.runs.iter().map(|run| run.elapsed_s).collect()
    }

    /// Median of the elapsed times.
    pub fn median(&self) -> Option<Median> {
        Median::of(&self.times_s(), CONFIDENCE)
    }

    /// Evidence about the speed of this arm against another one, by rounds.
    pub fn against(&self, other: &Self) -> Evidence {
        ratios(other.times_s().into_iter().zip(self.times_s()))
    }

    /// Evidence about the times of the second half of the runs against those of the first.
    pub fn drift(&self) -> Evidence {
        let times = self.times_s();
        let half = times.len() / 2;
        ratios(
            times[times.len() - half..]
                .iter()
                .copied()
                .zip(times.iter().copied()),
        )
    }
}

fn ratios(pairs: impl Iterator<Item = (f64, f64)>) -> Evidence {
    let mut evidence = Evidence::default();
    let logs = pairs
        .map(|(of, by)| (of / by).ln())
        .filter(|log| log.is_finite());
    logs.for_each(|log| evidence.push(log));
    evidence
}

/// Runs the series; `measured` has an entry for each arm, and what is known so far at any time. Returns the signal that ended it.
///
/// # Errors
/// A run fails or cannot be started.
pub fn measure(
    series: &ArmSeries<'_>,
    runner: &mut CommandRunner,
    observer: &mut Observer,
    measured: &mut [MeasuredArm],
) -> anyhow::Result<Option<i32>> {
    let mut rng = PolicyRng::seed_from_u64(series.seed);
    let mut order: Vec<usize> = (0..series.arms.len()).collect();
    let begun = Instant::now();
    let mut bar = None;
    for round in 0..MOST_ROUNDS as u64 + series.warmups {
        let is_warmup = round < series.warmups;
        let rounds = round.saturating_sub(series.warmups);
        if !is_warmup && series.limits.is_reached(rounds, measured, begun.elapsed()) {
            break;
        }
        if begun.elapsed() >= SOON {
            bar.get_or_insert_with(|| notice::busy("timing"))
                .set_message(format!(
                    "{} {} of {} arms",
                    if is_warmup { "warm-up, round" } else { "round" },
                    rounds + 1,
                    series.arms.len()
                ));
        }
        // Whatever changes over time falls on all arms alike.
        for row in (1..order.len()).rev() {
            order.swap(row, rng.random_range(0..=row));
        }
        for row in order.clone() {
            let arm = &series.arms[row];
            let run = match once(arm, series.conditions, round + 1, runner, observer)? {
                RunResult::Interrupted(signal) => return Ok(Some(signal)),
                RunResult::Ended(run) => run,
            };
            if !is_warmup {
                let measured = &mut measured[row];
                observer.end(&arm.place, &run, &mut measured.disturbance);
                measured.runs.push(run);
            }
        }
    }
    Ok(None)
}

/// Prepares and runs an arm for the `nth` time, after the observer took the state before it.
///
/// # Errors
/// The run fails or cannot be started.
pub fn once(
    arm: &BenchArm,
    conditions: Conditions<'_>,
    nth: u64,
    runner: &mut CommandRunner,
    observer: &mut Observer,
) -> anyhow::Result<RunResult> {
    if let Some(signal) = prepared(conditions, arm, runner)? {
        return Ok(RunResult::Interrupted(signal));
    }
    observer.begin();
    let done = runner.run(&arm.command.words, arm.place.mask(), conditions.output)?;
    match done {
        RunResult::Ended(run)
            if run.ending != ExitEnding::Exited(0) && !conditions.ignores_failure =>
        {
            Err(BenchError::Failed {
                command: arm.command.text.clone(),
                ending: run.ending,
                run: nth,
            }
            .into())
        }
        _ => Ok(done),
    }
}

/// Runs the preparation of a run; returns the signal that ended it.
fn prepared(
    conditions: Conditions<'_>,
    arm: &BenchArm,
    runner: &mut CommandRunner,
) -> anyhow::Result<Option<i32>> {
    let Some(prepare) = conditions.prepare else {
        return Ok(None);
    };
    let command = filled(prepare, &arm.command.parameters);
    match runner.run(&words_of(&command), None, None)? {
        RunResult::Interrupted(signal) => Ok(Some(signal)),
        RunResult::Ended(run) if run.ending == ExitEnding::Exited(0) => Ok(None),
        RunResult::Ended(run) => Err(BenchError::Unprepared {
            command,
            ending: run.ending,
        }
        .into()),
    }
}

impl SeriesLimits {
    fn is_reached(&self, rounds: u64, measured: &[MeasuredArm], took: Duration) -> bool {
        if let Some(repeat) = self.repeat {
            return rounds >= repeat;
        }
        let rounds = rounds as usize;
        if rounds >= MOST_ROUNDS || self.most.is_some_and(|most| took >= most) {
            return true;
        }
        if rounds < ROUNDS {
            return false;
        }
        if let Some(within) = self.within {
            return is_looked_at(rounds) && measured.iter().all(|m| m.is_within(within));
        }
        match (self.margin, measured.split_first()) {
            (Some(margin), Some((first, others))) => others
                .iter()
                .all(|m| m.against(first).verdict(CONFIDENCE, margin).is_some()),
            _ => measured
                .iter()
                .all(|m| m.times_s().iter().sum::<f64>() >= ARM_S),
        }
    }
}

impl MeasuredArm {
    fn is_within(&self, within: f64) -> bool {
        let precision = self.median().and_then(|m| m.precision());
        precision.is_some_and(|p| p <= within)
    }
}

/// True after 10, 20, 40, ... rounds. An interval that is looked at after every run ends a series when it is narrow by chance.
/// It then contains the median less often than it says; with few looks it keeps its coverage.
const fn is_looked_at(rounds: usize) -> bool {
    rounds.is_multiple_of(ROUNDS) && (rounds / ROUNDS).is_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(times_s: &[f64]) -> MeasuredArm {
        let run = |s: &f64| EndedRun {
            elapsed_s: *s,
            user_s: 0.0,
            system_s: 0.0,
            ending: ExitEnding::Exited(0),
        };
        MeasuredArm {
            runs: times_s.iter().map(run).collect(),
            disturbance: Disturbance::default(),
        }
    }

    /// Times of 1 s with noise, drawn again for each case.
    fn noisy(rng: &mut PolicyRng, runs: usize) -> Vec<f64> {
        let mut one = || 0.02 * ((0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0);
        (0..runs).map(|_| 1.0 + one()).collect()
    }

    #[test]
    fn a_series_ends_when_it_was_asked_to() {
        let calm = [measured(&[1.0; 20]), measured(&[2.0; 20])];
        let soon = Duration::from_secs(1);
        let reached = |limits: SeriesLimits, rounds| limits.is_reached(rounds, &calm, soon);
        let repeat = |n| SeriesLimits {
            repeat: Some(n),
            ..SeriesLimits::default()
        };
        assert!(!reached(repeat(30), 29) && reached(repeat(30), 30) && reached(repeat(2), 2));
        assert!(!reached(SeriesLimits::default(), 9) && reached(SeriesLimits::default(), 10));
        let within = SeriesLimits {
            within: Some(0.01),
            ..SeriesLimits::default()
        };
        assert!(!reached(within, 19) && reached(within, 20));
        let decided = SeriesLimits {
            margin: Some(0.01),
            ..SeriesLimits::default()
        };
        assert!(reached(decided, 10));
        let most = SeriesLimits {
            most: Some(soon),
            ..SeriesLimits::default()
        };
        assert!(reached(most, 1));
        let short = [measured(&[0.01; 10])];
        assert!(!SeriesLimits::default().is_reached(10, &short, soon));
    }

    #[test]
    fn intervals_that_end_a_series_keep_their_coverage() {
        let mut rng = PolicyRng::seed_from_u64(9);
        let limits = SeriesLimits {
            within: Some(0.01),
            ..SeriesLimits::default()
        };
        let mut holds = 0;
        for _ in 0..400 {
            let all = noisy(&mut rng, 160);
            let rounds = (10..160)
                .find(|n| limits.is_reached(*n as u64, &[measured(&all[..*n])], Duration::ZERO));
            let found = measured(&all[..rounds.unwrap_or(160)]).median().unwrap();
            let (low, high) = found.interval.unwrap();
            holds += usize::from((low..=high).contains(&1.0));
        }
        let share = holds as f64 / 400.0;
        println!("--within: the interval contains the median in {share} of 400 cases");
        assert!((0.92..=0.97).contains(&share), "{share}");
    }

    #[test]
    fn arms_are_compared_round_by_round_and_drift_is_seen() {
        let mut rng = PolicyRng::seed_from_u64(2);
        let first = noisy(&mut rng, 40);
        let slower: Vec<f64> = first.iter().map(|s| s * 1.5).collect();
        let gain = measured(&slower).against(&measured(&first));
        assert!((gain.gain() - (1.0 / 1.5 - 1.0)).abs() < 1e-9);
        assert_eq!(gain.pairs(), 40);
        let calm = measured(&first).drift().interval(CONFIDENCE).unwrap();
        assert!(calm.0 < 0.0 && calm.1 > 0.0, "{calm:?}");
        let warm: Vec<f64> = (0..40)
            .map(|i| first[i] * (1.0 + 0.005 * i as f64))
            .collect();
        let drift = measured(&warm).drift();
        assert!(
            drift.interval(CONFIDENCE).unwrap().0 > 0.05,
            "{}",
            drift.gain()
        );
    }
}
