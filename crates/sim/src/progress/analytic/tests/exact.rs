//! Tests of closed forms, bookkeeping and determinism.

use super::*;
use crate::progress::synthetic::{chase, compute, streaming, typical, vulnerable};

fn finish(progress: &mut Analytic) -> Nanos {
    loop {
        let next = progress.next_event();
        assert_ne!(next, Nanos::NEVER);
        progress.advance(next);
        let mut finished = Vec::new();
        progress.take_finished(&mut finished);
        if !finished.is_empty() {
            return next;
        }
    }
}

#[test]
fn a_run_without_contention_takes_the_sum_of_its_phases() {
    let phases = [
        (compute(), 3_000_000_000),
        (chase(400_000), 70_000_000),
        (streaming(), 900_000_001),
    ];
    for (cpu, core_type) in [(0, CoreTypeId(0)), (8, CoreTypeId(1))] {
        let mut progress = Analytic::new(machine(HYBRID), quiet());
        let model = progress
            .add_program(Arc::new(profile("p", &phases)))
            .unwrap();
        progress.add_thread(ThreadId(0), model);
        progress.set_work(ThreadId(0), 0.0, 3_970_000_001.0, 1.0, Nanos::ZERO);
        progress.set_running(CpuId(cpu), Some(ThreadId(0)), Nanos::ZERO);
        let seconds: f64 = phases
            .iter()
            .map(|phase| {
                let alone = progress
                    .add_program(Arc::new(profile("q", std::slice::from_ref(phase))))
                    .unwrap();
                progress.alone_seconds(alone, core_type)
            })
            .sum();
        let end = finish(&mut progress);
        assert!(
            (end.0 as f64 - seconds * 1e9).abs() <= 2.0,
            "{end:?} {seconds}"
        );
        assert!((progress.alone_seconds(model, core_type) / seconds - 1.0).abs() < 1e-12);
        assert_eq!(
            progress.counters(ThreadId(0), end).instructions,
            3_970_000_001.0
        );
    }
}

#[test]
fn threads_of_a_program_see_the_whole_timeline_at_their_stride() {
    let phases = [(compute(), 2_000_000_000), (chase(400_000), 400_000_000)];
    let mut ends = Vec::new();
    for threads in [1u32, 4] {
        let mut progress = Analytic::new(machine(HYBRID), quiet());
        let model = progress
            .add_program(Arc::new(profile("p", &phases)))
            .unwrap();
        for t in 0..threads {
            progress.add_thread(ThreadId(t), model);
            let share = 2_400_000_000.0 / f64::from(threads);
            progress.set_work(ThreadId(t), 0.0, share, f64::from(threads), Nanos::ZERO);
            progress.set_running(CpuId(t), Some(ThreadId(t)), Nanos::ZERO);
        }
        ends.push(finish(&mut progress).0 as f64 * f64::from(threads));
    }
    assert!((ends[0] - ends[1]).abs() < 10.0, "{ends:?}");
}

#[test]
fn an_end_is_noticed_though_somebody_integrated_at_that_instant() {
    let mut progress = Analytic::new(machine(HYBRID), ProgressConfig::default());
    let model = progress
        .add_program(Arc::new(profile("p", &[(streaming(), 1_000_000)])))
        .unwrap();
    progress.add_thread(ThreadId(0), model);
    progress.set_work(ThreadId(0), 0.0, 1_000_000.0, 1.0, Nanos::ZERO);
    progress.set_running(CpuId(0), Some(ThreadId(0)), Nanos::ZERO);
    let mut noticed = Vec::new();
    for _ in 0..1_000 {
        let next = progress.next_event().min(Nanos(1_000_000_000));
        progress.threads[0].integrate(next.0);
        progress.advance(next);
        progress.take_finished(&mut noticed);
    }
    assert_eq!(noticed, [ThreadId(0)]);
}

#[test]
fn the_share_of_time_on_each_core_type_sets_the_speed() {
    let mut progress = start(HYBRID, quiet(), &[(vulnerable(100_000), 0)]);
    for turn in 1..100 {
        run(&mut progress, ms(10 * turn));
        let cpu = if turn % 4 == 0 { 0 } else { 8 };
        progress.set_running(CpuId(cpu), Some(ThreadId(0)), ms(10 * turn));
    }
    let done = progress.counters(ThreadId(0), ms(1000)).instructions;
    let [fast, slow] = [0, 1].map(|t| progress.alone_ips(ModelId(0), CoreTypeId(t)));
    assert!((done / (0.25 * fast + 0.75 * slow) - 1.0).abs() < 1e-9);
    assert_eq!(progress.on_cpu.iter().filter(|t| **t != NONE).count(), 1);
}

#[test]
fn work_starts_anywhere_on_the_timeline_and_goes_round() {
    let phases = [(compute(), 1_000_000_000), (chase(400_000), 100_000_000)];
    let time = |offset: f64, instructions: f64| {
        let mut progress = Analytic::new(machine(HYBRID), quiet());
        let model = progress
            .add_program(Arc::new(profile("p", &phases)))
            .unwrap();
        progress.add_thread(ThreadId(0), model);
        progress.set_work(ThreadId(0), offset, instructions, 1.0, Nanos::ZERO);
        progress.set_running(CpuId(0), Some(ThreadId(0)), Nanos::ZERO);
        finish(&mut progress).0 as f64
    };
    let whole = time(0.0, 1.1e9);
    let chased = time(1e9, 1e8);
    assert!((time(1e9, 1.1e9) - whole).abs() < 4.0);
    assert!((time(2.2e9, 1e9) + chased - whole).abs() < 4.0);
}

#[test]
fn energy_adds_up() {
    let kinds: Vec<_> = (0..6)
        .map(|i| {
            (
                [compute(), streaming(), chase(400_000)][i % 3].clone(),
                3 * i as u32,
            )
        })
        .collect();
    let mut progress = start(HYBRID_SMT, ProgressConfig::default(), &kinds);
    run(&mut progress, ms(300));
    progress.set_running(CpuId(3), None, ms(300));
    progress.set_running(CpuId(4), Some(ThreadId(0)), ms(400));
    run(&mut progress, ms(1000));
    let threads: f64 = (0..6)
        .map(|t| progress.counters(ThreadId(t), ms(1000)).energy_nj * 1e-9)
        .sum();
    let energy = progress.energy(ms(1000));
    let attributed = energy.core_j.iter().sum::<f64>() + energy.cache_j + energy.memory_j;
    assert!((attributed / threads - 1.0).abs() < 1e-9);
    let idle: f64 = energy.idle_j.iter().sum();
    assert!((energy.total_j() - threads - idle - energy.static_j).abs() < 1e-9);
    assert!((energy.static_j - progress.topology.static_power_w).abs() < 1e-9);
    assert!(idle > 0.0);
}

#[test]
fn an_idle_machine_draws_idle_power() {
    let mut progress = Analytic::new(machine(HYBRID), ProgressConfig::default());
    assert_eq!(progress.next_event(), Nanos::NEVER);
    let t = Arc::clone(&progress.topology);
    let idle: f64 = t
        .cpus
        .iter()
        .map(|c| t.core_types[c.core_type.index()].power.idle_w)
        .sum();
    assert!((progress.energy_j(ms(2000)) - 2.0 * (idle + t.static_power_w)).abs() < 1e-9);
}

#[test]
fn the_same_calls_give_the_same_bits() {
    let once = || {
        let mut progress = Analytic::new(machine(HYBRID_SMT), ProgressConfig::default());
        for t in 0..30u32 {
            let model = progress
                .add_program(Arc::new(typical(t as usize, 0.02)))
                .unwrap();
            progress.add_thread(ThreadId(t), model);
            progress.set_work(ThreadId(t), 0.0, 1e15, 1.0, Nanos::ZERO);
        }
        for turn in 0..400u32 {
            let now = Nanos::from_micros(u64::from(turn) * 1700);
            run(&mut progress, now);
            let thread = (turn * 7) % 30;
            progress.set_running(
                CpuId((turn * 5) % 24),
                (turn % 11 != 0).then_some(ThreadId(thread)),
                now,
            );
        }
        (0..30)
            .map(|t| {
                progress
                    .counters(ThreadId(t), ms(700))
                    .instructions
                    .to_bits()
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(once(), once());
}

#[test]
fn a_removed_thread_leaves_lines_and_frees_its_number() {
    let mut progress = start(
        HYBRID,
        ProgressConfig::default(),
        &[(streaming(), 0), (vulnerable(400_000), 1)],
    );
    run(&mut progress, ms(500));
    progress.remove_thread(ThreadId(0), ms(500));
    assert_eq!(llc_lines(&progress, 0, 0), 0.0);
    let llc = progress.topology.llc_of(CpuId(0)).index();
    let left: f64 = progress.caches[llc].residents.iter().map(|r| r.lines).sum();
    assert!(
        left > 100_000.0,
        "the dead thread's lines go only as others need the room"
    );
    add(&mut progress, 0, &compute(), 0);
    run(&mut progress, ms(1500));
    assert!(progress.counters(ThreadId(0), ms(1500)).instructions > 1e10);
}

#[test]
fn charged_time_is_lost_and_counted_as_running() {
    let mut progress = start(HYBRID, quiet(), &[(compute(), 0)]);
    progress.charge(ThreadId(0), ms(30), ms(10));
    let counters = progress.counters(ThreadId(0), ms(100));
    let ips = progress.alone_ips(ModelId(0), CoreTypeId(0));
    assert!((counters.instructions / (ips * 0.07) - 1.0).abs() < 1e-9);
    assert_eq!(counters.run_ns, 1e8);
    assert!((counters.cycles / (counters.run_ns * 4.9) - 1.0).abs() < 1e-9);
}

#[test]
fn a_table_gives_its_speed_at_this_machines_clock_and_must_know_the_core_types() {
    let table = |types: &[(&str, f64)]| {
        let rows: String = types
            .iter()
            .map(|(t, ipc)| {
                format!(
                    "[[core]]\ncore_type = \"{t}\"\nfreq_ghz = 5.4\npoints = [{{ cache_kib = 30720, ipc = {ipc} }}]\n"
                )
            })
            .collect();
        let head = "schema = \"countersteer.table/1\"\nname = \"t\"\ngiga_instructions = 1.0\n[source]\nkind = \"published\"\n\
                    detail = \"\"\n";
        Arc::new(Profile::parse("t", &format!("{head}{rows}")).unwrap())
    };
    let mut progress = Analytic::new(machine(HYBRID), ProgressConfig::default());
    let model = progress
        .add_program(table(&[("golden-cove", 2.0), ("gracemont", 1.0)]))
        .unwrap();
    assert!((progress.alone_ips(model, CoreTypeId(0)) / (2.0 * 4.9e9) - 1.0).abs() < 1e-12);
    assert!((progress.alone_ips(model, CoreTypeId(1)) / 3.7e9 - 1.0).abs() < 1e-12);
    let error = progress
        .add_program(table(&[("golden-cove", 2.0)]))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("`t`") && error.contains("`gracemont`"),
        "{error}"
    );
}

#[test]
fn an_event_that_a_table_does_not_give_has_no_count() {
    let counts = |core: &str, point: &str| {
        let text = format!(
            "schema = \"countersteer.table/1\"\nname = \"t\"\ngiga_instructions = 1.0\n[source]\nkind = \"published\"\ndetail = \"\"\n\
             [[core]]\ncore_type = \"golden-cove\"\nfreq_ghz = 4.9\n{core}points = [{{ cache_kib = 30720, ipc = 2.0{point} }}]\n\
             [[core]]\ncore_type = \"gracemont\"\nfreq_ghz = 3.7\n{core}points = [{{ cache_kib = 30720, ipc = 1.0{point} }}]\n"
        );
        let mut progress = Analytic::new(machine(HYBRID), quiet());
        let profile = Arc::new(Profile::parse("t", &text).unwrap());
        let model = progress.add_program(profile).unwrap();
        progress.add_thread(ThreadId(0), model);
        progress.set_work(ThreadId(0), 0.0, 1e9, 1.0, Nanos::ZERO);
        progress.set_running(CpuId(0), Some(ThreadId(0)), Nanos::ZERO);
        let end = finish(&mut progress);
        let counters = progress.counters(ThreadId(0), end);
        [Event::LlcMisses, Event::LlcReferences, Event::BranchMisses]
            .map(|e| counters.event(e).map(f64::round))
    };
    assert_eq!(counts("", ""), [None; 3]);
    let known = counts("branch_mpki = 3.0\n", ", llc_mpki = 4.0");
    assert_eq!(known, [Some(4e6), Some(4e6), Some(3e6)]);
    assert_eq!(counts("branch_mpki = 0.0\n", "")[2], Some(0.0));
}
