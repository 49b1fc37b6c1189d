//! Threads of a program that share data, in the analytic model.

#![allow(clippy::unwrap_used)] // a test helper that fails has failed its test

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use countersteer_model::driver::{DriverConfig, Recorder, drive};
use countersteer_model::engine::{Applied, Observation};
use countersteer_model::events::Event;
use countersteer_model::machine::Machine;
use countersteer_model::metric::MetricBank;
use countersteer_model::placement::Placement;
use countersteer_model::policy::PolicyRng;
use countersteer_model::profile::{LogHistogram, Profile, Sharing};
use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, Nanos, ThreadId};
use countersteer_sim::engine::{Plan, PlannedProgram, SimConfig, Simulation};
use countersteer_sim::linux::LinuxConfig;
use countersteer_sim::progress::synthetic::{SyntheticKind, chase, compute, profile, streaming};
use countersteer_sim::progress::{Analytic, ProgressConfig, ProgressModel, TrueCounters};
use rand::SeedableRng;

fn machine() -> Arc<Topology> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/core2-quad.toml");
    let text = std::fs::read_to_string(path).unwrap();
    Arc::new(Topology::new(&Machine::parse("core2-quad", &text).unwrap()))
}

const fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// Sharing in which `invalidated` accesses per kilo-instruction are to near lines that another thread wrote since.
fn sharing(shared: f64, touched_before: f64, invalidated: f64) -> Sharing {
    let mut of = Sharing {
        shared,
        touched_before,
        invalidated_pki: LogHistogram::default(),
    };
    of.invalidated_pki.add(4, invalidated);
    of
}

/// Program that was recorded with two threads.
fn recorded(kind: SyntheticKind, sharing: Sharing) -> Arc<Profile> {
    let mut recorded = profile("p", &[(kind, 1_000_000_000)]);
    if let Profile::Recorded(recorded) = &mut recorded {
        recorded.shape.threads = 2;
        recorded.behaviours[0].sharing = Some(sharing);
    }
    Arc::new(recorded)
}

/// Threads of one program on the given CPUs.
fn program(kind: SyntheticKind, sharing: Sharing, cpus: &[u32]) -> Analytic {
    let config = ProgressConfig {
        costs: false,
        ..ProgressConfig::default()
    };
    let mut progress = Analytic::new(machine(), config);
    let model = progress.add_program(recorded(kind, sharing)).unwrap();
    progress.begin_program();
    for (thread, cpu) in (0..).map(ThreadId).zip(cpus) {
        progress.add_thread(thread, model);
        progress.set_work(thread, 0.0, 1e15, 1.0, Nanos::ZERO);
        progress.set_running(CpuId(*cpu), Some(thread), Nanos::ZERO);
    }
    progress
}

/// Misses of the last level, and accesses to modified lines, per kilo-instruction of the first thread in the third second.
fn pki(progress: &mut Analytic) -> [f64; 2] {
    let before = progress.counters(ThreadId(0), ms(2000));
    let after = progress.counters(ThreadId(0), ms(3000));
    let instructions = after.instructions - before.instructions;
    [Event::LlcMisses, Event::SharedModified].map(|event| {
        let of = |c: &TrueCounters| c.event(event).unwrap();
        (of(&after) - of(&before)) / instructions * 1000.0
    })
}

#[test]
fn common_lines_count_once_in_a_shared_cache() {
    // Two thirds of the cache of CPUs 0 and 1, which has 65,536 lines.
    let misses = |shared, cpus: &[u32]| {
        let mut progress = program(chase(44_000), sharing(shared, 0.0, 0.0), cpus);
        let [misses, _] = pki(&mut progress);
        let llc = machine().llc_of(CpuId(0));
        let held: f64 = (0..cpus.len())
            .map(|t| progress.occupancy_lines(ThreadId(t as u32), llc))
            .sum();
        (misses, held)
    };
    let (alone, _) = misses(1.0, &[0]);
    let (apart, filled) = misses(0.0, &[0, 1]);
    let (common, held) = misses(1.0, &[0, 1]);
    assert!(alone < 0.2 && apart > 5.0, "{alone} {apart}");
    assert!(common < 0.5, "{common}");
    assert!(filled > 60_000.0, "{filled}");
    assert!(held <= 65_537.0, "{held}");
    // Half of the accesses are to lines of its own: three halves of the data are just too much.
    let (half, _) = misses(0.5, &[0, 1]);
    assert!(half > common && half < 0.7 * apart, "{half} of {apart}");
}

#[test]
fn stores_of_other_cores_cost_an_access_to_the_cache_that_both_use() {
    let of = |invalidated, cpus: &[u32]| {
        let mut progress = program(compute(), sharing(0.0, 0.0, invalidated), cpus);
        let [missed, modified] = pki(&mut progress);
        let speed = progress.counters(ThreadId(0), ms(4000)).instructions;
        (speed, modified, missed)
    };
    let (alone, none, _) = of(20.0, &[0]);
    assert_eq!(none, 0.0);
    let (quiet, ..) = of(0.0, &[0, 1]);
    assert!((alone / quiet - 1.0).abs() < 1e-6);
    let (near, modified, near_misses) = of(20.0, &[0, 1]);
    assert!((modified - 20.0).abs() < 1e-6, "{modified}");
    assert!(near < 0.98 * quiet, "{near} {quiet}");
    let (far, modified, far_misses) = of(20.0, &[0, 2]);
    assert!((modified - 20.0).abs() < 1e-6, "{modified}");
    assert!(far < 0.9 * near, "{far} {near}");
    assert!((far_misses - near_misses - 20.0).abs() < 0.01);
}

#[test]
fn lines_that_another_thread_brought_in_are_no_cold_misses() {
    let misses = |touched_before, cpus: &[u32]| {
        let of = sharing(0.0, touched_before, 0.0);
        pki(&mut program(streaming(), of, cpus))[0]
    };
    let all = misses(0.0, &[0, 1]);
    assert!((misses(0.6, &[0]) - all).abs() < 0.01);
    assert!((misses(0.6, &[0, 1]) / all - 0.4).abs() < 0.01);
    assert!((misses(0.6, &[0, 2]) - all).abs() < 0.01);
}

/// Rules of all placements.
#[derive(Default)]
struct Rules(BTreeSet<String>);

impl Recorder for Rules {
    fn observation(&mut self, _: &Topology, _: &Observation, _: &MetricBank) {}

    fn decision(&mut self, _: &Topology, _: Nanos, placement: &Placement, _: Applied) {
        let reasons = placement.threads.iter().map(|t| t.reason.rule.to_string());
        self.0.extend(reasons);
    }
}

/// Instructions in three seconds of two threads that start behind different caches, and the rules of a policy's placements.
fn steered(policy: &str) -> (f64, BTreeSet<String>) {
    let topology = machine();
    let planned = PlannedProgram {
        name: "p".into(),
        profile: recorded(compute(), sharing(0.5, 0.0, 20.0)),
        scale: 100.0,
        threads: 2,
        serial_share: 0.0,
        control: Default::default(),
        nice: 0,
        start: Nanos::ZERO,
        bursts: None,
        barriers: 1,
        chunk: None,
        launch_on: Some(Arc::new([CpuId(0), CpuId(2)].into_iter().collect())),
    };
    let plan = Plan {
        programs: vec![planned],
        ..Plan::default()
    };
    let config = SimConfig {
        seed: 1,
        linux: LinuxConfig {
            seed: 1,
            ..LinuxConfig::default()
        },
        progress: ProgressConfig::default(),
        counter_noise: 0.01,
        sample_cost: Nanos::ZERO,
        governor: None,
        rounds: u32::MAX,
        trace: false,
    };
    let mut policy = countersteer_policies::parse(policy, &topology).unwrap();
    let mut simulation = Simulation::new(Arc::clone(&topology), &plan, config).unwrap();
    let driver = DriverConfig {
        period: ms(100),
        until: ms(3000),
    };
    let mut rules = Rules::default();
    let mut rng = PolicyRng::seed_from_u64(1);
    drive(
        &mut simulation,
        policy.as_mut(),
        &mut [&mut rules],
        driver,
        &mut rng,
    )
    .unwrap();
    let instructions = simulation.usage().iter().map(|u| u.instructions).sum();
    (instructions, rules.0)
}

#[test]
fn greedy_energy_joins_threads_that_write_each_others_lines() {
    let joins = |rules: &BTreeSet<String>| {
        let mut rules = rules.iter();
        rules.any(|rule| rule.starts_with("joins threads whose lines it shares"))
    };
    let (inferred, by_misses) = steered("greedy-energy");
    let (measured, by_lines) = steered("greedy-energy:sharing=lines");
    assert!(!joins(&by_misses), "{by_misses:?}");
    assert!(joins(&by_lines), "{by_lines:?}");
    assert!(measured > 1.1 * inferred, "{measured} {inferred}");
}
