//! Changes under a policy relative to `linux`: the single source for terminal, report, notebook and JSON.
//!
//! Input: runs of a policy and of `linux` on the same workload. Output: the change of each score and of each program's speed.
//! Each seed is compared with the same seed of `linux`, so that common random effects cancel. A change is the median of these
//! ratios, never a ratio of medians.

use std::collections::BTreeMap;

use serde::Serialize;

use super::figure::{Noise, RelativeChange};
use crate::table::{COMPLETION, CompareProgram, CompareRun, METRICS, PolicySummary, ScoreMetric};

/// Threshold: minimum ASP of a baseline for which a ratio of ASPs is meaningful.
const LEAST_ASP: f64 = 0.2;

/// Scores of a policy relative to `linux`. All changes are fractions: 0.05 is 5 % more.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ranked {
    pub policy: String,
    /// Change of system throughput; on real machines, change of the geometric mean of program speeds.
    #[serde(with = "triple")]
    pub throughput: RelativeChange,
    /// Change of the mean slowdown; `None` if the programs' times alone are unknown.
    #[serde(with = "median")]
    pub slowdown: Option<RelativeChange>,
    /// Program with the largest loss, and the change of its speed; `None` without programs.
    #[serde(with = "named")]
    pub loser: Option<RankedProgram>,
    /// Program with the largest gain, and the change of its speed; `None` without programs.
    #[serde(with = "named")]
    pub winner: Option<RankedProgram>,
    /// Change of the machine's energy per instruction; `None` if energy is unknown.
    #[serde(with = "median")]
    pub energy_per_instruction: Option<RelativeChange>,
    /// Change of the machine's energy per completed run, with equal weights of programs; `None` if energy is unknown.
    #[serde(with = "median")]
    pub energy_per_run: Option<RelativeChange>,
    /// Number of seeds with throughput above that of `linux`, and number of all seeds.
    pub better_seeds: (usize, usize),
    /// Changes with range and interval: `throughput`, and the scores of comparison tables by key.
    pub changes: BTreeMap<&'static str, RelativeChange>,
    /// Change of each program's speed, in the workload's order.
    pub programs: Vec<RankedProgram>,
    /// Program without which less than half of the gain remains; `None` if there is none.
    pub most: Option<Most>,
}

/// Program with the change of its speed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankedProgram {
    pub name: String,
    #[serde(flatten)]
    pub speed: RelativeChange,
}

/// Program that contributes more than half of a gain.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Most {
    pub program: String,
    /// Change of the throughput of all other programs.
    pub without: RelativeChange,
}

mod triple {
    use serde::{Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        f: &super::RelativeChange,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        [f.median, f.min, f.max].serialize(to)
    }
}

mod median {
    use serde::{Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        f: &Option<super::RelativeChange>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        f.map(|f| f.median).serialize(to)
    }
}

mod named {
    use serde::{Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        p: &Option<super::RankedProgram>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        p.as_ref().map(|p| (&p.name, p.speed.median)).serialize(to)
    }
}

/// Run of a policy, and the run of `linux` with the same seed.
type RunPair<'a> = (&'a CompareRun, &'a CompareRun);

impl Ranked {
    /// Computes the changes under a policy; `None` if no seed was run under both, or if nothing was measured.
    pub(super) fn of(
        summary: &PolicySummary<'_>,
        linux: &PolicySummary<'_>,
        noise: Noises,
    ) -> Option<Self> {
        let pairs = pairs(summary, linux);
        let throughput = throughput(&pairs, &|_| true, noise)?;
        let known = METRICS.iter().chain([&COMPLETION]);
        let mut changes: BTreeMap<&str, RelativeChange> = known
            .filter_map(|metric| Some((metric.key, change_of(&pairs, metric, noise.mean)?)))
            .collect();
        changes.insert("throughput", throughput);
        let programs = programs(&pairs, noise.program);
        let by_speed =
            |a: &&RankedProgram, b: &&RankedProgram| a.speed.median.total_cmp(&b.speed.median);
        let gains = |(run, base): &RunPair<'_>| speed(run, &|_| true) > speed(base, &|_| true);
        Some(Self {
            policy: summary.policy.into(),
            throughput,
            slowdown: changes.get("antt").copied(),
            energy_per_instruction: changes.get("energy_per_instruction_nj").copied(),
            energy_per_run: changes.get("energy_per_run_j").copied(),
            loser: programs.iter().min_by(by_speed).cloned(),
            winner: programs.iter().max_by(by_speed).cloned(),
            better_seeds: (pairs.iter().filter(|p| gains(p)).count(), pairs.len()),
            most: most(&pairs, &throughput, &programs, noise),
            changes,
            programs,
        })
    }

    /// Returns the program with the largest loss; `None` if no program loses more than rounding errors.
    #[must_use]
    pub fn lost(&self) -> Option<&RankedProgram> {
        /// Threshold: a smaller loss than 0.5 % counts as a rounding error.
        const LOST: f64 = -0.005;
        self.loser.as_ref().filter(|p| p.speed.median <= LOST)
    }

    /// Returns the change of throughput over the programs for which `wanted` is true; `None` without such programs.
    pub(super) fn of_programs(
        summary: &PolicySummary<'_>,
        linux: &PolicySummary<'_>,
        wanted: &dyn Fn(&str) -> bool,
    ) -> Option<RelativeChange> {
        throughput(&pairs(summary, linux), wanted, Noises::default())
    }
}

/// Returns the change of a score from `base` to `summary`, seed by seed; `None` if no ratio is meaningful.
#[must_use]
pub fn change(
    summary: &PolicySummary<'_>,
    base: &PolicySummary<'_>,
    metric: &ScoreMetric,
) -> Option<RelativeChange> {
    change_of(&pairs(summary, base), metric, Noise::default())
}

fn pairs<'a>(summary: &PolicySummary<'a>, base: &PolicySummary<'a>) -> Vec<RunPair<'a>> {
    (summary.runs.iter())
        .filter_map(|run| Some((*run, *base.runs.iter().find(|l| l.seed == run.seed)?)))
        .collect()
}

fn change_of(pairs: &[RunPair<'_>], metric: &ScoreMetric, noise: Noise) -> Option<RelativeChange> {
    let least = if metric.key == "asp" { LEAST_ASP } else { 0.0 };
    let ratio = |(run, base): &RunPair<'_>| {
        let base = (metric.of)(base);
        (base > least).then(|| (metric.of)(run) / base)
    };
    let ratios: Vec<f64> = pairs.iter().map(ratio).collect::<Option<_>>()?;
    RelativeChange::of(ratios, noise)
}

/// Returns the change of throughput over the programs for which `wanted` is true.
fn throughput(
    pairs: &[RunPair<'_>],
    wanted: &dyn Fn(&str) -> bool,
    noise: Noises,
) -> Option<RelativeChange> {
    RelativeChange::of(throughputs(pairs, wanted), noise.mean)
}

fn throughputs(pairs: &[RunPair<'_>], wanted: &dyn Fn(&str) -> bool) -> Vec<f64> {
    let ratio = |(run, base): &RunPair<'_>| speed(run, wanted) / speed(base, wanted);
    let ratios = pairs.iter().map(ratio);
    ratios.filter(|r| r.is_finite() && *r > 0.0).collect()
}

/// Returns the system throughput of the selected programs, or the geometric mean of their speeds if their times alone are
/// unknown.
fn speed(run: &CompareRun, wanted: &dyn Fn(&str) -> bool) -> f64 {
    let programs = || run.programs.iter().filter(|p| wanted(&p.name));
    let sum: f64 = programs().map(|p| 1.0 / p.slowdown).sum();
    if sum.is_finite() {
        return sum;
    }
    let logs: f64 = programs().map(|p| p.completion_s.ln()).sum();
    (-logs / programs().count() as f64).exp()
}

/// Returns the change of speed of each program.
fn programs(pairs: &[RunPair<'_>], noise: Noise) -> Vec<RankedProgram> {
    let figure = |(name, ratios): (String, Vec<f64>)| {
        let speed = RelativeChange::of(ratios, noise)?;
        Some(RankedProgram { name, speed })
    };
    speeds(pairs).into_iter().filter_map(figure).collect()
}

/// Returns, for each program, the ratio of its speeds for each seed.
fn speeds(pairs: &[RunPair<'_>]) -> Vec<(String, Vec<f64>)> {
    let Some((first, _)) = pairs.first() else {
        return Vec::new();
    };
    let ratios = |p: &CompareProgram| {
        let of = |run: &CompareRun| {
            let found = run.programs.iter().find(|q| q.name == p.name);
            found.map_or(f64::NAN, |q| q.completion_s)
        };
        let ratios = pairs.iter().map(|(run, base)| of(base) / of(run));
        let known = ratios.filter(|r| r.is_finite() && *r > 0.0);
        (p.name.clone(), known.collect())
    };
    first.programs.iter().map(ratios).collect()
}

/// Noise of scores over all programs, and noise of single programs' speeds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Noises {
    mean: Noise,
    program: Noise,
}

impl Noises {
    /// Computes the noise from the runs of all policies of an experiment.
    pub(super) fn of(rivals: &[&PolicySummary<'_>], linux: &PolicySummary<'_>) -> Self {
        let others = rivals.iter().filter(|s| s.policy != linux.policy);
        let all: Vec<Vec<RunPair<'_>>> = others.map(|s| pairs(s, linux)).collect();
        let programs = all.iter().flat_map(|pairs| speeds(pairs));
        Self {
            mean: Noise::of(all.iter().map(|pairs| throughputs(pairs, &|_| true))),
            program: Noise::of(programs.map(|(_, ratios)| ratios)),
        }
    }
}

/// Returns the program without which the smallest gain remains, if that is less than half of the gain; otherwise `None`.
fn most(
    pairs: &[RunPair<'_>],
    gain: &RelativeChange,
    programs: &[RankedProgram],
    noise: Noises,
) -> Option<Most> {
    if programs.len() < 2 || gain.median <= 0.0 {
        return None;
    }
    let left = programs.iter().filter_map(|p| {
        let program = p.name.clone();
        let without = throughput(pairs, &|name| name != program, noise)?;
        Some(Most { program, without })
    });
    left.min_by(|a, b| a.without.median.total_cmp(&b.without.median))
        .filter(|most| most.without.median < gain.median / 2.0)
}
