//! `acfs`: asymmetry-aware completely fair scheduling, equal slowdown for every application.
//!
//! Idea: each thread has a progress counter that grows, while the thread runs, with its application's fraction of full speed:
//! `dt * SF / S` on a big core and `dt / S` on a small one, where S is the application's speed-up. Equal counters are equal
//! slowdowns. The thread that is furthest behind takes the big core of the one that is furthest ahead, once their counters
//! differ by more than a threshold. A higher weight slows a counter.
//!
//! Source: "ACFS" in PMCTrack, section 4.1.1 (Saez et al., SAC 2015 and JPDC 2017).
//!
//! Decided here: the threshold; the initial counter of a thread, and that sleep earns nothing. With `credit=exact` equal
//! counters are equal slowdowns also for applications with many threads (`credit=thread` is probably the published form). Types
//! in between are interpolated by capacity. As long as no SF is known, all count as 2.5: with 1 no thread would ever move, and
//! none would be measured.
//!
//! Assumes: SFs are right, since it evens out the estimates. Loses: throughput against `hsf`. It does not see slowdown by
//! shared caches, and small thresholds move threads often.

use std::sync::Arc;

use countersteer_model::placement::{Placement, Reason};
use countersteer_model::policy::{
    CoreSlots, Needs, ParamDef, Params, Policy, PolicyDef, PolicyError, PolicyRng, View, active,
};
use countersteer_model::topology::Topology;

use crate::order::{Types, entries, place, ranks};
use crate::progress::{ThreadProgress, nice_weight};
use crate::speedup::{self, Active, WorkDivision};

pub(crate) const DEF: PolicyDef = PolicyDef {
    name: "acfs",
    summary: "asymmetry-aware completely fair: equal slowdown for all applications",
    source: "PMCTrack, section 4.1.1 (ACFS)",
    params: &[
        ParamDef {
            key: "sf",
            default: "model",
            prose: "where speed-up factors come from: model, sampled, steps, oracle (simulator only)",
        },
        ParamDef {
            key: "threshold_ms",
            default: "100",
            prose: "progress at full speed by which a thread must be behind to take a faster core, in ms",
        },
        ParamDef {
            key: "credit",
            default: "exact",
            prose: "exact: a thread on a big core is credited SF / S of its application; thread: 1",
        },
        ParamDef {
            key: "work",
            default: "dynamic",
            prose: "how programs with threads divide work: dynamic (whoever is free takes the next piece) or static \
                    (equal shares with barriers)",
        },
    ],
    make: |params, topology| Ok(Box::new(Acfs::new(params, topology)?)),
};

struct Acfs {
    needs: Needs,
    metric: &'static str,
    threshold_s: f64,
    exact: bool,
    kind: WorkDivision,
    slots: CoreSlots,
    types: Types,
    progress: ThreadProgress,
}

impl Acfs {
    fn new(params: &Params, topology: &Arc<Topology>) -> Result<Self, PolicyError> {
        let sources = [
            ("model", "sf"),
            ("sampled", "sf_sampled"),
            ("steps", "sf_steps"),
            ("oracle", "sf_oracle"),
        ];
        let slots = CoreSlots::new(topology);
        let metric = params.choice("sf", &sources)?;
        Ok(Self {
            needs: Needs::metrics(&[metric]),
            metric,
            threshold_s: params.number("threshold_ms", 0.0)? * 1e-3,
            exact: params.choice("credit", &[("exact", true), ("thread", false)])?,
            kind: params.choice(
                "work",
                &[
                    ("dynamic", WorkDivision::Dynamic),
                    ("static", WorkDivision::Static),
                ],
            )?,
            types: Types::new(topology, &slots),
            slots,
            progress: ThreadProgress::default(),
        })
    }

    /// Returns the progress, in seconds at full speed, that a thread of a program makes per second of CPU time on each rank.
    fn credits(&self, program: &Active) -> Vec<f64> {
        let big = self.slots.ranks().first().map_or(0, |r| r.cores.len());
        let speedup = speedup::application(self.kind, program.sf, program.threads, big);
        // With barriers, the slowest thread determines the speed, so CPU time on either type is equal progress.
        let waits_for_slowest = self.kind == WorkDivision::Static && program.threads > big;
        let (fast, slow) = if waits_for_slowest {
            (1.0, 1.0)
        } else if self.exact {
            (program.sf / speedup, 1.0 / speedup)
        } else {
            (1.0, 1.0 / speedup)
        };
        // ACFS in PMCTrack, section 4.1.1: progress is the fraction of the application's full speed, `SF / S` on the fastest type
        // and `1 / S` on the slowest, with S its speed-up. Types in between are interpolated.
        let credit = |between: &f64| slow + (fast - slow) * between;
        self.types.between.iter().map(credit).collect()
    }
}

impl Policy for Acfs {
    fn needs(&self) -> &Needs {
        &self.needs
    }

    fn tune(&mut self, params: &Params, topology: &Arc<Topology>) -> Result<(), PolicyError> {
        *self = Self {
            progress: std::mem::take(&mut self.progress),
            ..Self::new(params, topology)?
        };
        Ok(())
    }

    fn decide(&mut self, view: &mut View<'_>, _: &mut PolicyRng) -> Placement {
        let present = active(view);
        let mut factors = view.column(self.metric);
        let sf: Vec<Option<f64>> = present
            .iter()
            .map(|t| {
                factors
                    .get(t.id)
                    .filter(|sf| sf.is_finite() && *sf > 0.0)
                    .map(|sf| sf.clamp(1.0, 7.0))
            })
            .collect();
        let programs = speedup::programs(&present, &sf, speedup::UNKNOWN);
        self.progress
            .admit(&present, view.threads, self.threshold_s);
        for info in &present {
            let Some(usage) = view.usage(info.id) else {
                continue;
            };
            let credits = programs.get(info.program).map(|p| self.credits(p));
            let done: f64 = self
                .types
                .types
                .iter()
                .zip(credits.unwrap_or_default())
                .map(|(core_type, credit)| usage.last_cpu_s(*core_type) * credit)
                .sum();
            // A higher weight slows the counter, which gives the thread more time on the fastest cores.
            self.progress.add(info.id, done / nice_weight(info.nice));
        }
        let mut entries = entries(&present, &self.slots);
        for entry in &mut entries {
            entry.key = -self.progress.get(entry.info.id);
        }
        let quota = self.slots.quota(entries.len());
        let ranks = ranks(&entries, &quota, |holder, challenger| {
            challenger - holder > self.threshold_s
        });
        place(&mut self.slots, &entries, &ranks, |row| {
            Reason::rule("the application furthest behind gets the fastest cores")
                .saw("progress at full speed, s", Some(-entries[row].key))
                .saw("sf", sf[row])
        })
    }
}
