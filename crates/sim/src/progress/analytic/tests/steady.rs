//! Tests of the time-stepped model against its own forecast, finer steps, and footprint composition.

use super::*;
use crate::progress::analytic::pool::Stepping;
use crate::progress::synthetic::{chase, compute, streaming, vulnerable};
use rand::{RngExt, SeedableRng};

fn mix() -> Vec<SyntheticKind> {
    vec![
        compute(),
        streaming().scaled(0.3),
        chase(200_000).scaled(0.3),
        vulnerable(150_000).scaled(0.5),
        vulnerable(25_000),
        vulnerable(60_000),
        chase(40_000).scaled(0.5),
    ]
}

fn fine_steps() -> Stepping {
    Stepping {
        least: 20_000,
        cold: 20_000,
        phase: 20_000,
        minor: 20_000,
        drift: 0.0,
        change: 0.002,
        still: 0.0,
        factor: 1e-4,
        ..Stepping::default()
    }
}

/// Largest relative difference between the forecast and the third second of a run.
fn disagreement(name: &str, kinds: &[(SyntheticKind, u32)]) -> f64 {
    let mut progress = start(name, free_switches(), kinds);
    run(&mut progress, ms(2000));
    let stepped = speeds(&mut progress, ms(3000));
    let rows: Vec<_> = kinds
        .iter()
        .enumerate()
        .map(|(i, k)| (ModelId(i as u32), CpuId(k.1), 1.0))
        .collect();
    let forecast = progress.steady_state(&rows);
    for (i, (s, f)) in stepped.iter().zip(&forecast).enumerate() {
        println!(
            "{name} {i} cpu {} stepped {s:.4e} forecast {:.4e} ratio {:.4}",
            kinds[i].1,
            f.ips,
            s / f.ips
        );
    }
    stepped
        .iter()
        .zip(&forecast)
        .map(|(s, f)| (s / f.ips - 1.0).abs())
        .fold(0.0, f64::max)
}

#[test]
fn forecasts_agree_with_where_runs_end_up() {
    for (name, count) in [
        (HYBRID, 16),
        (HYBRID, 5),
        ("apple-m1", 8),
        ("core2-quad", 4),
        (HYBRID_SMT, 24),
    ] {
        let kinds: Vec<_> = (0..count)
            .map(|i| (mix()[i % 7].clone(), i as u32))
            .collect();
        let worst = disagreement(name, &kinds);
        assert!(worst < 0.02, "{name}, {count} threads: {worst}");
    }
}

/// Measured and forecast speeds of two threads on each of eight CPUs that alternate every 2.8 ms.
fn take_turns(stepping: Stepping) -> (Vec<f64>, Vec<f64>) {
    let mut progress = Analytic::new(machine(HYBRID), free_switches());
    progress.stepping = stepping;
    let cpus = [0u32, 1, 2, 3, 8, 9, 10, 11];
    for i in 0..16 {
        add(&mut progress, i as u32, &mix()[i % 7], cpus[i % 8]);
    }
    let mut speeds_seen = Vec::new();
    for turn in 0..1000u64 {
        if turn == 500 {
            speeds_seen = (0..16)
                .map(|t| -progress.counters(ThreadId(t), ms(1400)).instructions)
                .collect();
        }
        for (i, cpu) in cpus.iter().enumerate() {
            let thread = i as u32 + 8 * (turn % 2) as u32;
            progress.set_running(
                CpuId(*cpu),
                Some(ThreadId(thread)),
                Nanos::from_micros(2800 * turn),
            );
        }
        run(&mut progress, Nanos::from_micros(2800 * turn + 2800));
    }
    for (t, speed) in speeds_seen.iter_mut().enumerate() {
        *speed = (*speed + progress.counters(ThreadId(t as u32), ms(2800)).instructions) / 1.4;
    }
    let rows: Vec<_> = (0..16)
        .map(|i| (ModelId(i as u32), CpuId(cpus[i % 8]), 0.5))
        .collect();
    (
        speeds_seen,
        progress.steady_state(&rows).iter().map(|r| r.ips).collect(),
    )
}

#[test]
fn threads_that_take_turns_agree_with_fine_steps_and_forecasts() {
    let (seen, forecast) = take_turns(Stepping::default());
    let (fine, _) = take_turns(fine_steps());
    for t in 0..16 {
        println!(
            "{t} {:.4e} of fine {:.4} of forecast {:.4}",
            seen[t],
            seen[t] / fine[t],
            seen[t] / forecast[t]
        );
    }
    for t in 0..16 {
        // Programs that need about the whole cache push each other out: a small lead becomes a large one.
        assert!(
            (seen[t] / fine[t] - 1.0).abs() < 0.3,
            "{t}: {} {}",
            seen[t],
            fine[t]
        );
        assert!(
            (seen[t] / forecast[t] - 1.0).abs() < 0.4,
            "{t}: {} {}",
            seen[t],
            forecast[t]
        );
    }
}

/// Speeds of four threads on two CPUs of one cache, in slices whose order changes at random every 24 ms, and their forecast.
fn in_slices(kinds: &[(SyntheticKind, u32); 4]) -> (Vec<f64>, Vec<f64>) {
    let length = super::slices::length_ns(&machine("core2-quad"));
    let mut progress = start("core2-quad", ProgressConfig::default(), kinds);
    let mut queues = [Vec::new(), Vec::new()];
    for (thread, (_, cpu)) in kinds.iter().enumerate() {
        queues[*cpu as usize].push(thread as u32);
    }
    let mut rng = rand_pcg::Pcg64::seed_from_u64(1);
    let mut first = 0;
    for slice in 0..3_000 {
        if slice % 6 == 0 {
            first = rng.random_range(0..4usize);
        }
        for (cpu, queue) in queues.iter().enumerate() {
            let next = queue[(slice + (first >> cpu)) % 2];
            let now = Nanos(slice as u64 * length);
            progress.set_running(CpuId(cpu as u32), Some(ThreadId(next)), now);
        }
        run(&mut progress, Nanos((slice as u64 + 1) * length));
    }
    let end = Nanos(3_000 * length);
    let seen = (0..4).map(|t| progress.counters(ThreadId(t), end).instructions);
    let seen = seen.map(|n| n / end.as_secs_f64()).collect();
    let rows: Vec<_> = (0..4)
        .map(|t| (ModelId(t), CpuId(kinds[t as usize].1), 0.5))
        .collect();
    let forecast = progress.steady_state(&rows);
    (seen, forecast.iter().map(|r| r.ips).collect())
}

#[test]
fn forecasts_know_that_threads_of_one_cpu_never_meet() {
    let mix = |second, others: [u32; 2]| {
        [
            (streaming(), 0),
            (streaming(), second),
            (compute(), others[0]),
            (compute(), others[1]),
        ]
    };
    let (apart, forecast_apart) = in_slices(&mix(0, [1, 1]));
    let (meeting, forecast_meeting) = in_slices(&mix(1, [0, 1]));
    for (seen, forecast) in [(&apart, &forecast_apart), (&meeting, &forecast_meeting)] {
        for (s, f) in seen.iter().zip(forecast) {
            assert!((f / s - 1.0).abs() < 0.05, "{seen:?} {forecast:?}");
        }
    }
    // Two streams that run together half of the time share the memory's bandwidth then.
    assert!(apart[0] > 1.1 * meeting[0], "{apart:?} {meeting:?}");
}

#[test]
fn streams_share_a_cache_by_how_fast_they_insert() {
    let mut progress = start(
        HYBRID,
        free_switches(),
        &[(streaming(), 0), (streaming().scaled(0.25), 1)],
    );
    run(&mut progress, ms(1000));
    let inserted: Vec<f64> = (0..2)
        .map(|t| {
            let before = progress.counters(ThreadId(t), ms(1000)).llc_misses;
            run(&mut progress, ms(1000));
            before
        })
        .collect();
    let lines: Vec<f64> = (0..2).map(|t| llc_lines(&progress, t, 0)).collect();
    let capacity = progress.topology.caches[progress.topology.llc_of(CpuId(0)).index()].lines;
    assert!(((lines[0] + lines[1]) / capacity - 1.0).abs() < 0.01);
    assert!(
        (lines[0] / lines[1] / (inserted[0] / inserted[1]) - 1.0).abs() < 0.03,
        "{lines:?} {inserted:?}"
    );
}

#[test]
fn way_finer_steps_change_little() {
    let work = |fine: bool| {
        let mut progress = Analytic::new(machine(HYBRID), free_switches());
        if fine {
            progress.stepping = fine_steps();
        }
        for t in 0..8u32 {
            let a = mix()[t as usize % 7].clone();
            let b = mix()[(t as usize + 3) % 7].clone();
            let lengths = (400_000_000 + 30_000_000 * u64::from(t), 300_000_000);
            let model = progress
                .add_program(Arc::new(profile("p", &[(a, lengths.0), (b, lengths.1)])))
                .unwrap();
            progress.add_thread(ThreadId(t), model);
            progress.set_work(ThreadId(t), 0.0, 1e15, 1.0, Nanos::ZERO);
            progress.set_running(CpuId(2 * t), Some(ThreadId(t)), Nanos::ZERO);
        }
        speeds(&mut progress, ms(10_000))
    };
    for (t, (coarse, fine)) in work(false).iter().zip(work(true)).enumerate() {
        println!("{t} {:.4}", coarse / fine);
        assert!(
            (coarse / fine - 1.0).abs() < 0.03,
            "thread {t}: {coarse:.4e} {fine:.4e}"
        );
    }
}
