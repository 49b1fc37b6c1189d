//! The upper bound: closed forms, brute force, and runs that must not exceed it.

#![allow(clippy::unwrap_used)] // a test helper that fails has failed its test

#[path = "../examples/bound/draw.rs"]
mod draw;

use std::sync::Arc;

use countersteer_lab::{Experiment, SimOptions, bound, experiment, plan};

/// Programs with one behaviour each; their speed alone determines the result.
fn steady(machine: &str, profiles: &[&str], no_contention: bool) -> Experiment {
    let program = |name: &&str| {
        format!("[[program]]\nprofile = \"../profiles/recorded/{name}.json\"\nthreads = 1\n")
    };
    let text: String = profiles.iter().map(program).collect();
    Experiment {
        machine: experiment::machine(machine).unwrap(),
        workload: Arc::new(plan::of_text("steady", text).unwrap()),
        policy: "linux".into(),
        seed: 1,
        options: SimOptions {
            rounds: 1,
            no_contention,
            ..SimOptions::default()
        },
        detail: None,
    }
}

fn stp_bound(experiment: &Experiment) -> f64 {
    bound::sustained_stp(experiment).unwrap().unwrap()
}

fn is_near(found: f64, expected: f64) {
    // Speeds between table corners are overestimated by a thousandth.
    assert!(
        found >= expected * 0.9999 && found < expected * 1.003,
        "{found} for {expected}"
    );
}

/// Programs fit into their private caches on equal cores. Each is as fast as alone, or shares a CPU.
#[test]
fn alike_cores_give_as_many_programs_as_they_are() {
    for (programs, most) in [(1, 1.0), (2, 2.0), (4, 4.0), (7, 4.0)] {
        for no_contention in [true, false] {
            let experiment = steady("core2-quad", &vec!["bodies"; programs], no_contention);
            is_near(stp_bound(&experiment), most);
        }
    }
}

/// Two fast and two slow cores: the two programs with the highest speed-up factors belong on the fast ones.
#[test]
fn unequal_cores_give_what_sorting_by_speed_up_factor_gives() {
    let experiment = steady("quickia-2b-2s", &["bodies", "mix", "stream", "mix"], true);
    let score = experiment.run().unwrap().score;
    let mut slow: Vec<f64> = score
        .programs
        .iter()
        .map(|p| p.alone_fast_s / p.alone_slow_s)
        .collect();
    slow.sort_by(f64::total_cmp);
    is_near(stp_bound(&experiment), 2.0 + slow[2] + slow[3]);
}

/// All fixed mappings of four programs to two fast and two slow cores; the best of them is near the bound.
#[test]
fn the_best_of_all_fixed_mappings_is_below_and_near() {
    let mut experiment = steady(
        "quickia-2b-2s",
        &["bodies", "mix", "stream", "md5sum"],
        false,
    );
    experiment.options.rounds = 3;
    let most = stp_bound(&experiment);
    let types: Vec<String> = (experiment.machine.topology.core_types.iter())
        .map(|t| t.name.clone())
        .collect();
    let names = ["bodies", "mix", "stream", "md5sum"];
    let mut best = 0.0f64;
    for chosen in 0..16u32 {
        let place = |(row, name): (usize, &&str)| {
            format!("{name}={}", types[usize::from(chosen & 1 << row == 0)])
        };
        let places: Vec<String> = names.iter().enumerate().map(place).collect();
        experiment.policy = format!("static:{}", places.join(","));
        let sustained = experiment.run().unwrap().score.sustained_stp.unwrap();
        assert!(
            sustained <= most,
            "{}: {sustained} of {most}",
            experiment.policy
        );
        best = best.max(sustained);
    }
    assert!(best > 0.93 * most, "{best} of {most}");
}

/// Runs of very different lengths raise the geometric mean in STP without more work.
#[test]
fn what_is_sustained_stays_below_where_runs_differ_in_length() {
    let mut experiment = steady("quickia-2b-2s", &["bodies"; 4], true);
    experiment.policy = "aarr:turn_ms=200".into();
    experiment.options.rounds = 6;
    let score = experiment.run().unwrap().score;
    assert!(score.sustained_stp.unwrap() <= stp_bound(&experiment));
}

#[test]
fn traced_simulations_have_no_bound() {
    let mut experiment = steady("core2-quad", &["bodies"], false);
    experiment.options.fidelity = experiment::Fidelity::Traced;
    assert_eq!(bound::sustained_stp(&experiment).unwrap(), None);
}

/// Some mixes of `examples/bound`, which runs any number of them.
#[test]
fn no_policy_exceeds_it_in_random_mixes() {
    for mix in 1..=6 {
        let experiments = draw::experiments(mix).unwrap();
        let most = stp_bound(&experiments[0]);
        for experiment in &experiments {
            let sustained = experiment.run().unwrap().score.sustained_stp.unwrap();
            let machine = &experiment.machine.machine.name;
            let policy = &experiment.policy;
            assert!(
                sustained <= most,
                "mix {mix}, {policy} on {machine}: {sustained} of {most}"
            );
            assert!(sustained > 0.3 * most, "{sustained} of {most} says nothing");
        }
    }
}
