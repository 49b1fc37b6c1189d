//! Tests that threads and their children go to their assigned CPUs, unless another program sets their masks.

use super::*;

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
        let gates = tempfile::tempdir().unwrap();
        let gate = gates.path().join("go");
        let script = format!(
            "{}; ({SPIN}) & child=$!; trap \"kill $child\" EXIT; sleep 1000 & wait $!",
            spin_until(&gate)
        );
        let program = Program::start(&script);
        let pid = program.pid();
        let mut engine = engine(folder.path(), counted, false);
        engine.attach(&root(&program)).unwrap();
        let target = cpu(&engine, cpus[1]);
        engine.apply(&to(&[pid], &target)).unwrap();
        std::fs::write(&gate, "").unwrap();
        let mut forked = Vec::new();
        until(&mut engine, |seen| {
            forked.extend(
                seen.events
                    .iter()
                    .filter(|e| e.kind == ThreadEventKind::New)
                    .map(|e| e.thread.0),
            );
            seen.threads.len() >= 3 && seen.threads.iter().any(|t| t.id.0 != pid && t.runnable)
        });
        let children: Vec<u32> = forked.into_iter().filter(|tid| *tid != pid).collect();
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
