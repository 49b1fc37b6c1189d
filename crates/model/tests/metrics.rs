//! Tests of metrics as policies read them: values have the unit and use the events that the table states.

#![allow(clippy::unwrap_used)] // a test helper that fails has failed its test

use std::sync::Arc;

use countersteer_model::engine::{Observation, ProgramInfo, ThreadEvent, ThreadEventKind};
use countersteer_model::machine::Machine;
use countersteer_model::metric::MetricBank;
use countersteer_model::sample::{Event, Sample, Samples};
use countersteer_model::topology::Topology;
use countersteer_model::units::{CoreTypeId, CpuId, Nanos, ProgramId, ThreadId};

const THREAD: ThreadId = ThreadId(7);

fn topology() -> Arc<Topology> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../machines/i9-12900k-8p8e.toml"
    );
    let text = std::fs::read_to_string(path).unwrap();
    Arc::new(Topology::new(&Machine::parse(path, &text).unwrap()))
}

/// Returns a sample of one second; the thread ran and was counted for half of it.
fn sample(set: u32, sets: u32, counted: &[(Event, f64)]) -> Samples {
    Samples::of(
        Sample {
            set,
            enabled: Nanos::from_millis(1000),
            ..Sample::of_thread(
                THREAD,
                CpuId(0),
                CoreTypeId(0),
                Nanos::from_millis(1000),
                Nanos::from_millis(500),
            )
        },
        sets,
        counted,
    )
}

fn seen(samples: Samples) -> Observation {
    Observation {
        samples,
        ..Observation::default()
    }
}

#[test]
fn formulas_are_read_by_their_text_from_the_set_that_has_their_events() {
    let formula = "1000 * branch_misses / (instructions - branches)";
    let mut bank = MetricBank::new(&topology(), &["ipc", formula]);
    let cycles = [(Event::Instructions, 2e9), (Event::Cycles, 1e9)];
    let branches = [
        (Event::Instructions, 2e9),
        (Event::Branches, 4e8),
        (Event::BranchMisses, 8e6),
    ];
    bank.update(&seen(sample(0, 2, &cycles)));
    assert_eq!(bank.get(THREAD, formula), None);
    bank.update(&seen(sample(1, 2, &branches)));
    assert_eq!(bank.get(THREAD, formula), Some(5.0));
    assert_eq!(bank.get(THREAD, "ipc"), Some(2.0));
    let nothing = [
        (Event::Instructions, 4e8),
        (Event::Branches, 4e8),
        (Event::BranchMisses, 0.0),
    ];
    bank.update(&seen(sample(1, 2, &nothing)));
    assert_eq!(
        bank.get(THREAD, formula),
        Some(5.0),
        "of nothing by nothing nothing is known"
    );
}

#[test]
fn a_formula_may_name_an_event_that_only_one_processor_has() {
    let formula = "uops_retired.slots / instructions";
    let mut bank = MetricBank::new(&topology(), &[formula]);
    let slots = Event::by_name("uops_retired.slots").unwrap();
    bank.update(&seen(sample(0, 1, &[(Event::Instructions, 2e9)])));
    assert_eq!(bank.get(THREAD, formula), None);
    let counted = [(Event::Instructions, 2e9), (slots, 5e9)];
    bank.update(&seen(sample(0, 1, &counted)));
    assert_eq!(bank.get(THREAD, formula), Some(2.5));
}

#[test]
fn a_column_shows_what_a_look_up_by_name_shows_of_every_thread() {
    let mut bank = MetricBank::new(&topology(), &["ipc", "branch_mpki"]);
    let of = |thread, instructions, misses| {
        let counts = [
            (Event::Instructions, instructions),
            (Event::Cycles, 1e9),
            (Event::BranchMisses, misses),
        ];
        let time = Nanos::from_millis(1000);
        let sample = Sample::of_thread(ThreadId(thread), CpuId(0), CoreTypeId(0), time, time);
        Samples::of(sample, 1, &counts)
    };
    bank.update(&seen(
        [of(3, 2e9, 4e6), of(5, 1e9, 8e6), of(9, 5e8, 1e6)]
            .into_iter()
            .collect(),
    ));
    let mut column = bank.read_column("branch_mpki");
    // Two threads have no counts; one of them is between others.
    let read: Vec<Option<f64>> = [3, 4, 5, 9, 11].map(|t| column.get(ThreadId(t))).into();
    assert_eq!(read, [Some(2.0), None, Some(8.0), Some(2.0), None]);
    let mut unknown = bank.read_column("no such metric");
    assert_eq!(unknown.get(ThreadId(3)), None);
}

#[test]
fn figures_are_in_the_unit_of_the_table() {
    let counted = [
        (Event::Instructions, 2e9),
        (Event::Cycles, 1e9),
        (Event::L2Misses, 40e6),
        (Event::LlcMisses, 10e6),
        (Event::BranchMisses, 6e6),
        (Event::EnergyNj, 4e9),
        (Event::LlcOccupancyBytes, 3e6),
    ];
    let wanted = [
        ("ipc", 2.0),
        ("ips", 4e9),
        ("l2_mpki", 20.0),
        ("llc_mpki", 5.0),
        ("branch_mpki", 3.0),
        ("energy_per_instruction", 2.0),
        ("power", 8.0),
        ("llc_occupancy", 3e6),
    ];
    let names = wanted.map(|(name, _)| name);
    let mut bank = MetricBank::new(&topology(), &names);
    bank.update(&seen(sample(0, 1, &counted)));
    for (name, value) in wanted {
        let got = bank.get(THREAD, name).unwrap();
        assert!((got / value - 1.0).abs() < 1e-9, "{name}: {got}");
    }
}

#[test]
fn a_thread_that_takes_a_number_over_begins_without_its_predecessors_samples() {
    let both = [(Event::Instructions, 1e9), (Event::Cycles, 1e9)];
    let halves = |set| sample(set, 2, &both);
    let mut bank = MetricBank::new(&topology(), &["sf_steps"]);
    bank.update(&seen(halves(0)));
    let event = |kind| ThreadEvent {
        at: Nanos::from_millis(1000),
        thread: THREAD,
        kind,
    };
    bank.update(&Observation {
        events: vec![event(ThreadEventKind::Exit)],
        ..Observation::default()
    });
    bank.update(&Observation {
        events: vec![event(ThreadEventKind::New)],
        ..seen(halves(1))
    });
    assert_eq!(
        bank.get(THREAD, "sf_steps"),
        None,
        "one set of two was seen"
    );
    bank.update(&seen(halves(0)));
    assert!(bank.get(THREAD, "sf_steps").is_some());
}

#[test]
fn counts_that_come_after_a_thread_ended_do_not_bring_it_back() {
    let mut bank = MetricBank::new(&topology(), &["ipc"]);
    let counts = [(Event::Instructions, 2e9), (Event::Cycles, 1e9)];
    let program = ProgramId(3);
    let late = Observation {
        ended: vec![(THREAD, program)],
        ..seen(sample(0, 1, &counts))
    };
    let event = |kind| Observation {
        events: vec![ThreadEvent {
            at: Nanos::ZERO,
            thread: THREAD,
            kind,
        }],
        ..Observation::default()
    };
    bank.update(&late);
    assert!(bank.row(THREAD).is_some() && bank.usage().thread(THREAD).is_some());
    bank.update(&event(ThreadEventKind::Exit));
    bank.update(&late);
    assert!(bank.row(THREAD).is_none() && bank.usage().thread(THREAD).is_none());
    // The program did execute them.
    let usage = bank.usage().program(program).unwrap();
    assert_eq!(usage.instructions(), 4e9);
    // Another thread of that id is known as usual.
    bank.update(&event(ThreadEventKind::New));
    bank.update(&late);
    assert!(bank.row(THREAD).is_some() && bank.usage().thread(THREAD).is_some());
}

#[test]
fn usage_of_programs_that_ended_is_forgotten_after_a_while() {
    let mut bank = MetricBank::new(&topology(), &["ipc"]);
    let counts = [(Event::Instructions, 2e9), (Event::Cycles, 1e9)];
    let info = |program| ProgramInfo {
        id: program,
        name: "p".into(),
        path: None,
    };
    let lasting = ProgramId(0);
    let mut before = ProgramId(1);
    for nth in 1..10_000 {
        let program = ProgramId(nth);
        let exit = ThreadEvent {
            at: Nanos::ZERO,
            thread: THREAD,
            kind: ThreadEventKind::Exit,
        };
        bank.update(&Observation {
            at: Nanos::from_millis(u64::from(nth) * 100),
            events: vec![exit],
            programs: vec![info(lasting)],
            ended: vec![(THREAD, program)],
            ..seen(sample(0, 1, &counts))
        });
        let usage = bank.usage();
        assert!(usage.program(program).is_some());
        assert!(usage.program(before).is_some(), "counts may come late");
        before = program;
    }
    let kept = (0..10_000).filter(|p| bank.usage().program(ProgramId(*p)).is_some());
    assert!(kept.count() < 200);
}
