//! JSON output of a comparison.
//!
//! Input: names, seed and [`Score`]. Output: a [`Comparison`]. Other programs rely on its field names.

use countersteer_model::machine::SfSpread;
use countersteer_model::score::{ProgramScore, Score};
use serde::{Deserialize, Serialize};

use crate::judge::Ranking;
use crate::record::Record;

/// Schema identifier of a comparison.
pub const COMPARE_SCHEMA: &str = "countersteer.compare/1";

/// Comparison: the scores of several runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// Schema identifier, `countersteer.compare/1`.
    pub schema: String,
    /// Scores of the runs, in the order of the request.
    pub runs: Vec<CompareRun>,
}

/// Comparison with its conclusions about policies: the output of `steer compare --json`.
#[derive(Clone, Debug, Serialize)]
pub struct JudgedComparison<'a> {
    #[serde(flatten)]
    pub comparison: Comparison,
    pub rankings: &'a [Ranking],
    /// Recommendations of all rankings, as text.
    pub verdict: String,
}

impl<'a> JudgedComparison<'a> {
    /// Creates the output from runs and their rankings.
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
    /// Seed of the run.
    pub seed: u64,
    /// Aggregate speed-up over the slowest cores.
    pub asp: f64,
    /// System throughput: sum over programs of 1 / slowdown.
    pub stp: f64,
    /// System throughput by runs per second over the whole experiment; unfinished runs count as fractions. `None` if their
    /// progress is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sustained_stp: Option<f64>,
    /// Upper bound on `sustained_stp` for all policies, equal for all runs of a machine and a workload. `None` if it was not
    /// requested or does not apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_stp: Option<f64>,
    /// System throughput of the best division of the last-level cache's ways, if each program has its own core and memory.
    /// `None` if it was not requested, or if programs have several threads or caches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_partition_stp: Option<f64>,
    /// Average normalised turnaround time: mean slowdown.
    pub antt: f64,
    /// Ratio of the largest slowdown to the smallest.
    pub unfairness: f64,
    /// Ratio of the largest slowdown to the smallest, each multiplied by the weight of the program's nice value.
    #[serde(default)]
    pub weighted_unfairness: f64,
    /// Jain's fairness index of the inverse slowdowns.
    pub jain: f64,
    /// Mean instructions per cycle over the programs.
    pub ipc: f64,
    /// Energy of the whole machine during the experiment, in joules. It is no measure of efficiency, because policies differ
    /// in the amount of work done.
    pub energy_j: f64,
    /// Energy of the whole machine per instruction, in nJ.
    #[serde(default)]
    pub energy_per_instruction_nj: f64,
    /// Energy of the whole machine per completed run in joules, with equal weights of programs.
    #[serde(default)]
    pub energy_per_run_j: f64,
    /// Energy-delay product: energy per 1e9 instructions times time per 1e9 instructions, in J s.
    pub edp_js: f64,
    /// Number of migrations of threads between CPUs.
    pub migrations: u64,
    /// True if the policy placed a thread or partitioned a cache; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acted: Option<bool>,
    /// Scores of the programs, in the workload's order.
    pub programs: Vec<CompareProgram>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompareProgram {
    /// Name of the program, unique in the workload.
    pub name: String,
    /// Geometric mean of the program's completion times, in seconds.
    pub completion_s: f64,
    /// Completion time alone on the whole machine, fast cores first, in seconds.
    pub alone_fast_s: f64,
    /// Completion time alone on the slowest cores only, in seconds.
    pub alone_slow_s: f64,
    /// Interval that contains nine of ten measured speed-up factors, given the simulated one (time alone on slow cores
    /// divided by that on fast cores). `None` if the cores are equal for the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sf_interval: Option<(f64, f64)>,
    /// Completion time divided by the completion time alone on the whole machine.
    pub slowdown: f64,
    /// Metrics with confidence intervals if only samples of the run were simulated in detail; otherwise `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampled: Option<CompareSampled>,
}

/// Metrics of a sampled run, with the half-widths of their 95 % intervals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompareSampled {
    /// Instructions per cycle.
    pub ipc: f64,
    /// Half-width of its interval, in the same unit.
    pub ipc_half_width: f64,
    /// Last-level cache misses per kilo-instruction.
    pub llc_mpki: f64,
    /// Half-width of its interval, in the same unit.
    pub llc_mpki_half_width: f64,
    /// Fraction of the instructions that were simulated in detail.
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
    /// Creates the scores of one run with the names of its inputs.
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

/// Tolerance: maximum relative difference at which two times alone count as equal.
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
            run_queue_latency: None,
        };
        let SfSpread { low, high, .. } = SfSpread::KNOWN;
        assert_eq!(sf_interval(&alone(4.0)), Some((2.0 * low, 2.0 * high)));
        assert_eq!(sf_interval(&alone(2.0)), None);
    }
}
