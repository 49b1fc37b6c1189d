//! Helpers for the tests of `steer top`: a plan of software events, a machine without virtual counters, and a state.

#![allow(clippy::unwrap_used)] // A helper of tests that fails has failed its test.

use countersteer_model::counters::{
    BoundMetric, Metric, Operand, PlannedEvent, PlannedSet, SetPlan,
};
use countersteer_model::units::Nanos;
use countersteer_sysfs::sensors::PROVIDERS;

use super::columns::{Silent, columns};
use super::sample::{MeasuredTask, Snapshot, TaskKey};
use super::state::TopState;
use super::tails;
use crate::counted::CountedMetrics;

/// Returns a plan with one event set, and two metrics: `context_switches`, which the table has, and the user's `clock_share`.
pub fn counted() -> CountedMetrics {
    let event = |name: &str, unit: &str| PlannedEvent {
        name: name.into(),
        unit: unit.into(),
        scale: 1.0,
        event: None,
    };
    let set = PlannedSet {
        events: vec![event("task_clock", "ns"), event("context_switches", "")],
    };
    let bound = |text: &str, name: &str, operands: Vec<Operand>| {
        let mut metric = Metric::choose(text, &[]).unwrap().remove(0);
        metric.name = name.into();
        BoundMetric::new(&metric, 0, &set, operands).unwrap()
    };
    let metrics = vec![
        bound(
            "context_switches",
            "context_switches",
            vec![Operand::Event(1)],
        ),
        bound(
            "task_clock/seconds",
            "clock_share",
            vec![Operand::Event(0), Operand::Seconds],
        ),
    ];
    let plan = SetPlan::new(vec![set.clone()], None).unwrap();
    CountedMetrics {
        plan,
        metrics,
        ..CountedMetrics::nothing()
    }
}

/// Returns the reasons why no provider of virtual counters is available, as on a machine without any.
pub fn silent() -> Silent {
    PROVIDERS
        .iter()
        .map(|p| p.name)
        .chain([tails::PROVIDER])
        .map(|name| (name, "there is none".to_owned()))
        .collect()
}

pub fn state() -> TopState {
    let (columns, measures) = columns(&counted(), 0, false, &silent());
    TopState::new(columns, &measures, vec!["cpu".into()])
}

pub fn measured(pid: u32, tid: u32, name: &str, share: f64, switches: f64) -> MeasuredTask {
    MeasuredTask {
        key: TaskKey { pid, tid },
        name: name.into(),
        cpu: Some(tid % 4),
        core_type: 0,
        share,
        values: vec![Some(switches), Some(1.0)],
        ended: false,
    }
}

pub fn snapshot(number: u64, threads: Vec<MeasuredTask>) -> Snapshot {
    let processes = threads.iter().map(|t| MeasuredTask {
        key: TaskKey {
            pid: t.key.pid,
            tid: 0,
        },
        cpu: None,
        ..t.clone()
    });
    let at = Nanos::from_millis(1000 * (number + 1));
    Snapshot {
        number,
        at,
        processes: processes.collect(),
        threads,
        note: None,
    }
}
