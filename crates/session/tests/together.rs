//! Runs beside each other in one process, as of a program that uses the library from several threads. The test is alone in its
//! process, because it sets an environment variable.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use countersteer_model::units::Nanos;
use countersteer_session::live::{Live, Targets};
use countersteer_session::trial::BlockTrial;

fn program() -> Targets {
    Targets::Command(vec!["sleep".into(), "1".into()])
}

#[test]
fn runs_of_several_threads_do_not_disturb_each_other() {
    let folder = tempfile::tempdir().unwrap();
    // SAFETY: no other thread exists yet.
    unsafe { std::env::set_var("RUNTIME_DIRECTORY", folder.path()) };
    let run = || {
        let mut live = Live::new(program());
        live.policy = "aarr".into();
        live.run().unwrap().exit_code
    };
    let trial = || {
        let mut trial = BlockTrial::new(program(), "aarr");
        trial.block = Nanos::from_millis(200);
        trial.run().unwrap().done.exit_code
    };
    std::thread::scope(|scope| {
        let runs = [scope.spawn(run), scope.spawn(run), scope.spawn(trial)];
        for done in runs {
            assert_eq!(done.join().unwrap(), 0);
        }
    });
    let left = std::fs::read_dir(folder.path()).unwrap();
    let names = left.map(|entry| entry.unwrap().file_name());
    let journals = names.filter(|name| name.to_string_lossy().ends_with(".journal"));
    assert_eq!(journals.count(), 0);
}
