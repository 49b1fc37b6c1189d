//! Threads that may end soon are left to Linux: neither confined nor sent to be measured.

#![allow(clippy::unwrap_used)] // a test helper that fails has failed its test

#[allow(dead_code, reason = "other tests look at more of it")]
mod toy;

use std::sync::Arc;

use countersteer_model::driver::{DriverConfig, Recorder, drive};
use countersteer_model::engine::{Applied, Observation};
use countersteer_model::machine::Machine;
use countersteer_model::metric::MetricBank;
use countersteer_model::placement::{Placement, Target};
use countersteer_model::policy::PolicyRng;
use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, Nanos};
use countersteer_policies::parse;
use rand_pcg::rand_core::SeedableRng;

use toy::{Life, Toy};

/// Placements in order: time, true if to a place, and reason.
#[derive(Default)]
struct Log(Vec<(Nanos, bool, String)>);

impl Log {
    fn first(&self, wanted: impl Fn(&(Nanos, bool, String)) -> bool) -> Option<Nanos> {
        self.0.iter().find(|row| wanted(row)).map(|row| row.0)
    }
}

impl Recorder for Log {
    fn observation(&mut self, _: &Topology, _: &Observation, _: &MetricBank) {}

    fn decision(&mut self, _: &Topology, at: Nanos, placement: &Placement, _: Applied) {
        let rows = placement.threads.iter().map(|entry| {
            let confined = entry.target != Target::Anywhere;
            (at, confined, entry.reason.rule.to_string())
        });
        self.0.extend(rows);
    }
}

/// Placements of a policy in 6 s on four cores of two types, for a thread on each core that always runs.
fn placements(spec: &str) -> Log {
    placements_of(spec, &[0, 1, 2, 3])
}

/// Placements for threads that begin on these CPUs; the cores 0 and 1 are big.
fn placements_of(spec: &str, cpus: &[u32]) -> Log {
    let text = include_str!("toy/two-big-two-small.toml");
    let topology = Arc::new(Topology::new(&Machine::parse("m", text).unwrap()));
    let life = Life {
        threads: cpus.len(),
        changes: false,
    };
    let mut engine = Toy::new(&topology, life, 1);
    for (thread, cpu) in engine.threads.iter_mut().zip(cpus) {
        thread.info.cpu = CpuId(*cpu);
    }
    let mut log = Log::default();
    let config = DriverConfig {
        period: Nanos::from_millis(100),
        until: Nanos::from_millis(6_000),
    };
    drive(
        &mut engine,
        parse(spec, &topology).unwrap().as_mut(),
        &mut [&mut log],
        config,
        &mut PolicyRng::seed_from_u64(1),
    )
    .unwrap();
    log
}

#[test]
fn the_first_second_of_a_thread_is_linuxs() {
    for policy in ["hsf", "joint"] {
        let log = placements(policy);
        let left = log.0.iter().filter(|row| row.2.starts_with("young"));
        assert_eq!(left.count(), 4, "{policy}: one each");
        let confined = log.first(|row| row.1).unwrap();
        assert!(
            confined >= Nanos::from_millis(1_000) && confined < Nanos::from_millis(2_000),
            "{policy} confines a thread after {confined}"
        );
        let at_once = placements(&format!("{policy}:young_ms=0"));
        assert_eq!(at_once.first(|row| row.1), Some(Nanos::ZERO), "{policy}");
    }
}

#[test]
fn a_young_thread_moves_once_to_an_idle_faster_core_and_is_free_again() {
    for policy in ["hsf", "joint"] {
        // Both threads of the first pair move, and one of the second: a big core has a thread.
        for (cpus, moves) in [(&[2, 3][..], 2), (&[0, 2, 3], 1), (&[0, 1, 2], 0)] {
            let log = placements_of(policy, cpus);
            let young: Vec<_> = log
                .0
                .iter()
                .filter(|row| row.2.starts_with("young") && row.0 < Nanos::from_millis(1_000))
                .collect();
            let moved = young.iter().filter(|row| row.1);
            assert_eq!(moved.clone().count(), moves, "{policy} {cpus:?}");
            assert!(moved.clone().all(|row| row.0 == Nanos::ZERO), "{policy}");
            let free = young.iter().filter(|row| !row.1);
            assert_eq!(free.count(), cpus.len(), "{policy} {cpus:?}: one each");
        }
    }
}

#[test]
fn published_forms_begin_at_once() {
    for policy in ["hsf:sf=oracle", "hsf:sf=history", "hsf:sf=sampled"] {
        let log = placements(policy);
        assert_eq!(log.first(|row| row.1), Some(Nanos::ZERO), "{policy}");
    }
}

#[test]
fn exploration_takes_an_eighth_of_the_time_that_is_expected() {
    let log = placements("joint:young_ms=0");
    let explored = log.first(|row| row.2.starts_with("to be measured"));
    // An exploring mapping holds for three intervals of 100 ms.
    let explored = explored.unwrap();
    assert!(explored >= Nanos::from_millis(2_400), "{explored}");
}
