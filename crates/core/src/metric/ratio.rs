//! Metrics that are plain ratios of a sample's counts.

use super::{MetricDef, MetricSource, Round};
use crate::sample::{Event, Sample};

/// A formula over one sample.
struct Formula(fn(&Sample) -> Option<f64>);

impl MetricSource for Formula {
    fn read(&mut self, round: &Round<'_>) -> Option<f64> {
        (self.0)(round.sample)
    }
}

fn per_kilo_instruction(sample: &Sample, event: Event) -> Option<f64> {
    sample
        .counts
        .ratio(event, Event::Instructions)
        .map(|r| r * 1e3)
}

fn per_second(sample: &Sample, event: Event) -> Option<f64> {
    let seconds = sample.running.as_secs_f64();
    (seconds > 0.0).then_some(())?;
    Some(sample.counts.get(event)? / seconds)
}

pub(super) const IPC: MetricDef = MetricDef {
    name: "ipc",
    unit: "instructions/cycle",
    prose: "instructions per unhalted cycle",
    needs: &[Event::Instructions, Event::Cycles],
    helps: &[],
    source: |_| {
        Box::new(Formula(|s| {
            s.counts.ratio(Event::Instructions, Event::Cycles)
        }))
    },
};

pub(super) const IPS: MetricDef = MetricDef {
    name: "ips",
    unit: "instructions/s",
    prose: "instructions per second of running",
    needs: &[Event::Instructions],
    helps: &[],
    source: |_| Box::new(Formula(|s| per_second(s, Event::Instructions))),
};

pub(super) const LLC_MPKI: MetricDef = MetricDef {
    name: "llc_mpki",
    unit: "1/kilo-instruction",
    prose: "misses of the last-level cache per kilo-instruction",
    needs: &[Event::LlcMisses, Event::Instructions],
    helps: &[],
    source: |_| Box::new(Formula(|s| per_kilo_instruction(s, Event::LlcMisses))),
};

pub(super) const LLC_APKI: MetricDef = MetricDef {
    name: "llc_apki",
    unit: "1/kilo-instruction",
    prose: "references to the last-level cache per kilo-instruction",
    needs: &[Event::LlcReferences, Event::Instructions],
    helps: &[],
    source: |_| Box::new(Formula(|s| per_kilo_instruction(s, Event::LlcReferences))),
};

pub(super) const L2_MPKI: MetricDef = MetricDef {
    name: "l2_mpki",
    unit: "1/kilo-instruction",
    prose: "data accesses that left the private caches, per kilo-instruction",
    needs: &[Event::L2Misses, Event::Instructions],
    helps: &[],
    source: |_| Box::new(Formula(|s| per_kilo_instruction(s, Event::L2Misses))),
};

pub(super) const BRANCH_MPKI: MetricDef = MetricDef {
    name: "branch_mpki",
    unit: "1/kilo-instruction",
    prose: "mispredicted branches per kilo-instruction",
    needs: &[Event::BranchMisses, Event::Instructions],
    helps: &[],
    source: |_| Box::new(Formula(|s| per_kilo_instruction(s, Event::BranchMisses))),
};

pub(super) const LLC_OCCUPANCY: MetricDef = MetricDef {
    name: "llc_occupancy",
    unit: "bytes",
    prose: "bytes held in the last-level cache when the thread was last switched out or sampled",
    needs: &[Event::LlcOccupancyBytes],
    helps: &[],
    source: |_| Box::new(Formula(|s| s.counts.get(Event::LlcOccupancyBytes))),
};

pub(super) const ENERGY_PER_INSTRUCTION: MetricDef = MetricDef {
    name: "energy_per_instruction",
    unit: "nJ/instruction",
    prose: "energy attributed to the thread per instruction",
    needs: &[Event::EnergyNj, Event::Instructions],
    helps: &[],
    source: |_| {
        Box::new(Formula(|s| {
            s.counts.ratio(Event::EnergyNj, Event::Instructions)
        }))
    },
};

pub(super) const POWER: MetricDef = MetricDef {
    name: "power",
    unit: "W",
    prose: "power attributed to the thread while it runs",
    needs: &[Event::EnergyNj],
    helps: &[],
    source: |_| {
        Box::new(Formula(|s| {
            per_second(s, Event::EnergyNj).map(|nj| nj * 1e-9)
        }))
    },
};
