//! Co-runners, memory load and repeated changes.

use countersteer_model::testing::{TWO_LLCS, topology};

use super::super::curve::CurveSums;
use super::*;

/// Thread with this many misses at this many lines, and half of them at four times the lines.
fn subject(misses: f64, lines: f64) -> PredictedThread {
    let mut points = CurveSums::default();
    points.note(lines, misses, 1.0);
    PredictedThread {
        base: vec![0.1],
        exposed: 0.5,
        curve: points.curve(),
        alone: 5.0,
        seen: 0.0,
        weight: 1.0,
        nj: vec![1.0],
    }
}

fn predictor<'a>(
    places: &'a MachinePlaces,
    subjects: &'a [PredictedThread],
    mapping: &[usize],
) -> Predictor<'a> {
    let elsewhere = Elsewhere {
        load: vec![0; places.spots.len()],
        traffic: vec![0.0; places.memory.len()],
    };
    Predictor::new(places, subjects, mapping.to_vec(), elsewhere)
}

#[test]
fn a_thread_that_misses_more_takes_more_of_a_shared_cache_and_slows_its_neighbour() {
    let places = MachinePlaces::new(&topology(TWO_LLCS));
    let subjects = [subject(0.05, 65_536.0), subject(0.002, 65_536.0)];
    let together = predictor(&places, &subjects, &[0, 1]);
    let apart = predictor(&places, &subjects, &[0, 2]);
    assert!(together.held[0][0] > 1.5 * together.held[1][0]);
    let held: f64 = together.held.iter().map(|h| h[0]).sum();
    assert!(
        (held / 65_536.0 - 1.0).abs() < 0.05,
        "the cache is full: {held}"
    );
    assert!(together.speeds[1] < 0.97 * apart.speeds[1]);
}

#[test]
fn a_change_tried_says_what_making_it_says() {
    let places = MachinePlaces::new(&topology(TWO_LLCS));
    let subjects = [0.05, 0.04, 0.002, 0.001].map(|misses| subject(misses, 65_536.0));
    let mut tried = predictor(&places, &subjects, &[0, 2, 1, 3]);
    let before = tried.speeds.clone();
    let change = [(1, 1), (2, 2)];
    let outcome = tried.attempt(&change);
    assert_eq!(tried.speeds, before, "nothing was changed");
    let mut made = predictor(&places, &subjects, &[0, 2, 1, 3]);
    made.change(&change);
    for (row, speed) in outcome.speeds {
        assert!(
            (speed / made.speeds[row] - 1.0).abs() < 0.1,
            "{row}: {speed}, {}",
            made.speeds[row]
        );
    }
}

#[test]
fn threads_of_one_core_do_not_slow_each_other_by_memory_load() {
    let places = MachinePlaces::new(&topology(TWO_LLCS));
    let stream = PredictedThread {
        exposed: 0.02,
        ..subject(0.5, 262_144.0)
    };
    let quiet = subject(1e-5, 1_024.0);
    let subjects = [stream.clone(), stream, quiet.clone(), quiet];
    let never = predictor(&places, &subjects, &[0, 0, 1, 1]);
    let meeting = predictor(&places, &subjects, &[0, 1, 0, 1]);
    for row in 0..2 {
        let (apart, together) = (never.speeds[row], meeting.speeds[row]);
        assert!(apart > 1.02 * together, "{row}: {apart}, {together}");
    }
}

#[test]
fn memory_is_slower_the_more_is_asked_of_it() {
    let places = MachinePlaces::new(&topology(TWO_LLCS));
    let stream = PredictedThread {
        exposed: 0.02,
        ..subject(0.5, 262_144.0)
    };
    let subjects = [0; 4].map(|_| stream.clone());
    let p = predictor(&places, &subjects, &[0, 1, 2, 3]);
    assert!(p.factor[0] > 2.0, "{:?}", p.factor);
}
