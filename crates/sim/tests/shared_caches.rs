//! Tests of policies on shared caches: `hass` with and without regard to them, and the policies of CMPSched$im.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test helper that fails has failed its test

use std::path::Path;
use std::sync::Arc;

use countersteer_model::driver::{DriverConfig, drive};
use countersteer_model::machine::Machine;
use countersteer_model::policy::PolicyRng;
use countersteer_model::profile::Profile;
use countersteer_model::score::Score;
use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, Nanos};
use countersteer_sim::engine::{Plan, PlannedProgram, SimConfig, Simulation};
use countersteer_sim::linux::LinuxConfig;
use countersteer_sim::progress::{ProgressConfig, synthetic};
use rand::SeedableRng;

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap()
}

fn machine(name: &str) -> Arc<Topology> {
    let path = format!("machines/{name}.toml");
    Arc::new(Topology::new(&Machine::parse(&path, &read(&path)).unwrap()))
}

/// Programs without phases, or recorded ones.
fn profile(name: &str) -> Profile {
    let steady = |kind| synthetic::profile(name, &[(kind, 1_000_000_000)]);
    match name {
        "needs-cache" => steady(synthetic::chase(20_000)),
        "floods-cache" => steady(synthetic::streaming()),
        "computes" => steady(synthetic::compute()),
        _ => {
            let path = format!("profiles/recorded/{name}.json");
            Profile::parse(&path, &read(&path)).unwrap()
        }
    }
}

/// Programs of 20 billion instructions, by profile, each launched on a CPU or anywhere.
fn plan(programs: &[(&str, Option<u32>)]) -> Plan {
    let made = |(nth, (name, cpu)): (usize, &(&str, Option<u32>))| {
        let profile = Arc::new(profile(name));
        PlannedProgram {
            name: format!("{name}{nth}").into(),
            scale: 20e9 / profile.instructions() as f64,
            profile,
            threads: 1,
            serial_share: 0.0,
            control: Default::default(),
            nice: 0,
            start: Nanos::ZERO,
            bursts: None,
            barriers: 1,
            chunk: None,
            launch_on: cpu.map(|c| Arc::new([CpuId(c)].into_iter().collect())),
        }
    };
    Plan {
        programs: programs.iter().enumerate().map(made).collect(),
        ..Plan::default()
    }
}

fn run(topology: &Arc<Topology>, plan: &Plan, policy: &str, seconds: f64) -> Score {
    let config = SimConfig {
        seed: 1,
        linux: LinuxConfig {
            seed: 1,
            ..LinuxConfig::default()
        },
        progress: ProgressConfig::default(),
        counter_noise: 0.01,
        sample_cost: Nanos::from_micros(2),
        governor: None,
        rounds: u32::MAX,
        trace: false,
    };
    let mut policy = countersteer_policies::parse(policy, topology).unwrap();
    let mut simulation = Simulation::new(Arc::clone(topology), plan, config).unwrap();
    let mut rng = PolicyRng::seed_from_u64(1);
    let driver = DriverConfig {
        period: Nanos::from_millis(100),
        until: Nanos::from_secs_f64(seconds),
    };
    drive(&mut simulation, policy.as_mut(), &mut [], driver, &mut rng).unwrap();
    Score::of(&simulation.outcome())
}

/// Two cache-sensitive and two cache-polluting programs share a cache; four that are neither are under the other cache.
const WORST: [(&str, Option<u32>); 8] = [
    ("needs-cache", Some(0)),
    ("needs-cache", Some(0)),
    ("floods-cache", Some(1)),
    ("floods-cache", Some(1)),
    ("computes", Some(2)),
    ("computes", Some(2)),
    ("computes", Some(3)),
    ("computes", Some(3)),
];

#[test]
fn capacity_mpi_stays_with_the_mapping_that_it_found() {
    let topology = machine("core2-quad");
    let plan = plan(&WORST);
    let moves = |seconds| run(&topology, &plan, "capacity+mpi", seconds).migrations;
    let found = moves(5.0);
    assert!(found > 0);
    assert_eq!(moves(100.0), found);
    let ipc = |policy| run(&topology, &plan, policy, 60.0).ipc;
    assert!(ipc("capacity+mpi") > 1.02 * ipc("linux"));
}

#[test]
fn contention_settles_near_the_best_mapping() {
    let topology = machine("core2-quad");
    let plan = plan(&WORST);
    let score = run(&topology, &plan, "contention", 200.0);
    let best = run(&topology, &plan, "best-static:objective=ipc", 200.0);
    assert!(score.ipc > 0.97 * best.ipc, "{} {}", score.ipc, best.ipc);
    assert!(score.migrations <= 20, "{}", score.migrations);
}

#[test]
fn where_all_share_one_cache_threads_stay_where_they_were_launched() {
    let topology = machine("i9-12900k-8p8e");
    let names = ["stream", "chase", "bodies", "mix"];
    let pinned: Vec<_> = names
        .iter()
        .zip([1, 3, 8, 9])
        .map(|(name, cpu)| (*name, Some(cpu)))
        .collect();
    let plan = plan(&pinned);
    let linux = run(&topology, &plan, "linux", 20.0);
    for policy in ["mpi", "capacity", "capacity+mpi", "contention"] {
        let score = run(&topology, &plan, policy, 20.0);
        assert_eq!(score.migrations, linux.migrations, "{policy}");
        assert!((score.ipc / linux.ipc - 1.0).abs() < 0.01, "{policy}");
    }
}

#[test]
fn signatures_match_the_best_mapping_where_no_cache_is_shared() {
    let topology = machine("xeon-x5365-2-2");
    let programs = ["stream", "bodies", "sqlite", "xz"].map(|name| (name, None));
    let asp = |policy| run(&topology, &plan(&programs), policy, 100.0).asp;
    let (hass, best) = (asp("hass"), asp("best-static:objective=asp"));
    assert!(hass + 4.0 > 0.99 * (best + 4.0), "{hass} {best}");
}

#[test]
fn company_counts_where_caches_are_shared() {
    // One program fits into a cache unless another pollutes it.
    let topology = machine("opteron-8356-4-4-2-2");
    let names = ["needs-cache", "floods-cache", "computes", "needs-cache"];
    let programs: Vec<_> = names.iter().cycle().take(12).map(|n| (*n, None)).collect();
    let asp = |policy| run(&topology, &plan(&programs), policy, 60.0).asp + 12.0;
    let (own, all) = (asp("hass"), asp("hass:shared-cache=on"));
    assert!(all > own, "{all} {own}");
}

#[test]
fn a_thread_of_higher_priority_takes_a_fast_core_for_its_own_gain() {
    let topology = machine("opteron-8356-2-2");
    let mut plan = plan(&[("computes", None); 4]);
    plan.programs[3].nice = -5;
    let slowdown = |policy| run(&topology, &plan, policy, 30.0).programs[3].slowdown;
    assert!(slowdown("hass") > 1.5);
    assert!(slowdown("hass:priorities=on") < 1.3);
}
