//! Simulated seconds per second of the progress model alone, best of five runs.
//!
//! `cargo bench -p countersteer-sim --bench progress`. The load is one busy thread per CPU and three phases of about 50 ms per
//! program, with and without contention. Then it measures the cost of context switches and of forecasts.

#![allow(
    clippy::panic,
    reason = "without its machine there is nothing to measure"
)]

use std::sync::Arc;
use std::time::Instant;

use countersteer_model::machine::Machine;
use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, Nanos, ThreadId};
use countersteer_sim::progress::{Analytic, ModelId, ProgressConfig, ProgressModel, synthetic};

fn machine(name: &str) -> Arc<Topology> {
    let path = format!("{}/../../machines/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    Arc::new(Topology::new(
        &Machine::parse(&path, &text).unwrap_or_else(|e| panic!("{e}")),
    ))
}

/// Model with threads `0 .. count`; the first of them run, one per CPU.
fn load(topology: &Arc<Topology>, config: ProgressConfig, count: usize, phase_s: f64) -> Analytic {
    let mut progress = Analytic::new(Arc::clone(topology), config);
    let models: Vec<_> = (0..16)
        .map(|nth| {
            progress
                .add_program(Arc::new(synthetic::typical(nth, phase_s)))
                .unwrap_or(ModelId(0))
        })
        .collect();
    for thread in 0..count {
        let id = ThreadId::from_index(thread);
        progress.add_thread(id, models[thread % models.len()]);
        progress.set_work(id, thread as f64 * 1e8, 1e18, 1.0, Nanos::ZERO);
        if thread < topology.cpus.len() {
            progress.set_running(CpuId::from_index(thread), Some(id), Nanos::ZERO);
        }
    }
    progress
}

fn run(progress: &mut Analytic, end: Nanos) {
    loop {
        let next = progress.next_event();
        if next > end {
            break;
        }
        progress.advance(next);
    }
    progress.advance(end);
}

fn best(mut once: impl FnMut() -> f64) -> f64 {
    (0..5).map(|_| once()).fold(f64::INFINITY, f64::min)
}

fn throughput(name: &str, seconds: u64, phase_s: f64) {
    let topology = machine(name);
    for contention in [true, false] {
        let config = ProgressConfig {
            contention,
            ..ProgressConfig::default()
        };
        let spent = best(|| {
            let mut progress = load(&topology, config.clone(), topology.cpus.len(), phase_s);
            run(&mut progress, Nanos::from_millis(500));
            let begin = Instant::now();
            run(&mut progress, Nanos::from_millis(500 + 1000 * seconds));
            begin.elapsed().as_secs_f64() / seconds as f64
        });
        println!(
            "{name}: {} CPUs, phases {phase_s} s, contention {contention}: {:.0} us per simulated second, {:.0} simulated s/s",
            topology.cpus.len(),
            spent * 1e6,
            1.0 / spent
        );
    }
}

/// Measures two threads per CPU with slices of 3 ms.
fn switches(name: &str) {
    let topology = machine(name);
    let cpus = topology.cpus.len();
    let spent = best(|| {
        let mut progress = load(&topology, ProgressConfig::default(), 2 * cpus, 0.05);
        let begin = Instant::now();
        for turn in 1..1000usize {
            let now = Nanos::from_millis(3 * turn as u64);
            run(&mut progress, now);
            for cpu in 0..cpus {
                let next = ThreadId::from_index(cpu + (turn % 2) * cpus);
                progress.set_running(CpuId::from_index(cpu), Some(next), now);
            }
        }
        begin.elapsed().as_secs_f64() / 1000.0 / cpus as f64
    });
    println!(
        "{name}: {:.0} ns per context switch, integration included",
        spent * 1e9
    );
}

fn forecasts(name: &str) {
    let topology = machine(name);
    let progress = load(&topology, ProgressConfig::default(), 0, 0.05);
    let rows: Vec<_> = (0..topology.cpus.len())
        .map(|cpu| (ModelId((cpu % 16) as u32), CpuId::from_index(cpu), 1.0))
        .collect();
    let spent = best(|| {
        let begin = Instant::now();
        let sum: f64 = (0..100).map(|_| progress.steady_state(&rows)[0].ips).sum();
        assert!(sum > 0.0);
        begin.elapsed().as_secs_f64() / 100.0
    });
    println!(
        "{name}: {:.1} us per forecast of {} programs",
        spent * 1e6,
        rows.len()
    );
}

fn main() {
    throughput("i9-12900k-8p8e", 50, 0.05);
    throughput("i9-12900k-8p8e", 50, 0.5);
    throughput("i9-12900k", 50, 0.05);
    throughput("server-12llc", 10, 0.05);
    switches("i9-12900k-8p8e");
    forecasts("i9-12900k-8p8e");
}
