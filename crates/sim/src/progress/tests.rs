//! The model held against closed forms, against itself, and against what must come out of it.

use super::*;
use crate::progress::synthetic::{Kind, chase, compute, cyclic, profile, streaming, vulnerable};
use countersteer_core::machine::Machine;

fn machine(name: &str) -> Arc<Topology> {
    let path = format!("/work/main/machines/{name}.toml");
    Arc::new(Topology::new(&Machine::parse(name, &std::fs::read_to_string(path).unwrap()).unwrap()))
}

const HYBRID: &str = "i9-12900k-8p8e";

struct Bench {
    progress: Progress,
}

fn quiet() -> ProgressConfig {
    ProgressConfig { contention: false, costs: false, context_switch_ns: 0.0, migration_ns: 0.0 }
}

fn start(name: &str, config: ProgressConfig, kinds: &[(Kind, u32)]) -> Bench {
    let mut progress = Progress::new(machine(name), config);
    for (i, (kind, cpu)) in kinds.iter().enumerate() {
        let model = progress.add_program(Arc::new(profile("p", &[(kind.clone(), 1_000_000_000)]))).unwrap();
        let id = ThreadId(i as u32);
        progress.add_thread(id, model);
        progress.set_work(id, 0.0, 1e15, 1.0, Nanos::ZERO);
        progress.set_running(CpuId(*cpu), Some(id), Nanos::ZERO);
    }
    Bench { progress }
}

impl Bench {
    fn run(&mut self, until: Nanos) {
        loop {
            let next = self.progress.next_event();
            if next > until {
                break;
            }
            self.progress.advance(next);
        }
        self.progress.advance(until);
    }

    /// Instructions per second of each thread between two times.
    fn ips(&mut self, threads: u32, from_ms: u64, to_ms: u64) -> Vec<f64> {
        let read = |b: &mut Self, ms| -> Vec<f64> {
            b.run(Nanos::from_millis(ms));
            (0..threads).map(|t| b.progress.counters(ThreadId(t), Nanos::from_millis(ms)).instructions).collect()
        };
        let (a, b) = (read(self, from_ms), read(self, to_ms));
        a.iter().zip(b).map(|(a, b)| (b - a) / ((to_ms - from_ms) as f64 * 1e-3)).collect()
    }
}

#[test]
fn show() {
    for (label, kind) in [
        ("compute", compute()),
        ("stream", streaming()),
        ("chase 400k", chase(400_000)),
        ("cyclic 300k", cyclic(300_000)),
        ("vulnerable 400k", vulnerable(400_000)),
        ("vulnerable 20k", vulnerable(20_000)),
    ] {
        for cpu in [0, 8] {
            let mut b = start(HYBRID, ProgressConfig::default(), &[(kind.clone(), cpu)]);
            let ips = b.ips(1, 1000, 2000);
            let c = b.progress.counters(ThreadId(0), Nanos::from_millis(2000));
            println!("{label:16} cpu{cpu} ips {:.3e} alone {:.3e} ipc {:.2} mpki {:.2} l2 {:.2} sf {:.2} occ {:.0} W {:.2} f {:.3}",
                ips[0], b.progress.alone_ips(ModelId(0), b.progress.topology.core_type_of(CpuId(cpu))), c.instructions / c.cycles, c.llc_misses / c.instructions * 1e3,
                c.l2_misses / c.instructions * 1e3, b.progress.true_sf(ThreadId(0)),
                b.progress.occupancy_lines(ThreadId(0), b.progress.topology.llc_of(CpuId(cpu))), c.energy_nj / c.run_ns, b.progress.memories[0].factor);
        }
    }
    let kinds: Vec<_> = (0..16).map(|i| ([compute(), streaming(), chase(400_000), vulnerable(200_000)][i % 4].clone(), i as u32)).collect();
    let mut b = start(HYBRID, ProgressConfig::default(), &kinds);
    let ips = b.ips(16, 3000, 4000);
    let rows: Vec<_> = (0..16).map(|i| (ModelId(i), CpuId(i), 1.0)).collect();
    let steady = b.progress.steady_state(&rows);
    for i in 0..16 {
        println!("{i} {:.4e} {:.4e} {:.4}", ips[i], steady[i].ips, ips[i] / steady[i].ips);
    }
    println!("factor {} step {}", b.progress.memories[0].factor, b.progress.pools[b.progress.cpus[0].pool as usize].step);
}
