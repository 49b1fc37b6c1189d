//! Control groups and utilisation clamps against closed forms.

use countersteer_model::control::CpuBandwidth;
use countersteer_model::placement::Clamp;

use super::*;

/// Model of 7.2 with CPU-bound threads: for each program, its group's `cpu.weight` and limit in milliseconds per 100 ms, and the
/// number of its threads. A weight of 0 is the root group.
fn programs(topology: &Topology, rows: &[(u32, Option<u64>, u32)], mask: &CpuSet) -> Linux {
    let config = LinuxConfig {
        seed: 3,
        ..kernel_config("7.2").unwrap()
    };
    let mut linux = Linux::new(topology, config);
    let mut next = 0;
    for (process, (weight, quota_ms, threads)) in rows.iter().enumerate() {
        if *weight > 0 {
            let limit = quota_ms.map(|quota| CpuBandwidth {
                quota: ms(quota),
                period: ms(100),
            });
            let group = linux.add_group(*weight, limit);
            linux.set_group(process as u32, group);
        }
        for _ in 0..*threads {
            let process = Some(process as u32);
            linux.fork_in(process, ThreadId(next), 0, mask, Some(CpuId(0)), Nanos(0));
            next += 1;
        }
    }
    linux
}

/// CPU time of each program between 1 s and 21 s, in CPUs.
fn used(topology: &Topology, rows: &[(u32, Option<u64>, u32)], mask: &CpuSet) -> Vec<f64> {
    let mut linux = programs(topology, rows, mask);
    linux.advance(ms(1_000));
    let threads = rows.iter().map(|r| r.2).sum();
    let ran = shares(&mut linux, threads, ms(21_000));
    let mut ran = ran.iter();
    rows.iter()
        .map(|(_, _, n)| ran.by_ref().take(*n as usize).sum::<f64>() / 20_000.0)
        .collect()
}

fn near(got: &[f64], wanted: &[f64], tolerance: f64) {
    assert_eq!(got.len(), wanted.len());
    for (g, w) in got.iter().zip(wanted) {
        assert!((g - w).abs() <= tolerance, "{got:?}, not {wanted:?}");
    }
}

#[test]
fn groups_share_a_cpu_by_weight_whatever_their_numbers_of_threads() {
    let one = symmetric(1, 1, 1, 1);
    let all = all();
    near(
        &used(&one, &[(100, None, 1), (300, None, 5)], &all),
        &[0.25, 0.75],
        0.01,
    );
    // A thread in the root group has the weight of a group of 100.
    near(
        &used(&one, &[(0, None, 1), (100, None, 3), (200, None, 1)], &all),
        &[0.25, 0.25, 0.5],
        0.01,
    );
    // On several CPUs, a group's weight is divided among its threads.
    near(
        &used(
            &symmetric(4, 1, 1, 1),
            &[(100, None, 4), (200, None, 8)],
            &all,
        ),
        &[4.0 / 3.0, 8.0 / 3.0],
        0.04,
    );
}

#[test]
fn nice_levels_count_within_a_group() {
    let mut linux = Linux::new(&symmetric(1, 1, 1, 1), seeded(1));
    let group = linux.add_group(100, None);
    linux.set_group(0, group);
    for (t, nice) in [(0, 0), (1, 5)] {
        linux.fork_in(Some(0), ThreadId(t), nice, &all(), None, Nanos(0));
    }
    linux.fork_in(Some(1), ThreadId(2), 0, &all(), None, Nanos(0));
    linux.advance(ms(1_000));
    let ran = shares(&mut linux, 3, ms(21_000));
    let weights = f64::from(weight_of_nice(0)) + f64::from(weight_of_nice(5));
    let part = |nice| f64::from(weight_of_nice(nice)) / weights / 2.0 * 20_000.0;
    near(&ran, &[part(0), part(5), 10_000.0], 200.0);
}

#[test]
fn a_limit_holds_and_leaves_the_rest_to_others() {
    let one = symmetric(1, 1, 1, 1);
    let four = symmetric(4, 1, 1, 1);
    let all = all();
    near(&used(&one, &[(100, Some(50), 1)], &all), &[0.5], 0.01);
    near(
        &used(&one, &[(100, Some(20), 2), (0, None, 1)], &all),
        &[0.2, 0.8],
        0.01,
    );
    // A limit of several CPUs is shared by all of them.
    near(&used(&four, &[(100, Some(150), 4)], &all), &[1.5], 0.02);
    near(
        &used(&four, &[(1000, Some(150), 4), (0, None, 4)], &all),
        &[1.5, 2.5],
        0.03,
    );
    // A limit above the need limits nothing.
    near(&used(&four, &[(100, Some(300), 2)], &all), &[2.0], 0.01);
}

#[test]
fn a_throttled_thread_stands_still_until_the_next_period() {
    let mut linux = programs(&symmetric(1, 1, 1, 1), &[(100, Some(30), 1)], &all());
    linux.advance(ms(5_000));
    let mut stops = Vec::new();
    let mut since = None;
    for switch in linux.take_switches() {
        match switch.next {
            None => since = Some(switch.at),
            Some(_) => stops.extend(
                since
                    .take()
                    .map(|s: Nanos| switch.at.since(s).as_secs_f64()),
            ),
        }
    }
    assert!((48..=51).contains(&stops.len()), "{}", stops.len());
    // It runs for 30 ms, to the next tick of 4 ms at most, and pays for that later.
    let longest = stops.iter().copied().fold(0.0, f64::max);
    let mean = stops.iter().sum::<f64>() / stops.len() as f64;
    assert!(
        longest <= 0.0745 && (mean - 0.07).abs() < 0.002,
        "{longest} {mean}"
    );
}

#[test]
fn clamps_choose_the_size_of_the_cpu() {
    let topology = machine("phone-1-3-4");
    let big: Vec<bool> = topology.cpus.iter().map(|c| c.capacity >= 800).collect();
    let on_big = |least: u32, most: u32, busy_us: u64| {
        let mut linux = Linux::new(&topology, seeded(4));
        let t = ThreadId(0);
        linux.fork(t, 0, &all(), Some(CpuId(0)), Nanos(0));
        linux.set_clamp(t, Clamp { least, most }, Nanos(0));
        let mut jobs = [0, 0];
        for job in 1..200 {
            linux.advance(Nanos((10_000 * job + busy_us) * 1_000));
            jobs[usize::from(big[linux.cpu_of(t).index()])] += u32::from(job > 50);
            linux.block(t, Nanos((10_000 * job + busy_us) * 1_000));
            linux.wake(t, None, ms(10 * job + 10));
        }
        f64::from(jobs[1]) / f64::from(jobs[0] + jobs[1])
    };
    // 5 % of a CPU costs least on a small one, and 90 % does not fit there.
    assert!(on_big(0, 1024, 500) < 0.05, "{}", on_big(0, 1024, 500));
    assert!(on_big(0, 1024, 9_000) > 0.95, "{}", on_big(0, 1024, 9_000));
    // The lower clamp boosts the small thread; the upper one lets the large thread fit a small CPU, which costs less most of the time.
    assert!(on_big(800, 1024, 500) > 0.95, "{}", on_big(800, 1024, 500));
    assert!(on_big(0, 280, 9_000) < 0.3, "{}", on_big(0, 280, 9_000));
}
