//! Small C programs and what it takes to run them under instrumentation.

use std::path::Path;
use std::process::Command;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use countersteer_host::record_run::RecordOptions;

/// Recordings run one after the other: one of them sends this process a signal, and machines may be small.
static TURN: Mutex<()> = Mutex::new(());

/// The compiled programs, or why there are none.
static PROGRAMS: LazyLock<Result<tempfile::TempDir, String>> = LazyLock::new(|| {
    runs("qemu-x86_64", "--version").ok_or("qemu-x86_64 is missing: apt-get install qemu-user")?;
    runs("cc", "--version").ok_or("cc is missing: apt-get install gcc")?;
    build_plugin();
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

fn runs(program: &str, argument: &str) -> Option<()> {
    Command::new(program)
        .arg(argument)
        .output()
        .ok()
        .filter(|o| o.status.success())
        .map(|_| ())
}

/// Builds the plugin beside this test, where it is searched.
fn build_plugin() {
    let own = std::env::current_exe().unwrap();
    let profile = own.parent().and_then(Path::parent).unwrap();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args([
        "build",
        "-q",
        "--manifest-path",
        concat!(env!("CARGO_MANIFEST_DIR"), "/../capture/Cargo.toml"),
        "--target-dir",
    ]);
    cargo.arg(profile.parent().unwrap());
    if profile.file_name().is_some_and(|n| n == "release") {
        cargo.arg("--release");
    }
    assert!(cargo.status().unwrap().success());
}

/// The programs' path and the right to record; none, with the reason printed, where that is impossible.
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

pub fn options(program: &str, arguments: &[&str]) -> RecordOptions {
    let mut command = vec![program.to_owned()];
    command.extend(arguments.iter().map(|a| (*a).to_owned()));
    let mut options = RecordOptions::new(command);
    options.stdin_null = true;
    options
}
