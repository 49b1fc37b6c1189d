//! Policies ranked against Linux: gain, the programs that lose, and how certain that is.
//!
//! Input: runs of a comparison. Output: per machine and workload a [`Ranking`] in per cent of `linux`. Each seed is compared with
//! the same seed of `linux`, so that what chance gives to both falls out. Policies that only a simulator can run are listed
//! apart, and never win.

use countersteer_policies::reach;
use serde::Serialize;

use super::{Bounded, CompareRun, Spread, Summary, summarise};

/// Gains below this are none that anybody would notice.
pub const WORTH: f64 = 0.02;
/// A mean slowdown that grows by more than this is a price for throughput.
const DEARER: f64 = 0.01;

/// The policies of one machine and workload, best first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ranking {
    pub machine: String,
    pub workload: String,
    /// Seeds of the baseline.
    pub seeds: usize,
    /// Policies that can be used, by throughput.
    pub deployable: Vec<Ranked>,
    /// Policies that only a simulator can run, likewise.
    pub simulator_only: Vec<Ranked>,
    /// An upper bound, where runs have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bounded>,
    pub verdict: Verdict,
}

/// A policy against `linux`. All changes are fractions: 0.05 is 5 % more.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ranked {
    pub policy: String,
    /// Of system throughput; on real machines, of speed in the geometric mean of programs.
    #[serde(with = "triple")]
    pub throughput: Spread,
    /// Of the mean slowdown; absent where nobody knows how fast programs are alone.
    pub slowdown: Option<f64>,
    /// The program that lost most, and its change of speed, geometric mean over seeds.
    pub loser: Option<(String, f64)>,
    /// The program that gained most.
    pub winner: Option<(String, f64)>,
    /// Of the machine's energy per instruction.
    pub energy_per_instruction: Option<f64>,
    /// Of the machine's energy per completed run, each program with the same weight.
    pub energy_per_run: Option<f64>,
    /// Seeds in which throughput was above that of `linux`, of so many.
    pub better_seeds: (usize, usize),
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The first deployable policy is worth it.
    Use,
    /// It gains throughput, and programs wait longer in the mean.
    Costly,
    /// It gains in the median, and loses in some seeds.
    Unsure,
    /// No policy gains throughput, and one has programs wait much less.
    Waits,
    /// No policy gains enough.
    LeaveToLinux,
    /// There is nothing to compare with.
    NoBaseline,
}

mod triple {
    use serde::{Serialize, Serializer};

    pub fn serialize<S: Serializer>(s: &super::Spread, to: S) -> Result<S::Ok, S::Error> {
        [s.median, s.min, s.max].serialize(to)
    }
}

impl Ranking {
    /// Rankings of all machines and workloads, in the order of the runs.
    #[must_use]
    pub fn of(runs: &[CompareRun]) -> Vec<Self> {
        let summaries = summarise(runs);
        let mut rankings: Vec<Self> = Vec::new();
        for summary in &summaries {
            let known = rankings.iter().any(|r| {
                (r.machine.as_str(), r.workload.as_str()) == (summary.machine, summary.workload)
            });
            if !known {
                let rivals: Vec<&Summary<'_>> = summaries
                    .iter()
                    .filter(|s| s.same_experiment(summary))
                    .collect();
                rankings.push(Self::of_experiment(&rivals));
            }
        }
        rankings
    }

    /// The ranking of one experiment's policies.
    #[must_use]
    pub fn of_experiment(rivals: &[&Summary<'_>]) -> Self {
        let linux = rivals.iter().find(|s| s.policy == "linux");
        let others = rivals.iter().filter(|s| s.policy != "linux");
        let ranked: Vec<Ranked> = linux
            .map(|linux| others.filter_map(|s| Ranked::of(s, linux)).collect())
            .unwrap_or_default();
        let (mut simulator_only, mut deployable): (Vec<_>, Vec<_>) = ranked
            .into_iter()
            .partition(|r| reach::simulator_only(&r.policy));
        for list in [&mut simulator_only, &mut deployable] {
            // Stable: of equals the user's order stays.
            list.sort_by(|a, b| b.throughput.median.total_cmp(&a.throughput.median));
        }
        let verdict = match (linux, deployable.first()) {
            (None, _) => Verdict::NoBaseline,
            (_, Some(best)) => match best.verdict() {
                Verdict::LeaveToLinux if patient(&deployable).is_some() => Verdict::Waits,
                verdict => verdict,
            },
            _ => Verdict::LeaveToLinux,
        };
        Self {
            machine: rivals.first().map_or("", |s| s.machine).into(),
            workload: rivals.first().map_or("", |s| s.workload).into(),
            seeds: linux.map_or(0, |s| s.runs.len()),
            bound: linux.and_then(|linux| Bounded::of(linux, &deployable, rivals)),
            deployable,
            simulator_only,
            verdict,
        }
    }

    /// The best policy that can be used.
    #[must_use]
    pub fn best(&self) -> Option<&Ranked> {
        self.deployable.first()
    }

    /// What to do, in a sentence of plain text.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Some(best) = self.best() else {
            return match self.verdict {
                Verdict::NoBaseline => {
                    "Nothing says how Linux alone would do: add `linux` to the policies.".into()
                }
                _ => "Leave these to Linux: no other policy was compared that can be used.".into(),
            };
        };
        let Ranked {
            policy, throughput, ..
        } = best;
        let gain = format!(
            "{} throughput{}",
            percent(throughput.median),
            range(throughput)
        );
        let loser = best.loser_text();
        match self.verdict {
            Verdict::Use => format!("Use {policy}: {gain}, {loser}{}.", self.equals()),
            Verdict::Costly => {
                let slower = best.slowdown.map(percent).unwrap_or_default();
                format!(
                    "Leave these to Linux unless throughput is all that counts: {policy} gives {gain}, but the mean slowdown changes by {slower}, {loser}."
                )
            }
            Verdict::Unsure => {
                let (better, of) = best.better_seeds;
                format!(
                    "Leave these to Linux: {policy} is best with {gain}, but better in {better} of {of} seeds only."
                )
            }
            Verdict::Waits => patient(&self.deployable).map_or_else(String::new, |p| {
                format!(
                    "Use {} if waiting counts more than throughput: mean slowdown {}, throughput {}, {}.",
                    p.policy,
                    percent(p.slowdown.unwrap_or(0.0)),
                    percent(p.throughput.median),
                    p.loser_text()
                )
            }),
            Verdict::LeaveToLinux | Verdict::NoBaseline => {
                let most = (throughput.median.max(0.0) * 100.0).ceil().max(1.0);
                let most = if throughput.median <= 0.0 {
                    "no policy gains anything".to_owned()
                } else {
                    format!("no policy gains more than {most:.0} %")
                };
                format!(
                    "Leave these to Linux: {most} (best: {policy}, {}, {loser}).",
                    percent(throughput.median)
                )
            }
        }
    }

    /// Policies that do as well as the best, as far as anybody could tell.
    fn equals(&self) -> String {
        const ALIKE: f64 = 0.005;
        let best = self.best().map_or(0.0, |b| b.throughput.median);
        let alike = |r: &&Ranked| best - r.throughput.median < ALIKE;
        match self.deployable.iter().skip(1).filter(alike).count() {
            0 => String::new(),
            1 => "; one other does as well".into(),
            n => format!("; {n} others do as well"),
        }
    }
}

impl Ranked {
    fn of(summary: &Summary<'_>, linux: &Summary<'_>) -> Option<Self> {
        let pairs: Vec<(&CompareRun, &CompareRun)> = summary
            .runs
            .iter()
            .filter_map(|run| Some((*run, *linux.runs.iter().find(|l| l.seed == run.seed)?)))
            .collect();
        let ratio = |of: fn(&CompareRun) -> f64| -> Vec<f64> {
            let ratios = pairs.iter().map(|(run, base)| of(run) / of(base) - 1.0);
            ratios.filter(|r| r.is_finite()).collect()
        };
        let mut throughput = ratio(|r| r.stp);
        if throughput.is_empty() {
            let speed = |r: &CompareRun| 1.0 / (super::COMPLETION.of)(r);
            throughput = pairs
                .iter()
                .map(|(run, base)| speed(run) / speed(base) - 1.0)
                .filter(|r| r.is_finite())
                .collect();
        }
        let median = |values: Vec<f64>| (!values.is_empty()).then(|| Spread::of(values).median);
        let programs = programs(&pairs);
        let by_speed = |a: &&(String, f64), b: &&(String, f64)| a.1.total_cmp(&b.1);
        let better = throughput.iter().filter(|g| **g > 0.0).count();
        (!throughput.is_empty()).then(|| Self {
            policy: summary.policy.into(),
            better_seeds: (better, throughput.len()),
            throughput: Spread::of(throughput),
            slowdown: median(ratio(|r| r.antt)),
            loser: programs.iter().min_by(by_speed).cloned(),
            winner: programs.iter().max_by(by_speed).cloned(),
            energy_per_instruction: median(ratio(|r| measured(r.energy_per_instruction_nj))),
            energy_per_run: median(ratio(|r| measured(r.energy_per_run_j))),
        })
    }

    fn verdict(&self) -> Verdict {
        let gain = self.throughput.median;
        if gain < WORTH {
            Verdict::LeaveToLinux
        } else if self.better_seeds.0 < self.better_seeds.1 {
            Verdict::Unsure
        } else if self.slowdown.is_some_and(|s| s > DEARER) {
            Verdict::Costly
        } else {
            Verdict::Use
        }
    }

    /// The program that loses most, in words.
    #[must_use]
    pub fn loser_text(&self) -> String {
        match &self.loser {
            Some((name, change)) if *change <= -0.005 => {
                format!("worst loser {name} {}", percent(*change))
            }
            _ => "no program loses".into(),
        }
    }
}

/// A figure that is never 0 where it was measured.
fn measured(value: f64) -> f64 {
    if value > 0.0 { value } else { f64::NAN }
}

/// The policy with the lowest mean slowdown among those that cost hardly any throughput, if that is worth it.
fn patient(deployable: &[Ranked]) -> Option<&Ranked> {
    const DEAREST: f64 = -0.05;
    const MUCH: f64 = -0.05;
    let slowdown = |r: &&Ranked| r.slowdown.unwrap_or(0.0);
    deployable
        .iter()
        .filter(|r| r.throughput.median > DEAREST && slowdown(r) < MUCH)
        .min_by(|a, b| slowdown(a).total_cmp(&slowdown(b)))
}

/// Change of speed by program, geometric mean over seeds.
fn programs(pairs: &[(&CompareRun, &CompareRun)]) -> Vec<(String, f64)> {
    let Some((first, _)) = pairs.first() else {
        return Vec::new();
    };
    let change = |name: &str| {
        let of = |run: &CompareRun| {
            run.programs
                .iter()
                .find(|p| p.name == name)
                .map(|p| p.completion_s)
        };
        let logs: Vec<f64> = pairs
            .iter()
            .filter_map(|(run, base)| Some((of(base)? / of(run)?).ln()))
            .filter(|l| l.is_finite())
            .collect();
        (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp() - 1.0)
    };
    let named = |p: &super::CompareProgram| Some((p.name.clone(), change(&p.name)?));
    first.programs.iter().filter_map(named).collect()
}

/// A change for people: `+14 %`, `-3 %`, `+0.4 %`.
#[must_use]
pub fn percent(change: f64) -> String {
    let value = change * 100.0;
    let text = if value.abs() < 9.95 {
        format!("{value:+.1}")
    } else {
        format!("{value:+.0}")
    };
    // Minus zero is nobody's gain.
    let text = if text == "-0.0" {
        "+0.0".to_owned()
    } else {
        text
    };
    format!("{text} %")
}

fn range(spread: &Spread) -> String {
    let (low, high) = (percent(spread.min), percent(spread.max));
    if low == high {
        String::new()
    } else {
        format!(" ({} to {high})", low.trim_end_matches(" %"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::CompareProgram;

    /// A run in which programs took so long; alone each takes a second.
    fn run(policy: &str, seed: u64, times: [f64; 2]) -> CompareRun {
        let names = ["xz", "gzip"];
        let program = |(name, time): (&str, f64)| CompareProgram {
            name: name.into(),
            completion_s: time,
            alone_fast_s: 1.0,
            alone_slow_s: 1.0,
            sf_interval: None,
            slowdown: time,
            sampled: None,
        };
        let programs: Vec<_> = names.into_iter().zip(times).map(program).collect();
        CompareRun {
            machine: "m".into(),
            workload: "w".into(),
            policy: policy.into(),
            seed,
            asp: 0.0,
            stp: times.iter().map(|t| 1.0 / t).sum(),
            sustained_stp: None,
            bound_stp: None,
            antt: times.iter().sum::<f64>() / 2.0,
            unfairness: 1.0,
            weighted_unfairness: 1.0,
            jain: 1.0,
            ipc: 1.0,
            energy_j: 10.0,
            energy_per_instruction_nj: 1.0,
            energy_per_run_j: 5.0,
            edp_js: 1.0,
            migrations: 0,
            programs,
        }
    }

    fn ranking(policies: &[(&str, [[f64; 2]; 2])]) -> Ranking {
        let runs: Vec<CompareRun> = policies
            .iter()
            .flat_map(|(policy, seeds)| {
                (1..)
                    .zip(seeds)
                    .map(|(seed, times)| run(policy, seed, *times))
            })
            .collect();
        Ranking::of(&runs).remove(0)
    }

    const LINUX: (&str, [[f64; 2]; 2]) = ("linux", [[2.0, 2.0], [4.0, 4.0]]);

    #[test]
    fn seeds_are_compared_with_the_same_seed_and_losers_are_named() {
        let r = ranking(&[LINUX, ("hsf", [[1.0, 2.2], [2.0, 4.4]])]);
        let best = r.best().unwrap();
        assert!((best.throughput.min - best.throughput.max).abs() < 1e-12);
        assert_eq!(r.verdict, Verdict::Use);
        let said = r.sentence();
        assert!(
            said.starts_with("Use hsf: +45 % throughput")
                && said.contains("worst loser gzip -9.1 %"),
            "{said}"
        );
    }

    #[test]
    fn what_only_a_simulator_can_run_never_wins() {
        let r = ranking(&[
            LINUX,
            ("best-static", [[1.0, 1.0], [1.0, 1.0]]),
            ("aarr", [[2.0, 2.0], [4.0, 4.0]]),
        ]);
        assert_eq!(
            (r.best().unwrap().policy.as_str(), &r.verdict),
            ("aarr", &Verdict::LeaveToLinux)
        );
        assert!(
            r.sentence().contains("no policy gains anything"),
            "{}",
            r.sentence()
        );
        assert_eq!(r.simulator_only[0].policy, "best-static");
    }

    #[test]
    fn luck_and_longer_waits_are_no_recommendation() {
        let unsure = ranking(&[LINUX, ("hsf", [[1.0, 1.0], [4.2, 4.2]])]);
        assert_eq!(unsure.verdict, Verdict::Unsure);
        let costly = ranking(&[LINUX, ("hsf", [[1.0, 4.0], [2.0, 8.0]])]);
        assert_eq!(costly.verdict, Verdict::Costly);
        assert!(
            costly.sentence().contains("mean slowdown changes by +25 %"),
            "{}",
            costly.sentence()
        );
        let alone = ranking(&[("hsf", [[1.0, 1.0], [1.0, 1.0]])]);
        assert_eq!(alone.verdict, Verdict::NoBaseline);
    }

    #[test]
    fn shorter_waits_at_the_same_throughput_are_worth_a_word() {
        let r = ranking(&[
            LINUX,
            ("mpi", [[1.2, 6.0], [2.4, 12.0]]),
            ("aarr", [[2.0, 2.0], [4.0, 4.0]]),
        ]);
        assert_eq!(r.verdict, Verdict::LeaveToLinux, "{}", r.sentence());
        let mut linux = LINUX;
        linux.1 = [[1.0, 20.0], [1.0, 20.0]];
        let r = ranking(&[linux, ("mpi", [[1.5, 2.7], [1.5, 2.7]])]);
        assert_eq!(r.verdict, Verdict::Waits);
        assert!(
            r.sentence().starts_with("Use mpi if waiting counts more"),
            "{}",
            r.sentence()
        );
    }

    #[test]
    fn changes_have_a_sign_and_as_many_digits_as_mean_something() {
        assert_eq!(
            [percent(0.1449), percent(-0.0312), percent(-0.0001)],
            ["+14 %", "-3.1 %", "+0.0 %"]
        );
    }
}
