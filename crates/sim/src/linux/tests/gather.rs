//! Tests of gathering processes under last-level caches.

use super::*;

/// Creates `processes` processes of `threads` CPU-bound threads each, and starts them on separate CPUs. Threads alternate between
/// the two caches.
fn apart(topology: &Topology, processes: u32, threads: u32, config: LinuxConfig) -> Linux {
    let mut linux = Linux::new(topology, config);
    let cpus = topology.cpus.len() as u32;
    for t in 0..processes * threads {
        let cpu = (t % 2) * cpus / 2 + t / 2;
        let place = only(&cpu.to_string());
        let process = Some(t / threads);
        linux.fork_in(process, ThreadId(t), 0, &place, Some(CpuId(cpu)), ms(0));
        linux.set_affinity(ThreadId(t), &all(), ms(0));
    }
    linux
}

fn v7_2(llc_balancing: &str) -> LinuxConfig {
    kernel_config(&format!("7.2:llc_balancing={llc_balancing}")).unwrap()
}

/// Caches in which the threads of each process run after one second.
fn caches(topology: &Topology, processes: u32, threads: u32, config: LinuxConfig) -> Vec<Vec<u32>> {
    let mut linux = apart(topology, processes, threads, config);
    linux.advance(ms(1000));
    check(&linux);
    let half = topology.cpus.len() as u32 / 2;
    let of = |process: u32| {
        let own = (0..processes * threads).filter(|t| t / threads == process);
        own.map(|t| linux.cpu_of(ThreadId(t)).0 / half).collect()
    };
    (0..processes).map(of).collect()
}

#[test]
fn a_process_is_gathered_under_one_cache() {
    let topology = symmetric(4, 2, 1, 1);
    let of_one = |p: &Vec<u32>| p.iter().all(|c| *c == p[0]);
    for (processes, threads) in [(1, 3), (2, 2)] {
        let gathered = caches(&topology, processes, threads, v7_2("on"));
        assert!(gathered.iter().all(of_one), "{gathered:?}");
        let apart = caches(&topology, processes, threads, v7_2("off"));
        assert!(!apart.iter().all(of_one), "{apart:?}");
    }
}

#[test]
fn nobody_brings_two_lonely_threads_together() {
    // `nohz_balancer_kick`: a tick wakes an idle CPU to balance if two CPUs of a cache are busy.
    let topology = symmetric(4, 2, 1, 1);
    assert_eq!(caches(&topology, 1, 2, v7_2("on")), [[0, 1]]);
}

#[test]
fn more_threads_than_cores_are_left_to_ordinary_balancing() {
    let topology = symmetric(4, 2, 1, 1);
    let [threads] = &caches(&topology, 1, 6, v7_2("on"))[..] else {
        panic!("one process");
    };
    let here = threads.iter().filter(|c| **c == 0).count();
    assert_eq!(here, 3, "{threads:?}");
}

#[test]
fn with_siblings_a_cache_has_half_the_cores() {
    // Two running threads are too many for two cores, by the kernel's margin.
    let topology = symmetric(2, 2, 1, 2);
    let mut linux = apart(&topology, 1, 3, v7_2("on"));
    linux.advance(ms(1000));
    let caches: Vec<u32> = (0..3).map(|t| linux.cpu_of(ThreadId(t)).0 / 4).collect();
    assert!(caches.contains(&0) && caches.contains(&1), "{caches:?}");
}

#[test]
fn a_thread_that_was_woken_elsewhere_is_brought_back() {
    let topology = symmetric(4, 2, 1, 1);
    let mut linux = Linux::new(&topology, v7_2("on"));
    for t in 0..3 {
        let cpu = CpuId(t);
        linux.fork_in(Some(0), ThreadId(t), 0, &only("0-3"), Some(cpu), ms(0));
        linux.set_affinity(ThreadId(t), &all(), ms(0));
    }
    linux.advance(ms(200));
    linux.set_affinity(ThreadId(2), &only("6"), ms(200));
    linux.set_affinity(ThreadId(2), &all(), ms(201));
    assert_eq!(linux.cpu_of(ThreadId(2)), CpuId(6));
    linux.advance(ms(400));
    assert!(linux.cpu_of(ThreadId(2)).0 < 4);
}

#[test]
fn a_machine_with_one_cache_has_nothing_to_gather() {
    let linux = Linux::new(&symmetric(8, 1, 1, 1), v7_2("on"));
    assert!(!linux.gather.active);
    let linux = Linux::new(&symmetric(1, 8, 1, 1), v7_2("on"));
    assert!(!linux.gather.active, "caches of one CPU each");
    assert!(Linux::new(&symmetric(4, 2, 1, 1), v7_2("on")).gather.active);
    assert!(
        !Linux::new(&symmetric(4, 2, 1, 1), kernel_config("6.18").unwrap())
            .gather
            .active
    );
}

#[test]
fn kernels_and_switches_that_do_not_exist_are_named() {
    let error = |spec| kernel_config(spec).unwrap_err();
    assert!(error("7.1").contains("6.12, 6.18, 7.2"));
    assert!(error("7.2:llc=off").contains("llc_balancing"));
    assert_eq!(error("7.2:hrtick"), "hrtick is on or off");
    assert!(
        !kernel_config("7.2:llc_balancing=off,hrtick=off")
            .unwrap()
            .hrtick
    );
}
