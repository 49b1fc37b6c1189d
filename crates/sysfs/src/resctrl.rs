//! resctrl, the kernel's file system of cache monitoring and cache allocation (Intel RDT, AMD QoS, Arm MPAM).
//!
//! Input: a root directory, in whose `sys/fs/resctrl` it is mounted. Output: possible partitions of caches and bandwidth
//! ([`Allocation`], [`MemoryBandwidthLimits`]), lines of `schemata` files ([`SchemataLine`]), groups of threads, and the monitored values of a
//! group. An error names the file, its line if it was parsed, and the remedy.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::files;
use crate::procfs::Procfs;
use crate::unavailable::Unavailable;

/// Prefix of the names of this program's groups; the PID and a unique suffix follow.
pub const PREFIX: &str = "countersteer-";

/// Operations of the kernel beyond reading and writing files.
pub trait GroupFolders: Send {
    /// Makes a group; fails if the hardware supports no more groups.
    fn make(&mut self, group: &Path) -> io::Result<()>;
    /// Removes a group; its threads return to the group they came from.
    fn remove(&mut self, group: &Path) -> io::Result<()>;
    /// Moves a thread into a group.
    fn assign(&mut self, group: &Path, tid: u32) -> io::Result<()>;
}

/// The real kernel: creating a folder makes a group.
#[derive(Debug)]
pub struct ResctrlKernel;

impl GroupFolders for ResctrlKernel {
    fn make(&mut self, group: &Path) -> io::Result<()> {
        std::fs::create_dir(group)
    }

    fn remove(&mut self, group: &Path) -> io::Result<()> {
        std::fs::remove_dir(group)
    }

    fn assign(&mut self, group: &Path, tid: u32) -> io::Result<()> {
        // The kernel takes one TID at a time, and the file must not be truncated.
        let mut tasks = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(group.join("tasks"))?;
        tasks.write_all(format!("{tid}\n").as_bytes())
    }
}

/// Line of a `schemata` file, `L3:0=fff;1=fff`: the share of a group in each cache or memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemataLine {
    pub resource: String,
    /// Way masks of caches or limits of memories, by the kernel's numbers of these.
    pub domains: BTreeMap<u32, u64>,
}

impl SchemataLine {
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (resource, domains) = text.trim().split_once(':')?;
        let radix = if is_mask(resource) { 16 } else { 10 };
        let domain = |part: &str| {
            let (domain, value) = part.split_once('=')?;
            let value = u64::from_str_radix(value.trim(), radix).ok()?;
            Some((domain.trim().parse().ok()?, value))
        };
        Some(Self {
            resource: resource.to_owned(),
            domains: domains.split(';').map(domain).collect::<Option<_>>()?,
        })
    }

    /// Returns the line with this value in every domain.
    #[must_use]
    pub fn with(&self, value: u64) -> Self {
        let domains = self.domains.keys().map(|domain| (*domain, value));
        Self {
            resource: self.resource.clone(),
            domains: domains.collect(),
        }
    }
}

/// True if the values of a resource are way masks: those of caches are.
fn is_mask(resource: &str) -> bool {
    resource.starts_with('L')
}

impl fmt::Display for SchemataLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.resource)?;
        for (nth, (domain, value)) in self.domains.iter().enumerate() {
            let separator = if nth == 0 { "" } else { ";" };
            if is_mask(&self.resource) {
                write!(f, "{separator}{domain}={value:x}")?;
            } else {
                write!(f, "{separator}{domain}={value}")?;
            }
        }
        Ok(())
    }
}

/// Possible partitions of the last-level caches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    pub ways: u32,
    /// Smallest number of ways of a group.
    pub least: u32,
    /// Lines of the root group about these caches, at least one: two if code and data are separate.
    pub lines: Vec<SchemataLine>,
}

impl Allocation {
    /// Returns the mask of `count` adjacent ways from `first` on, limited to the existing ways.
    #[must_use]
    pub fn mask(&self, first: u32, count: u32) -> u64 {
        let count = count.clamp(self.least, self.ways.max(self.least)).min(63);
        let first = first.min(self.ways.saturating_sub(count));
        ((1_u64 << count) - 1) << first
    }
}

/// Possible limits of the memory bandwidth, in percent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryBandwidthLimits {
    pub least: u32,
    /// Granularity: the kernel rounds percentages up to multiples of it.
    pub step: u32,
    /// Line of the root group.
    pub line: SchemataLine,
}

impl MemoryBandwidthLimits {
    /// Returns the limit that a group gets for this percentage.
    #[must_use]
    pub fn limit(&self, percent: u32) -> u64 {
        let percent = percent.clamp(self.least.min(100), 100);
        u64::from(percent.next_multiple_of(self.step.max(1)).min(100))
    }
}

/// resctrl below a root directory, with this program's groups in it.
pub struct Resctrl {
    proc: Procfs,
    mount: PathBuf,
    groups: Box<dyn GroupFolders>,
}

impl Resctrl {
    /// Returns the resctrl of the machine whose file systems are below `root`.
    #[must_use]
    pub fn at(root: &Path) -> Self {
        Self::over(root, Box::new(ResctrlKernel))
    }

    /// Returns the resctrl below `root`, with a replacement for the kernel.
    #[must_use]
    pub fn over(root: &Path, groups: Box<dyn GroupFolders>) -> Self {
        Self {
            proc: Procfs::below(root),
            mount: root.join("sys/fs/resctrl"),
            groups,
        }
    }

    /// Returns the root group, which contains all threads at first.
    #[must_use]
    pub fn root_group(&self) -> &Path {
        &self.mount
    }

    /// Returns the interface that makes and removes groups.
    pub fn groups(&mut self) -> &mut dyn GroupFolders {
        &mut *self.groups
    }

    /// Returns the possible partitions of the last-level caches.
    ///
    /// # Errors
    /// Fails if they cannot be partitioned, or a file cannot be read.
    pub fn allocation(&self) -> Result<Allocation, Unavailable> {
        let lacks = (
            "resctrl does not divide caches here",
            "the processor or the firmware lacks cache allocation",
        );
        if !self.mount.join("schemata").is_file() {
            return Err(self.unavailable(lacks));
        }
        let lines = self.schemata("L3")?;
        let Some(SchemataLine { resource, .. }) = lines.first() else {
            return Err(self.unavailable(lacks));
        };
        let info = self.mount.join("info").join(resource);
        let mask = |text: &str| u64::from_str_radix(text, 16).ok();
        let ways = parsed(&info.join("cbm_mask"), "a way mask", mask)?.count_ones();
        let least: u32 = parsed(&info.join("min_cbm_bits"), "a number", |t| t.parse().ok())?;
        let least = least.max(1);
        if ways <= least {
            return Err(self.unavailable(lacks));
        }
        Ok(Allocation { ways, least, lines })
    }

    /// Returns the possible limits of the bandwidth; `None` if they are not in percent. AMD counts in eighths of a GB/s, which
    /// would require the bandwidth of the memory.
    ///
    /// # Errors
    /// Fails if a file cannot be read.
    pub fn bandwidth(&self) -> Result<Option<MemoryBandwidthLimits>, Unavailable> {
        let line = self.schemata("MB")?.into_iter().next();
        let Some(line) = line.filter(|line| line.domains.values().all(|limit| *limit == 100))
        else {
            return Ok(None);
        };
        let info = self.mount.join("info/MB");
        let number = |file| parsed(&info.join(file), "a number", |t| t.parse().ok());
        Ok(Some(MemoryBandwidthLimits {
            least: number("min_bandwidth")?,
            step: number("bandwidth_gran")?,
            line,
        }))
    }

    /// Checks that the hardware monitors last-level caches; `is_known` receives the names of files in `mon_data`.
    ///
    /// # Errors
    /// Fails if it monitors nothing of that name.
    pub fn monitors(&self, is_known: impl Fn(&str) -> bool) -> Result<(), Unavailable> {
        let features = files::text(&self.mount.join("info/L3_MON/mon_features"));
        if features.is_some_and(|names| names.lines().any(is_known)) {
            return Ok(());
        }
        Err(self.unavailable((
            "resctrl does not monitor caches here",
            "the processor or the firmware lacks cache monitoring",
        )))
    }

    /// Returns the reason why resctrl cannot be used: it is missing, not mounted, or lacks a feature, described by the
    /// arguments.
    fn unavailable(&self, (lacks, remedy): (&str, &str)) -> Unavailable {
        if self.mount.join("info").is_dir() {
            Unavailable::new(lacks, remedy)
        } else if self.proc.knows_file_system("resctrl") {
            Unavailable::new(
                "resctrl is not mounted",
                "run `mount -t resctrl resctrl /sys/fs/resctrl` as root",
            )
        } else {
            Unavailable::new(
                "this kernel or processor has no resctrl",
                "Intel RDT, AMD QoS or Arm MPAM hardware is needed; virtual machines rarely have it",
            )
        }
    }

    /// Returns the root group's lines whose resource has this prefix.
    fn schemata(&self, resource: &str) -> Result<Vec<SchemataLine>, Unavailable> {
        let path = self.mount.join("schemata");
        let text = read(&path)?;
        let lines = text.lines().enumerate();
        lines
            .filter(|(_, line)| line.trim_start().starts_with(resource))
            .map(|(nth, line)| {
                let expected = "`RESOURCE:DOMAIN=VALUE;...`";
                SchemataLine::parse(line).ok_or_else(|| malformed(&path, nth + 1, expected, line))
            })
            .collect()
    }

    /// Sets the share of a group.
    ///
    /// # Errors
    /// Returns the kernel's reason if it refuses.
    pub fn set(&self, group: &Path, lines: &[SchemataLine]) -> Result<(), Unavailable> {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let path = group.join("schemata");
        std::fs::write(&path, &text).map_err(|source| {
            let lines = text.trim().replace('\n', ", ");
            let remedy = match files::text(&self.mount.join("info/last_cmd_status")) {
                Some(status) => format!("the kernel says of `{lines}`: {status}"),
                None => AS_ROOT.to_owned(),
            };
            failed("write", &path, &source, remedy)
        })
    }

    /// Returns the path of a control group of this process, whose threads have their own partition. The group is not created
    /// yet.
    #[must_use]
    pub fn control_group(&self, name: &str) -> PathBuf {
        own(&self.mount, name)
    }

    /// Returns the path of another control group of this kind, which no run of this process has had. The group is not created yet.
    #[must_use]
    pub fn another_control_group(&self, kind: &str) -> PathBuf {
        another(&self.mount, kind)
    }

    /// Returns the path of another monitoring group of this process, whose threads are monitored. The group is not created yet.
    #[must_use]
    pub fn another_monitoring_group(&self) -> PathBuf {
        another(&self.mount.join("mon_groups"), "")
    }

    /// Makes a group.
    ///
    /// # Errors
    /// Fails without root privileges, or if the hardware supports no more groups.
    pub fn make(&mut self, group: &Path) -> Result<(), Unavailable> {
        let Err(source) = self.groups.make(group) else {
            return Ok(());
        };
        let folder = group.parent().unwrap_or(group);
        let most = if folder == self.mount {
            "info/L3/num_closids"
        } else {
            "info/L3_MON/num_rmids"
        };
        let remedy = match (source.raw_os_error(), files::text(&self.mount.join(most))) {
            (Some(libc::ENOSPC), Some(most)) => {
                format!("the processor distinguishes {most}: remove groups that are not needed")
            }
            (Some(libc::ENOSPC), None) => "remove groups that are not needed".to_owned(),
            _ => AS_ROOT.to_owned(),
        };
        // The message names the parent folder: many equal failures then give one message.
        Err(failed("make a group in", folder, &source, remedy))
    }

    /// Moves a thread into a group. Returns `false` if it has exited.
    ///
    /// # Errors
    /// Fails if the kernel refuses.
    pub fn assign(&mut self, group: &Path, tid: u32) -> Result<bool, Unavailable> {
        match self.groups.assign(group, tid) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
            Err(error) => Err(failed("write", &group.join("tasks"), &error, AS_ROOT)),
        }
    }

    /// Removes a group; its threads return to the group they came from.
    ///
    /// # Errors
    /// Fails if the kernel refuses.
    pub fn remove(&mut self, group: &Path) -> Result<(), Unavailable> {
        let removed = self.groups.remove(group);
        removed.map_err(|error| failed("remove", group, &error, AS_ROOT))
    }

    /// Removes monitoring groups of killed processes. Returns their number.
    pub fn remove_stale(&mut self) -> usize {
        let owner = |group: &Path| -> Option<u32> {
            let rest = files::name(group).strip_prefix(PREFIX)?;
            rest.split('-').next()?.parse().ok()
        };
        let mut stale = files::folders(&self.mount.join("mon_groups"));
        stale.retain(|group| owner(group).is_some_and(|pid| !self.proc.has(pid)));
        // Another process may be removing them concurrently.
        let removed = stale
            .iter()
            .filter(|group| self.groups.remove(group).is_ok());
        removed.count()
    }

    /// Returns the threads in control groups that do not belong to this process.
    #[must_use]
    pub fn foreign_threads(&self) -> Vec<u32> {
        let own = format!("{PREFIX}{}-", std::process::id());
        let mut groups = files::folders(&self.mount);
        groups.retain(|group| !files::name(group).starts_with(&own));
        groups.iter().flat_map(|group| tasks(group)).collect()
    }
}

impl fmt::Debug for Resctrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Resctrl").field(&self.mount).finish()
    }
}

const AS_ROOT: &str = "run as root, and see `steer doctor` about resctrl";

fn failed(doing: &str, path: &Path, error: &io::Error, remedy: impl Into<String>) -> Unavailable {
    Unavailable::new(
        format!("cannot {doing} {}: {error}", path.display()),
        remedy,
    )
}

fn malformed(path: &Path, line: usize, expected: &str, found: &str) -> Unavailable {
    let found = found.trim();
    Unavailable::new(
        format!(
            "{}:{line}: expected {expected}, found `{found}`",
            path.display()
        ),
        "mount resctrl again, or report it with the kernel's version",
    )
}

fn read(path: &Path) -> Result<String, Unavailable> {
    std::fs::read_to_string(path).map_err(|error| failed("read", path, &error, AS_ROOT))
}

/// Parses the single value in a file.
fn parsed<T>(
    path: &Path,
    expected: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<T, Unavailable> {
    let text = read(path)?;
    parse(text.trim()).ok_or_else(|| malformed(path, 1, expected, &text))
}

fn own(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{PREFIX}{}-{name}", std::process::id()))
}

/// Numbers of the next groups, by folder and kind. A run undoes the groups in its journal at its end, so another run of this
/// process must never have had the same ones.
static NUMBERS: Mutex<BTreeMap<PathBuf, u32>> = Mutex::new(BTreeMap::new());

fn another(folder: &Path, kind: &str) -> PathBuf {
    let mut numbers = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
    let next = numbers.entry(folder.join(kind)).or_default();
    loop {
        let path = own(folder, &format!("{kind}{next}"));
        *next += 1;
        // A killed process of the same PID may have left groups.
        if !path.exists() {
            return path;
        }
    }
}

/// Returns the threads of a group.
#[must_use]
pub fn tasks(group: &Path) -> Vec<u32> {
    let text = std::fs::read_to_string(group.join("tasks")).unwrap_or_default();
    text.lines().filter_map(|l| l.trim().parse().ok()).collect()
}

/// Returns the value of a `mon_data` file for a group, summed over the caches. `None` if no cache has a number: the kernel
/// writes "Unavailable" or "Error" then.
#[must_use]
pub fn monitored(group: &Path, file: &str) -> Option<u64> {
    let caches = files::folders(&group.join("mon_data")).into_iter();
    let numbers = caches.filter_map(|cache| files::value::<u64>(&cache.join(file)));
    numbers.reduce(u64::saturating_add)
}

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
