//! Ranking of policies relative to `linux`, and a recommendation.
//!
//! Input: runs of a comparison, and further facts about programs and policies ([`Facts`]). Output: for each machine and workload
//! a [`Ranking`]: changes under every policy, a [`Verdict`], and [`Remark`]s. Policies that only a simulator can run are listed
//! separately and never win.
//!
//! The rule: among the usable policies, the one with the best mean gain over seeds is chosen. It is recommended if three
//! conditions hold. The gain is at least [`WORTH`]. Its programs run long enough for a policy to act on them ([`LEAST_RUN_S`]).
//! The mean exceeds its standard error. `docs/benchmarks.md` shows the rule's accuracy on unseen seeds.

use std::collections::BTreeMap;

use countersteer_policies::{LINUX, reach};
use serde::Serialize;

use super::bounded::Bounded;
use super::ranked::{Noises, Ranked};
use super::remark::{Fair, Remark};
use crate::table::{CompareRun, PolicySummary, SeedSpread, summarise};

/// Threshold: minimum relative gain in throughput for a recommendation.
pub const WORTH: f64 = 0.005;
/// Threshold: minimum relative increase of the mean slowdown that is mentioned as the cost of a gain in throughput.
const DEARER: f64 = 0.01;
/// Minimum run time in seconds of a program on which a policy can act. A program is sampled every 100 ms, and policies measure
/// it on each core type, over several samples, before they decide.
pub const LEAST_RUN_S: f64 = 1.0;

/// Ranked policies of one machine and workload, best first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ranking {
    pub machine: String,
    pub workload: String,
    /// Number of seeds of the baseline.
    pub seeds: usize,
    /// Usable policies, in descending order of throughput.
    pub deployable: Vec<Ranked>,
    /// Policies that only a simulator can run, in descending order of throughput.
    pub simulator_only: Vec<Ranked>,
    /// Upper bound on throughput; `None` if the runs have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bounded>,
    /// Recommendation.
    pub verdict: Verdict,
    /// Remarks on the verdict.
    pub remarks: Vec<Remark>,
}

/// Recommendation that follows from a ranking.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The first usable policy is recommended.
    Use,
    /// The best policy increases throughput, but also the mean slowdown.
    Costly,
    /// The best policy has a mean gain, but it is smaller than its standard error.
    Unsure,
    /// No policy increases throughput, but one of them reduces the mean slowdown much.
    Waits,
    /// No policy gains enough, so the programs are best left to Linux.
    LeaveToLinux,
    /// The programs end before a policy can act on them.
    TooShort,
    /// The runs lack the baseline `linux`.
    NoBaseline,
}

/// Facts for a verdict beyond the compared runs.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Additional runs that show the origin of a gain.
    pub probed: Vec<Probed>,
    /// Policies that a comparison includes by default, by the machine's name.
    pub shelves: BTreeMap<String, Vec<String>>,
    /// Assumptions of policies that do not hold on a machine, by the machine's name: pairs of policy and reason.
    pub unmet: BTreeMap<String, Vec<(String, String)>>,
    /// Names of the workloads that fix the start CPUs of their programs.
    pub pinned: Vec<String>,
}

/// Difference between a probing run and the compared runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbingGap {
    /// The policy decides in the first period only; Linux places the threads from then on.
    Start,
    /// Linux chooses the start CPUs instead of the workload.
    FairLaunch,
}

/// Additional run that shows the origin of a gain.
#[derive(Clone, Debug)]
pub struct Probed {
    pub probe: ProbingGap,
    pub run: CompareRun,
}

/// Returns the rankings of all machines and workloads, in the order of the runs.
#[must_use]
pub fn judge(runs: &[CompareRun], facts: &Facts) -> Vec<Ranking> {
    let summaries = summarise(runs);
    let mut rankings: Vec<Ranking> = Vec::new();
    for summary in &summaries {
        let known = rankings.iter().any(|r| {
            (r.machine.as_str(), r.workload.as_str()) == (summary.machine, summary.workload)
        });
        if !known {
            let rivals: Vec<&PolicySummary<'_>> = summaries
                .iter()
                .filter(|s| s.same_experiment(summary))
                .collect();
            rankings.push(Ranking::of(&rivals, facts));
        }
    }
    rankings
}

impl Ranking {
    /// Ranks the policies of one machine and workload.
    #[must_use]
    pub fn of(rivals: &[&PolicySummary<'_>], facts: &Facts) -> Self {
        let linux = rivals.iter().find(|s| s.policy == LINUX).copied();
        let others = rivals.iter().filter(|s| s.policy != LINUX);
        let noise = linux.map_or_else(Noises::default, |linux| Noises::of(rivals, linux));
        let ranked: Vec<Ranked> = linux
            .map(|linux| others.filter_map(|s| Ranked::of(s, linux, noise)).collect())
            .unwrap_or_default();
        let (mut simulator_only, mut deployable): (Vec<_>, Vec<_>) = ranked
            .into_iter()
            .partition(|r| reach::simulator_only(&r.policy));
        for list in [&mut simulator_only, &mut deployable] {
            // The sort is stable, so equal policies keep the user's order.
            list.sort_by(|a, b| b.throughput.mean.total_cmp(&a.throughput.mean));
        }
        let mut ranking = Self {
            machine: rivals.first().map_or("", |s| s.machine).into(),
            workload: rivals.first().map_or("", |s| s.workload).into(),
            seeds: linux.map_or(0, |s| s.runs.len()),
            bound: linux.and_then(|linux| Bounded::of(linux, &deployable, rivals)),
            deployable,
            simulator_only,
            verdict: Verdict::NoBaseline,
            remarks: Vec::new(),
        };
        if let Some(linux) = linux {
            let short = Short::of(linux);
            ranking.verdict = ranking.decide(rivals, linux, &short);
            ranking.remark(linux, &short, facts);
            ranking.abstained(rivals);
        }
        ranking
    }

    /// Returns the usable policy with the highest throughput; `None` if there is none.
    #[must_use]
    pub fn best(&self) -> Option<&Ranked> {
        self.deployable.first()
    }

    fn decide(
        &self,
        rivals: &[&PolicySummary<'_>],
        linux: &PolicySummary<'_>,
        short: &Short,
    ) -> Verdict {
        let Some(best) = self.best() else {
            return Verdict::LeaveToLinux;
        };
        if short.all {
            return Verdict::TooShort;
        }
        let verdict = best.verdict();
        let gains = best.throughput.mean >= WORTH;
        if gains && !short.programs.is_empty() {
            let summary = rivals.iter().find(|s| s.policy == best.policy);
            let left = summary
                .and_then(|s| Ranked::of_programs(s, linux, &|name| !short.has(name)))
                .is_some_and(|left| left.mean >= WORTH);
            if !left {
                return Verdict::TooShort;
            }
        }
        match verdict {
            Verdict::LeaveToLinux if self.patient().is_some() => Verdict::Waits,
            verdict => verdict,
        }
    }

    /// Returns the policy with the lowest mean slowdown among those that lose little throughput. `None` if it does not reduce
    /// the slowdown by enough.
    pub(super) fn patient(&self) -> Option<&Ranked> {
        const DEAREST: f64 = -0.05;
        const MUCH: f64 = -0.05;
        let slowdown = |r: &&Ranked| r.slowdown.map_or(0.0, |s| s.median);
        self.deployable
            .iter()
            .filter(|r| r.throughput.median > DEAREST && slowdown(r) < MUCH)
            .min_by(|a, b| slowdown(a).total_cmp(&slowdown(b)))
    }

    fn remark(&mut self, linux: &PolicySummary<'_>, short: &Short, facts: &Facts) {
        let mut remarks = Vec::new();
        if !short.programs.is_empty() {
            remarks.push(Remark::Short {
                programs: short.programs.clone(),
                all: short.all,
                least_s: LEAST_RUN_S,
            });
        }
        let best = self.best().filter(|b| b.throughput.mean >= WORTH);
        if let Some((best, most)) = best.and_then(|b| Some((b, b.most.clone()?))) {
            let policy = best.policy.clone();
            remarks.push(Remark::Most { policy, most });
        }
        if let Some(best) = best {
            remarks.extend(self.start(best, linux, &facts.probed));
        }
        if facts.pinned.contains(&self.workload) {
            let fair = best.and_then(|best| self.fair(best, &facts.probed));
            remarks.push(Remark::Launch { fair });
        }
        for (policy, why) in facts.unmet.get(&self.machine).into_iter().flatten() {
            let (policy, why) = (policy.clone(), why.clone());
            remarks.push(Remark::Unmet { policy, why });
        }
        if let Some(shelf) = facts.shelves.get(&self.machine) {
            let name = |spec: &str| spec.split(':').next().unwrap_or(spec).to_owned();
            let compared: Vec<String> = self.deployable.iter().map(|r| name(&r.policy)).collect();
            let policies: Vec<String> = shelf
                .iter()
                .filter(|p| *p != LINUX && !compared.contains(p) && !reach::simulator_only(p))
                .cloned()
                .collect();
            if !policies.is_empty() {
                remarks.push(Remark::NotCompared { policies });
            }
        }
        self.remarks = remarks;
    }

    /// Adds a remark about the policies that placed no thread in any run.
    fn abstained(&mut self, rivals: &[&PolicySummary<'_>]) {
        let idle = |s: &&&PolicySummary<'_>| {
            !reach::places_nothing(s.policy) && s.runs.iter().all(|run| run.acted == Some(false))
        };
        let idle = rivals.iter().filter(idle);
        let policies: Vec<String> = idle.map(|s| s.policy.to_owned()).collect();
        if !policies.is_empty() {
            self.remarks.push(Remark::Abstained { policies });
        }
    }

    /// Returns the probing runs of one kind for this machine and workload.
    fn probed(&self, probed: &[Probed], probe: ProbingGap) -> Vec<CompareRun> {
        let mine = |p: &&Probed| {
            p.probe == probe && p.run.machine == self.machine && p.run.workload == self.workload
        };
        probed.iter().filter(mine).map(|p| p.run.clone()).collect()
    }

    /// Returns a remark about the gain that remains if the policy decides in the first period only. `None` without such runs.
    fn start(&self, best: &Ranked, linux: &PolicySummary<'_>, probed: &[Probed]) -> Option<Remark> {
        let mut runs = self.probed(probed, ProbingGap::Start);
        runs.extend(linux.runs.iter().map(|run| (*run).clone()));
        let ranked = against_linux(&runs, &best.policy)?;
        Some(Remark::Start {
            policy: best.policy.clone(),
            gain: ranked.throughput,
            of: best.throughput,
        })
    }

    /// Returns the changes under a policy if Linux chooses the start CPUs; `None` without such runs.
    fn fair(&self, best: &Ranked, probed: &[Probed]) -> Option<Fair> {
        let runs = self.probed(probed, ProbingGap::FairLaunch);
        let ranked = against_linux(&runs, &best.policy)?;
        Some(Fair {
            policy: best.policy.clone(),
            throughput: ranked.throughput,
            slowdown: ranked.slowdown,
            energy_per_instruction: ranked.energy_per_instruction,
        })
    }
}

fn against_linux(runs: &[CompareRun], policy: &str) -> Option<Ranked> {
    let summaries = summarise(runs);
    let of = |policy: &str| summaries.iter().find(|s| s.policy == policy);
    let linux = of(LINUX)?;
    let noise = Noises::of(&summaries.iter().collect::<Vec<_>>(), linux);
    Ranked::of(of(policy)?, linux, noise)
}

impl Ranked {
    fn verdict(&self) -> Verdict {
        let gain = self.throughput;
        if gain.mean < WORTH {
            Verdict::LeaveToLinux
        } else if gain.mean.ln_1p() < gain.error {
            Verdict::Unsure
        } else if self.slowdown.is_some_and(|s| s.median > DEARER) {
            Verdict::Costly
        } else {
            Verdict::Use
        }
    }
}

/// Programs that end before a policy can act on them.
struct Short {
    /// Names and completion times under `linux` in seconds.
    programs: Vec<(String, f64)>,
    /// True if all programs are too short.
    all: bool,
}

impl Short {
    fn of(linux: &PolicySummary<'_>) -> Self {
        let programs = linux.runs.first().map_or(&[][..], |run| &run.programs);
        let time = |name: &str| {
            let all = linux.runs.iter().flat_map(|run| &run.programs);
            SeedSpread::of(all.filter(|p| p.name == name).map(|p| p.completion_s)).median
        };
        let short = programs.iter().map(|p| (p.name.clone(), time(&p.name)));
        let short: Vec<_> = short.filter(|(_, s)| *s < LEAST_RUN_S).collect();
        Self {
            all: short.len() == programs.len(),
            programs: short,
        }
    }

    fn has(&self, name: &str) -> bool {
        self.programs.iter().any(|(n, _)| n == name)
    }
}

#[cfg(test)]
mod tests;
