//! Miss curves of running programs: speed and misses by the amount of cache that is left to them.
//!
//! Input: the counters of a running program ([`OnlineSource`]), and a method to take cache from it ([`Squeeze`]): way masks of
//! resctrl ([`ways`]), or co-runners that are slowed down ([`duty`]; PMCTrack, section 4.3.1). Output: [`OnlinePoint`]s by core
//! type. Every change of the machine is written to an undo journal first ([`crate::undo`]).

pub mod counted;
pub mod duty;
pub mod ways;
use std::collections::BTreeMap;
use std::time::Duration;

use countersteer_counters::CounterError;
use countersteer_sysfs::unavailable::Unavailable;

use crate::undo::JournalError;

/// Counts of a program in an interval, on one core type.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct IntervalCounts {
    pub instructions: f64,
    pub cycles: f64,
    /// Number of last-level cache misses.
    pub misses: f64,
    /// Time in ns for which these events were counted.
    pub running_ns: f64,
}

pub trait OnlineSource {
    fn begin(&mut self) -> Result<(), CounterError>;
    /// Ends the interval and returns its counts by core PMU; the key is empty if all cores are alike.
    fn end(&mut self) -> Result<BTreeMap<String, IntervalCounts>, CounterError>;
}

/// Method to leave a program different amounts of a cache.
pub trait Squeeze {
    /// Returns the number of settings.
    fn settings(&self) -> usize;
    /// Applies a setting, given by its index; it takes effect within the settling time.
    fn apply(&mut self, setting: usize) -> Result<(), OnlineError>;
    fn begin(&mut self) -> Result<(), OnlineError>;
    /// Ends the interval and returns the KiB of the cache that the program occupied; `None` if unknown.
    fn end(&mut self, setting: usize, seen: &IntervalCounts) -> Result<Option<f64>, OnlineError>;
}

/// Reason for which a miss curve cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum OnlineError {
    /// Counters cannot be opened or read.
    #[error(transparent)]
    Counters(#[from] CounterError),
    /// The undo journal cannot be written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A file of the machine cannot be read or written.
    #[error("cannot {doing} {}: {source}; {remedy}", path.display())]
    File {
        doing: &'static str,
        path: std::path::PathBuf,
        source: std::io::Error,
        /// Remedy for the user.
        remedy: &'static str,
    },
    /// Cache allocation is unavailable on this machine.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// A process cannot be started or signalled.
    #[error("cannot {doing}: {source}; {remedy}")]
    Process {
        doing: String,
        source: std::io::Error,
        /// Remedy for the user.
        remedy: &'static str,
    },
    /// The machine does not support the measurement.
    #[error("{why}; {remedy}")]
    Unable {
        why: String,
        /// Remedy for the user.
        remedy: String,
    },
}

/// Times of a sweep over all settings, and number of rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Time for a setting to take effect, because caches fill at the speed of misses.
    pub settle: Duration,
    /// Time for which each setting is counted.
    pub dwell: Duration,
    /// Number of rounds over all settings, so that each setting is measured in several phases of the program.
    pub rounds: u32,
}

/// Counts of a program with some amount of cache, on one core PMU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OnlinePoint {
    /// KiB of the cache that the program occupied, weighted by cycles.
    pub cache_kib: f64,
    /// Counts of the program.
    pub seen: IntervalCounts,
}

/// Tolerance: maximum relative difference at which two cache sizes count as equal.
const SAME: f64 = 0.02;

/// Measured points by core PMU.
pub type OnlinePoints = BTreeMap<String, Vec<OnlinePoint>>;

/// Applies all settings in turn and counts an interval for each, while `goes_on` returns true; `wait` sleeps. Returns the
/// points in the order of measurement.
///
/// # Errors
/// Fails if counters or settings fail.
pub fn sweep(
    squeeze: &mut dyn Squeeze,
    source: &mut dyn OnlineSource,
    schedule: Schedule,
    wait: &mut dyn FnMut(Duration),
    goes_on: &mut dyn FnMut() -> bool,
) -> Result<OnlinePoints, OnlineError> {
    let mut curves = OnlinePoints::new();
    let settings = squeeze.settings();
    'all: for round in 0..schedule.rounds {
        for turn in 0..settings {
            // Rounds go up and down alternately. Neighbouring settings differ least, so the cache changes least between them.
            let setting = if round % 2 == 0 {
                turn
            } else {
                settings - 1 - turn
            };
            squeeze.apply(setting)?;
            wait(schedule.settle);
            squeeze.begin()?;
            source.begin()?;
            wait(schedule.dwell);
            let seen = source.end()?;
            let all = seen
                .values()
                .fold(IntervalCounts::default(), |sum, part| sum.plus(part));
            let cache = squeeze.end(setting, &all)?;
            // The program has ended, so the last interval is incomplete.
            if !goes_on() {
                break 'all;
            }
            let Some(cache_kib) = cache else { continue };
            for (pmu, seen) in seen {
                if seen.cycles > 0.0 && seen.instructions > 0.0 {
                    curves
                        .entry(pmu)
                        .or_default()
                        .push(OnlinePoint { cache_kib, seen });
                }
            }
        }
    }
    Ok(curves)
}

/// Returns the points sorted by cache size, smallest first; points of equal size are merged.
#[must_use]
pub fn merged(mut curves: OnlinePoints) -> OnlinePoints {
    for points in curves.values_mut() {
        points.sort_by(|a, b| a.cache_kib.total_cmp(&b.cache_kib));
        points.dedup_by(|next, kept| {
            let same = next.cache_kib <= kept.cache_kib * (1.0 + SAME);
            if same {
                kept.add(next.cache_kib, &next.seen);
            }
            same
        });
    }
    curves
}

impl IntervalCounts {
    fn plus(self, other: &Self) -> Self {
        Self {
            instructions: self.instructions + other.instructions,
            cycles: self.cycles + other.cycles,
            misses: self.misses + other.misses,
            running_ns: self.running_ns + other.running_ns,
        }
    }
}

impl OnlinePoint {
    fn add(&mut self, cache_kib: f64, seen: &IntervalCounts) {
        let before = self.seen.cycles;
        self.seen = self.seen.plus(seen);
        self.cache_kib += (cache_kib - self.cache_kib) * seen.cycles / (before + seen.cycles);
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    /// Program whose misses fall with its number of ways: 16 ways of 1 MiB.
    pub struct Pretend {
        pub ways: Rc<Cell<f64>>,
    }

    impl OnlineSource for Pretend {
        fn begin(&mut self) -> Result<(), CounterError> {
            Ok(())
        }

        fn end(&mut self) -> Result<BTreeMap<String, IntervalCounts>, CounterError> {
            let misses = 1e6 / self.ways.get();
            let seen = IntervalCounts {
                instructions: 1e9,
                cycles: 5e8 + 200.0 * misses,
                misses,
                running_ns: 2.5e8,
            };
            Ok([(String::new(), seen)].into())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::testing::Pretend;
    use super::*;

    struct Knob(Rc<Cell<f64>>, Vec<usize>);

    impl Squeeze for Knob {
        fn settings(&self) -> usize {
            3
        }
        fn apply(&mut self, setting: usize) -> Result<(), OnlineError> {
            self.0.set([4.0, 1.0, 2.0][setting]);
            self.1.push(setting);
            Ok(())
        }
        fn begin(&mut self) -> Result<(), OnlineError> {
            Ok(())
        }
        fn end(&mut self, _: usize, _: &IntervalCounts) -> Result<Option<f64>, OnlineError> {
            Ok(Some(self.0.get() * 1024.0))
        }
    }

    struct Fixed<'a>(&'a mut Knob);

    impl Squeeze for Fixed<'_> {
        fn settings(&self) -> usize {
            3
        }
        fn apply(&mut self, setting: usize) -> Result<(), OnlineError> {
            self.0.apply(setting)
        }
        fn begin(&mut self) -> Result<(), OnlineError> {
            Ok(())
        }
        fn end(&mut self, setting: usize, _: &IntervalCounts) -> Result<Option<f64>, OnlineError> {
            Ok(Some(1000.0 + setting as f64))
        }
    }

    #[test]
    fn a_curve_has_a_point_per_setting_and_the_program_may_end_meanwhile() {
        let ways = Rc::new(Cell::new(0.0));
        let mut knob = Knob(Rc::clone(&ways), Vec::new());
        let mut source = Pretend { ways };
        let schedule = Schedule {
            settle: Duration::ZERO,
            dwell: Duration::from_millis(1),
            rounds: 2,
        };
        let mut left = 5;
        let mut goes_on = || {
            left -= 1;
            left > 0
        };
        let curves = sweep(&mut knob, &mut source, schedule, &mut |_| {}, &mut goes_on).unwrap();
        assert_eq!(knob.1, [0, 1, 2, 2, 1]);
        assert_eq!(curves[""].len(), 4, "a point is an interval");
        let curves = merged(curves);
        let points = &curves[""];
        let seen: Vec<_> = points
            .iter()
            .map(|p| (p.cache_kib, p.seen.misses / p.seen.instructions * 1e3))
            .collect();
        assert_eq!(seen, [(1024.0, 1.0), (2048.0, 0.5), (4096.0, 0.25)]);
        assert_eq!(points[1].seen.instructions, 2e9, "it had two turns");
        let ways = Rc::new(Cell::new(0.0));
        let mut knob = Knob(Rc::clone(&ways), Vec::new());
        let mut source = Pretend { ways };
        let once = Schedule {
            rounds: 1,
            ..schedule
        };
        let mut fixed = Fixed(&mut knob);
        let curves = sweep(&mut fixed, &mut source, once, &mut |_| {}, &mut || true).unwrap();
        assert_eq!(
            merged(curves)[""].len(),
            1,
            "sizes that came to the same are one point"
        );
    }
}
