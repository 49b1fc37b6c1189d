//! `eqp`: equal progress for every thread.
//!
//! Idea: a thread's slowdown follows from its CPU time on either core type and its present SF:
//! `(T_big + T_small) / (T_big + T_small / SF)`. The threads with the largest slowdown run on the big cores.
//!
//! Source: "EQP" in PMCTrack, section 4.1.1 (Van Craeynest et al., PACT 2013), with SF sampled on both types.
//!
//! Decided here: time instead of cycles, which `unit=cycles` counts as published; the margin; how often SFs are measured again. A
//! thread without a measured speed on a type is sent there for five samples, as long as there are enough threads to use both
//! types.
//!
//! Assumes: the present SF always held, so a change of phase rewrites the past. Loses: it ignores that threads belong to one
//! program, priorities, and sampling errors; swaps become rarer as threads get older.

use std::collections::BTreeMap;

use countersteer_model::placement::{Placement, Reason};
use countersteer_model::policy::{
    CoreSlots, Needs, ParamDef, Policy, PolicyDef, PolicyRng, View, active,
};
use countersteer_model::units::{CoreTypeId, Nanos, ThreadId};

use crate::order::{Contender, Types, entries, free, place, ranks};
use crate::speedup::UNKNOWN;

pub(crate) const DEF: PolicyDef = PolicyDef {
    name: "eqp",
    summary: "equal progress: the most slowed-down threads run on the fastest cores",
    source: "PMCTrack, section 4.1.1 (EQP)",
    params: &[
        ParamDef {
            key: "margin",
            default: "0.01",
            prose: "a challenger's slowdown must be greater by this fraction",
        },
        ParamDef {
            key: "refresh_ms",
            default: "2000",
            prose: "time between measurements of SFs that are known, in ms",
        },
        ParamDef {
            key: "sf",
            default: "sampled",
            prose: "where speed-up factors come from: sampled (its own speed on either type), model, oracle (simulator only)",
        },
        ParamDef {
            key: "unit",
            default: "time",
            prose: "what is counted on either type: time, or cycles at its full clock, as published",
        },
    ],
    make: |params, topology| {
        let slots = CoreSlots::new(topology);
        let sources = [
            ("sampled", "sf_sampled"),
            ("model", "sf"),
            ("oracle", "sf_oracle"),
        ];
        let metric = params.choice("sf", &sources)?;
        let types = Types::new(topology, &slots);
        let by_cycles = params.choice("unit", &[("time", false), ("cycles", true)])?;
        let clock = |t: &CoreTypeId| topology.core_types[t.index()].freq_ghz;
        let weight = |t| if by_cycles { clock(t) } else { 1.0 };
        Ok(Box::new(Eqp {
            needs: Needs::metrics(&[metric]),
            metric,
            samples: metric == "sf_sampled",
            margin: params.number("margin", 0.0)?,
            refresh: Nanos::from_secs_f64(params.number("refresh_ms", 1.0)? * 1e-3),
            weights: types.types.iter().map(weight).collect(),
            types,
            slots,
            visits: BTreeMap::new(),
            refreshed: Nanos::ZERO,
        }))
    },
};

/// Threshold: number of samples on a core type after which a thread's speed there counts as measured.
const ENOUGH: u32 = 5;

/// Progress of the measurement of a thread's speed on both core types.
#[derive(Clone, Copy, Default)]
struct Visits {
    /// Number of samples on the fastest and on the slowest type since the last measurement began.
    samples: [u32; 2],
    /// Time at which the last measurement on both types was complete.
    measured: Nanos,
}

impl Visits {
    /// Returns the first type (0 fastest, 1 slowest) on which the thread has too few samples; `None` if both have enough.
    fn missing(&self) -> Option<usize> {
        self.samples.iter().position(|n| *n < ENOUGH)
    }
}

struct Eqp {
    needs: Needs,
    metric: &'static str,
    samples: bool,
    margin: f64,
    refresh: Nanos,
    slots: CoreSlots,
    types: Types,
    /// Weight of a second of CPU time on each core type: 1, or the frequency with `unit=cycles`.
    weights: Vec<f64>,
    visits: BTreeMap<ThreadId, Visits>,
    refreshed: Nanos,
}

impl Eqp {
    fn slowdown(&self, view: &View<'_>, thread: ThreadId, sf: Option<f64>) -> f64 {
        let sf = sf.filter(|sf| sf.is_finite()).unwrap_or(UNKNOWN);
        let sf = sf.clamp(1.0, 7.0);
        let Some(usage) = view.usage(thread) else {
            return 1.0;
        };
        // EQP in PMCTrack, section 4.1.1: slowdown = (T_big + T_small) / (T_big + T_small / SF). The denominator is the time that
        // the fastest type would have needed; types in between are interpolated by their relative speed.
        let mut ran = 0.0;
        let mut needed = 0.0;
        let types = self.types.types.iter().zip(&self.types.between);
        for ((core_type, between), weight) in types.zip(&self.weights) {
            let counted = usage.cpu_s(*core_type) * weight;
            ran += counted;
            needed += counted * (1.0 + (sf - 1.0) * between) / sf;
        }
        if needed > 0.0 { ran / needed } else { 1.0 }
    }

    /// Counts the samples of the last interval. Sets the keys of threads with an incomplete measurement so that they are sent to
    /// the type that lacks samples.
    fn measure(&mut self, view: &View<'_>, entries: &mut [Contender<'_>], quota: &[usize]) {
        let (Some(fast), Some(slow)) = (self.types.types.first(), self.types.types.last()) else {
            return;
        };
        let ends = [*fast, *slow];
        // A speed-up factor needs both types. If there are too few threads to use the slowest type, no thread can be sent there.
        let reachable =
            [quota.first(), quota.last()].map(|q| q.is_some_and(|q| *q > 0)) == [true; 2];
        let alive = |id: &ThreadId| view.lives(*id);
        self.visits.retain(|id, _| alive(id));
        let mut measuring = 0;
        for entry in entries.iter_mut().filter(|e| e.stuck.is_none()) {
            let visits = self.visits.entry(entry.info.id).or_default();
            let before = visits.missing();
            for (count, end) in visits.samples.iter_mut().zip(ends) {
                let ran = view.usage(entry.info.id).map_or(0.0, |u| u.last_cpu_s(end));
                *count += u32::from(ran > 0.0);
            }
            match visits.missing() {
                Some(end) if reachable => {
                    measuring += 1;
                    entry.key = [f64::INFINITY, f64::NEG_INFINITY][end];
                }
                None if before.is_some() => visits.measured = view.now,
                _ => {}
            }
        }
        if reachable && measuring == 0 && view.now.since(self.refreshed) >= self.refresh {
            self.refreshed = view.now;
            self.measure_oldest(entries);
        }
    }

    /// Begins another measurement of the thread whose last one is the oldest.
    fn measure_oldest(&mut self, entries: &[Contender<'_>]) {
        let free = entries.iter().filter(|e| e.stuck.is_none());
        let oldest = free.map(|e| e.info.id);
        let oldest = oldest.min_by_key(|id| self.visits.get(id).map(|v| v.measured));
        if let Some(visits) = oldest.and_then(|id| self.visits.get_mut(&id)) {
            visits.samples = [0, 0];
        }
    }
}

impl Policy for Eqp {
    fn needs(&self) -> &Needs {
        &self.needs
    }

    fn decide(&mut self, view: &mut View<'_>, _: &mut PolicyRng) -> Placement {
        let present = active(view);
        let mut entries = entries(&present, &self.slots);
        let mut factors = view.column(self.metric);
        let sf: Vec<Option<f64>> = entries.iter().map(|e| factors.get(e.info.id)).collect();
        for (entry, sf) in entries.iter_mut().zip(&sf) {
            entry.key = self.slowdown(view, entry.info.id, *sf);
        }
        let quota = self.slots.quota(entries.len());
        if self.samples && self.slots.ranks().len() > 1 {
            let free = free(quota.clone(), entries.iter().map(|e| e.stuck));
            self.measure(view, &mut entries, &free);
        }
        let ranks = ranks(&entries, &quota, |holder, challenger| {
            challenger > holder * (1.0 + self.margin) || (challenger > holder && holder < 0.0)
        });
        place(&mut self.slots, &entries, &ranks, |row| {
            let slowdown = Some(entries[row].key).filter(|key| key.is_finite());
            let rule = if slowdown.is_some() {
                "the most slowed-down threads run on the fastest cores"
            } else {
                "its speed on this core type is to be measured"
            };
            Reason::rule(rule)
                .saw("slowdown", slowdown)
                .saw("sf", sf[row])
        })
    }
}
