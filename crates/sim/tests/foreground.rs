//! A foreground program on an overloaded machine: its run-queue latency is compared with that under plain Linux.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use std::sync::Arc;

use countersteer_model::driver::{DriverConfig, drive};
use countersteer_model::machine::Machine;
use countersteer_model::policy::PolicyRng;
use countersteer_model::score::Outcome;
use countersteer_model::topology::Topology;
use countersteer_model::units::Nanos;
use countersteer_sim::engine::{Plan, PlannedProgram, SimConfig, Simulation};
use countersteer_sim::linux::LinuxConfig;
use countersteer_sim::progress::ProgressConfig;
use countersteer_sim::progress::synthetic::{self, profile};
use rand::SeedableRng;

const JUNO: &str = include_str!("../../../machines/juno-2-4.toml");

fn program(name: &str, instructions: u64, bursts: Option<(f64, Nanos)>) -> PlannedProgram {
    PlannedProgram {
        name: name.into(),
        profile: Arc::new(profile(name, &[(synthetic::compute(), instructions)])),
        threads: 1,
        serial_share: 0.0,
        control: Default::default(),
        nice: 0,
        start: Nanos::ZERO,
        bursts,
        launch_on: None,
        scale: 1.0,
        barriers: 1,
        chunk: None,
    }
}

/// Runs a program of short bursts beside twelve that never sleep, on six CPUs.
fn run(spec: &str, seed: u64) -> Outcome {
    let topology = Arc::new(Topology::new(&Machine::parse("juno.toml", JUNO).unwrap()));
    let bursts = Some((2e6, Nanos::from_millis(10)));
    let mut programs = vec![program("game", 2_000_000_000, bursts)];
    programs.extend((0..12).map(|n| program(&format!("batch{n}"), 8_000_000_000, None)));
    let config = SimConfig {
        seed,
        linux: LinuxConfig {
            seed,
            ..LinuxConfig::default()
        },
        progress: ProgressConfig::default(),
        counter_noise: 0.0,
        sample_cost: Nanos::ZERO,
        rounds: 1,
        trace: false,
        governor: None,
    };
    let mut simulation = Simulation::new(
        Arc::clone(&topology),
        &Plan {
            programs,
            ..Plan::default()
        },
        config,
    )
    .unwrap();
    let mut policy = countersteer_policies::parse(spec, &topology).unwrap();
    let driver = DriverConfig {
        period: Nanos::from_millis(100),
        until: Nanos::NEVER,
    };
    let mut rng = PolicyRng::seed_from_u64(seed);
    drive(&mut simulation, policy.as_mut(), &mut [], driver, &mut rng).unwrap();
    simulation.outcome()
}

/// Mean over five seeds of the program's 99th percentile.
fn p99_ms(spec: &str) -> f64 {
    let of = |seed| {
        run(spec, seed).programs[0]
            .run_queue_latency
            .unwrap()
            .p99_ms
    };
    (1..=5).map(of).sum::<f64>() / 5.0
}

#[test]
fn the_foreground_programs_latency_does_not_rise_under_a_policy_that_confines_it() {
    let confined = "static:*=cortex-a53";
    let linux = p99_ms("linux");
    let worse = p99_ms(confined);
    assert!(worse > 1.2 * linux, "{worse} ms for {linux} ms");
    for policy in [confined, "linux", "aarr"] {
        let spec =
            countersteer_policies::with_param(policy, countersteer_policies::FOREGROUND, "game");
        let first = p99_ms(&spec);
        assert!(first <= linux, "{spec}: {first} ms for {linux} ms");
    }
}
