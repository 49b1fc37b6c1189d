use countersteer_core::events::Event;
use countersteer_core::sample::{Counts, Sample as Reading};
use countersteer_core::units::{CoreTypeId, CpuId, Nanos, ThreadId};
use countersteer_train::records::{Lack, Pass, pair};
use countersteer_train::sample::WINDOW;

use crate::topology;

/// Readings of 10 ms, one speed (instructions per ns) for so many windows after the other.
fn pass(core_type: usize, stretches: &[(f64, f64)], branches: f64) -> Pass {
    let mut readings = Vec::new();
    let mut at = Nanos::ZERO;
    for (speed, windows) in stretches {
        let mut left = windows * WINDOW;
        while left > 0.5 {
            let instructions = (speed * 1e7).min(left);
            let time = Nanos((instructions / speed) as u64);
            at += time;
            left -= instructions;
            let mut counts = Counts::default();
            counts.set(Event::Instructions, instructions);
            counts.set(Event::Cycles, instructions * 0.5);
            counts.set(Event::Branches, instructions * branches);
            readings.push(Reading {
                thread: ThreadId(0),
                cpu: CpuId(0),
                core_type: CoreTypeId::from_index(core_type),
                at,
                set: 0,
                sets: 1,
                enabled: time,
                running: time,
                counts,
            });
        }
    }
    Pass {
        program: "made-up".into(),
        family: "made-up".into(),
        core_type,
        readings,
        whole: true,
    }
}

#[test]
fn windows_are_matched_by_instruction_and_merged_by_phase() {
    // Three windows at a factor of 2, two at 1.25; periods do not end where windows do.
    let fast = pass(0, &[(5.0, 3.0), (2.5, 2.0)], 0.1);
    let slow = pass(1, &[(2.5, 3.0), (2.0, 2.0)], 0.1);
    let paired = pair(&topology(), &[fast, slow]).unwrap();
    assert_eq!((paired.windows, paired.drifted), (5, 0));
    let factors: Vec<f64> = paired.samples.iter().map(|s| s.speed_up()).collect();
    assert_eq!(factors.len(), 2, "{factors:?}");
    assert!(
        (factors[0] - 2.0).abs() < 0.02 && (factors[1] - 1.25).abs() < 0.02,
        "{factors:?}"
    );
    let cycles = paired.samples[0].ratio(0, Event::Cycles, Event::Instructions);
    assert!((cycles.unwrap() - 0.5).abs() < 1e-9);
}

#[test]
fn passes_with_other_events_are_aligned_by_window() {
    let fast = pass(0, &[(4.0, 2.0)], 0.1);
    let slow = pass(1, &[(2.0, 2.0)], 0.1);
    let mut second = pass(0, &[(4.0, 2.0)], 0.1);
    for reading in &mut second.readings {
        let instructions = reading.counts.get(Event::Instructions).unwrap();
        let mut counts = Counts::default();
        counts.set(Event::Instructions, instructions);
        counts.set(Event::LlcMisses, instructions * 0.003);
        reading.counts = counts;
    }
    let paired = pair(&topology(), &[fast, second, slow]).unwrap();
    let misses = paired.samples[0].ratio(0, Event::LlcMisses, Event::Instructions);
    assert!((misses.unwrap() - 0.003).abs() < 1e-9);
    assert!((paired.samples[0].speed_up() - 2.0).abs() < 1e-6);
}

#[test]
fn a_set_that_had_its_turn_half_of_the_time_saw_half_of_the_instructions() {
    let fast = pass(0, &[(4.0, 4.0)], 0.1);
    let mut slow = pass(1, &[(2.0, 4.0)], 0.1);
    for reading in &mut slow.readings {
        let mut counts = Counts::default();
        reading
            .counts
            .iter()
            .for_each(|(event, value)| counts.set(event, value / 2.0));
        reading.counts = counts;
        reading.running = Nanos(reading.enabled.0 / 2);
    }
    let paired = pair(&topology(), &[fast, slow]).unwrap();
    assert_eq!(paired.windows, 4);
    assert!((paired.samples[0].speed_up() - 2.0).abs() < 1e-6);
}

#[test]
fn windows_whose_branches_differ_are_left_out() {
    let fast = pass(0, &[(4.0, 3.0)], 0.1);
    let mut slow = pass(1, &[(2.0, 3.0)], 0.1);
    let mut seen = 0.0;
    for reading in &mut slow.readings {
        seen += reading.counts.get(Event::Instructions).unwrap();
        if seen > 2.0 * WINDOW {
            let branches = reading.counts.get(Event::Branches).unwrap();
            reading.counts.set(Event::Branches, branches * 1.2);
        }
    }
    let paired = pair(&topology(), &[fast, slow]).unwrap();
    assert_eq!((paired.windows, paired.drifted), (2, 1));
}

#[test]
fn runs_of_other_work_are_no_pair() {
    let fast = pass(0, &[(4.0, 3.0)], 0.1);
    let slow = pass(1, &[(2.0, 3.1)], 0.1);
    let Err(Lack::NoPairs { programs, .. }) = pair(&topology(), &[fast, slow]) else {
        panic!("paired");
    };
    assert!(
        programs[0].contains("600.0 to 620.0 million instructions"),
        "{programs:?}"
    );
}

#[test]
fn what_is_lacking_is_named() {
    let fast = pass(0, &[(4.0, 3.0)], 0.1);
    let error = pair(&topology(), std::slice::from_ref(&fast))
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "no program ran on both golden-cove and gracemont:\n  made-up: it has no run on gracemont"
    );
    let mut slow = pass(1, &[(2.0, 3.0)], 0.1);
    for reading in &mut slow.readings {
        let instructions = reading.counts.get(Event::Instructions).unwrap();
        reading.counts = Counts::default();
        reading.counts.set(Event::Instructions, instructions);
    }
    let error = pair(&topology(), &[fast, slow]).unwrap_err().to_string();
    assert_eq!(
        error,
        "no sample has both instructions and cycles on gracemont: count them there"
    );
}
