//! Errors of recording a program, with remedies.

use std::io;
use std::path::PathBuf;

/// Reason for a missing profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    #[error("no program was given; say `steer profile -- PROGRAM ARGUMENTS`")]
    EmptyCommand,
    /// No suitable engine was found.
    #[error(
        "no qemu-{architecture} that takes plugins was found; `scripts/recorder-engine.sh {architecture}` of the source builds it, packages made by `make release`, `make deb` and `make wheel` bring that of their own architecture, Debian 12's `qemu-user` has it; or name it in COUNTERSTEER_QEMU"
    )]
    NoQemu { architecture: &'static str },
    /// The file named by an environment variable does not exist.
    #[error("{variable} names {file}, which is no file; correct or unset it")]
    NotThere {
        variable: &'static str,
        file: PathBuf,
    },
    #[error(
        "the instrumentation plugin libcountersteer_capture.so was not found (looked at {searched}); build it with `cargo build --release -p countersteer-capture`, or name it in COUNTERSTEER_PLUGIN"
    )]
    NoPlugin { searched: String },
    /// The program does not exist.
    #[error("{program} was not found{}; check the name, or give a path", if program.contains('/') { "" } else { " in PATH" })]
    NotFound {
        /// Name as the user wrote it.
        program: String,
    },
    /// The program is not executable.
    #[error("{path} is not executable; `chmod +x {path}` makes it so")]
    NotExecutable { path: String },
    /// The file is neither an ELF program nor a script.
    #[error(
        "{path} is neither an ELF program nor a script with a #! line; run its interpreter instead: `steer profile -- INTERPRETER {path}`"
    )]
    NotAProgram { path: String },
    /// The program is built for another machine.
    #[error(
        "{path} is a program for {machine}; programs for x86-64 and AArch64 are recorded, so build it for one of these"
    )]
    Architecture { path: String, machine: String },
    /// The scratch directory or a file in it cannot be used.
    #[error("cannot use {path} for raw records: {source}; set TMPDIR to a directory with room")]
    Scratch { path: PathBuf, source: io::Error },
    /// Some threads could not connect to send their events.
    #[error(
        "cannot receive what all threads execute: {source}; the limit of open files (`ulimit -n`) allows fewer threads"
    )]
    Receive { source: io::Error },
    #[error("cannot start {qemu}: {source}")]
    Launch { qemu: PathBuf, source: io::Error },
    /// QEMU ended without loading the plugin.
    #[error(
        "{qemu} did not load the plugin {plugin}; its message above says why: use the one that `scripts/recorder-engine.sh` builds, or leave COUNTERSTEER_QEMU unset"
    )]
    PluginRefused { qemu: PathBuf, plugin: PathBuf },
    /// Plugin and profiler are from different builds.
    #[error(
        "the plugin {plugin} is of another version than steer ({found} instead of {expected}); build both together: `cargo build --release`"
    )]
    PluginVersion {
        plugin: PathBuf,
        found: u64,
        expected: u64,
    },
    /// A raw file is damaged.
    #[error("{path}: {reason}; record the program again")]
    Raw {
        path: PathBuf,
        /// Description of the damage.
        reason: String,
    },
    /// The program ended before it executed an instruction.
    #[error("no instruction of {program} was recorded; QEMU's message above says why")]
    Nothing {
        /// Name as the user wrote it.
        program: String,
    },
    /// A signal arrived before the program executed an instruction.
    #[error("interrupted by {} before {program} executed anything: there is no profile", crate::launch::signal_name(*.signal))]
    Interrupted {
        /// Name as the user wrote it.
        program: String,
        signal: i32,
    },
    /// The profile cannot be written.
    #[error("cannot write {path}: {source}; choose another place with -o FILE")]
    Unwritable { path: PathBuf, source: io::Error },
}
