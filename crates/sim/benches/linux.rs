//! Cost of the model of Linux: per simulated second in steady state, per wake-up, per fork.
//!
//! `cargo bench -p countersteer-sim --bench linux`

use countersteer_model::cpuset::CpuSet;
use countersteer_model::machine::Machine;
use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, Nanos, ThreadId};
use countersteer_sim::linux::{FairClass, Linux, LinuxConfig};
use divan::Bencher;

fn main() {
    divan::main();
}

const SECOND: u64 = 1_000_000_000;

/// Machine of `cpus` equal CPUs, with 16 per last-level cache and 256 per node.
fn machine(cpus: u32) -> Topology {
    let mut text = format!(
        "schema = \"countersteer.machine/1\"\nname = \"made-up\"\ntitle = \"made up\"\nsource = \"made up\"
        linux = \"symmetric\"
        [[core_type]]\nname = \"core\"\ndispatch_width = 4\nwindow = 128\nfreq_ghz = 3.0\ncapacity = 1024
        branch_penalty_cycles = 15\nl1d = {{ size_kib = 32, ways = 8, latency_cycles = 4 }}
        l2 = {{ size_kib = 512, ways = 8, latency_cycles = 14 }}
        power = {{ idle_w = 0.1, active_w = 1.0, instruction_nj = 0.3 }}
        [[cores]]\ntype = \"core\"\ncpus = \"0-{}\"\n",
        cpus - 1
    );
    for low in (0..cpus).step_by(16) {
        let high = (low + 15).min(cpus - 1);
        text += &format!(
            "[[cache]]\nlevel = 3\ncpus = \"{low}-{high}\"\nsize_kib = 32768\nways = 16\nlatency_ns = 12\n"
        );
    }
    for low in (0..cpus).step_by(256) {
        let high = (low + 255).min(cpus - 1);
        text += &format!(
            "[[memory]]\ncpus = \"{low}-{high}\"\nlatency_ns = 90\nbandwidth_gb_s = 100\n"
        );
    }
    match Machine::parse("made-up.toml", &text) {
        Ok(machine) => Topology::new(&machine),
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    }
}

fn busy(cpus: u32, threads: u32, scheduler: FairClass) -> Linux {
    let topology = machine(cpus);
    let mut linux = Linux::new(
        &topology,
        LinuxConfig {
            scheduler,
            ..LinuxConfig::default()
        },
    );
    for t in 0..threads {
        linux.fork(
            ThreadId(t),
            0,
            &CpuSet::default(),
            Some(CpuId(t % cpus)),
            Nanos(0),
        );
    }
    linux.advance(Nanos(2 * SECOND));
    linux.take_switches();
    linux
}

/// Simulates one second, event by event, as the engine drives it.
fn second(linux: &mut Linux, now: &mut u64) -> usize {
    let end = *now + SECOND;
    let mut switches = 0;
    while linux.next_event().0 <= end {
        let at = linux.next_event();
        linux.advance(at);
        switches += linux.take_switches().count();
    }
    linux.advance(Nanos(end));
    *now = end;
    switches
}

/// Threads that compute: (CPUs, threads).
#[divan::bench(args = [(16, 16), (16, 17), (16, 64), (16, 1024), (1024, 1024), (1024, 2048)])]
fn simulated_second(bencher: Bencher<'_, '_>, (cpus, threads): (u32, u32)) {
    let mut linux = busy(cpus, threads, FairClass::Eevdf);
    let mut now = 2 * SECOND;
    bencher.bench_local(|| second(&mut linux, &mut now));
}

#[divan::bench(args = [(16, 16), (16, 64)])]
fn simulated_second_cfs(bencher: Bencher<'_, '_>, (cpus, threads): (u32, u32)) {
    let mut linux = busy(cpus, threads, FairClass::Cfs);
    let mut now = 2 * SECOND;
    bencher.bench_local(|| second(&mut linux, &mut now));
}

/// A thread sleeps and wakes while others keep the given percentage of CPUs busy.
#[divan::bench(args = [(16, 50), (16, 200), (1024, 50), (1024, 99)])]
fn sleep_and_wake(bencher: Bencher<'_, '_>, (cpus, percent): (u32, u32)) {
    let threads = cpus * percent / 100;
    let mut linux = busy(cpus, threads, FairClass::Eevdf);
    let mut now = 2 * SECOND;
    let mut turn = 0;
    bencher.bench_local(|| {
        turn = (turn + 7) % threads;
        let t = ThreadId(turn);
        linux.block(t, Nanos(now + 20_000));
        let cpu = linux.wake(t, Some(CpuId(turn % cpus)), Nanos(now + 50_000));
        now += 50_000;
        linux.take_switches();
        cpu
    });
}

/// A fork and an exit on a half-busy machine.
#[divan::bench(args = [16, 1024])]
fn fork_and_exit(bencher: Bencher<'_, '_>, cpus: u32) {
    let mut linux = busy(cpus, cpus / 2, FairClass::Eevdf);
    let mut now = 2 * SECOND;
    bencher.bench_local(|| {
        now += 100_000;
        let t = ThreadId(cpus);
        let cpu = linux.fork(t, 0, &CpuSet::default(), Some(CpuId(0)), Nanos(now));
        linux.exit(t, Nanos(now + 50_000));
        linux.take_switches();
        cpu
    });
}
