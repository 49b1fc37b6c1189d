//! Tests of the model against known behaviour of Linux.

mod balance;
mod fair;
mod gather;
mod groups;
mod hotplug;
mod invariants;
mod placement;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::machine::Machine;
use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, Nanos, ThreadId};

use super::entity::NONE;
use super::*;

/// Topology of a machine file of this repository.
pub(super) fn machine(name: &str) -> Topology {
    let path = format!("{}/../../machines/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    Topology::new(&Machine::parse(&path, &std::fs::read_to_string(&path).unwrap()).unwrap())
}

/// Topology of `llcs` last-level caches with `cores` equal cores each, in `nodes` nodes.
pub(super) fn symmetric(cores: u32, llcs: u32, nodes: u32, smt: u32) -> Topology {
    let mut text = format!(
        "schema = \"countersteer.machine/1\"\nname = \"made-up\"\ntitle = \"made up\"\nsource = \"made up\"\nlinux = \"symmetric\"\n
        [[core_type]]\nname = \"core\"\ndispatch_width = 4\nwindow = 128\nsmt = {smt}\nfreq_ghz = 3.0\ncapacity = 1024
        branch_penalty_cycles = 15\nl1d = {{ size_kib = 32, ways = 8, latency_cycles = 4 }}
        l2 = {{ size_kib = 512, ways = 8, latency_cycles = 14 }}
        power = {{ idle_w = 0.1, active_w = 1.0, instruction_nj = 0.3 }}\n
        [[cores]]\ntype = \"core\"\ncpus = \"0-{}\"\n",
        cores * llcs * smt - 1
    );
    let per_llc = cores * smt;
    for llc in 0..llcs {
        let low = llc * per_llc;
        let high = (llc + 1) * per_llc - 1;
        text += &format!(
            "[[cache]]\nlevel = 3\ncpus = \"{low}-{high}\"\nsize_kib = 8192\nways = 16\nlatency_ns = 12\n"
        );
    }
    let per_node = per_llc * llcs / nodes;
    for node in 0..nodes {
        let low = node * per_node;
        let high = (node + 1) * per_node - 1;
        text +=
            &format!("[[memory]]\ncpus = \"{low}-{high}\"\nlatency_ns = 80\nbandwidth_gb_s = 40\n");
    }
    Topology::new(&Machine::parse("made-up.toml", &text).unwrap())
}

pub(super) fn seeded(seed: u64) -> LinuxConfig {
    LinuxConfig {
        seed,
        ..LinuxConfig::default()
    }
}

pub(super) fn all() -> CpuSet {
    CpuSet::default()
}

pub(super) fn only(list: &str) -> CpuSet {
    list.parse().unwrap()
}

pub(super) const MS: u64 = 1_000_000;

pub(super) fn ms(n: u64) -> Nanos {
    Nanos(n * MS)
}

/// Model with `count` CPU-bound threads, which CPU 0 forks at intervals of a millisecond.
pub(super) fn busy(topology: &Topology, count: u32, config: LinuxConfig) -> Linux {
    let mut linux = Linux::new(topology, config);
    for t in 0..count {
        linux.fork(ThreadId(t), 0, &all(), Some(CpuId(0)), ms(u64::from(t)));
    }
    linux
}

/// Running times of threads `0 .. count` from now to `until`, in milliseconds.
pub(super) fn shares(linux: &mut Linux, count: u32, until: Nanos) -> Vec<f64> {
    let before: Vec<u64> = (0..count).map(|t| linux.run_time(ThreadId(t)).0).collect();
    linux.advance(until);
    (0..count)
        .map(|t| (linux.run_time(ThreadId(t)).0 - before[t as usize]) as f64 / MS as f64)
        .collect()
}

/// Checks that every runnable thread is on exactly one queue and on an allowed CPU, and that no CPU with a queue idles. The
/// counters of the domain tree must agree with the queues.
pub(super) fn check(linux: &Linux) {
    let mut seen = vec![0; linux.threads.len()];
    for (cpu, rq) in linux.rqs.iter().enumerate() {
        let on_queue = rq
            .waiting
            .iter()
            .map(|w| w.thread)
            .chain((rq.curr != NONE).then_some(rq.curr));
        for t in on_queue {
            let thread = &linux.threads[t as usize];
            seen[t as usize] += 1;
            assert_eq!(thread.cpu as usize, cpu);
            assert!(
                thread.state == TaskState::Delayed || thread.allowed.has(cpu),
                "thread {t} on forbidden cpu{cpu}"
            );
        }
        let runnable = rq
            .waiting
            .iter()
            .filter(|w| linux.threads[w.thread as usize].state == TaskState::Queued)
            .count()
            + usize::from(rq.curr != NONE);
        assert_eq!(rq.runnable as usize, runnable);
        assert_eq!(rq.idle, rq.curr == NONE, "cpu{cpu}");
        assert!(
            rq.curr != NONE || rq.waiting.is_empty(),
            "cpu{cpu} idles beside a queue"
        );
        assert_eq!(rq.shown, rq.curr);
        let online = !linux.offline.has(cpu);
        assert_eq!(linux.idle.has(cpu), rq.idle && online);
        assert!(online || rq.idle, "cpu{cpu} runs a thread offline");
        let weight: i64 = rq.waiting.iter().map(|w| i64::from(w.weight)).sum();
        assert_eq!(rq.weight, weight);
        let sum: i64 = rq
            .waiting
            .iter()
            .map(|w| i64::from(w.weight) * (w.vruntime - rq.zero))
            .sum();
        assert_eq!(rq.weighted_vruntime, sum);
        assert!(
            rq.waiting
                .iter()
                .zip(rq.waiting.iter().skip(1))
                .all(|(a, b)| a.key <= b.key)
        );
    }
    for (t, thread) in linux.threads.iter().enumerate() {
        assert_eq!(
            seen[t],
            usize::from(thread.on_queue()),
            "thread {t} {:?}",
            thread.state
        );
    }
    for node in &linux.domains.nodes {
        let sum = |f: &dyn Fn(&RunQueue) -> u32| {
            node.cpus
                .iter()
                .map(|c| f(&linux.rqs[*c as usize]))
                .sum::<u32>()
        };
        assert_eq!(node.runnable, sum(&|rq| rq.runnable));
        assert_eq!(node.idle_cpus, sum(&|rq| u32::from(rq.idle)));
        assert_eq!(node.overloaded, sum(&|rq| u32::from(rq.runnable > 1)));
    }
    if linux.gather.active {
        let misplaced = |t: &&TaskEntity| {
            let here = &linux.domains.node(linux.domains.llc[t.cpu as usize]).mask;
            let preferred = linux.gather.row_of(t.preferred_llc);
            t.on_queue()
                && preferred.is_some_and(|llc| !here.has(linux.domains.node(llc).cpus[0] as usize))
        };
        let count = linux.threads.iter().filter(misplaced).count();
        assert_eq!(linux.gather.misplaced as usize, count);
    }
    assert_eq!(
        linux.misfits as usize,
        linux.rqs.iter().filter(|rq| rq.misfit_load > 0.0).count()
    );
}
