//! Threads of a program that share data, in the analytic model.

#![allow(clippy::unwrap_used)] // a test helper that fails has failed its test

use std::path::Path;
use std::sync::Arc;

use countersteer_model::events::Event;
use countersteer_model::machine::Machine;
use countersteer_model::profile::{LogHistogram, Profile, Sharing};
use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, Nanos, ThreadId};
use countersteer_sim::progress::synthetic::{Kind, chase, compute, profile, streaming};
use countersteer_sim::progress::{Analytic, Counters, ProgressConfig, ProgressModel};

fn machine() -> Arc<Topology> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/core2-quad.toml");
    let text = std::fs::read_to_string(path).unwrap();
    Arc::new(Topology::new(&Machine::parse("core2-quad", &text).unwrap()))
}

const fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// Sharing in which `invalidated` accesses per kilo-instruction are to near lines that another thread wrote since.
fn sharing(shared: f64, touched_before: f64, invalidated: f64) -> Sharing {
    let mut of = Sharing {
        shared,
        touched_before,
        invalidated_pki: LogHistogram::default(),
    };
    of.invalidated_pki.add(4, invalidated);
    of
}

/// Threads of one program on the given CPUs.
fn program(kind: Kind, sharing: Sharing, cpus: &[u32]) -> Analytic {
    let mut recorded = profile("p", &[(kind, 1_000_000_000)]);
    if let Profile::Recorded(recorded) = &mut recorded {
        recorded.shape.threads = 2;
        recorded.behaviours[0].sharing = Some(sharing);
    }
    let config = ProgressConfig {
        costs: false,
        ..ProgressConfig::default()
    };
    let mut progress = Analytic::new(machine(), config);
    let model = progress.add_program(Arc::new(recorded)).unwrap();
    progress.begin_program();
    for (thread, cpu) in (0..).map(ThreadId).zip(cpus) {
        progress.add_thread(thread, model);
        progress.set_work(thread, 0.0, 1e15, 1.0, Nanos::ZERO);
        progress.set_running(CpuId(*cpu), Some(thread), Nanos::ZERO);
    }
    progress
}

/// Misses of the last level, and accesses to modified lines, per kilo-instruction of the first thread in the third second.
fn pki(progress: &mut Analytic) -> [f64; 2] {
    let before = progress.counters(ThreadId(0), ms(2000));
    let after = progress.counters(ThreadId(0), ms(3000));
    let instructions = after.instructions - before.instructions;
    [Event::LlcMisses, Event::SharedModified].map(|event| {
        let of = |c: &Counters| c.event(event).unwrap();
        (of(&after) - of(&before)) / instructions * 1000.0
    })
}

#[test]
fn common_lines_count_once_in_a_shared_cache() {
    // Two thirds of the cache of CPUs 0 and 1, which has 65,536 lines.
    let misses = |shared, cpus: &[u32]| {
        let mut progress = program(chase(44_000), sharing(shared, 0.0, 0.0), cpus);
        let [misses, _] = pki(&mut progress);
        let llc = machine().llc_of(CpuId(0));
        let held: f64 = (0..cpus.len())
            .map(|t| progress.occupancy_lines(ThreadId(t as u32), llc))
            .sum();
        (misses, held)
    };
    let (alone, _) = misses(1.0, &[0]);
    let (apart, filled) = misses(0.0, &[0, 1]);
    let (common, held) = misses(1.0, &[0, 1]);
    assert!(alone < 0.2 && apart > 20.0, "{alone} {apart}");
    assert!(common < 0.5, "{common}");
    assert!(filled > 60_000.0, "{filled}");
    assert!((held / 44_000.0 - 1.0).abs() < 0.05, "{held}");
    // Half of the accesses are to lines of its own: three halves of the data are just too much.
    let (half, _) = misses(0.5, &[0, 1]);
    assert!(half > common && half < 0.7 * apart, "{half} of {apart}");
}

#[test]
fn stores_of_other_cores_cost_an_access_to_the_cache_that_both_use() {
    let of = |invalidated, cpus: &[u32]| {
        let mut progress = program(compute(), sharing(0.0, 0.0, invalidated), cpus);
        let [missed, modified] = pki(&mut progress);
        let speed = progress.counters(ThreadId(0), ms(4000)).instructions;
        (speed, modified, missed)
    };
    let (alone, none, _) = of(5.0, &[0]);
    assert_eq!(none, 0.0);
    let (quiet, ..) = of(0.0, &[0, 1]);
    assert!((alone / quiet - 1.0).abs() < 1e-6);
    let (near, modified, near_misses) = of(5.0, &[0, 1]);
    assert!((modified - 5.0).abs() < 1e-6, "{modified}");
    assert!(near < 0.98 * quiet, "{near} {quiet}");
    let (far, modified, far_misses) = of(5.0, &[0, 2]);
    assert!((modified - 5.0).abs() < 1e-6, "{modified}");
    assert!(far < 0.9 * near, "{far} {near}");
    assert!((far_misses - near_misses - 5.0).abs() < 0.01);
}

#[test]
fn lines_that_another_thread_brought_in_are_no_cold_misses() {
    let misses = |touched_before, cpus: &[u32]| {
        let of = sharing(0.0, touched_before, 0.0);
        pki(&mut program(streaming(), of, cpus))[0]
    };
    let all = misses(0.0, &[0, 1]);
    assert!((misses(0.6, &[0]) - all).abs() < 0.01);
    assert!((misses(0.6, &[0, 1]) / all - 0.4).abs() < 0.01);
    assert!((misses(0.6, &[0, 2]) - all).abs() < 0.01);
}
