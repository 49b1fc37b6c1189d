//! Scores of a workload: throughput, fairness and energy.
//!
//! Input: completion times by program. Output: the metrics usual in the literature (definitions: PMCTrack, section 4.1.3;
//! Eyerman and Eeckhout 2008 for STP and ANTT).

use serde::{Deserialize, Serialize};

use crate::latency::Histogram;

/// Accuracy of a program's metrics if only samples of its run were simulated in detail, as half-widths of 95 % intervals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SampledAccuracy {
    /// Relative half-width of the interval of instructions per cycle.
    pub ipc_half_width: f64,
    /// Last-level cache misses per kilo-instruction.
    pub llc_mpki: f64,
    pub llc_mpki_half_width: f64,
    /// Fraction of the instructions that were simulated in detail.
    pub detailed: f64,
}

/// Measured outcome of one program, before scoring.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProgramOutcome {
    /// Name of the program, unique in the workload.
    pub name: String,
    #[serde(default)]
    pub nice: i8,
    /// Time of each finished run, in seconds.
    pub completions_s: Vec<f64>,
    /// Number of runs. The unfinished one counts as the completed fraction of its time alone. `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<f64>,
    /// Time of one run alone with all threads of the program on the whole machine, fast cores first. If it is unknown (0),
    /// scores that depend on it are NaN.
    pub alone_fast_s: f64,
    /// Time of one run alone on the slowest cores only, in seconds; 0 if unknown.
    pub alone_slow_s: f64,
    /// Number of retired instructions, including unfinished runs.
    pub instructions: f64,
    /// Number of instructions of one whole run. If it is unknown (0), only finished runs count as work.
    #[serde(default)]
    pub run_instructions: f64,
    /// Number of unhalted cycles.
    pub cycles: f64,
    /// Accuracy of the program's metrics if only samples of its run were simulated in detail; otherwise `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampled: Option<SampledAccuracy>,
    /// Run-queue latency of the program's threads; `None` if it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_queue_latency: Option<RunQueueLatency>,
}

/// Percentiles of run-queue latency, of all times that a thread got a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunQueueLatency {
    /// Median in milliseconds.
    pub p50_ms: f64,
    /// 99th percentile in milliseconds.
    pub p99_ms: f64,
}

impl RunQueueLatency {
    /// Returns the percentiles of a histogram; `None` if it is empty.
    #[must_use]
    pub fn of(waits: &Histogram) -> Option<Self> {
        let ms = |share| Some(waits.quantile_ns(share)? as f64 * 1e-6);
        Some(Self {
            p50_ms: ms(0.5)?,
            p99_ms: ms(0.99)?,
        })
    }
}

/// Measured outcome of a workload, before scoring.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Outcomes of the programs, in the workload's order.
    pub programs: Vec<ProgramOutcome>,
    /// Duration of the experiment in seconds.
    pub elapsed_s: f64,
    /// Energy of the whole machine during the experiment, in joules.
    pub energy_j: f64,
    /// Number of migrations of threads between CPUs.
    pub migrations: u64,
    /// Number of context switches.
    pub switches: u64,
    /// Number of lines evicted from the last-level caches, by the program that lost them, then by the program that evicted them.
    /// Empty if cache lines are not simulated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evicted: Vec<Vec<u64>>,
}

/// Scores of one program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramScore {
    /// Name of the program, unique in the workload.
    pub name: String,
    /// Geometric mean of the program's completion times, in seconds.
    pub completion_s: f64,
    /// Time of one run alone on the whole machine, fast cores first, in seconds.
    pub alone_fast_s: f64,
    /// Time of one run alone on the slowest cores only, in seconds.
    pub alone_slow_s: f64,
    /// Completion time divided by the time of one run alone on the whole machine.
    pub slowdown: f64,
    /// Instructions per unhalted cycle.
    pub ipc: f64,
    /// Number of finished runs.
    pub runs: usize,
    /// Accuracy of the program's metrics if only samples of its run were simulated in detail; otherwise `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampled: Option<SampledAccuracy>,
    /// Run-queue latency of the program's threads; `None` if it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_queue_latency: Option<RunQueueLatency>,
}

/// Scores of a workload and of its programs.
///
/// ```
/// use countersteer_model::score::{Outcome, ProgramOutcome, Score};
///
/// let program = |name: &str, completion_s: f64| ProgramOutcome {
///     name: name.to_owned(),
///     completions_s: vec![completion_s],
///     alone_fast_s: 10.0,
///     alone_slow_s: 20.0,
///     ..ProgramOutcome::default()
/// };
/// let score = Score::of(&Outcome {
///     programs: vec![program("a", 12.5), program("b", 20.0)],
///     elapsed_s: 20.0,
///     ..Outcome::default()
/// });
/// // Each program's speed over its speed alone: .8 and .5.
/// assert!((score.stp - 1.3).abs() < 1e-12);
/// assert!((score.unfairness - 1.6).abs() < 1e-12);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Aggregate speed-up (ASP): sum over programs of `alone_slow / completion - 1`.
    pub asp: f64,
    /// System throughput (STP): sum over programs of `1 / slowdown`.
    pub stp: f64,
    /// System throughput sustained over the whole experiment: sum over programs of runs per second times the time alone. `stp`
    /// uses geometric means of finished runs and grows if runs differ in length. This value does not, so an upper bound on it
    /// exists. `None` if the progress of unfinished runs is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sustained_stp: Option<f64>,
    /// Average normalised turnaround time (ANTT): mean slowdown of the programs.
    pub antt: f64,
    /// Ratio of the largest slowdown of a program to the smallest; 1 is fair.
    pub unfairness: f64,
    /// Ratio of the largest to the smallest slowdown, each multiplied by the weight of the program's nice value; 1 is fair with
    /// respect to the weights. PMCTrack (section 4.1.3) names the measure without a formula; this is the quantity that ACFS
    /// equalises.
    pub weighted_unfairness: f64,
    /// Jain's fairness index of the inverse slowdowns; 1 is fair.
    pub jain: f64,
    /// Mean instructions per cycle over the programs.
    pub ipc: f64,
    /// Energy of the whole machine during the experiment, in joules. Policies differ in the amount of work that is done in it.
    pub energy_j: f64,
    /// Energy of the whole machine per instruction of all programs, in nJ; 0 if energy or instructions are unknown.
    pub energy_per_instruction_nj: f64,
    /// Energy of the whole machine per completed run, in joules. The divisor is the number of programs times the geometric mean
    /// of their numbers of runs. A policy that favours programs with cheap instructions therefore has no advantage. 0 if energy
    /// or a program's runs are unknown.
    pub energy_per_run_j: f64,
    /// Energy-delay product in J s: energy per 1e9 instructions times time per 1e9 instructions. It does not depend on the
    /// amount of work in the experiment.
    pub edp_js: f64,
    /// Number of migrations of threads between CPUs.
    pub migrations: u64,
    /// Scores of the programs, in the workload's order.
    pub programs: Vec<ProgramScore>,
}

impl Score {
    /// Computes the scores of an outcome. The completion time of a program without a finished run is extrapolated from the
    /// fraction of the run that it completed. If that is unknown, it is the experiment's length.
    #[must_use]
    pub fn of(outcome: &Outcome) -> Self {
        let programs: Vec<ProgramScore> = outcome
            .programs
            .iter()
            .map(|p| score(p, outcome.elapsed_s))
            .collect();
        let n = programs.len().max(1) as f64;
        let sum = |f: fn(&ProgramScore) -> f64| programs.iter().map(f).sum::<f64>();
        let speeds = sum(|p| 1.0 / p.slowdown);
        let squares = sum(|p| p.slowdown.powi(-2));
        let weighted = programs.iter().zip(&outcome.programs);
        let weighted = weighted.map(|(score, p)| score.slowdown * nice_weight(p.nice));
        let done = outcome
            .programs
            .iter()
            .map(|p| Some(p.runs? * p.alone_fast_s));
        let done = done.sum::<Option<f64>>();
        let giga = outcome.programs.iter().map(|p| p.instructions).sum::<f64>() * 1e-9;
        Self {
            asp: sum(|p| p.alone_slow_s / p.completion_s - 1.0),
            stp: speeds,
            sustained_stp: done
                .map(|seconds| seconds / outcome.elapsed_s)
                .filter(|stp| stp.is_finite()),
            antt: sum(|p| p.slowdown) / n,
            unfairness: most_over_least(programs.iter().map(|p| p.slowdown)),
            weighted_unfairness: most_over_least(weighted),
            jain: if squares == 0.0 {
                1.0
            } else {
                speeds * speeds / (n * squares)
            },
            ipc: sum(|p| p.ipc) / n,
            energy_j: outcome.energy_j,
            energy_per_instruction_nj: per(outcome.energy_j, giga),
            energy_per_run_j: per(outcome.energy_j, runs(outcome)),
            edp_js: per(outcome.energy_j, giga) * per(outcome.elapsed_s, giga),
            migrations: outcome.migrations,
            programs,
        }
    }
}

/// Returns a quantity divided by the amount of work; 0 without work.
fn per(quantity: f64, work: f64) -> f64 {
    if work > 0.0 { quantity / work } else { 0.0 }
}

/// Returns the number of programs times the geometric mean of their numbers of runs. Unfinished runs count as fractions if the
/// instructions per run are known.
fn runs(outcome: &Outcome) -> f64 {
    let runs = |p: &ProgramOutcome| {
        if p.run_instructions > 0.0 {
            p.instructions / p.run_instructions
        } else {
            p.completions_s.len() as f64
        }
    };
    let n = outcome.programs.len() as f64;
    let logs: f64 = outcome.programs.iter().map(|p| runs(p).ln()).sum();
    n * (logs / n.max(1.0)).exp()
}

/// Returns the weight of a nice value relative to that of nice 0: a factor of 1.25 per step, as in the kernel's table.
#[must_use]
pub fn nice_weight(nice: i8) -> f64 {
    1.25f64.powi(-i32::from(nice))
}

/// Returns the ratio of the largest value to the smallest; 1 without values, NaN if one is NaN.
fn most_over_least(values: impl Iterator<Item = f64>) -> f64 {
    let range = |range: Option<(f64, f64)>, v: f64| {
        let (least, most) = range.unwrap_or((v, v));
        let either = v + least;
        Some(if either.is_nan() {
            (f64::NAN, f64::NAN)
        } else {
            (least.min(v), most.max(v))
        })
    };
    values
        .fold(None, range)
        .map_or(1.0, |(least, most)| most / least)
}

fn score(p: &ProgramOutcome, elapsed_s: f64) -> ProgramScore {
    let known = |seconds: f64| if seconds > 0.0 { seconds } else { f64::NAN };
    let runs = p.completions_s.len();
    let completion_s = if runs > 0 {
        (p.completions_s.iter().map(|c| c.ln()).sum::<f64>() / runs as f64).exp()
    } else {
        elapsed_s
            / p.runs
                .filter(|runs| *runs > 0.0)
                .map_or(1.0, |runs| runs.min(1.0))
    };
    ProgramScore {
        name: p.name.clone(),
        completion_s,
        alone_fast_s: known(p.alone_fast_s),
        alone_slow_s: known(p.alone_slow_s),
        slowdown: completion_s / known(p.alone_fast_s),
        ipc: if p.cycles > 0.0 {
            p.instructions / p.cycles
        } else {
            0.0
        },
        runs,
        sampled: p.sampled,
        run_queue_latency: p.run_queue_latency,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(completions_s: &[f64]) -> ProgramOutcome {
        ProgramOutcome {
            name: "p".into(),
            nice: 0,
            completions_s: completions_s.to_vec(),
            runs: Some(completions_s.len() as f64 + 0.5),
            alone_fast_s: 1.0,
            alone_slow_s: 4.0,
            instructions: 1e9,
            run_instructions: 0.0,
            cycles: 5e8,
            sampled: None,
            run_queue_latency: None,
        }
    }

    #[test]
    fn an_unfinished_run_is_extrapolated_from_its_completed_fraction() {
        let of = |runs| {
            let unfinished = ProgramOutcome {
                runs,
                ..program(&[])
            };
            let outcome = Outcome {
                programs: vec![unfinished],
                elapsed_s: 3.0,
                ..Outcome::default()
            };
            Score::of(&outcome).programs[0].completion_s
        };
        assert_eq!([Some(0.25), Some(0.0), None].map(of), [12.0, 3.0, 3.0]);
    }

    #[test]
    fn scores_follow_their_definitions() {
        let programs = vec![program(&[1.0, 4.0]), program(&[4.0])];
        let outcome = Outcome {
            programs,
            elapsed_s: 5.0,
            energy_j: 10.0,
            migrations: 3,
            switches: 0,
            evicted: Vec::new(),
        };
        let score = Score::of(&outcome);
        assert!(
            (score.programs[0].completion_s - 2.0).abs() < 1e-12,
            "geometric mean"
        );
        assert!((score.asp - 1.0).abs() < 1e-12);
        assert!((score.stp - 0.75).abs() < 1e-12);
        // 2.5 and 1.5 runs of one second each in five seconds.
        assert!((score.sustained_stp.unwrap() - 0.8).abs() < 1e-12);
        assert!((score.antt - 3.0).abs() < 1e-12);
        assert!((score.unfairness - 2.0).abs() < 1e-12);
        assert_eq!(score.unfairness, score.weighted_unfairness);
        assert!((score.jain - 0.5625 / (2.0 * 0.3125)).abs() < 1e-12);
        assert!((score.ipc - 2.0).abs() < 1e-12);
        assert!((score.energy_per_instruction_nj - 5.0).abs() < 1e-12);
        assert!((score.edp_js - 5.0 * 2.5).abs() < 1e-12);
        let runs = 2.0 * 2.0f64.sqrt();
        assert!((score.energy_per_run_j - 10.0 / runs).abs() < 1e-12);
    }

    #[test]
    fn energy_per_run_counts_unfinished_runs_in_part_and_no_program_more_than_another() {
        let energy_j = |runs: [f64; 2]| {
            let program = |runs| ProgramOutcome {
                instructions: runs * 4e9,
                run_instructions: 4e9,
                ..program(&[])
            };
            let outcome = Outcome {
                programs: runs.map(program).into(),
                energy_j: 12.0,
                ..Outcome::default()
            };
            Score::of(&outcome).energy_per_run_j
        };
        assert!((energy_j([1.5, 1.5]) - 4.0).abs() < 1e-12);
        assert!((energy_j([0.5, 4.5]) - 4.0).abs() < 1e-12);
        assert_eq!(energy_j([0.0, 4.5]), 0.0);
    }

    #[test]
    fn slowdowns_in_proportion_to_weights_are_fair_to_them() {
        let favoured = ProgramOutcome {
            nice: -1,
            ..program(&[4.0])
        };
        let programs = vec![program(&[5.0]), favoured];
        let score = Score::of(&Outcome {
            programs,
            ..Outcome::default()
        });
        assert!((score.unfairness - 1.25).abs() < 1e-12);
        assert!((score.weighted_unfairness - 1.0).abs() < 1e-12);
    }

    #[test]
    fn what_needs_runs_alone_is_no_number_without_them() {
        let unknown = ProgramOutcome {
            alone_fast_s: 0.0,
            alone_slow_s: 0.0,
            ..program(&[2.0])
        };
        let programs = vec![program(&[1.0]), unknown];
        let score = Score::of(&Outcome {
            programs,
            elapsed_s: 5.0,
            ..Outcome::default()
        });
        assert!(
            [
                score.asp,
                score.stp,
                score.antt,
                score.unfairness,
                score.jain
            ]
            .iter()
            .all(|s| s.is_nan())
        );
        assert!((score.programs[1].completion_s - 2.0).abs() < 1e-12);
        assert!((score.programs[0].slowdown - 1.0).abs() < 1e-12);
    }
}
