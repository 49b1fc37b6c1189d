//! Which machine this is, from sysfs and /proc.
//!
//! Stage: before anything runs on a real host. Input: a root directory (`/`, or a fake one). Output: a checked [`Machine`]
//! whose `source` says which figures were read and which are from a table of microarchitectures.
//!
//! Core types follow from what the kernel cannot get wrong first (PMUs, part numbers, cache shapes) and from clocks last:
//! favoured cores of one type clock differently, and two types may report the same capacity. [`classify`] has the rules.
//! CPUs that are offline are left out and the others numbered without holes; `os_cpus` keeps the kernel's numbers.

mod arm;
mod build;
mod classify;
mod cpus;
mod names;
mod platform;
mod tree;
mod uarch;
mod x86;

use std::path::{Path, PathBuf};

use countersteer_model::machine::Machine;

use tree::Tree;

/// Why a machine could not be made out.
#[derive(Debug, thiserror::Error)]
pub enum DetectError {
    /// A file that every kernel has is missing.
    #[error(
        "{path}: {source}; is this the root of a running Linux, with sysfs mounted on its /sys?"
    )]
    Unreadable {
        path: PathBuf,
        source: std::io::Error,
    },
    /// A file holds something else than it should.
    #[error(
        "{path}: `{content}` is no {expected}; describe this machine in a machine file instead (see `machines/`)"
    )]
    Malformed {
        path: PathBuf,
        content: String,
        expected: &'static str,
    },
    /// SMT siblings whose numbers a machine file cannot express.
    #[error(
        "{path}: siblings {cpus} are not evenly spaced; switch the core's other CPUs on or off together"
    )]
    OddSiblings { path: PathBuf, cpus: String },
    /// The files contradict each other.
    #[error(
        "{root}: sysfs describes no possible machine ({problem}); describe it in a machine file instead (see `machines/`)"
    )]
    Impossible { root: PathBuf, problem: String },
}

/// Reads the machine whose file systems are under `root`.
///
/// # Errors
/// Files that are missing, malformed or contradictory.
pub fn detect(root: &Path) -> Result<Machine, DetectError> {
    let tree = Tree::new(root);
    let platform = platform::Platform::read(&tree);
    let cpus = cpus::read(&tree, &platform)?;
    let mut classes = classify::classify(&platform, &cpus.list);
    names::assign(&platform, &mut classes);
    let machine = build::machine(&tree, &platform, &cpus, &classes)?;
    let impossible = |problem: String| DetectError::Impossible {
        root: root.to_path_buf(),
        problem,
    };
    // Parsing what was written checks the machine and, at once, that it survives a file.
    let text = machine.to_toml().map_err(|e| impossible(e.to_string()))?;
    Machine::parse("", &text).map_err(|e| impossible(e.message))
}
