//! The whole simulator: programs, Linux model and progress model behind the engine's two verbs.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use std::path::Path;
use std::sync::Arc;

use countersteer_core::driver::{DriverConfig, drive};
use countersteer_core::engine::{Engine, ThreadEventKind, Watch};
use countersteer_core::machine::Machine;
use countersteer_core::metric::MetricBank;
use countersteer_core::policy::{self, PolicyRng};
use countersteer_core::profile::Profile;
use countersteer_core::sample::Event;
use countersteer_core::score::{ProgramScore, Score};
use countersteer_core::topology::{GroupBy, Topology};
use countersteer_core::units::Nanos;
use countersteer_sim::engine::{Plan, PlannedProgram, SimConfig, Simulation};
use countersteer_sim::linux::LinuxConfig;
use countersteer_sim::progress::{ProgressConfig, synthetic};
use rand::SeedableRng;

fn read(path: &str) -> String {
    std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(path),
    )
    .unwrap()
}

fn machine(name: &str) -> Arc<Topology> {
    let path = format!("machines/{name}.toml");
    Arc::new(Topology::new(&Machine::parse(&path, &read(&path)).unwrap()))
}

fn spec(name: &str) -> Arc<Profile> {
    let path = format!("profiles/spec2017/{name}.toml");
    Arc::new(Profile::parse(&path, &read(&path)).unwrap())
}

fn program(name: &str, profile: &Arc<Profile>, threads: u32, scale: f64) -> PlannedProgram {
    let profile = Arc::clone(profile);
    let start = Nanos::ZERO;
    PlannedProgram {
        name: name.into(),
        profile,
        threads,
        serial_share: 0.0,
        nice: 0,
        start,
        bursts: None,
        launch_on: None,
        scale,
    }
}

fn config(ideal: bool, seed: u64) -> SimConfig {
    SimConfig {
        seed,
        linux: LinuxConfig {
            seed,
            ..LinuxConfig::default()
        },
        progress: ProgressConfig {
            contention: !ideal,
            costs: !ideal,
            ..ProgressConfig::default()
        },
        counter_noise: if ideal { 0.0 } else { 0.01 },
        sample_cost: if ideal {
            Nanos::ZERO
        } else {
            Nanos::from_micros(2)
        },
        rounds: 3,
        trace: false,
        governor: None,
    }
}

fn score(topology: &Arc<Topology>, plan: &Plan, spec: &str, config: SimConfig) -> Score {
    let seed = config.seed;
    let mut policy = countersteer_policies::parse(spec, topology).unwrap();
    let mut simulation = Simulation::new(Arc::clone(topology), plan, config).unwrap();
    let driver = DriverConfig {
        period: Nanos::from_millis(100),
        until: Nanos::NEVER,
    };
    let mut rng = PolicyRng::seed_from_u64(seed);
    drive(&mut simulation, policy.as_mut(), &mut [], driver, &mut rng).unwrap();
    Score::of(&simulation.outcome())
}

const SIXTEEN: [&str; 8] = [
    "503.bwaves_r",
    "505.mcf_r",
    "521.wrf_r",
    "538.imagick_r",
    "500.perlbench_r",
    "541.leela_r",
    "548.exchange2_r",
    "557.xz_r",
];

fn sixteen() -> Plan {
    let programs = (0..16).map(|i| program(&format!("p{i}"), &spec(SIXTEEN[i % 8]), 1, 0.02));
    Plan {
        programs: programs.collect(),
    }
}

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
    recorded.shape = countersteer_core::profile::ThreadShape {
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
fn sleeping_between_bursts_lengthens_a_run_by_the_sleeps() {
    let topology = machine("i9-12900k-8p8e");
    let mut sleepy = program("sleepy", &spec("541.leela_r"), 1, 0.001);
    sleepy.bursts = Some((100e6, Nanos::from_millis(5)));
    let score = score(
        &topology,
        &Plan {
            programs: vec![sleepy],
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

#[test]
fn a_thread_that_changes_core_type_yields_a_sample_for_each() {
    let topology = machine("i9-12900k-8p8e");
    let plan = Plan {
        programs: vec![program("one", &spec("557.xz_r"), 1, 1.0)],
    };
    let mut simulation = Simulation::new(Arc::clone(&topology), &plan, config(true, 1)).unwrap();
    let thread = simulation
        .observe(&Watch::default(), Nanos::ZERO)
        .unwrap()
        .threads[0]
        .id;
    let groups = topology.groups_by(GroupBy::CoreType);
    let mut types = Vec::new();
    for (at, group) in [(50, &groups[0]), (100, &groups[1]), (150, &groups[0])] {
        let mut policy =
            countersteer_policies::parse(&format!("static:*={}", group.name), &topology).unwrap();
        let seen = simulation
            .observe(&Watch::default(), Nanos::from_millis(at))
            .unwrap();
        let placement = {
            let bank = MetricBank::new(&topology, &[]);
            let mut view = policy::View {
                group: None,
                programs: &[],
                now: seen.at,
                topology: &topology,
                threads: &seen.threads,
                events: &seen.events,
                metrics: &bank,
                forecast: None,
            };
            policy.decide(&mut view, &mut PolicyRng::seed_from_u64(0))
        };
        simulation.apply(&placement).unwrap();
    }
    let seen = simulation
        .observe(&Watch::default(), Nanos::from_millis(200))
        .unwrap();
    for sample in &seen.samples {
        assert_eq!(sample.thread, thread);
        types.push(sample.core_type.0);
        assert!(sample.counts.get(Event::Instructions).unwrap() > 0.0);
    }
    assert_eq!(types, [0]);
    assert!(
        seen.events
            .iter()
            .any(|e| matches!(e.kind, ThreadEventKind::Migrate { .. }))
    );
}

/// Speed-up factors of sixteen threads that stay where they are, by the untrained model over counters; and how many sets took turns for it.
fn factors(counters: u32, fixed: u32) -> (Vec<f64>, u32) {
    let path = "machines/i9-12900k-8p8e.toml";
    let mut machine = Machine::parse(path, &read(path)).unwrap();
    machine
        .core_type
        .iter_mut()
        .for_each(|t| (t.counters, t.fixed_counters) = (counters, fixed));
    let mut topology = Topology::new(&machine);
    topology.models.clear();
    let topology = Arc::new(topology);
    let mut simulation =
        Simulation::new(Arc::clone(&topology), &sixteen(), config(true, 1)).unwrap();
    let watch = Watch {
        metrics: &["sf"],
        ..Watch::default()
    };
    let mut bank = MetricBank::new(&topology, &["sf"]);
    let rare = [Event::LlcReferences, Event::LlcMisses, Event::BranchMisses];
    let mut threads = Vec::new();
    let mut sets = 0;
    for at in 0..20 {
        let seen = simulation
            .observe(&watch, Nanos::from_millis(at * 100))
            .unwrap();
        for sample in &seen.samples {
            let counted = rare
                .iter()
                .filter(|event| sample.counts.get(**event).is_some())
                .count();
            assert!(
                counted <= counters as usize && sample.counts.get(Event::Instructions).is_some()
            );
            sets = sample.sets;
        }
        bank.update(&seen);
        threads = seen.threads;
    }
    (
        threads
            .iter()
            .filter_map(|t| bank.get(t.id, "sf"))
            .collect(),
        sets,
    )
}

#[test]
fn with_few_counters_sets_take_turns_and_tell_the_same_factors() {
    let (at_once, one) = factors(8, 2);
    assert_eq!((one, at_once.len()), (1, 16));
    // The last has to count cycles in a set of their own.
    for (counters, fixed, wanted) in [(2, 2, 2), (1, 2, 3), (2, 0, 4)] {
        let (few, sets) = factors(counters, fixed);
        assert_eq!((sets, few.len()), (wanted, 16));
        let off = at_once
            .iter()
            .zip(&few)
            .map(|(all, few)| (few / all - 1.0).abs())
            .fold(0.0, f64::max);
        assert!(off < 0.05, "{off} {at_once:?} {few:?}");
    }
    // None is left for what the model would like to know besides.
    let (blind, sets) = factors(0, 2);
    assert_eq!((sets, blind.len()), (1, 16));
}

#[test]
fn a_machine_without_the_tables_core_types_says_which_it_has() {
    let topology = machine("core2-quad");
    let plan = Plan {
        programs: vec![program("one", &spec("557.xz_r"), 1, 1.0)],
    };
    let error = Simulation::new(topology, &plan, config(true, 1))
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("557.xz_r") && error.contains("golden-cove") && error.contains("core2-quad"),
        "{error}"
    );
}

/// The slowdown that `n` threads of these speed-up factors have in common when it is equal, on `big` big cores.
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
    let plan = Plan { programs };
    let slowdown = |spec| {
        let score = score(&topology, &plan, spec, config(true, 1));
        score.programs[1].slowdown
    };
    // By application each single thread could have 8/3 big cores and keeps one; by thread it has half of one.
    assert!((slowdown("rr") - 1.0).abs() < 0.03);
    assert!(slowdown("adwrr") > 1.1);
}

fn recorded(name: &str) -> Arc<Profile> {
    let path = format!("profiles/recorded/{name}.json");
    Arc::new(Profile::parse(&path, &read(&path)).unwrap())
}

fn four_kinds() -> Plan {
    let kinds = ["stream", "stockfish", "mix", "matmul"];
    let programs = kinds.map(|name| program(name, &recorded(name), 1, 20.0));
    Plan {
        programs: programs.into(),
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
    };
    let migrations = |spec| score(&topology, &plan, spec, config(false, 1)).migrations;
    assert!(migrations("ipc-driven") > migrations("hass"));
}

/// Events that the model tells beside instructions and cycles.
const OFFERED: [Event; 12] = [
    Event::L1dAccesses,
    Event::L1dMisses,
    Event::L2Accesses,
    Event::L2Misses,
    Event::Loads,
    Event::Stores,
    Event::FpOperations,
    Event::SimdOperations,
    Event::Branches,
    Event::StallMemory,
    Event::StallBranches,
    Event::StallOther,
];

#[test]
fn each_core_type_counts_what_it_has_counters_for_in_sets_of_its_own() {
    let path = "machines/i9-12900k-8p8e.toml";
    let mut machine = Machine::parse(path, &read(path)).unwrap();
    machine.core_type[0].counters = 64;
    machine.core_type[1].counters = 4;
    machine.core_type[1].uncounted = vec!["simd_operations".into(), "loads".into()];
    let topology = Arc::new(Topology::new(&machine));
    let name = "profiles/recorded/gzip.json";
    let profile = Arc::new(Profile::parse(name, &read(name)).unwrap());
    let programs = (0..16).map(|i| program(&format!("p{i}"), &profile, 1, 10.0));
    let plan = Plan {
        programs: programs.collect(),
    };
    let mut simulation = Simulation::new(Arc::clone(&topology), &plan, config(true, 1))
        .unwrap()
        .counting_events(&OFFERED);
    let mut seen = [std::collections::BTreeSet::new(), Default::default()];
    for at in 0..12 {
        let observed = simulation
            .observe(&Watch::default(), Nanos::from_millis(at * 100))
            .unwrap();
        for sample in &observed.samples {
            let core_type = &topology.core_types[sample.core_type.index()];
            assert_eq!(sample.sets, [1, 3][sample.core_type.index()], "{sample:?}");
            let get = |event| sample.counts.get(event);
            assert!(get(Event::DtlbLoadMisses).is_none());
            assert!(get(Event::Instructions).is_some() && get(Event::EnergyNj).is_some());
            let counted: Vec<Event> = OFFERED
                .into_iter()
                .filter(|event| get(*event).is_some())
                .collect();
            assert!(counted.len() <= core_type.counters as usize);
            seen[sample.core_type.index()].extend(counted);
            let all = [
                Event::Instructions,
                Event::StallMemory,
                Event::StallBranches,
                Event::StallOther,
            ];
            if let [Some(n), Some(memory), Some(branches), Some(other)] = all.map(get) {
                let cycles = n / core_type.dispatch_width + memory + branches + other;
                let off = cycles / get(Event::Cycles).unwrap() - 1.0;
                assert!(off.abs() < 1e-3, "every cycle has a cause: {off}");
            }
        }
    }
    assert_eq!((seen[0].len(), seen[1].len()), (12, 10));
}

/// Runs alone, fast cores first and on slow cores only, of programs with so many threads and such serial shares.
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
    // One thread's time for the whole work on each type, from which all others follow.
    let (fast, slow) = found[0];
    // Two threads fit the two fast cores.
    assert_near(found[1].0, fast * (0.25 + 0.75 / 2.0));
    assert_near(found[1].1, slow * (0.25 + 0.75 / 2.0));
    // Ten threads: two are done first, then two that were on slow cores, which have `r` of their share left, and so on.
    let r = 1.0 - fast / slow;
    let parallel = fast / 10.0 * (1.0 + r + r.powi(2) + r.powi(3) + r.powi(4));
    assert_near(found[2].0, parallel);
    assert_near(found[2].1, slow / 10.0);
    assert_near(found[3].0, 0.2 * fast + 0.8 * parallel);
    assert_near(found[3].1, 0.2 * slow + 0.8 * slow / 10.0);
    // More threads than CPUs share all of them.
    assert_near(found[4].0, 1.0 / (2.0 / fast + 10.0 / slow));
    assert_near(found[4].1, slow / 10.0);
    // All serial: nine threads wait.
    assert_near(found[5].0, fast);
    let two_equal = machine("core2-quad");
    let found = alone(&two_equal, &[(1, 0.0), (4, 0.5), (3, 0.0)]);
    assert_near(found[1].0, found[0].0 * (0.5 + 0.5 / 4.0));
    assert_near(found[2].0, found[0].0 / 3.0);
    assert!(found.iter().all(|(fast, slow)| fast == slow));
}

/// Two programs of one thread beside one of ten on two fast and ten slow cores, each thread on a core of its own: the single
/// threads on the fast ones.
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
    };
    let mapping = "static:gzip=cpu0,gcc=cpu6,perl=1-5+7-11";
    let score = score(&topology, &plan, mapping, config(true, 1));
    let [gzip, gcc, perl] = &score.programs[..] else {
        panic!("three programs")
    };
    // The two have what they would have alone; the ten threads have all slow cores and lack the two fast ones.
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

/// The mix of before, with everything that costs time: `hsf` finds by itself the mapping that the paper set by hand, since serial
/// programs come before the parallel one however high its threads' factors are.
#[test]
fn serial_programs_get_the_big_cores_as_in_the_published_mapping() {
    let topology = machine("opteron-2425-2b-10s");
    let names = [("gzip", 1, 10.0), ("gcc", 1, 10.0), ("perl", 10, 100.0)];
    let programs =
        names.map(|(name, threads, scale)| program(name, &recorded(name), threads, scale));
    let plan = Plan {
        programs: programs.into(),
    };
    let asp = |policy| score(&topology, &plan, policy, config(false, 1)).asp;
    let published = asp("static:gzip=cpu0,gcc=cpu6,perl=1-5+7-11");
    let (hsf, by_thread) = (asp("hsf"), asp("hsf:tlp=thread"));
    assert!(
        hsf >= 0.95 * published && by_thread < 0.9 * published,
        "published {published}, hsf {hsf}, ranked by thread {by_thread}"
    );
}

/// Time alone of one thread on a fast core over that on a slow one.
fn alone_ratio(topology: &Arc<Topology>, profile: &Arc<Profile>) -> f64 {
    let plan = Plan {
        programs: vec![program("p", profile, 1, 1.0)],
    };
    let mut simulation = Simulation::new(Arc::clone(topology), &plan, config(true, 1)).unwrap();
    let alone = &simulation.outcome().programs[0];
    alone.alone_fast_s / alone.alone_slow_s
}

#[test]
fn exchanges_that_counters_predict_to_pay_do() {
    let topology = machine("juno-2-4");
    let names = ["chase", "stream", "matmul", "bzip2", "perl", "x264-plain"];
    let programs = names.map(|name| program(name, &recorded(name), 1, 30.0));
    let plan = Plan {
        programs: programs.into(),
    };
    let stp = |policy| score(&topology, &plan, policy, config(false, 1)).stp;
    // By the model alone, since measured factors would contain the company.
    let (linux, high_sf, joint) = (stp("linux"), stp("hsf:sf=steps"), stp("joint"));
    // `hsf` with a model that was trained on these programs is 1.8 % above `joint` here; the second bound only keeps that from growing.
    assert!(
        joint > 1.05 * linux && joint > 0.98 * high_sf,
        "linux {linux}, hsf {high_sf}, joint {joint}"
    );
    // Few moves, or none would pay.
    let moves = score(&topology, &plan, "joint", config(false, 1)).migrations;
    assert!(moves < 400, "{moves}");
}
