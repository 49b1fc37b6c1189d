//! Medians and ranges of scores over seeds.
//!
//! Input: runs. Output: a [`PolicySummary`] for each machine, workload and policy, in order of first appearance.

use super::CompareRun;

/// Direction in which a score is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    Higher,
    Lower,
    /// Neither a higher nor a lower value is better.
    Neither,
}

/// Row of the table of scores.
#[derive(Clone, Copy, Debug)]
pub struct ScoreMetric {
    pub key: &'static str,
    pub label: &'static str,
    /// Description of the score in a few words.
    pub prose: &'static str,
    /// Direction in which the score is better.
    pub better: Better,
    /// True if a measured value is never zero, so that zero means unknown.
    pub positive: bool,
    /// Returns the score's value for a run.
    pub of: fn(&CompareRun) -> f64,
}

/// Scores of comparison tables, in column order.
pub const METRICS: &[ScoreMetric] = &[
    ScoreMetric {
        key: "asp",
        label: "ASP",
        prose: "aggregate speed-up over the slowest cores",
        better: Better::Higher,
        positive: false,
        of: |r| r.asp,
    },
    ScoreMetric {
        key: "stp",
        label: "STP",
        prose: "system throughput",
        better: Better::Higher,
        positive: true,
        of: |r| r.stp,
    },
    ScoreMetric {
        key: "antt",
        label: "ANTT",
        prose: "mean slowdown",
        better: Better::Lower,
        positive: true,
        of: |r| r.antt,
    },
    ScoreMetric {
        key: "unfairness",
        label: "unfairness",
        prose: "largest over smallest slowdown",
        better: Better::Lower,
        positive: true,
        of: |r| r.unfairness,
    },
    ScoreMetric {
        key: "weighted_unfairness",
        label: "weighted unfairness",
        prose: "largest over smallest slowdown times the weight of the nice value",
        better: Better::Lower,
        positive: true,
        of: |r| r.weighted_unfairness,
    },
    ScoreMetric {
        key: "ipc",
        label: "IPC",
        prose: "instructions per cycle, mean over programs",
        better: Better::Higher,
        positive: true,
        of: |r| r.ipc,
    },
    ScoreMetric {
        key: "energy_per_instruction_nj",
        label: "nJ/instruction",
        prose: "energy of the whole machine per instruction",
        better: Better::Lower,
        positive: true,
        of: |r| r.energy_per_instruction_nj,
    },
    ScoreMetric {
        key: "energy_per_run_j",
        label: "J/run",
        prose: "energy of the whole machine per completed run, each program with the same weight",
        better: Better::Lower,
        positive: true,
        of: |r| r.energy_per_run_j,
    },
    ScoreMetric {
        key: "edp_js",
        label: "EDP (Js)",
        prose: "energy times delay, each per 10⁹ instructions",
        better: Better::Lower,
        positive: true,
        of: |r| r.edp_js,
    },
    ScoreMetric {
        key: "migrations",
        label: "migrations",
        prose: "moves between CPUs in the whole experiment, whose length differs between policies",
        better: Better::Neither,
        positive: false,
        of: |r| r.migrations as f64,
    },
];

/// Leading score if the speeds of programs alone are unknown, as in runs on real machines.
pub const COMPLETION: ScoreMetric = ScoreMetric {
    key: "completion_s",
    label: "completion (s)",
    prose: "geometric mean of the programs' completion times",
    better: Better::Lower,
    positive: true,
    of: |r| {
        let logs: f64 = r.programs.iter().map(|p| p.completion_s.ln()).sum();
        (logs / r.programs.len().max(1) as f64).exp()
    },
};

/// Returns the scores of a table in column order. Weighted unfairness is included only if programs differ in weight.
#[must_use]
pub fn columns(summaries: &[PolicySummary<'_>]) -> Vec<&'static ScoreMetric> {
    let mut runs = summaries.iter().flat_map(|s| &s.runs);
    let weighted = runs.any(|r| (r.weighted_unfairness - r.unfairness).abs() > 1e-9);
    let is_shown = |m: &&ScoreMetric| weighted || m.key != "weighted_unfairness";
    METRICS.iter().filter(is_shown).collect()
}

/// Returns the scores that at least one of these runs has, in column order.
#[must_use]
pub fn measured(summaries: &[PolicySummary<'_>]) -> Vec<&'static ScoreMetric> {
    let has = |m: &ScoreMetric| {
        let values = summaries.iter().flat_map(|s| &s.runs).map(|r| (m.of)(r));
        values
            .filter(|v| !v.is_nan())
            .any(|v| v != 0.0 || !m.positive)
    };
    let known = columns(summaries).into_iter().filter(|m| has(m));
    let first = (!has(&METRICS[0])).then_some(&COMPLETION);
    first.into_iter().chain(known).collect()
}

/// Median and range of a score over seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SeedSpread {
    /// Median; the mean of the two middle values if their number is even.
    pub median: f64,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
}

impl SeedSpread {
    /// Computes the median and range of values; all zero without values.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (values.first(), values.last()) else {
            return Self::default();
        };
        let half = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[half]
        } else {
            f64::midpoint(values[half - 1], values[half])
        };
        Self { median, min, max }
    }
}

/// Runs of one policy with one workload on one machine.
#[derive(Clone, Debug)]
pub struct PolicySummary<'a> {
    pub machine: &'a str,
    /// Name of the workload.
    pub workload: &'a str,
    /// Policy with its parameters.
    pub policy: &'a str,
    /// Runs, one per seed.
    pub runs: Vec<&'a CompareRun>,
}

impl PolicySummary<'_> {
    /// Returns the median and range of a score over the runs.
    #[must_use]
    pub fn spread(&self, metric: &ScoreMetric) -> SeedSpread {
        SeedSpread::of(self.runs.iter().map(|r| (metric.of)(r)))
    }

    /// True if both are of the same machine and workload.
    #[must_use]
    pub(crate) fn same_experiment(&self, other: &Self) -> bool {
        (self.machine, self.workload) == (other.machine, other.workload)
    }
}

impl ScoreMetric {
    /// True if value `a` of this score is better than value `b`.
    #[must_use]
    pub fn beats(&self, a: f64, b: f64) -> bool {
        match self.better {
            Better::Higher => a > b,
            Better::Lower => a < b,
            Better::Neither => false,
        }
    }
}

/// Groups runs by machine, workload and policy. Equal machines and workloads become adjacent; otherwise the order is
/// kept.
#[must_use]
pub fn summarise(runs: &[CompareRun]) -> Vec<PolicySummary<'_>> {
    let mut summaries: Vec<PolicySummary<'_>> = Vec::new();
    for run in runs {
        let same = |s: &&mut PolicySummary<'_>| {
            (s.machine, s.workload, s.policy) == (&*run.machine, &*run.workload, &*run.policy)
        };
        if let Some(summary) = summaries.iter_mut().find(same) {
            summary.runs.push(run);
            continue;
        }
        let new = PolicySummary {
            machine: &run.machine,
            workload: &run.workload,
            policy: &run.policy,
            runs: vec![run],
        };
        let after = summaries
            .iter()
            .rposition(|s| s.same_experiment(&new))
            .map_or(summaries.len(), |i| i + 1);
        summaries.insert(after, new);
    }
    summaries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_not_shown() {
        let program = |completion_s, alone| super::super::CompareProgram {
            name: "p".into(),
            completion_s,
            alone_fast_s: alone,
            alone_slow_s: alone,
            sf_interval: None,
            slowdown: completion_s / alone,
            sampled: None,
        };
        let run = |known: f64| CompareRun {
            machine: "m".into(),
            workload: "w".into(),
            policy: "linux".into(),
            seed: 1,
            asp: known - 1.0,
            stp: known,
            sustained_stp: None,
            bound_stp: None,
            best_partition_stp: None,
            antt: known,
            unfairness: known,
            weighted_unfairness: known,
            jain: known,
            ipc: if known.is_nan() { 0.0 } else { known },
            energy_j: 0.0,
            energy_per_instruction_nj: 0.0,
            energy_per_run_j: 0.0,
            edp_js: 0.0,
            migrations: 0,
            acted: None,
            programs: vec![program(2.0, known), program(8.0, known)],
        };
        let keys = |run: CompareRun| {
            measured(&summarise(&[run]))
                .iter()
                .map(|m| m.key)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            keys(run(1.0)),
            ["asp", "stp", "antt", "unfairness", "ipc", "migrations"]
        );
        assert_eq!(keys(run(f64::NAN)), ["completion_s", "migrations"]);
        assert!(((COMPLETION.of)(&run(1.0)) - 4.0).abs() < 1e-12);
    }

    #[test]
    fn medians_of_even_and_odd_numbers() {
        assert_eq!(
            SeedSpread::of([3.0, 1.0, 2.0]),
            SeedSpread {
                median: 2.0,
                min: 1.0,
                max: 3.0
            }
        );
        assert_eq!(
            SeedSpread::of([4.0, 1.0]),
            SeedSpread {
                median: 2.5,
                min: 1.0,
                max: 4.0
            }
        );
        assert_eq!(SeedSpread::of([]), SeedSpread::default());
    }
}
