//! Detection of CPUs that were offline and are back online. The kernel removes the counters of a CPU that goes offline, so
//! they have to be reopened when it returns.
//!
//! Input: sysfs, and two clocks, one of which stops while the machine is suspended. During a suspension all CPUs but one are
//! offline.

use std::path::{Path, PathBuf};

use countersteer_model::cpuset::CpuSet;
use countersteer_model::units::CpuId;
use countersteer_sysfs::files;
use nix::time::{ClockId, clock_gettime};

use super::sys;

/// Minimum interval in ns between checks, because reading the file costs some microseconds.
const LOOK_NS: u64 = 50_000_000;

/// Threshold in ns: a larger growth of the difference between the two clocks means a suspension. The clocks are not read at
/// the same instant.
const ASLEEP_NS: u64 = 20_000_000;

#[derive(Debug)]
pub(crate) struct HotplugWatch {
    root: PathBuf,
    online: CpuSet,
    asleep_ns: u64,
    looked_ns: u64,
}

impl HotplugWatch {
    pub(crate) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            online: online(root),
            asleep_ns: asleep_ns(),
            looked_ns: sys::now(),
        }
    }

    /// Returns the CPUs that came back since the last check; all CPUs if the machine was suspended. Checks that follow too
    /// soon return none.
    pub(crate) fn look(&mut self) -> CpuSet {
        let now = sys::now();
        if now.saturating_sub(self.looked_ns) < LOOK_NS {
            return CpuSet::default();
        }
        self.looked_ns = now;
        self.compare(online(&self.root), asleep_ns())
    }

    /// Marks a CPU as offline because its counters could not be opened yet. The next check returns it again.
    pub(crate) fn is_not_back(&mut self, cpu: CpuId) {
        self.online.remove(cpu);
    }

    fn compare(&mut self, online: CpuSet, asleep_ns: u64) -> CpuSet {
        let slept = asleep_ns > self.asleep_ns + ASLEEP_NS;
        self.asleep_ns = asleep_ns;
        let before = std::mem::replace(&mut self.online, online.clone());
        if slept {
            return online;
        }
        online.iter().filter(|cpu| !before.contains(*cpu)).collect()
    }
}

fn online(root: &Path) -> CpuSet {
    files::online(root).unwrap_or_default()
}

/// Returns the time in ns for which the machine has been suspended since its start.
fn asleep_ns() -> u64 {
    let awake = sys::now();
    let all = clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(awake, |t| {
        t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64
    });
    all.saturating_sub(awake)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_offline_is_back_once_and_after_sleep_every_cpu_is() {
        let cpus = |list: &str| list.parse::<CpuSet>().unwrap();
        let mut returns = HotplugWatch {
            root: PathBuf::new(),
            online: cpus("0-3"),
            asleep_ns: 0,
            looked_ns: 0,
        };
        assert_eq!(returns.compare(cpus("0,2-3"), 0), CpuSet::default());
        assert_eq!(returns.compare(cpus("0-3"), 0), cpus("1"));
        returns.is_not_back(CpuId(1));
        assert_eq!(returns.compare(cpus("0-3"), 0), cpus("1"));
        assert_eq!(returns.compare(cpus("0-3"), ASLEEP_NS), CpuSet::default());
        assert_eq!(returns.compare(cpus("0-3"), 9 * ASLEEP_NS), cpus("0-3"));
        assert_eq!(
            returns.compare(cpus("0-3"), 9 * ASLEEP_NS),
            CpuSet::default()
        );
    }

    #[test]
    fn the_online_list_is_read_from_its_root() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("sys/devices/system/cpu");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("online"), "0,4-5\n").unwrap();
        assert_eq!(online(root.path()).to_string(), "0,4-5");
    }
}
