//! `clusters`: programs in clusters that share ways of the last-level cache, by measured classes.
//!
//! Idea: one program after the other gets some ways alone, and all others the rest; so its speed and its misses with few and
//! with many ways are measured. Streaming programs miss often with any number of ways: they share one or two. Sensitive
//! programs slow down with few ways: each has ways of its own, by lookahead on the slowdowns. Light programs fill up the ways
//! of the streaming ones, and then those of the others.
//!
//! Source: LFOC (Garcia-Garcia, Saez, Castro and Prieto-Matias, ICPP 2019), which runs in the kernel; thresholds and limits are
//! those of its authors' simulator PBBCache. Lookahead is that of Qureshi and Patt (MICRO 2006). With `by=misses`, the clusters
//! are those of KPart (El-Sayed et al., HPCA 2018), from the same measurements.
//!
//! Decided here:
//! - A program is measured with all ways but one, and with one way. Points in between are measured for those alone that slow
//!   down by 5 %. The first half of a sample is not counted, since caches have to fill.
//! - A division is first tried for two samples, and undone unless it helps against the whole cache for all (`objective`).
//! - With more sensitive programs than ways or classes of service, those that lose least share a cluster.
//! - Programs are measured again after `again_ms`. When a program starts, those that are not yet known are measured.
//!
//! Assumes: one last-level cache, whose ways can be masked (CAT); cores are alike. Where masks have no effect all programs seem
//! insensitive, and nothing is divided. Loses: with phases and programs shorter than the measurement takes, about a second for
//! each sensitive program, in which other programs have less of the cache. Threads are left to Linux everywhere.

pub(crate) mod classes;
mod hierarchy;

use std::collections::{BTreeMap, BTreeSet};

use self::classes::{Cluster, WayCurve, WayPoint, classify, clusters, gains, slowdown};
use crate::abstain::Abstention;
use crate::ways::only_cache;
use countersteer_model::placement::{
    CacheShare, Members, Placement, Reason, Target, ThreadPlacement, WayClass, Ways,
};
use countersteer_model::policy::{
    Needs, ParamDef, Params, Policy, PolicyDef, PolicyError, PolicyRng, View,
};
use countersteer_model::topology::Topology;
use countersteer_model::units::{GroupId, Nanos, ProgramId, ThreadId};

pub(crate) const DEF: PolicyDef = PolicyDef {
    name: "clusters",
    summary: "programs in clusters with ways of the last-level cache, by measured classes",
    source: "LFOC, ICPP 2019; KPart, HPCA 2018",
    params: &[
        ParamDef {
            key: "sample_ms",
            default: "200",
            prose: "time for which a program is measured with a number of ways, in ms",
        },
        ParamDef {
            key: "again_ms",
            default: "60000",
            prose: "time after which all programs are measured again, in ms",
        },
        ParamDef {
            key: "by",
            default: "classes",
            prose: "how clusters are found: classes (streaming, sensitive and light programs, as LFOC does) or misses (those that \
                    lose least by sharing are joined, as KPart does)",
        },
        ParamDef {
            key: "objective",
            default: "throughput",
            prose: "how a division must help to be kept: throughput (programs are faster on average, by .5 %) or fairness (the \
                    largest slowdown over the smallest falls)",
        },
    ],
    make: |params, topology| Ok(Box::new(Clusters::new(params, topology)?)),
};

/// Numbers of ways, between one and all but one, with which sensitive programs are measured.
const BETWEEN: [u32; 4] = [2, 4, 6, 8];
/// Number of sample intervals after which a program that did not run is classified as light.
const WAIT: u64 = 4;
/// Duration of a trial of a division, in sample intervals.
const TRIAL: u64 = 2;
/// Threshold: minimum mean gain in speed, as a logarithm, at which a division is kept.
const GAIN: f64 = 0.005;

const MEASURED: &str = "uses of the cache are being measured";
const ALONE: &str = "no division: there is one program";
const NO_GAIN: &str = "no division: no program gains by ways of its own";
const JOINED: &str = "shares ways with the programs that lose least by it";
const UNDONE: &str = "no division: the one that was tried did not help";

/// Objective by which the trial of a division is judged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DivisionObjective {
    Throughput,
    Fairness,
}

/// Method by which clusters are found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClusterMethod {
    Classes,
    Misses,
}

/// Step of the measurement that is in progress.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MeasurementStep {
    /// All programs are measured with the whole cache.
    Whole,
    /// One program is measured with ways that no other program may use.
    Sample { program: ProgramId, ways: u32 },
    /// A division of the ways is tried.
    Trial,
    /// A division of the ways, or the undivided cache, is kept until the next measurement.
    Held,
}

/// Sums of a program's speed and misses over the samples of a step.
#[derive(Clone, Copy, Default)]
struct StepSums {
    ipc: f64,
    mpkc: f64,
    count: u32,
}

impl StepSums {
    fn mean(self) -> Option<WayPoint> {
        let count = f64::from(self.count);
        (self.count > 0).then(|| WayPoint {
            ipc: self.ipc / count,
            mpkc: self.mpkc / count,
        })
    }
}

struct Clusters {
    needs: Needs,
    sample: Nanos,
    again: Nanos,
    by: ClusterMethod,
    objective: DivisionObjective,
    llc: GroupId,
    ways: u32,
    abstention: Option<Abstention>,
    /// Programs that have threads, or had some recently.
    programs: BTreeSet<ProgramId>,
    curves: BTreeMap<ProgramId, WayCurve>,
    step: MeasurementStep,
    /// Start of the current step.
    began: Nanos,
    /// Sums of each program's samples in the current step.
    sums: BTreeMap<ProgramId, StepSums>,
    /// Instructions per cycle of each program with the whole cache.
    whole: BTreeMap<ProgramId, f64>,
    /// Rule reported for placements of threads while no class determines their ways.
    rule: Option<&'static str>,
    /// Threads that were placed with the current rule as the reason.
    placed: BTreeSet<ThreadId>,
}

impl Clusters {
    fn new(params: &Params, topology: &Topology) -> Result<Self, PolicyError> {
        let millis = |key| -> Result<Nanos, PolicyError> {
            Ok(Nanos::from_secs_f64(params.number(key, 1.0)? * 1e-3))
        };
        let cache = only_cache(topology);
        let objectives = [
            ("throughput", DivisionObjective::Throughput),
            ("fairness", DivisionObjective::Fairness),
        ];
        Ok(Self {
            needs: Needs::metrics(&["ipc", "llc_mpki"]),
            sample: millis("sample_ms")?,
            again: millis("again_ms")?,
            by: params.choice(
                "by",
                &[
                    ("classes", ClusterMethod::Classes),
                    ("misses", ClusterMethod::Misses),
                ],
            )?,
            objective: params.choice("objective", &objectives)?,
            llc: cache.map_or(GroupId(0), |(group, _)| group),
            ways: cache.map_or(0, |(_, ways)| ways),
            abstention: Abstention::anyhow(DEF.name, topology),
            programs: BTreeSet::new(),
            curves: BTreeMap::new(),
            step: MeasurementStep::Held,
            began: Nanos::ZERO,
            sums: BTreeMap::new(),
            whole: BTreeMap::new(),
            rule: Some(MEASURED),
            placed: BTreeSet::new(),
        })
    }

    /// Updates the programs from a view. Returns true if they changed.
    fn admit(&mut self, view: &View<'_>) -> bool {
        self.curves.retain(|id, _| view.may_return(*id));
        let alive = view.threads.iter().map(|t| t.program);
        let before = self.programs.iter().copied();
        let programs = before.filter(|id| view.may_return(*id)).chain(alive);
        let programs: BTreeSet<ProgramId> = programs.collect();
        let changed = programs != self.programs;
        self.programs = programs;
        changed
    }

    /// Adds the metrics since the last call to the sums. Does nothing in the first half of a sample, while caches fill.
    fn note(&mut self, view: &View<'_>) {
        let filled = self.began + Nanos(self.sample.0 / 2);
        if view.now <= filled {
            return;
        }
        for thread in view.threads {
            let of = |name| view.metric(thread.id, name).filter(|v: &f64| v.is_finite());
            if let (Some(ipc), Some(mpki)) = (of("ipc"), of("llc_mpki")) {
                let sums = self.sums.entry(thread.program).or_default();
                sums.ipc += ipc;
                sums.mpkc += ipc * mpki;
                sums.count += 1;
            }
        }
    }

    fn begin(&mut self, step: MeasurementStep, now: Nanos) {
        self.step = step;
        self.began = now;
        self.sums.clear();
    }

    /// Ends the current step if its time is over, and begins the next one. Returns the new partitions; `None` if they do not
    /// change.
    fn proceed(&mut self, now: Nanos) -> Option<Vec<WayClass>> {
        let over = |samples: u64| now.since(self.began).0 >= self.sample.0 * samples;
        match self.step {
            MeasurementStep::Whole if over(1) => {
                let speeds = self.sums.iter();
                self.whole = speeds
                    .filter_map(|(id, sums)| Some((*id, sums.mean()?.ipc)))
                    .collect();
                Some(self.next(now))
            }
            MeasurementStep::Sample { program, ways } if over(1) => {
                let seen = self.sums.get(&program).and_then(|sums| sums.mean());
                if seen.is_none() && !over(WAIT) {
                    return None;
                }
                let none = WayPoint {
                    ipc: 0.0,
                    mpkc: 0.0,
                };
                let curve = self.curves.entry(program).or_default();
                curve.insert(ways, seen.unwrap_or(none));
                Some(self.next(now))
            }
            MeasurementStep::Trial if over(TRIAL) => {
                let helped = self.helped();
                self.begin(MeasurementStep::Held, now);
                if helped {
                    return None;
                }
                self.decided(Some(UNDONE));
                Some(Vec::new())
            }
            MeasurementStep::Held if now.since(self.began) >= self.again => {
                self.curves.clear();
                self.begin(MeasurementStep::Whole, now);
                Some(Vec::new())
            }
            _ => None,
        }
    }

    /// Begins to measure the next program, or begins the trial of a division if all programs are measured. Returns the
    /// partitions.
    fn next(&mut self, now: Nanos) -> Vec<WayClass> {
        if let Some((program, ways)) = self.unmeasured() {
            self.begin(MeasurementStep::Sample { program, ways }, now);
            let others = self.programs.iter().copied().filter(|id| *id != program);
            let others = Cluster {
                members: others.collect(),
                ways: self.ways - ways,
            };
            let members = vec![program];
            return self.masks(&[Cluster { members, ways }, others]);
        }
        let known = self.programs.iter();
        let curves = known.filter_map(|id| Some((*id, self.curves.get(id)?)));
        let curves = curves.collect();
        let clusters = match (self.by, self.objective) {
            (ClusterMethod::Classes, _) => clusters(&curves, self.ways),
            (ClusterMethod::Misses, DivisionObjective::Throughput) => {
                hierarchy::clusters(&curves, self.ways, |each| each.map(f64::ln).sum())
            }
            (ClusterMethod::Misses, DivisionObjective::Fairness) => {
                hierarchy::clusters(&curves, self.ways, |each| unfairness(each))
            }
        };
        let divided = !clusters.is_empty();
        self.begin(
            if divided {
                MeasurementStep::Trial
            } else {
                MeasurementStep::Held
            },
            now,
        );
        self.decided((!divided).then_some(NO_GAIN));
        self.masks(&clusters)
    }

    /// Returns the program and number of ways to measure next; `None` if all are measured.
    fn unmeasured(&self) -> Option<(ProgramId, u32)> {
        let most = self.ways - 1;
        let empty = WayCurve::new();
        self.programs.iter().find_map(|id| {
            let curve = self.curves.get(id).unwrap_or(&empty);
            let ends = [most, 1].into_iter();
            let mut wanted = ends.chain(BETWEEN.into_iter().filter(|ways| *ways < most));
            let next = wanted.find(|ways| !curve.contains_key(ways))?;
            let inner = next != most && next != 1;
            (!inner || gains(curve)).then_some((*id, next))
        })
    }

    /// Sets the rule that results from a measurement. Each thread is then placed once more, with this rule as the reason.
    fn decided(&mut self, rule: Option<&'static str>) {
        self.rule = rule;
        self.placed.clear();
    }

    /// Returns the partitions of the clusters; their ways follow each other in the cache.
    fn masks(&self, clusters: &[Cluster]) -> Vec<WayClass> {
        let mut first = 0;
        let class = |(row, cluster): (usize, &Cluster)| {
            let ways = Ways {
                first: Some(first),
                count: cluster.ways,
            };
            first += cluster.ways;
            WayClass {
                name: format!("cluster{row}").into(),
                members: Members::Programs(cluster.members.clone()),
                shares: vec![CacheShare {
                    llc: self.llc,
                    ways: Some(ways),
                    bandwidth: None,
                }],
            }
        };
        clusters.iter().enumerate().map(class).collect()
    }

    /// True if the objective is better under the division than with the whole cache.
    fn helped(&self) -> bool {
        let pairs = self.sums.iter().filter_map(|(id, sums)| {
            let (now, before) = (sums.mean()?.ipc, *self.whole.get(id)?);
            let best = self.curves.get(id)?.last_key_value()?.1.ipc;
            (now > 0.0 && before > 0.0 && best > 0.0).then_some((now, before, best))
        });
        let pairs: Vec<(f64, f64, f64)> = pairs.collect();
        match self.objective {
            DivisionObjective::Throughput => {
                let sum: f64 = pairs
                    .iter()
                    .map(|(now, before, _)| (now / before).ln())
                    .sum();
                sum / pairs.len().max(1) as f64 > GAIN
            }
            DivisionObjective::Fairness => {
                let now = pairs.iter().map(|(now, _, best)| best / now);
                let before = pairs.iter().map(|(_, before, best)| best / before);
                unfairness(now) < unfairness(before)
            }
        }
    }

    /// Returns placements on all CPUs for the threads that have none under the current rule. The reason is that of the
    /// program's ways.
    fn placements(&mut self, view: &View<'_>) -> Vec<ThreadPlacement> {
        self.placed.retain(|thread| view.lives(*thread));
        let mut placements = Vec::new();
        for thread in view.threads {
            if !self.placed.insert(thread.id) {
                continue;
            }
            let curve = self.curves.get(&thread.program);
            let reason = match (self.rule, curve) {
                (None, Some(_)) if self.by == ClusterMethod::Misses => Reason::rule(JOINED),
                (None, Some(curve)) => Reason::rule(classify(curve).rule()),
                (rule, _) => Reason::rule(rule.unwrap_or(MEASURED)),
            };
            let measured = curve.filter(|curve| curve.contains_key(&1));
            let misses = measured.and_then(|c| c.last_key_value()).map(|p| p.1.mpkc);
            let reason = reason
                .saw("slowdown with one way", measured.map(|c| slowdown(c, 1.0)))
                .saw("slowdown with two ways", measured.map(|c| slowdown(c, 2.0)))
                .saw("misses per 1,000 cycles with most ways", misses);
            placements.push(ThreadPlacement::new(thread.id, Target::Anywhere, reason));
        }
        placements
    }
}

/// Returns the ratio of the largest slowdown to the smallest.
fn unfairness(slowdowns: impl Iterator<Item = f64>) -> f64 {
    let (least, most) = slowdowns.fold((f64::MAX, f64::MIN), |(l, m), s| (l.min(s), m.max(s)));
    most / least
}

impl Policy for Clusters {
    fn needs(&self) -> &Needs {
        &self.needs
    }

    fn decide(&mut self, view: &mut View<'_>, _: &mut PolicyRng) -> Placement {
        if let Some(abstention) = &mut self.abstention {
            return Placement {
                threads: abstention.leave(view),
                ..Placement::default()
            };
        }
        self.note(view);
        let caches = if self.admit(view) {
            let step = if self.programs.len() > 1 {
                MeasurementStep::Whole
            } else {
                MeasurementStep::Held
            };
            self.begin(step, view.now);
            let alone = self.programs.len() < 2;
            self.rule = Some(if alone { ALONE } else { MEASURED });
            Some(Vec::new())
        } else if self.programs.len() > 1 {
            self.proceed(view.now)
        } else {
            None
        };
        Placement {
            threads: self.placements(view),
            caches,
            ..Placement::default()
        }
    }
}
