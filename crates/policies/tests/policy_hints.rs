//! Effect of programs' hints about their threads on policies.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test helper that fails has failed its test

use std::sync::Arc;

use countersteer_model::engine::{Observation, ThreadInfo};
use countersteer_model::hint::{Hint, Phase};
use countersteer_model::machine::Machine;
use countersteer_model::metric::MetricBank;
use countersteer_model::policy::{Policy, PolicyRng, View};
use countersteer_model::sample::{Event, Sample, Samples};
use countersteer_model::topology::Topology;
use countersteer_model::units::{CoreTypeId, CpuId, Nanos, ProgramId, ThreadId};
use countersteer_policies::parse;
use rand_pcg::rand_core::SeedableRng;

/// Two big CPUs, two small ones, and threads that stay on their assigned CPUs.
struct Bench {
    topology: Arc<Topology>,
    metrics: MetricBank,
    threads: Vec<ThreadInfo>,
    policy: Box<dyn Policy>,
    now: Nanos,
    /// Reasons of the last decision, by thread.
    rules: Vec<String>,
}

impl Bench {
    /// Creates a thread of one program for each speed-up factor.
    fn new(spec: &str, factors: &[f64]) -> Self {
        let machine = include_str!("../../../vm/unequal.toml");
        let topology = Arc::new(Topology::new(
            &Machine::parse("unequal.toml", machine).unwrap(),
        ));
        let policy = parse(spec, &topology).unwrap();
        let mut metrics = MetricBank::new(&topology, &policy.needs().metrics);
        let sample = |(row, sf): (usize, &f64)| {
            let counts = [(Event::SfTrue, *sf)];
            let thread = ThreadId(row as u32);
            let cpu = CpuId(0);
            let core_type = CoreTypeId(0);
            let at = Nanos::ZERO;
            let enabled = Nanos::from_millis(100);
            Samples::of(
                Sample::of_thread(thread, cpu, core_type, at, enabled),
                1,
                &counts,
            )
        };
        let samples = factors.iter().enumerate().map(sample).collect();
        metrics.update(&Observation {
            samples,
            ..Observation::default()
        });
        let thread = |row: usize| ThreadInfo {
            id: ThreadId(row as u32),
            program: ProgramId(0),
            name: "p".into(),
            cpu: CpuId(row as u32 % 4),
            runnable: true,
            nice: 0,
            allowed: Arc::clone(&topology.groups[0].cpus),
            hint: None,
        };
        let threads = (0..factors.len()).map(thread).collect();
        let rules = vec![String::new(); factors.len()];
        Self {
            topology,
            metrics,
            threads,
            policy,
            now: Nanos::ZERO,
            rules,
        }
    }

    fn tell(&mut self, thread: usize, hint: Hint) {
        self.threads[thread].hint = Some(hint);
    }

    fn phase(&mut self, thread: usize, phase: Phase) {
        self.tell(
            thread,
            Hint {
                phase,
                ..Hint::default()
            },
        );
    }

    /// Reports each thread's work in the last period: twice as much on big CPUs.
    fn work(&mut self) {
        let sample = |info: &ThreadInfo| {
            let core_type = self.topology.core_type_of(info.cpu);
            let counts = [(Event::Work, if core_type.0 == 0 { 2.0 } else { 1.0 })];
            let thread = info.id;
            let cpu = info.cpu;
            let at = self.now;
            let ran = Nanos::from_millis(100);
            Samples::of(
                Sample::of_thread(thread, cpu, core_type, at, ran),
                1,
                &counts,
            )
        };
        let samples = self.threads.iter().map(sample).collect();
        self.metrics.update(&Observation {
            samples,
            ..Observation::default()
        });
    }

    /// Makes one decision; returns the threads on big CPUs after it.
    fn decide(&mut self) -> Vec<u32> {
        let mut view = View {
            group: None,
            programs: &[],
            now: self.now,
            topology: &self.topology,
            threads: &self.threads,
            events: &[],
            metrics: &self.metrics,
            forecast: None,
        };
        let placement = self
            .policy
            .decide(&mut view, &mut PolicyRng::seed_from_u64(1));
        self.now += Nanos::from_millis(100);
        for placed in &placement.threads {
            let info = &mut self.threads[placed.thread.index()];
            info.allowed = placed.target.cpus(&self.topology);
            info.cpu = info.allowed.lowest().unwrap();
            self.rules[placed.thread.index()] = placed.reason.rule.to_string();
        }
        let big =
            |t: &&ThreadInfo| t.allowed.lowest().is_some_and(|c| c.0 < 2) && t.allowed.len() < 4;
        self.threads.iter().filter(big).map(|t| t.id.0).collect()
    }
}

/// All threads belong to few programs here, and each is ranked by its own factor.
const HSF: &str = "hsf:sf=oracle,tlp=thread";

#[test]
fn who_spins_leaves_its_fast_core_at_once_and_gets_it_back() {
    let mut bench = Bench::new(HSF, &[3.0, 2.0, 1.5, 1.2]);
    assert_eq!(bench.decide(), [0, 1]);
    bench.phase(0, Phase::Spinning);
    assert_eq!(bench.decide(), [1, 2]);
    assert!(bench.rules[0].contains("it waits"), "{}", bench.rules[0]);
    bench.phase(0, Phase::Running);
    assert_eq!(bench.decide(), [0, 1]);
    bench.phase(1, Phase::Blocked);
    assert_eq!(bench.decide(), [0, 2]);
}

#[test]
fn who_spins_may_stay_where_nobody_else_wants_to_be() {
    let mut bench = Bench::new(HSF, &[3.0, 2.0]);
    bench.phase(0, Phase::Spinning);
    assert_eq!(bench.decide(), [0, 1], "there are two fast cores");
}

#[test]
fn priority_weighs_the_factors_of_a_programs_own_threads() {
    let factors = [3.0, 2.0, 1.9, 1.2];
    let mut bench = Bench::new(HSF, &factors);
    bench.tell(
        2,
        Hint {
            priority: 4,
            ..Hint::default()
        },
    );
    assert_eq!(bench.decide(), [0, 2]);
    let mut alone = Bench::new(HSF, &factors);
    alone.threads[2].program = ProgramId(1);
    alone.tell(
        2,
        Hint {
            priority: 10,
            ..Hint::default()
        },
    );
    assert_eq!(
        alone.decide(),
        [0, 1],
        "a program cannot raise itself above others"
    );
}

#[test]
fn who_is_fast_enough_on_a_small_core_goes_there() {
    let mut bench = Bench::new(HSF, &[3.0, 2.0, 1.9, 1.2]);
    bench.tell(
        0,
        Hint {
            qos_permille: 300,
            ..Hint::default()
        },
    );
    assert_eq!(bench.decide(), [1, 2]);
    assert!(bench.rules[0].contains("fast enough"), "{}", bench.rules[0]);
    assert_eq!(bench.decide(), [1, 2]);
    bench.tell(
        0,
        Hint {
            qos_permille: 500,
            ..Hint::default()
        },
    );
    assert_eq!(bench.decide(), [0, 1], "a third of its speed is no half");
}

#[test]
fn silence_and_empty_words_decide_the_same() {
    let factors = [1.3, 2.0, 1.9, 1.2, 2.2, 1.7];
    let mut silent = Bench::new(HSF, &factors);
    let mut polite = Bench::new(HSF, &factors);
    (0..6).for_each(|thread| {
        polite.tell(
            thread,
            Hint {
                workers: 6,
                ..Hint::default()
            },
        )
    });
    (0..20).for_each(|_| assert_eq!(silent.decide(), polite.decide()));
}

#[test]
fn turns_on_fast_cores_go_to_those_who_work() {
    let mut bench = Bench::new("aarr:turn_ms=100", &[1.0; 4]);
    bench.phase(1, Phase::Spinning);
    let mut turns = [0; 4];
    for _ in 0..40 {
        bench
            .decide()
            .into_iter()
            .for_each(|thread| turns[thread as usize] += 1);
    }
    assert_eq!(turns[1], 0, "{turns:?}");
    assert!([0, 2, 3].iter().all(|t| turns[*t] >= 10), "{turns:?}");
}

/// Times at which each thread was sent to be measured, in a minute without results except for threads from `known_ms` on.
fn sent(bench: &mut Bench, known_ms: u64) -> Vec<Vec<u64>> {
    let mut sent = vec![Vec::new(); bench.threads.len()];
    while bench.now < Nanos::from_millis(60_000) {
        let at_ms = bench.now.0 / 1_000_000;
        if at_ms >= known_ms {
            bench.work();
        }
        // A thread that stays has no new reason.
        bench.rules.iter_mut().for_each(String::clear);
        bench.decide();
        for (times, rule) in sent.iter_mut().zip(&bench.rules) {
            if rule.starts_with("sent to be measured") {
                times.push(at_ms);
            }
        }
    }
    sent
}

#[test]
fn who_was_on_both_types_without_a_measure_is_tried_again() {
    // Without a report of its work, a thread has no `sf_work`.
    let mut bench = Bench::new("hsf:sf=work", &[1.0; 4]);
    let sent = sent(&mut bench, 5_000);
    for thread in &bench.threads {
        let sf = bench.metrics.get(thread.id, "sf_work");
        assert!(
            sf.is_some_and(|sf| (sf - 2.0).abs() < 0.01),
            "{sf:?} {sent:?}"
        );
    }
}

#[test]
fn who_never_tells_is_tried_less_and_less_often() {
    let sent = sent(&mut Bench::new("hsf:sf=work", &[1.0; 4]), u64::MAX);
    let later: Vec<usize> = sent
        .iter()
        .map(|times| times.iter().filter(|at| **at > 10_000).count())
        .collect();
    assert!(later.iter().all(|n| (1..=4).contains(n)), "{sent:?}");
}
