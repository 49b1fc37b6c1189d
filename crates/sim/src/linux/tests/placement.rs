//! Tests of the placement of new and woken threads.

use super::*;

fn cpus_of(linux: &Linux, count: u32) -> Vec<u32> {
    (0..count).map(|t| linux.cpu_of(ThreadId(t)).0).collect()
}

#[test]
fn as_many_threads_as_cpus_spread_one_each_and_stay() {
    for (topology, n) in [
        (symmetric(16, 1, 1, 1), 16),
        (symmetric(4, 4, 2, 1), 16),
        (symmetric(8, 1, 1, 2), 16),
    ] {
        for seed in 0..10 {
            let mut linux = busy(&topology, n, seeded(seed));
            linux.advance(ms(1_000));
            let mut cpus = cpus_of(&linux, n);
            cpus.sort_unstable();
            cpus.dedup();
            assert_eq!(cpus.len(), n as usize, "{}", topology.caches.len());
            let before = cpus_of(&linux, n);
            let switches = linux.switches();
            assert_eq!(
                linux.next_event(),
                Nanos::NEVER,
                "nothing is left to happen"
            );
            linux.advance(ms(20_000));
            assert_eq!((cpus_of(&linux, n), linux.switches()), (before, switches));
        }
    }
}

#[test]
fn new_threads_take_idle_cores_before_smt_siblings() {
    let topology = symmetric(4, 2, 1, 2);
    for seed in 0..10 {
        let linux = busy(&topology, 8, seeded(seed));
        let mut cores: Vec<u32> = cpus_of(&linux, 8)
            .iter()
            .map(|c| topology.cpus[*c as usize].core)
            .collect();
        cores.sort_unstable();
        cores.dedup();
        assert_eq!(cores.len(), 8);
    }
}

#[test]
fn new_threads_spread_over_last_level_caches() {
    let topology = symmetric(4, 2, 1, 1);
    let linux = busy(&topology, 4, seeded(0));
    let on_first = cpus_of(&linux, 4).iter().filter(|c| **c < 4).count();
    assert_eq!(on_first, 2);
}

#[test]
fn among_equally_idle_cpus_the_seed_decides() {
    let topology = symmetric(8, 1, 1, 1);
    let first = |seed| {
        let mut linux = Linux::new(&topology, seeded(seed));
        linux.fork(ThreadId(0), 0, &all(), None, Nanos::ZERO).0
    };
    let mut seen: Vec<u32> = (0..40).map(first).collect();
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() >= 5, "{seen:?}");
}

#[test]
fn a_woken_thread_returns_to_its_idle_cpu() {
    let mut linux = busy(&symmetric(8, 2, 1, 1), 4, seeded(1));
    for i in 0..50 {
        let at = ms(100 + 20 * i);
        let cpu = linux.cpu_of(ThreadId(2));
        linux.block(ThreadId(2), at);
        assert_eq!(linux.wake(ThreadId(2), None, at + ms(10)), cpu);
    }
    assert_eq!(linux.migrations(ThreadId(2)), 0);
}

#[test]
fn a_wakee_stays_on_its_idle_cpu_when_an_idle_neighbour_takes_the_interrupt() {
    let mut linux = Linux::new(&symmetric(4, 2, 1, 1), seeded(2));
    linux.fork(ThreadId(0), 0, &only("2"), None, Nanos::ZERO);
    linux.set_affinity(ThreadId(0), &all(), ms(10));
    linux.block(ThreadId(0), ms(20));
    assert_eq!(linux.wake(ThreadId(0), Some(CpuId(0)), ms(30)), CpuId(2));
}

#[test]
fn the_cpu_of_the_time_before_is_tried_where_its_own_is_busy() {
    let mut linux = Linux::new(&symmetric(4, 1, 1, 1), seeded(2));
    linux.fork(ThreadId(0), 0, &only("2"), None, Nanos::ZERO);
    linux.set_affinity(ThreadId(0), &all(), ms(10));
    linux.threads[0].recent_cpu = 1;
    linux.block(ThreadId(0), ms(20));
    assert_eq!(linux.wake(ThreadId(0), None, ms(30)), CpuId(2));
    linux.block(ThreadId(0), ms(40));
    linux.fork(ThreadId(1), 0, &only("2"), None, ms(45));
    assert_eq!(linux.wake(ThreadId(0), None, ms(50)), CpuId(1));
}

fn wake_by_first(linux: &mut Linux, t: u32, at: Nanos) {
    linux.block(ThreadId(t), Nanos(at.0 - MS));
    linux.wake(ThreadId(t), Some(CpuId(0)), at);
}

/// Model in which thread 0 woke threads 1 and 2, which may run on the given CPUs, one after the other.
fn woken_in_turn(allowed: [&str; 2]) -> Linux {
    let mut linux = Linux::new(&symmetric(4, 2, 1, 1), seeded(2));
    linux.fork(ThreadId(0), 0, &only("0"), None, Nanos::ZERO);
    for (t, cpus) in (1..).zip(allowed) {
        linux.fork(ThreadId(t), 0, &only(cpus), None, Nanos::ZERO);
    }
    for i in 0..64 {
        wake_by_first(&mut linux, 1 + i % 2, ms(10 + 10 * u64::from(i)));
    }
    linux
}

#[test]
fn partners_of_long_ago_do_not_make_a_waker_a_dispatcher() {
    let mut linux = woken_in_turn(["1-2", "1-2"]);
    assert!(linux.threads[0].wakee_flips >= 32);
    for i in 1..=8 {
        wake_by_first(&mut linux, 1, ms(1_000 + 1_100 * i));
    }
    assert!(linux.threads[0].wakee_flips <= 1);
}

#[test]
fn partners_that_may_run_on_one_cpu_alone_do_not_count() {
    assert_eq!(woken_in_turn(["1", "2"]).threads[0].wakee_flips, 0);
    assert_eq!(woken_in_turn(["1-2", "2"]).threads[0].wakee_flips, 1);
}

#[test]
fn a_woken_thread_finds_an_idle_neighbour_when_its_cpu_is_taken() {
    let topology = symmetric(4, 2, 1, 1);
    let mut linux = Linux::new(&topology, seeded(2));
    linux.fork(ThreadId(0), 0, &only("0"), None, Nanos::ZERO);
    linux.advance(ms(10));
    linux.block(ThreadId(0), ms(10));
    linux.fork(ThreadId(1), 0, &only("0"), None, ms(11));
    linux.set_affinity(ThreadId(0), &all(), ms(11));
    let cpu = linux.wake(ThreadId(0), None, ms(20));
    assert!((1..4).contains(&cpu.0), "{cpu} shares the cache of cpu0");
}

#[test]
fn a_wakee_is_drawn_to_its_waker_when_the_previous_cpu_is_busy() {
    let topology = symmetric(4, 2, 1, 1);
    let mut linux = Linux::new(&topology, seeded(3));
    linux.fork(ThreadId(0), 0, &only("0"), None, Nanos::ZERO);
    linux.advance(ms(100));
    linux.block(ThreadId(0), ms(100));
    // All CPUs of the previous cache are busy, those of the waker's are not.
    for t in 1..9 {
        linux.fork(
            ThreadId(t),
            0,
            &only(&((t - 1) % 4).to_string()),
            None,
            ms(100),
        );
    }
    linux.fork(ThreadId(9), 0, &only("4"), None, ms(100));
    linux.set_affinity(ThreadId(0), &all(), ms(300));
    let cpu = linux.wake(ThreadId(0), Some(CpuId(4)), ms(400));
    assert!((4..8).contains(&cpu.0), "{cpu}");
}

#[test]
fn a_thread_never_runs_where_it_may_not() {
    let topology = symmetric(4, 2, 1, 2);
    let mut linux = Linux::new(&topology, seeded(4));
    for t in 0..40 {
        linux.fork(
            ThreadId(t),
            0,
            &only(["0-3", "2", "8-15", "5,9"][t as usize % 4]),
            None,
            ms(u64::from(t)),
        );
    }
    while linux.next_event() < ms(3_000) {
        let at = linux.next_event();
        linux.advance(at);
        for cpu in 0..16 {
            let Some(t) = linux.running(CpuId(cpu)) else {
                continue;
            };
            assert!(
                only(["0-3", "2", "8-15", "5,9"][t.index() % 4]).contains(CpuId(cpu)),
                "{t} on cpu{cpu}"
            );
        }
    }
    check(&linux);
}

#[test]
fn a_forbidden_cpu_is_left_at_once() {
    let mut linux = busy(&symmetric(4, 1, 1, 1), 4, seeded(5));
    let t = linux.running(CpuId(0)).unwrap();
    linux.set_affinity(t, &only("2"), ms(50));
    assert_eq!(linux.cpu_of(t), CpuId(2));
    assert_eq!(linux.running(CpuId(0)), None);
    check(&linux);
}

#[test]
fn a_small_thread_is_placed_where_it_costs_least_energy_and_a_large_one_where_it_fits() {
    let topology = machine("juno-2-4");
    let big: Vec<bool> = topology.cpus.iter().map(|c| c.capacity == 1024).collect();
    let mut linux = Linux::new(&topology, seeded(6));
    linux.fork(ThreadId(0), 0, &all(), None, Nanos::ZERO);
    // 5 % of a big CPU: the thread settles on a little one.
    let mut now = 0;
    for _ in 0..100 {
        now += MS;
        linux.block(ThreadId(0), Nanos(now));
        now += 19 * MS;
        linux.wake(ThreadId(0), None, Nanos(now));
    }
    assert!(!big[linux.cpu_of(ThreadId(0)).index()]);
    // After running without a pause it outgrows the little CPU.
    linux.advance(Nanos(now) + ms(500));
    assert!(big[linux.cpu_of(ThreadId(0)).index()]);
    assert!(linux.utilisation(ThreadId(0)) > 900.0);
    // After a short sleep it returns to a CPU that it fits.
    linux.block(ThreadId(0), Nanos(now) + ms(500));
    linux.wake(ThreadId(0), None, Nanos(now) + ms(501));
    assert!(big[linux.cpu_of(ThreadId(0)).index()]);
}

#[test]
fn a_dispatcher_with_many_partners_does_not_draw_them_in() {
    let topology = symmetric(2, 2, 1, 1);
    let mut linux = Linux::new(&topology, seeded(7));
    linux.fork(ThreadId(0), 0, &only("0"), None, Nanos::ZERO);
    linux.advance(ms(1));
    for t in 1..9 {
        linux.fork(ThreadId(t), 0, &only("2-3"), None, ms(1));
    }
    for round in 0..40 {
        let at = ms(40 + round * 20);
        for t in 1..9 {
            linux.block(ThreadId(t), at);
        }
        for t in 1..9 {
            linux.wake(ThreadId(t), Some(CpuId(0)), at + ms(10));
        }
    }
    assert!(linux.threads[0].wakee_flips > 2 * 2);
    linux.threads[1].wakee_flips = 2;
    assert!(linux.wake_wide(0, 1));
    linux.threads[0].wakee_flips = 3;
    assert!(!linux.wake_wide(0, 1));
}
