//! `hsf` holds threads to their core types against noise, and follows real differences.

#![allow(clippy::unwrap_used)] // a test helper that fails has failed its test

use std::sync::Arc;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::engine::{Observation, ThreadInfo};
use countersteer_model::machine::Machine;
use countersteer_model::metric::MetricBank;
use countersteer_model::policy::{PolicyRng, View};
use countersteer_model::sample::{Event, Sample, Samples};
use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, Nanos, ProgramId, ThreadId};
use rand_pcg::rand_core::SeedableRng;

/// Runs `policy` on four threads on two big and two small cores. `sf` gives their speed-up factors at a decision; `own` are the
/// CPUs that the kernel allows a thread. Calls `seen` after each decision.
fn run(
    policy: &str,
    decisions: u32,
    own: [CpuSet; 4],
    sf: impl Fn(u32) -> [f64; 4],
    mut seen: impl FnMut(u32, &Topology, &[ThreadInfo]),
) {
    let machine = include_str!("toy/two-big-two-small.toml");
    let topology = Arc::new(Topology::new(&Machine::parse("m", machine).unwrap()));
    let thread = |id: u32| ThreadInfo {
        id: ThreadId(id),
        program: ProgramId(id),
        name: "p".into(),
        cpu: own[id as usize]
            .iter()
            .nth(id as usize % own[id as usize].len())
            .unwrap(),
        runnable: true,
        nice: 0,
        allowed: Arc::new(own[id as usize].clone()),
        hint: None,
    };
    let mut threads: Vec<ThreadInfo> = (0..4).map(thread).collect();
    let mut policy = countersteer_policies::parse(policy, &topology).unwrap();
    let mut metrics = MetricBank::new(&topology, &policy.needs().metrics);
    let mut rng = PolicyRng::seed_from_u64(1);
    for decision in 0..decisions {
        let now = Nanos(u64::from(decision) * 100_000_000);
        let samples = threads.iter().zip(sf(decision)).map(|(info, sf)| {
            let counts = [(Event::SfTrue, sf)];
            let time = Nanos::from_millis(100);
            let core_type = topology.core_type_of(info.cpu);
            let sample = Sample::of_thread(info.id, info.cpu, core_type, now, time);
            Samples::of(sample, 1, &counts)
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
            let target = placed.target.cpus(&topology);
            let both = target
                .iter()
                .filter(|cpu| own[info.id.index()].contains(*cpu));
            let both: CpuSet = both.collect();
            if let Some(cpu) = both.lowest() {
                (info.allowed, info.cpu) = (Arc::new(both), cpu);
            }
        }
        seen(decision, &topology, &threads);
    }
}

fn is_big(topology: &Topology, cpu: CpuId) -> bool {
    topology.core_type_of(cpu).index() == 0
}

/// Decisions at which one of two threads loses its big core to the other. Two more threads hold the other big core and a small
/// one; `sf` gives the speed-up factors of the two at a decision.
fn exchanges(decisions: u32, sf: impl Fn(u32) -> [f64; 2]) -> Vec<u32> {
    let mut holder = None;
    let mut found = Vec::new();
    let factors = |decision| {
        let [a, b] = sf(decision);
        [3.0, a, b, 1.1]
    };
    let own = [4; 4].map(CpuSet::first);
    run(
        "hsf:sf=oracle",
        decisions,
        own,
        factors,
        |decision, topology, threads| {
            let now_held = if is_big(topology, threads[1].cpu) {
                1
            } else {
                2
            };
            if holder.replace(now_held).is_some_and(|was| was != now_held) {
                found.push(decision);
            }
        },
    );
    found
}

#[test]
fn a_thread_that_may_not_run_on_big_cores_keeps_none_from_others() {
    for policy in [
        "hsf:sf=oracle",
        "acfs:sf=oracle",
        "adwrr",
        "eqp:sf=oracle",
        "ef:ef=oracle",
        "rr",
        "prim",
    ] {
        let all = CpuSet::first(4);
        let small: CpuSet = [CpuId(2), CpuId(3)].into_iter().collect();
        let mut on_big = Vec::new();
        let own = [small, all.clone(), all.clone(), all];
        run(
            policy,
            30,
            own,
            |_| [3.0, 2.0, 1.5, 1.1],
            |decision, topology, threads| {
                let big = |t: &&ThreadInfo| t.allowed.iter().all(|cpu| is_big(topology, cpu));
                if decision >= 10 {
                    on_big.push(threads[1..].iter().filter(big).count());
                }
            },
        );
        assert!(on_big.iter().all(|n| *n == 2), "{policy}: {on_big:?}");
    }
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
    // Ten consecutive decisions, the first of them the sixth.
    assert_eq!(exchanges(200, lasting), [14]);
}

#[test]
fn a_thread_that_was_moved_lately_is_held_more_firmly() {
    // Each is ahead by more than the margin of 5 %, but less than twice that, for five decisions at a time.
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
