//! Files under a root directory, read the way sysfs wants.
//!
//! Input: paths relative to the root. Output: trimmed text, numbers, CPU lists; `None` where the kernel offers no such file.

use std::path::{Path, PathBuf};

use countersteer_model::cpuset::CpuSet;

use super::DetectError;
use crate::files;
use crate::procfs::Procfs;

/// A directory that stands for `/`.
pub(super) struct Tree<'a> {
    root: &'a Path,
}

impl<'a> Tree<'a> {
    pub(super) fn new(root: &'a Path) -> Self {
        Self { root }
    }

    pub(super) fn path(&self, file: &str) -> PathBuf {
        self.root.join(file)
    }

    /// The trimmed text of a file. Some sysfs files exist and refuse to be read: those count as absent, and so do empty ones.
    pub(super) fn text(&self, file: &str) -> Option<String> {
        files::text(&self.path(file))
    }

    pub(super) fn number(&self, file: &str) -> Option<u64> {
        files::value(&self.path(file))
    }

    /// A CPU list, `None` if there is no such file.
    pub(super) fn cpus(&self, file: &str) -> Result<Option<CpuSet>, DetectError> {
        files::cpus(&self.path(file)).map_err(|content| DetectError::Malformed {
            path: self.path(file),
            content,
            expected: "CPU list",
        })
    }

    /// A CPU list that every kernel has.
    pub(super) fn required_cpus(&self, file: &str) -> Result<CpuSet, DetectError> {
        let path = self.path(file);
        if let Err(source) = std::fs::metadata(&path) {
            return Err(DetectError::Unreadable { path, source });
        }
        let empty = DetectError::Malformed {
            path,
            content: String::new(),
            expected: "CPU list",
        };
        self.cpus(file)?.filter(|c| !c.is_empty()).ok_or(empty)
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
