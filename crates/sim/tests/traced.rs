//! Tests of the traced model: actual misses equal those expected from profiles, threads interact at shared caches, and equal
//! calls give equal results.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use std::path::Path;
use std::sync::Arc;

use countersteer_cache::source::{Block, EventStream, ProgramCopy, TraceSource};
use countersteer_cache::tracer::ThreadTracer;
use countersteer_model::driver::{DriverConfig, Recorder, drive};
use countersteer_model::engine::{Applied, Observation};
use countersteer_model::events::Event;
use countersteer_model::machine::Machine;
use countersteer_model::metric::MetricBank;
use countersteer_model::placement::Placement;
use countersteer_model::policy::PolicyRng;
use countersteer_model::profile::Profile;
use countersteer_model::sample::SampleRow;
use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, Nanos, ThreadId};
use countersteer_sim::engine::{
    Plan, PlannedProgram, ProgramUsage, SimConfig, SimError, Simulation,
};
use countersteer_sim::linux::LinuxConfig;
use countersteer_sim::progress::{
    Analytic, ProgressConfig, ProgressModel, Traced, Traces, synthetic,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Number of instructions of a run.
const LENGTH: u64 = 4_000_000;

/// Blocks of each thread in memory.
#[derive(Clone)]
struct Recorded(Arc<Vec<Vec<Block>>>);

impl TraceSource for Recorded {
    fn copy(&self) -> Arc<dyn ProgramCopy> {
        Arc::new(self.clone())
    }
}

impl ProgramCopy for Recorded {
    fn stream(&self, thread: u32) -> Box<dyn EventStream> {
        let thread = thread as usize % self.0.len();
        let blocks = Arc::clone(&self.0);
        Box::new(Reading {
            blocks,
            thread,
            next: 0,
        })
    }
}

struct Reading {
    blocks: Arc<Vec<Vec<Block>>>,
    thread: usize,
    next: usize,
}

impl EventStream for Reading {
    fn next_block(&mut self) -> Block {
        let blocks = &self.blocks[self.thread];
        self.next += 1;
        blocks[(self.next - 1) % blocks.len()].clone()
    }

    fn begin(&mut self, _: f64, _: u32) -> bool {
        false
    }
}

/// A load or a store of a random line every fourth instruction.
fn random(lines: u64, stores: bool, threads: u32) -> Recorded {
    let thread = |thread: u32| {
        let mut rng = Pcg64::seed_from_u64(u64::from(thread));
        let mut tracer = ThreadTracer::new(thread, 1, 0);
        let mut blocks = Vec::new();
        for n in 0..LENGTH / 4 / u64::from(threads) {
            tracer.instructions(4);
            let line = rng.random_range(0..lines);
            tracer.data(line, line, stores);
            if tracer.is_complete() {
                let words = |head, words: &[u32]| {
                    blocks.push(Block {
                        head,
                        words: words.into(),
                    })
                };
                tracer.hand_on(0, n * 4, words);
            }
        }
        blocks
    };
    Recorded(Arc::new((1..=threads).map(thread).collect()))
}

/// Profile of such a program, and its trace.
fn program(name: &str, lines: u64) -> (Arc<Profile>, Arc<dyn TraceSource>) {
    let kind = synthetic::SyntheticKind {
        spread: vec![(lines, 250.0)],
        cyclic: Vec::new(),
        cold_pki: 0.0,
        branch_mpki: 0.0,
        ..synthetic::chase(lines)
    };
    let profile = synthetic::profile(name, &[(kind, LENGTH)]);
    (Arc::new(profile), Arc::new(random(lines, false, 1)))
}

fn topology(name: &str) -> Arc<Topology> {
    let text = machine(name);
    Arc::new(Topology::new(&Machine::parse(name, &text).unwrap()))
}

fn machine(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../machines/{name}.toml"));
    std::fs::read_to_string(path).unwrap()
}

fn config() -> SimConfig {
    SimConfig {
        seed: 1,
        linux: LinuxConfig::default(),
        progress: ProgressConfig::default(),
        counter_noise: 0.0,
        sample_cost: Nanos::ZERO,
        rounds: 3,
        trace: false,
        governor: None,
    }
}

fn plan(programs: &[(Arc<Profile>, u32, &str)]) -> Plan {
    let planned = programs
        .iter()
        .enumerate()
        .map(|(n, (profile, threads, cpus))| PlannedProgram {
            name: format!("p{n}").into(),
            profile: Arc::clone(profile),
            threads: *threads,
            serial_share: 0.0,
            control: Default::default(),
            nice: 0,
            start: Nanos::ZERO,
            bursts: None,
            barriers: 1,
            chunk: None,
            launch_on: Some(Arc::new(cpus.parse().unwrap())),
            scale: 1.0,
        });
    Plan {
        programs: planned.collect(),
        ..Plan::default()
    }
}

fn run(simulation: Simulation, topology: &Arc<Topology>) -> Vec<ProgramUsage> {
    finished(simulation, topology).usage()
}

fn finished(simulation: Simulation, topology: &Arc<Topology>) -> Simulation {
    watched(simulation, topology, Nanos::from_millis(100), &mut [])
}

fn watched(
    mut simulation: Simulation,
    topology: &Arc<Topology>,
    period: Nanos,
    recorders: &mut [&mut dyn Recorder],
) -> Simulation {
    let mut policy = countersteer_policies::parse("linux", topology).unwrap();
    let until = Nanos::NEVER;
    let driver = DriverConfig { period, until };
    let mut rng = PolicyRng::seed_from_u64(1);
    drive(
        &mut simulation,
        policy.as_mut(),
        recorders,
        driver,
        &mut rng,
    )
    .unwrap();
    simulation
}

/// Evictions that programs suffered and caused, from all samples.
#[derive(Default)]
struct Seen([[f64; 2]; 4]);

impl Recorder for Seen {
    fn observation(&mut self, _: &Topology, observation: &Observation, _: &MetricBank) {
        for (thread, sample) in observation.samples.of_threads() {
            let row = &mut self.0[thread.index()];
            row[0] += sample.counts.get(Event::EvictionsSuffered).unwrap();
            row[1] += sample.counts.get(Event::EvictionsCaused).unwrap();
        }
    }

    fn decision(&mut self, _: &Topology, _: Nanos, _: &Placement, _: Applied) {}
}

#[test]
fn who_evicts_whom_is_counted_by_program_and_sampled() {
    // Two chips with a cache each, and two programs on each that do not fit together.
    let topology = topology("core2-quad");
    let (profile, trace) = program("large", 50_000);
    let cpus = ["0", "1", "2", "3"];
    let plan = plan(&cpus.map(|cpu| (profile.clone(), 1, cpu)));
    let events = [Event::EvictionsSuffered, Event::EvictionsCaused];
    let traces = Traces(vec![(profile, trace)]);
    let config = SimConfig {
        rounds: 1,
        ..config()
    };
    let simulation = Simulation::traced(Arc::clone(&topology), &plan, config, traces);
    let simulation = simulation.unwrap().counting_events(&events);
    let mut seen = Seen::default();
    let mut simulation = watched(
        simulation,
        &topology,
        Nanos::from_millis(1),
        &mut [&mut seen],
    );
    let evicted = simulation.outcome().evicted;
    let near = |row: usize, by: usize| evicted[row][by];
    for (row, neighbour) in [(0, 1), (1, 0), (2, 3), (3, 2)] {
        assert!(near(row, neighbour) > 1000, "{evicted:?}");
        let far: u64 = (0..4)
            .filter(|by| by / 2 != row / 2)
            .map(|by| near(row, by))
            .sum();
        assert_eq!(far, 0, "{evicted:?}");
        let exact = [near(row, neighbour), near(neighbour, row)];
        for (sampled, exact) in seen.0[row].iter().zip(exact) {
            // Events after the last sample are missing.
            let exact = exact as f64;
            assert!(
                *sampled <= exact && *sampled > 0.8 * exact,
                "{sampled} of {exact}"
            );
        }
    }
}

fn ips(usage: &ProgramUsage) -> f64 {
    usage.instructions / usage.cpu_s.iter().sum::<f64>()
}

fn mpki(usage: &ProgramUsage) -> f64 {
    usage.llc_misses / usage.instructions * 1000.0
}

#[test]
fn alone_and_in_pairs_both_models_agree_where_profiles_say_all() {
    let topology = topology("core2-quad");
    let (small, large) = (program("small", 24_000), program("large", 90_000));
    let traces = Traces(vec![small.clone(), large.clone()]);
    let sets = [
        vec![(small.0.clone(), 1, "0")],
        vec![(large.0.clone(), 1, "0")],
        vec![(small.0.clone(), 1, "0"), (large.0.clone(), 1, "1")],
    ];
    for programs in sets {
        let plan = plan(&programs);
        let analytic = Simulation::new(Arc::clone(&topology), &plan, config()).unwrap();
        let traced = Simulation::traced(Arc::clone(&topology), &plan, config(), traces.clone());
        let (analytic, traced) = (run(analytic, &topology), run(traced.unwrap(), &topology));
        for (a, t) in analytic.iter().zip(&traced) {
            let (speed, misses) = (ips(t) / ips(a), (mpki(t), mpki(a)));
            assert!(
                (speed - 1.0).abs() < 0.15,
                "speed {speed}, misses {misses:?}"
            );
        }
    }
}

/// Instructions, misses and bytes held at each sample of two programs while both ran and the cache was warm.
#[derive(Default)]
struct Together([[f64; 3]; 2], [f64; 2]);

impl Recorder for Together {
    fn observation(&mut self, _: &Topology, observation: &Observation, _: &MetricBank) {
        if observation.at < Nanos::from_millis(10) || observation.threads.len() < 2 {
            return;
        }
        for thread in observation.threads.iter() {
            let program = usize::from(&*thread.name == "p1");
            let of_thread = |sample: &SampleRow<'_>| sample.thread() == Some(thread.id);
            for sample in observation.samples.iter().filter(of_thread) {
                let events = [
                    Event::Instructions,
                    Event::LlcMisses,
                    Event::LlcOccupancyBytes,
                ];
                for (sum, event) in self.0[program].iter_mut().zip(events) {
                    *sum += sample.counts.get(event).unwrap();
                }
                self.1[program] += 1.0;
            }
        }
    }

    fn decision(&mut self, _: &Topology, _: Nanos, _: &Placement, _: Applied) {}
}

#[test]
fn footprint_composition_tells_what_sharers_of_a_cache_hold_and_miss() {
    let programs = [program("small", 9000), program("large", 30_000)];
    for kib in [512.0, 1024.0] {
        // One cache, so that the kernel cannot move one of them to the other.
        let mut machine = Machine::parse("shared", &machine("core2-quad")).unwrap();
        machine.cache.truncate(1);
        machine.cache[0].cpus = "0-3".parse().unwrap();
        machine.cache[0].size_kib = kib;
        let topology = Arc::new(Topology::new(&machine));
        let mut model = Analytic::new(Arc::clone(&topology), ProgressConfig::default());
        let row = |(n, (profile, _)): (u32, &(Arc<Profile>, _))| {
            let id = model.add_program(Arc::clone(profile)).unwrap();
            (id, CpuId(n), 1.0)
        };
        let rows: Vec<_> = (0..).zip(&programs).map(row).collect();
        let predicted = model.steady_state(&rows);
        let config = SimConfig {
            rounds: 3,
            ..config()
        };
        let cpus = [
            (programs[0].0.clone(), 1, "0"),
            (programs[1].0.clone(), 1, "1"),
        ];
        let traces = Traces(programs.to_vec());
        let traced = Simulation::traced(Arc::clone(&topology), &plan(&cpus), config, traces);
        let traced = traced.unwrap().counting_events(&[
            Event::Instructions,
            Event::LlcMisses,
            Event::LlcOccupancyBytes,
        ]);
        let mut seen = Together::default();
        watched(traced, &topology, Nanos::from_millis(1), &mut [&mut seen]);
        for (row, p) in predicted.iter().enumerate() {
            let [instructions, misses, bytes] = seen.0[row];
            let parts = [p.llc_lines / 16.0, bytes / seen.1[row] / 1024.0].map(|part| part / kib);
            let misses = [p.llc_mpki, misses / instructions * 1000.0];
            assert!((parts[0] - parts[1]).abs() < 0.03, "{parts:?} of {kib} KiB");
            assert!((misses[0] - misses[1]).abs() < 5.5, "{misses:?} of 250");
        }
    }
}

#[test]
fn the_same_run_is_the_same_and_a_program_without_a_trace_is_an_error() {
    let topology = topology("core2-quad");
    let (small, other) = (program("small", 9000), program("other", 9001));
    let traces = Traces(vec![small.clone()]);
    let plan_of =
        |profile: &Arc<Profile>| plan(&[(profile.clone(), 1, "0"), (small.0.clone(), 1, "1")]);
    let traced = |profile| {
        Simulation::traced(
            Arc::clone(&topology),
            &plan_of(profile),
            config(),
            traces.clone(),
        )
    };
    let once = run(traced(&small.0).unwrap(), &topology);
    assert_eq!(once, run(traced(&small.0).unwrap(), &topology));
    assert!(matches!(traced(&other.0), Err(SimError::Model(_))));
}

#[test]
fn threads_that_write_the_same_lines_take_them_from_each_other() {
    let topology = topology("core2-quad");
    let kind = synthetic::SyntheticKind {
        spread: vec![(64, 250.0)],
        ..synthetic::compute()
    };
    let profile = Arc::new(synthetic::profile("writers", &[(kind, LENGTH)]));
    let misses = |threads: u32, cpus: &str| {
        let source: Arc<dyn TraceSource> = Arc::new(random(64, true, threads));
        let traces = Traces(vec![(profile.clone(), source)]);
        let plan = plan(&[(profile.clone(), threads, cpus)]);
        let simulation =
            Simulation::traced(Arc::clone(&topology), &plan, config(), traces).unwrap();
        mpki(&run(simulation, &topology)[0])
    };
    assert!(misses(1, "0") < 0.05);
    // On two chips, each with its own last-level cache.
    let shared = misses(2, "0,2");
    assert!(shared > 0.15, "{shared}");
}

#[test]
fn a_line_that_another_core_keeps_writing_is_missed_again() {
    let topology = topology("core2-quad");
    let kind = synthetic::SyntheticKind {
        spread: vec![(64, 250.0)],
        ..synthetic::compute()
    };
    let profile = Arc::new(synthetic::profile("pair", &[(kind, LENGTH)]));
    let [writes, reads] = [true, false].map(|stores| random(64, stores, 2).0);
    let both = Recorded(Arc::new(vec![writes[0].clone(), reads[1].clone()]));
    let traces = Traces(vec![(profile.clone(), Arc::new(both) as _)]);
    let plan = plan(&[(profile.clone(), 2, "0,2")]);
    let traced = Simulation::traced(Arc::clone(&topology), &plan, config(), traces);
    let misses = mpki(&run(traced.unwrap(), &topology)[0]);
    assert!(misses > 0.08, "{misses}");
}

#[test]
fn forked_processes_do_not_share_their_lines() {
    let text = machine("core2-quad").replace("size_kib = 4096", "size_kib = 512");
    let topology = Arc::new(Topology::new(&Machine::parse("small", &text).unwrap()));
    let (profile, _) = program("two", 5000);
    let threads = random(5000, false, 2);
    let mut processes: Vec<Vec<Block>> = (*threads.0).clone();
    for block in processes.iter_mut().flatten() {
        block.head.pid = block.head.thread;
    }
    let misses = |source: Recorded| {
        let traces = Traces(vec![(profile.clone(), Arc::new(source) as _)]);
        let plan = plan(&[(profile.clone(), 2, "0,1")]);
        let simulation =
            Simulation::traced(Arc::clone(&topology), &plan, config(), traces).unwrap();
        mpki(&run(simulation, &topology)[0])
    };
    let (together, apart) = (misses(threads), misses(Recorded(Arc::new(processes))));
    assert!(apart > 5.0 * together, "{apart} and {together}");
}

#[test]
fn a_core_draws_its_power_once_however_many_siblings_owe_time() {
    let topology = topology("i9-12900k");
    let (profile, trace) = program("small", 1000);
    let energy_j = |threads: u32| {
        let traces = Traces(vec![(profile.clone(), Arc::clone(&trace))]);
        let mut model = Traced::new(Arc::clone(&topology), ProgressConfig::default(), traces);
        let id = model.add_program(Arc::clone(&profile)).unwrap();
        model.begin_program();
        for n in 0..threads {
            model.add_thread(ThreadId(n), id);
            model.set_work(ThreadId(n), 0.0, 1e9, 1.0, Nanos::ZERO);
            model.set_running(CpuId(n), Some(ThreadId(n)), Nanos::ZERO);
        }
        let start = Nanos::from_millis(1);
        for n in 0..threads {
            model.charge(ThreadId(n), Nanos::from_millis(10), start);
        }
        let before = model.energy_j(start);
        model.energy_j(Nanos::from_millis(6)) - before
    };
    let (one, both) = (energy_j(1), energy_j(2));
    assert!((both / one - 1.0).abs() < 1e-6, "{one} and {both} J");
}

/// Evictions that all programs suffered, by observation.
#[derive(Default)]
struct ByPeriod(Vec<f64>);

impl Recorder for ByPeriod {
    fn observation(&mut self, _: &Topology, observation: &Observation, _: &MetricBank) {
        let samples = observation.samples.iter();
        let suffered = samples.filter_map(|s| s.counts.get(Event::EvictionsSuffered));
        self.0.push(suffered.sum());
    }

    fn decision(&mut self, _: &Topology, _: Nanos, _: &Placement, _: Applied) {}
}

#[test]
fn evictions_go_on_while_time_is_left_out() {
    let mut machine = Machine::parse("shared", &machine("core2-quad")).unwrap();
    machine.cache.truncate(1);
    machine.cache[0].cpus = "0-3".parse().unwrap();
    machine.cache[0].size_kib = 512.0;
    let topology = Arc::new(Topology::new(&machine));
    let programs = [program("small", 9000), program("large", 30_000)];
    let traces = Traces(programs.to_vec());
    let [small, large] = programs.map(|(profile, _)| profile);
    let plan = plan(&[(small, 1, "0"), (large, 1, "1")]);
    let config = SimConfig {
        rounds: 10,
        ..config()
    };
    let sampled = Simulation::sampled(Arc::clone(&topology), &plan, config, traces);
    let sampled = sampled
        .unwrap()
        .counting_events(&[Event::EvictionsSuffered]);
    let mut seen = ByPeriod::default();
    let period = Nanos::from_millis(10);
    watched(sampled, &topology, period, &mut [&mut seen]);
    // The caches are full after a few periods; the last period is shorter by chance.
    let mut periods = seen.0[5..seen.0.len() - 1].to_vec();
    assert!(periods.len() > 20, "{periods:?}");
    periods.sort_by(f64::total_cmp);
    let (least, most) = (periods[0], periods[periods.len() - 1]);
    let median = periods[periods.len() / 2];
    assert!(least > 0.0 && most < 3.0 * median, "{periods:?}");
}

#[test]
fn samples_tell_what_the_whole_run_tells() {
    let text = machine("core2-quad").replace("size_kib = 4096", "size_kib = 512");
    let topology = Arc::new(Topology::new(&Machine::parse("small", &text).unwrap()));
    let small = program("small", 5000);
    let large = program("large", 11_000);
    let traces = Traces(vec![small.clone(), large.clone()]);
    let plan = plan(&[(small.0, 1, "0"), (large.0, 1, "1")]);
    let config = SimConfig {
        rounds: 10,
        ..config()
    };
    let whole = Simulation::traced(Arc::clone(&topology), &plan, config.clone(), traces.clone());
    let whole = run(whole.unwrap(), &topology);
    let sampled = || {
        let simulation =
            Simulation::sampled(Arc::clone(&topology), &plan, config.clone(), traces.clone());
        let mut simulation = finished(simulation.unwrap(), &topology);
        (simulation.usage(), simulation.outcome())
    };
    let (usage, outcome) = sampled();
    for ((w, s), program) in whole.iter().zip(&usage).zip(&outcome.programs) {
        let speed = ips(s) / ips(w) - 1.0;
        assert!(speed.abs() < 0.02, "{}: IPC off by {speed}", program.name);
        let misses = mpki(s) / mpki(w) - 1.0;
        assert!(
            misses.abs() < 0.05,
            "{}: misses off by {misses}",
            program.name
        );
        let known = program.sampled.unwrap();
        assert!(known.detailed < 0.5, "{known:?}");
        assert!(
            known.ipc_half_width > 0.0 && known.ipc_half_width < 0.05,
            "{known:?}"
        );
        assert!(
            (known.llc_mpki - mpki(s)).abs() < 0.02 * mpki(s),
            "{known:?}"
        );
    }
    let lost: u64 = outcome.evicted.iter().flatten().sum();
    assert!(lost > 0);
    assert_eq!(sampled(), (usage, outcome));
}
