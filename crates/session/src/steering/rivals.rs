//! Rivals of a run: other programs and events that place threads while it steers.
//!
//! Input: the rivals that the system shows, once a second. Output: a message for each change, their current list for the control
//! socket, and the reason to stand back, if a run may.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use countersteer_model::cpuset::CpuSet;
use countersteer_sysfs::rivals::{self, Rivals};

/// Interval between two looks. A look reads the name of every process.
const INTERVAL: Duration = Duration::from_secs(2);
/// Shorter differences of the clocks are their rounding.
const LEAST_SUSPENSION: Duration = Duration::from_millis(100);

pub struct RivalWatch {
    root: PathBuf,
    looked: Option<Instant>,
    /// Rivals at the start; CPUs that went offline later are compared with it.
    first: Rivals,
    last: Rivals,
    suspended: Duration,
}

/// Rivals that a look found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Current rivals, a sentence each.
    pub current: Vec<String>,
    /// Changes since the last look, a sentence each.
    pub changes: Vec<String>,
    /// Reason to release all threads: another scheduler has them.
    pub stand_back: Option<String>,
}

impl RivalWatch {
    /// Watches the system whose files are below `root`.
    pub fn new(root: &Path) -> Self {
        let online = countersteer_sysfs::files::online(root);
        let first = Rivals {
            online,
            ..Rivals::default()
        };
        Self {
            root: root.to_owned(),
            looked: None,
            last: first.clone(),
            first,
            suspended: rivals::suspended(),
        }
    }

    /// Looks again if the last look is long ago.
    pub fn look(&mut self, now: Instant) -> Option<Look> {
        if self
            .looked
            .is_some_and(|at| now.duration_since(at) < INTERVAL)
        {
            return None;
        }
        self.looked = Some(now);
        let found = rivals::look(&self.root);
        let mut changes = self.changes(&found);
        let suspended = rivals::suspended();
        let slept = suspended.saturating_sub(self.suspended);
        if slept > LEAST_SUSPENSION {
            self.suspended = suspended;
            changes.push(format!(
                "the system was suspended for {:.0} s; counts go on after it",
                slept.as_secs_f64()
            ));
        }
        let look = Look {
            current: current(&found, &self.first),
            changes,
            stand_back: found.scheduler.as_ref().map(|name| {
                format!("the sched_ext scheduler `{name}` of another program schedules all threads")
            }),
        };
        self.last = found;
        Some(look)
    }

    /// Differences from the last look.
    fn changes(&self, found: &Rivals) -> Vec<String> {
        let mut changes = Vec::new();
        if found.scheduler != self.last.scheduler {
            changes.push(match &found.scheduler {
                Some(name) => {
                    format!("the sched_ext scheduler `{name}` of another program is loaded")
                }
                None => "the sched_ext scheduler of another program is gone".into(),
            });
        }
        for (pid, name) in &found.pinners {
            if !self.last.pinners.contains_key(pid) {
                changes.push(format!(
                    "{name} (PID {pid}) sets affinity masks; a mask that it sets is kept"
                ));
            }
        }
        for (pid, name) in &self.last.pinners {
            if !found.pinners.contains_key(pid) {
                changes.push(format!("{name} (PID {pid}) has ended"));
            }
        }
        if let (Some(now), Some(before)) = (&found.online, &self.last.online) {
            for (set, what) in [
                (without(before, now), "went offline"),
                (without(now, before), "came online"),
            ] {
                if !set.is_empty() {
                    changes.push(format!("CPUs {set} {what}"));
                }
            }
        }
        changes
    }
}

fn without(set: &CpuSet, other: &CpuSet) -> CpuSet {
    set.iter().filter(|cpu| !other.contains(*cpu)).collect()
}

/// Rivals that exist now.
fn current(found: &Rivals, first: &Rivals) -> Vec<String> {
    let scheduler = (found.scheduler.iter()).map(|name| format!("sched_ext scheduler `{name}`"));
    let pinners = (found.pinners.iter()).map(|(pid, name)| format!("{name} (PID {pid})"));
    let offline = match (&found.online, &first.online) {
        (Some(now), Some(first)) => Some(without(first, now)).filter(|set| !set.is_empty()),
        _ => None,
    };
    let offline = offline.map(|set| format!("CPUs {set} offline"));
    scheduler.chain(pinners).chain(offline).collect()
}

#[cfg(test)]
mod tests {
    use countersteer_fuzz::fake_root::write;

    use super::*;

    #[test]
    fn every_change_is_reported_once_and_another_scheduler_asks_to_stand_back() {
        let root = tempfile::tempdir().unwrap();
        let online = "sys/devices/system/cpu/online";
        write(root.path(), &[(online, "0-3\n")]);
        let mut watch = RivalWatch::new(root.path());
        let start = Instant::now();
        let mut look = |seconds: u64| watch.look(start + Duration::from_secs(seconds));
        assert_eq!(look(0), Some(Look::default()));
        write(
            root.path(),
            &[
                (online, "0-1\n"),
                ("sys/kernel/sched_ext/root/ops", "lavd\n"),
                ("proc/7/comm", "intel_lpmd\n"),
            ],
        );
        assert_eq!(look(1), None);
        let found = look(4).unwrap();
        assert_eq!(
            found.changes,
            [
                "the sched_ext scheduler `lavd` of another program is loaded",
                "intel_lpmd (PID 7) sets affinity masks; a mask that it sets is kept",
                "CPUs 2-3 went offline"
            ]
        );
        assert_eq!(
            found.current,
            [
                "sched_ext scheduler `lavd`",
                "intel_lpmd (PID 7)",
                "CPUs 2-3 offline"
            ]
        );
        assert!(found.stand_back.unwrap().contains("`lavd`"));
        let again = look(8).unwrap();
        assert!(again.changes.is_empty() && again.stand_back.is_some());
        write(root.path(), &[(online, "0-3\n")]);
        std::fs::remove_file(root.path().join("sys/kernel/sched_ext/root/ops")).unwrap();
        std::fs::remove_dir_all(root.path().join("proc/7")).unwrap();
        let last = look(12).unwrap();
        assert_eq!(
            last.changes,
            [
                "the sched_ext scheduler of another program is gone",
                "intel_lpmd (PID 7) has ended",
                "CPUs 2-3 came online"
            ]
        );
        assert!(last.current.is_empty() && last.stand_back.is_none());
    }
}
