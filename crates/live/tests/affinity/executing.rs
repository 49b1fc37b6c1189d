//! Tests of processes that execute another program: the signature that their threads have from then on.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use countersteer_cache::signature::{Carried, SCHEMA, elf};
use countersteer_model::engine::Observation;
use countersteer_model::units::CpuId;

use super::*;

fn executes(seen: &Observation, pid: u32) -> bool {
    let executed = |e: &&countersteer_model::engine::ThreadEvent| e.kind == ThreadEventKind::Exec;
    seen.events
        .iter()
        .filter(executed)
        .any(|e| e.thread.0 == pid)
}

/// Program that sleeps and carries a signature; `None`, with a message, if there is none to put it into.
fn signed(folder: &Path) -> Option<(Carried, std::path::PathBuf)> {
    let Ok(binary) = std::fs::read("/bin/sleep") else {
        countersteer_fuzz::skipped("there is no /bin/sleep");
        return None;
    };
    let carried = Carried {
        schema: SCHEMA.into(),
        name: "sleeper".into(),
        inputs: Vec::new(),
        instructions: 1,
        misses: [[7; 4]; 11],
        phases: Vec::new(),
    };
    let path = folder.join("sleeper");
    std::fs::write(&path, elf::embed(&binary, &carried).unwrap()).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    Some((carried, path))
}

#[test]
fn an_exec_is_an_event_where_the_kernel_tells_of_it_and_where_it_does_not() {
    for counted in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let gate = folder.path().join("go");
        let program = Program::start(&format!("{}; exec sleep 1000", wait_for(&gate)));
        let pid = program.pid();
        let mut engine = engine(folder.path(), counted, false);
        engine.attach(&root(&program)).unwrap();
        // The shell's children execute programs too; the shell does not.
        until(&mut engine, |seen| {
            assert!(!executes(seen, pid), "{seen:?}");
            seen.at > Nanos::from_millis(200)
        });
        std::fs::write(&gate, "").unwrap();
        until(&mut engine, |seen| executes(seen, pid));
        let quiet = engine.observe(&WATCH, Nanos::ZERO).unwrap();
        assert!(!executes(&quiet, pid), "once: {quiet:?}");
    }
}

#[test]
fn a_thread_has_the_signature_and_the_program_of_what_its_process_executes() {
    for counted in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let Some((carried, path)) = signed(folder.path()) else {
            return;
        };
        let gate = folder.path().join("go");
        let executed = format!("{}; exec {} 1000", wait_for(&gate), path.display());
        let program = Program::start(&executed);
        let pid = program.pid();
        let mut engine = engine(folder.path(), counted, false);
        engine.attach(&root(&program)).unwrap();
        let path_of = |seen: &Observation| seen.programs[0].path.clone().unwrap();
        let seen = engine.observe(&WATCH, Nanos::ZERO).unwrap();
        let shell = path_of(&seen);
        let signature = |engine: &mut LiveEngine| {
            let forecast = engine.forecast().unwrap();
            assert!(
                forecast
                    .steady_state(&[ThreadId(pid)], &[CpuId(0)])
                    .is_empty()
            );
            forecast.signature(ThreadId(pid))
        };
        assert_eq!(signature(&mut engine), None);
        std::fs::write(&gate, "").unwrap();
        let mut seen = seen;
        for _ in 0..500 {
            seen = engine
                .observe(&WATCH, seen.at + Nanos::from_millis(20))
                .unwrap();
            if executes(&seen, pid) {
                break;
            }
        }
        assert!(executes(&seen, pid), "{seen:?}");
        assert_eq!(signature(&mut engine), Some(carried.signature()));
        assert_ne!(path_of(&seen), shell);
        assert!(path_of(&seen).ends_with("/sleeper"));
    }
}
