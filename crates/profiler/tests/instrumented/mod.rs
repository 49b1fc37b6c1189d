//! Small C programs, and helpers to run them under instrumentation.

use std::path::Path;
use std::process::Command;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use countersteer_fuzz::instrumentation;
use countersteer_profiler::ProfileOptions;

/// Recordings run one at a time: one of them sends this process a signal, and machines may be small.
static TURN: Mutex<()> = Mutex::new(());

/// Compiled programs, or the reason for their absence.
static PROGRAMS: LazyLock<Result<tempfile::TempDir, String>> = LazyLock::new(|| {
    if !instrumentation::runs("cc") {
        return Err("cc is missing: apt-get install gcc".to_owned());
    }
    instrumentation::ready(countersteer_profiler::tools)?;
    let directory = tempfile::tempdir().map_err(|e| e.to_string())?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs.c");
    let program = directory.path().join("programs");
    let status = Command::new("cc")
        .args(["-O1", "-fno-tree-vectorize", "-pthread", "-o"])
        .arg(&program)
        .arg(source)
        .status();
    assert!(status.unwrap().success());
    Ok(directory)
});

/// Returns the programs' path and the lock for recording. Prints the reason and returns `None` if recording is impossible.
pub fn programs() -> Option<(MutexGuard<'static, ()>, String)> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    match &*PROGRAMS {
        Ok(directory) => Some((
            turn,
            directory.path().join("programs").display().to_string(),
        )),
        Err(reason) => {
            countersteer_fuzz::skipped(format_args!("{reason}"));
            None
        }
    }
}

pub fn options(program: &str, arguments: &[&str]) -> ProfileOptions {
    let mut command = vec![program.to_owned()];
    command.extend(arguments.iter().map(|a| (*a).to_owned()));
    let mut options = ProfileOptions::new(command);
    options.stdin_null = true;
    options
}
