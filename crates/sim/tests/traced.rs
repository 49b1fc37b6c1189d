//! The traced model: misses that happen are those that profiles lead to expect, threads meet at shared caches, and the same calls
//! give the same answers.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use std::path::Path;
use std::sync::Arc;

use countersteer_cache::tracer::Tracer;
use countersteer_cache::wire::Head;
use countersteer_core::driver::{DriverConfig, drive};
use countersteer_core::machine::Machine;
use countersteer_core::policy::PolicyRng;
use countersteer_core::profile::Profile;
use countersteer_core::topology::Topology;
use countersteer_core::units::Nanos;
use countersteer_sim::engine::{
    Plan, PlannedProgram, ProgramUsage, SimConfig, SimError, Simulation,
};
use countersteer_sim::linux::LinuxConfig;
use countersteer_sim::progress::traced::{Block, TraceSource};
use countersteer_sim::progress::{ProgressConfig, Traces, synthetic};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Instructions of a run.
const LENGTH: u64 = 4_000_000;

/// Blocks in memory, of each thread.
struct Recorded(Vec<Vec<Block>>);

impl TraceSource for Recorded {
    fn threads(&self) -> u32 {
        self.0.len() as u32
    }

    fn blocks(&self, thread: u32) -> u32 {
        self.0[thread as usize].len() as u32
    }

    fn head(&self, thread: u32, block: u32) -> Head {
        self.0[thread as usize][block as usize].head
    }

    fn block(&self, thread: u32, block: u32) -> Block {
        self.0[thread as usize][block as usize].clone()
    }
}

/// A load of a line at random every fourth instruction, or a store.
fn random(lines: u64, stores: bool, threads: u32) -> Recorded {
    let thread = |thread: u32| {
        let mut rng = Pcg64::seed_from_u64(u64::from(thread));
        let mut tracer = Tracer::new(thread, 1, 0);
        let mut blocks = Vec::new();
        for n in 0..LENGTH / 4 / u64::from(threads) {
            tracer.instructions(4);
            let line = rng.random_range(0..lines);
            tracer.data(line, line, stores);
            if tracer.is_complete() {
                let words = |head, words: &[u32]| {
                    blocks.push(Block {
                        head,
                        words: words.into(),
                    })
                };
                tracer.hand_on(0, n * 4, words);
            }
        }
        blocks
    };
    Recorded((1..=threads).map(thread).collect())
}

/// The profile that such a program has, and its trace.
fn program(name: &str, lines: u64) -> (Arc<Profile>, Arc<dyn TraceSource>) {
    let kind = synthetic::Kind {
        spread: vec![(lines, 250.0)],
        cyclic: Vec::new(),
        cold_pki: 0.0,
        branch_mpki: 0.0,
        ..synthetic::chase(lines)
    };
    let profile = synthetic::profile(name, &[(kind, LENGTH)]);
    (Arc::new(profile), Arc::new(random(lines, false, 1)))
}

fn topology(name: &str) -> Arc<Topology> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../machines/{name}.toml"));
    let text = std::fs::read_to_string(path).unwrap();
    Arc::new(Topology::new(&Machine::parse(name, &text).unwrap()))
}

fn config() -> SimConfig {
    SimConfig {
        seed: 1,
        linux: LinuxConfig::default(),
        progress: ProgressConfig::default(),
        counter_noise: 0.0,
        sample_cost: Nanos::ZERO,
        rounds: 3,
        trace: false,
        governor: None,
    }
}

fn plan(programs: &[(Arc<Profile>, u32, &str)]) -> Plan {
    let planned = programs
        .iter()
        .enumerate()
        .map(|(n, (profile, threads, cpus))| PlannedProgram {
            name: format!("p{n}").into(),
            profile: Arc::clone(profile),
            threads: *threads,
            serial_share: 0.0,
            nice: 0,
            start: Nanos::ZERO,
            bursts: None,
            launch_on: Some(Arc::new(cpus.parse().unwrap())),
            scale: 1.0,
        });
    Plan {
        programs: planned.collect(),
    }
}

fn run(mut simulation: Simulation, topology: &Arc<Topology>) -> Vec<ProgramUsage> {
    let mut policy = countersteer_policies::parse("linux", topology).unwrap();
    let driver = DriverConfig {
        period: Nanos::from_millis(100),
        until: Nanos::NEVER,
    };
    let mut rng = PolicyRng::seed_from_u64(1);
    drive(&mut simulation, policy.as_mut(), &mut [], driver, &mut rng).unwrap();
    simulation.usage()
}

fn ips(usage: &ProgramUsage) -> f64 {
    usage.instructions / usage.cpu_s.iter().sum::<f64>()
}

fn mpki(usage: &ProgramUsage) -> f64 {
    usage.llc_misses / usage.instructions * 1000.0
}

#[test]
fn alone_and_in_pairs_both_models_agree_where_profiles_say_all() {
    let topology = topology("core2-quad");
    let (small, large) = (program("small", 24_000), program("large", 90_000));
    let traces = Traces(vec![small.clone(), large.clone()]);
    let sets = [
        vec![(small.0.clone(), 1, "0")],
        vec![(large.0.clone(), 1, "0")],
        vec![(small.0.clone(), 1, "0"), (large.0.clone(), 1, "1")],
    ];
    for programs in sets {
        let plan = plan(&programs);
        let analytic = Simulation::new(Arc::clone(&topology), &plan, config()).unwrap();
        let traced = Simulation::traced(Arc::clone(&topology), &plan, config(), traces.clone());
        let (analytic, traced) = (run(analytic, &topology), run(traced.unwrap(), &topology));
        for (a, t) in analytic.iter().zip(&traced) {
            let (speed, misses) = (ips(t) / ips(a), (mpki(t), mpki(a)));
            assert!(
                (speed - 1.0).abs() < 0.15,
                "speed {speed}, misses {misses:?}"
            );
        }
    }
}

#[test]
fn the_same_run_is_the_same_and_a_program_without_a_trace_is_told() {
    let topology = topology("core2-quad");
    let (small, other) = (program("small", 9000), program("other", 9001));
    let traces = Traces(vec![small.clone()]);
    let plan_of =
        |profile: &Arc<Profile>| plan(&[(profile.clone(), 1, "0"), (small.0.clone(), 1, "1")]);
    let traced = |profile| {
        Simulation::traced(
            Arc::clone(&topology),
            &plan_of(profile),
            config(),
            traces.clone(),
        )
    };
    let once = run(traced(&small.0).unwrap(), &topology);
    assert_eq!(once, run(traced(&small.0).unwrap(), &topology));
    assert!(matches!(traced(&other.0), Err(SimError::Model(_))));
}

#[test]
fn threads_that_write_the_same_lines_take_them_from_each_other() {
    let topology = topology("core2-quad");
    let kind = synthetic::Kind {
        spread: vec![(64, 250.0)],
        ..synthetic::compute()
    };
    let profile = Arc::new(synthetic::profile("writers", &[(kind, LENGTH)]));
    let misses = |threads: u32, cpus: &str| {
        let source: Arc<dyn TraceSource> = Arc::new(random(64, true, threads));
        let traces = Traces(vec![(profile.clone(), source)]);
        let plan = plan(&[(profile.clone(), threads, cpus)]);
        let simulation =
            Simulation::traced(Arc::clone(&topology), &plan, config(), traces).unwrap();
        mpki(&run(simulation, &topology)[0])
    };
    assert!(misses(1, "0") < 0.05);
    // On two chips, with a last-level cache each.
    let shared = misses(2, "0,2");
    assert!(shared > 0.15, "{shared}");
}
