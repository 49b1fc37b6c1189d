//! Threads that exit before or after their samples arrive.

use countersteer_model::engine::{ThreadEvent, ThreadInfo};
use countersteer_model::placement::{Reason, ThreadPlacement};
use countersteer_model::policy::PolicyRng;
use countersteer_model::sample::{Sample, Samples};
use countersteer_model::trial::TrialPlan;
use countersteer_model::units::{CoreTypeId, CpuId, ProgramId};
use rand::SeedableRng;

use super::*;

const PERIOD: Nanos = Nanos::from_millis(100);

fn event(thread: ThreadId, kind: ThreadEventKind) -> ThreadEvent {
    ThreadEvent {
        at: Nanos(1),
        thread,
        kind,
    }
}

fn info(id: ThreadId, cpu: CpuId) -> ThreadInfo {
    ThreadInfo {
        id,
        program: ProgramId(3),
        name: "program".into(),
        cpu,
        runnable: true,
        nice: 0,
        allowed: Arc::default(),
        hint: None,
    }
}

fn sample(thread: ThreadId) -> Samples {
    let time = Nanos::from_millis(250);
    let sample = Sample::of_thread(thread, CpuId(0), CoreTypeId(0), time, time);
    Samples::of(sample, 1, &[])
}

#[test]
fn what_is_reported_late_of_threads_that_have_ended_is_their_programs() {
    let machine = countersteer_sysfs::topology::detect(std::path::Path::new("/")).unwrap();
    let topology = Arc::new(Topology::new(&machine));
    let mut tally = DecisionTally::new(&topology, PERIOD, None, None, &RunControl::default());
    let long = ThreadId(5);
    let short = ThreadId(7);
    let strange = ThreadId(9);
    let of = |thread| (thread, ProgramId(3));
    let forked = |thread| event(thread, ThreadEventKind::New);
    let ends = |thread| event(thread, ThreadEventKind::Exit);
    let seen = [
        Observation {
            threads: vec![info(long, CpuId(0))],
            events: vec![forked(long)],
            ..Observation::default()
        },
        Observation {
            events: vec![forked(short), ends(short), ends(long)],
            ended: vec![of(short), of(long)],
            samples: sample(short),
            ..Observation::default()
        },
        Observation {
            ended: vec![of(long)],
            samples: [sample(long), sample(strange)].into_iter().collect(),
            ..Observation::default()
        },
    ];
    seen.iter()
        .for_each(|seen| tally.observation(&topology, seen, &MetricBank::new(&topology, &[])));
    let program = &tally.programs[&3];
    assert_eq!(
        (program.threads, program.living, program.cpu_s.iter().sum()),
        (2, 0, 0.5)
    );
    let rest = tally.summary.short_lived.unwrap();
    assert_eq!((rest.threads, rest.cpu_s.iter().sum()), (0, 0.25));
}

#[test]
fn what_programs_have_done_that_are_forgotten_is_in_the_sum() {
    let machine = countersteer_sysfs::topology::detect(std::path::Path::new("/")).unwrap();
    let topology = Arc::new(Topology::new(&machine));
    let mut tally =
        DecisionTally::new(&topology, PERIOD, None, None, &RunControl::default()).forgetful();
    let thread = ThreadId(5);
    let time = Nanos::from_millis(250);
    let head = Sample::of_thread(thread, CpuId(0), CoreTypeId(0), time, time);
    let seen = [
        Observation {
            threads: vec![info(thread, CpuId(0))],
            samples: Samples::of(head, 1, &[(Event::Work, 7.0)]),
            ..Observation::default()
        },
        Observation {
            events: vec![event(thread, ThreadEventKind::Exit)],
            ..Observation::default()
        },
    ];
    seen.iter()
        .for_each(|seen| tally.observation(&topology, seen, &MetricBank::new(&topology, &[])));
    assert!(tally.programs.is_empty());
    assert_eq!(tally.summary.short_lived.map(|sum| sum.work), Some(7.0));
}

#[test]
fn in_a_trial_the_predicted_gain_is_that_of_one_side_over_the_other() {
    let machine = countersteer_lab::library::machine("i9-12900k-8p8e").map(|(m, _)| m);
    let machine = machine.unwrap_or_else(|e| unreachable!("{e}"));
    let topology = Arc::new(Topology::new(&machine));
    let (fast, slow) = topology.extremes();
    let cpu_of = |core_type| {
        let mut all = topology.groups[0].cpus.iter();
        all.find(|cpu| topology.core_type_of(*cpu) == core_type)
            .unwrap()
    };
    let block = Nanos::from_millis(500);
    let trial = AbTrial::new(TrialPlan {
        policy: block,
        baseline: block,
        settle: 0.0,
        confidence: 0.95,
        margin: 0.01,
    });
    let control = RunControl::default();
    let mut tally = DecisionTally::new(&topology, PERIOD, None, None, &control);
    tally.ab_trial = Some(trial.clone());
    let mut metrics = MetricBank::new(&topology, &["sf_oracle"]);
    let mut rng = PolicyRng::seed_from_u64(1);
    let thread = ThreadId(5);
    for ms in (0..5000).step_by(100) {
        let at = Nanos::from_millis(ms);
        trial.trial().turn(at, &mut rng);
        let core_type = if trial.side() == 0 { fast } else { slow };
        let cpu = cpu_of(core_type);
        let head = Sample::of_thread(thread, cpu, core_type, at, Nanos::from_millis(100));
        let seen = Observation {
            at,
            threads: vec![info(thread, cpu)],
            samples: Samples::of(head, 1, &[(Event::SfTrue, 2.0)]),
            ..Observation::default()
        };
        metrics.update(&seen);
        tally.observation(&topology, &seen, &metrics);
        tally.decision(&topology, at, &Placement::default(), Applied::default());
    }
    assert_eq!(control.lock().summary.predicted_gain, Some(1.0));
}

#[test]
fn observations_after_events_leave_a_decision_the_time_that_it_has() {
    let machine = countersteer_lab::library::machine("i9-12900k-8p8e").map(|(m, _)| m);
    let machine = machine.unwrap_or_else(|e| unreachable!("{e}"));
    let topology = Arc::new(Topology::new(&machine));
    let mut tally = DecisionTally::new(&topology, PERIOD, None, None, &RunControl::default());
    let metrics = MetricBank::new(&topology, &[]);
    let thread = ThreadId(5);
    let mut observe = |ms, cpu| {
        let at = Nanos::from_millis(ms);
        let sample = Sample::of_thread(thread, cpu, CoreTypeId(0), at, Nanos::from_millis(1));
        let seen = Observation {
            at,
            threads: vec![info(thread, cpu)],
            samples: Samples::of(sample, 1, &[]),
            ..Observation::default()
        };
        tally.observation(&topology, &seen, &metrics);
        let there = Target::Cpus(Arc::new([CpuId(3)].into_iter().collect()));
        let placed = ThreadPlacement::new(thread, there, Reason::rule("a"));
        let placement = Placement {
            threads: vec![placed],
            ..Placement::default()
        };
        let applied = Applied {
            took: Nanos::from_millis(30),
            ..Applied::default()
        };
        tally.decision(&topology, at, &placement, applied);
        tally.summary.misplaced
    };
    let elsewhere = CpuId(0);
    // Threads that start and exit cause observations at any time.
    for ms in [0, 31, 32, 79, 100] {
        assert_eq!(observe(ms, elsewhere), (0, 0), "{ms} ms");
    }
    assert_eq!(observe(101, elsewhere), (1, 1));
    assert_eq!(observe(200, CpuId(3)), (1, 2));
}
