//! Memory nodes: remote accesses, pages that follow their thread, and threads that return to their pages.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use std::sync::Arc;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::engine::{Engine, Watch};
use countersteer_model::machine::Machine;
use countersteer_model::placement::{Placement, Reason, Target, ThreadPlacement};
use countersteer_model::sample::Event;
use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, Nanos, ThreadId};
use countersteer_sim::engine::{Plan, PlannedProgram, SimConfig, Simulation};
use countersteer_sim::linux::kernel_config;
use countersteer_sim::progress::{ProgressConfig, synthetic};

/// Two nodes of four CPUs, each with a cache.
fn topology(remote: f64) -> Arc<Topology> {
    let mut text = String::from(
        "schema = \"countersteer.machine/1\"\nname = \"two\"\ntitle = \"two\"\nsource = \"made up\"\nlinux = \"symmetric\"\n
        [[core_type]]\nname = \"core\"\ndispatch_width = 4\nwindow = 128\nfreq_ghz = 3.0\ncapacity = 1024
        branch_penalty_cycles = 15\nl1d = { size_kib = 32, ways = 8, latency_cycles = 4 }
        l2 = { size_kib = 512, ways = 8, latency_cycles = 14 }
        power = { idle_w = 0.1, active_w = 1.0, instruction_nj = 0.3 }\n
        [[cores]]\ntype = \"core\"\ncpus = \"0-7\"\n",
    );
    for cpus in ["0-3", "4-7"] {
        text += &format!(
            "[[cache]]\nlevel = 3\ncpus = \"{cpus}\"\nsize_kib = 4096\nways = 16\nlatency_ns = 12\n
            [[memory]]\ncpus = \"{cpus}\"\nlatency_ns = 80\nbandwidth_gb_s = 40\nremote = {remote}\n"
        );
    }
    Arc::new(Topology::new(&Machine::parse("two.toml", &text).unwrap()))
}

/// Simulation of one thread that misses the caches, launched on the first node.
struct Case {
    sim: Simulation,
    cpu: CpuId,
}

impl Case {
    fn new(remote: f64, kernel: &str) -> Self {
        let profile =
            synthetic::profile("chase", &[(synthetic::chase(400_000), 1_000_000_000_000)]);
        let plan = Plan {
            programs: vec![PlannedProgram {
                name: "chase".into(),
                profile: Arc::new(profile),
                threads: 1,
                serial_share: 0.0,
                nice: 0,
                control: Default::default(),
                start: Nanos::ZERO,
                bursts: None,
                barriers: 1,
                chunk: None,
                launch_on: Some(Arc::new(CpuSet::from_iter([CpuId(0)]))),
                scale: 1.0,
            }],
            ..Plan::default()
        };
        let config = SimConfig {
            seed: 1,
            linux: kernel_config(kernel).unwrap(),
            progress: ProgressConfig::default(),
            counter_noise: 0.0,
            sample_cost: Nanos::ZERO,
            rounds: 1,
            trace: false,
            governor: None,
        };
        let sim = Simulation::new(topology(remote), &plan, config).unwrap();
        let sim = sim.counting_events(&[Event::Instructions, Event::Cycles]);
        Self { sim, cpu: CpuId(0) }
    }

    /// Advances to a time, and returns nanoseconds per instruction since the last call.
    fn until(&mut self, ms: u64) -> f64 {
        let watch = Watch {
            period: Nanos::from_millis(100),
            ..Watch::default()
        };
        let seen = self.sim.observe(&watch, Nanos::from_millis(ms)).unwrap();
        self.cpu = seen.threads[0].cpu;
        let (mut instructions, mut ran) = (0.0, 0.0);
        for sample in seen.samples.iter() {
            instructions += sample.counts.get(Event::Instructions).unwrap();
            ran += sample.running.0 as f64;
        }
        ran / instructions
    }

    fn place(&mut self, target: Target) {
        let reason = Reason::rule("a test");
        let threads = vec![ThreadPlacement::new(ThreadId(0), target, reason)];
        let placement = Placement {
            threads,
            ..Placement::default()
        };
        self.sim.apply(&placement).unwrap();
    }

    fn is_at_home(&self) -> bool {
        self.cpu.0 < 4
    }
}

/// Time per instruction at home, on the other node, and there after some seconds.
fn moved(remote: f64, kernel: &str) -> [f64; 3] {
    let mut case = Case::new(remote, kernel);
    case.until(500);
    let home = case.until(1_200);
    case.place(Target::Cpus(Arc::new(CpuSet::from_iter([CpuId(5)]))));
    case.until(1_400);
    let away = case.until(1_900);
    case.until(5_500);
    [home, away, case.until(6_000)]
}

#[test]
fn remote_accesses_cost_their_latency() {
    let off = "7.2:numa_balancing=off";
    let [home, near, _] = moved(1.4, off);
    let [same, far, later] = moved(1.8, off);
    assert!((home / same - 1.0).abs() < 1e-9);
    // The part of the time that waits for memory grows with its latency: twice the distance, twice the addition.
    let ratio = (far - home) / (near - home);
    assert!((ratio - 2.0).abs() < 0.02, "{ratio}");
    assert!(far / home > 1.4, "{}", far / home);
    assert!(
        (later / far - 1.0).abs() < 0.02,
        "pages stay: {later} {far}"
    );
    let [home, away, _] = moved(1.0, off);
    assert!((away / home - 1.0).abs() < 0.02);
}

#[test]
fn pages_follow_a_thread_that_must_stay() {
    let [home, away, later] = moved(1.8, "7.2");
    assert!(
        away / home > 1.4 && (later / home - 1.0).abs() < 0.02,
        "{home} {away} {later}"
    );
}

#[test]
fn a_thread_returns_to_its_pages_if_a_cpu_is_idle_there() {
    for (kernel, returns) in [("7.2", true), ("7.2:numa_balancing=off", false)] {
        let mut case = Case::new(1.8, kernel);
        case.until(1_200);
        case.place(Target::Cpus(Arc::new(CpuSet::from_iter([CpuId(5)]))));
        case.until(1_300);
        assert!(!case.is_at_home());
        case.place(Target::Anywhere);
        case.until(3_500);
        assert_eq!(case.is_at_home(), returns, "{kernel}");
    }
}
