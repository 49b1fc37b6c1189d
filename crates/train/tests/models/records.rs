use countersteer_model::events::Event;
use countersteer_model::sample::{Sample, SampleRow, Samples};
use countersteer_model::units::{CoreTypeId, CpuId, Nanos, ThreadId};
use countersteer_train::records::{Lack, ProgramPass, pair};
use countersteer_train::rows::WINDOW;

use crate::topology;

/// Pass with samples of 10 ms: a speed (instructions per ns) for a number of windows, one after the other.
fn pass(core_type: usize, intervals: &[(f64, f64)], branches: f64) -> ProgramPass {
    let mut samples = Samples::default();
    let mut at = Nanos::ZERO;
    for (speed, windows) in intervals {
        let mut left = windows * WINDOW;
        while left > 0.5 {
            let instructions = (speed * 1e7).min(left);
            let time = Nanos((instructions / speed) as u64);
            at += time;
            left -= instructions;
            let counts = [
                (Event::Instructions, instructions),
                (Event::Cycles, instructions * 0.5),
                (Event::Branches, instructions * branches),
            ];
            let core_type = CoreTypeId::from_index(core_type);
            let sample = Sample::of_thread(ThreadId(0), CpuId(0), core_type, at, time);
            samples.add(sample, 1, &counts);
        }
    }
    ProgramPass {
        program: "made-up".into(),
        family: "made-up".into(),
        core_type,
        samples,
        whole: true,
    }
}

/// Samples that `change` makes of these.
fn changed(samples: &Samples, change: impl Fn(SampleRow<'_>, &mut Samples)) -> Samples {
    let mut other = Samples::default();
    samples.iter().for_each(|row| change(row, &mut other));
    other
}

#[test]
fn windows_are_matched_by_instruction_and_merged_by_phase() {
    // Three windows at a factor of 2, two at 1.25; periods do not end at window ends.
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
    second.samples = changed(&second.samples, |sample, into| {
        let instructions = sample.counts.get(Event::Instructions).unwrap();
        let misses = (Event::LlcMisses, instructions * 0.003);
        into.add(*sample, 1, &[(Event::Instructions, instructions), misses]);
    });
    let paired = pair(&topology(), &[fast, second, slow]).unwrap();
    let misses = paired.samples[0].ratio(0, Event::LlcMisses, Event::Instructions);
    assert!((misses.unwrap() - 0.003).abs() < 1e-9);
    assert!((paired.samples[0].speed_up() - 2.0).abs() < 1e-6);
}

#[test]
fn a_set_that_had_its_turn_half_of_the_time_saw_half_of_the_instructions() {
    let fast = pass(0, &[(4.0, 4.0)], 0.1);
    let mut slow = pass(1, &[(2.0, 4.0)], 0.1);
    slow.samples = changed(&slow.samples, |sample, into| {
        let half = sample.counts.iter().map(|(event, n)| (event, n / 2.0));
        let running = Nanos(sample.enabled.0 / 2);
        into.add(Sample { running, ..*sample }, 1, &half.collect::<Vec<_>>());
    });
    let paired = pair(&topology(), &[fast, slow]).unwrap();
    assert_eq!(paired.windows, 4);
    assert!((paired.samples[0].speed_up() - 2.0).abs() < 1e-6);
}

#[test]
fn windows_whose_branches_differ_are_left_out() {
    let fast = pass(0, &[(4.0, 3.0)], 0.1);
    let mut slow = pass(1, &[(2.0, 3.0)], 0.1);
    let mut seen = 0.0;
    for row in 0..slow.samples.len() {
        let counts = slow.samples.row(row).unwrap().counts;
        seen += counts.get(Event::Instructions).unwrap();
        let branches = counts.get(Event::Branches).unwrap();
        if seen > 2.0 * WINDOW {
            slow.samples.set(row, Event::Branches, branches * 1.2);
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
    slow.samples = changed(&slow.samples, |sample, into| {
        let instructions = sample.counts.get(Event::Instructions).unwrap();
        into.add(*sample, 1, &[(Event::Instructions, instructions)]);
    });
    let error = pair(&topology(), &[fast, slow]).unwrap_err().to_string();
    assert_eq!(
        error,
        "no sample has both instructions and cycles on gracemont: count them there"
    );
}
