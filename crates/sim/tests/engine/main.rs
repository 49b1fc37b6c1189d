//! Tests of the whole simulator: programs, Linux model and progress model behind the engine's two calls.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use std::path::Path;
use std::sync::Arc;

use countersteer_model::driver::{DriverConfig, drive};
use countersteer_model::engine::{Engine, ThreadEventKind, Watch};
use countersteer_model::machine::Machine;
use countersteer_model::metric::MetricBank;
use countersteer_model::policy::{self, PolicyRng};
use countersteer_model::profile::Profile;
use countersteer_model::sample::Event;
use countersteer_model::score::{ProgramScore, Score};
use countersteer_model::topology::{GroupBy, Topology};
use countersteer_model::units::Nanos;
use countersteer_sim::engine::{Plan, PlannedProgram, SimConfig, Simulation};
use countersteer_sim::linux::LinuxConfig;
use countersteer_sim::progress::{ProgressConfig, synthetic};
use rand::SeedableRng;

mod control;
mod counting;
mod policies;
mod programs;
mod switches;

fn read(path: &str) -> String {
    std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(path),
    )
    .unwrap()
}

fn machine(name: &str) -> Arc<Topology> {
    let path = format!("machines/{name}.toml");
    Arc::new(Topology::new(&Machine::parse(&path, &read(&path)).unwrap()))
}

fn spec(name: &str) -> Arc<Profile> {
    let path = format!("profiles/spec2017/{name}.toml");
    Arc::new(Profile::parse(&path, &read(&path)).unwrap())
}

fn program(name: &str, profile: &Arc<Profile>, threads: u32, scale: f64) -> PlannedProgram {
    let profile = Arc::clone(profile);
    let start = Nanos::ZERO;
    PlannedProgram {
        name: name.into(),
        profile,
        threads,
        serial_share: 0.0,
        control: Default::default(),
        nice: 0,
        start,
        bursts: None,
        barriers: 1,
        chunk: None,
        launch_on: None,
        scale,
    }
}

fn config(ideal: bool, seed: u64) -> SimConfig {
    SimConfig {
        seed,
        linux: LinuxConfig {
            seed,
            ..LinuxConfig::default()
        },
        progress: ProgressConfig {
            contention: !ideal,
            costs: !ideal,
            ..ProgressConfig::default()
        },
        counter_noise: if ideal { 0.0 } else { 0.01 },
        sample_cost: if ideal {
            Nanos::ZERO
        } else {
            Nanos::from_micros(2)
        },
        rounds: 3,
        trace: false,
        governor: None,
    }
}

fn score(topology: &Arc<Topology>, plan: &Plan, spec: &str, config: SimConfig) -> Score {
    let seed = config.seed;
    let mut policy = countersteer_policies::parse(spec, topology).unwrap();
    let mut simulation = Simulation::new(Arc::clone(topology), plan, config).unwrap();
    let driver = DriverConfig {
        period: Nanos::from_millis(100),
        until: Nanos::NEVER,
    };
    let mut rng = PolicyRng::seed_from_u64(seed);
    drive(&mut simulation, policy.as_mut(), &mut [], driver, &mut rng).unwrap();
    Score::of(&simulation.outcome())
}

const SIXTEEN: [&str; 8] = [
    "503.bwaves_r",
    "505.mcf_r",
    "521.wrf_r",
    "538.imagick_r",
    "500.perlbench_r",
    "541.leela_r",
    "548.exchange2_r",
    "557.xz_r",
];

fn sixteen() -> Plan {
    let programs = (0..16).map(|i| program(&format!("p{i}"), &spec(SIXTEEN[i % 8]), 1, 0.02));
    Plan {
        programs: programs.collect(),
        ..Plan::default()
    }
}

fn recorded(name: &str) -> Arc<Profile> {
    let path = format!("profiles/recorded/{name}.json");
    Arc::new(Profile::parse(&path, &read(&path)).unwrap())
}
