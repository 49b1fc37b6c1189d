use countersteer_report::record::Detail;

use super::*;
use crate::{Experiment, experiment, library, plan};

fn shipped(name: &str) -> Recorded {
    match library::profile(name.as_ref()).unwrap() {
        Profile::Recorded(profile) => profile,
        Profile::Tabulated(_) => unreachable!("{name} was recorded"),
    }
}

/// Counts of a simulated run alone on a fast core.
fn counts(name: &str) -> (Arc<Topology>, CoreTypeId, Vec<NativeInterval>) {
    let mut experiment = Experiment::named("i9-12900k-8p8e", "unequal-cores", "linux").unwrap();
    let text = format!("[[program]]\nprofile = {name:?}\nlaunch_on = \"0\"\n");
    experiment.workload = Arc::new(plan::of_text("alone", text).unwrap());
    (experiment.options.period_ms, experiment.options.rounds) = (10.0, 1);
    experiment.options.count = ["llc_misses", "branch_misses", "branches", "loads", "stores"]
        .map(String::from)
        .to_vec();
    experiment.detail = Some(Detail::NoSpans);
    let record = experiment.run().unwrap().record.unwrap();
    let (core_type, intervals) = intervals(&record, Some(name)).unwrap();
    (
        Arc::clone(&experiment.machine.topology),
        core_type,
        intervals,
    )
}

#[test]
fn a_window_and_counts_make_the_whole_run() {
    let truth = shipped("bzip2");
    let (topology, core_type, intervals) = counts("bzip2");
    let window = cut(&truth, 0.25);
    window.check().unwrap();
    let found = extend(&window, &topology, core_type, &intervals).unwrap();
    found.profile.check().unwrap();
    let length = found.profile.instructions as f64 / truth.instructions as f64;
    assert!((length - 1.0).abs() < 0.02, "{length}");
    assert!(found.unlike < 0.05, "{}", found.unlike);
    assert_eq!(found.profile.partial, None);
}

#[test]
fn what_the_window_does_not_have_is_unlike() {
    let truth = shipped("bzip2");
    let (topology, core_type, mut intervals) = counts("bzip2");
    // The second half runs at a fifth of the speed, as nothing in the window does.
    let half = intervals.len() / 2;
    for interval in &mut intervals[half..] {
        interval.cycles *= 5.0;
    }
    let window = cut(&truth, 0.25);
    let error = extend(&window, &topology, core_type, &intervals);
    let some = intervals.len() * 8 / 10;
    assert!(error.is_err() || error.unwrap().unlike > 0.4);
    for interval in &mut intervals[half..some] {
        interval.cycles /= 5.0;
    }
    let found = extend(&window, &topology, core_type, &intervals).unwrap();
    assert!((0.1..0.5).contains(&found.unlike), "{}", found.unlike);
    assert!(found.profile.partial.unwrap().contains("unlike"));
}

#[test]
fn a_run_within_the_window_and_one_without_cycles() {
    let whole = shipped("bzip2");
    let topology = &experiment::machine("i9-12900k-8p8e").unwrap().topology;
    let core_type = CoreTypeId::from_index(0);
    let one = NativeInterval {
        instructions: 1e9,
        ..NativeInterval::default()
    };
    let found = extend(&whole, topology, core_type, &[one]).unwrap();
    assert_eq!(found.profile, whole);
    let window = cut(&whole, 0.1);
    let error = extend(&window, topology, core_type, &[one; 9]).unwrap_err();
    assert!(error.to_string().contains("cycles"), "{error}");
}

#[test]
fn an_interval_between_two_behaviours_is_a_mixture_of_both() {
    let of = |cpi: f64, misses: f64| [Some(cpi), Some(misses), Some(0.0), None, None, None];
    let predicted = [of(0.5, 0.0), of(1.5, 0.8), of(3.0, 0.0)];
    let found = nearest(&predicted, &of(1.0, 0.4)).unwrap();
    assert_eq!(found.parts, [(1, 0.5), (0, 0.5)]);
    assert!(found.distance < 1e-9);
    let found = nearest(&predicted, &of(3.0, 0.0)).unwrap();
    assert_eq!(found.parts, [(2, 1.0)]);
    assert!(nearest(&predicted, &[None; QUANTITIES]).is_none());
}
