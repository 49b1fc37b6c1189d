//! Conformance: every policy of the registry, on every machine, over several seeds, on a toy engine.
//!
//! The engine places at once. Its threads have fixed speeds per core type, start, sleep, wake and exit at random, and its
//! samples are noisy. A new row in the policy table is tested without a line here.

#![allow(clippy::unwrap_used, clippy::panic)] // a test helper that fails has failed its test

mod toy;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use countersteer_model::driver::{DriverConfig, Recorder, drive};
use countersteer_model::engine::{Applied, Observation};
use countersteer_model::metric::MetricBank;
use countersteer_model::placement::{Placement, Reason};
use countersteer_model::policy::PolicyRng;
use countersteer_model::topology::Topology;
use countersteer_model::units::{Nanos, ThreadId};
use countersteer_policies::reach::idle_on;
use countersteer_policies::{POLICIES, parse};
use rand_pcg::rand_core::SeedableRng;

use toy::{Life, Toy};

/// Specification of a registered policy with its default parameters.
fn spec(name: &str) -> String {
    if name == "static" {
        "static:*=machine".into()
    } else {
        name.into()
    }
}

/// Checks each decision, and keeps its bytes.
#[derive(Default)]
struct Judge {
    context: String,
    alive: BTreeSet<ThreadId>,
    runnable_since: BTreeMap<ThreadId, Nanos>,
    placed: BTreeSet<ThreadId>,
    places: bool,
    bytes: String,
}

impl Recorder for Judge {
    fn observation(&mut self, _: &Topology, seen: &Observation, _: &MetricBank) {
        self.alive = seen.threads.iter().map(|t| t.id).collect();
        self.placed.retain(|t| self.alive.contains(t));
        self.runnable_since.retain(|t, _| self.alive.contains(t));
        for thread in &seen.threads {
            if thread.runnable {
                self.runnable_since.entry(thread.id).or_insert(seen.at);
            } else {
                self.runnable_since.remove(&thread.id);
            }
        }
    }

    fn decision(&mut self, topology: &Topology, at: Nanos, placement: &Placement, _: Applied) {
        let context = &self.context;
        let mut named = BTreeSet::new();
        for entry in &placement.threads {
            assert!(
                self.alive.contains(&entry.thread),
                "{context}: {} is not alive",
                entry.thread
            );
            assert!(
                named.insert(entry.thread),
                "{context}: {} is placed twice",
                entry.thread
            );
            let cpus = entry.target.cpus(topology);
            assert!(
                !cpus.is_empty() && cpus.is_subset(&topology.groups[0].cpus),
                "{context}: no CPU to go to: {cpus}"
            );
            check(context, &entry.reason, topology);
            self.placed.insert(entry.thread);
        }
        if let Some(table) = &placement.admission {
            assert!(
                table
                    .rows
                    .iter()
                    .all(|r| r.0.is_finite() && r.1.index() < topology.groups.len()),
                "{context}"
            );
            assert!(
                table.rows.is_sorted_by(|a, b| a.0 >= b.0),
                "{context}: admission rows do not descend"
            );
        }
        for (thread, since) in self.runnable_since.iter().filter(|_| self.places) {
            let waited = at.since(*since);
            let forgotten = waited > Nanos::from_millis(2_000) && !self.placed.contains(thread);
            assert!(
                !forgotten,
                "{context}: {thread} is runnable since {since} and was never placed"
            );
        }
        self.bytes.push_str(&format!("{at} {placement:?}\n"));
    }
}

fn check(context: &str, reason: &Reason, topology: &Topology) {
    assert!(
        !reason.rule.is_empty(),
        "{context}: a placement without a reason"
    );
    let values = reason
        .seen
        .iter()
        .map(|s| s.1)
        .chain(reason.alternatives.iter().map(|a| a.1));
    assert!(values.clone().all(f64::is_finite), "{context}: {reason:?}");
    assert!(
        reason
            .alternatives
            .iter()
            .all(|a| a.0.index() < topology.groups.len()),
        "{context}: {reason:?}"
    );
    assert!(
        reason.alternatives.is_empty() || !reason.unit.is_empty(),
        "{context}: values without a unit"
    );
}

/// True if a policy only considers shared caches and all cores share one; threads then stay on their initial cores.
fn shares_all_caches(name: &str, topology: &Topology) -> bool {
    idle_on(name, topology).is_some_and(|why| why.contains("last-level"))
}

fn run(name: &str, topology: &Arc<Topology>, life: Life, seed: u64) -> String {
    let context = format!("{name} on {}, {life:?}, seed {seed}", topology.name);
    let mut engine = Toy::new(topology, life, seed);
    let mut policy = parse(&spec(name), topology).unwrap_or_else(|e| panic!("{context}: {e}"));
    let mut judge = Judge {
        context,
        places: !matches!(name, "linux" | "scx") && !shares_all_caches(name, topology),
        ..Judge::default()
    };
    let config = DriverConfig {
        period: Nanos::from_millis(100),
        until: Nanos::from_millis(6_000),
    };
    drive(
        &mut engine,
        policy.as_mut(),
        &mut [&mut judge],
        config,
        &mut PolicyRng::seed_from_u64(seed),
    )
    .unwrap();
    judge.bytes
}

fn conforms(name: &str) {
    for topology in toy::machines() {
        let cpus = topology.cpus.len();
        let changing = Life {
            threads: cpus.min(12),
            changes: true,
        };
        for seed in 0..3 {
            let bytes = run(name, &topology, changing, seed);
            if seed == 0 {
                assert_eq!(
                    bytes,
                    run(name, &topology, changing, seed),
                    "{name} on {}: same seed",
                    topology.name
                );
            }
        }
        for threads in [0, 1, cpus, 4 * cpus] {
            run(
                name,
                &topology,
                Life {
                    threads,
                    changes: false,
                },
                0,
            );
        }
    }
}

macro_rules! conformance {
    ($($test:ident = $name:literal),* $(,)?) => {
        $(#[test] fn $test() { conforms($name); })*

        /// One test per policy, so that they run in parallel. This test fails if a policy has none.
        #[test]
        fn every_policy_has_its_conformance_test() {
            let tested: BTreeSet<&str> = [$($name),*].into();
            let known: BTreeSet<&str> = POLICIES.iter().map(|p| p.name).collect();
            assert_eq!(tested, known);
        }
    };
}

conformance! {
    linux_conforms = "linux",
    scx_conforms = "scx",
    static_conforms = "static",
    best_static_conforms = "best-static",
    default_conforms = "default",
    ideal_rr_conforms = "ideal-rr",
    ef_conforms = "ef",
    prim_conforms = "prim",
    greedy_energy_conforms = "greedy-energy",
    hass_conforms = "hass",
    ipc_driven_conforms = "ipc-driven",
    joint_conforms = "joint",
    auto_conforms = "auto",
    groups_conform = "groups",
    clusters_conforms = "clusters",
    rr_conforms = "rr",
    aarr_conforms = "aarr",
    adwrr_conforms = "adwrr",
    eqp_conforms = "eqp",
    acfs_conforms = "acfs",
    hsf_conforms = "hsf",
    mpi_conforms = "mpi",
    capacity_conforms = "capacity",
    capacity_mpi_conforms = "capacity+mpi",
    contention_conforms = "contention",
}

#[test]
fn policy_rows_explain_themselves() {
    let mut names = BTreeSet::new();
    for policy in POLICIES {
        assert!(names.insert(policy.name), "{} twice", policy.name);
        assert!(
            !policy.summary.is_empty() && !policy.source.is_empty(),
            "{}",
            policy.name
        );
        assert!(
            policy.params.iter().all(|p| !p.prose.is_empty()),
            "{}",
            policy.name
        );
    }
}
