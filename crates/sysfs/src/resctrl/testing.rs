//! Simulation of the kernel's part of resctrl on a fake root, for tests of its users.

use std::sync::{Arc, Mutex};

use super::*;

/// Kernel side on a fake root. A monitoring group has data of two caches; its files vanish with it; the number of groups is
/// limited.
#[derive(Clone)]
pub struct Pretend {
    pub limit: usize,
    /// Names of groups that were removed.
    pub removed: Arc<Mutex<Vec<String>>>,
}

impl Pretend {
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            removed: Arc::default(),
        }
    }
}

impl GroupFolders for Pretend {
    fn make(&mut self, group: &Path) -> io::Result<()> {
        let folder = group.parent().unwrap_or(group);
        let mut made = files::folders(folder);
        made.retain(|group| files::name(group).starts_with(PREFIX));
        if made.len() >= self.limit {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        ResctrlKernel.make(group)?;
        if folder.ends_with("mon_groups") {
            for cache in ["mon_L3_00", "mon_L3_01"] {
                let data = group.join("mon_data").join(cache);
                std::fs::create_dir_all(&data)?;
                std::fs::write(data.join("llc_occupancy"), "0\n")?;
            }
        }
        Ok(())
    }

    fn remove(&mut self, group: &Path) -> io::Result<()> {
        let name = files::name(group).to_owned();
        if let Ok(mut removed) = self.removed.lock() {
            removed.push(name);
        }
        std::fs::remove_dir_all(group)
    }

    fn assign(&mut self, group: &Path, tid: u32) -> io::Result<()> {
        ResctrlKernel.assign(group, tid)
    }
}
