//! Machines that other tools describe: hwloc's XML and the JSON of lscpu.
//!
//! Input: such a file. Output: a machine with the assumptions that were made. A description becomes the files that sysfs
//! would have, in memory, which the detection of machines reads. So both ways have the same rules and tables.

mod hwloc;
mod lscpu;
mod tree;

use std::collections::{BTreeMap, BTreeSet};

use countersteer_model::bounds;
use countersteer_model::cpuset::CpuSet;

use crate::topology::{DetectError, Survey, survey_in_memory};

/// Form of a description.
struct DescriptionForm {
    /// Phrase for a machine's `source` and for messages.
    what: &'static str,
    detects: fn(&str) -> bool,
    read: fn(&str) -> Result<Described, String>,
}

const FORMS: [DescriptionForm; 2] = [
    DescriptionForm {
        what: "XML of hwloc (`lstopo --of xml`)",
        detects: hwloc::detects,
        read: hwloc::read,
    },
    DescriptionForm {
        what: "JSON of lscpu (`lscpu -J`)",
        detects: lscpu::detects,
        read: lscpu::read,
    },
];

/// Facts about a machine, all CPUs by the kernel's numbers.
#[derive(Debug, Default)]
struct Described {
    /// Fields that `/proc/cpuinfo` would have for every CPU.
    cpuinfo: Vec<(&'static str, String)>,
    cpus: BTreeMap<u32, DescribedCpu>,
    caches: Vec<DescribedCache>,
    /// Memory nodes by number.
    nodes: BTreeMap<u32, CpuSet>,
    /// Sentences about what was assumed.
    assumed: Vec<String>,
    /// Names of the parts that are not used.
    not_kept: BTreeSet<String>,
}

/// Facts about one CPU.
#[derive(Clone, Debug, Default)]
struct DescribedCpu {
    /// CPUs of its core.
    core: CpuSet,
    package: u32,
    /// Highest and nominal clock in MHz.
    max_mhz: Option<f64>,
    base_mhz: Option<f64>,
    capacity: Option<u32>,
    /// Arm's implementer and part.
    part: Option<(u32, u32)>,
    /// Folder of the PMU of an Intel hybrid's core type.
    pmu: Option<&'static str>,
}

/// Cache with its CPUs.
#[derive(Debug)]
struct DescribedCache {
    level: u32,
    /// `Data`, `Instruction` or `Unified`.
    kind: &'static str,
    kib: Option<u64>,
    ways: Option<u64>,
    line_bytes: Option<u64>,
    cpus: CpuSet,
}

/// Reads a machine from a description; `name` is the file's name for messages.
///
/// # Errors
/// The text has no known form, contradicts itself, or describes a machine that no machine file can express.
pub fn machine(name: &str, text: &str) -> Result<Survey, DetectError> {
    let bad = |why: String| DetectError::Description {
        name: name.to_owned(),
        why,
    };
    let Some(form) = FORMS.iter().find(|form| (form.detects)(text)) else {
        let known: Vec<&str> = FORMS.iter().map(|form| form.what).collect();
        let known = known.join("; ");
        return Err(bad(format!(
            "this describes no machine (kinds are {known})"
        )));
    };
    let described = (form.read)(text).map_err(bad)?;
    if described.cpus.is_empty() {
        return Err(bad("there is no CPU in it".into()));
    }
    let number = described.cpus.len() as f64;
    bounds::CPUS.check("CPUs", number).map_err(bad)?;
    let files = tree::files(&described).map_err(bad)?;
    let Survey {
        mut machine,
        remedies,
    } = survey_in_memory(&files)
        .map_err(|error| bad(error.to_string().trim_start_matches(": ").to_owned()))?;
    let mut notes = described.assumed;
    if !described.not_kept.is_empty() {
        let parts: Vec<String> = described.not_kept.into_iter().collect();
        notes.push(format!("Not kept: {}.", parts.join(", ")));
    }
    let read = "Read from it, as far as it has them:";
    let source = machine
        .source
        .replacen("Read from sysfs and /proc:", read, 1);
    machine.source = format!("From {}. {} {source}", form.what, notes.join(" "));
    notes.extend(remedies);
    Ok(Survey {
        machine,
        remedies: notes,
    })
}

#[cfg(test)]
mod tests;
