//! `best-static`: the best fixed mapping (forecast). It keeps the mapping of threads to CPUs for which the engine's forecast is
//! best, as long as the threads stay.
//!
//! Idea: the result of a policy without migrations that knows all programs in advance, as far as the forecast is right. It is
//! no upper bound: policies that migrate beat it, and so does any policy whose guess is better than the forecast. Source: the
//! exhaustive static mappings that CMPSched$im (section 4) and HASS (section 5) compare with.
//!
//! Every balanced mapping is predicted, once per class of mappings that differ only in which of several equivalent CPUs, cores
//! or caches they use. A mapping is balanced under two conditions: no CPU holds two threads more than another that they are
//! allowed on; no core holds two threads while an equal core under the same caches is free. With more than ten threads, or more
//! mappings than the budget, hill climbing by moves and swaps from several starts replaces the exhaustive search. The reason
//! then says so.
//!
//! Threads are left to Linux unless the mapping is predicted to gain 2 % over that. The prediction for Linux is the better of
//! two forecasts. The first is of the CPUs on which Linux has the threads now (not of CPUs that this policy chose). The second
//! is the mean of eight balanced mappings drawn at random. If nothing is predicted, the reason says so.
//!
//! Assumes: long runs, whose mean speeds the engine's forecast predicts; only a simulator forecasts. Loses: to policies that
//! follow phases or alternate threads on cores, which fairness on unequal cores needs. It also loses if it would pay to leave
//! cores idle or to load them unevenly.

mod search;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::search::{BestMapping, EXACT, MappingSearch, SearchedThread, kinds};
use countersteer_model::cpuset::CpuSet;
use countersteer_model::engine::ThreadForecast;
use countersteer_model::placement::{Placement, Reason, Target, ThreadPlacement};
use countersteer_model::policy::{Needs, ParamDef, Policy, PolicyDef, PolicyRng, View};
use countersteer_model::topology::{GroupBy, Topology};
use countersteer_model::units::{CpuId, ProgramId, ThreadId};

pub(crate) const DEF: PolicyDef = PolicyDef {
    name: "best-static",
    summary: "best fixed mapping by the engine's forecast (simulator only)",
    source: "the best static mapping of CMPSched$im, section 4, and HASS, section 5",
    params: &[
        ParamDef {
            key: "objective",
            default: "stp",
            prose: "what the mapping is best in: stp (system throughput), asp (aggregate speed-up), ipc (mean), unfairness \
                    (largest over smallest slowdown) or edp",
        },
        ParamDef {
            key: "budget",
            default: "20000",
            prose: "most mappings to predict per decision, for 10 threads; in proportion fewer for more, and a tenth of it \
                    with more threads than CPUs",
        },
    ],
    make: |params, _| {
        let choices = [
            ("stp", MappingObjective::Stp),
            ("asp", MappingObjective::Asp),
            ("ipc", MappingObjective::Ipc),
            ("unfairness", MappingObjective::Unfairness),
            ("edp", MappingObjective::Edp),
        ];
        Ok(Box::new(BestStatic {
            objective: params.choice("objective", &choices)?,
            budget: params.number("budget", 1.0)?,
            allowed: BTreeMap::new(),
            done: false,
            placed: false,
        }))
    },
};

/// Threshold: minimum predicted relative gain of a mapping over Linux. Below it, threads are left to Linux, since forecasts are
/// not exact.
const MARGIN: f64 = 0.02;

/// Objective by which mappings are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MappingObjective {
    Stp,
    Asp,
    Ipc,
    Unfairness,
    Edp,
}

impl MappingObjective {
    const fn unit(self) -> &'static str {
        match self {
            Self::Stp => "system throughput of the best mapping with the thread here",
            Self::Asp => "aggregate speed-up of the best mapping with the thread here",
            Self::Ipc => "mean IPC of the best mapping with the thread here",
            Self::Unfairness => "unfairness of the best mapping with the thread here",
            Self::Edp => "EDP of the best mapping with the thread here",
        }
    }

    /// Returns an objective's value as it is reported: positive, while the search maximises its negative for unfairness and
    /// EDP.
    fn shown(self, value: f64) -> f64 {
        match self {
            Self::Stp | Self::Asp | Self::Ipc => value,
            Self::Unfairness | Self::Edp => -value,
        }
    }

    /// Returns the objective's value for a mapping; higher is better. Each program counts once, whatever its number of threads.
    /// A program is as fast as its slowest thread, since all threads have equal shares of its work.
    fn value(
        self,
        threads: &[ThreadForecast],
        programs: &[ProgramId],
        mapping: &[CpuId],
        topology: &Topology,
    ) -> f64 {
        let sum = |f: fn(&ThreadForecast) -> f64| threads.iter().map(f).sum::<f64>();
        let mut by_program: BTreeMap<ProgramId, SlowestSpeeds> = BTreeMap::new();
        for (thread, program) in threads.iter().zip(programs) {
            by_program.entry(*program).or_default().add(thread);
        }
        let programs = || by_program.values();
        let value = match self {
            Self::Stp => programs().map(|p| 1.0 / p.slowdown).sum(),
            Self::Asp => programs().map(|p| p.over_slow - 1.0).sum(),
            Self::Ipc => {
                programs().map(|p| p.ipc / p.threads).sum::<f64>()
                    / programs().count().max(1) as f64
            }
            Self::Unfairness => {
                let (least, most) = programs()
                    .map(|p| p.slowdown)
                    .fold((f64::MAX, f64::MIN), |(l, m), s| (l.min(s), m.max(s)));
                -most / least
            }
            Self::Edp => {
                let giga = sum(|t| t.ips) * 1e-9;
                let watts = sum(|t| t.power_w) + idle_w(mapping, topology);
                -watts / (giga * giga)
            }
        };
        if value.is_finite() { value } else { f64::MIN }
    }

    /// Returns the relative gain of a value over another. For aggregate speed-up, the gain is relative to a value of -1 per
    /// program, which means no speed.
    fn gain(self, value: f64, over: f64, programs: usize) -> f64 {
        let zero = match self {
            Self::Asp => -(programs as f64),
            _ => 0.0,
        };
        (value - over) / (over - zero).abs()
    }
}

/// Slowest speeds among the threads of a program in a mapping.
struct SlowestSpeeds {
    threads: f64,
    ipc: f64,
    /// Speed of the slowest thread divided by its speed alone on the slowest cores.
    over_slow: f64,
    /// Slowdown of the slowest thread compared with running alone on the fastest cores.
    slowdown: f64,
}

impl Default for SlowestSpeeds {
    fn default() -> Self {
        Self {
            threads: 0.0,
            ipc: 0.0,
            over_slow: f64::INFINITY,
            slowdown: 0.0,
        }
    }
}

impl SlowestSpeeds {
    fn add(&mut self, thread: &ThreadForecast) {
        self.threads += 1.0;
        self.ipc += thread.ipc;
        self.over_slow = self.over_slow.min(thread.ips / thread.ips_alone_slow);
        self.slowdown = self.slowdown.max(thread.ips_alone_fast / thread.ips);
    }
}

/// Returns the power in W that the machine draws apart from its threads: static power, and idle power of cores without a
/// thread.
fn idle_w(mapping: &[CpuId], topology: &Topology) -> f64 {
    let used: BTreeSet<u32> = mapping
        .iter()
        .map(|c| topology.cpus[c.index()].core)
        .collect();
    let idle = topology
        .cpus
        .iter()
        .filter(|c| c.thread == 0 && !used.contains(&c.core));
    topology.static_power_w
        + idle
            .map(|c| topology.core_types[c.core_type.index()].power.idle_w)
            .sum::<f64>()
}

struct BestStatic {
    objective: MappingObjective,
    budget: f64,
    /// Program of each thread, and its affinity mask before this policy first placed it.
    allowed: BTreeMap<ThreadId, (ProgramId, Arc<CpuSet>)>,
    /// True if all threads have been placed or left to Linux, so that only a change of threads needs another search.
    done: bool,
    /// True if this policy placed the threads, false if it left them to Linux.
    placed: bool,
}

impl BestStatic {
    /// Updates the set of threads from a view. Returns true if it changed.
    fn admit(&mut self, view: &View<'_>) -> bool {
        if self.done
            && view
                .threads
                .iter()
                .map(|t| t.id)
                .eq(self.allowed.keys().copied())
        {
            return false;
        }
        let mut before = std::mem::take(&mut self.allowed);
        let mut keep = |t: &countersteer_model::engine::ThreadInfo| {
            before
                .remove(&t.id)
                .unwrap_or_else(|| (t.program, Arc::clone(&t.allowed)))
        };
        self.allowed = view.threads.iter().map(|t| (t.id, keep(t))).collect();
        self.done = true;
        true
    }

    fn subjects(&self, topology: &Topology) -> Vec<SearchedThread> {
        let machine = &topology.groups[0].cpus;
        let subject = |(&thread, (program, allowed)): (&ThreadId, &(ProgramId, Arc<CpuSet>))| {
            let usable = machine.is_subset(allowed) || !machine.intersects(allowed);
            let allowed = if usable { machine } else { allowed };
            SearchedThread {
                thread,
                program: *program,
                allowed: Arc::clone(allowed),
                restricted: !usable,
            }
        };
        self.allowed.iter().map(subject).collect()
    }

    fn reason(&self, found: &BestMapping, thread: usize, topology: &Topology) -> Reason {
        let rule = match (found.exact, self.allowed.len() > EXACT) {
            (true, _) => "best of all balanced mappings",
            (false, true) => {
                "best mapping found by hill climbing: too many threads to try all mappings"
            }
            (false, false) => "best mapping found by hill climbing: more mappings than the budget",
        };
        let shown = |value: f64| self.objective.shown(value);
        let tried = kinds(topology)
            .zip(&found.by_group[thread])
            .filter(|(_, value)| value.is_finite());
        Reason::rule(rule)
            .saw("predicted", Some(shown(found.best)))
            .saw("predicted of the worst mapping", Some(shown(found.worst)))
            .saw(
                "predicted of leaving threads to Linux",
                Some(shown(found.left)),
            )
            .saw("mappings predicted", Some(found.predictions as f64))
            .against(
                self.objective.unit(),
                tried.map(|(group, value)| (group.id, shown(*value))),
            )
    }
}

fn anywhere(subjects: &[SearchedThread], reason: &Reason) -> Placement {
    let place =
        |s: &SearchedThread| ThreadPlacement::new(s.thread, Target::Anywhere, reason.clone());
    Placement {
        threads: subjects.iter().map(place).collect(),
        ..Placement::default()
    }
}

impl Policy for BestStatic {
    fn needs(&self) -> &Needs {
        const NEEDS: &Needs = &Needs::EVENTS;
        NEEDS
    }

    fn decide(&mut self, view: &mut View<'_>, rng: &mut PolicyRng) -> Placement {
        if !self.admit(view) || view.threads.is_empty() {
            return Placement::default();
        }
        let topology = Arc::clone(view.topology);
        let subjects = self.subjects(&topology);
        let Some(forecast) = view.forecast.as_deref_mut().filter(|f| f.predicts()) else {
            self.placed = false;
            let reason = Reason::rule("this engine cannot predict mappings: Linux decides");
            return anywhere(&subjects, &reason);
        };
        let crowded = subjects.len() > topology.cpus.len();
        let part =
            (EXACT as f64 / subjects.len() as f64).min(1.0) * if crowded { 0.1 } else { 1.0 };
        let budget = (self.budget * part).max(1.0) as usize;
        let present: Vec<CpuId> = view.threads.iter().map(|t| t.cpu).collect();
        let chosen_by_linux = (!self.placed).then_some(present.as_slice());
        let found = MappingSearch::new(&topology, &subjects, self.objective, budget, forecast).run(
            &present,
            chosen_by_linux,
            rng,
        );
        let programs: BTreeSet<ProgramId> = subjects.iter().map(|s| s.program).collect();
        let gain = self.objective.gain(found.best, found.left, programs.len());
        // The comparison is false for NaN, so that a mapping without a prediction counts as no gain.
        self.placed = gain >= MARGIN;
        if !self.placed {
            let shown = |value: f64| Some(self.objective.shown(value));
            let reason = Reason::rule("no mapping is predicted to gain 2 %: Linux decides")
                .saw("predicted", shown(found.best))
                .saw("predicted of leaving threads to Linux", shown(found.left));
            return anywhere(&subjects, &reason);
        }
        let place = |(row, subject): (usize, &SearchedThread)| {
            let group = topology.group_of(*found.mapping.get(row)?, GroupBy::Cpu)?;
            let reason = self.reason(&found, row, &topology);
            Some(ThreadPlacement::new(
                subject.thread,
                Target::Group(group.id),
                reason,
            ))
        };
        Placement {
            threads: subjects.iter().enumerate().filter_map(place).collect(),
            ..Placement::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersteer_model::testing;

    #[test]
    fn a_program_counts_once_and_as_its_slowest_thread() {
        let topology = testing::topology(testing::SMT);
        let at = |ips: f64| ThreadForecast {
            ips,
            ipc: 1.0,
            ips_alone_fast: 2.0,
            ips_alone_slow: 1.0,
            power_w: 1.0,
        };
        let cpus = [0, 2, 4].map(CpuId);
        let programs = [0, 0, 1].map(ProgramId);
        let value = |objective: MappingObjective, ips: [f64; 3]| {
            objective.value(&ips.map(at), &programs, &cpus, &topology)
        };
        // Two threads on fast cores gain 1 together; a fast core for one of them alone gains nothing.
        assert_eq!(value(MappingObjective::Asp, [2.0, 2.0, 1.0]), 1.0);
        assert_eq!(value(MappingObjective::Asp, [2.0, 1.0, 2.0]), 1.0);
        assert_eq!(value(MappingObjective::Asp, [1.0, 1.0, 2.0]), 1.0);
        assert_eq!(value(MappingObjective::Asp, [2.0, 1.0, 1.0]), 0.0);
        assert_eq!(value(MappingObjective::Unfairness, [2.0, 1.0, 2.0]), -2.0);
        assert_eq!(value(MappingObjective::Stp, [2.0, 1.0, 2.0]), 1.5);
    }
}
