//! Files under a root directory, read the way sysfs wants.
//!
//! Input: paths relative to the root. Output: trimmed text, numbers, sets of CPUs; `None` where the kernel offers no such file or the
//! file makes no sense, which is kept as a remedy.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use countersteer_model::cpuset::CpuSet;
use countersteer_model::units::CpuId;

use crate::files;
use crate::procfs::Procfs;

/// So many files or CPUs are named in a remedy.
const NAMED: usize = 3;

/// A directory that stands for `/`.
pub(super) struct Tree<'a> {
    root: &'a Path,
    /// What was done about, and the files or CPUs that it concerns.
    remedies: RefCell<Vec<(String, Vec<String>)>>,
}

impl<'a> Tree<'a> {
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

    /// Keeps what was assumed in place of files that are missing or contradict each other, and where.
    pub(super) fn remedy(&self, what: impl Into<String>, subject: impl Into<String>) {
        let (what, subject) = (what.into(), subject.into());
        let mut remedies = self.remedies.borrow_mut();
        match remedies.iter_mut().find(|(known, _)| *known == what) {
            Some((_, subjects)) => subjects.push(subject),
            None => remedies.push((what, vec![subject])),
        }
    }

    /// The remedies as sentences.
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

    /// The trimmed text of a file. Some sysfs files exist and refuse to be read: those count as absent, and so do empty ones.
    pub(super) fn text(&self, file: &str) -> Option<String> {
        files::text(&self.path(file))
    }

    pub(super) fn number(&self, file: &str) -> Option<u64> {
        files::value(&self.path(file))
    }

    /// A CPU list, `None` if there is no such file.
    pub(super) fn cpus(&self, file: &str) -> Option<CpuSet> {
        files::cpus(&self.path(file)).unwrap_or_else(|_| {
            self.remedy("Left out, for they hold no CPU list", file);
            None
        })
    }

    /// A CPU list, else the bit mask that older kernels have alone.
    pub(super) fn cpus_or_mask(&self, list: &str, mask: &str) -> Option<CpuSet> {
        let of_mask = || files::mask(&self.text(mask)?);
        self.cpus(list).or_else(of_mask).filter(|c| !c.is_empty())
    }

    /// The CPUs that share something with a CPU, which is one of them or the file is wrong.
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

    /// Entries of `folder` named `prefix` and a number, by number.
    pub(super) fn numbered(&self, folder: &str, prefix: &str) -> Vec<u32> {
        files::numbered(&self.path(folder), prefix).unwrap_or_default()
    }

    /// What /proc says of this machine.
    pub(super) fn proc(&self) -> Procfs {
        Procfs::below(self.root)
    }
}
