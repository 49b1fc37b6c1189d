//! Tests of the affinity engine on real threads. They need no privilege; with fewer than two CPUs they are skipped with a
//! message.

#![allow(clippy::unwrap_used, clippy::panic)] // a test helper that fails has failed its test

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use countersteer_counters::resolve;
use countersteer_counters::{Pmus, Resolved};
use countersteer_live::affinity::AffinityConfig;
use countersteer_live::placer::{CounterPlan, ProcessRoot, Recount};
use countersteer_live::{LiveConfig, LiveEngine, LiveWorkload, Stealing};
use countersteer_model::counters::{PlannedSet, SetPlan, parse_set};
use countersteer_model::cpunumbers::CpuNumbers;
use countersteer_model::cpuset::CpuSet;
use countersteer_model::engine::{Engine, ThreadEventKind, Watch};
use countersteer_model::placement::{Placement, Reason, Target, ThreadPlacement};
use countersteer_model::topology::Topology;
use countersteer_model::units::{Nanos, ProgramId, ThreadId};
use countersteer_sysfs::signals::EndSignals;

mod executing;
mod falling_back;
mod leaving;
mod losing;
mod placing;
mod recounting;

/// Program that ends with the test in any case.
struct Program(Child);

impl Program {
    fn start(script: &str) -> Self {
        // Its children may outlive it. They must neither block readers of this test's output nor run forever.
        let out = Stdio::null();
        let err = Stdio::null();
        Self(
            Command::new("sh")
                .args(["-c", &format!("ulimit -t 20; {script}")])
                .stdout(out)
                .stderr(err)
                .spawn()
                .unwrap(),
        )
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Script that waits for a file.
fn wait_for(gate: &Path) -> String {
    format!("while [ ! -e '{}' ]; do sleep 0.02; done", gate.display())
}

/// Script that waits for a file without children of its own.
fn spin_until(gate: &Path) -> String {
    format!("while [ ! -e '{}' ]; do :; done", gate.display())
}

const SPIN: &str = "while :; do :; done";

const WATCH: Watch<'_> = Watch {
    metrics: &[],
    period: PERIOD,
    events: false,
    switches: false,
    values: None,
};

fn mask(tid: u32) -> String {
    mask_if_any(tid).unwrap()
}

/// Mask of a thread; `None` if it has ended.
fn mask_if_any(tid: u32) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let mut lines = status.lines();
    let line = lines.find_map(|l| l.strip_prefix("Cpus_allowed_list:"))?;
    Some(line.trim().to_owned())
}

/// CPUs that this test may use; `None`, with a message, if they are too few.
fn two_cpus() -> Option<(String, Vec<u32>)> {
    let all = mask(std::process::id());
    let cpus: Vec<u32> = all
        .parse::<CpuSet>()
        .unwrap()
        .iter()
        .map(|c| c.0)
        .take(2)
        .collect();
    if cpus.len() < 2 {
        countersteer_fuzz::skipped("this machine has a single CPU");
        return None;
    }
    Some((all, cpus))
}

const PERIOD: Nanos = Nanos::from_millis(20);

/// Counters of multiplexed event sets.
fn counters(sets: &[&str], period: Nanos) -> CounterPlan {
    let pmus = Pmus::read(Path::new("/")).unwrap();
    let sets: Vec<_> = sets
        .iter()
        .map(|set| resolve(set, &parse_set(set).unwrap(), &pmus).unwrap())
        .collect();
    let planned = |set: &Vec<Resolved>| PlannedSet {
        events: set.iter().map(|e| e.planned.clone()).collect(),
    };
    let plan = SetPlan::new(sets.iter().map(planned).collect(), Some(period)).unwrap();
    (sets, plan)
}

fn engine(folder: &Path, counted: bool, dry: bool) -> LiveEngine {
    let counters = counted.then(|| counters(&["task_clock"], PERIOD));
    engine_that(counters, folder, dry, None)
}

/// Engine without programs of its own: each observation states that the run may end.
fn engine_that(
    counters: Option<CounterPlan>,
    folder: &Path,
    dry: bool,
    recount: Option<Box<dyn Recount>>,
) -> LiveEngine {
    let affinity = AffinityConfig {
        dry,
        ..config(counters)
    };
    engine_of(affinity, folder, recount)
}

fn engine_of(
    affinity: AffinityConfig,
    folder: &Path,
    recount: Option<Box<dyn Recount>>,
) -> LiveEngine {
    let config = LiveConfig {
        affinity,
        journals: folder.to_owned(),
        root: "/".into(),
        recount,
        stealing: Stealing::default(),
        signals: EndSignals::listen().unwrap(),
        say: |_| {},
    };
    LiveEngine::open(config, None, LiveWorkload::default()).unwrap()
}

/// Configuration in which every observation is the last one, and sees everything.
fn config(counters: Option<CounterPlan>) -> AffinityConfig {
    let machine = countersteer_sysfs::topology::detect(Path::new("/")).unwrap();
    AffinityConfig {
        topology: Arc::new(Topology::new(&machine)),
        numbers: CpuNumbers::new(machine.os_cpu_numbers()),
        counters,
        period: PERIOD,
        dry: false,
        bpf: None,
    }
}

fn root(program: &Program) -> ProcessRoot {
    ProcessRoot {
        pid: program.pid(),
        program: ProgramId(0),
        name: "program".into(),
    }
}

fn to(threads: &[u32], target: &Target) -> Placement {
    let place =
        |tid: &u32| ThreadPlacement::new(ThreadId(*tid), target.clone(), Reason::rule("test"));
    Placement {
        threads: threads.iter().map(place).collect(),
        ..Placement::default()
    }
}

fn cpu(engine: &LiveEngine, os: u32) -> Target {
    let all: CpuSet = std::iter::once(countersteer_model::units::CpuId(os)).collect();
    let machine = countersteer_sysfs::topology::detect(Path::new("/")).unwrap();
    assert!(engine.topology().cpus.len() > 1);
    Target::Cpus(Arc::new(
        CpuNumbers::new(machine.os_cpu_numbers()).own_set(&all),
    ))
}

fn end(pids: &[u32]) {
    let pids = pids.iter().map(ToString::to_string);
    let _ = Command::new("kill")
        .args(pids)
        .stderr(Stdio::null())
        .status();
}

/// Observes every 20 ms until the condition holds; fails if it does not for ten seconds.
fn until(
    engine: &mut LiveEngine,
    mut holds: impl FnMut(&countersteer_model::engine::Observation) -> bool,
) {
    for _ in 0..500 {
        let seen = engine.observe(&WATCH, Nanos::ZERO).unwrap();
        if holds(&seen) {
            return;
        }
        let seen = engine
            .observe(&WATCH, seen.at + Nanos::from_millis(20))
            .unwrap();
        if holds(&seen) {
            return;
        }
    }
    panic!(
        "it did not come about: {:?}",
        engine.observe(&WATCH, Nanos::ZERO).unwrap()
    );
}
