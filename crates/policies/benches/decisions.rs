//! Cost of a decision, from the observation to the placement, and of the metrics that it reads, by policy and number of
//! threads.
//!
//! `cargo bench -p countersteer-policies --bench decisions`
//!
//! Machines have a CPU for each thread, 1,024 at most; half of them are big, with eight CPUs per last-level cache. Two threads
//! make a program; each yields a sample every period. Policies decide for five periods before the first measured one.

#![allow(clippy::unwrap_used)] // a benchmark that cannot set itself up has failed

use std::cell::RefCell;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use countersteer_model::engine::{Observation, ProgramInfo, ThreadInfo};
use countersteer_model::machine::Machine;
use countersteer_model::metric::{MetricBank, events_on_any};
use countersteer_model::placement::Placement;
use countersteer_model::policy::{Policy, PolicyRng, View};
use countersteer_model::sample::{Event, Sample, Samples};
use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, Nanos, ProgramId, ThreadId};
use countersteer_policies::{POLICIES, parse};
use divan::Bencher;
use rand::RngExt as _;
use rand_pcg::rand_core::SeedableRng;

fn main() {
    divan::main();
}

const PERIOD: Nanos = Nanos::from_millis(100);
/// Periods before the first measured one, in which policies learn the threads.
const WARM: u64 = 5;
const MOST_CPUS: usize = 1_024;
const CPUS_PER_LLC: usize = 8;

const THREADS: [usize; 4] = [16, 128, 1_024, 10_000];
/// Policies that are also measured with other parameters.
const VARIANTS: [&str; 5] = [
    "hsf:sf=steps",
    "hsf:sf=sampled",
    "hsf:sf=history",
    "hsf:sf=td",
    "hsf:tlp=thread",
];
/// Excluded policies: `best-static` needs a forecast, and `static` needs a mapping.
const LEFT_OUT: [&str; 2] = ["best-static", "static"];

/// Policy and number of threads.
struct Case {
    spec: String,
    threads: usize,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {}", self.spec, self.threads)
    }
}

fn cases() -> impl Iterator<Item = Case> {
    let named = POLICIES.iter().map(|p| p.name);
    let named = named.filter(|name| !LEFT_OUT.contains(name));
    named.chain(VARIANTS).flat_map(|spec| {
        THREADS.map(|threads| Case {
            spec: spec.to_owned(),
            threads,
        })
    })
}

fn machine(cpus: usize) -> Arc<Topology> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let text = std::fs::read_to_string(format!("{root}/machines/i9-12900k-8p8e.toml")).unwrap();
    let mut text = text[..text.find("[[cores]]").unwrap()].to_owned();
    for first in (0..cpus).step_by(CPUS_PER_LLC) {
        let (half, last) = (first + CPUS_PER_LLC / 2, first + CPUS_PER_LLC - 1);
        let big = half - 1;
        write!(
            text,
            "[[cores]]\ntype = \"golden-cove\"\ncpus = \"{first}-{big}\"\n[[cores]]\ntype = \"gracemont\"\n\
             cpus = \"{half}-{last}\"\n[[cache]]\nlevel = 3\ncpus = \"{first}-{last}\"\nsize_kib = 16384\nways = 16\n\
             latency_ns = 15\n"
        )
        .unwrap();
    }
    let last = cpus - 1;
    write!(
        text,
        "[[memory]]\ncpus = \"0-{last}\"\nlatency_ns = 90\nbandwidth_gb_s = 400\n"
    )
    .unwrap();
    Arc::new(Topology::new(&Machine::parse("made", &text).unwrap()))
}

/// Threads of steady programs, with a policy that steers them.
struct Work {
    topology: Arc<Topology>,
    threads: Vec<ThreadInfo>,
    programs: Vec<ProgramInfo>,
    /// Instructions per cycle and misses per 1,000 instructions of each thread.
    kinds: Vec<(f64, f64)>,
    events: Vec<Event>,
    policy: Box<dyn Policy>,
    metrics: MetricBank,
    rng: PolicyRng,
    placement: Placement,
    period: u64,
}

impl Work {
    fn new(case: &Case) -> Self {
        let topology = machine(case.threads.next_multiple_of(CPUS_PER_LLC).min(MOST_CPUS));
        let policy = parse(&case.spec, &topology).unwrap();
        let mut rng = PolicyRng::seed_from_u64(1);
        let thread = |row: usize| ThreadInfo {
            id: ThreadId::from_index(row),
            program: ProgramId::from_index(row / 2),
            name: "p".into(),
            cpu: CpuId::from_index(row % topology.cpus.len()),
            runnable: true,
            nice: 0,
            allowed: Arc::clone(&topology.groups[0].cpus),
            hint: None,
        };
        let kind = |_| (0.3 + 3.0 * rng.random::<f64>(), 30.0 * rng.random::<f64>());
        let metrics = &policy.needs().metrics;
        let mut work = Self {
            threads: (0..case.threads).map(thread).collect(),
            programs: Vec::new(),
            kinds: (0..case.threads).map(kind).collect(),
            events: events_on_any(&topology, metrics),
            metrics: MetricBank::new(&topology, metrics),
            rng: PolicyRng::seed_from_u64(1),
            policy,
            placement: Placement::default(),
            period: 0,
            topology,
        };
        for _ in 0..WARM {
            let seen = work.look();
            work.metrics.update(&seen);
            work.decide(&seen);
        }
        work
    }

    /// Advances by a period, with a sample of each thread.
    fn look(&mut self) -> Observation {
        for placed in std::mem::take(&mut self.placement).threads {
            let cpus = placed.target.cpus(&self.topology);
            let info = &mut self.threads[placed.thread.index()];
            if !cpus.contains(info.cpu) {
                let nth = info.id.index() % cpus.len().max(1);
                info.cpu = cpus.iter().nth(nth).unwrap();
            }
            info.allowed = cpus;
        }
        self.period += 1;
        let at = Nanos(PERIOD.0 * self.period);
        let rows = 0..self.threads.len();
        let mut samples = Samples::default();
        rows.for_each(|row| self.sample(row, at, &mut samples));
        Observation {
            at,
            threads: self.threads.clone(),
            programs: self.programs.clone(),
            samples,
            ..Observation::default()
        }
    }

    fn sample(&mut self, row: usize, at: Nanos, into: &mut Samples) {
        let info = &self.threads[row];
        let core_type = self.topology.core_type_of(info.cpu);
        let (ipc, mpki) = self.kinds[row];
        let cycles = 3e8;
        let instructions = cycles * ipc / (1.0 + core_type.index() as f64);
        let mut counts = Vec::new();
        for event in [Event::Instructions, Event::Cycles]
            .iter()
            .chain(&self.events)
        {
            let exact = match event {
                Event::Instructions => instructions,
                Event::Cycles => cycles,
                Event::SfTrue => ipc,
                Event::TdClass => (row % 4) as f64,
                _ => instructions * mpki * 1e-3,
            };
            let noise = 0.98 + 0.04 * self.rng.random::<f64>();
            let noise = if *event == Event::TdClass { 1.0 } else { noise };
            counts.push((*event, exact * noise));
        }
        let sample = Sample::of_thread(info.id, info.cpu, core_type, at, PERIOD);
        into.add(sample, 1, &counts);
    }

    fn decide(&mut self, seen: &Observation) {
        let mut view = View {
            group: None,
            programs: &seen.programs,
            now: seen.at,
            topology: &self.topology,
            threads: &seen.threads,
            events: &seen.events,
            metrics: &self.metrics,
            forecast: None,
        };
        self.placement = self.policy.decide(&mut view, &mut self.rng);
    }
}

#[divan::bench(args = cases(), max_time = 0.3, sample_size = 1)]
fn decision(bencher: Bencher<'_, '_>, case: &Case) {
    let work = RefCell::new(Work::new(case));
    let look = || {
        let mut work = work.borrow_mut();
        let seen = work.look();
        work.metrics.update(&seen);
        seen
    };
    bencher
        .with_inputs(look)
        .bench_local_refs(|seen| work.borrow_mut().decide(seen));
}

#[divan::bench(args = cases(), max_time = 0.3, sample_size = 1)]
fn metrics(bencher: Bencher<'_, '_>, case: &Case) {
    let work = RefCell::new(Work::new(case));
    bencher
        .with_inputs(|| work.borrow_mut().look())
        .bench_local_refs(|seen| work.borrow_mut().metrics.update(seen));
}
