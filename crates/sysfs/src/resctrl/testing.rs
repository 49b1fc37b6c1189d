//! The kernel's part of resctrl on a fake root, for tests.

use std::io;
use std::path::Path;

use super::{Groups, Kernel, PREFIX};

/// The kernel's part on a fake root: a group's files go with it, and there are so many groups.
#[derive(Clone)]
pub struct Pretend {
    pub limit: usize,
}

impl Groups for Pretend {
    fn make(&mut self, group: &Path) -> io::Result<()> {
        let own = |e: &std::fs::DirEntry| e.file_name().to_string_lossy().starts_with(PREFIX);
        let made = std::fs::read_dir(group.parent().unwrap_or(group))?
            .flatten()
            .filter(own)
            .count();
        if made >= self.limit {
            Err(io::Error::from_raw_os_error(libc::ENOSPC))
        } else {
            Kernel.make(group)
        }
    }

    fn remove(&mut self, group: &Path) -> io::Result<()> {
        std::fs::remove_dir_all(group)
    }

    fn assign(&mut self, group: &Path, tid: u32) -> io::Result<()> {
        Kernel.assign(group, tid)
    }
}
