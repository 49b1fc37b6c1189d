//! Files under a root directory, read in the manner of sysfs.
//!
//! Input: paths relative to the root. Output: trimmed text, numbers, sets of CPUs. `None` if the kernel has no such file or its
//! contents are invalid, which is recorded as a remedy.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use countersteer_model::cpuset::CpuSet;
use countersteer_model::units::CpuId;

use crate::files;
use crate::procfs::Procfs;

/// Largest number of files or CPUs that a remedy names.
const NAMED: usize = 3;

/// Directory in place of `/`.
pub(super) struct SysRoot<'a> {
    root: &'a Path,
    /// Remedies, with the files or CPUs that each concerns.
    remedies: RefCell<Vec<(String, Vec<String>)>>,
}

impl<'a> SysRoot<'a> {
    pub(super) fn new(root: &'a Path) -> Self {
        Self {
            root,
            remedies: RefCell::default(),
        }
    }

    pub(super) fn path(&self, file: &str) -> PathBuf {
        self.root.join(file)
    }

    pub(super) fn root(&self) -> &Path {
        self.root
    }

    /// Records an assumption for missing or contradictory files, with its subject.
    pub(super) fn remedy(&self, what: impl Into<String>, subject: impl Into<String>) {
        let (what, subject) = (what.into(), subject.into());
        let mut remedies = self.remedies.borrow_mut();
        match remedies.iter_mut().find(|(known, _)| *known == what) {
            Some((_, subjects)) => subjects.push(subject),
            None => remedies.push((what, vec![subject])),
        }
    }

    /// Returns the remedies as sentences.
    pub(super) fn remedies(&self) -> Vec<String> {
        let sentence = |(what, subjects): &(String, Vec<String>)| {
            let named = subjects.len().min(NAMED);
            let more = match subjects.len() - named {
                0 => String::new(),
                n => format!(" and {n} more"),
            };
            format!("{what}: {}{more}.", subjects[..named].join(", "))
        };
        self.remedies.borrow().iter().map(sentence).collect()
    }

    /// Returns the trimmed text of a file. Empty files, and sysfs files that exist but refuse to be read, count as absent.
    pub(super) fn text(&self, file: &str) -> Option<String> {
        files::text(&self.path(file))
    }

    pub(super) fn number(&self, file: &str) -> Option<u64> {
        files::value(&self.path(file))
    }

    /// Returns a CPU list; `None` if there is no such file.
    pub(super) fn cpus(&self, file: &str) -> Option<CpuSet> {
        files::cpus(&self.path(file)).unwrap_or_else(|_| {
            self.remedy("Left out, for they hold no CPU list", file);
            None
        })
    }

    /// Returns a CPU list, or else the bit mask, which is all that older kernels have.
    pub(super) fn cpus_or_mask(&self, list: &str, mask: &str) -> Option<CpuSet> {
        let of_mask = || files::mask(&self.text(mask)?);
        self.cpus(list).or_else(of_mask).filter(|c| !c.is_empty())
    }

    /// Returns the CPUs that share something with a CPU. The file is invalid if it does not list the CPU itself.
    pub(super) fn cpus_with(&self, cpu: CpuId, list: &str, mask: &str) -> Option<CpuSet> {
        let has_itself = |set: &CpuSet| set.contains(cpu);
        let listed = self.cpus(list);
        if listed.as_ref().is_some_and(|set| !has_itself(set)) {
            self.remedy("Left out, for their own CPU is not in them", list);
        }
        let of_mask = || files::mask(&self.text(mask)?);
        listed
            .filter(has_itself)
            .or_else(of_mask)
            .filter(has_itself)
    }

    /// Returns the numbers N of the folder's entries named `prefix` followed by N.
    pub(super) fn numbered(&self, folder: &str, prefix: &str) -> Vec<u32> {
        files::numbered(&self.path(folder), prefix).unwrap_or_default()
    }

    /// Returns the procfs of this machine.
    pub(super) fn proc(&self) -> Procfs {
        Procfs::below(self.root)
    }
}
