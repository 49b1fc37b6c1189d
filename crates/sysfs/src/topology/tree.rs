//! Files under a root directory, read the way sysfs wants.
//!
//! Input: paths relative to the root. Output: trimmed text, numbers, CPU lists; `None` where the kernel offers no such file.

use std::path::{Path, PathBuf};

use countersteer_model::cpuset::CpuSet;

use super::DetectError;

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
        let bytes = std::fs::read(self.path(file)).ok()?;
        // Device-tree strings end in NUL.
        let text = String::from_utf8_lossy(&bytes)
            .trim_matches(|c: char| c.is_whitespace() || c == '\0')
            .to_owned();
        (!text.is_empty()).then_some(text)
    }

    pub(super) fn number(&self, file: &str) -> Option<u64> {
        self.text(file)?.parse().ok()
    }

    /// A CPU list, `None` if there is no such file.
    pub(super) fn cpus(&self, file: &str) -> Result<Option<CpuSet>, DetectError> {
        let Some(content) = self.text(file) else {
            return Ok(None);
        };
        match content.parse() {
            Ok(cpus) => Ok(Some(cpus)),
            Err(_) => Err(DetectError::Malformed {
                path: self.path(file),
                content,
                expected: "CPU list",
            }),
        }
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
        let entries = std::fs::read_dir(self.path(folder))
            .into_iter()
            .flatten()
            .flatten();
        let number = |name: &str| name.strip_prefix(prefix)?.parse().ok();
        let mut numbers: Vec<u32> = entries
            .filter_map(|e| number(e.file_name().to_str()?))
            .collect();
        numbers.sort_unstable();
        numbers
    }
}
