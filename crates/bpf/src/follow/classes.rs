//! Classes of CPUs, whose counts may be added up.
//!
//! CPUs of one class have the same core type and the same package. The package matters, since its energy is shared among the
//! threads that ran on it.

use std::path::Path;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::units::CpuId;
use countersteer_sysfs::files;

/// Classes, and the CPUs of each.
pub(super) struct CpuClasses {
    /// Class by CPU; `None` if nothing is counted there.
    pub of: Vec<Option<u32>>,
    pub first: Vec<CpuId>,
}

impl CpuClasses {
    /// Classes of these CPUs, by core type; `possible` is the number of possible CPUs.
    pub fn find(root: &Path, cpus: &CpuSet, core_types: &[u32], possible: usize) -> Self {
        let mut known: Vec<(u32, u32)> = Vec::new();
        let mut classes = Self {
            of: vec![None; core_types.len().max(possible)],
            first: Vec::new(),
        };
        for cpu in cpus.iter().filter(|cpu| cpu.index() < core_types.len()) {
            let class = (core_types[cpu.index()], package(root, cpu));
            let nr = known.iter().position(|k| *k == class).unwrap_or_else(|| {
                known.push(class);
                classes.first.push(cpu);
                known.len() - 1
            });
            classes.of[cpu.index()] = Some(nr as u32);
        }
        classes
    }
}

fn package(root: &Path, cpu: CpuId) -> u32 {
    files::value(&files::cpu(root, cpu.0).join("topology/physical_package_id")).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_of_another_package_or_type_are_of_another_class() {
        let root = tempfile::tempdir().unwrap();
        for (cpu, package) in [(0, 0), (1, 0), (2, 1), (3, 1)] {
            let folder = root
                .path()
                .join(format!("sys/devices/system/cpu/cpu{cpu}/topology"));
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("physical_package_id"), format!("{package}\n")).unwrap();
        }
        let cpus = CpuSet::from_iter([0, 1, 3].map(CpuId));
        let classes = CpuClasses::find(root.path(), &cpus, &[0, 1, 0, 1], 5);
        assert_eq!(classes.of, [Some(0), Some(1), None, Some(2), None]);
        assert_eq!(classes.first, [0, 1, 3].map(CpuId));
    }
}
