//! Effect of sleep on policies for unequal cores: it earns nothing, and costs nothing.

#![allow(clippy::unwrap_used)] // a test helper that fails has failed its test

#[allow(dead_code, reason = "other tests look at more of it")]
mod toy;

use std::sync::Arc;

use countersteer_model::driver::{DriverConfig, Recorder, drive};
use countersteer_model::engine::{
    Applied, Engine, Observation, ThreadEvent, ThreadEventKind, Watch,
};
use countersteer_model::machine::Machine;
use countersteer_model::metric::MetricBank;
use countersteer_model::placement::{Placement, ThreadPlacement};
use countersteer_model::policy::PolicyRng;
use countersteer_model::topology::Topology;
use countersteer_model::units::{Nanos, ThreadId};
use countersteer_policies::parse;
use rand_pcg::rand_core::SeedableRng;

use toy::{Life, Toy};

const PERIOD: Nanos = Nanos::from_millis(100);

fn one_big_one_small() -> Arc<Topology> {
    let text = include_str!("toy/two-big-two-small.toml")
        .replace("cpus = \"0-1\"", "cpus = \"0\"")
        .replace("cpus = \"2-3\"", "cpus = \"1\"")
        .replace("cpus = \"0-3\"", "cpus = \"0-1\"");
    Arc::new(Topology::new(&Machine::parse("m", &text).unwrap()))
}

/// Engine whose threads sleep and wake by a script, which gets the number of periods that have passed.
struct Scripted<F> {
    inner: Toy,
    script: F,
    /// Thread that wakes for a moment in a period and sleeps again.
    stirs: fn(u64) -> Option<ThreadId>,
}

impl<F: FnMut(&mut Toy, u64)> Engine for Scripted<F> {
    type Error = std::convert::Infallible;

    fn topology(&self) -> &Arc<Topology> {
        self.inner.topology()
    }

    fn observe(&mut self, watch: &Watch<'_>, until: Nanos) -> Result<Observation, Self::Error> {
        let period = until.0 / PERIOD.0;
        (self.script)(&mut self.inner, period);
        let mut seen = self.inner.observe(watch, until)?;
        // Such a short run has no sample.
        seen.events
            .extend((self.stirs)(period).map(|thread| ThreadEvent {
                at: until,
                thread,
                kind: ThreadEventKind::Wake,
            }));
        Ok(seen)
    }

    fn apply(&mut self, placement: &Placement) -> Result<Applied, Self::Error> {
        self.inner.apply(placement)
    }
}

#[derive(Default)]
struct Log {
    /// By period and thread: true if it ran on the big core.
    on_big: Vec<Vec<bool>>,
    /// Threads that were sent to be measured.
    sent: Vec<ThreadId>,
}

impl Recorder for Log {
    fn observation(&mut self, topology: &Topology, seen: &Observation, _: &MetricBank) {
        let big = |t| topology.core_type_of(t).index() == 0;
        let threads = seen.threads.iter();
        self.on_big
            .push(threads.map(|t| t.runnable && big(t.cpu)).collect());
    }

    fn decision(&mut self, _: &Topology, _: Nanos, placement: &Placement, _: Applied) {
        let sent = |t: &&ThreadPlacement| t.reason.rule.starts_with("sent to be measured");
        self.sent
            .extend(placement.threads.iter().filter(sent).map(|t| t.thread));
    }
}

/// Simulates threads of one program each on one big core and one small one; `runs(thread, period)` is true if a thread runs.
fn simulate(
    spec: &str,
    threads: usize,
    periods: u64,
    runs: impl Fn(usize, u64) -> bool,
    stirs: fn(u64) -> Option<ThreadId>,
) -> Log {
    let topology = one_big_one_small();
    let life = Life {
        threads,
        changes: false,
    };
    let mut engine = Scripted {
        inner: Toy::new(&topology, life, 7),
        script: |toy: &mut Toy, period| {
            for (row, thread) in toy.threads.iter_mut().enumerate() {
                thread.info.runnable = runs(row, period);
            }
        },
        stirs,
    };
    let mut policy = parse(spec, &topology).unwrap();
    let mut log = Log::default();
    let config = DriverConfig {
        period: PERIOD,
        until: Nanos(PERIOD.0 * periods),
    };
    drive(
        &mut engine,
        policy.as_mut(),
        &mut [&mut log],
        config,
        &mut PolicyRng::seed_from_u64(1),
    )
    .unwrap();
    log
}

/// Periods on the big core of each of two threads, counted from period `from`.
fn on_big(log: &Log, from: usize) -> [usize; 2] {
    [0, 1].map(|thread| log.on_big[from..].iter().filter(|p| p[thread]).count())
}

#[test]
fn a_program_that_slept_is_owed_no_more_than_a_turn_of_the_big_core() {
    // Both begin. One sleeps for 100 s while the other has the big core. Then both run for 20 intervals of two periods.
    let runs = |thread, period| thread == 1 || !(4..1_000).contains(&period);
    let log = simulate("rr", 2, 1_040, runs, |_| None);
    let [slept, ran] = on_big(&log, 1_001);
    assert!(ran >= 16 && slept >= 16, "{slept} and {ran} periods");
}

#[test]
fn a_program_that_starts_while_the_others_sleep_begins_where_they_are() {
    // The second program first runs while the first, which has had the big core for 100 s, sleeps.
    for spec in ["rr", "acfs:sf=oracle", "adwrr"] {
        let runs = |thread, period| match thread {
            0 => !(1_000..1_020).contains(&period),
            _ => period >= 1_010,
        };
        let log = simulate(spec, 2, 1_060, runs, |_| None);
        let [first, second] = on_big(&log, 1_021);
        assert!(
            first >= 8 && second >= 8,
            "{spec}: {first} and {second} of 40 periods"
        );
    }
}

#[test]
fn a_thread_that_runs_too_shortly_to_be_measured_is_sent_less_and_less_often() {
    let stirs = |period: u64| period.is_multiple_of(10).then_some(ThreadId(2));
    let log = simulate("hsf:sf=sampled", 3, 600, |thread, _| thread != 2, stirs);
    let sent = log.sent.iter().filter(|t| **t == ThreadId(2)).count();
    assert!((1..=10).contains(&sent), "sent {sent} times");
}
