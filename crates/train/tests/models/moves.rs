use countersteer_model::events::Event;
use countersteer_model::sample::{Sample, Samples};
use countersteer_model::units::{CoreTypeId, CpuId, Nanos, ThreadId};
use countersteer_train::moves::{ThreadSamples, moves};

use crate::topology;

/// Samples of 4 ms of a thread: core type, speed in instructions per ns, branches per instruction, and number of samples.
fn life(stays: &[(usize, f64, f64, u32)]) -> ThreadSamples {
    let mut samples = Samples::default();
    let mut at = Nanos::ZERO;
    for (core_type, speed, branches, count) in stays {
        for _ in 0..*count {
            let time = Nanos::from_millis(4);
            at += time;
            let instructions = speed * time.0 as f64;
            let counts = [
                (Event::Instructions, instructions),
                (Event::Cycles, 2.5 * time.0 as f64),
                (Event::Branches, instructions * branches),
            ];
            let core_type = CoreTypeId::from_index(*core_type);
            samples.add(
                Sample::of_thread(ThreadId(0), CpuId(0), core_type, at, time),
                1,
                &counts,
            );
        }
    }
    ThreadSamples {
        program: "made-up".into(),
        family: "made-up".into(),
        samples,
    }
}

#[test]
fn a_move_is_labelled_by_the_speeds_on_both_sides() {
    let up = life(&[(1, 2.0, 0.1, 5), (0, 5.0, 0.1, 5)]);
    let no_gain = life(&[(1, 2.0, 0.1, 5), (0, 2.02, 0.1, 5)]);
    let down = life(&[(0, 4.0, 0.1, 5), (1, 2.0, 0.1, 5), (0, 4.0, 0.1, 5)]);
    let found = moves(&topology(), &[up, no_gain, down]);
    assert_eq!((found.rows.len(), found.paid), (4, 2));
    let factors: Vec<f64> = found.rows.iter().map(|row| row.speed_up()).collect();
    for (factor, expected) in factors.iter().zip([2.5, 1.01, 2.0, 2.0]) {
        assert!((factor - expected).abs() < 1e-6, "{factors:?}");
    }
}

#[test]
fn only_samples_near_the_move_count() {
    // 200 ms at half of the speed come long before the move.
    let life = life(&[(1, 1.0, 0.1, 50), (1, 2.0, 0.1, 10), (0, 5.0, 0.1, 30)]);
    let found = moves(&topology(), &[life]);
    assert!((found.rows[0].speed_up() - 2.5).abs() < 1e-6);
}

#[test]
fn moves_to_other_work_and_short_stays_are_left_out() {
    let other_work = life(&[(1, 2.0, 0.1, 5), (0, 5.0, 0.2, 5)]);
    let short = life(&[(1, 2.0, 0.1, 5), (0, 5.0, 0.1, 1)]);
    let found = moves(&topology(), &[other_work, short]);
    assert_eq!((found.rows.len(), found.drifted, found.short), (0, 1, 1));
}
