//! Tests of policies against closed forms, published mappings and each other.

use super::*;

#[test]
fn equal_shares_of_big_cores_give_the_closed_form_of_completion_times() {
    let topology = machine("i9-12900k-8p8e");
    let score = score(&topology, &sixteen(), "aarr", config(true, 1));
    for p in &score.programs {
        let expected = 2.0 / (1.0 / p.alone_fast_s + 1.0 / p.alone_slow_s);
        assert!(
            (p.completion_s / expected - 1.0).abs() < 0.005,
            "{}: {} for {expected}",
            p.name,
            p.completion_s
        );
    }
}

#[test]
fn high_speedup_first_with_true_factors_reaches_the_ideal() {
    let topology = machine("i9-12900k-8p8e");
    let score = score(&topology, &sixteen(), "hsf:sf=oracle", config(true, 1));
    let mut gains: Vec<f64> = score
        .programs
        .iter()
        .map(|p| p.alone_slow_s / p.alone_fast_s - 1.0)
        .collect();
    gains.sort_by(|a, b| b.total_cmp(a));
    let ideal: f64 = gains[..8].iter().sum();
    assert!(
        (score.asp / ideal - 1.0).abs() < 0.01,
        "{} for {ideal}",
        score.asp
    );
}

/// Common slowdown of threads with these speed-up factors if it is equal, on `big` big cores.
fn equal_slowdown(sf: &[f64], big: f64) -> f64 {
    let sum = |f: fn(f64) -> f64| sf.iter().map(|sf| f(*sf)).sum::<f64>();
    sum(|sf| sf / (sf - 1.0)) / (big + sum(|sf| 1.0 / (sf - 1.0)))
}

#[test]
fn fair_policies_with_true_factors_give_every_program_the_slowdown_of_the_closed_form() {
    let topology = machine("i9-12900k-8p8e");
    for spec in ["acfs:sf=oracle", "eqp:sf=oracle"] {
        let score = score(&topology, &sixteen(), spec, config(true, 1));
        let factors: Vec<f64> = score
            .programs
            .iter()
            .map(|p| p.alone_slow_s / p.alone_fast_s)
            .collect();
        let expected = equal_slowdown(&factors, 8.0);
        for p in &score.programs {
            let ratio = p.slowdown / expected;
            assert!((ratio - 1.0).abs() < 0.03, "{spec}, {}: {ratio}", p.name);
        }
    }
}

#[test]
fn even_shares_of_time_are_alike_for_single_threads() {
    let topology = machine("i9-12900k-8p8e");
    for spec in ["rr", "adwrr"] {
        let score = score(&topology, &sixteen(), spec, config(true, 1));
        for p in &score.programs {
            let expected = 2.0 / (1.0 / p.alone_fast_s + 1.0 / p.alone_slow_s);
            let ratio = p.completion_s / expected;
            assert!((ratio - 1.0).abs() < 0.03, "{spec}, {}: {ratio}", p.name);
        }
    }
}

#[test]
fn rr_shares_by_application_and_adwrr_by_thread() {
    let topology = machine("i9-12900k-8p8e");
    let profile = spec("548.exchange2_r");
    let mut programs = vec![program("many", &profile, 14, 0.2)];
    programs.push(program("one", &profile, 1, 0.02));
    programs.push(program("two", &profile, 1, 0.02));
    let plan = Plan {
        programs,
        ..Plan::default()
    };
    let slowdown = |spec| {
        let score = score(&topology, &plan, spec, config(true, 1));
        score.programs[1].slowdown
    };
    // By application, each single thread could have 8/3 big cores and keeps one; by thread, it has half of one.
    assert!((slowdown("rr") - 1.0).abs() < 0.03);
    assert!(slowdown("adwrr") > 1.1);
}

fn four_kinds() -> Plan {
    let kinds = ["stream", "stockfish", "mix", "matmul"];
    let programs = kinds.map(|name| program(name, &recorded(name), 1, 20.0));
    Plan {
        programs: programs.into(),
        ..Plan::default()
    }
}

#[test]
fn signatures_gain_most_of_what_true_factors_gain_where_no_cache_is_shared() {
    let topology = machine("opteron-8356-2-2");
    let asp = |spec| score(&topology, &four_kinds(), spec, config(true, 1)).asp;
    let (hass, best) = (asp("hass"), asp("hsf:sf=oracle"));
    assert!(hass > 0.85 * best, "{hass} for {best}");
    let random: f64 = (1..=5)
        .map(|seed| score(&topology, &four_kinds(), "default", config(true, seed)).asp)
        .sum::<f64>()
        / 5.0;
    assert!(hass > 1.05 * random, "{hass} beside {random}");
}

#[test]
fn visits_cost_homogeneous_work_time() {
    let topology = machine("opteron-8356-2-2");
    let same = |i: usize| program(&format!("p{i}"), &recorded("matmul"), 1, 20.0);
    let plan = Plan {
        programs: (0..4).map(same).collect(),
        ..Plan::default()
    };
    let migrations = |spec| score(&topology, &plan, spec, config(false, 1)).migrations;
    assert!(migrations("ipc-driven") > migrations("hass"));
}

/// Two programs of one thread next to one of ten threads on two fast and ten slow cores. Each thread has its own core, the single
/// threads the fast ones.
#[test]
fn a_mix_of_serial_and_parallel_programs_has_the_scores_that_follow_by_hand() {
    let topology = machine("opteron-2425-2b-10s");
    let recorded = |name: &str| {
        let path = format!("profiles/recorded/{name}.json");
        Arc::new(Profile::parse(&path, &read(&path)).unwrap())
    };
    let names = [("gzip", 1, 1.0), ("gcc", 1, 1.0), ("perl", 10, 10.0)];
    let plan = Plan {
        programs: names
            .map(|(name, threads, scale)| program(name, &recorded(name), threads, scale))
            .into(),
        ..Plan::default()
    };
    let mapping = "static:gzip=cpu0,gcc=cpu6,perl=1-5+7-11";
    let score = score(&topology, &plan, mapping, config(true, 1));
    let [gzip, gcc, perl] = &score.programs[..] else {
        panic!("three programs")
    };
    // Both single-threaded programs run as if alone; the ten threads have all slow cores and lack the two fast ones.
    let r = 1.0 - alone_ratio(&topology, &recorded("perl"));
    let rounds = 1.0 + r + r.powi(2) + r.powi(3) + r.powi(4);
    let lacking = 1.0 / ((1.0 - r) * rounds);
    for (program, slowdown) in [(gzip, 1.0), (gcc, 1.0), (perl, lacking)] {
        assert!(
            (program.slowdown / slowdown - 1.0).abs() < 0.01,
            "{}: {} for {slowdown}",
            program.name,
            program.slowdown
        );
    }
    assert!(lacking > 1.0 && lacking < 1.2, "{lacking}");
    let gain = |p: &ProgramScore| p.alone_slow_s / p.alone_fast_s - 1.0;
    let by_hand = [
        (score.asp, gain(gzip) + gain(gcc)),
        (score.stp, 2.0 + 1.0 / lacking),
        (score.antt, (2.0 + lacking) / 3.0),
        (score.unfairness, lacking),
    ];
    for (row, (found, expected)) in by_hand.into_iter().enumerate() {
        assert!(
            (found / expected - 1.0).abs() < 0.01,
            "{row}: {found} for {expected}"
        );
    }
}

/// The previous mix with all costs. `hsf` finds the published mapping by itself, because serial programs come before the parallel
/// one, whatever its threads' factors.
#[test]
fn serial_programs_get_the_big_cores_as_in_the_published_mapping() {
    let topology = machine("opteron-2425-2b-10s");
    let names = [("gzip", 1, 10.0), ("gcc", 1, 10.0), ("perl", 10, 100.0)];
    let programs =
        names.map(|(name, threads, scale)| program(name, &recorded(name), threads, scale));
    let plan = Plan {
        programs: programs.into(),
        ..Plan::default()
    };
    let asp = |policy| score(&topology, &plan, policy, config(false, 1)).asp;
    let published = asp("static:gzip=cpu0,gcc=cpu6,perl=1-5+7-11");
    let (hsf, by_thread) = (asp("hsf"), asp("hsf:tlp=thread"));
    assert!(
        hsf >= 0.95 * published && by_thread < 0.9 * published,
        "published {published}, hsf {hsf}, ranked by thread {by_thread}"
    );
}

/// Time alone of one thread on a fast core divided by that on a slow one.
fn alone_ratio(topology: &Arc<Topology>, profile: &Arc<Profile>) -> f64 {
    let plan = Plan {
        programs: vec![program("p", profile, 1, 1.0)],
        ..Plan::default()
    };
    let mut simulation = Simulation::new(Arc::clone(topology), &plan, config(true, 1)).unwrap();
    let alone = &simulation.outcome().programs[0];
    alone.alone_fast_s / alone.alone_slow_s
}

#[test]
fn exchanges_that_counters_predict_to_pay_do() {
    let topology = machine("juno-2-4");
    let names = ["chase", "stream", "matmul", "bzip2", "perl", "x264-plain"];
    let programs = names.map(|name| {
        let profile = recorded(name);
        program(name, &profile, 1, 30e9 / profile.instructions() as f64)
    });
    let plan = Plan {
        programs: programs.into(),
        ..Plan::default()
    };
    let stp = |policy| score(&topology, &plan, policy, config(false, 1)).stp;
    // Factors come from the model alone, since measured factors would include the effect of co-runners.
    let (linux, high_sf, joint) = (stp("linux"), stp("hsf:sf=steps"), stp("joint"));
    // `hsf` with a model that was trained on these programs is 2.7 % above `joint`, which leaves threads to Linux in their first
    // second. The second bound keeps this difference from growing.
    assert!(
        joint > 1.05 * linux && joint > 0.97 * high_sf,
        "linux {linux}, hsf {high_sf}, joint {joint}"
    );
    // Moves are few; otherwise none would pay.
    let moves = score(&topology, &plan, "joint", config(false, 1)).migrations;
    assert!(moves < 400, "{moves}");
}
