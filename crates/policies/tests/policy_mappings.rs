//! Policies that fix mappings: `static` as written, `best-static` as predicted.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test helper that fails has failed its test

#[allow(dead_code, reason = "other tests look at more of it")]
mod toy;

use std::sync::Arc;

use countersteer_model::engine::{Engine, Watch};
use countersteer_model::metric::MetricBank;
use countersteer_model::placement::{Clamp, Placement};
use countersteer_model::policy::{PolicyRng, View};
use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, Nanos};
use countersteer_policies::parse;
use rand_pcg::rand_core::SeedableRng;

use toy::{Life, Toy};

fn machine(name: &str) -> Arc<Topology> {
    toy::machines()
        .into_iter()
        .find(|t| t.name == name)
        .expect(name)
}

/// First decision on `threads` threads, with or without a forecast.
fn first(spec: &str, topology: &Arc<Topology>, threads: usize, forecast: bool) -> (Placement, Toy) {
    let mut engine = Toy::new(
        topology,
        Life {
            threads,
            changes: false,
        },
        5,
    );
    let mut policy = parse(spec, topology).unwrap_or_else(|e| panic!("{e}"));
    let metrics = MetricBank::new(topology, &[]);
    let seen = engine.observe(&Watch::default(), Nanos::ZERO).unwrap();
    let mut view = View {
        group: None,
        programs: &[],
        now: seen.at,
        topology,
        threads: &seen.threads,
        events: &seen.events,
        metrics: &metrics,
        forecast: if forecast { engine.forecast() } else { None },
    };
    let placement = policy.decide(&mut view, &mut PolicyRng::seed_from_u64(2));
    engine.apply(&placement).unwrap();
    (placement, engine)
}

fn targets(placement: &Placement, topology: &Topology) -> Vec<String> {
    placement
        .threads
        .iter()
        .map(|t| t.target.name(topology))
        .collect()
}

#[test]
fn static_puts_programs_where_the_user_says() {
    let topology = machine("two-caches");
    let (placement, _) = first("static:p0=llc1,p1=0+2-3,*=cpu1", &topology, 3, false);
    assert_eq!(targets(&placement, &topology), ["llc1", "0,2-3", "cpu1"]);
}

#[test]
fn static_leaves_the_unnamed_to_linux_and_says_so() {
    let topology = machine("two-caches");
    let (placement, _) = first("static:p0=core0,oops=core1", &topology, 2, false);
    assert_eq!(targets(&placement, &topology), ["core0", "anywhere"]);
    let rules: Vec<&str> = placement.threads.iter().map(|t| &*t.reason.rule).collect();
    assert!(
        rules[0].contains("no program so far is called `oops`"),
        "{rules:?}"
    );
    assert!(rules[1].contains("does not name `p1`"), "{rules:?}");
}

#[test]
fn static_refuses_places_that_do_not_exist() {
    let topology = machine("two-big-two-small");
    for (spec, part) in [
        ("static:p0=llc7", "big, small, llc0"),
        ("static:p0=0-9", "CPUs 0-3 only"),
        ("static:p0=", "core group"),
        ("static", "at least one NAME=TARGET"),
    ] {
        let error = parse(spec, &topology)
            .err()
            .map(|e| e.to_string())
            .unwrap_or_default();
        assert!(error.contains(part), "{spec}: {error}");
    }
}

#[test]
fn hints_follow_the_core_types_where_they_are_wanted() {
    let topology = machine("two-big-two-small");
    let (placement, _) = first("hsf:clamp=on,young_ms=0", &topology, 4, false);
    assert_eq!(placement.threads.len(), 4);
    let small = topology.core_types[1].capacity;
    for placed in &placement.threads {
        let on_big = placed
            .target
            .cpus(&topology)
            .iter()
            .all(|cpu| topology.core_type_of(cpu).0 == 0);
        assert_eq!(
            placed.clamp,
            Some(if on_big {
                Clamp::FULL
            } else {
                Clamp::at_most(small)
            }),
            "{placed:?}"
        );
    }
    let unasked = first("hsf:young_ms=0", &topology, 4, false).0;
    assert!(unasked.threads.iter().all(|t| t.clamp.is_none()));
    let alike = first("hsf:clamp=on,young_ms=0", &machine("two-caches"), 4, false).0;
    assert!(
        alike.threads.iter().all(|t| t.clamp.is_none()),
        "one core type: nothing to tell apart"
    );
    assert!(
        parse("hsf:clamp=maybe", &topology).is_err()
            && parse("contention:ways=half", &topology).is_err()
    );
}

#[test]
fn best_static_finds_the_best_aggregate_speed_up() {
    // Four threads are tried exhaustively, sixteen by hill climbing. On this engine the answer is to sort by speed-up factor.
    for (name, threads, big) in [("two-big-two-small", 4, 2), ("i9-12900k-8p8e", 16, 8)] {
        let topology = machine(name);
        let (placement, engine) = first("best-static:objective=asp", &topology, threads, true);
        let mut sfs: Vec<f64> = engine.threads.iter().map(|t| t.sf).collect();
        sfs.sort_by(|a, b| b.total_cmp(a));
        let ideal: f64 = sfs[..big].iter().map(|sf| sf - 1.0).sum();
        let alone = |t: &&toy::Thread| topology.core_type_of(t.info.cpu).index() == 0;
        let chosen: f64 = engine
            .threads
            .iter()
            .filter(alone)
            .map(|t| t.sf - 1.0)
            .sum();
        assert!((chosen - ideal).abs() < 1e-9, "{name}: {chosen} of {ideal}");
        let reason = &placement.threads[0].reason;
        assert!((reason.seen[0].1 - ideal).abs() < 1e-9, "{reason:?}");
        assert!(
            reason.seen[1].1 < reason.seen[0].1,
            "the worst mapping is worse: {reason:?}"
        );
        assert_eq!(reason.alternatives.len(), 2, "either core type: {reason:?}");
    }
}

#[test]
fn best_static_shares_cpus_evenly_when_it_must() {
    let topology = machine("two-big-two-small");
    let (_, engine) = first("best-static", &topology, 8, true);
    for cpu in 0..4 {
        assert_eq!(
            engine
                .threads
                .iter()
                .filter(|t| t.info.cpu == CpuId(cpu))
                .count(),
            2
        );
    }
}

#[test]
fn best_static_leaves_alone_what_it_predicts_no_gain_for() {
    // If all cores are alike, so are all mappings of one thread per CPU.
    let topology = machine("two-caches");
    for objective in ["stp", "asp", "ipc"] {
        let spec = format!("best-static:objective={objective}");
        let (placement, _) = first(&spec, &topology, 4, true);
        assert_eq!(targets(&placement, &topology), ["anywhere"; 4], "{spec}");
        let reason = &placement.threads[0].reason;
        assert!(reason.rule.contains("Linux decides"), "{reason:?}");
        let (best, left) = (reason.seen[0].1, reason.seen[1].1);
        assert!(best < 1.02 * left.max(0.0) + 1e-9, "{reason:?}");
    }
}

#[test]
fn best_static_without_forecast_leaves_everything_to_linux() {
    let topology = machine("two-caches");
    let (placement, _) = first("best-static", &topology, 2, false);
    assert_eq!(targets(&placement, &topology), ["anywhere", "anywhere"]);
    assert!(placement.threads[0].reason.rule.contains("cannot predict"));
}
