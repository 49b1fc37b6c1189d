//! Tests of every policy on every shipped machine with three seeds, in the simulator with recorded programs.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use countersteer_model::driver::{DriverConfig, Recorder, drive};
use countersteer_model::engine::{Applied, Observation};
use countersteer_model::machine::Machine;
use countersteer_model::metric::MetricBank;
use countersteer_model::placement::Placement;
use countersteer_model::policy::PolicyRng;
use countersteer_model::profile::Profile;
use countersteer_model::score::Score;
use countersteer_model::topology::Topology;
use countersteer_model::units::Nanos;
use countersteer_policies::POLICIES;
use countersteer_sim::engine::{Plan, PlannedProgram, SimConfig, Simulation};
use countersteer_sim::linux::LinuxConfig;
use countersteer_sim::progress::ProgressConfig;
use rand::SeedableRng;

fn files(folder: &str) -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(folder);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    paths.sort();
    paths
        .into_iter()
        .map(|p| (p.clone(), std::fs::read_to_string(p).unwrap()))
        .collect()
}

/// Checks the guarantees of an engine, and sums up the decisions.
#[derive(Default)]
struct Check {
    last: Nanos,
    decisions: u64,
    digest: u64,
}

impl Recorder for Check {
    fn observation(&mut self, topology: &Topology, seen: &Observation, _: &MetricBank) {
        assert!(seen.at >= self.last, "time went back");
        self.last = seen.at;
        for thread in &seen.threads {
            assert!(thread.cpu.index() < topology.cpus.len());
            assert!(!thread.allowed.is_empty());
        }
        for sample in seen.samples.iter() {
            assert!(sample.running > Nanos::ZERO && sample.end <= seen.at);
        }
    }

    fn decision(&mut self, _: &Topology, _: Nanos, placement: &Placement, applied: Applied) {
        assert_eq!(
            (applied.gone, applied.refused),
            (0, 0),
            "a thread was placed that is not there"
        );
        for entry in &placement.threads {
            self.decisions += 1;
            let text = format!("{:?} {:?}", entry.thread, entry.target);
            self.digest = text.bytes().fold(self.digest, |d, b| {
                (d ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
            });
        }
    }
}

fn run(topology: &Arc<Topology>, plan: &Plan, spec: &str, seed: u64) -> (u64, String) {
    let config = SimConfig {
        seed,
        linux: LinuxConfig {
            seed,
            ..LinuxConfig::default()
        },
        progress: ProgressConfig::default(),
        counter_noise: 0.01,
        sample_cost: Nanos::from_micros(2),
        rounds: 3,
        trace: false,
        governor: None,
    };
    let mut policy = countersteer_policies::parse(spec, topology).unwrap();
    let mut simulation = Simulation::new(Arc::clone(topology), plan, config).unwrap();
    let driver = DriverConfig {
        period: Nanos::from_millis(100),
        until: Nanos::from_millis(2_000),
    };
    let mut check = Check::default();
    let mut rng = PolicyRng::seed_from_u64(seed);
    drive(
        &mut simulation,
        policy.as_mut(),
        &mut [&mut check],
        driver,
        &mut rng,
    )
    .unwrap();
    let outcome = simulation.outcome();
    let score = Score::of(&outcome);
    for figure in [
        score.asp,
        score.stp,
        score.antt,
        score.unfairness,
        score.jain,
        score.ipc,
        score.energy_j,
    ] {
        assert!(figure.is_finite(), "{spec} on {}: {score:?}", topology.name);
    }
    // With any policy, no CPU runs for longer than the elapsed time.
    let cycles: f64 = outcome.programs.iter().map(|p| p.cycles).sum();
    let fastest = topology
        .core_types
        .iter()
        .map(|t| t.freq_ghz)
        .fold(0.0, f64::max)
        * 1e9;
    assert!(cycles <= fastest * outcome.elapsed_s * topology.cpus.len() as f64 * 1.001);
    (check.digest, serde_json::to_string(&score).unwrap())
}

#[test]
fn every_policy_runs_on_every_machine_and_repeats_itself() {
    let profiles: Vec<Arc<Profile>> = files("profiles/recorded")
        .iter()
        .map(|(path, text)| Arc::new(Profile::parse(&path.to_string_lossy(), text).unwrap()))
        .collect();
    let machines = files("machines");
    let next = AtomicUsize::new(0);
    // Each core takes the next machine.
    let check = || {
        while let Some((path, text)) = machines.get(next.fetch_add(1, Relaxed)) {
            let machine = Machine::parse(&path.to_string_lossy(), text).unwrap();
            every_policy_runs_on(&Arc::new(Topology::new(&machine)), &profiles);
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(check);
        }
    });
}

fn every_policy_runs_on(topology: &Arc<Topology>, profiles: &[Arc<Profile>]) {
    // More threads than CPUs on small machines, fewer on large ones.
    let programs = (0..10).map(|i| PlannedProgram {
        name: format!("p{i}").into(),
        profile: Arc::clone(&profiles[i * 7 % profiles.len()]),
        threads: if i == 0 { 3 } else { 1 },
        serial_share: 0.0,
        control: Default::default(),
        nice: if i == 1 { 5 } else { 0 },
        start: Nanos::from_millis(if i == 2 { 150 } else { 0 }),
        bursts: (i == 3).then_some((20e6, Nanos::from_millis(3))),
        barriers: 1,
        chunk: None,
        launch_on: None,
        scale: 1.0,
    });
    let plan = Plan {
        programs: programs.collect(),
        ..Plan::default()
    };
    for def in POLICIES {
        let spec = match def.name {
            "static" => "static:*=machine",
            // Forecasts with more threads than CPUs simulate their time slices: a few hundred suffice as a check.
            "best-static" => "best-static:budget=200",
            name => name,
        };
        for seed in 1..=3 {
            let first = run(topology, &plan, spec, seed);
            if seed == 1 {
                assert_eq!(
                    first,
                    run(topology, &plan, spec, seed),
                    "{spec} on {} does not repeat",
                    topology.name
                );
            }
        }
    }
}
