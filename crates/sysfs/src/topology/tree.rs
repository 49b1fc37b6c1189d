//! Files under a root directory or in memory, read in the manner of sysfs.
//!
//! Input: paths relative to the root. Output: trimmed text, numbers, sets of CPUs. `None` if the kernel has no such file or its
//! contents are invalid, which is recorded as a remedy.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::Path;
use std::rc::Rc;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::units::CpuId;

use crate::files;
use crate::procfs::Procfs;

/// Largest number of files or CPUs that a remedy names.
const NAMED: usize = 3;

/// Texts of files in memory by their paths. Many files have the same text.
pub(crate) type FileTexts = BTreeMap<String, Rc<str>>;

/// Place of the files.
enum SysPlace<'a> {
    Folder(&'a Path),
    Memory(&'a FileTexts),
}

/// Directory in place of `/`.
pub(super) struct SysRoot<'a> {
    place: SysPlace<'a>,
    /// Remedies, with the files or CPUs that each concerns.
    remedies: RefCell<Vec<(String, Vec<String>)>>,
}

impl<'a> SysRoot<'a> {
    pub(super) fn new(root: &'a Path) -> Self {
        Self::at(SysPlace::Folder(root))
    }

    pub(super) fn in_memory(files: &'a FileTexts) -> Self {
        Self::at(SysPlace::Memory(files))
    }

    fn at(place: SysPlace<'a>) -> Self {
        Self {
            place,
            remedies: RefCell::default(),
        }
    }

    /// Returns the directory; empty for files in memory.
    pub(super) fn root(&self) -> &Path {
        match self.place {
            SysPlace::Folder(root) => root,
            SysPlace::Memory(_) => Path::new(""),
        }
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
        match self.place {
            SysPlace::Folder(root) => files::text(&root.join(file)),
            SysPlace::Memory(texts) => files::trimmed(texts.get(file)?),
        }
    }

    pub(super) fn number(&self, file: &str) -> Option<u64> {
        self.text(file)?.parse().ok()
    }

    /// Returns a CPU list; `None` if there is no such file.
    pub(super) fn cpus(&self, file: &str) -> Option<CpuSet> {
        let set = self.text(file)?.parse();
        if set.is_err() {
            self.remedy("Left out, for they hold no CPU list", file);
        }
        set.ok()
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
        let texts = match self.place {
            SysPlace::Folder(root) => {
                return files::numbered(&root.join(folder), prefix).unwrap_or_default();
            }
            SysPlace::Memory(texts) => texts,
        };
        let begin = format!("{folder}/{prefix}");
        let behind = (Bound::Included(&*begin), Bound::Unbounded);
        let paths = texts.range::<str, _>(behind).map(|(path, _)| path);
        let ends = paths.map_while(|path| path.strip_prefix(&begin));
        let numbers: BTreeSet<u32> = ends
            .filter_map(|end| end.split('/').next()?.parse().ok())
            .collect();
        numbers.into_iter().collect()
    }

    /// Returns the CPUs that are online where no file lists them.
    pub(super) fn unlisted_online(&self) -> Option<CpuSet> {
        match self.place {
            SysPlace::Folder(root) => files::online(root),
            SysPlace::Memory(_) => None,
        }
    }

    /// Returns `/proc/cpuinfo`.
    pub(super) fn cpuinfo(&self) -> String {
        match self.place {
            SysPlace::Folder(root) => Procfs::below(root).cpuinfo(),
            SysPlace::Memory(_) => self.text("proc/cpuinfo").unwrap_or_default(),
        }
    }

    /// Returns a kernel setting; `None` if it is missing or empty.
    pub(super) fn setting(&self, name: &str) -> Option<String> {
        match self.place {
            SysPlace::Folder(root) => Procfs::below(root).setting(name),
            SysPlace::Memory(_) => self.text(&format!("proc/sys/kernel/{name}")),
        }
    }
}
