//! Distance of policies from an upper bound on throughput.
//!
//! Input: runs with a bound and their sustained throughput. Output: a sentence about the bound and the closest policy.

use serde::Serialize;

use super::figure::percent;
use super::ranked::Ranked;
use crate::table::{CompareRun, PolicySummary, SeedSpread};

/// Upper bound and the policy closest to it. Changes are those of sustained throughput relative to `linux`, as medians
/// over seeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bounded {
    /// Upper bound on sustained system throughput.
    pub stp: f64,
    /// Upper bound on the change relative to `linux`.
    pub most: f64,
    /// Usable policy with the largest sustained throughput, with its change; `None` if there is none.
    pub nearest: Option<(String, f64)>,
    /// Change of STP under the best partition of the last-level cache's ways; `None` if no partition was searched for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_partition: Option<f64>,
}

impl Bounded {
    pub(super) fn of(
        linux: &PolicySummary<'_>,
        deployable: &[Ranked],
        rivals: &[&PolicySummary<'_>],
    ) -> Option<Self> {
        let stp = linux.runs.iter().find_map(|run| run.bound_stp)?;
        let median = |changes: Vec<f64>| {
            let known = !changes.is_empty() && changes.iter().all(|c| c.is_finite());
            known.then(|| SeedSpread::of(changes).median)
        };
        let over = |base: &CompareRun, stp: Option<f64>| Some(stp? / base.sustained_stp? - 1.0);
        let change = |policy: &str| {
            let runs = &rivals.iter().find(|s| s.policy == policy)?.runs;
            let of = |run: &&CompareRun| {
                let base = linux.runs.iter().find(|base| base.seed == run.seed)?;
                over(base, run.sustained_stp)
            };
            median(runs.iter().filter_map(of).collect())
        };
        let most = linux.runs.iter().filter_map(|base| over(base, Some(stp)));
        let divided = linux.runs.iter();
        let divided = divided.filter_map(|run| Some(run.best_partition_stp? / run.stp - 1.0));
        let changes = deployable
            .iter()
            .filter_map(|p| Some((p.policy.clone(), change(&p.policy)?)));
        Some(Self {
            stp,
            most: median(most.collect())?,
            nearest: changes.max_by(|a, b| a.1.total_cmp(&b.1)),
            best_partition: median(divided.collect()),
        })
    }

    /// Returns a sentence about the bound, the closest policy, and the best cache partition.
    #[must_use]
    pub fn sentence(&self) -> String {
        let divided = self.best_partition.map(|change| {
            format!(
                " No division of the last-level cache's ways, one part for each program, makes more than {} of STP against linux.",
                percent(change)
            )
        });
        self.of_all() + &divided.unwrap_or_default()
    }

    /// Returns a sentence about the bound on all policies and the closest policy.
    fn of_all(&self) -> String {
        let bound = format!(
            "Upper bound: no policy sustains more than {} throughput against linux",
            percent(self.most)
        );
        match &self.nearest {
            Some((policy, change)) if *change > 0.0 => format!(
                "{bound}; {policy} sustains {}, {:.0} % of that.",
                percent(*change),
                100.0 * change / self.most
            ),
            Some(_) => format!("{bound}; none of these sustains more than linux."),
            None => format!("{bound}."),
        }
    }
}

#[cfg(test)]
mod tests {
    use countersteer_model::score::{Outcome, ProgramOutcome, Score};

    use super::*;
    use crate::judge::{Facts, judge};

    #[test]
    fn the_distance_to_the_bound_is_in_sustained_throughput_over_linux() {
        let sustained = |policy: &str, seed, stp: f64| {
            let program = ProgramOutcome {
                name: "p".into(),
                completions_s: vec![1.0 / stp],
                alone_fast_s: 1.0,
                alone_slow_s: 1.0,
                ..ProgramOutcome::default()
            };
            let outcome = Outcome {
                programs: vec![program],
                ..Outcome::default()
            };
            CompareRun {
                sustained_stp: Some(stp),
                bound_stp: Some(1.5),
                best_partition_stp: Some(1.3),
                ..CompareRun::new("m", "w", policy, seed, &Score::of(&outcome))
            }
        };
        let of = |hsf: [f64; 2]| {
            let runs = [
                sustained("linux", 1, 1.0),
                sustained("linux", 2, 1.0),
                sustained("hsf", 1, hsf[0]),
                sustained("hsf", 2, hsf[1]),
                sustained("best-static", 1, 1.45),
            ];
            judge(&runs, &Facts::default()).remove(0).bound.unwrap()
        };
        let bound = of([1.1, 1.3]);
        assert!((bound.most - 0.5).abs() < 1e-12, "{bound:?}");
        let said = bound.sentence();
        assert!(
            said.contains("+50 %")
                && said.contains("each program, makes more than +30 % of STP")
                && said.contains("hsf sustains +20 %, 40 % of that"),
            "{said}"
        );
        assert!(of([0.9, 0.9]).sentence().contains("none of these"));
    }
}
