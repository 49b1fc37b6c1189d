//! A policy that never returns from a decision, in a process that continues. The test is alone in its process, because it sets
//! an environment variable and adds a policy.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use countersteer_model::cpuset::CpuSet;
use countersteer_model::placement::{Placement, Reason, Target, ThreadPlacement};
use countersteer_model::policy::{Policy, PolicyDef, PolicyRng, View};
use countersteer_model::units::Nanos;
use countersteer_session::error::{FaultKind, kind_of};
use countersteer_session::live::{Live, Targets};
use countersteer_session::steering::engine::EngineName;
use countersteer_session::steering::error::SteeringError;
use countersteer_session::steering::socket;
use countersteer_sysfs::procfs::PROC;
use countersteer_sysfs::task::affinity;
use serde_json::json;

/// Ends the decision.
static GO_ON: AtomicBool = AtomicBool::new(false);
static DECISIONS: AtomicU32 = AtomicU32::new(0);

/// Policy that moves all threads to the last CPU, and whose third decision lasts until the test ends it.
struct Stuck;

impl Policy for Stuck {
    fn decide(&mut self, view: &mut View<'_>, _: &mut PolicyRng) -> Placement {
        if DECISIONS.fetch_add(1, Ordering::Relaxed) == 2 {
            while !GO_ON.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        let target = Target::Cpus(std::sync::Arc::new(
            view.topology
                .cpus
                .last()
                .map(|cpu| cpu.id)
                .into_iter()
                .collect(),
        ));
        let place = |id| ThreadPlacement::new(id, target.clone(), Reason::rule("last"));
        Placement {
            threads: view.threads.iter().map(|t| place(t.id)).collect(),
            ..Placement::default()
        }
    }
}

static POLICIES: &[PolicyDef] = &[
    PolicyDef {
        name: "stuck",
        summary: "hangs",
        source: "a test",
        params: &[],
        make: |_, _| Ok(Box::new(Stuck)),
    },
    PolicyDef {
        name: "unmade",
        summary: "is never created",
        source: "a test",
        params: &[],
        make: |_, _| loop {
            std::thread::park();
        },
    },
];

/// Process that ends with the test.
struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_until(condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "it takes too long"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let name = |e: std::io::Result<std::fs::DirEntry>| e.unwrap().file_name().into_string();
    entries.map(|e| name(e).unwrap()).collect()
}

/// Threads of this process that decide for a run.
fn deciding() -> usize {
    let own = std::process::id();
    let names = PROC
        .threads(own)
        .into_iter()
        .filter_map(|tid| PROC.name(tid));
    names.filter(|name| name == "steer-deciding").count()
}

#[test]
fn a_run_ends_without_the_decision_and_the_next_one_begins() {
    let folder = tempfile::tempdir().unwrap();
    // SAFETY: no other thread exists yet.
    unsafe { std::env::set_var("RUNTIME_DIRECTORY", folder.path()) };
    countersteer_policies::add(POLICIES).unwrap();
    let program = Sleeper(Command::new("sleep").arg("100").spawn().unwrap());
    let pid = program.0.id();
    let before = affinity::mask(pid).unwrap();
    if before.iter().count() < 2 {
        countersteer_fuzz::skipped("this machine has a single CPU");
        return;
    }
    let run = |policy: &str| {
        let mut live = Live::new(Targets::Processes(vec![pid]));
        live.policy = policy.into();
        live.engine = EngineName::Affinity;
        live
    };
    let last: CpuSet = before.iter().last().into_iter().collect();
    let stuck = std::thread::scope(|scope| {
        let stuck = scope.spawn(|| run("stuck").run().map(drop));
        wait_until(|| affinity::mask(pid).unwrap() == last);
        assert!(files(folder.path()).len() > 1, "a journal and a socket");
        stuck.join().unwrap().unwrap_err()
    });
    let why = stuck.downcast_ref::<SteeringError>();
    assert!(matches!(why, Some(SteeringError::StuckPolicy)), "{stuck}");
    assert_eq!(kind_of(&stuck), FaultKind::Internal);
    assert_eq!(affinity::mask(pid).unwrap(), before);
    let left = files(folder.path());
    assert!(
        left.iter()
            .all(|f| !f.ends_with(".journal") && !f.ends_with(".sock")),
        "{left:?}"
    );
    // Its thread cannot be ended. Another run, whose journal has the same name, is not affected by it.
    assert_eq!(deciding(), 1);
    let mut next = run("aarr");
    next.until = Nanos::from_millis(3_000);
    let journals = || {
        files(folder.path())
            .iter()
            .filter(|f| f.ends_with(".journal"))
            .count()
    };
    std::thread::scope(|scope| {
        let next = scope.spawn(|| next.run().map(drop));
        wait_until(|| journals() == 1 && deciding() == 2);
        assert_eq!(DECISIONS.load(Ordering::Relaxed), 3);
        // The decision ends after all, and has no effect.
        GO_ON.store(true, Ordering::Relaxed);
        wait_until(|| deciding() == 1);
        assert_eq!(journals(), 1);
        next.join().unwrap().unwrap();
    });
    assert_eq!((journals(), deciding()), (0, 0));
    assert_eq!(affinity::mask(pid).unwrap(), before);
    assert_eq!(DECISIONS.load(Ordering::Relaxed), 3);
    // A policy that is never created does not hinder a run.
    std::thread::scope(|scope| {
        let last = scope.spawn(|| run("aarr").run().map(drop));
        wait_until(|| !socket::answering(folder.path()).is_empty());
        let control = socket::answering(folder.path()).remove(0);
        let ask = |request| socket::ask(&control, &request).unwrap();
        let refused = ask(json!({ "ask": "set", "key": "policy", "value": "unmade" }));
        assert_eq!(refused["error"], "`unmade` is not ready after 2s");
        assert_eq!(ask(json!({ "ask": "status" }))["policy"], "aarr");
        drop(program);
        last.join().unwrap().unwrap();
    });
}
