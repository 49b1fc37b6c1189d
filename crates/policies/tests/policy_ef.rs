//! Threads that get the fast cores by efficiency factors (`ef`), on a toy engine.

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

/// Threads on big cores after a number of decisions, and the rule that placed the first thread. There are two big cores and two
/// small ones; factors are (SF, EF) of each thread at a decision.
fn big<const N: usize>(
    spec: &str,
    decisions: u32,
    factors: impl Fn(u32) -> [(f64, f64); N],
) -> (Vec<usize>, String) {
    let machine = include_str!("toy/two-big-two-small.toml");
    let topology = Arc::new(Topology::new(&Machine::parse("m", machine).unwrap()));
    let thread = |id: u32| ThreadInfo {
        id: ThreadId(id),
        program: ProgramId(id),
        name: format!("p{id}").into(),
        cpu: CpuId(id),
        runnable: true,
        nice: 0,
        allowed: Arc::clone(&topology.groups[0].cpus),
        hint: None,
    };
    let mut threads: Vec<ThreadInfo> = (0..N as u32).map(thread).collect();
    let mut policy = countersteer_policies::parse(spec, &topology).unwrap();
    let mut metrics = MetricBank::new(&topology, &policy.needs().metrics);
    let mut rng = PolicyRng::seed_from_u64(1);
    let mut rule = String::new();
    for decision in 0..decisions {
        let now = Nanos(u64::from(decision) * 100_000_000);
        let samples = threads
            .iter()
            .zip(factors(decision))
            .map(|(info, (sf, ef))| {
                let counts = [(Event::SfTrue, sf), (Event::EfTrue, ef)];
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
            if placed.thread.index() == 0 {
                rule = placed.reason.rule.into_owned();
            }
        }
    }
    let on_big = |row: &usize| topology.core_type_of(threads[*row].cpu).index() == 0;
    ((0..threads.len()).filter(on_big).collect(), rule)
}

#[test]
fn efficiency_factors_decide_against_speed_up_factors() {
    // The paper's example: hmmer and wupwise gain more speed, art and soplex more EDP.
    let example = |_| [(2.4, 1.5), (2.3, 1.4), (1.5, 2.2), (1.6, 2.0)];
    assert_eq!(big("ef:ef=oracle", 3, example).0, [2, 3]);
    assert_eq!(big("ef:ef=oracle,spread=1000", 3, example).0, [0, 1]);
}

#[test]
fn alike_energy_ratios_leave_it_to_the_speed_up_factors() {
    let alike = |_| [(1.4, 1.42), (1.5, 1.5), (2.0, 2.02), (3.0, 3.0)];
    let (on_big, rule) = big("ef:ef=oracle", 3, alike);
    assert_eq!(on_big, [2, 3]);
    assert!(rule.contains("alike"), "{rule}");
}

#[test]
fn what_costs_less_on_small_cores_stays_there_although_big_ones_are_free() {
    let two = |_| [(1.2, 0.7), (2.0, 1.6)];
    let (on_big, rule) = big("ef:ef=oracle", 3, two);
    assert_eq!(on_big, [1]);
    assert!(rule.contains("lower on the slowest"), "{rule}");
    assert_eq!(big("ef:ef=oracle,idle=fill", 3, two).0, [0, 1]);
    // Three threads below 1, two small cores: the third is better on a big core of its own.
    let three = |_| [(1.2, 0.7), (1.3, 0.8), (1.1, 0.6)];
    assert_eq!(big("ef:ef=oracle", 3, three).0, [1]);
}

#[test]
fn a_lead_within_the_margin_wins_only_when_it_lasts() {
    let turning = |decision: u32| {
        let lead = if decision < 5 { 0.0 } else { 0.06 };
        [(2.0, 3.0), (1.2, 2.03 - lead), (2.2, 2.0), (3.0, 1.0)]
    };
    assert_eq!(big("ef:ef=oracle", 5, turning).0, [0, 1]);
    assert_eq!(big("ef:ef=oracle", 10, turning).0, [0, 1]);
    assert_eq!(big("ef:ef=oracle", 15, turning).0, [0, 2]);
}

#[test]
fn programs_that_were_measured_need_no_simulator() {
    let unknown = |_| [(0.0, 0.0); 4];
    let spec = "ef:ef=static,factors=p0/1.1+p1/1.2+p2/2.1/1.4+p3/2.0/1.5";
    assert_eq!(big(spec, 2, unknown).0, [2, 3]);
    // A program without a factor counts as the mean of the others.
    let spec = "ef:ef=static,factors=p0/1.1+p2/2.1+p3/1.5";
    assert_eq!(big(spec, 2, unknown).0, [1, 2]);
}
