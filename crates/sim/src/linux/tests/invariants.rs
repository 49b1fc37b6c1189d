//! Invariants after any sequence of events.

use countersteer_model::control::CpuBandwidth;
use countersteer_model::placement::Clamp;
use rand::RngExt;

use super::*;

fn machines() -> Vec<Topology> {
    let mut machines = vec![
        symmetric(4, 1, 1, 1),
        symmetric(4, 2, 1, 2),
        symmetric(2, 4, 2, 1),
        symmetric(1, 1, 1, 1),
    ];
    machines.extend(
        [
            "i9-12900k",
            "i9-12900k-8p8e",
            "phone-1-3-4",
            "juno-2-4",
            "apple-m1",
        ]
        .map(machine),
    );
    machines
}

fn random_mask(rng: &mut Pcg64, cpus: u32) -> CpuSet {
    match rng.random_range(0..4) {
        0 => CpuId(rng.random_range(0..cpus))
            .0
            .to_string()
            .parse()
            .unwrap(),
        1 => (0..cpus).filter(|_| rng.random()).map(CpuId).collect(),
        _ => all(),
    }
}

/// Applies one random event.
fn step(linux: &mut Linux, topology: &Topology, rng: &mut Pcg64, now: Nanos, threads: u32) {
    let cpus = topology.cpus.len() as u32;
    let t = ThreadId(rng.random_range(0..threads));
    let alive = linux
        .threads
        .get(t.index())
        .is_some_and(|x| x.state != TaskState::Dead);
    let cpu = rng
        .random::<bool>()
        .then(|| CpuId(rng.random_range(0..cpus)));
    if !alive {
        linux.fork_in(
            Some(rng.random_range(0..6)),
            t,
            rng.random_range(-5..10),
            &random_mask(rng, cpus),
            cpu,
            now,
        );
        return;
    }
    match rng.random_range(0..14) {
        12 => linux.set_online(
            topology,
            CpuId(rng.random_range(0..cpus)),
            rng.random(),
            now,
        ),
        13 => linux.set_clamp(t, random_clamp(rng), now),
        0 => linux.exit(t, now),
        1 => linux.set_affinity(t, &random_mask(rng, cpus), now),
        2 => linux.set_nice(t, rng.random_range(-20..20), now),
        3 => linux.yield_now(t, now),
        4 => linux.set_slice(
            t,
            rng.random::<bool>()
                .then(|| Nanos(rng.random_range(100_000..8_000_000))),
            now,
        ),
        5..=7 => {
            linux.wake(t, cpu, now);
        }
        8 | 9 => linux.block(t, now),
        _ => linux.advance(now),
    }
}

fn random_clamp(rng: &mut Pcg64) -> Clamp {
    let least = rng.random_range(0..=Clamp::MOST);
    Clamp {
        least,
        most: rng.random_range(least..=Clamp::MOST),
    }
}

/// Puts processes 0 and 1 into a group each, and 2 and 3 into groups with limits; 4 and 5 stay in the root group.
fn with_groups(linux: &mut Linux) {
    let limit = |quota_ms, period_ms| {
        Some(CpuBandwidth {
            quota: ms(quota_ms),
            period: ms(period_ms),
        })
    };
    for (process, (weight, limit)) in [
        (100, None),
        (10, None),
        (300, limit(20, 50)),
        (100, limit(150, 100)),
    ]
    .into_iter()
    .enumerate()
    {
        let group = linux.add_group(weight, limit);
        linux.set_group(process as u32, group);
    }
}

fn random_run(
    topology: &Topology,
    config: LinuxConfig,
    steps: u32,
    checked: bool,
) -> Vec<ContextSwitch> {
    let mut rng = Pcg64::seed_from_u64(config.seed ^ 0x5eed);
    let cpus = topology.cpus.len() as u32;
    let mut linux = Linux::new(topology, config);
    with_groups(&mut linux);
    let mut now = 0;
    let mut log = Vec::new();
    for _ in 0..steps {
        let mean = [1_000, 300_000, 10_000_000][rng.random_range(0..3)];
        now += rng.random_range(0..2 * mean);
        step(&mut linux, topology, &mut rng, Nanos(now), 2 * cpus + 2);
        log.extend(linux.take_switches());
        assert!(linux.next_event() > Nanos(now));
        if checked {
            check(&linux);
        }
    }
    log
}

fn configs(seed: u64) -> [LinuxConfig; 4] {
    let base = seeded(seed);
    [
        base.clone(),
        LinuxConfig {
            scheduler: FairClass::Cfs,
            ..base.clone()
        },
        LinuxConfig {
            hrtick: true,
            lazy_preemption: true,
            ..base.clone()
        },
        LinuxConfig {
            run_to_parity: false,
            delay_dequeue: false,
            skew_tick: true,
            ..base
        },
    ]
}

#[test]
fn after_any_event_every_runnable_thread_is_queued_once_on_an_allowed_cpu_and_no_cpu_idles_beside_work()
 {
    for topology in machines() {
        for seed in 0..3 {
            for config in configs(seed) {
                random_run(&topology, config, 1_000, true);
            }
        }
    }
}

#[test]
fn switches_tell_a_consistent_story() {
    for topology in machines() {
        for config in configs(77) {
            let mut running = vec![None; topology.cpus.len()];
            let mut at = Nanos::ZERO;
            for switch in random_run(&topology, config, 2_000, false) {
                assert!(switch.at >= at);
                at = switch.at;
                assert_eq!(running[switch.cpu.index()], switch.prev);
                assert_ne!(switch.prev, switch.next);
                running[switch.cpu.index()] = switch.next;
            }
        }
    }
}

#[test]
fn the_same_calls_give_the_same_switches() {
    for topology in machines() {
        let run = |seed| random_run(&topology, seeded(seed), 1_500, false);
        assert_eq!(run(5), run(5));
        assert_ne!(run(5), run(6));
    }
}

#[test]
fn running_time_equals_busy_time() {
    for topology in [
        symmetric(4, 2, 1, 1),
        machine("i9-12900k"),
        machine("phone-1-3-4"),
    ] {
        let cpus = topology.cpus.len() as u32;
        for count in [1, cpus / 2, cpus, 3 * cpus] {
            let mut linux = Linux::new(&topology, seeded(u64::from(count)));
            for t in 0..count {
                linux.fork(ThreadId(t), 0, &all(), None, Nanos::ZERO);
            }
            let mut idle = vec![None; cpus as usize];
            let mut idled = 0;
            let until = Nanos::from_millis(2_000);
            linux.advance(until);
            (0..cpus as usize).for_each(|c| idle[c] = Some(0));
            for s in linux.take_switches() {
                match (s.prev, s.next) {
                    (None, _) => idled += s.at.0 - idle[s.cpu.index()].take().unwrap(),
                    (_, None) => idle[s.cpu.index()] = Some(s.at.0),
                    _ => {}
                }
            }
            idled += idle
                .iter()
                .flatten()
                .map(|from| until.0 - from)
                .sum::<u64>();
            let ran: u64 = (0..count).map(|t| linux.run_time(ThreadId(t)).0).sum();
            assert_eq!(
                ran + idled,
                until.0 * u64::from(cpus),
                "{} {count}",
                topology.name
            );
        }
    }
}

#[test]
fn calls_that_come_late_are_served_after_what_was_due() {
    let topology = symmetric(4, 1, 1, 1);
    let mut late = busy(&topology, 9, seeded(2));
    let mut prompt = busy(&topology, 9, seeded(2));
    while prompt.next_event() <= ms(5_000) {
        let at = prompt.next_event();
        prompt.advance(at);
    }
    late.advance(ms(5_000));
    assert_eq!(
        late.take_switches().collect::<Vec<_>>(),
        prompt.take_switches().collect::<Vec<_>>()
    );
}
