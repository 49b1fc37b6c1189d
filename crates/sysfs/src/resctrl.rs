//! resctrl, the kernel's file system of cache monitoring and cache allocation (Intel RDT, AMD QoS, Arm MPAM), as far as several
//! here need it.
//!
//! Input: a root directory. Output: groups of threads, what a cache can be divided into, and why there is no resctrl.

#[cfg(any(test, feature = "testing"))]
pub mod testing;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::unavailable::Unavailable;

/// What groups of this program are called: this, its process number, then whatever tells them apart.
pub const PREFIX: &str = "countersteer-";

/// What resctrl does beyond plain files.
pub trait Groups: Send {
    /// Makes a group; the kernel refuses when the hardware tells no more apart.
    fn make(&mut self, group: &Path) -> io::Result<()>;
    /// Removes a group; its threads fall back to the group they came from.
    fn remove(&mut self, group: &Path) -> io::Result<()>;
    /// Moves a thread into a group.
    fn assign(&mut self, group: &Path, tid: u32) -> io::Result<()>;
}

/// The kernel: making a folder makes a group.
pub struct Kernel;

impl Groups for Kernel {
    fn make(&mut self, group: &Path) -> io::Result<()> {
        std::fs::create_dir(group)
    }

    fn remove(&mut self, group: &Path) -> io::Result<()> {
        std::fs::remove_dir(group)
    }

    fn assign(&mut self, group: &Path, tid: u32) -> io::Result<()> {
        // The kernel takes one at a time, and its file is never cut short.
        let mut tasks = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(group.join("tasks"))?;
        tasks.write_all(format!("{tid}\n").as_bytes())
    }
}

pub fn mount(root: &Path) -> PathBuf {
    root.join("sys/fs/resctrl")
}

/// Why there is nothing to work with: no resctrl, not mounted, or without this ability, in these words.
pub fn unavailable(root: &Path, lacks: (&str, &str)) -> Unavailable {
    let read = std::fs::read_to_string(root.join("proc/filesystems"));
    let known = read.is_ok_and(|t| t.lines().any(|l| l.trim_end().ends_with("resctrl")));
    if mount(root).join("info").is_dir() {
        Unavailable::new(lacks.0, lacks.1)
    } else if known {
        Unavailable::new(
            "resctrl is not mounted",
            "run `mount -t resctrl resctrl /sys/fs/resctrl` as root",
        )
    } else {
        let why = "this kernel or processor has no resctrl";
        Unavailable::new(
            why,
            "Intel RDT, AMD QoS or Arm MPAM hardware is needed; virtual machines rarely have it",
        )
    }
}

/// How last-level caches can be divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Masks {
    pub ways: u32,
    /// Ways that a group must have at least.
    pub least: u32,
    /// Names of the lines of a `schemata` file that are about it: two where code and data are apart.
    pub resources: Vec<String>,
    pub caches: Vec<u32>,
    /// The lines as they were.
    pub lines: Vec<String>,
}

impl Masks {
    /// Reads them; an error comes with its file.
    pub fn read(mount: &Path) -> Result<Self, (PathBuf, io::Error)> {
        let text = |path: PathBuf| match std::fs::read_to_string(&path) {
            Ok(text) => Ok(text.trim().to_owned()),
            Err(error) => Err((path, error)),
        };
        let schemata = text(mount.join("schemata"))?;
        let lines: Vec<String> = schemata
            .lines()
            .map(str::trim)
            .filter(|line| line.starts_with("L3"))
            .map(str::to_owned)
            .collect();
        let resource = |line: &String| line.split(':').next().unwrap_or_default().to_owned();
        let resources: Vec<String> = lines.iter().map(resource).collect();
        let named = resources
            .first()
            .map(|name| mount.join("info").join(name))
            .filter(|folder| folder.is_dir());
        let info = named.unwrap_or_else(|| mount.join("info/L3"));
        let ways =
            u64::from_str_radix(&text(info.join("cbm_mask"))?, 16).map_or(0, u64::count_ones);
        let least = text(info.join("min_cbm_bits"))?.parse().unwrap_or(1).max(1);
        Ok(Self {
            ways,
            least,
            caches: lines.first().map_or_else(Vec::new, |line| numbers(line)),
            resources,
            lines,
        })
    }

    /// The mask of a stretch of ways, within what there is.
    pub fn mask(&self, first: u32, count: u32) -> u64 {
        let count = count.clamp(self.least, self.ways.max(self.least)).min(63);
        let first = first.min(self.ways.saturating_sub(count));
        ((1_u64 << count) - 1) << first
    }
}

/// The numbers of the caches or memories in a line of a `schemata` file, `L3:0=fff;1=fff`.
pub fn numbers(line: &str) -> Vec<u32> {
    let values = line.split_once(':').map_or("", |(_, values)| values);
    values
        .split(';')
        .filter_map(|part| part.split('=').next()?.trim().parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_stay_within_what_there_is() {
        let masks = Masks {
            ways: 12,
            least: 2,
            resources: vec!["L3".into()],
            caches: vec![0],
            lines: Vec::new(),
        };
        assert_eq!(
            [(0, 12), (0, 1), (10, 4), (3, 99)].map(|(f, c)| masks.mask(f, c)),
            [0xfff, 0b11, 0xf00, 0xfff]
        );
        assert_eq!(numbers("MB: 0=100;1= 50"), [0, 1]);
        assert!(numbers("nothing").is_empty());
    }
}
