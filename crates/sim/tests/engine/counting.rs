//! Tests of samples: by core type, in multiplexed event sets, and the factors derived from them.

use super::*;

#[test]
fn a_thread_that_changes_core_type_yields_a_sample_for_each() {
    let topology = machine("i9-12900k-8p8e");
    let plan = Plan {
        programs: vec![program("one", &spec("557.xz_r"), 1, 1.0)],
        ..Plan::default()
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
    for (of, sample) in seen.samples.of_threads() {
        assert_eq!(of, thread);
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

/// Speed-up factors of sixteen pinned threads, by the untrained model over counters, and the number of event sets in use.
fn factors(counters: u32, fixed: u32) -> (Vec<f64>, u32) {
    let path = "machines/i9-12900k-8p8e.toml";
    let mut machine = Machine::parse(path, &read(path)).unwrap();
    machine
        .core_type
        .iter_mut()
        .for_each(|t| (t.counters, t.fixed_counters) = (counters, fixed));
    // The untrained model abstains where designs differ.
    let design = machine.core_type[0].clone();
    for other in &mut machine.core_type[1..] {
        other.dispatch_width = design.dispatch_width;
        other.window = design.window;
        other.branch_penalty_cycles = design.branch_penalty_cycles;
    }
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
        for sample in seen.samples.iter() {
            let counted = rare
                .iter()
                .filter(|event| sample.counts.get(**event).is_some())
                .count();
            assert!(
                counted <= counters as usize && sample.counts.get(Event::Instructions).is_some()
            );
            sets = sample.sets();
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
    // The last machine has to count cycles in a separate set.
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
    // No counter is left for the model's other events.
    let (blind, sets) = factors(0, 2);
    assert_eq!((sets, blind.len()), (1, 16));
}

#[test]
fn a_machine_without_the_tables_core_types_says_which_it_has() {
    let topology = machine("core2-quad");
    let plan = Plan {
        programs: vec![program("one", &spec("557.xz_r"), 1, 1.0)],
        ..Plan::default()
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

/// Events that the model provides besides instructions and cycles.
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
        ..Plan::default()
    };
    let mut simulation = Simulation::new(Arc::clone(&topology), &plan, config(true, 1))
        .unwrap()
        .counting_events(&OFFERED);
    let mut seen = [std::collections::BTreeSet::new(), Default::default()];
    for at in 0..12 {
        let observed = simulation
            .observe(&Watch::default(), Nanos::from_millis(at * 100))
            .unwrap();
        for sample in observed.samples.iter() {
            let core_type = &topology.core_types[sample.core_type.index()];
            assert_eq!(
                sample.sets(),
                [1, 3][sample.core_type.index()],
                "{sample:?}"
            );
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
