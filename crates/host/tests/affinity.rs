//! Real threads confined by their masks. Needs no privilege; with fewer than two CPUs there is nowhere to move, and it says so.

#![allow(clippy::unwrap_used, clippy::panic)] // a test helper that fails has failed its test

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use countersteer_core::counters::{Plan, PlannedSet, parse_set};
use countersteer_core::cpunumbers::CpuNumbers;
use countersteer_core::cpuset::CpuSet;
use countersteer_core::engine::{Engine, ThreadEventKind, Watch};
use countersteer_core::placement::{Placement, Reason, Target, ThreadPlacement};
use countersteer_core::topology::Topology;
use countersteer_core::units::{Nanos, ProgramId, ThreadId};
use countersteer_host::affinity::AffinityConfig;
use countersteer_host::counters::{Pmus, Resolved, resolve};
use countersteer_host::live::{Counters, Crew, LiveConfig, LiveEngine, Recount, Root, Stealing};
use countersteer_host::undo::restore;

/// Ends with the test, whatever becomes of it.
struct Program(Child);

impl Program {
    fn start(script: &str) -> Self {
        // What it starts may outlive it: it must neither keep whoever reads this test's output waiting nor run for ever.
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

/// Waits for a file.
fn wait_for(gate: &Path) -> String {
    format!("while [ ! -e '{}' ]; do sleep 0.02; done", gate.display())
}

const SPIN: &str = "while :; do :; done";

const WATCH: Watch<'_> = Watch {
    metrics: &[],
    period: PERIOD,
    events: false,
    values: None,
};

fn mask(tid: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|l| l.strip_prefix("Cpus_allowed_list:"))
        .unwrap();
    line.trim().to_owned()
}

/// The CPUs that this test may use; `None`, with a word, if they are too few.
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

/// Counters that take turns, a set of events each.
fn counters(sets: &[&str], period: Nanos) -> Counters {
    let pmus = Pmus::read(Path::new("/")).unwrap();
    let sets: Vec<_> = sets
        .iter()
        .map(|set| resolve(set, &parse_set(set).unwrap(), &pmus).unwrap())
        .collect();
    let planned = |set: &Vec<Resolved>| PlannedSet {
        events: set.iter().map(|e| e.planned.clone()).collect(),
    };
    let plan = Plan::new(sets.iter().map(planned).collect(), Some(period)).unwrap();
    (sets, plan)
}

fn engine(folder: &Path, counted: bool, dry: bool) -> LiveEngine {
    let counters = counted.then(|| counters(&["task_clock"], PERIOD));
    engine_that(counters, folder, dry, None)
}

/// An engine without programs of its own: each observation says that the run may end.
fn engine_that(
    counters: Option<Counters>,
    folder: &Path,
    dry: bool,
    recount: Option<Box<dyn Recount>>,
) -> LiveEngine {
    let config = LiveConfig {
        affinity: AffinityConfig {
            dry,
            ..config(counters, folder)
        },
        root: "/".into(),
        recount,
        stealing: Stealing::default(),
        say: |_| {},
    };
    LiveEngine::open(config, None, Crew::default()).unwrap()
}

/// Every observation is the last one, and sees everything.
fn config(counters: Option<Counters>, folder: &Path) -> AffinityConfig {
    let machine = countersteer_host::topology::detect(Path::new("/")).unwrap();
    AffinityConfig {
        topology: Arc::new(Topology::new(&machine)),
        numbers: CpuNumbers::new(machine.os_cpu_numbers()),
        counters,
        period: PERIOD,
        journals: folder.to_owned(),
        dry: false,
    }
}

fn root(program: &Program) -> Root {
    Root {
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
    let all: CpuSet = std::iter::once(countersteer_core::units::CpuId(os)).collect();
    let machine = countersteer_host::topology::detect(Path::new("/")).unwrap();
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

/// Observes every 20 ms until that holds; fails when it does not for ten seconds.
fn until(
    engine: &mut LiveEngine,
    mut holds: impl FnMut(&countersteer_core::engine::Observation) -> bool,
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

#[test]
fn threads_go_where_they_are_placed_and_back_at_the_end() {
    let Some((all, cpus)) = two_cpus() else {
        return;
    };
    for counted in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let program = Program::start(SPIN);
        let pid = program.pid();
        let mut engine = engine(folder.path(), counted, false);
        engine.attach(&root(&program)).unwrap();
        for os in [cpus[1], cpus[0]] {
            let target = cpu(&engine, os);
            let applied = engine.apply(&to(&[pid], &target)).unwrap();
            assert_eq!((applied.changed, applied.gone, applied.refused), (1, 0, 0));
            assert_eq!(mask(pid), os.to_string());
            let wanted = target.cpus(engine.topology());
            until(&mut engine, |seen| {
                seen.threads.iter().any(|t| {
                    t.id.0 == pid && t.runnable && wanted.contains(t.cpu) && *t.allowed == *wanted
                })
            });
        }
        assert_eq!(
            engine
                .apply(&to(&[pid, 1 << 22], &Target::Anywhere))
                .unwrap()
                .gone,
            1
        );
        assert_eq!(mask(pid), all);
        let target = cpu(&engine, cpus[0]);
        engine.apply(&to(&[pid], &target)).unwrap();
        drop(engine);
        assert_eq!(mask(pid), all);
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            0,
            "no journal is left"
        );
    }
}

#[test]
fn children_are_followed_and_let_go_with_their_parents() {
    let Some((all, cpus)) = two_cpus() else {
        return;
    };
    for counted in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let script = format!(
            "sleep 0.3; ({SPIN}) & child=$!; trap \"kill $child\" EXIT; sleep 1000 & wait $!"
        );
        let program = Program::start(&script);
        let pid = program.pid();
        let mut engine = engine(folder.path(), counted, false);
        engine.attach(&root(&program)).unwrap();
        let target = cpu(&engine, cpus[1]);
        engine.apply(&to(&[pid], &target)).unwrap();
        let mut born = Vec::new();
        until(&mut engine, |seen| {
            born.extend(
                seen.events
                    .iter()
                    .filter(|e| e.kind == ThreadEventKind::New)
                    .map(|e| e.thread.0),
            );
            seen.threads.len() >= 3 && seen.threads.iter().any(|t| t.id.0 != pid && t.runnable)
        });
        let children: Vec<u32> = born.into_iter().filter(|tid| *tid != pid).collect();
        let is_zombie = |stat: String| stat.contains(") Z ");
        let lives = |tid: &&u32| {
            std::fs::read_to_string(format!("/proc/{tid}/stat")).is_ok_and(|s| !is_zombie(s))
        };
        let living = || children.iter().filter(lives);
        assert!(living().count() >= 2, "{children:?}");
        living().for_each(|tid| assert_eq!(mask(*tid), cpus[1].to_string(), "inherited"));
        drop(engine);
        living()
            .for_each(|tid| assert_eq!(mask(*tid), all, "what was inherited is restored as well"));
        end(&children);
    }
}

#[test]
fn what_somebody_else_sets_is_respected() {
    let Some((_, cpus)) = two_cpus() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let program = Program::start(SPIN);
    let pid = program.pid();
    let mut engine = engine(folder.path(), true, false);
    engine.attach(&root(&program)).unwrap();
    let first = cpu(&engine, cpus[0]);
    let second = cpu(&engine, cpus[1]);
    engine.apply(&to(&[pid], &first)).unwrap();
    let taskset = Command::new("taskset")
        .args(["-cp", &cpus[1].to_string(), &pid.to_string()])
        .output();
    if taskset.is_err() {
        countersteer_fuzz::skipped("there is no taskset");
        return;
    }
    let applied = engine.apply(&to(&[pid], &first)).unwrap();
    assert_eq!(
        (applied.changed, applied.gone, applied.refused),
        (0, 0, 0),
        "it believes itself where it should be"
    );
    assert_eq!(
        engine.apply(&to(&[pid], &second)).unwrap().refused,
        1,
        "noticed when it wants to change it"
    );
    assert_eq!(
        engine.apply(&to(&[pid], &first)).unwrap().refused,
        1,
        "outside of what the other left"
    );
    assert_eq!(mask(pid), cpus[1].to_string());
    drop(engine);
    assert_eq!(mask(pid), cpus[1].to_string(), "the other's mask stays");
}

#[test]
fn nothing_is_changed_by_a_dry_run() {
    let Some((all, cpus)) = two_cpus() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let program = Program::start(SPIN);
    let mut engine = engine(folder.path(), true, true);
    engine.attach(&root(&program)).unwrap();
    let target = cpu(&engine, cpus[0]);
    assert_eq!(
        engine
            .apply(&to(&[program.pid()], &target))
            .unwrap()
            .changed,
        1
    );
    assert_eq!(mask(program.pid()), all);
}

#[test]
fn a_killed_engines_work_is_undone_by_the_next() {
    let Some((all, cpus)) = two_cpus() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let program = Program::start(&format!(
        "sleep 0.3; ({SPIN}) & child=$!; trap \"kill $child\" EXIT; sleep 1000 & wait $!"
    ));
    let mut engine = engine(folder.path(), true, false);
    engine.attach(&root(&program)).unwrap();
    let mut threads = BTreeMap::new();
    until(&mut engine, |seen| {
        threads.extend(seen.threads.iter().map(|t| (t.id.0, t.cpu)));
        threads.len() >= 2
    });
    let tids: Vec<u32> = threads.into_keys().collect();
    let target = cpu(&engine, cpus[0]);
    engine.apply(&to(&tids, &target)).unwrap();
    assert_eq!(
        restore(folder.path()).unwrap().journals,
        0,
        "an engine that lives is left alone"
    );
    // What a kill leaves: the file, unlocked.
    let journal = std::fs::read_dir(folder.path())
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let text = std::fs::read_to_string(&journal).unwrap();
    drop(engine);
    for tid in &tids {
        let _ = Command::new("taskset")
            .args(["-cp", &cpus[0].to_string(), &tid.to_string()])
            .output();
    }
    std::fs::write(folder.path().join("killed.journal"), text).unwrap();
    let restored = restore(folder.path()).unwrap();
    assert_eq!(
        (restored.journals, restored.failed, restored.left),
        (1, 0, 0)
    );
    assert!(restored.threads >= 2, "{restored:?}");
    for tid in &tids {
        if Path::new(&format!("/proc/{tid}")).exists() {
            assert_eq!(mask(*tid), all);
        }
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    end(&tids);
}

#[test]
fn who_is_let_go_has_its_own_mask_and_may_come_back() {
    let Some((all, cpus)) = two_cpus() else {
        return;
    };
    for counted in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let gate = folder.path().join("go");
        let family = format!(
            "{}; ({SPIN}) & child=$!; trap \"kill $child\" EXIT; sleep 1000 & wait $!",
            wait_for(&gate)
        );
        let stays = Program::start(SPIN);
        let leaves = Program::start(&family);
        let mut engine = engine(folder.path(), counted, false);
        let other = Root {
            program: ProgramId(1),
            ..root(&leaves)
        };
        engine.attach(&root(&stays)).unwrap();
        engine.attach(&other).unwrap();
        std::fs::write(&gate, "").unwrap();
        let mut threads = Vec::new();
        until(&mut engine, |seen| {
            threads = seen
                .threads
                .iter()
                .filter(|t| t.program == ProgramId(1))
                .map(|t| t.id.0)
                .collect();
            threads.len() >= 3
                && seen
                    .threads
                    .iter()
                    .any(|t| threads.contains(&t.id.0) && t.runnable)
        });
        threads.retain(|tid| Path::new(&format!("/proc/{tid}")).exists());
        let target = cpu(&engine, cpus[1]);
        engine.apply(&to(&threads, &target)).unwrap();
        engine.apply(&to(&[stays.pid()], &target)).unwrap();
        engine.detach(&other).unwrap();
        threads
            .iter()
            .for_each(|tid| assert_eq!(mask(*tid), all, "let go"));
        assert_eq!(mask(stays.pid()), cpus[1].to_string());
        let mut gone = Vec::new();
        for _ in 0..5 {
            let at = engine.observe(&WATCH, Nanos::ZERO).unwrap().at;
            let seen = engine.observe(&WATCH, at + Nanos::from_millis(20)).unwrap();
            gone.extend(
                seen.events
                    .iter()
                    .filter(|e| e.kind == ThreadEventKind::Exit)
                    .map(|e| e.thread.0),
            );
            assert!(
                seen.threads.iter().all(|t| t.id.0 == stays.pid()),
                "{:?}",
                seen.threads
            );
            assert!(
                seen.samples.iter().all(|s| s.thread.0 == stays.pid()),
                "{:?}",
                seen.samples
            );
        }
        assert_eq!(
            engine.apply(&to(&threads, &target)).unwrap().gone,
            threads.len() as u32
        );
        engine.attach(&other).unwrap();
        until(&mut engine, |seen| {
            seen.threads
                .iter()
                .any(|t| t.id.0 == leaves.pid() && t.program == ProgramId(1))
        });
        assert_eq!(
            engine.apply(&to(&[leaves.pid()], &target)).unwrap().changed,
            1
        );
        drop(engine);
        assert_eq!(mask(leaves.pid()), all);
        end(&threads);
    }
}

/// Counts something else when it is asked.
struct Other(Option<Counters>);

impl Recount for Other {
    fn counters(&mut self, metrics: &[&'static str], _: Nanos) -> Option<Counters> {
        self.0.take_if(|_| metrics == ["ipc"])
    }

    #[allow(clippy::panic, reason = "a test whose helper fails has failed")]
    fn failed(&mut self, why: &str) {
        panic!("{why}");
    }
}

#[test]
fn other_counters_are_opened_while_threads_run_on() {
    let folder = tempfile::tempdir().unwrap();
    let gate = folder.path().join("go");
    let busy =
        format!("({SPIN}) & child=$!; trap \"kill $child\" EXIT; while :; do sleep 0.1; done");
    let program = Program::start(&format!("{}; {busy}", wait_for(&gate)));
    let first = counters(&["task_clock"], PERIOD);
    let other = counters(&["task_clock,page_faults"], Nanos::from_millis(10));
    let other = Box::new(Other(Some(other)));
    let mut engine = engine_that(Some(first), folder.path(), false, Some(other));
    if engine.blindness().is_some() {
        countersteer_fuzz::skipped("counting is not permitted here");
        return;
    }
    engine.attach(&root(&program)).unwrap();
    std::fs::write(&gate, "").unwrap();
    let mut threads = std::collections::BTreeMap::new();
    until(&mut engine, |seen| {
        seen.samples
            .iter()
            .for_each(|s| *threads.entry(s.thread.0).or_insert(0) += 1);
        // The one that spins.
        threads.values().any(|samples| *samples > 5)
    });
    threads.retain(|_, samples| *samples > 5);
    let watch = Watch {
        metrics: &["ipc"],
        period: Nanos::from_millis(10),
        events: false,
        values: None,
    };
    let before = engine.observe(&watch, Nanos::ZERO).unwrap();
    let mut births = 0;
    let mut sampled = std::collections::BTreeSet::new();
    let mut last = before.at;
    until(&mut engine, |seen| {
        assert!(seen.at >= last, "time goes on: {} {last}", seen.at);
        last = seen.at;
        births += seen
            .events
            .iter()
            .filter(|e| e.kind == ThreadEventKind::New)
            .count();
        sampled.extend(seen.samples.iter().map(|s| s.thread.0));
        births > 3 && sampled.iter().any(|tid| threads.contains_key(tid))
    });
    let children: Vec<u32> = engine
        .observe(&WATCH, Nanos::ZERO)
        .unwrap()
        .threads
        .iter()
        .map(|t| t.id.0)
        .collect();
    drop(engine);
    end(&children);
}

#[test]
fn counters_that_take_turns_tell_of_all_that_ran() {
    let folder = tempfile::tempdir().unwrap();
    let program = Program::start(SPIN);
    let mut engine = engine_that(
        Some(counters(&["task_clock", "page_faults,task_clock"], PERIOD)),
        folder.path(),
        false,
        None,
    );
    if engine.blindness().is_some() {
        countersteer_fuzz::skipped("counting is not permitted here");
        return;
    }
    let begun = std::time::Instant::now();
    engine.attach(&root(&program)).unwrap();
    let ran = || {
        let stat = std::fs::read_to_string(format!("/proc/{0}/task/{0}/schedstat", program.pid()))
            .unwrap();
        stat.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let since = ran();
    let mut told = 0;
    let mut turns = [0; 2];
    for period in 1..=45 {
        if period == 41 {
            // What it has run for is told in the periods that are left.
            let stop = ["-STOP", &program.pid().to_string()];
            assert!(Command::new("kill").args(stop).status().unwrap().success());
        }
        let seen = engine.observe(&WATCH, Nanos(period * PERIOD.0)).unwrap();
        for sample in &seen.samples {
            assert_eq!(sample.sets, 2);
            told += sample.running.0;
            turns[sample.set as usize] += 1;
        }
    }
    let passed = begun.elapsed().as_nanos() as u64;
    // No thread runs for longer than the time that passes. From below, the kernel's own sum is the measure, which leaves out what
    // a hypervisor takes and so is no measure from above; between two turns nothing is counted.
    assert!(told <= passed, "{told} ns of {passed}");
    let share = told as f64 / (ran() - since) as f64;
    assert!(share > 0.7, "{share}");
    assert!(turns.iter().all(|samples| *samples >= 5), "{turns:?}");
}
