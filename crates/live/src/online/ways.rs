//! Measurement of a miss curve by way masks (resctrl: Intel CAT, AMD, Arm MPAM).
//!
//! Input: a root directory, and the threads of a program. Output: a resctrl group for the program, whose mask has more or fewer
//! ways; all other threads have the remaining ways.

use std::path::{Path, PathBuf};

use countersteer_sysfs::resctrl::{Allocation, Resctrl, SchemataLine};

use super::{IntervalCounts, OnlineError, Squeeze};
use crate::undo::TemporaryJournal;
use crate::undo::entry::JournalEntry;

/// Limit on the number of settings of a sweep.
const MOST_SETTINGS: usize = 8;

/// Squeeze by way masks.
#[derive(Debug)]
pub struct WaySqueeze {
    resctrl: Resctrl,
    group: PathBuf,
    allocation: Allocation,
    /// Way masks of all other threads before the measurement.
    before: SchemataLine,
    /// Number of ways of the program by setting, most ways first.
    counts: Vec<u32>,
    /// Size of one way in KiB.
    way_kib: f64,
}

impl WaySqueeze {
    /// True if the machine whose file systems are below `root` supports way masks.
    #[must_use]
    pub fn possible(root: &Path) -> bool {
        let allocation = Resctrl::at(root).allocation();
        allocation.is_ok_and(|allocation| line(&allocation).is_some())
    }

    /// Creates a resctrl group for these threads; `llc_kib` is the size of a last-level cache.
    ///
    /// # Errors
    /// Fails if resctrl is absent, is mounted with separate masks for code and data, has no group left, or may not be changed.
    pub fn open(
        root: &Path,
        tids: &[u32],
        llc_kib: f64,
        undo: &mut TemporaryJournal,
    ) -> Result<Self, OnlineError> {
        let resctrl = Resctrl::at(root);
        let unable = |why: String, remedy: &str| OnlineError::Unable {
            why,
            remedy: remedy.into(),
        };
        let allocation = resctrl.allocation()?;
        let Some(before) = line(&allocation).cloned() else {
            return Err(unable(
                format!(
                    "{} has no line for L3",
                    resctrl.root_group().join("schemata").display()
                ),
                "mount resctrl without `cdp`: umount it, then `mount -t resctrl resctrl /sys/fs/resctrl`",
            ));
        };
        let Allocation { ways, least, .. } = allocation;
        if ways < 2 * least {
            return Err(unable(
                format!("a cache of {ways} ways cannot be divided"),
                "there is no remedy",
            ));
        }
        let mut own = Self {
            counts: counts(ways, least),
            way_kib: llc_kib / f64::from(ways),
            group: resctrl.control_group("ways"),
            resctrl,
            allocation,
            before,
        };
        own.journal(undo)?;
        own.resctrl.make(&own.group)?;
        for tid in tids {
            // A thread that has exited is skipped.
            own.resctrl.assign(&own.group, *tid)?;
        }
        Ok(own)
    }

    /// Writes the group and all masks to the journal, before they are created and set.
    fn journal(&self, undo: &mut TemporaryJournal) -> Result<(), OnlineError> {
        for setting in 0..self.counts.len() {
            undo.write(JournalEntry::Line {
                file: self.resctrl.root_group().join("schemata"),
                before: self.before.to_string(),
                set: self.before.with(self.others(setting)).to_string(),
            })?;
        }
        undo.write(JournalEntry::Group(self.group.clone()))?;
        Ok(())
    }

    /// Returns the way mask of the program for a setting.
    fn own(&self, setting: usize) -> u64 {
        self.allocation.mask(0, self.counts[setting])
    }

    /// Returns the way mask of all other threads for a setting.
    fn others(&self, setting: usize) -> u64 {
        self.allocation.mask(0, self.allocation.ways) & !self.own(setting)
    }
}

/// Returns the line of the L3 masks; `None` if code and data have separate masks.
fn line(allocation: &Allocation) -> Option<&SchemataLine> {
    allocation.lines.iter().find(|line| line.resource == "L3")
}

/// Returns the program's number of ways by setting. The first setting leaves the other threads the minimum number; the last one
/// leaves the program this minimum.
fn counts(ways: u32, least: u32) -> Vec<u32> {
    let low = least;
    let high = ways - least;
    let steps = ((high - low) as usize + 1).clamp(2, MOST_SETTINGS);
    let at = |nth: usize| high - ((high - low) as usize * nth / (steps - 1)) as u32;
    let mut counts: Vec<u32> = (0..steps).map(at).collect();
    counts.dedup();
    counts
}

impl Squeeze for WaySqueeze {
    fn settings(&self) -> usize {
        self.counts.len()
    }

    fn apply(&mut self, setting: usize) -> Result<(), OnlineError> {
        let (own, others) = (self.own(setting), self.others(setting));
        debug_assert!(others.count_ones() >= self.allocation.least);
        // Both masks are contiguous, as some processors require.
        self.resctrl.set(&self.group, &[self.before.with(own)])?;
        let root_group = self.resctrl.root_group();
        Ok(self.resctrl.set(root_group, &[self.before.with(others)])?)
    }

    fn begin(&mut self) -> Result<(), OnlineError> {
        Ok(())
    }

    fn end(&mut self, setting: usize, _: &IntervalCounts) -> Result<Option<f64>, OnlineError> {
        Ok(Some(f64::from(self.counts[setting]) * self.way_kib))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;
    use std::rc::Rc;
    use std::time::Duration;

    use super::super::testing::Pretend;
    use super::super::{Schedule, merged, sweep};
    use super::*;

    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let resctrl = root.path().join("sys/fs/resctrl");
        fs::create_dir_all(resctrl.join("info/L3")).unwrap();
        fs::write(resctrl.join("info/L3/cbm_mask"), "ffff\n").unwrap();
        fs::write(resctrl.join("info/L3/min_cbm_bits"), "1\n").unwrap();
        fs::write(
            resctrl.join("schemata"),
            "    MB:0=100;1=100\n    L3:0=ffff;1=ffff\n",
        )
        .unwrap();
        root
    }

    fn undo(root: &Path) -> TemporaryJournal {
        TemporaryJournal::begin(&root.join("journals")).unwrap()
    }

    /// Sets the simulated program's ways to those of the mask in its group.
    struct Watched(WaySqueeze, Rc<Cell<f64>>);

    impl Squeeze for Watched {
        fn settings(&self) -> usize {
            self.0.settings()
        }
        fn apply(&mut self, setting: usize) -> Result<(), OnlineError> {
            self.0.apply(setting)?;
            let mask = |path: &Path| {
                let text = fs::read_to_string(path.join("schemata")).unwrap();
                u64::from_str_radix(text.trim().rsplit('=').next().unwrap(), 16).unwrap()
            };
            let own = mask(&self.0.group);
            let others = mask(self.0.resctrl.root_group());
            assert_eq!(
                (own & others, own | others),
                (0, 0xffff),
                "all other threads have the rest"
            );
            self.1.set(f64::from(own.count_ones()));
            Ok(())
        }
        fn begin(&mut self) -> Result<(), OnlineError> {
            Ok(())
        }
        fn end(
            &mut self,
            setting: usize,
            seen: &IntervalCounts,
        ) -> Result<Option<f64>, OnlineError> {
            self.0.end(setting, seen)
        }
    }

    #[test]
    fn masks_give_the_curve_and_are_undone() {
        let root = machine();
        let mut undo = undo(root.path());
        let ways = WaySqueeze::open(root.path(), &[70, 71], 16.0 * 1024.0, &mut undo).unwrap();
        assert_eq!(ways.counts, [15, 13, 11, 9, 7, 5, 3, 1]);
        let group = ways.group.clone();
        assert_eq!(fs::read_to_string(group.join("tasks")).unwrap(), "70\n71\n");
        let have = Rc::new(Cell::new(0.0));
        let mut squeeze = Watched(ways, Rc::clone(&have));
        let schedule = Schedule {
            settle: Duration::ZERO,
            dwell: Duration::ZERO,
            rounds: 2,
        };
        let mut source = Pretend { ways: have };
        let curves = sweep(
            &mut squeeze,
            &mut source,
            schedule,
            &mut |_| {},
            &mut || true,
        )
        .unwrap();
        let mpki: Vec<_> = merged(curves)[""]
            .iter()
            .map(|p| (p.cache_kib, p.seen.misses / p.seen.instructions * 1e3))
            .collect();
        assert_eq!(mpki.len(), 8);
        assert!(
            mpki.iter()
                .all(|(kib, mpki)| (kib / 1024.0 * mpki - 1.0).abs() < 1e-9),
            "{mpki:?}"
        );
        let schemata = root.path().join("sys/fs/resctrl/schemata");
        let text = || fs::read_to_string(&schemata).unwrap();
        assert_ne!(text(), "L3:0=ffff;1=ffff\n");
        // The kernel removes a group with its files.
        for file in ["tasks", "schemata"] {
            fs::remove_file(group.join(file)).unwrap();
        }
        drop(undo);
        assert_eq!(text(), "L3:0=ffff;1=ffff\n");
        assert!(!group.exists());
        let journals = fs::read_dir(root.path().join("journals")).unwrap();
        assert_eq!(journals.count(), 0);
    }

    #[test]
    fn code_and_data_apart_are_refused_with_the_remedy() {
        let root = machine();
        let resctrl = root.path().join("sys/fs/resctrl");
        fs::rename(resctrl.join("info/L3"), resctrl.join("info/L3CODE")).unwrap();
        let apart = "L3CODE:0=ffff\nL3DATA:0=ffff\n";
        fs::write(resctrl.join("schemata"), apart).unwrap();
        let error = WaySqueeze::open(root.path(), &[1], 1024.0, &mut undo(root.path()))
            .unwrap_err()
            .to_string();
        assert!(error.contains("without `cdp`"), "{error}");
        assert!(!WaySqueeze::possible(root.path()) && WaySqueeze::possible(machine().path()));
    }
}
