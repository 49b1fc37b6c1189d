//! Number of a thread's phase, as a metric: the rule of [`crate::phase`], for tools that count without an engine.

use std::collections::BTreeMap;

use super::{MetricDef, MetricSource, ReadBy, Round};
use crate::phase::Phases;
use crate::sample::Event;
use crate::units::ThreadId;

pub(super) const PHASE: MetricDef = MetricDef {
    name: "phase",
    unit: "number",
    prose: "number of the thread's phase, from 1; another begins where cycles per instruction leave their running mean",
    needs: &[Event::Instructions, Event::Cycles],
    helps: &[],
    read_by: ReadBy::Source(|topology| {
        Box::new(PhaseNumbers {
            phases: Phases::new(topology),
            of: BTreeMap::new(),
        })
    }),
};

struct PhaseNumbers {
    phases: Phases,
    of: BTreeMap<ThreadId, u32>,
}

impl MetricSource for PhaseNumbers {
    fn read(&mut self, round: &Round<'_>) -> Option<f64> {
        let number = self.of.entry(round.thread).or_insert(1);
        if self.phases.begins(round.thread, &round.sample) {
            *number += 1;
        }
        Some(f64::from(*number))
    }

    fn forget(&mut self, thread: ThreadId) {
        self.of.remove(&thread);
        self.phases.forget(thread);
    }
}
