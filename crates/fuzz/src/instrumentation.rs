//! What a test needs to run programs under instrumentation: QEMU, and the plugin beside the test.

use std::fmt::Display;
use std::process::Command;

/// Builds the plugin in the folder where `steer` and the library search it, the one above the running test's, and has `find` look for
/// all that recording needs.
///
/// # Errors
/// What is missing on this machine.
///
/// # Panics
/// If the plugin does not build.
pub fn ready<T, E: Display>(find: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    let test = std::env::current_exe().map_err(|why| why.to_string())?;
    // The test is target/PROFILE/deps/NAME.
    let profile = test.ancestors().nth(2).ok_or("the test has no folder")?;
    let target = profile.parent().ok_or("the test's folder has no parent")?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["build", "--quiet", "--target-dir"])
        .arg(target)
        .args([
            "--manifest-path",
            concat!(env!("CARGO_MANIFEST_DIR"), "/../capture/Cargo.toml"),
        ]);
    if profile.file_name().is_some_and(|name| name == "release") {
        cargo.arg("--release");
    }
    let built = cargo.status().is_ok_and(|status| status.success());
    assert!(built, "the instrumentation plugin does not build");
    find().map_err(|missing| missing.to_string())
}

/// Whether a program is installed: it prints its version.
pub fn runs(program: &str) -> bool {
    let tried = Command::new(program).arg("--version").output();
    tried.is_ok_and(|output| output.status.success())
}
