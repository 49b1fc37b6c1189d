//! Programs and settings of the system that place threads, apart from this program.
//!
//! Input: a root directory. Output: the loaded sched_ext scheduler, programs that set affinity masks, online CPUs.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use countersteer_model::cpuset::CpuSet;
use nix::time::ClockId;

use crate::procfs::Procfs;
use crate::{files, sched_ext};

/// Name under which this project's own sched_ext scheduler is loaded.
const OWN_SCHEDULER: &str = "countersteer";
/// Programs that set affinity masks or cpusets of processes which they did not start, as /proc/PID/comm shows them: Intel's Low
/// Power Mode Daemon, Feral's GameMode (`pin_cores`, `park_cores`), and numad.
const PINNERS: [&str; 3] = ["intel_lpmd", "gamemoded", "numad"];

/// Rivals at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rivals {
    /// The sched_ext scheduler of another program, if one schedules all threads.
    pub scheduler: Option<String>,
    /// Names of running programs that set affinity masks, by PID.
    pub pinners: BTreeMap<u32, String>,
    /// CPUs that are online, by the kernel's numbers; `None` if the kernel does not list them.
    pub online: Option<CpuSet>,
}

/// Returns the current rivals.
#[must_use]
pub fn look(root: &Path) -> Rivals {
    let proc = Procfs::below(root);
    let pinner = |pid: u32| {
        let name = proc.name(pid)?;
        PINNERS.contains(&name.as_str()).then_some((pid, name))
    };
    Rivals {
        scheduler: scheduler(root),
        pinners: proc.processes().into_iter().filter_map(pinner).collect(),
        online: files::online(root),
    }
}

fn scheduler(root: &Path) -> Option<String> {
    // In partial mode a scheduler only has the threads that were given to it.
    let has_all = files::text(&root.join("sys/kernel/sched_ext/switch_all"))
        .is_none_or(|switched| switched.trim() != "0");
    sched_ext::loaded(root).filter(|name| has_all && name != OWN_SCHEDULER)
}

/// Returns the time for which the system was suspended since it started.
#[must_use]
pub fn suspended() -> Duration {
    let now = |clock: ClockId| clock.now().map(Duration::from).unwrap_or_default();
    // Read in this order, the difference is never too large.
    let since_boot = now(ClockId::CLOCK_BOOTTIME);
    since_boot.saturating_sub(now(ClockId::CLOCK_MONOTONIC))
}

#[cfg(test)]
mod tests {
    use countersteer_fuzz::fake_root::write;

    use super::*;

    #[test]
    fn other_schedulers_pinners_and_offline_cpus_are_rivals_and_our_scheduler_is_not() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(look(root.path()), Rivals::default());
        write(
            root.path(),
            &[
                ("sys/kernel/sched_ext/root/ops", "lavd_1.0\n"),
                ("sys/kernel/sched_ext/switch_all", "1\n"),
                ("sys/devices/system/cpu/online", "0-1,3\n"),
                ("proc/12/comm", "gamemoded\n"),
                ("proc/13/comm", "bash\n"),
            ],
        );
        let found = look(root.path());
        assert_eq!(found.scheduler.as_deref(), Some("lavd_1.0"));
        assert_eq!(
            found.pinners,
            BTreeMap::from([(12, "gamemoded".to_owned())])
        );
        assert_eq!(found.online.unwrap().to_string(), "0-1,3");
        for (file, text) in [
            ("sys/kernel/sched_ext/switch_all", "0\n"),
            ("sys/kernel/sched_ext/root/ops", "countersteer\n"),
        ] {
            write(root.path(), &[(file, text)]);
            assert_eq!(look(root.path()).scheduler, None, "{file}");
            write(root.path(), &[("sys/kernel/sched_ext/switch_all", "1\n")]);
        }
    }
}
