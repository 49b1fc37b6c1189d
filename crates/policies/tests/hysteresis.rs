//! `hsf` holds threads to their core types against noise, and lets real differences through.

#![allow(clippy::unwrap_used)] // a test helper that fails has failed its test

use std::sync::Arc;

use countersteer_model::engine::{Observation, ThreadInfo};
use countersteer_model::machine::Machine;
use countersteer_model::metric::MetricBank;
use countersteer_model::policy::{PolicyRng, View};
use countersteer_model::sample::{Event, Sample, Samples};
use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, Nanos, ProgramId, ThreadId};
use rand_pcg::rand_core::SeedableRng;

/// Decisions at which one of two threads loses its big core to the other. Two more hold the other big core and a small one;
/// `sf` gives the speed-up factors of the two at a decision.
fn exchanges(decisions: u32, sf: impl Fn(u32) -> [f64; 2]) -> Vec<u32> {
    let machine = include_str!("toy/two-big-two-small.toml");
    let topology = Arc::new(Topology::new(&Machine::parse("m", machine).unwrap()));
    let thread = |id: u32| ThreadInfo {
        id: ThreadId(id),
        program: ProgramId(id),
        name: "p".into(),
        cpu: CpuId(id),
        runnable: true,
        nice: 0,
        allowed: Arc::clone(&topology.groups[0].cpus),
        hint: None,
    };
    let mut threads: Vec<ThreadInfo> = (0..4).map(thread).collect();
    let mut policy = countersteer_policies::parse("hsf:sf=oracle", &topology).unwrap();
    let mut metrics = MetricBank::new(&topology, &policy.needs().metrics);
    let mut rng = PolicyRng::seed_from_u64(1);
    let mut holder = None;
    let mut found = Vec::new();
    for decision in 0..decisions {
        let now = Nanos(u64::from(decision) * 100_000_000);
        let [a, b] = sf(decision);
        let factors = [3.0, a, b, 1.1];
        let samples = threads.iter().zip(factors).map(|(info, sf)| {
            let counts = [(Event::SfTrue, sf)];
            let time = Nanos::from_millis(100);
            Samples::of(
                Sample::of_thread(
                    info.id,
                    info.cpu,
                    topology.core_type_of(info.cpu),
                    now,
                    time,
                ),
                1,
                &counts,
            )
        });
        metrics.update(&Observation {
            samples: samples.collect(),
            ..Observation::default()
        });
        let mut view = View {
            group: None,
            programs: &[],
            now,
            topology: &topology,
            threads: &threads,
            events: &[],
            metrics: &metrics,
            forecast: None,
        };
        for placed in policy.decide(&mut view, &mut rng).threads {
            let info = &mut threads[placed.thread.index()];
            info.allowed = placed.target.cpus(&topology);
            info.cpu = info.allowed.lowest().unwrap();
        }
        let big = |id: usize| topology.core_type_of(threads[id].cpu).index() == 0;
        let now_held = if big(1) { 1 } else { 2 };
        if holder.replace(now_held).is_some_and(|was| was != now_held) {
            found.push(decision);
        }
    }
    found
}

#[test]
fn noise_below_the_margin_never_moves_a_thread() {
    let noisy = |decision: u32| {
        if decision.is_multiple_of(2) {
            [2.06, 2.0]
        } else {
            [2.0, 2.06]
        }
    };
    assert_eq!(exchanges(200, noisy), Vec::<u32>::new());
}

#[test]
fn a_small_difference_that_lasts_wins_after_the_patience() {
    let lasting = |decision: u32| {
        if decision < 5 {
            [2.06, 2.0]
        } else {
            [2.0, 2.06]
        }
    };
    // Ten decisions in a row, the first of them the sixth.
    assert_eq!(exchanges(200, lasting), [14]);
}

#[test]
fn a_thread_that_was_moved_lately_is_held_more_firmly() {
    // Ahead by more than the margin of 5 %, but less than twice that, in turns of five decisions.
    let turning = |decision: u32| {
        if (decision / 5).is_multiple_of(2) {
            [2.16, 2.0]
        } else {
            [2.0, 2.16]
        }
    };
    let found = exchanges(100, turning);
    assert_eq!(found.first(), Some(&5), "a clear lead wins at once");
    assert!(found.len() <= 6, "{found:?}: twenty turns");
}
