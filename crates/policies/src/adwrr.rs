//! `adwrr`: asymmetric distributed weighted round-robin, equal scaled CPU time for every thread.
//!
//! Idea: CPU time on a core is scaled by the core's speed over that of the slowest. Threads with the least scaled time for
//! their weight run on the big cores. A swap needs a difference of one round slice.
//!
//! Source: "A-DWRR" in PMCTrack, section 4.1.1. Distributed weighted round-robin is Li et al., PPoPP 2009; its form for unequal
//! cores is Li et al., HPCA 2010.
//!
//! Decided here: the rating of a core type is its capacity, or its clock if the kernel gives all types one capacity; the slice.
//! The published form has two queues per CPU and rounds. With one thread per core these reduce to the rule above. Programs of
//! one thread each on two core types then get the same moves as under `rr`: the least scaled time is the least time on big cores.
//!
//! Assumes: every thread gains from a fast core as much as the rating states. Loses: it ignores SF, and gives programs with
//! many threads most of the big cores.

use countersteer_model::placement::{Placement, Reason};
use countersteer_model::policy::{
    CoreSlots, ParamDef, Params, Policy, PolicyDef, PolicyError, PolicyRng, View, active,
};
use countersteer_model::topology::Topology;
use std::sync::Arc;

use crate::order::{Types, entries, place, ranks};
use crate::progress::{ThreadProgress, nice_weight};

pub(crate) const DEF: PolicyDef = PolicyDef {
    name: "adwrr",
    summary: "asymmetric weighted round-robin: equal CPU time, scaled by core speed, for all threads",
    source: "PMCTrack, section 4.1.1 (A-DWRR)",
    params: &[ParamDef {
        key: "slice_ms",
        default: "100",
        prose: "round slice: scaled CPU time by which a thread must be behind to take a faster core, in ms",
    }],
    make: |params, topology| {
        let slots = CoreSlots::new(topology);
        Ok(Box::new(Adwrr {
            slice_s: params.number("slice_ms", 1.0)? * 1e-3,
            types: Types::new(topology, &slots),
            slots,
            progress: ThreadProgress::default(),
        }))
    },
};

struct Adwrr {
    slice_s: f64,
    slots: CoreSlots,
    types: Types,
    progress: ThreadProgress,
}

impl Policy for Adwrr {
    fn tune(&mut self, params: &Params, _: &Arc<Topology>) -> Result<(), PolicyError> {
        self.slice_s = params.number("slice_ms", 1.0)? * 1e-3;
        Ok(())
    }

    fn decide(&mut self, view: &mut View<'_>, _: &mut PolicyRng) -> Placement {
        let present = active(view);
        self.progress.admit(&present, view.threads, self.slice_s);
        for info in &present {
            let Some(usage) = view.usage(info.id) else {
                continue;
            };
            // A-DWRR in PMCTrack, section 4.1.1: CPU time on a type counts by the speed of that type relative to the slowest.
            let scaled: f64 = self
                .types
                .types
                .iter()
                .zip(&self.types.rating)
                .map(|(core_type, rating)| usage.last_cpu_s(*core_type) * rating)
                .sum();
            self.progress.add(info.id, scaled / nice_weight(info.nice));
        }
        let mut entries = entries(&present, &self.slots);
        for entry in &mut entries {
            entry.key = -self.progress.get(entry.info.id);
        }
        let quota = self.slots.quota(entries.len());
        let ranks = ranks(&entries, &quota, |holder, challenger| {
            challenger - holder > self.slice_s
        });
        place(&mut self.slots, &entries, &ranks, |row| {
            Reason::rule("the least scaled CPU time runs on the fastest cores")
                .saw("scaled CPU seconds", Some(-entries[row].key))
        })
    }
}
