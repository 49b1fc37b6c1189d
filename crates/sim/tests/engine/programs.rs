//! Tests of the threads of a program: shares of its work, restarts, sleeps, and times alone.

use super::*;

#[test]
fn the_same_seed_gives_the_same_scores_and_another_seed_others() {
    let topology = machine("i9-12900k-8p8e");
    let run = |seed| {
        serde_json::to_string(&score(&topology, &sixteen(), "hsf", config(false, seed))).unwrap()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn threads_of_one_program_share_its_work_and_restart_together() {
    let topology = machine("i9-12900k-8p8e");
    let plan = Plan {
        programs: vec![program("many", &spec("548.exchange2_r"), 4, 0.05)],
        ..Plan::default()
    };
    let score = score(&topology, &plan, "linux", config(true, 1));
    let p = &score.programs[0];
    assert!(p.runs >= 3);
    assert!(
        (p.completion_s / p.alone_fast_s - 1.0).abs() < 0.02,
        "{} for {}",
        p.completion_s,
        p.alone_fast_s
    );
}

#[test]
fn a_program_recorded_with_one_thread_splits_evenly_among_a_thousand() {
    let topology = machine("server-12llc");
    let path = "profiles/recorded/xz.json";
    let profile = Arc::new(Profile::parse(path, &read(path)).unwrap());
    let plan = Plan {
        programs: vec![program("crowd", &profile, 1_000, 1.0)],
        ..Plan::default()
    };
    let score = score(&topology, &plan, "hsf", config(false, 1));
    let p = &score.programs[0];
    assert!(
        p.runs >= 3 && p.completion_s < 0.1 * p.alone_fast_s * 96.0,
        "{p:?}"
    );
}

#[test]
fn a_program_that_is_all_serial_finishes_whatever_its_threads() {
    let topology = machine("core2-quad");
    let path = "profiles/recorded/gzip.json";
    let Profile::Recorded(mut recorded) = Profile::parse(path, &read(path)).unwrap() else {
        unreachable!()
    };
    recorded.shape = countersteer_model::profile::ThreadShape {
        threads: 4,
        serial_share: 1.0,
        ..Default::default()
    };
    let profile = Arc::new(Profile::Recorded(recorded));
    let score = score(
        &topology,
        &Plan {
            programs: vec![PlannedProgram {
                serial_share: 1.0,
                ..program("serial", &profile, 4, 1.0)
            }],
            ..Plan::default()
        },
        "linux",
        config(true, 1),
    );
    let p = &score.programs[0];
    assert!(
        p.runs >= 3 && (p.completion_s / p.alone_fast_s - 1.0).abs() < 0.01,
        "{p:?}"
    );
}

#[test]
fn time_on_cpus_is_whole_where_running_threads_are_pulled_to_larger_ones() {
    let topology = machine("juno-2-4");
    let (gzip, xz) = (recorded("gzip"), recorded("xz"));
    let sleepy = |n: usize| PlannedProgram {
        bursts: Some((40e6, Nanos::from_millis(15))),
        ..program(&format!("p{n}"), if n < 4 { &gzip } else { &xz }, 1, 1.0)
    };
    let plan = Plan {
        programs: (0..6).map(sleepy).collect(),
        ..Plan::default()
    };
    let config = SimConfig {
        trace: true,
        rounds: 1,
        ..config(true, 1)
    };
    let mut simulation = Simulation::new(Arc::clone(&topology), &plan, config).unwrap();
    let (mut spans, mut counted) = ([0; 6], [0; 6]);
    for period in 0.. {
        let until = Nanos::from_millis(period * 100);
        let seen = simulation.observe(&Watch::default(), until).unwrap();
        for span in &seen.spans {
            spans[span.thread.index()] += span.end.since(span.start).0;
        }
        for (thread, sample) in seen.samples.of_threads() {
            counted[thread.index()] += sample.running.0;
        }
        if seen.finished {
            break;
        }
    }
    for (row, usage) in simulation.usage().iter().enumerate() {
        let used: f64 = usage.cpu_s.iter().sum();
        let others = [spans[row], counted[row]].map(|ns| ns as f64 / 1e9);
        for other in others {
            assert!((other - used).abs() < 1e-5, "{row}: {used}, {others:?}");
        }
    }
}

#[test]
fn sleeping_between_bursts_lengthens_a_run_by_the_sleeps() {
    let topology = machine("i9-12900k-8p8e");
    let mut sleepy = program("sleepy", &spec("541.leela_r"), 1, 0.001);
    sleepy.bursts = Some((100e6, Nanos::from_millis(5)));
    let score = score(
        &topology,
        &Plan {
            programs: vec![sleepy],
            ..Plan::default()
        },
        "linux",
        config(true, 3),
    );
    let p = &score.programs[0];
    // 2.08 G instructions in bursts of 0.1 G: twenty sleeps of 5 ms, on both sides of the comparison.
    assert!(p.alone_fast_s > 0.1 + 0.2, "{}", p.alone_fast_s);
    assert!(
        (p.completion_s / p.alone_fast_s - 1.0).abs() < 0.02,
        "{} for {}",
        p.completion_s,
        p.alone_fast_s
    );
}

/// Seconds of runs alone, fast cores first and on slow cores only, of programs given as (threads, serial share).
fn alone(topology: &Arc<Topology>, rows: &[(u32, f64)]) -> Vec<(f64, f64)> {
    let profile = Arc::new(synthetic::profile(
        "p",
        &[(synthetic::compute(), 1_000_000_000)],
    ));
    let programs = rows.iter().map(|(threads, serial_share)| PlannedProgram {
        serial_share: *serial_share,
        ..program("p", &profile, *threads, 1.0)
    });
    let plan = Plan {
        programs: programs.collect(),
        ..Plan::default()
    };
    let mut simulation = Simulation::new(Arc::clone(topology), &plan, config(true, 1)).unwrap();
    let programs = simulation.outcome().programs;
    programs
        .iter()
        .map(|p| (p.alone_fast_s, p.alone_slow_s))
        .collect()
}

fn assert_near(found: f64, expected: f64) {
    assert!(
        (found / expected - 1.0).abs() < 1e-6,
        "{found} for {expected}"
    );
}

#[test]
fn a_program_alone_has_the_whole_machine_with_all_its_threads_fast_cores_first() {
    let two_fast_ten_slow = machine("opteron-2425-2b-10s");
    let rows = [
        (1, 0.0),
        (2, 0.25),
        (10, 0.0),
        (10, 0.2),
        (24, 0.0),
        (10, 1.0),
    ];
    let found = alone(&two_fast_ten_slow, &rows);
    // The time of one thread for the whole work on each type determines all others.
    let (fast, slow) = found[0];
    // Two threads fit the two fast cores.
    assert_near(found[1].0, fast * (0.25 + 0.75 / 2.0));
    assert_near(found[1].1, slow * (0.25 + 0.75 / 2.0));
    // Ten threads: two finish first, then two from slow cores, which have `r` of their share left, and so on.
    let r = 1.0 - fast / slow;
    let parallel = fast / 10.0 * (1.0 + r + r.powi(2) + r.powi(3) + r.powi(4));
    assert_near(found[2].0, parallel);
    assert_near(found[2].1, slow / 10.0);
    assert_near(found[3].0, 0.2 * fast + 0.8 * parallel);
    assert_near(found[3].1, 0.2 * slow + 0.8 * slow / 10.0);
    // More threads than CPUs share all of them.
    assert_near(found[4].0, 1.0 / (2.0 / fast + 10.0 / slow));
    assert_near(found[4].1, slow / 10.0);
    // All work is serial: nine threads wait.
    assert_near(found[5].0, fast);
    let two_equal = machine("core2-quad");
    let found = alone(&two_equal, &[(1, 0.0), (4, 0.5), (3, 0.0)]);
    assert_near(found[1].0, found[0].0 * (0.5 + 0.5 / 4.0));
    assert_near(found[2].0, found[0].0 / 3.0);
    assert!(found.iter().all(|(fast, slow)| fast == slow));
}

/// Seconds of a run on all CPUs of a machine with 8 fast and 8 slow cores, one thread each, and of one run alone.
fn seconds_of(barriers: u32, chunk: Option<f64>, serial_share: f64) -> (f64, f64) {
    let topology = machine("i9-12900k-8p8e");
    let profile = Arc::new(synthetic::profile(
        "p",
        &[(synthetic::compute(), 1_000_000_000)],
    ));
    let plan = Plan {
        programs: vec![PlannedProgram {
            barriers,
            chunk,
            serial_share,
            ..program("p", &profile, 16, 8.0)
        }],
        ..Plan::default()
    };
    let score = score(&topology, &plan, "linux", config(false, 1));
    (
        score.programs[0].completion_s,
        score.programs[0].alone_fast_s,
    )
}

#[test]
fn chunks_keep_all_cores_at_work_and_barriers_wait_for_the_slowest() {
    let (dynamic_s, alone_s) = seconds_of(1, Some(1e6), 0.0);
    assert!(
        (dynamic_s / alone_s - 1.0).abs() < 0.02,
        "{dynamic_s} for {alone_s}"
    );
    // Equal shares: fast cores idle at each barrier, and a pause is too short for threads to be moved to them.
    let (static_s, _) = seconds_of(1000, None, 0.0);
    assert!(static_s > 1.2 * dynamic_s, "{static_s} and {dynamic_s}");
    let (both_s, _) = seconds_of(1000, Some(2e4), 0.0);
    assert!(
        both_s > dynamic_s && both_s < static_s,
        "{both_s} and {dynamic_s}"
    );
}

#[test]
fn pieces_between_barriers_have_each_their_serial_part() {
    let (whole_s, _) = seconds_of(1, Some(1e5), 0.1);
    let (pieces_s, alone_s) = seconds_of(50, Some(1e5), 0.1);
    assert!(
        (pieces_s / whole_s - 1.0).abs() < 0.02 && (pieces_s / alone_s - 1.0).abs() < 0.1,
        "{pieces_s}, {whole_s}, {alone_s}"
    );
}
