//! Tests of time sharing on one CPU.

use super::*;

fn one_cpu(nices: &[i8], config: LinuxConfig) -> Linux {
    let mut linux = Linux::new(&symmetric(1, 1, 1, 1), config);
    for (t, nice) in nices.iter().enumerate() {
        linux.fork(ThreadId(t as u32), *nice, &all(), None, Nanos::ZERO);
    }
    linux
}

fn both() -> [LinuxConfig; 2] {
    [
        seeded(1),
        LinuxConfig {
            scheduler: FairClass::Cfs,
            ..seeded(1)
        },
    ]
}

#[test]
fn equal_weights_share_equally() {
    for config in both() {
        for count in [2, 3, 5] {
            let mut linux = one_cpu(&vec![0; count as usize], config.clone());
            let got = shares(&mut linux, count, ms(20_000));
            let fair = 20_000.0 / f64::from(count);
            assert!(
                got.iter().all(|g| (g / fair - 1.0).abs() < 0.005),
                "{config:?} {got:?}"
            );
        }
    }
}

#[test]
fn nice_weights_divide_a_cpu_exactly() {
    for config in both() {
        for nices in [&[0, 5][..], &[-10, 0, 10], &[-20, 19], &[0, 1, 2, 3]] {
            let mut linux = one_cpu(nices, config.clone());
            let total: f64 = nices.iter().map(|n| f64::from(weights::of_nice(*n))).sum();
            let got = shares(&mut linux, nices.len() as u32, ms(200_000));
            for (nice, got) in nices.iter().zip(&got) {
                let due = 200_000.0 * f64::from(weights::of_nice(*nice)) / total;
                // A light thread receives only a few whole slices between ticks.
                let exact = (got / due - 1.0).abs() < 0.01 || (got - due).abs() <= 4.0;
                assert!(exact, "{:?} nice {nice}: {got} of {due}", config.scheduler);
            }
        }
    }
}

/// Fraction of thread 0's running time on CPU 0 during which thread 2 runs on CPU 1; each CPU has two threads.
fn meets(config: LinuxConfig) -> f64 {
    let mut linux = Linux::new(&symmetric(2, 1, 1, 1), config);
    for t in 0..4 {
        let own = only(if t < 2 { "0" } else { "1" });
        linux.fork(ThreadId(t), 0, &own, None, Nanos::ZERO);
    }
    let mut on = [None; 2];
    let (mut since, mut alone, mut both) = (Nanos::ZERO, 0.0, 0.0);
    while linux.next_event() < ms(60_000) {
        linux.advance(linux.next_event());
        for switch in linux.take_switches() {
            if on[0] == Some(ThreadId(0)) {
                let passed = switch.at.since(since).as_secs_f64();
                alone += passed;
                both += passed * f64::from(u8::from(on[1] == Some(ThreadId(2))));
            }
            since = switch.at;
            on[switch.cpu.index()] = switch.next;
        }
    }
    both / alone
}

#[test]
fn threads_of_two_cpus_meet_half_of_the_time_unless_nothing_ever_disturbs_them() {
    let quiet = meets(seeded(1));
    assert!((quiet - 0.5).abs() > 0.48, "{quiet}");
    for seed in 1..4 {
        let installed = LinuxConfig::installed();
        let disturbed = meets(LinuxConfig { seed, ..installed });
        assert!((disturbed - 0.5).abs() < 0.08, "{disturbed}");
    }
}

#[test]
fn disturbances_take_nothing_from_anybody() {
    for scheduler in [FairClass::Eevdf, FairClass::Cfs] {
        let config = LinuxConfig {
            scheduler,
            ..LinuxConfig::installed()
        };
        let mut linux = one_cpu(&[0, 0, 0], config);
        let got = shares(&mut linux, 3, ms(30_000));
        let fair = |g: &f64| (g / 10_000.0 - 1.0).abs() < 0.005;
        assert!(got.iter().all(fair), "{got:?}");
    }
}

#[test]
fn a_change_of_weight_takes_effect_at_once() {
    let mut linux = one_cpu(&[0, 0], seeded(3));
    linux.advance(ms(1_003));
    linux.set_weight(ThreadId(0), 3 * 1024, ms(1_003));
    let got = shares(&mut linux, 2, ms(11_003));
    assert!((got[0] / got[1] - 3.0).abs() < 0.03, "{got:?}");
}

#[test]
fn slices_end_at_ticks_unless_there_is_a_high_resolution_tick() {
    let mut linux = one_cpu(&[0, 0], seeded(4));
    linux.advance(ms(8_000));
    assert!(
        (1_990..=2_003).contains(&linux.switches()),
        "{}",
        linux.switches()
    );
    let slice = 700_000;
    let mut linux = one_cpu(
        &[0, 0],
        LinuxConfig {
            hrtick: true,
            ..seeded(4)
        },
    );
    linux.advance(ms(7_000));
    assert!(
        (9_990..=10_003).contains(&(linux.switches() * slice / 700_000)),
        "{}",
        linux.switches()
    );
}

/// Longest run-queue latency, in nanoseconds, of a thread that sleeps 10 ms and runs 0.2 ms next to `hogs` CPU-bound threads.
fn longest_wait_of_a_sleeper(config: LinuxConfig, hogs: u32) -> u64 {
    let mut linux = one_cpu(&vec![0; hogs as usize], config);
    let sleeper = ThreadId(hogs);
    linux.fork(sleeper, 0, &all(), None, Nanos::ZERO);
    let mut now = Nanos::ZERO;
    let mut longest = 0;
    for _ in 0..200 {
        let woken = now;
        while linux.running(CpuId(0)) != Some(sleeper) {
            now = linux.next_event();
            linux.advance(now);
        }
        longest = longest.max(now.since(woken).0);
        let until = now + Nanos::from_micros(200);
        linux.advance(until);
        if linux.running(CpuId(0)) != Some(sleeper) {
            now = until;
            continue;
        }
        linux.block(sleeper, until);
        now = until + ms(10);
        linux.wake(sleeper, None, now);
        check(&linux);
    }
    longest
}

#[test]
fn a_short_sleeper_waits_for_one_turn_of_each_at_most() {
    for hogs in [1, 3] {
        // Slices end at ticks, and threads that waited longer have earlier deadlines.
        let longest = longest_wait_of_a_sleeper(seeded(5), hogs);
        assert!(longest <= u64::from(hogs) * 4 * MS, "{hogs}: {longest}");
        let longest = longest_wait_of_a_sleeper(
            LinuxConfig {
                scheduler: FairClass::Cfs,
                ..seeded(5)
            },
            hogs,
        );
        assert!(longest <= 4 * MS, "cfs {hogs}: {longest}");
    }
}

#[test]
fn a_long_sleep_earns_half_a_latency_of_credit_under_cfs() {
    let mut linux = one_cpu(&[0, 0], both()[1].clone());
    linux.advance(ms(100));
    linux.block(ThreadId(1), ms(100));
    linux.advance(ms(10_000));
    linux.wake(ThreadId(1), None, ms(10_000));
    let credit = linux.rqs[0].zero - linux.threads[1].vruntime;
    assert_eq!(credit, 3 * MS as i64, "half of 6 ms on one CPU");
}

#[test]
fn a_new_thread_has_half_a_slice_until_its_first_deadline() {
    let mut linux = one_cpu(&[0, 0], seeded(11));
    linux.advance(ms(101));
    linux.fork(ThreadId(2), 0, &all(), None, ms(101));
    let new = &linux.threads[2];
    assert_eq!(2 * (new.deadline - new.vruntime), new.virtual_slice());
}

#[test]
fn a_shorter_slice_preempts_at_once() {
    let mut linux = one_cpu(&[0], seeded(6));
    let sleeper = ThreadId(1);
    linux.fork(sleeper, 0, &all(), None, Nanos::ZERO);
    linux.set_slice(sleeper, Some(Nanos::from_micros(100)), Nanos::ZERO);
    linux.advance(ms(100));
    linux.block(sleeper, ms(100));
    linux.wake(sleeper, None, ms(200));
    assert_eq!(linux.running(CpuId(0)), Some(sleeper));
}

#[test]
fn lag_survives_a_sleep() {
    let mut linux = one_cpu(&[0, 0, 0], seeded(7));
    linux.advance(ms(1_000));
    let t = (0..3)
        .map(ThreadId)
        .find(|t| linux.running(CpuId(0)) != Some(*t))
        .unwrap();
    linux.block(t, ms(1_000));
    let lag = linux.threads[t.index()].vlag;
    assert!(lag != 0);
    linux.wake(t, None, ms(1_050));
    let rq = &linux.rqs[0];
    let v = rq.average_vruntime(eevdf::current(rq, &linux.threads));
    let after = v - linux.threads[t.index()].vruntime;
    assert!((after - lag).abs() <= 2, "{lag} became {after}");
}

#[test]
fn a_thread_that_overran_stays_queued_until_it_has_paid() {
    let mut linux = one_cpu(&[0, 0], seeded(8));
    linux.advance(ms(100));
    let t = linux.running(CpuId(0)).unwrap();
    // Towards the end of its slice the thread is ahead of V.
    let at = Nanos(linux.next_event().0 - 1);
    linux.block(t, at);
    assert_eq!(linux.threads[t.index()].state, TaskState::Delayed);
    assert!(!linux.is_runnable(t));
    assert_eq!(linux.nr_running(CpuId(0)), 1);
    check(&linux);
    linux.advance(at + ms(50));
    assert_eq!(linux.threads[t.index()].state, TaskState::Sleeping);
    assert!(linux.threads[t.index()].vlag <= 0);
    check(&linux);
}

#[test]
fn without_delayed_dequeue_a_sleeper_keeps_its_debt() {
    let mut linux = one_cpu(
        &[0, 0],
        LinuxConfig {
            delay_dequeue: false,
            ..seeded(8)
        },
    );
    linux.advance(ms(100));
    let t = linux.running(CpuId(0)).unwrap();
    let at = Nanos(linux.next_event().0 - 1);
    linux.block(t, at);
    assert_eq!(linux.threads[t.index()].state, TaskState::Sleeping);
    assert!(linux.threads[t.index()].vlag < 0);
}

#[test]
fn yielding_lets_the_other_run() {
    for config in both() {
        let mut linux = one_cpu(&[0, 0], config);
        linux.advance(ms(101));
        let mut changes = 0;
        for i in 0..10 {
            let at = ms(101) + Nanos::from_micros(10 * i);
            let t = linux.running(CpuId(0)).unwrap();
            linux.yield_now(t, at);
            changes += u32::from(linux.running(CpuId(0)) != Some(t));
        }
        assert!(changes >= 4, "{changes}");
    }
}

#[test]
fn lazy_preemption_waits_for_the_tick() {
    let run = |lazy| {
        let mut linux = Linux::new(
            &symmetric(2, 1, 1, 1),
            LinuxConfig {
                lazy_preemption: lazy,
                ..seeded(9)
            },
        );
        linux.fork(ThreadId(0), 0, &only("0"), None, Nanos::ZERO);
        linux.fork(ThreadId(1), 0, &only("0"), None, Nanos::ZERO);
        linux.fork(ThreadId(2), 0, &only("1"), None, Nanos::ZERO);
        linux.set_slice(ThreadId(1), Some(Nanos::from_micros(100)), Nanos::ZERO);
        linux.advance(ms(100));
        linux.block(ThreadId(1), ms(100));
        linux.wake(ThreadId(1), Some(CpuId(1)), ms(201));
        linux.running(CpuId(0))
    };
    assert_eq!(run(false), Some(ThreadId(1)));
    assert_eq!(run(true), Some(ThreadId(0)));
}

#[test]
fn running_time_and_waiting_time_add_up() {
    let mut linux = one_cpu(&[0, 5, 0, -3], seeded(10));
    linux.advance(ms(3_333));
    let ran: u64 = (0..4).map(|t| linux.run_time(ThreadId(t)).0).sum();
    assert_eq!(ran, 3_333 * MS);
    for t in (0..4).map(ThreadId) {
        assert_eq!(linux.run_time(t).0 + linux.run_delay(t).0, 3_333 * MS);
    }
}
