//! Reasons why a scheduler cannot be simulated.

use std::path::PathBuf;

/// Error of building or starting a scheduler.
#[derive(Debug, thiserror::Error)]
pub enum ScxError {
    /// The path has no source files.
    #[error("{path}: there is no BPF source of a scheduler; name a file `NAME.bpf.c`, or a folder that has such files", path = .path.display())]
    NoSource { path: PathBuf },
    /// There is no C compiler.
    #[error("schedulers are compiled, and `{compiler}` cannot be started ({why}): apt install gcc")]
    NoCompiler { compiler: String, why: String },
    /// The scheduler uses functions that the simulator lacks.
    #[error("{path}: the simulator lacks what the scheduler calls: {names}", path = .path.display())]
    Lacking { path: PathBuf, names: String },
    /// The scheduler does not compile.
    #[error("{path}: the scheduler does not compile against the simulator's headers:\n{said}", path = .path.display())]
    NotCompiled { path: PathBuf, said: String },
    /// The compilation does not end.
    #[error("{path}: the compiler did not end in {seconds} s and was killed; remove pipes and devices from what the sources include", path = .path.display())]
    Endless { path: PathBuf, seconds: u64 },
    /// A file of the scheduler cannot be read.
    #[error("cannot read {path}: {why}", path = .path.display())]
    Unreadable { path: PathBuf, why: std::io::Error },
    /// The compiled scheduler cannot be loaded.
    #[error("{path}: the compiled scheduler cannot be loaded: {why}", path = .path.display())]
    NotLoaded { path: PathBuf, why: String },
    /// A parameter names no variable of the scheduler, or has a bad value.
    #[error("{path}: {why}", path = .path.display())]
    BadParameter { path: PathBuf, why: String },
    /// The scheduler refused to start.
    #[error("{path}: the scheduler does not start: {why}", path = .path.display())]
    NotStarted { path: PathBuf, why: String },
    /// A file cannot be written.
    #[error("{path}: {why}", path = .path.display())]
    Files { path: PathBuf, why: std::io::Error },
}
