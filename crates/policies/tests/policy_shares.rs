//! Policies for unequal cores against closed forms, on a toy engine.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test helper that fails has failed its test

mod toy;

use std::collections::BTreeMap;
use std::sync::Arc;

use countersteer_model::driver::{DriverConfig, Recorder, drive};
use countersteer_model::engine::{Applied, Engine, Observation, Watch};
use countersteer_model::metric::MetricBank;
use countersteer_model::placement::Placement;
use countersteer_model::policy::PolicyRng;
use countersteer_model::topology::{GroupBy, Topology};
use countersteer_model::units::{Nanos, ThreadId};
use countersteer_policies::parse;
use rand_pcg::rand_core::SeedableRng;

use toy::{Life, Toy};

const PERIOD: Nanos = Nanos::from_millis(100);

/// Counts the periods that each thread spent on each core type.
#[derive(Default)]
struct Ledger {
    periods: BTreeMap<ThreadId, Vec<u32>>,
    last: BTreeMap<ThreadId, usize>,
    changes: u32,
    decisions: u32,
}

impl Recorder for Ledger {
    fn observation(&mut self, topology: &Topology, seen: &Observation, _: &MetricBank) {
        if seen.at == Nanos::ZERO {
            return;
        }
        for thread in &seen.threads {
            let row = topology.core_type_of(thread.cpu).index();
            self.periods
                .entry(thread.id)
                .or_insert_with(|| vec![0; topology.core_types.len()])[row] += 1;
            self.changes += u32::from(
                self.last
                    .insert(thread.id, row)
                    .is_some_and(|last| last != row),
            );
        }
    }

    fn decision(&mut self, _: &Topology, _: Nanos, placement: &Placement, _: Applied) {
        self.decisions += u32::from(!placement.threads.is_empty());
    }
}

fn machine(name: &str) -> Arc<Topology> {
    toy::machines()
        .into_iter()
        .find(|t| t.name == name)
        .expect(name)
}

fn simulate(spec: &str, topology: &Arc<Topology>, threads: usize, periods: u64) -> (Toy, Ledger) {
    let mut engine = Toy::new(
        topology,
        Life {
            threads,
            changes: false,
        },
        7,
    );
    let mut policy = parse(spec, topology).unwrap();
    let mut ledger = Ledger::default();
    let config = DriverConfig {
        period: PERIOD,
        until: Nanos(PERIOD.0 * periods),
    };
    drive(
        &mut engine,
        policy.as_mut(),
        &mut [&mut ledger],
        config,
        &mut PolicyRng::seed_from_u64(1),
    )
    .unwrap();
    (engine, ledger)
}

#[test]
fn round_robin_gives_every_thread_the_same_share_of_every_type() {
    // Threads, and the length of a rotation in intervals: threads over the greatest common divisor of the types' core slots.
    let cases = [
        ("two-big-two-small", 4, 2),
        ("two-big-two-small", 3, 3),
        ("opteron-2425-2b-10s", 12, 6),
        ("opteron-2425-2b-10s", 11, 11),
        ("phone-1-3-4", 8, 8),
        ("i9-12900k-8p8e", 16, 2),
        ("i9-12900k-8p8e", 11, 11),
        ("two-big-two-small", 8, 8),
    ];
    for (name, threads, rotation) in cases {
        let (_, ledger) = simulate("aarr:turn_ms=100", &machine(name), threads, 10 * rotation);
        let first = &ledger.periods[&ThreadId(0)];
        for (thread, periods) in &ledger.periods {
            assert_eq!(periods, first, "{threads} threads on {name}: {thread}");
        }
    }
}

#[test]
fn round_robin_completes_what_shares_of_both_speeds_would() {
    for (name, threads) in [("two-big-two-small", 4), ("i9-12900k-8p8e", 16)] {
        let topology = machine(name);
        let (engine, _) = simulate("aarr:turn_ms=500", &topology, threads, 1_000);
        for thread in &engine.threads {
            let mean = thread.speed * 0.5 + thread.speed / thread.sf * 0.5;
            let ratio = thread.retired / (mean * 100.0);
            assert!(
                (ratio - 1.0).abs() < 1e-9,
                "{} on {name}: {ratio}",
                thread.info.id
            );
        }
    }
}

#[test]
fn round_robin_moves_only_who_must() {
    // Twelve threads, two big cores: in each interval two go up and two come down.
    let (_, ledger) = simulate("aarr:turn_ms=500", &machine("opteron-2425-2b-10s"), 12, 61);
    assert_eq!(
        ledger.changes,
        12 * 4,
        "{} decisions moved threads",
        ledger.decisions
    );
    // Two threads on two big cores have nothing to share.
    let (_, ledger) = simulate("aarr:turn_ms=500", &machine("two-big-two-small"), 2, 61);
    assert!(
        ledger.changes <= 2,
        "both fit on the big cores: {}",
        ledger.changes
    );
}

#[test]
fn equal_progress_shares_the_fastest_core_where_threads_are_too_few_for_the_slowest() {
    for threads in 2..=4 {
        let (_, ledger) = simulate("eqp", &machine("phone-1-3-4"), threads, 600);
        for (thread, periods) in &ledger.periods {
            assert!(periods[0] > 60, "{threads} threads: {thread} {periods:?}");
        }
    }
}

#[test]
fn equal_slowdown_by_measured_factors_sends_every_thread_to_both_types() {
    let (_, ledger) = simulate("acfs:sf=sampled", &machine("two-big-two-small"), 4, 300);
    for (thread, periods) in &ledger.periods {
        assert!(periods.iter().all(|n| *n > 0), "{thread}: {periods:?}");
    }
}

/// Aggregate speed-up over the run, and that of the best mapping.
fn speed_up(spec: &str, name: &str, threads: usize) -> (f64, f64, Ledger) {
    let topology = machine(name);
    let periods = 600;
    let (engine, ledger) = simulate(spec, &topology, threads, periods);
    let seconds = PERIOD.as_secs_f64() * periods as f64;
    let reached = engine
        .threads
        .iter()
        .map(|t| t.retired / seconds / (t.speed / t.sf) - 1.0)
        .sum();
    let mut sfs: Vec<f64> = engine.threads.iter().map(|t| t.sf).collect();
    sfs.sort_by(|a, b| b.total_cmp(a));
    let big = topology.groups_by(GroupBy::CoreType)[0].cores as usize;
    (
        reached,
        sfs.iter().take(big).map(|sf| sf - 1.0).sum(),
        ledger,
    )
}

#[test]
fn high_speed_up_first_reaches_the_ideal() {
    for (name, threads) in [
        ("two-big-two-small", 4),
        ("i9-12900k-8p8e", 16),
        ("opteron-2425-2b-10s", 12),
    ] {
        for sf in ["oracle", "sampled"] {
            let (reached, ideal, ledger) = speed_up(&format!("hsf:sf={sf}"), name, threads);
            let least = if sf == "oracle" { 0.99 } else { 0.97 };
            assert!(
                reached >= least * ideal,
                "hsf:sf={sf} on {name}: {reached} of {ideal}"
            );
            if sf == "oracle" {
                assert!(
                    ledger.changes <= threads as u32 + 4,
                    "{name}: {} changes of core type",
                    ledger.changes
                );
            }
        }
    }
}

/// Engine in which the thread that gains least from a fast core changes after a while, and then gains most.
struct Changing {
    inner: Toy,
    at: Nanos,
    changed: Option<usize>,
}

impl Engine for Changing {
    type Error = std::convert::Infallible;

    fn topology(&self) -> &Arc<Topology> {
        self.inner.topology()
    }

    fn observe(&mut self, watch: &Watch<'_>, until: Nanos) -> Result<Observation, Self::Error> {
        if until >= self.at && self.changed.is_none() {
            let rows = 0..self.inner.threads.len();
            let least = rows
                .min_by(|a, b| {
                    self.inner.threads[*a]
                        .sf
                        .total_cmp(&self.inner.threads[*b].sf)
                })
                .unwrap();
            let thread = &mut self.inner.threads[least];
            (thread.speed, thread.sf) = (3.0 * thread.speed / thread.sf * 5.0, 5.0);
            self.changed = Some(least);
        }
        self.inner.observe(watch, until)
    }

    fn apply(&mut self, placement: &Placement) -> Result<Applied, Self::Error> {
        self.inner.apply(placement)
    }
}

#[test]
fn who_begins_another_phase_is_measured_before_its_turn() {
    let topology = machine("two-big-two-small");
    let ends_on_big = |phases: &str| {
        let inner = Toy::new(
            &topology,
            Life {
                threads: 4,
                changes: false,
            },
            7,
        );
        let mut engine = Changing {
            inner,
            at: Nanos::from_millis(20_000),
            changed: None,
        };
        let mut policy = parse(
            &format!("hsf:sf=sampled,refresh_ms=8000,phases={phases}"),
            &topology,
        )
        .unwrap();
        let config = DriverConfig {
            period: PERIOD,
            until: Nanos::from_millis(23_000),
        };
        drive(
            &mut engine,
            policy.as_mut(),
            &mut [&mut Ledger::default()],
            config,
            &mut PolicyRng::seed_from_u64(1),
        )
        .unwrap();
        topology
            .core_type_of(engine.inner.threads[engine.changed.unwrap()].info.cpu)
            .index()
            == 0
    };
    assert!(
        ends_on_big("on"),
        "two periods until it is noticed, two seconds at most until it may be measured"
    );
    assert!(!ends_on_big("off"), "its turn comes half a minute later");
}
