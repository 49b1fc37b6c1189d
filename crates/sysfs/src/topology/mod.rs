//! Detection of this machine from sysfs and /proc.
//!
//! Stage: before anything runs on a real host. Input: a root directory (`/`, or a fake one). Output: a checked [`Machine`]. Its
//! `source` says which values were read and which come from a table of microarchitectures.
//!
//! Missing or contradictory files do not reject a machine: values are assumed, and `source` says so. Core types follow first
//! from facts that are reliable in the kernel (PMUs, part numbers, cache shapes), and last from clocks. Favoured cores of one
//! type clock differently, and two types may report the same capacity. `classify` has the rules.
//!
//! Offline CPUs are omitted and the others numbered contiguously; `os_cpus` keeps the kernel's numbers.

mod agree;
mod assumed;
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

use std::path::{Path, PathBuf};

use countersteer_model::machine::Machine;

pub(crate) use tree::FileTexts;
use tree::SysRoot;

/// Reason why a machine could not be detected.
#[derive(Debug, thiserror::Error)]
pub enum DetectError {
    /// Neither sysfs nor /proc lists any CPU.
    #[error(
        "{root}: neither sys/devices/system/cpu nor proc/stat lists any CPU; is this the root of a running Linux, with sysfs on its /sys?"
    )]
    Nothing { root: PathBuf },
    /// The files describe a machine that no machine file can express.
    #[error(
        "{root}: sysfs describes no possible machine ({problem}); describe it in a machine file instead (see `machines/`)"
    )]
    Impossible { root: PathBuf, problem: String },
    /// A description by another tool has no known form, contradicts itself, or is of no possible machine.
    #[error("{name}: {why}")]
    Description { name: String, why: String },
}

/// Largest number of core types; processors so far have up to four.
const MOST_TYPES: usize = 64;

/// Detected machine, and the assumptions made for missing or contradictory files.
#[derive(Clone, Debug)]
pub struct Survey {
    /// Machine; its `source` contains the remedies too.
    pub machine: Machine,
    /// One sentence each.
    pub remedies: Vec<String>,
}

/// Detects the machine whose file systems are under `root`.
///
/// # Errors
/// Fails if no CPU is found, or more than Linux supports.
pub fn detect(root: &Path) -> Result<Machine, DetectError> {
    Ok(survey(root)?.machine)
}

/// Detects the machine whose file systems are under `root`, and lists the assumptions.
///
/// # Errors
/// Fails if no CPU is found, or more than Linux supports.
pub fn survey(root: &Path) -> Result<Survey, DetectError> {
    survey_of(SysRoot::new(root))
}

/// Detects the machine of which files in memory tell, as [`survey`] does.
pub(crate) fn survey_in_memory(files: &FileTexts) -> Result<Survey, DetectError> {
    survey_of(SysRoot::in_memory(files))
}

fn survey_of(tree: SysRoot<'_>) -> Result<Survey, DetectError> {
    let impossible = |problem: String| DetectError::Impossible {
        root: tree.root().to_path_buf(),
        problem,
    };
    let platform = platform::Platform::read(&tree);
    let mut cpus = cpus::read(&tree, &platform)?;
    let mut classes = classify::classify(&platform, &cpus.list);
    if classes.len() > MOST_TYPES {
        let types = classes.len();
        return Err(impossible(format!(
            "its CPUs are of {types} types by their caches and clocks, and no machine has more than {MOST_TYPES}"
        )));
    }
    names::assign(&platform, &mut classes);
    assumed::complete(&tree, &mut cpus.list, &classes);
    let machine = build::machine(&tree, &platform, &cpus, &classes);
    // Parsing the written text checks the machine, and also that it survives a round trip through a file.
    let text = machine.to_toml().map_err(|e| impossible(e.to_string()))?;
    let machine = Machine::parse("", &text).map_err(|e| impossible(e.message))?;
    Ok(Survey {
        machine,
        remedies: tree.remedies(),
    })
}
