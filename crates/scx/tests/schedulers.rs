//! Schedulers of sched_ext in the simulator: shares, interfaces and faults.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use std::path::{Path, PathBuf};
use std::sync::Arc;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::machine::Machine;
use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, Nanos, ThreadId};
use countersteer_scx::{Ext, Library, ScxError};
use countersteer_sim::linux::ContextSwitch;
use countersteer_sim::scheduler::Scheduler;

const CORE2: &str = include_str!("../../../machines/core2-quad.toml");
const PHONE: &str = include_str!("../../../machines/phone-1-3-4.toml");
const I9: &str = include_str!("../../../machines/i9-12900k.toml");

fn topology(text: &str) -> Arc<Topology> {
    Arc::new(Topology::new(&Machine::parse("m", text).unwrap()))
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/schedulers")
        .join(name)
}

fn start(name: &str, machine: &str, parameters: &[(&str, &str)]) -> Result<Ext, ScxError> {
    let library = Library::build(&source(name))?;
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    let parameters: Vec<_> = parameters.iter().map(owned).collect();
    Ext::start(&library, &topology(machine), &parameters, 1)
}

/// Threads that always run, on the CPUs of a list, and their running times in seconds after a number of seconds.
fn run(ext: &mut Ext, nices: &[i8], cpus: &str, seconds: f64) -> Vec<f64> {
    let allowed: CpuSet = cpus.parse().unwrap();
    for (row, nice) in nices.iter().enumerate() {
        ext.fork_in(
            Some(row as u32),
            ThreadId(row as u32),
            *nice,
            &allowed,
            None,
            Nanos(0),
        );
    }
    until(ext, nices.len(), seconds)
}

fn until(ext: &mut Ext, threads: usize, seconds: f64) -> Vec<f64> {
    let end = Nanos::from_secs_f64(seconds);
    let mut switches: Vec<ContextSwitch> = Vec::new();
    while ext.next_event() <= end && ext.failure().is_none() {
        let next = ext.next_event();
        ext.advance(next);
        ext.take_switches(&mut switches);
    }
    ext.advance(end);
    ext.take_switches(&mut switches);
    let mut ran = vec![0.0; threads];
    let mut since = vec![None; 1024];
    for switch in switches {
        let (cpu, at) = (switch.cpu.index(), switch.at.0 as f64 * 1e-9);
        if let Some((thread, start)) = since[cpu].take() {
            ran[thread] += at - start;
        }
        since[cpu] = switch.next.map(|t: ThreadId| (t.index(), at));
    }
    for (thread, start) in since.into_iter().flatten() {
        ran[thread] += seconds - start;
    }
    ran
}

#[test]
fn virtual_time_shares_a_cpu_by_weight() {
    let mut ext = start("vtime.bpf.c", CORE2, &[]).unwrap();
    let ran = run(&mut ext, &[0, 5, 0, 5, 3], "0", 60.0);
    assert_eq!(ext.failure(), None);
    // Weights of nice 0, 5 and 3 are 1024, 335 and 526; sched_ext rounds them to 100, 33 and 51. A thread never runs twice in a
    // row while others wait, so none may be due more than half.
    for (ran, weight) in ran.iter().zip([100.0, 33.0, 100.0, 33.0, 51.0]) {
        let due = 60.0 * weight / 317.0;
        assert!((ran / due - 1.0).abs() < 0.02, "{ran} s for {due} s");
    }
}

#[test]
fn arrival_order_shares_cpus_alike_and_leaves_none_idle() {
    let mut ext = start(
        "vtime.bpf.c",
        CORE2,
        &[("fifo", "true"), ("slice_ns", "5000000")],
    )
    .unwrap();
    let ran = run(&mut ext, &[0; 6], "0-3", 30.0);
    assert!((ran.iter().sum::<f64>() - 120.0).abs() < 1e-6, "{ran:?}");
    assert!(ran.iter().all(|ran| (ran - 20.0).abs() < 0.1), "{ran:?}");
}

#[test]
fn idle_cores_are_filled_before_their_siblings() {
    let mut ext = start("vtime.bpf.c", I9, &[]).unwrap();
    let topology = topology(I9);
    let ran = run(&mut ext, &[0; 8], "0-15", 1.0);
    assert!(ran.iter().all(|ran| (ran - 1.0).abs() < 1e-9), "{ran:?}");
    let mut cores: Vec<u32> = (0..16)
        .filter(|cpu| ext.running(CpuId(*cpu)).is_some())
        .map(|cpu| topology.cpus[cpu as usize].core)
        .collect();
    cores.dedup();
    assert_eq!(
        cores.len(),
        8,
        "a thread on each of the eight cores: {cores:?}"
    );
}

#[test]
fn maps_storage_masks_timers_and_iterators_do_what_the_kernels_do() {
    let mut ext = start("checks.bpf.c", CORE2, &[]).unwrap();
    let ran = run(&mut ext, &[0; 6], "0-3", 2.0);
    assert_eq!(ext.failure(), None);
    assert!((ran.iter().sum::<f64>() - 8.0).abs() < 1e-6, "{ran:?}");
    for thread in 0..6 {
        ext.exit(ThreadId(thread), Nanos::from_secs_f64(2.0));
    }
    assert_eq!(ext.failure(), None);
    assert!((0..4).all(|cpu| ext.running(CpuId(cpu)).is_none()));
}

#[test]
fn sleepers_wake_on_their_cpu_and_forbidden_cpus_are_left() {
    let mut ext = start("vtime.bpf.c", CORE2, &[]).unwrap();
    let thread = ThreadId(0);
    let first = ext.fork_in(Some(0), thread, 0, &CpuSet::default(), None, Nanos(0));
    ext.block(thread, Nanos(1_000_000));
    assert_eq!(ext.running(first), None);
    let again = ext.wake(thread, Some(CpuId(3)), Nanos(2_000_000));
    assert_eq!((again, ext.running(again)), (first, Some(thread)));
    let other: CpuSet = "3".parse().unwrap();
    ext.set_affinity(thread, &other, Nanos(3_000_000));
    assert_eq!(ext.running(CpuId(3)), Some(thread));
    assert_eq!(ext.running(first), None);
    assert_eq!(ext.failure(), None);
}

#[test]
fn two_simulations_of_one_scheduler_share_nothing_and_repeat() {
    let library = Library::build(&source("vtime.bpf.c")).unwrap();
    let machine = topology(CORE2);
    let [mut a, mut b] = [1, 1].map(|seed| Ext::start(&library, &machine, &[], seed).unwrap());
    let apart = run(&mut a, &[0, 3, 7, -2, 0], "0-1", 5.0);
    assert_eq!(apart, run(&mut b, &[0, 3, 7, -2, 0], "0-1", 5.0));
}

#[test]
fn the_user_names_the_primary_domain() {
    let cpus = |parameters: &[(&str, &str)]| {
        let mut ext = start("primary.bpf.c", CORE2, parameters).unwrap();
        run(&mut ext, &[0, 0], "0-3", 1.0);
        assert_eq!(ext.failure(), None);
        [0, 1].map(|t| ext.cpu_of(ThreadId(t)).0)
    };
    assert_eq!(cpus(&[]), [0, 1]);
    assert_eq!(cpus(&[("primary", "1+3")]), [1, 3]);
    assert_eq!(cpus(&[("primary", "2-3")]), [2, 3]);
    for (name, value, why) in [
        ("primary.bpf.c", "4", "no CPU 4"),
        ("primary.bpf.c", "x", "0-3+8"),
        ("vtime.bpf.c", "0", "`enable_primary_cpu`"),
    ] {
        let Err(error) = start(name, CORE2, &[("primary", value)]) else {
            panic!("{name} takes {value}");
        };
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn arenas_are_memory_that_programs_prepare() {
    // A machine, its memory, two caches, and four cores of one CPU.
    let mut ext = start("arena.bpf.c", CORE2, &[("tree_nodes", "12")]).unwrap();
    let ran = run(&mut ext, &[0; 6], "0-3", 2.0);
    assert!((ran.iter().sum::<f64>() - 8.0).abs() < 1e-6, "{ran:?}");
    ext.exit(ThreadId(3), Nanos::from_secs_f64(2.0));
    assert_eq!(ext.failure(), None);
    let wrong = start("arena.bpf.c", CORE2, &[("tree_nodes", "11")]).err();
    let wrong = wrong.unwrap().to_string();
    assert!(wrong.contains("nodes == tree_nodes"), "{wrong}");
}

#[test]
fn maps_of_maps_hold_the_maps_of_their_sources() {
    let mut ext = start("queues.bpf.c", CORE2, &[]).unwrap();
    let ran = run(&mut ext, &[0; 6], "0-3", 3.0);
    assert_eq!(ext.failure(), None);
    assert!((ran.iter().sum::<f64>() - 12.0).abs() < 1e-6, "{ran:?}");
    assert!(ran.iter().all(|ran| (ran - 2.0).abs() < 0.1), "{ran:?}");
}

#[test]
fn tables_of_the_user_space_half_describe_the_machine() {
    // One thread runs on the first CPU of the table: little for little power, the prime core for performance.
    let cpus = |parameters: &[(&str, &str)]| {
        let mut ext = start("domains.bpf.c", PHONE, parameters).unwrap();
        run(&mut ext, &[0], "0-7", 0.1);
        assert_eq!(ext.failure(), None);
        (0..8).find(|cpu| ext.running(CpuId(*cpu)).is_some())
    };
    let topology = topology(PHONE);
    let capacity = |cpu: Option<u32>| topology.cpus[cpu.unwrap() as usize].capacity;
    assert_eq!(capacity(cpus(&[])), 1024);
    assert!(capacity(cpus(&[("row", "0")])) < 500);
    assert_eq!(cpus(&[("pco_table[1][0]", "5")]), Some(5));
    let text = |value| {
        let error = start("domains.bpf.c", PHONE, &[("cpu_turbo", value)]);
        error.err().unwrap().to_string()
    };
    assert!(text("1+x").contains("as in 4+6-7+0-3"), "{}", text("1+x"));
    // Every CPU turbo, also the little ones, is what the scheduler refuses.
    let all = "1+1+1+1+1+1+1+1";
    assert!(text(all).contains("cpu_turbo"), "{}", text(all));
}

#[test]
fn faults_end_the_simulation_with_their_reason() {
    let cases = [
        ("0", "thread 0 is runnable and has not run for 2000 ms"),
        ("1", "it dispatches thread 0 twice"),
        ("2", "it dispatched to queue 0x63, which it has not created"),
        (
            "3",
            "it dispatched thread 0 to CPU 2, which the thread may not use",
        ),
        ("4", "select_cpu returned 4, which is no CPU"),
        ("5", "it reschedules without end"),
    ];
    for (fault, why) in cases {
        let mut ext = start("faults.bpf.c", CORE2, &[("fault", fault)]).unwrap();
        run(&mut ext, &[0, 0, 0], "0-1", 10.0);
        let failure = ext.failure().unwrap_or_default();
        assert!(failure.contains(why), "{fault}: {failure}");
    }
    let error = start("faults.bpf.c", CORE2, &[("fault", "6")])
        .err()
        .unwrap();
    assert!(
        error
            .to_string()
            .ends_with("does not start: init returned -22"),
        "{error}"
    );
}

#[test]
fn what_cannot_be_built_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lacking.bpf.c");
    let build = |text: &str| {
        std::fs::write(&file, text).unwrap();
        Library::build(&file).unwrap_err().to_string()
    };
    let lacking = build(
        "#include <scx/common.bpf.h>\nvoid scx_bpf_imagined(int);\nvoid f(void) { scx_bpf_imagined(1); bpf_dream(); }\nSCX_OPS_DEFINE(ops, .name = \"x\");\n",
    );
    assert!(
        lacking
            .ends_with("the simulator lacks what the scheduler calls: bpf_dream, scx_bpf_imagined"),
        "{lacking}"
    );
    let broken = build("#include <scx/common.bpf.h>\nint f(void) { return }\n");
    assert!(
        broken.contains("does not compile") && broken.contains("error"),
        "{broken}"
    );
    let none = Library::build(&folder.path().join("nothing"))
        .unwrap_err()
        .to_string();
    assert!(none.contains("there is no BPF source"), "{none}");
    let unknown = start("vtime.bpf.c", CORE2, &[("slices", "1")])
        .err()
        .unwrap();
    assert!(
        unknown.to_string().contains("no variable `slices`; it has"),
        "{unknown}"
    );
    let word = start("vtime.bpf.c", CORE2, &[("slice_ns", "long")])
        .err()
        .unwrap();
    assert!(word.to_string().contains("it must be an integer"), "{word}");
}
