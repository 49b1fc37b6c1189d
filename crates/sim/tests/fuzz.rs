//! Every accepted machine file can be simulated: no panic, and an end within the budget.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use std::sync::Arc;
use std::time::{Duration, Instant};

use countersteer_fuzz::storm;
use countersteer_model::engine::{Engine, Watch};
use countersteer_model::machine::Machine;
use countersteer_model::topology::Topology;
use countersteer_model::units::Nanos;
use countersteer_sim::engine::{Plan, PlannedProgram, SimConfig, Simulation};
use countersteer_sim::linux::LinuxConfig;
use countersteer_sim::progress::{ProgressConfig, synthetic};

fn config() -> SimConfig {
    SimConfig {
        seed: 1,
        linux: LinuxConfig::default(),
        progress: ProgressConfig::default(),
        counter_noise: 0.01,
        sample_cost: Nanos::from_micros(2),
        rounds: 1,
        trace: false,
        governor: None,
    }
}

#[test]
fn machines_that_are_taken_can_be_simulated() {
    let kinds = [synthetic::streaming(), synthetic::vulnerable(20_000)];
    let program = |kind: synthetic::SyntheticKind| PlannedProgram {
        name: "p".into(),
        profile: Arc::new(synthetic::profile("p", &[(kind, 1_000_000)])),
        threads: 2,
        serial_share: 0.0,
        control: Default::default(),
        nice: 0,
        start: Nanos::ZERO,
        bursts: None,
        barriers: 1,
        chunk: None,
        launch_on: None,
        scale: 1.0,
    };
    let plan = Plan {
        programs: kinds.into_iter().map(program).collect(),
        ..Plan::default()
    };
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/");
    let names = ["core2-quad", "i9-12900k-8p8e", "juno-2-4"];
    let texts = names.map(|name| std::fs::read(format!("{root}{name}.toml")).unwrap());
    let examples = texts.each_ref().map(Vec::as_slice);
    storm("simulated machine", &examples, 0.05, |input| {
        let text = String::from_utf8_lossy(input);
        let Ok(machine) = Machine::parse("m", &text) else {
            return;
        };
        let topology = Arc::new(Topology::new(&machine));
        if let Ok(simulation) = Simulation::new(topology, &plan, config()) {
            let began = Instant::now();
            let mut simulation =
                simulation.within(Duration::from_millis(200), move || began.elapsed());
            for tenth in 1..=3 {
                let until = Nanos::from_millis(100 * tenth);
                if simulation.observe(&Watch::default(), until).is_err() {
                    return;
                }
            }
        }
    });
}
