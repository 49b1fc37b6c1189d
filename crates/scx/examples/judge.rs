//! What the kernel makes of a thread's counters, beside what user space makes of them: judge MACHINE.toml COMMAND...
//!
//! Prints, once per period and thread, the speed-up factor by step tables as the scheduler in the kernel computed it and as
//! metric `sf_steps` is. Needs what `steer run --engine scx` needs.

use std::error::Error;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use countersteer_core::counters::{Plan, PlannedSet, parse_set};
use countersteer_core::cpunumbers::CpuNumbers;
use countersteer_core::engine::Engine;
use countersteer_core::machine::Machine;
use countersteer_core::metric::MetricBank;
use countersteer_core::topology::Topology;
use countersteer_core::units::{Nanos, ProgramId};
use countersteer_host::counters::{Pmus, resolve};
use countersteer_host::live::{LiveEngine, Root};
use countersteer_scx::{ScxConfig, ScxEngine, probe};

const EVENTS: &str = "instructions,cycles";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [machine, program, words @ ..] = &arguments[..] else { return Err("judge MACHINE.toml COMMAND...".into()) };
    probe()?;
    let machine = Machine::parse(machine, &std::fs::read_to_string(machine)?)?;
    let topology = Arc::new(Topology::new(&machine));
    let set = resolve(EVENTS, &parse_set(EVENTS)?, &Pmus::read(std::path::Path::new("/"))?)?;
    let planned = PlannedSet { events: set.iter().map(|e| e.planned.clone()).collect() };
    let period = Nanos::from_millis(100);
    let config = ScxConfig {
        counters: Some((vec![set], Plan::new(vec![planned], Some(period))?)),
        period,
        ..ScxConfig::new(Arc::clone(&topology), CpuNumbers::new(machine.os_cpu_numbers()))
    };
    let mut engine = ScxEngine::open(config)?;
    let mut child = Command::new(program).args(words).spawn()?;
    engine.admit(&Root { pid: child.id(), program: ProgramId(0), name: "program".into() })?;
    let mut bank = MetricBank::new(&topology, &["sf_steps"]);
    let mut next = Nanos::ZERO;
    while child.try_wait()?.is_none() {
        next += period;
        let seen = engine.observe(next, false)?;
        bank.update(&seen);
        for thread in &seen.threads {
            let (kernel, user) = (engine.metric(thread.id), bank.get(thread.id, "sf_steps"));
            println!("{} {kernel:?} {user:?}", thread.id.0);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("{:?}", engine.figures()?);
    Ok(())
}
