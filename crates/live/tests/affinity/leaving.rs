//! Tests of the restoration after a kill, and after a process is detached.

use std::collections::BTreeMap;

use countersteer_live::undo::restore;

use super::*;

#[test]
fn a_killed_engines_work_is_undone_by_the_next() {
    let Some((all, cpus)) = two_cpus() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let gates = tempfile::tempdir().unwrap();
    let gate = gates.path().join("go");
    let program = Program::start(&format!(
        "{}; ({SPIN}) & child=$!; trap \"kill $child\" EXIT; sleep 1000 & wait $!",
        spin_until(&gate)
    ));
    let mut engine = engine(folder.path(), true, false);
    engine.attach(&root(&program)).unwrap();
    std::fs::write(&gate, "").unwrap();
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
    // State after a kill: the file, unlocked.
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
        let other = ProcessRoot {
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
        for tid in &threads {
            assert!(mask_if_any(*tid).is_none_or(|mask| mask == all), "let go");
        }
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
                seen.samples
                    .of_threads()
                    .all(|(thread, _)| thread.0 == stays.pid()),
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
