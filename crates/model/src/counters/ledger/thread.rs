//! Counts of one thread on each CPU by each event set: the current counts and those already reported.

use crate::sample::{Owner, Sample, Samples};
use crate::units::{CoreTypeId, CpuId, Nanos};

/// Counts of one thread on one CPU by one event set.
#[derive(Clone, Debug, Default)]
pub(super) struct LedgerSlot {
    pub(super) cpu: u32,
    pub(super) set: u32,
    pub(super) tree: u32,
    /// True if the thread is the root of the slot's tree.
    pub(super) own: bool,
    pub(super) core_type: u32,
    /// Events of the set that are counted on this CPU, one bit per event.
    pub(super) present: u64,
    pub(super) dirty: bool,
    pub(super) at: Nanos,
    pub(super) reported_at: Nanos,
    pub(super) seen_on: CpuId,
    /// Current counts, then the counts already reported; each is the enabled time, the running time, then one value per event.
    /// Both halves are in one allocation because they are read together, for thousands of threads, mostly from memory.
    pub(super) counts: Vec<u64>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct LedgerThread {
    pub(super) owner: Option<Owner>,
    pub(super) forked: Nanos,
    pub(super) ended: bool,
    /// True if the thread's final counts have arrived but not its exit. The counts then wait for one flush, so that both are
    /// reported together.
    pub(super) leaving: bool,
    /// True if the thread's counts arrived before its fork was reported.
    pub(super) unannounced: bool,
    /// True if a sample that marks the thread's exit was reported.
    pub(super) end_reported: bool,
    /// True if the thread has unreported counts and is in the ledger's list of such threads.
    pub(super) dirty: bool,
    pub(super) slots: Vec<LedgerSlot>,
    /// Indices of the trees whose root had this TID earlier. The root's part of their totals does not belong to this thread.
    pub(super) trees_before: Vec<u32>,
}

/// Number of time values (enabled, running) at the start of the counts of a slot.
pub(super) const TIMES: usize = 2;

/// Raises the cumulative counts `known` to `now`, and adds the increases to `sums`. Returns true if a count increased.
#[inline]
pub(super) fn advance(known: &mut [u64], now: &[u64], sums: Option<&mut [u64]>) -> bool {
    let mut grew = 0;
    let mut grow = |(known, now): (&mut u64, &u64)| {
        let more = now.saturating_sub(*known);
        *known += more;
        grew |= more;
        more
    };
    let counts = known.iter_mut().zip(now);
    match sums {
        Some(sums) => counts
            .zip(sums)
            .for_each(|(count, sum)| *sum += grow(count)),
        None => counts.for_each(|count| _ = grow(count)),
    }
    grew > 0
}

/// Returns the increase of a count since it was last reported, and marks the count as reported.
#[inline]
const fn news(counted: &u64, reported: &mut u64) -> u64 {
    *counted - std::mem::replace(reported, *counted)
}

impl LedgerThread {
    /// Returns the index of the thread's slot for a tree, CPU and event set. With `of_root`, returns the slot of the tree's
    /// root, which had the same TID.
    #[inline]
    pub(super) fn slot(&self, (tree, cpu, set): (u32, CpuId, u32), of_root: bool) -> Option<usize> {
        let took_over = self.trees_before.contains(&tree);
        let is = |s: &LedgerSlot| {
            (s.cpu, s.set, s.tree) == (cpu.0, set, tree) && (!took_over || s.own == of_root)
        };
        self.slots.iter().position(is)
    }

    /// Appends the unreported counts of the thread to `into`.
    #[inline]
    pub(super) fn report(&mut self, into: &mut Samples) {
        self.dirty = false;
        for slot in self.slots.iter_mut().filter(|s| s.dirty) {
            slot.report(self.owner.unwrap_or(Owner::Rest), self.ended, into);
            self.end_reported |= self.ended;
        }
    }

    /// Reports the thread's exit if no sample has done so, by a sample with zero counts.
    pub(super) fn final_counts(&mut self, into: &mut Samples) {
        if self.end_reported {
            return;
        }
        if let Some(last) = self.slots.iter_mut().max_by_key(|slot| slot.at) {
            last.dirty = true;
            self.report(into);
        }
    }
}

impl LedgerSlot {
    pub(super) fn reset(&mut self, (cpu, set, tree): (u32, u32, u32), values: usize, at: Nanos) {
        (self.cpu, self.set, self.tree, self.dirty) = (cpu, set, tree, false);
        (self.at, self.reported_at) = (at, at);
        self.counts.clear();
        self.counts.resize(2 * (TIMES + values), 0);
    }

    /// Returns a copy of the slot in which all counts are marked as reported.
    pub(super) fn as_reported(&self, at: Nanos) -> Self {
        let mut same = Self {
            dirty: false,
            at,
            reported_at: at,
            ..self.clone()
        };
        let half = same.counts.len() / 2;
        let (counted, reported) = same.counts.split_at_mut(half);
        reported.copy_from_slice(counted);
        same
    }

    #[inline]
    pub(super) fn report(&mut self, owner: Owner, last: bool, into: &mut Samples) {
        let half = self.counts.len() / 2;
        let (counted, reported) = self.counts.split_at_mut(half);
        let (times, values) = counted.split_at(TIMES);
        let (reported_times, reported_values) = reported.split_at_mut(TIMES);
        let [enabled, running] =
            [0, 1].map(|time| Nanos(news(&times[time], &mut reported_times[time])));
        let sample = Sample {
            owner,
            cpu: Some(self.seen_on),
            core_type: CoreTypeId(self.core_type),
            set: self.set,
            start: self.reported_at,
            end: self.at,
            enabled,
            running,
            present: self.present,
            last,
        };
        into.push(
            sample,
            values
                .iter()
                .zip(reported_values)
                .map(|(counted, reported)| news(counted, reported) as f64),
        );
        (self.reported_at, self.dirty) = (self.at, false);
    }
}
