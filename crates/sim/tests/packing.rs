//! CPUs that equal CPU-bound threads occupy on machines with unequal cores, from one thread to more threads than cores.
//!
//! Each row of [`ROWS`] has the kernel's function and branch that decide it. `docs/simulated-linux.md` has the same table.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use std::path::Path;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::machine::Machine;
use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, Nanos, ThreadId};
use countersteer_sim::linux::{Linux, LinuxConfig, kernel_config};

const SEEDS: u64 = 4;

/// Core type, number of its busy cores for a number of threads, and number of its cores with two busy CPUs.
type Wanted = (&'static str, Count, Count);
type Count = fn(u32) -> u32;

/// Numbers of threads on a machine, and the busy cores that they should have.
struct Row {
    machine: &'static str,
    threads: std::ops::RangeInclusive<u32>,
    wanted: &'static [Wanted],
    reason: &'static str,
}

const ROWS: &[Row] = &[
    Row {
        machine: "i9-12900k",
        threads: 1..=8,
        wanted: &[("golden-cove", |n| n, |_| 0), ("gracemont", |_| 0, |_| 0)],
        reason: "sched_group_asym: an idle P core takes the thread of an E core; asym_active_balance moves it while it runs",
    },
    Row {
        machine: "i9-12900k",
        threads: 9..=16,
        wanted: &[
            ("golden-cove", |_| 8, |_| 0),
            ("gracemont", |n| n - 8, |_| 0),
        ],
        reason: "sched_use_asym_prio: the second CPU of a busy P core has no priority; group_smt_balance sends its thread to an idle E core",
    },
    Row {
        machine: "i9-12900k",
        threads: 17..=24,
        wanted: &[
            ("golden-cove", |_| 8, |n| n - 16),
            ("gracemont", |_| 8, |_| 0),
        ],
        reason: "no core is idle: select_idle_smt and find_dst_group_cpu use the second CPUs of P cores",
    },
    Row {
        machine: "ryzen-7950x3d",
        threads: 1..=8,
        wanted: &[("zen4", |n| n, |_| 0), ("zen4-x3d", |_| 0, |_| 0)],
        reason: "sched_group_asym at the package level (x86_sched_itmt_flags): the faster die is preferred",
    },
    Row {
        machine: "ryzen-7950x3d",
        threads: 9..=16,
        wanted: &[("zen4", |_| 8, |_| 0), ("zen4-x3d", |n| n - 8, |_| 0)],
        reason: "sched_use_asym_prio: a busy core's second CPU has no priority, so whole cores of the other die come first",
    },
    Row {
        machine: "phone-1-3-4",
        threads: 1..=1,
        wanted: &[("cortex-x3", |n| n, |_| 0)],
        reason: "update_misfit_status: a CPU-bound thread fits no smaller CPU, and group_misfit_task moves it up",
    },
    Row {
        machine: "phone-1-3-4",
        threads: 2..=4,
        wanted: &[
            ("cortex-x3", |_| 1, |_| 0),
            ("cortex-a715", |n| n - 1, |_| 0),
        ],
        reason: "update_sd_pick_busiest: a misfit moves only to a CPU of greater capacity that has room",
    },
    Row {
        machine: "phone-1-3-4",
        threads: 5..=8,
        wanted: &[
            ("cortex-x3", |_| 1, |_| 0),
            ("cortex-a715", |_| 3, |_| 0),
            ("cortex-a510", |n| n - 4, |_| 0),
        ],
        reason: "overutilised: no energy model; all CPUs are used because each has one thread",
    },
];

fn machine(name: &str) -> Topology {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../machines/{name}.toml"));
    let text = std::fs::read_to_string(path).unwrap();
    Topology::new(&Machine::parse(name, &text).unwrap())
}

/// Number of busy cores of a type, and of its cores with two busy CPUs, in CPU seconds per second after three seconds.
fn occupied(topology: &Topology, threads: u32, seed: u64, core_type: &str) -> (f64, f64) {
    let config = LinuxConfig {
        seed,
        ..kernel_config("7.2").unwrap()
    };
    let mut linux = Linux::new(topology, config);
    for t in 0..threads {
        let now = Nanos::from_millis(u64::from(t));
        let all = CpuSet::default();
        linux.fork_in(Some(t), ThreadId(t), 0, &all, Some(CpuId(0)), now);
    }
    linux.advance(Nanos::from_millis(3_000));
    let steps = 100;
    let (mut cores, mut doubles) = (0, 0);
    for step in 0..steps {
        linux.advance(Nanos::from_millis(3_000 + 10 * step));
        let mut busy = vec![0; topology.cpus.len()];
        for cpu in &topology.cpus {
            let is_of_type = topology.core_types[cpu.core_type.index()].name == core_type;
            busy[cpu.core as usize] += u32::from(is_of_type && linux.running(cpu.id).is_some());
        }
        cores += busy.iter().filter(|b| **b > 0).count();
        doubles += busy.iter().filter(|b| **b > 1).count();
    }
    let mean = |sum: usize| sum as f64 / steps as f64;
    (mean(cores), mean(doubles))
}

#[test]
fn threads_occupy_the_cores_that_the_kernel_prefers() {
    let mut wrong = Vec::new();
    for row in ROWS {
        let topology = machine(row.machine);
        for threads in row.threads.clone() {
            for (core_type, cores, doubles) in row.wanted {
                let wanted = (f64::from(cores(threads)), f64::from(doubles(threads)));
                for seed in 1..=SEEDS {
                    let got = occupied(&topology, threads, seed, core_type);
                    if (got.0 - wanted.0).abs() > 0.05 || (got.1 - wanted.1).abs() > 0.05 {
                        let of = row.machine;
                        wrong.push(format!(
                            "{of}, {threads} threads, {core_type}, seed {seed}: {got:?}, not {wanted:?} ({})",
                            row.reason
                        ));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
