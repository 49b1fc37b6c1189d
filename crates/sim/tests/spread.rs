//! Threads that begin on few CPUs are spread over all idle ones, on machines with unequal cores too.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use std::path::Path;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::machine::Machine;
use countersteer_model::topology::Topology;
use countersteer_model::units::{Nanos, ThreadId};
use countersteer_sim::linux::{Linux, kernel_config};

fn topology(name: &str) -> Topology {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../machines/{name}.toml"));
    let text = std::fs::read_to_string(&path).unwrap();
    Topology::new(&Machine::parse(name, &text).unwrap())
}

/// Number of busy CPUs after two seconds, if as many CPU-bound threads as CPUs begin on the CPUs `launch`, but may use all.
fn busy_after_2_s(name: &str, launch: &str) -> (usize, usize) {
    let topology = topology(name);
    let mut linux = Linux::new(&topology, kernel_config("7.2").unwrap());
    let cpus: CpuSet = launch.parse().unwrap();
    for t in 0..topology.cpus.len() as u32 {
        linux.fork_in(Some(t), ThreadId(t), 0, &cpus, None, Nanos(0));
        linux.set_affinity(ThreadId(t), &CpuSet::default(), Nanos(0));
    }
    let end = Nanos::from_millis(2_000);
    while linux.next_event() <= end {
        let next = linux.next_event();
        linux.advance(next);
    }
    linux.advance(end);
    let running = topology
        .cpus
        .iter()
        .filter(|cpu| linux.running(cpu.id).is_some());
    (running.count(), topology.cpus.len())
}

#[test]
fn cpu_bound_threads_leave_their_launch_cpus() {
    for (name, launch) in [
        ("phone-1-3-4", "0-3"),
        ("phone-1-3-4", "7"),
        ("juno-2-4", "0-3"),
        ("juno-2-4", "2-5"),
        ("apple-m1", "0-3"),
        ("apple-m1", "4-7"),
        ("i9-12900k", "0"),
        ("quickia-2b-2s", "2-3"),
        ("opteron-2425-2b-10s", "0"),
        ("ryzen-7950x3d", "0-1"),
    ] {
        let (busy, all) = busy_after_2_s(name, launch);
        assert_eq!(busy, all, "{name}, launched on {launch}");
    }
}
