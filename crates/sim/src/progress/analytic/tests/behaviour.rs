//! Expected behaviour: speedup factors, contention, costs of migrations.

use super::*;
use crate::progress::synthetic::{chase, compute, cyclic, streaming, vulnerable};

#[test]
fn memory_bound_programs_gain_less_from_big_cores() {
    let mut progress = start(
        HYBRID,
        quiet(),
        &[
            (compute(), 0),
            (chase(4_000_000), 1),
            (streaming(), 2),
            (vulnerable(20_000), 3),
        ],
    );
    progress.advance(ms(1));
    let sf: Vec<f64> = (0..4).map(|t| progress.true_sf(ThreadId(t))).collect();
    // Memory is 1.3 times as far from the small cores, so even a chain of misses gains.
    assert!(
        sf[1] < 1.4 && sf[0] > 1.35 * sf[1] && sf[3] > sf[1] && sf[2] > sf[1],
        "{sf:?}"
    );
    let whole = progress.alone_ips(ModelId(1), CoreTypeId(0))
        / progress.alone_ips(ModelId(1), CoreTypeId(1));
    assert!((whole - sf[1]).abs() < 1e-9);
}

#[test]
fn the_true_efficiency_factor_is_that_of_two_runs_alone() {
    for kind in [compute(), chase(4_000_000), streaming()] {
        // Speed and energy of a second alone, with warm caches.
        let alone = |cpu: u32| {
            let mut progress = start(HYBRID, quiet(), &[(kind.clone(), cpu)]);
            run(&mut progress, ms(2000));
            let before = progress.counters(ThreadId(0), ms(2000));
            run(&mut progress, ms(3000));
            let after = progress.counters(ThreadId(0), ms(3000));
            let instructions = after.instructions - before.instructions;
            let edp = (after.energy_nj - before.energy_nj) / instructions / instructions;
            (progress.true_ef(ThreadId(0)), edp, cpu)
        };
        let slow_cpu = machine(HYBRID).cpus.len() as u32 - 1;
        let (truth, fast, _) = alone(0);
        let (_, slow, _) = alone(slow_cpu);
        assert!(
            (slow / fast / truth - 1.0).abs() < 0.01,
            "{truth} {}",
            slow / fast
        );
    }
}

#[test]
fn a_slower_clock_hurts_memory_bound_programs_less() {
    let slowed = text(HYBRID).replace("freq_ghz = 4.9", "freq_ghz = 2.45");
    let slow = Arc::new(Topology::new(&Machine::parse("slow", &slowed).unwrap()));
    let loss = |kind: &SyntheticKind| {
        let ips = [machine(HYBRID), Arc::clone(&slow)].map(|topology| {
            let name = topology
                .core_types
                .iter()
                .position(|t| t.name == "golden-cove")
                .unwrap();
            let mut progress = Analytic::new(topology, quiet());
            let model = progress
                .add_program(Arc::new(profile("p", &[(kind.clone(), 1000)])))
                .unwrap();
            progress.alone_ips(model, CoreTypeId(name as u32))
        });
        ips[0] / ips[1]
    };
    let computing = loss(&compute());
    let chasing = loss(&chase(4_000_000));
    assert!((computing - 2.0).abs() < 0.01, "{computing}");
    assert!(chasing < 1.2, "{chasing}");
}

#[test]
fn a_working_set_that_fits_beside_a_stream_loses_nothing() {
    let fitting = || SyntheticKind {
        spread: vec![(64, 250.0), (60_000, 40.0)],
        cold_pki: 0.0,
        ..chase(60_000)
    };
    let mut alone = start(HYBRID, free_switches(), &[(fitting(), 0)]);
    let mut beside = start(
        HYBRID,
        free_switches(),
        &[(fitting(), 0), (streaming().scaled(0.1), 1)],
    );
    let until = ms(2_000);
    run(&mut alone, ms(1_000));
    run(&mut beside, ms(1_000));
    let slowdown = speeds(&mut alone, until)[0] / speeds(&mut beside, until)[0];
    assert!((slowdown - 1.0).abs() < 0.01, "{slowdown}");
}

#[test]
fn throughput_stays_below_the_memory_bandwidth() {
    for count in [4u32, 8, 16] {
        let kinds: Vec<_> = (0..count).map(|i| (streaming(), i)).collect();
        let mut progress = start(HYBRID, free_switches(), &kinds);
        run(&mut progress, ms(200));
        let read = |p: &mut Analytic, at| -> f64 {
            (0..count)
                .map(|t| p.counters(ThreadId(t), at).llc_misses)
                .sum::<f64>()
        };
        let before = read(&mut progress, ms(200));
        run(&mut progress, ms(1200));
        let lines = (read(&mut progress, ms(1200)) - before) * (1.0 + 0.1 / 0.35);
        let used = lines * 64.0 / 1e9 / progress.topology.memory[0].bandwidth_gb_s;
        assert!(used < 1.0, "{count} streams: {used}");
        assert!(count < 16 || used > 0.85, "{used}");
        let alone = progress.alone_ips(ModelId(0), CoreTypeId(0));
        let ips = speeds(&mut progress, ms(1300))[0];
        assert!(ips < alone, "{ips} {alone}");
    }
}

#[test]
fn a_memory_domain_behind_many_caches_is_one_domain() {
    let topology = machine("server-12llc");
    let on = topology
        .cpus
        .iter()
        .filter(|c| c.memory == 0)
        .map(|c| c.id.0)
        .step_by(4);
    let kinds: Vec<_> = on.map(|cpu| (streaming(), cpu)).collect();
    let mut progress = start("server-12llc", free_switches(), &kinds);
    run(&mut progress, ms(100));
    let lines: f64 = progress.threads.iter().map(|t| t.ips * t.traffic).sum();
    let used = lines * 64.0 / progress.topology.memory[0].bandwidth_gb_s;
    assert!(used < 1.0 && used > 0.45, "{used}");
}

#[test]
fn smt_siblings_share_a_core() {
    for kind in [compute(), vulnerable(20_000), chase(4_000_000)] {
        let mut alone = start(HYBRID_SMT, free_switches(), &[(kind.clone(), 0)]);
        run(&mut alone, ms(500));
        let single = speeds(&mut alone, ms(1000))[0];
        let sibling = alone.cpus[0].siblings[0];
        let mut both = start(
            HYBRID_SMT,
            free_switches(),
            &[(kind.clone(), 0), (kind, sibling)],
        );
        run(&mut both, ms(500));
        let pair = speeds(&mut both, ms(1000));
        let gain = (pair[0] + pair[1]) / single;
        println!("gain {gain}");
        assert!((0.9..2.0).contains(&gain), "{gain}");
        assert!((pair[0] / pair[1] - 1.0).abs() < 0.01);
        // The remaining thread has the core for itself again.
        both.set_running(CpuId(sibling), None, ms(1000));
        run(&mut both, ms(2000));
        let again = speeds(&mut both, ms(2500))[0];
        assert!((again / single - 1.0).abs() < 0.01, "{again} {single}");
    }
}

#[test]
fn poison_squeezes_the_vulnerable() {
    let mut progress = start(HYBRID, free_switches(), &[(vulnerable(300_000), 0)]);
    run(&mut progress, ms(1000));
    let alone = speeds(&mut progress, ms(1500))[0];
    let held = llc_lines(&progress, 0, 0);
    for t in 1..4 {
        add(&mut progress, t, &streaming(), t);
    }
    run(&mut progress, ms(2500));
    let squeezed = speeds(&mut progress, ms(3000))[0];
    let left = llc_lines(&progress, 0, 0);
    assert!(left < 0.5 * held, "{left} {held}");
    assert!(squeezed < 0.7 * alone, "{squeezed} {alone}");
}

#[test]
fn a_loop_that_just_fits_falls_off_its_cliff() {
    let mut progress = start(HYBRID, free_switches(), &[(cyclic(300_000), 0)]);
    run(&mut progress, ms(1000));
    let alone = speeds(&mut progress, ms(1500))[0];
    for t in 1..4 {
        add(&mut progress, t, &streaming(), t);
    }
    run(&mut progress, ms(2500));
    assert!(speeds(&mut progress, ms(3000))[0] < 0.5 * alone);
}

#[test]
fn occupancy_survives_a_switch_and_decays_while_others_insert() {
    let mut progress = start(
        HYBRID,
        free_switches(),
        &[(vulnerable(200_000), 0), (streaming(), 1)],
    );
    run(&mut progress, ms(500));
    let before = llc_lines(&progress, 0, 0);
    progress.set_running(CpuId(0), None, ms(500));
    run(&mut progress, ms(501));
    progress.set_running(CpuId(0), Some(ThreadId(0)), ms(501));
    run(&mut progress, ms(502));
    assert!(llc_lines(&progress, 0, 0) > 0.9 * before);
    run(&mut progress, ms(600));
    progress.set_running(CpuId(0), None, ms(600));
    let held: Vec<f64> = (0..5)
        .map(|i| {
            run(&mut progress, ms(600 + 2 * i));
            llc_lines(&progress, 0, 0)
        })
        .collect();
    assert!(held.windows(2).all(|w| w[1] <= w[0] + 1.0), "{held:?}");
    run(&mut progress, ms(1200));
    assert!(llc_lines(&progress, 0, 0) < 0.1 * before);
}

#[test]
fn lines_stay_while_nobody_inserts() {
    let mut progress = start(
        HYBRID,
        free_switches(),
        &[(vulnerable(200_000), 0), (compute(), 1)],
    );
    run(&mut progress, ms(500));
    let before = llc_lines(&progress, 0, 0);
    progress.set_running(CpuId(0), None, ms(500));
    run(&mut progress, ms(1500));
    assert!(llc_lines(&progress, 0, 0) > 0.95 * before);
}

#[test]
fn another_cache_is_cold_and_warms_up() {
    let name = "ryzen-7950x3d";
    let topology = machine(name);
    let here = CpuId(0);
    let there = topology
        .cpus
        .iter()
        .find(|c| topology.llc_of(c.id) != topology.llc_of(here))
        .unwrap()
        .id;
    let mut progress = start(
        name,
        ProgressConfig::default(),
        &[(vulnerable(200_000), here.0)],
    );
    run(&mut progress, ms(2000));
    progress.set_running(there, Some(ThreadId(0)), ms(2000));
    let first = speeds(&mut progress, ms(2002))[0];
    run(&mut progress, ms(3000));
    let later = speeds(&mut progress, ms(3500))[0];
    assert!(first < 0.7 * later, "{first} {later}");
    assert!(
        llc_lines(&progress, 0, here.0) > 1000.0,
        "what it left behind is still there"
    );
}

#[test]
fn moving_costs_more_than_staying_and_a_short_absence_little() {
    let lost = |moves: &[(u32, u32)]| {
        let mut progress = start(
            HYBRID,
            ProgressConfig::default(),
            &[(vulnerable(30_000), 0)],
        );
        add(&mut progress, 1, &streaming(), 7);
        run(&mut progress, ms(1000));
        for (cpu, other) in moves {
            // A thread that runs in between evicts part of the private cache.
            progress.set_running(CpuId(0), (*other == 1).then_some(ThreadId(1)), ms(1000));
            run(&mut progress, ms(1001));
            progress.set_running(CpuId(*cpu), Some(ThreadId(0)), ms(1001));
        }
        let before = progress.counters(ThreadId(0), ms(1001)).instructions;
        run(&mut progress, ms(1003));
        progress.counters(ThreadId(0), ms(1003)).instructions - before
    };
    let absent = lost(&[(0, 0)]);
    let displaced = lost(&[(0, 1)]);
    let moved = lost(&[(1, 0)]);
    assert!(
        absent > displaced && displaced >= moved,
        "{absent} {displaced} {moved}"
    );
    assert!(moved > 0.5 * absent, "{moved} {absent}");
}

#[test]
fn a_core_with_its_last_level_to_itself_needs_no_shared_cache() {
    let mut progress = start(
        "xeon-x5365-2-2",
        ProgressConfig::default(),
        &[(vulnerable(40_000), 0), (streaming(), 1)],
    );
    run(&mut progress, ms(500));
    let counters = progress.counters(ThreadId(0), ms(500));
    assert!(counters.llc_references >= counters.llc_misses && counters.llc_misses > 0.0);
    assert!(llc_lines(&progress, 0, 0) > 0.0);
}
