//! Tests of the model against closed forms, its own forecasts, and expected behaviour.

mod behaviour;
mod exact;
mod keys;
mod steady;

use super::synthetic::{SyntheticKind, profile};
use super::*;
use countersteer_model::events::Event;
use countersteer_model::machine::Machine;

const HYBRID: &str = "i9-12900k-8p8e";
const HYBRID_SMT: &str = "i9-12900k";

fn text(name: &str) -> String {
    let path = format!("{}/../../machines/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn machine(name: &str) -> Arc<Topology> {
    Arc::new(Topology::new(&Machine::parse(name, &text(name)).unwrap()))
}

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// Configuration with the program and the core only.
fn quiet() -> ProgressConfig {
    ProgressConfig {
        contention: false,
        costs: false,
        context_switch_ns: 0.0,
        migration_ns: 0.0,
    }
}

/// Configuration with contention but without costs of switches.
fn free_switches() -> ProgressConfig {
    ProgressConfig {
        costs: false,
        ..ProgressConfig::default()
    }
}

/// Threads with endless work of one kind each, on the given CPUs.
fn start(name: &str, config: ProgressConfig, kinds: &[(SyntheticKind, u32)]) -> Analytic {
    let mut progress = Analytic::new(machine(name), config);
    for (i, (kind, cpu)) in kinds.iter().enumerate() {
        add(&mut progress, i as u32, kind, *cpu);
    }
    progress
}

fn add(progress: &mut Analytic, thread: u32, kind: &SyntheticKind, cpu: u32) {
    let now = progress.now();
    let model = progress
        .add_program(Arc::new(profile("p", &[(kind.clone(), 1_000_000_000)])))
        .unwrap();
    progress.add_thread(ThreadId(thread), model);
    progress.set_work(ThreadId(thread), 0.0, 1e15, 1.0, now);
    progress.set_running(CpuId(cpu), Some(ThreadId(thread)), now);
}

fn run(progress: &mut Analytic, until: Nanos) {
    loop {
        let next = progress.next_event();
        if next > until {
            break;
        }
        progress.advance(next);
    }
    progress.advance(until);
}

/// Instructions per second of each thread from now to `until`.
fn speeds(progress: &mut Analytic, until: Nanos) -> Vec<f64> {
    let from = progress.now();
    let read = |p: &mut Analytic, at| -> Vec<f64> {
        (0..p.threads.len())
            .map(|t| p.counters(ThreadId(t as u32), at).instructions)
            .collect()
    };
    let before = read(progress, from);
    run(progress, until);
    let seconds = until.since(from).as_secs_f64();
    read(progress, until)
        .iter()
        .zip(before)
        .map(|(b, a)| (b - a) / seconds)
        .collect()
}

fn llc_lines(progress: &Analytic, thread: u32, cpu: u32) -> f64 {
    progress.occupancy_lines(ThreadId(thread), progress.topology.llc_of(CpuId(cpu)))
}
