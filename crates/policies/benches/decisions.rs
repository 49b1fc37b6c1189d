//! Cost of a decision, from what was seen to the placement, by policy and number of threads.
//!
//! `cargo bench -p countersteer-policies --bench decisions`

#![allow(clippy::unwrap_used)] // a benchmark that cannot set itself up has failed

use std::cell::RefCell;
use std::sync::Arc;

use countersteer_core::engine::{Engine, Observation, Watch};
use countersteer_core::metric::MetricBank;
use countersteer_core::placement::Placement;
use countersteer_core::policy::{Policy, PolicyRng, View};
use countersteer_core::topology::Topology;
use countersteer_core::units::Nanos;
use countersteer_policies::parse;
use divan::Bencher;
use rand_pcg::rand_core::SeedableRng;
use toy::{Life, Toy};

#[allow(dead_code)]
#[path = "../tests/toy/mod.rs"]
mod toy;

fn main() {
    divan::main();
}

const PERIOD: Nanos = Nanos::from_millis(100);
/// Periods before the first that counts, in which policies have got to know the threads.
const WARM: u64 = 5;

const THREADS: [usize; 4] = [16, 128, 1_024, 10_000];
const POLICIES: [&str; 9] = [
    "aarr",
    "hsf",
    "hsf:sf=sampled",
    "mpi",
    "capacity",
    "capacity+mpi",
    "ef",
    "prim",
    "greedy-energy",
];

/// An engine on which little happens, with a policy at work on it.
struct Work {
    topology: Arc<Topology>,
    engine: Toy,
    policy: Box<dyn Policy>,
    metrics: MetricBank,
    rng: PolicyRng,
    placement: Placement,
    period: u64,
}

impl Work {
    fn new(spec: &str, threads: usize) -> Self {
        let topology = toy::machines()
            .into_iter()
            .find(|machine| machine.name == "server-12llc")
            .unwrap();
        let changes = false;
        let policy = parse(spec, &topology).unwrap();
        let mut work = Self {
            engine: Toy::new(&topology, Life { threads, changes }, 3),
            metrics: MetricBank::new(&topology, &policy.needs().metrics),
            rng: PolicyRng::seed_from_u64(1),
            policy,
            placement: Placement::default(),
            period: 0,
            topology,
        };
        for _ in 0..WARM {
            let seen = work.look();
            work.decide(&seen);
        }
        work
    }

    /// A period goes by, with a sample of each thread.
    fn look(&mut self) -> Observation {
        self.engine.apply(&self.placement).unwrap();
        let at = Nanos(PERIOD.0 * self.period);
        self.period += 1;
        let seen = self.engine.observe(&Watch::default(), at).unwrap();
        self.metrics.update(&seen);
        seen
    }

    fn decide(&mut self, seen: &Observation) {
        let mut view = View {
            group: None,
            programs: &[],
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

#[divan::bench(args = POLICIES, consts = THREADS, max_time = 1, sample_size = 1)]
fn decision<const N: usize>(bencher: Bencher<'_, '_>, spec: &str) {
    let work = RefCell::new(Work::new(spec, N));
    bencher
        .with_inputs(|| work.borrow_mut().look())
        .bench_local_refs(|seen| work.borrow_mut().decide(seen));
}
