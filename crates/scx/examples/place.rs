//! Steers programs with the engine inside the kernel: place MACHINE.toml POLICY SECONDS LOSE COMMAND...
//!
//! A driver for tests in virtual machines. MACHINE may be made up: its core types need not be real. Prints each thread's
//! share of running time on the core types it was sent to, period by period. LOSE is a target whose threads get lost, or -.

use std::error::Error;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use countersteer_core::cpunumbers::CpuNumbers;
use countersteer_core::driver::{DriverConfig, Recorder, drive};
use countersteer_core::engine::{Applied, Observation};
use countersteer_core::machine::Machine;
use countersteer_core::metric::MetricBank;
use countersteer_core::placement::Placement;
use countersteer_core::policy::{PolicyRng, parse};
use countersteer_core::topology::Topology;
use countersteer_core::units::{CpuId, Nanos, ProgramId};
use countersteer_host::live::Root;
use countersteer_scx::{ScxConfig, ScxEngine, probe};

struct Print;

impl Recorder for Print {
    fn observation(&mut self, topology: &Topology, seen: &Observation, _: &MetricBank) {
        for s in &seen.samples {
            let t = seen.threads.iter().find(|t| t.id == s.thread);
            let right = t.map_or("gone", |t| {
                let right = t.allowed.iter().any(|c| topology.core_type_of(c) == s.core_type);
                if right { "right" } else { "wrong" }
            });
            println!("sample {} {} {} {} {right}", s.at.0, s.thread.0, s.core_type.0, s.running.0);
        }
        for e in &seen.events {
            println!("event {} {} {}", e.at.0, e.thread.0, e.kind.name());
        }
    }

    fn decision(&mut self, topology: &Topology, at: Nanos, placement: &Placement, applied: Applied) {
        for t in &placement.threads {
            println!("placed {} {} {}", at.0, t.thread.0, t.target.name(topology));
        }
        if !placement.threads.is_empty() {
            println!("applied {} changed {} gone {} refused {}", at.0, applied.changed, applied.gone, applied.refused);
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [machine, policy, seconds, lose, commands @ ..] = &arguments[..] else {
        return Err("place MACHINE.toml POLICY SECONDS LOSE COMMAND...".into());
    };
    probe()?;
    let parsed = Machine::parse(machine, &std::fs::read_to_string(machine)?).map_err(|e| e.message)?;
    let topology = Arc::new(Topology::new(&parsed));
    let numbers = CpuNumbers::new((0..topology.cpus.len()).map(CpuId::from_index).collect());
    let mut children: Vec<Child> = Vec::new();
    for command in commands {
        let mut words = command.split_whitespace();
        children.push(Command::new(words.next().unwrap_or_default()).args(words).spawn()?);
    }
    let root = |(row, child): (usize, &Child)| Root {
        pid: child.id(),
        program: ProgramId::from_index(row),
        name: format!("program{row}").into(),
    };
    let roots = children.iter().enumerate().map(root).collect();
    let config = ScxConfig {
        period: Nanos::from_millis(200),
        watchdog: Duration::from_secs(3),
        lose_target: lose.parse().ok(),
        ..ScxConfig::default()
    };
    let mut engine = ScxEngine::open(Arc::clone(&topology), numbers, roots, config)?;
    let mut policy = parse(policy, &topology)?;
    let until = Nanos::from_secs_f64(seconds.parse()?);
    let config = DriverConfig { period: Nanos::from_millis(200), until };
    let mut rng = PolicyRng::new(1, 1);
    let ended = drive(&mut engine, &mut *policy, &mut Print, config, &mut rng);
    drop(engine);
    println!("ended {ended:?}");
    for child in &mut children {
        child.kill()?;
        child.wait()?;
    }
    Ok(())
}
