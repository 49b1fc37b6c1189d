//! Expectations of public tests of cache-aware scheduling (intel/lkvs, `BM/scheduler`), restated for the model. Also, processes on
//! a desktop with two unequal caches.
//!
//! The public tests run a process of CPU-bound threads, as many as 70 % of the CPUs of a cache. They look once a second under
//! which caches its threads run.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use std::path::Path;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::machine::Machine;
use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, Nanos, ThreadId};
use countersteer_sim::linux::{Linux, LinuxConfig, kernel_config};

/// CPUs of each of the two caches, and threads of a process.
const CPUS: u32 = 16;
const THREADS: u32 = CPUS * 7 / 10;
const SEEDS: std::ops::RangeInclusive<u64> = 1..=4;

fn two_caches() -> Topology {
    let mut text = String::from(
        "schema = \"countersteer.machine/1\"\nname = \"two\"\ntitle = \"two\"\nsource = \"made up\"\nlinux = \"symmetric\"\n
        [[core_type]]\nname = \"core\"\ndispatch_width = 4\nwindow = 128\nsmt = 1\nfreq_ghz = 3.0\ncapacity = 1024
        branch_penalty_cycles = 15\nl1d = { size_kib = 32, ways = 8, latency_cycles = 4 }
        l2 = { size_kib = 512, ways = 8, latency_cycles = 14 }
        power = { idle_w = 0.1, active_w = 1.0, instruction_nj = 0.3 }\n
        [[cores]]\ntype = \"core\"\ncpus = \"0-31\"\n
        [[memory]]\ncpus = \"0-31\"\nlatency_ns = 80\nbandwidth_gb_s = 40\n",
    );
    for cpus in ["0-15", "16-31"] {
        text += &format!(
            "[[cache]]\nlevel = 3\ncpus = \"{cpus}\"\nsize_kib = 16384\nways = 16\nlatency_ns = 12\n"
        );
    }
    Topology::new(&Machine::parse("two.toml", &text).unwrap())
}

/// A machine with processes of CPU-bound threads.
struct Case {
    topology: Topology,
    linux: Linux,
    now_ms: u64,
    threads: u32,
}

impl Case {
    fn new(topology: Topology, llc_balancing: &str, seed: u64) -> Self {
        let config = LinuxConfig {
            seed,
            ..kernel_config(&format!("7.2:llc_balancing={llc_balancing}")).unwrap()
        };
        let linux = Linux::new(&topology, config);
        Self {
            topology,
            linux,
            now_ms: 0,
            threads: 0,
        }
    }

    fn now(&self) -> Nanos {
        Nanos::from_millis(self.now_ms)
    }

    /// CPUs of a cache: 0 or 1.
    fn cpus(&self, cache: usize) -> CpuSet {
        let llcs: Vec<_> = self
            .topology
            .caches
            .iter()
            .filter(|c| c.level == 3)
            .collect();
        llcs[cache].cpus.clone()
    }

    /// Starts a process whose threads may run under the caches in turn, and returns its threads.
    fn process(&mut self, number: u32, threads: u32, caches: &[usize]) -> Vec<ThreadId> {
        let ids: Vec<ThreadId> = (self.threads..self.threads + threads)
            .map(ThreadId)
            .collect();
        self.threads += threads;
        for (nth, id) in ids.iter().enumerate() {
            let cpus = self.cpus(caches[nth % caches.len()]);
            let parent = cpus.lowest();
            let now = self.now();
            self.linux.fork_in(Some(number), *id, 0, &cpus, parent, now);
        }
        ids
    }

    /// Starts a process. After 200 ms, its threads are confined to the two caches in turn; after another 50 ms, they may run
    /// anywhere.
    fn scattered(&mut self, number: u32, threads: u32) -> Vec<ThreadId> {
        let ids: Vec<ThreadId> = (self.threads..self.threads + threads)
            .map(ThreadId)
            .collect();
        self.threads += threads;
        let all = CpuSet::default();
        for id in &ids {
            let now = self.now();
            self.linux
                .fork_in(Some(number), *id, 0, &all, Some(CpuId(0)), now);
        }
        self.advance(200);
        for (nth, id) in ids.iter().enumerate() {
            self.confine(&[*id], nth % 2);
        }
        self.advance(50);
        self.release(&ids);
        ids
    }

    fn advance(&mut self, ms: u64) {
        self.now_ms += ms;
        self.linux.advance(self.now());
    }

    fn release(&mut self, ids: &[ThreadId]) {
        for id in ids {
            self.linux.set_affinity(*id, &CpuSet::default(), self.now());
        }
    }

    fn confine(&mut self, ids: &[ThreadId], cache: usize) {
        for id in ids {
            let cpus = self.cpus(cache);
            self.linux.set_affinity(*id, &cpus, self.now());
        }
    }

    fn cache_of(&self, cpu: CpuId) -> usize {
        usize::from(!self.cpus(0).contains(cpu))
    }

    /// Number of running threads under each cache, a second later.
    fn sample(&mut self, ids: &[ThreadId]) -> [usize; 2] {
        self.advance(1_000);
        self.counts(ids)
    }

    fn counts(&self, ids: &[ThreadId]) -> [usize; 2] {
        let mut counts = [0; 2];
        for id in ids {
            counts[self.cache_of(self.linux.cpu_of(*id))] += 1;
        }
        counts
    }

    /// Cache under which all threads were in two samples in a row; `None` if this did not happen in time.
    fn converges(&mut self, ids: &[ThreadId], seconds: u32) -> Option<usize> {
        let mut last = None;
        for _ in 0..seconds {
            let now = one_cache(self.sample(ids));
            if now.is_some() && now == last {
                return now;
            }
            last = now;
        }
        None
    }
}

/// Cache under which all threads are; `None` if both caches have some.
fn one_cache(counts: [usize; 2]) -> Option<usize> {
    match counts {
        [0, 0] => None,
        [_, 0] => Some(0),
        [0, _] => Some(1),
        _ => None,
    }
}

#[test]
fn a_scattered_process_converges_and_does_not_without_the_feature() {
    for seed in SEEDS {
        let mut on = Case::new(two_caches(), "on", seed);
        let ids = on.scattered(0, THREADS);
        assert!(on.converges(&ids, 60).is_some(), "seed {seed}");
        let mut off = Case::new(two_caches(), "off", seed);
        let ids = off.scattered(0, THREADS);
        for _ in 0..60 {
            assert_eq!(one_cache(off.sample(&ids)), None, "seed {seed}");
        }
    }
}

#[test]
fn a_process_leaves_a_saturated_cache_for_another() {
    for seed in SEEDS {
        let mut case = Case::new(two_caches(), "on", seed);
        let ids = case.scattered(0, THREADS);
        let cache = case.converges(&ids, 60).unwrap();
        for number in 1..=CPUS {
            case.process(number, 1, &[cache]);
        }
        let mut elsewhere = 0;
        for _ in 0..20 {
            let now = one_cache(case.sample(&ids));
            elsewhere = if now == Some(1 - cache) {
                elsewhere + 1
            } else {
                0
            };
            if elsewhere == 2 {
                break;
            }
        }
        assert_eq!(elsewhere, 2, "seed {seed}: {:?}", case.counts(&ids));
    }
}

#[test]
fn two_processes_settle_under_a_cache_each() {
    for seed in SEEDS {
        let mut case = Case::new(two_caches(), "on", seed);
        let first = case.scattered(0, THREADS);
        case.converges(&first, 60).unwrap();
        let second = case.scattered(1, THREADS);
        let mut apart = 0;
        for _ in 0..60 {
            let of_first = one_cache(case.sample(&first));
            let of_second = one_cache(case.counts(&second));
            let settled = of_first.is_some() && of_second.is_some() && of_first != of_second;
            apart = if settled { apart + 1 } else { 0 };
            if apart == 2 {
                break;
            }
        }
        assert_eq!(apart, 2, "seed {seed}");
    }
}

#[test]
fn the_preferred_cache_changes_only_for_twice_the_running_time() {
    let majority = (THREADS * 3 / 4) as usize;
    let minority = THREADS as usize - majority;
    for seed in SEEDS {
        let mut case = Case::new(two_caches(), "on", seed);
        let ids = case.scattered(0, THREADS);
        let cache = case.converges(&ids, 20).unwrap();
        case.confine(&ids[..minority], 1 - cache);
        for _ in 0..20 {
            let counts = case.sample(&ids);
            assert!(counts[cache] > counts[1 - cache], "seed {seed}: {counts:?}");
        }
        let mut case = Case::new(two_caches(), "on", seed);
        let ids = case.scattered(0, THREADS);
        let cache = case.converges(&ids, 20).unwrap();
        case.confine(&ids[..majority], 1 - cache);
        let followed = case.converges(&ids[majority..], 20);
        assert_eq!(followed, Some(1 - cache), "seed {seed}");
    }
}

#[test]
fn idle_cpus_of_other_caches_do_not_take_threads_of_a_gathered_process() {
    for seed in SEEDS {
        let mut on = Case::new(two_caches(), "on", seed);
        let ids = on.process(0, THREADS, &[0]);
        on.release(&ids);
        for _ in 0..20 {
            assert_eq!(one_cache(on.sample(&ids)), Some(0), "seed {seed}");
        }
        let mut off = Case::new(two_caches(), "off", seed);
        let ids = off.process(0, THREADS, &[0]);
        off.release(&ids);
        let spread = (0..20).filter(|_| one_cache(off.sample(&ids)).is_none());
        assert!(spread.count() > 0, "seed {seed}");
    }
}

#[test]
fn migrations_of_a_gathered_process_lead_to_its_cache() {
    for seed in SEEDS {
        let mut case = Case::new(two_caches(), "on", seed);
        let ids = case.scattered(0, THREADS);
        let cache = case.converges(&ids, 60).unwrap();
        // Something must move: a thread is taken away every second.
        case.linux.take_switches();
        let (mut there, mut all) = (0, 0);
        for second in 0..10 {
            let taken = [ids[second % ids.len()]];
            case.confine(&taken, 1 - cache);
            case.release(&taken);
            let mut at: Vec<CpuId> = ids.iter().map(|id| case.linux.cpu_of(*id)).collect();
            case.linux.take_switches();
            case.sample(&ids);
            let switches: Vec<_> = case.linux.take_switches().collect();
            for switch in switches {
                let moved = switch
                    .next
                    .filter(|id| at.get(id.index()) != Some(&switch.cpu));
                if let Some(id) = moved {
                    at[id.index()] = switch.cpu;
                    all += 1;
                    there += u32::from(case.cache_of(switch.cpu) == cache);
                }
            }
        }
        assert!(
            all >= 10 && 10 * there >= 9 * all,
            "seed {seed}: {there} of {all}"
        );
    }
}

/// Shares of their time that the threads of two processes spend under the cache that each process uses most, over three seconds.
fn gathered_on_x3d(linux: &str, threads: u32, seed: u64) -> [f64; 2] {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/ryzen-7950x3d.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let text = text.replace("smt-hybrid", linux);
    let topology = Topology::new(&Machine::parse("ryzen-7950x3d", &text).unwrap());
    let mut case = Case::new(topology, "on", seed);
    let processes = [case.scattered(0, threads), case.scattered(1, threads)];
    case.sample(&[]);
    let mut counts = [[0; 2]; 2];
    for _ in 0..300 {
        case.advance(10);
        for (of, ids) in counts.iter_mut().zip(&processes) {
            let now = case.counts(ids);
            of[0] += now[0];
            of[1] += now[1];
        }
    }
    counts.map(|[a, b]| a.max(b) as f64 / (a + b) as f64)
}

#[test]
fn two_processes_on_a_desktop_get_a_die_each_only_if_the_kernel_does_not_rank_the_dies() {
    let least = |linux: &str| {
        let of = |seed| gathered_on_x3d(linux, 8, seed);
        let least = SEEDS.map(|seed| of(seed)[0].min(of(seed)[1]));
        least.sum::<f64>() / SEEDS.count() as f64
    };
    let (equal, ranked) = (least("symmetric"), least("smt-hybrid"));
    // With ranks, both processes start on the faster die, and idle cores of that die take threads of the other
    // (`sched_group_asym`). Eight threads are too many to be gathered (`invalid_llc_nr`).
    assert!(equal > 0.85 && ranked < 0.6, "{equal} {ranked}");
}
