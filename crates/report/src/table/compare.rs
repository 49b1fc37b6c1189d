//! JSON of a comparison.
//!
//! Input: names, seed and [`Score`]. Output: [`Comparison`], whose fields other programs rely on.

use countersteer_model::machine::SfSpread;
use countersteer_model::score::{ProgramScore, Score};
use serde::{Deserialize, Serialize};

use crate::judge::Ranking;
use crate::record::Record;

/// Schema name of a comparison.
pub const COMPARE_SCHEMA: &str = "countersteer.compare/1";

/// Several runs side by side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// `countersteer.compare/1`.
    pub schema: String,
    /// Runs, in the order of the request.
    pub runs: Vec<CompareRun>,
}

/// Comparison with its conclusions about policies: the output of `steer compare --json`.
#[derive(Clone, Debug, Serialize)]
pub struct Judged<'a> {
    #[serde(flatten)]
    pub comparison: Comparison,
    pub rankings: &'a [Ranking],
    /// Verdicts in words.
    pub verdict: String,
}

impl<'a> Judged<'a> {
    /// Creates the output from runs with their rankings.
    #[must_use]
    pub fn new(runs: Vec<CompareRun>, rankings: &'a [Ranking]) -> Self {
        let sentences: Vec<String> = rankings.iter().map(Ranking::sentence).collect();
        Self {
            comparison: Comparison::new(runs),
            rankings,
            verdict: sentences.join(" "),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompareRun {
    pub machine: String,
    /// Name of the workload.
    pub workload: String,
    /// Policy with its parameters.
    pub policy: String,
    pub seed: u64,
    /// Aggregate speed-up over the slowest cores.
    pub asp: f64,
    pub stp: f64,
    /// System throughput by runs done per second of the whole experiment; unfinished runs count in part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sustained_stp: Option<f64>,
    /// Upper bound of `sustained_stp` for all policies, equal for all runs of a machine and a workload. Absent if it was not
    /// requested or does not hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_stp: Option<f64>,
    /// System throughput of the best division of the last-level cache's ways, with a core and memory for each program alone.
    /// Absent if it was not requested, or if programs have several threads or caches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_partition_stp: Option<f64>,
    pub antt: f64,
    pub unfairness: f64,
    /// Unfairness of slowdowns multiplied by the weights of the programs' nice values.
    #[serde(default)]
    pub weighted_unfairness: f64,
    pub jain: f64,
    /// Mean instructions per cycle.
    pub ipc: f64,
    /// Energy of the whole machine over the experiment. The work differs between policies, so it does not measure efficiency.
    pub energy_j: f64,
    /// Energy of the whole machine per instruction.
    #[serde(default)]
    pub energy_per_instruction_nj: f64,
    /// Energy of the whole machine per completed run, with equal weights of programs.
    #[serde(default)]
    pub energy_per_run_j: f64,
    /// Energy-delay product per 1e18 instructions squared.
    pub edp_js: f64,
    /// Number of migrations of threads between CPUs.
    pub migrations: u64,
    /// True if the policy placed a thread or partitioned a cache; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acted: Option<bool>,
    /// Programs in the workload's order.
    pub programs: Vec<CompareProgram>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompareProgram {
    /// Unique name in the workload.
    pub name: String,
    /// Geometric mean of its completion times.
    pub completion_s: f64,
    /// Completion time alone on the whole machine, fast cores first.
    pub alone_fast_s: f64,
    /// Completion time alone on the slowest cores only.
    pub alone_slow_s: f64,
    /// Interval of nine of ten measured speed-up factors, given the simulated one (alone on slow over alone on fast cores).
    /// Absent if cores are equal for the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sf_interval: Option<(f64, f64)>,
    /// Completion time divided by the time alone on the whole machine.
    pub slowdown: f64,
    /// Instructions per cycle and last-level misses with intervals, if the run was sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampled: Option<CompareSampled>,
}

/// Metrics of a sampled run with half-widths of their 95 % intervals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompareSampled {
    /// Instructions per cycle.
    pub ipc: f64,
    pub ipc_half_width: f64,
    /// Last-level misses per kilo-instruction.
    pub llc_mpki: f64,
    pub llc_mpki_half_width: f64,
    /// Share of the instructions that were simulated in detail.
    pub detailed: f64,
}

impl Comparison {
    #[must_use]
    pub fn new(runs: Vec<CompareRun>) -> Self {
        Self {
            schema: COMPARE_SCHEMA.into(),
            runs,
        }
    }
}

impl CompareRun {
    /// Creates the scores of one run with its names.
    #[must_use]
    pub fn new(machine: &str, workload: &str, policy: &str, seed: u64, score: &Score) -> Self {
        Self {
            machine: machine.into(),
            workload: workload.into(),
            policy: policy.into(),
            seed,
            asp: score.asp,
            stp: score.stp,
            sustained_stp: score.sustained_stp,
            bound_stp: None,
            best_partition_stp: None,
            antt: score.antt,
            unfairness: score.unfairness,
            weighted_unfairness: score.weighted_unfairness,
            jain: score.jain,
            ipc: score.ipc,
            energy_j: score.energy_j,
            energy_per_instruction_nj: score.energy_per_instruction_nj,
            energy_per_run_j: score.energy_per_run_j,
            edp_js: score.edp_js,
            migrations: score.migrations,
            acted: None,
            programs: (score.programs.iter())
                .map(|p| CompareProgram {
                    name: p.name.clone(),
                    completion_s: p.completion_s,
                    alone_fast_s: p.alone_fast_s,
                    alone_slow_s: p.alone_slow_s,
                    sf_interval: sf_interval(p),
                    slowdown: p.slowdown,
                    sampled: p.sampled.map(|s| CompareSampled {
                        ipc: p.ipc,
                        ipc_half_width: p.ipc * s.ipc_half_width,
                        llc_mpki: s.llc_mpki,
                        llc_mpki_half_width: s.llc_mpki_half_width,
                        detailed: s.detailed,
                    }),
                })
                .collect(),
        }
    }

    /// Returns the scores of a recorded run.
    #[must_use]
    pub fn of_record(record: &Record) -> Self {
        let m = &record.manifest;
        Self::new(
            &m.machine.name,
            &m.workload.name,
            &m.policy,
            m.seed,
            &record.score(),
        )
    }
}

/// Relative difference up to which times alone are equal.
const EQUAL: f64 = 1e-6;

fn sf_interval(p: &ProgramScore) -> Option<(f64, f64)> {
    let sf = p.alone_slow_s / p.alone_fast_s;
    (sf > 1.0 + EQUAL).then(|| SfSpread::KNOWN.interval(sf))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulated_factors_have_the_spread_of_the_model() {
        let alone = |slow: f64| ProgramScore {
            name: "p".into(),
            completion_s: 3.0,
            alone_fast_s: 2.0,
            alone_slow_s: slow,
            slowdown: 1.5,
            ipc: 1.0,
            runs: 3,
            sampled: None,
        };
        let SfSpread { low, high, .. } = SfSpread::KNOWN;
        assert_eq!(sf_interval(&alone(4.0)), Some((2.0 * low, 2.0 * high)));
        assert_eq!(sf_interval(&alone(2.0)), None);
    }
}
