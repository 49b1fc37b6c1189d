//! Tests of threads that balancing moves or leaves in place.

use super::*;

fn big(topology: &Topology, linux: &Linux, t: u32) -> bool {
    topology.core_type_of(linux.cpu_of(ThreadId(t))).0 == 0
}

#[test]
fn a_newly_idle_cpu_pulls_a_waiting_thread() {
    let topology = symmetric(2, 1, 1, 1);
    let mut linux = Linux::new(&topology, seeded(1));
    for t in 0..2 {
        linux.fork(ThreadId(t), 0, &only("0"), None, Nanos::ZERO);
    }
    linux.fork(ThreadId(2), 0, &only("1"), None, Nanos::ZERO);
    linux.advance(ms(50));
    let waiting = (0..2)
        .map(ThreadId)
        .find(|t| linux.running(CpuId(0)) != Some(*t))
        .unwrap();
    linux.set_affinity(waiting, &all(), ms(50));
    linux.exit(ThreadId(2), ms(50) + Nanos(1));
    assert_eq!(linux.running(CpuId(1)), Some(waiting));
}

#[test]
fn a_hot_thread_is_not_pulled() {
    let topology = symmetric(2, 1, 1, 1);
    let run = |after: Nanos| {
        let mut linux = Linux::new(&topology, seeded(2));
        for t in 0..2 {
            linux.fork(ThreadId(t), 0, &only("0"), None, Nanos::ZERO);
        }
        linux.fork(ThreadId(2), 0, &only("1"), None, Nanos::ZERO);
        linux.advance(ms(100));
        let switched = linux.next_event();
        linux.advance(switched);
        for t in 0..2 {
            linux.set_affinity(ThreadId(t), &all(), switched);
        }
        linux.exit(ThreadId(2), switched + after);
        linux.running(CpuId(1)).is_some()
    };
    assert!(!run(Nanos::from_micros(400)));
    assert!(run(Nanos::from_micros(600)));
}

#[test]
fn an_idle_cpu_is_filled_by_idle_balancing() {
    // Both threads are pinned together, then freed: no thread wakes, so that only the tick's idle balance can help.
    for seed in 0..5 {
        let mut linux = Linux::new(&symmetric(2, 2, 1, 1), seeded(seed));
        for t in 0..2 {
            linux.fork(ThreadId(t), 0, &only("0"), None, Nanos::ZERO);
        }
        linux.advance(ms(50));
        for t in 0..2 {
            linux.set_affinity(ThreadId(t), &all(), ms(50));
        }
        linux.advance(ms(150));
        assert_ne!(linux.cpu_of(ThreadId(0)), linux.cpu_of(ThreadId(1)));
        check(&linux);
    }
}

#[test]
fn idle_balancing_goes_on_after_a_tick_at_which_no_cpu_idled() {
    let mut linux = Linux::new(&symmetric(2, 1, 1, 1), seeded(1));
    for t in 0..2 {
        linux.fork(ThreadId(t), 0, &only("0"), None, Nanos::ZERO);
    }
    linux.advance(ms(50));
    linux.fork(ThreadId(2), 0, &only("1"), None, ms(50));
    linux.advance(ms(1_000));
    linux.exit(ThreadId(2), ms(1_000));
    linux.advance(ms(1_050));
    for t in 0..2 {
        linux.set_affinity(ThreadId(t), &all(), ms(1_050));
    }
    linux.advance(ms(1_650));
    assert_ne!(linux.cpu_of(ThreadId(0)), linux.cpu_of(ThreadId(1)));
}

#[test]
fn three_threads_on_two_cpus_are_unfair_for_a_moment_and_fair_in_the_long_run() {
    for seed in 0..5 {
        let mut linux = busy(&symmetric(2, 1, 1, 1), 3, seeded(seed));
        // Between two balances two threads share one CPU, and the third has the other CPU to itself.
        let mut alone = 0;
        for window in 1..=200 {
            let got = shares(&mut linux, 3, ms(10 + window * 24));
            alone += u32::from(got.iter().any(|g| *g > 23.9));
        }
        assert!(alone > 50, "{alone}");
        let got = shares(&mut linux, 3, ms(65_000));
        let total: f64 = got.iter().sum();
        assert!(
            got.iter().all(|g| (g / total * 3.0 - 1.0).abs() < 0.05),
            "{got:?}"
        );
    }
}

#[test]
fn many_threads_even_out_over_caches() {
    for topology in [
        symmetric(4, 2, 1, 1),
        symmetric(2, 4, 2, 1),
        symmetric(2, 2, 1, 2),
    ] {
        for seed in 0..3 {
            let mut linux = Linux::new(&topology, seeded(seed));
            for t in 0..32 {
                linux.fork(ThreadId(t), 0, &only("0"), None, Nanos::ZERO);
            }
            linux.advance(ms(100));
            for t in 0..32 {
                linux.set_affinity(ThreadId(t), &all(), ms(100));
            }
            linux.advance(ms(8_000));
            let loads: Vec<usize> = (0..8).map(|c| linux.nr_running(CpuId(c))).collect();
            assert!(loads.iter().all(|l| (3..=5).contains(l)), "{loads:?}");
            check(&linux);
        }
    }
}

#[test]
fn pinned_threads_do_not_keep_others_from_leaving() {
    let mut linux = Linux::new(&symmetric(4, 1, 1, 1), seeded(3));
    for t in 0..4 {
        linux.fork(ThreadId(t), 0, &only("0"), None, Nanos::ZERO);
    }
    for t in 4..7 {
        linux.fork(ThreadId(t), 0, &only("0-1"), None, Nanos::ZERO);
    }
    linux.advance(ms(3_000));
    assert!((3..=4).contains(&linux.nr_running(CpuId(1))) || linux.nr_running(CpuId(0)) <= 5);
    assert_eq!(linux.nr_running(CpuId(2)) + linux.nr_running(CpuId(3)), 0);
}

#[test]
fn a_cpu_bound_thread_moves_from_a_little_to_an_idle_big_cpu() {
    for name in [
        "juno-2-4",
        "phone-1-3-4",
        "apple-m1",
        "quickia-2b-2s",
        "i9-12900k-8p8e",
    ] {
        let topology = machine(name);
        for seed in 0..3 {
            let little: CpuSet = {
                let slowest = topology.extremes().1;
                topology
                    .cpus
                    .iter()
                    .filter(|c| c.core_type == slowest)
                    .map(|c| c.id)
                    .collect()
            };
            let mut linux = Linux::new(&topology, seeded(seed));
            linux.fork(ThreadId(0), 0, &little, None, Nanos::ZERO);
            linux.advance(ms(5));
            linux.set_affinity(ThreadId(0), &all(), ms(5));
            linux.advance(ms(400));
            let asymmetric = linux.domains.asymmetric;
            assert_eq!(
                big(&topology, &linux, 0),
                asymmetric,
                "{name} {:?}",
                topology.linux
            );
            if asymmetric {
                assert!(
                    linux.migrations(ThreadId(0)) <= 2,
                    "{name}: by way of a middle core at most"
                );
            }
        }
    }
}

#[test]
fn a_big_cpu_that_runs_dry_takes_over_a_misfit_thread() {
    let topology = machine("juno-2-4");
    let n = topology.cpus.len() as u32;
    let mut linux = busy(&topology, n, seeded(4));
    linux.advance(ms(1_000));
    let on_big = (0..n).find(|t| big(&topology, &linux, *t)).unwrap();
    let cpu = linux.cpu_of(ThreadId(on_big));
    linux.exit(ThreadId(on_big), ms(1_000));
    linux.advance(ms(1_001));
    assert!(linux.running(cpu).is_some());
    assert_eq!(linux.nr_running(cpu), 1);
}

#[test]
fn smt_hybrids_pack_fast_cores_first_then_slow_ones_then_siblings() {
    let topology = machine("i9-12900k");
    for seed in 0..10 {
        for count in [2, 4, 8, 12, 16] {
            let mut linux = busy(&topology, count, seeded(seed));
            linux.advance(ms(2_000));
            let mut fast: Vec<u32> = (0..count)
                .filter(|t| big(&topology, &linux, *t))
                .map(|t| topology.cpus[linux.cpu_of(ThreadId(t)).index()].core)
                .collect();
            let on_fast = fast.len();
            fast.sort_unstable();
            fast.dedup();
            assert_eq!(
                fast.len(),
                count.min(8) as usize,
                "{count} threads, seed {seed}: fast cores {fast:?}"
            );
            assert_eq!(
                on_fast,
                fast.len(),
                "{count} threads, seed {seed}: two on a fast core"
            );
        }
    }
}

#[test]
fn nothing_happens_on_a_quiet_machine() {
    for name in [
        "i9-12900k",
        "juno-2-4",
        "apple-m1",
        "xeon-x5365-2-2",
        "server-12llc",
    ] {
        let topology = machine(name);
        for count in [0, 1, 3] {
            let mut linux = busy(&topology, count, seeded(8));
            linux.advance(ms(3_000));
            assert_eq!(
                linux.next_event(),
                Nanos::NEVER,
                "{name} with {count} threads"
            );
        }
    }
}

#[test]
fn after_a_quiet_spell_idle_cpus_balance_at_the_next_tick() {
    let topology = symmetric(4, 2, 1, 1);
    let tick = ms(4);
    for seed in 0..10 {
        let mut linux = Linux::new(&topology, seeded(seed));
        for t in 0..6 {
            linux.fork(ThreadId(t), 0, &only("0-3"), Some(CpuId(0)), ms(0));
            linux.block(ThreadId(t), Nanos(10_000));
        }
        for t in 0..6 {
            linux.wake(ThreadId(t), None, ms(500));
            linux.set_affinity(ThreadId(t), &all(), ms(500));
        }
        linux.advance(ms(500) + tick);
        let busy = linux.rqs.iter().filter(|rq| !rq.idle).count();
        assert_eq!(busy, 5, "seed {seed}");
    }
}
