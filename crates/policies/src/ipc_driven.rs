//! `ipc-driven`: threads visit every core type occasionally, and swap if the ratios of their speeds suggest it.
//!
//! Idea: a thread whose IPC has changed visits each of the other core types for a refresh period. The ratio of its speeds then
//! decides which threads swap: the one on the faster type with the lowest ratio, and the one on the slower type with the
//! highest. After a swap both rest for a while. A visitor shares the core with its owner; this is part of the algorithm.
//!
//! Source: "IPC-driven" in HASS, section 6 (Becchi and Crowley, 2006), with its parameters.
//!
//! Decided here: ratios are of instructions per second. The paper uses IPC, but calls the ratio of clocks their bound. The order
//! of threads is the same by either: two ratios of the same two types differ by the ratio of their clocks. The running average;
//! decisions every refresh period.
//!
//! Assumes: phases are long compared with visits. Loses: with short phases (moves consume the gain), if two speeds were
//! measured in different phases, and for homogeneous work, for which visits are pure cost.

use std::collections::BTreeMap;

use countersteer_model::placement::{Placement, Reason, Target, ThreadPlacement};
use countersteer_model::policy::{
    CoreSlots, Needs, ParamDef, Policy, PolicyDef, PolicyRng, View, active,
};
use countersteer_model::units::{GroupId, Nanos, ThreadId};

use crate::interval::DecisionInterval;
use crate::order::{Contender, Types, entries, ranks};

pub(crate) const DEF: PolicyDef = PolicyDef {
    name: "ipc-driven",
    summary: "threads visit all core types when their IPC changes, and swap by the ratio of speeds",
    source: "HASS, section 6 (Becchi and Crowley, 2006)",
    params: &[
        ParamDef {
            key: "refresh_ms",
            default: "30",
            prose: "length of a visit, and time between decisions, in ms",
        },
        ParamDef {
            key: "threshold",
            default: "0.1",
            prose: "relative change of IPC after which a thread is measured again",
        },
        ParamDef {
            key: "inactivity_ms",
            default: "1500",
            prose: "time after a move during which a thread is left where it is, in ms",
        },
    ],
    make: |params, topology| {
        let slots = CoreSlots::new(topology);
        let interval = DecisionInterval::of(params, "refresh_ms")?;
        Ok(Box::new(IpcDriven {
            needs: Needs {
                metrics: vec!["ipc", "ips"],
                period: Some(interval.every),
                ..Needs::NOTHING
            },
            interval,
            threshold: params.number("threshold", 0.0)?,
            inactivity: Nanos::from_secs_f64(params.number("inactivity_ms", 0.0)? * 1e-3),
            types: Types::new(topology, &slots),
            slots,
            threads: BTreeMap::new(),
        }))
    },
};

/// Weight of a new sample in the running average of IPC; the average covers about eight samples.
const FRESH: f64 = 0.125;

#[derive(Clone, Default)]
struct ThreadIpc {
    home: usize,
    /// Index of the core type on which the thread is now: its home, or a type that it visits.
    at: usize,
    /// Core types that the thread has yet to visit.
    plan: Vec<usize>,
    /// Instructions per second on each core type; `None` if not measured.
    ips: Vec<Option<f64>>,
    /// Running average of the IPC at home.
    ipc: Option<f64>,
    /// Time of arrival at the current home.
    arrived: Nanos,
    /// Core group of the last placement.
    placed: Option<GroupId>,
}

impl ThreadIpc {
    /// Returns the ratio of the speeds on a faster and on a slower type; `None` if one of them is unknown.
    fn ratio(&self, fast: usize, slow: usize) -> Option<f64> {
        let ips = |rank: usize| self.ips.get(rank).copied().flatten();
        Some(ips(fast)? / ips(slow)?).filter(|r| r.is_finite())
    }
}

struct IpcDriven {
    needs: Needs,
    interval: DecisionInterval,
    threshold: f64,
    inactivity: Nanos,
    slots: CoreSlots,
    types: Types,
    threads: BTreeMap<ThreadId, ThreadIpc>,
}

impl IpcDriven {
    fn admit(&mut self, view: &View<'_>, entries: &[Contender<'_>], homes: &[usize]) {
        let alive = |id: &ThreadId| view.lives(*id);
        self.threads.retain(|id, _| alive(id));
        let types = self.types.types.len();
        for (entry, home) in entries.iter().zip(homes) {
            let known = self
                .threads
                .entry(entry.info.id)
                .or_insert_with(|| ThreadIpc {
                    home: *home,
                    at: *home,
                    plan: (0..types).filter(|rank| rank != home).rev().collect(),
                    ips: vec![None; types],
                    arrived: view.now,
                    ..ThreadIpc::default()
                });
            if known.home != *home {
                known.home = *home;
                known.arrived = view.now;
            }
        }
    }

    /// Adds the metrics of the last interval, and decides which threads visit which core type next.
    fn visit(&mut self, view: &View<'_>, entries: &[Contender<'_>]) {
        let mut ipcs = view.column("ipc");
        for entry in entries {
            let id = entry.info.id;
            let Some(known) = self.threads.get_mut(&id) else {
                continue;
            };
            let core_type = self.types.types[known.at];
            let ran_s = view.usage(id).map_or(0.0, |u| u.last_cpu_s(core_type));
            let done = view.usage(id).map_or(0.0, |u| u.last_instructions());
            if ran_s > 0.0 && done > 0.0 {
                known.ips[known.at] = Some(done / ran_s);
            }
            let ipc = ipcs.get(id).filter(|ipc| ipc.is_finite());
            if known.at == known.home {
                if let (Some(ipc), Some(average)) = (ipc, known.ipc) {
                    // HASS, section 6: a change of IPC suggests a new phase, whose ratios are then measured by visits.
                    let rested = view.now.since(known.arrived) >= self.inactivity;
                    if rested && (ipc - average).abs() > self.threshold * average {
                        known.plan = (0..known.ips.len()).filter(|r| *r != known.home).collect();
                        known.ipc = None;
                    }
                }
                known.ipc = match (known.ipc, ipc) {
                    (Some(average), Some(ipc)) => Some(average + FRESH * (ipc - average)),
                    (None, ipc) => ipc,
                    (average, None) => average,
                };
            }
            let first_measured = known.ips[known.home].is_some();
            known.at = if first_measured {
                known.plan.pop().unwrap_or(known.home)
            } else {
                known.home
            };
        }
    }

    /// Swaps the homes of two threads if the one on the slower type has the larger ratio of speeds (HASS, section 6). Both must
    /// have been at home for `inactivity_ms`.
    fn swap(&mut self, now: Nanos) {
        let types = self.types.types.len();
        for fast in 0..types.saturating_sub(1) {
            for slow in fast + 1..types {
                let rested = |known: &&ThreadIpc| {
                    known.at == known.home && now.since(known.arrived) >= self.inactivity
                };
                let on = |rank: usize| {
                    let there = self.threads.iter().filter(move |(_, k)| k.home == rank);
                    there
                        .filter(|(_, known)| rested(known))
                        .filter_map(|(id, known)| Some((known.ratio(fast, slow)?, *id)))
                };
                let lowest = on(fast).min_by(|a, b| a.0.total_cmp(&b.0));
                let highest = on(slow).max_by(|a, b| a.0.total_cmp(&b.0));
                let (Some((low, a)), Some((high, b))) = (lowest, highest) else {
                    continue;
                };
                if high > low {
                    for (id, home) in [(a, slow), (b, fast)] {
                        if let Some(known) = self.threads.get_mut(&id) {
                            (known.home, known.at, known.arrived) = (home, home, now);
                            known.ipc = None;
                        }
                    }
                }
            }
        }
    }
}

impl Policy for IpcDriven {
    fn needs(&self) -> &Needs {
        &self.needs
    }

    fn decide(&mut self, view: &mut View<'_>, _: &mut PolicyRng) -> Placement {
        if self.types.types.is_empty() || !self.interval.is_over(view.now) {
            return Placement::default();
        }
        self.interval.begin(view.now);
        let present = active(view);
        let mut entries = entries(&present, &self.slots);
        for entry in &mut entries {
            entry.held = self.threads.get(&entry.info.id).map(|k| k.home);
        }
        let quota = self.slots.quota(entries.len());
        let homes = ranks(&entries, &quota, |_, _| false);
        self.admit(view, &entries, &homes);
        self.visit(view, &entries);
        self.swap(view.now);
        let mut placement = Placement::default();
        for entry in &entries {
            let Some(known) = self.threads.get_mut(&entry.info.id) else {
                continue;
            };
            let group = self.slots.ranks()[known.at].group;
            if known.placed == Some(group) {
                continue;
            }
            known.placed = Some(group);
            let rule = if known.at == known.home {
                "pinned where the ratio of its speeds put it"
            } else {
                "visits this core type to be measured"
            };
            let last = self.types.types.len() - 1;
            let reason = Reason::rule(rule).saw("speed ratio", known.ratio(0, last));
            placement.threads.push(ThreadPlacement::new(
                entry.info.id,
                Target::Group(group),
                reason,
            ));
        }
        placement
    }
}

#[cfg(test)]
mod tests {
    use countersteer_model::testing::{SMT, topology};

    use super::*;

    const NOW: Nanos = Nanos::from_millis(10_000);

    /// Policy with two threads at home, on the fast and on the slow type, with known ratios of their speeds.
    fn knowing(ratios: [f64; 2]) -> IpcDriven {
        let topology = topology(SMT);
        let slots = CoreSlots::new(&topology);
        let known = |home: usize| {
            let known = ThreadIpc {
                home,
                at: home,
                ips: vec![Some(ratios[home] * 1e9), Some(1e9)],
                ipc: Some(1.0),
                ..ThreadIpc::default()
            };
            (ThreadId::from_index(home), known)
        };
        IpcDriven {
            needs: Needs::NOTHING,
            interval: DecisionInterval::new(Nanos::ZERO),
            threshold: 0.1,
            inactivity: Nanos::from_millis(1_000),
            types: Types::new(&topology, &slots),
            slots,
            threads: [known(0), known(1)].into(),
        }
    }

    fn homes(policy: &IpcDriven) -> Vec<usize> {
        policy.threads.values().map(|k| k.home).collect()
    }

    #[test]
    fn a_ratio_is_the_speed_on_the_faster_type_over_that_on_the_slower() {
        let mut known = ThreadIpc {
            ips: vec![Some(3e9), Some(2e9)],
            ..ThreadIpc::default()
        };
        assert_eq!(known.ratio(0, 1), Some(1.5));
        assert_eq!(known.ratio(0, 2), None, "there is no such type");
        known.ips[1] = Some(0.0);
        assert_eq!(known.ratio(0, 1), None);
        known.ips[1] = None;
        assert_eq!(known.ratio(0, 1), None);
    }

    #[test]
    fn the_lowest_ratio_on_fast_cores_gives_way_to_a_higher_one() {
        let mut policy = knowing([1.2, 2.0]);
        policy.swap(NOW);
        assert_eq!(homes(&policy), [1, 0]);
        for known in policy.threads.values() {
            assert_eq!(
                (known.at, known.arrived, known.ipc),
                (known.home, NOW, None)
            );
        }
        for ratios in [[2.0, 1.2], [1.5, 1.5]] {
            let mut policy = knowing(ratios);
            policy.swap(NOW);
            assert_eq!(homes(&policy), [0, 1], "{ratios:?}");
        }
    }

    #[test]
    fn who_came_lately_or_is_on_a_visit_is_not_swapped() {
        for thread in [0, 1] {
            let mut policy = knowing([1.2, 2.0]);
            let late = policy.threads.get_mut(&ThreadId(thread)).unwrap();
            late.arrived = Nanos::from_millis(9_001);
            policy.swap(NOW);
            assert_eq!(homes(&policy), [0, 1]);
            policy.swap(Nanos::from_millis(10_001));
            assert_eq!(homes(&policy), [1, 0], "it has rested for a second");

            let mut policy = knowing([1.2, 2.0]);
            let away = policy.threads.get_mut(&ThreadId(thread)).unwrap();
            away.at = 1 - away.home;
            policy.swap(NOW);
            assert_eq!(homes(&policy), [0, 1]);
        }
    }
}
