//! Which machine this is, from sysfs and /proc.
//!
//! Stage: before anything runs on a real host. Input: a root directory (`/`, or a fake one). Output: a checked [`Machine`]
//! whose `source` says which figures were read and which are from a table of microarchitectures.
//!
//! What is missing or contradicts itself is no reason to refuse a machine: it is assumed, and `source` says so. Core types follow from what the kernel cannot get wrong first (PMUs, part numbers, cache shapes) and from clocks last:
//! favoured cores of one type clock differently, and two types may report the same capacity. [`classify`] has the rules.
//! CPUs that are offline are left out and the others numbered without holes; `os_cpus` keeps the kernel's numbers.

mod agree;
mod arm;
mod build;
mod caches;
mod classify;
mod clock;
mod cpus;
mod names;
mod notes;
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
    /// Neither sysfs nor /proc lists any CPU.
    #[error(
        "{root}: neither sys/devices/system/cpu nor proc/stat lists any CPU; is this the root of a running Linux, with sysfs on its /sys?"
    )]
    Nothing { root: PathBuf },
    /// The files describe what no machine file can.
    #[error(
        "{root}: sysfs describes no possible machine ({problem}); describe it in a machine file instead (see `machines/`)"
    )]
    Impossible { root: PathBuf, problem: String },
}

/// A machine, and what was assumed in place of files that are missing or contradict each other.
#[derive(Clone, Debug)]
pub struct Survey {
    /// Its `source` has the remedies too.
    pub machine: Machine,
    /// One sentence each.
    pub remedies: Vec<String>,
}

/// Reads the machine whose file systems are under `root`.
///
/// # Errors
/// No CPU is found, or more than Linux is built for.
pub fn detect(root: &Path) -> Result<Machine, DetectError> {
    Ok(survey(root)?.machine)
}

/// Reads the machine whose file systems are under `root`, and says what was assumed.
///
/// # Errors
/// No CPU is found, or more than Linux is built for.
pub fn survey(root: &Path) -> Result<Survey, DetectError> {
    let tree = Tree::new(root);
    let platform = platform::Platform::read(&tree);
    let mut cpus = cpus::read(&tree, &platform)?;
    let mut classes = classify::classify(&platform, &cpus.list);
    names::assign(&platform, &mut classes);
    caches::complete(&tree, &mut cpus.list, &classes);
    let machine = build::machine(&tree, &platform, &cpus, &classes);
    let impossible = |problem: String| DetectError::Impossible {
        root: root.to_path_buf(),
        problem,
    };
    // Parsing what was written checks the machine and, at once, that it survives a file.
    let text = machine.to_toml().map_err(|e| impossible(e.to_string()))?;
    let machine = Machine::parse("", &text).map_err(|e| impossible(e.message))?;
    Ok(Survey {
        machine,
        remedies: tree.remedies(),
    })
}
