//! Requirements of tests that run programs under instrumentation: QEMU, and the plugin next to the test.

use std::fmt::Display;
use std::process::Command;

/// Builds the plugin in the folder above the running test's, where `steer` and the library search it. Then calls `find` to locate
/// all that recording needs.
///
/// # Errors
/// Fails with the name of a component that is missing on this machine.
///
/// # Panics
/// Panics if the plugin does not build.
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

/// True if a program is installed and prints its version.
pub fn runs(program: &str) -> bool {
    let tried = Command::new(program).arg("--version").output();
    tried.is_ok_and(|output| output.status.success())
}
