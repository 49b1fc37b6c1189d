//! Readings: what was counted for one owner in one interval, by one set of events on one core type.
//!
//! Output of a counting session. Values lie in one array for all rows, so that a session writes thousands of rows without
//! asking for memory. Counts are raw: what counted for half the time shows half the events, and says so.

use crate::sample::{Counts, Sample};
use crate::units::{CoreTypeId, CpuId, Nanos, ThreadId};

use super::Plan;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    Thread {
        pid: u32,
        tid: u32,
    },
    /// All threads of a process.
    Process {
        pid: u32,
    },
    /// Threads that are known only together: those alive at the end whose last stretch was not sampled.
    Rest,
    /// All that ran on a CPU.
    Cpu,
    /// All that was looked at.
    Total,
}

/// Counts of one owner in one interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    pub owner: Owner,
    /// Where; absent where CPUs were added up.
    pub cpu: Option<CpuId>,
    /// On which type of core, as a row of the session's list.
    pub core_type: u32,
    /// By which set of the plan.
    pub set: u32,
    pub start: Nanos,
    pub end: Nanos,
    /// Time the owner ran there while the set had its turn.
    pub enabled: Nanos,
    /// Time the set really counted; less than `enabled` when there were too few counters.
    pub running: Nanos,
    /// A bit per event of the set: counted on this core type.
    pub present: u64,
    /// The owner ended with this reading.
    pub last: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Readings {
    rows: Vec<Reading>,
    /// Where each row's values begin.
    firsts: Vec<usize>,
    values: Vec<u64>,
}

impl Reading {
    /// A reading, to be given to [`Readings::push`].
    #[must_use]
    pub const fn new(owner: Owner, cpu: Option<CpuId>, core_type: u32, set: u32) -> Self {
        let start = Nanos::ZERO;
        let end = Nanos::ZERO;
        let enabled = Nanos::ZERO;
        let running = Nanos::ZERO;
        Self {
            owner,
            cpu,
            core_type,
            set,
            start,
            end,
            enabled,
            running,
            present: 0,
            last: false,
        }
    }

    /// Share of the enabled time that the set really counted; 1 where nothing ran.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.enabled.0 == 0 {
            1.0
        } else {
            (self.running.0 as f64 / self.enabled.0 as f64).min(1.0)
        }
    }
}

impl Readings {
    /// Forgets all rows and keeps the memory.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.firsts.clear();
        self.values.clear();
    }

    /// Adds a row with the values of its set's events.
    #[inline]
    pub fn push(&mut self, reading: Reading, values: impl IntoIterator<Item = u64>) {
        self.firsts.push(self.values.len());
        self.values.extend(values);
        self.rows.push(reading);
    }

    #[must_use]
    pub fn rows(&self) -> &[Reading] {
        &self.rows
    }

    /// Values of a row, one per event of its set; meaningless where `present` has no bit.
    #[must_use]
    #[inline]
    pub fn values(&self, row: usize) -> &[u64] {
        let Some(first) = self.firsts.get(row) else {
            return &[];
        };
        let end = self
            .firsts
            .get(row + 1)
            .copied()
            .unwrap_or(self.values.len());
        self.values.get(*first..end).unwrap_or_default()
    }

    /// The value of an event of a row's set, where it was counted.
    #[must_use]
    pub fn value(&self, row: usize, event: usize) -> Option<u64> {
        let counted = event < 64 && self.rows.get(row)?.present >> event & 1 == 1;
        self.values(row).get(event).copied().filter(|_| counted)
    }

    /// Adds to a row: its times, its values; what only one of both has counted is no longer present.
    pub(super) fn add_row(&mut self, row: usize, other: &Reading, values: &[u64]) {
        let Some(mine) = self.rows.get_mut(row) else {
            return;
        };
        if other.end > mine.end && mine.cpu.is_some() {
            mine.cpu = other.cpu;
        }
        mine.start = mine.start.min(other.start);
        mine.end = mine.end.max(other.end);
        mine.enabled += other.enabled;
        mine.running += other.running;
        mine.present &= other.present;
        mine.last |= other.last;
        for (sum, value) in self
            .values
            .get_mut(self.firsts[row]..)
            .into_iter()
            .flatten()
            .zip(values)
        {
            *sum = sum.saturating_add(*value);
        }
    }

    /// A thread's row as a sample, with the portable ones of its events.
    #[must_use]
    pub fn sample(&self, row: usize, plan: &Plan) -> Option<Sample> {
        let reading = self.rows.get(row)?;
        let set = plan.sets.get(reading.set as usize)?;
        let Owner::Thread { tid, .. } = reading.owner else {
            return None;
        };
        let mut counts = Counts::default();
        for (i, planned) in set.events.iter().enumerate() {
            if let (Some(event), Some(value)) = (planned.event, self.value(row, i)) {
                counts.set(event, value as f64);
            }
        }
        Some(Sample {
            thread: ThreadId(tid),
            cpu: reading.cpu.unwrap_or_default(),
            core_type: CoreTypeId(reading.core_type),
            at: reading.end,
            set: reading.set,
            sets: plan.sets.len() as u32,
            enabled: reading.enabled,
            running: reading.running,
            counts,
        })
    }
}
