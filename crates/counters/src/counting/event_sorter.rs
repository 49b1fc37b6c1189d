//! Event sorter: a buffer that passes on the reports of ring buffers and of BPF programs in the order of time.
//!
//! Input: records of all ring buffers. Output: events by time.
//!
//! The fork of a thread may be in one CPU's ring buffer and its exit in another's. So the ring buffers are read one after the
//! other, and their records are sorted. Very recent records wait for the next read, since an earlier record of another ring
//! buffer may still come. Final counts are written a little after the exit, so an exit gets a later time. On a busy machine
//! they may be written much later, so the exit waits for all of them.

use std::time::Duration;

use countersteer_model::units::{CpuId, Nanos};
use rustc_hash::FxHashMap;

use super::bpf::interface::TaskReport;
use crate::perf::record::{GroupCounts, RingRecord, parse};

/// Kind of a thread's event, with its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KernelEventKind {
    /// The thread was created by the thread `parent`, in the process `pid`.
    Forked { pid: u32, parent: u32 },
    /// The thread had the TID `before`, and now has the TID of its process, `pid`.
    Renumbered { pid: u32, before: u32 },
    /// The thread was given a name. `exec` is true if it executes a new program.
    Named { name: [u8; 16], exec: bool },
    /// Counts of the group to which the event `id` belongs, up to now or final. `cpu` is set if the group counts on several
    /// CPUs.
    Counted {
        pid: u32,
        id: u64,
        last: bool,
        enabled: u64,
        running: u64,
        first: usize,
        events: usize,
        cpu: Option<CpuId>,
    },
    /// The thread exited; `pid` is its process, `None` if unknown.
    Exited { pid: Option<u32> },
}

/// Event of a thread that the kernel reported, with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KernelEvent {
    pub(super) at: u64,
    pub(super) tid: u32,
    pub(super) kind: KernelEventKind,
}

impl KernelEvent {
    /// True if this event implies that other threads have exited: exits that wait for final counts may have to come before it.
    const fn ends_others(&self) -> bool {
        matches!(
            self.kind,
            KernelEventKind::Forked { .. } | KernelEventKind::Named { exec: true, .. }
        )
    }

    /// True if the exit `end` must be passed on before this event. Either this event gives the TID to another thread, or it is an
    /// exec that has ended all other threads of the process.
    fn follows_end(&self, end: &Self) -> bool {
        match (self.kind, end.kind) {
            (KernelEventKind::Forked { .. }, _) => end.tid == self.tid,
            (KernelEventKind::Named { exec: true, .. }, KernelEventKind::Exited { pid }) => {
                pid == Some(self.tid)
            }
            _ => false,
        }
    }
}

/// Sorter that keeps events until no earlier event can come.
#[derive(Debug, Default)]
pub(super) struct EventSorter {
    waiting: Vec<KernelEvent>,
    values: Vec<u64>,
    /// Emptied vectors of the last round, kept for their memory.
    spare: (Vec<KernelEvent>, Vec<u64>),
    /// True if events other than counts are waiting.
    eventful: bool,
    /// Number of records that did not fit into a ring buffer.
    pub(super) lost: u64,
    /// Number of exits recorded so far.
    pub(super) ended: u64,
    /// Number of final counts that the kernel reports for each created thread: one per group. 0 if the kernel reports none.
    pub(super) final_counts: u32,
    /// Number of final counts that have not come yet, by TID.
    owed: FxHashMap<u32, u32>,
    /// True if no more records will come.
    over: bool,
    /// Number of threads whose exit was passed on before all their final counts had come.
    pub(super) unheard: u64,
}

/// Limit on the time in ns from a record's time stamp to its arrival in the ring buffer.
const SETTLING_NS: u64 = 100_000;

/// Limit on the usual time in ns from a thread's exit to its final counts.
const FINAL_COUNTS_NS: u64 = 1_000_000;

/// Time after which all events of threads have been processed, exits included.
pub(super) const TAKEN_IN: Duration = Duration::from_nanos(FINAL_COUNTS_NS + 2 * SETTLING_NS);

/// Limit on the time in ns for which an exit waits for final counts that do not come.
const PATIENCE_NS: u64 = 1_000_000_000;

impl EventSorter {
    pub(super) fn record(&mut self, bytes: &[u8]) {
        match parse(bytes) {
            RingRecord::Fork {
                pid,
                tid,
                parent,
                at,
            } => self.push(at, tid, KernelEventKind::Forked { pid, parent }),
            RingRecord::Exit { pid, tid, at } => {
                self.ended += 1;
                self.push(
                    at + FINAL_COUNTS_NS,
                    tid,
                    KernelEventKind::Exited { pid: Some(pid) },
                );
            }
            RingRecord::Comm {
                tid,
                name,
                exec,
                at,
            } => {
                let mut kept = [0; 16];
                kept.iter_mut().zip(name).for_each(|(to, from)| *to = *from);
                self.push(at, tid, KernelEventKind::Named { name: kept, exec });
            }
            RingRecord::Last {
                pid,
                tid,
                id,
                at,
                counts,
            } => self.counted((pid, tid), id, at, &counts, true),
            RingRecord::Sample {
                pid,
                tid,
                id,
                at,
                counts,
            } => self.counted((pid, tid), id, at, &counts, false),
            RingRecord::Lost { records } => self.lost += records,
            RingRecord::Other => {}
        }
    }

    /// Adds a report of the BPF programs, with its time and TID.
    pub(super) fn report(&mut self, at: Nanos, tid: u32, report: &TaskReport<'_>) {
        let kind = match *report {
            TaskReport::Forked { pid, parent } => KernelEventKind::Forked { pid, parent },
            TaskReport::Renumbered { pid, before } => KernelEventKind::Renumbered { pid, before },
            TaskReport::Named(name) => KernelEventKind::Named { name, exec: false },
            TaskReport::Exec(name) => KernelEventKind::Named { name, exec: true },
            TaskReport::Counted {
                pid,
                kind,
                cpu,
                enabled,
                running,
                values,
                alone: _,
            } => {
                let first = self.values.len();
                self.values.extend_from_slice(values);
                let id = kind as u64;
                let last = false;
                let events = values.len();
                let cpu = Some(cpu);
                KernelEventKind::Counted {
                    pid,
                    id,
                    last,
                    enabled: enabled.0,
                    running: running.0,
                    first,
                    events,
                    cpu,
                }
            }
            TaskReport::Exited => {
                self.ended += 1;
                KernelEventKind::Exited { pid: None }
            }
        };
        self.push(at.0, tid, kind);
    }

    #[inline]
    fn push(&mut self, at: u64, tid: u32, kind: KernelEventKind) {
        self.eventful |= !matches!(kind, KernelEventKind::Counted { last: false, .. });
        self.waiting.push(KernelEvent { at, tid, kind });
    }

    /// Marks a thread as one without final counts, so that its exit does not wait for any.
    pub(super) fn expect_no_final_counts(&mut self, tid: u32) {
        self.owed.remove(&tid);
    }

    /// Stores that no more records will come, so that exits no longer wait.
    pub(super) const fn no_more(&mut self) {
        self.over = true;
    }

    /// True if the event is the exit of a thread whose final counts have not all come at the time `now`.
    fn waits(&self, event: &KernelEvent, now: u64) -> bool {
        let ends = matches!(event.kind, KernelEventKind::Exited { .. });
        ends && !self.over && now < event.at + PATIENCE_NS && self.owed.contains_key(&event.tid)
    }

    /// Updates the number of final counts that have not come yet. Returns true if the event holds the last final counts of its
    /// thread.
    fn account(&mut self, event: &KernelEvent) -> bool {
        match event.kind {
            KernelEventKind::Forked { .. } if self.final_counts > 0 => {
                _ = self.owed.insert(event.tid, self.final_counts)
            }
            KernelEventKind::Exited { .. } => {
                self.unheard += u64::from(self.owed.remove(&event.tid).is_some())
            }
            KernelEventKind::Counted { last: true, .. } => {
                if let Some(owed) = self.owed.get_mut(&event.tid) {
                    *owed -= 1;
                    return *owed == 0 && self.owed.remove(&event.tid).is_some();
                }
            }
            _ => {}
        }
        false
    }

    fn counted(
        &mut self,
        (pid, tid): (u32, u32),
        id: u64,
        at: u64,
        counts: &GroupCounts<'_>,
        last: bool,
    ) {
        let first = self.values.len();
        self.values.extend(counts.values());
        let events = self.values.len() - first;
        let enabled = counts.enabled;
        let running = counts.running;
        let cpu = None;
        self.push(
            at,
            tid,
            KernelEventKind::Counted {
                pid,
                id,
                last,
                enabled,
                running,
                first,
                events,
                cpu,
            },
        );
    }

    /// Passes on all events. Valid if no earlier event can come, and each thread has reported each kind of counts only once.
    pub(super) fn take_all(&mut self, now: u64, mut take: impl FnMut(&KernelEvent, &[u64])) {
        if self.eventful {
            return self.settled(now, true, take);
        }
        // If there are only counts, their order does not matter.
        self.waiting
            .iter()
            .for_each(|event| take(event, self.values_of(event)));
        self.waiting.clear();
        self.values.clear();
    }

    /// Passes on, in the order of time, the events that are old enough at the time `now`; with `all`, all events.
    pub(super) fn settled(
        &mut self,
        now: u64,
        all: bool,
        mut take: impl FnMut(&KernelEvent, &[u64]),
    ) {
        self.waiting.sort_by_key(|n| n.at);
        self.drop_samples_after_exits();
        self.let_go_before_programs();
        let until = if all {
            u64::MAX
        } else {
            now.saturating_sub(SETTLING_NS)
        };
        let ready = self.waiting.partition_point(|n| n.at <= until);
        let (mut later, mut values) = std::mem::take(&mut self.spare);
        later.clear();
        values.clear();
        let all = std::mem::take(&mut self.waiting);
        for event in &all[..ready] {
            if self.waits(event, now) {
                later.push(*event);
                continue;
            }
            if event.ends_others() {
                for end in later.extract_if(.., |end| event.follows_end(end)) {
                    self.account(&end);
                    take(&end, &[]);
                }
            }
            take(event, self.values_of(event));
            if self.account(event) {
                later
                    .extract_if(.., |end| end.tid == event.tid)
                    .for_each(|end| take(&end, &[]));
            }
        }
        for event in &all[ready..] {
            let mut kept = *event;
            if let KernelEventKind::Counted { first, .. } = &mut kept.kind {
                *first = values.len();
            }
            values.extend_from_slice(self.values_of(event));
            later.push(kept);
        }
        self.eventful = !later.is_empty();
        self.waiting = later;
        self.spare = (all, std::mem::replace(&mut self.values, values));
    }

    /// Moves exits in front of an exec of their process. At an exec all other threads of the process have exited, and no more
    /// of their records can come.
    fn let_go_before_programs(&mut self) {
        let starts = |(place, event): (usize, &KernelEvent)| {
            matches!(event.kind, KernelEventKind::Named { exec: true, .. })
                .then_some((place, event.tid, event.at))
        };
        let started: Vec<(usize, u32, u64)> =
            self.waiting.iter().enumerate().filter_map(starts).collect();
        // Begins with the last exec, because the moved events lie behind the others.
        for (place, process, at) in started.into_iter().rev() {
            let later = &mut self.waiting[place..];
            let window = later.partition_point(|n| n.at < at + FINAL_COUNTS_NS);
            let later = &mut later[..window];
            let goes = |n: &KernelEvent| matches!(n.kind, KernelEventKind::Exited { pid: Some(pid) } if pid == process);
            if !later.iter().any(goes) {
                continue;
            }
            let (gone, left): (Vec<KernelEvent>, Vec<KernelEvent>) =
                later.iter().partition(|n| goes(n));
            let gone = gone.into_iter().map(|event| KernelEvent { at, ..event });
            later
                .iter_mut()
                .zip(gone.chain(left))
                .for_each(|(to, event)| *to = event);
        }
    }

    /// Drops samples under a main thread's TID that are later than its exit. They belong to another thread, which has taken
    /// over the TID by an exec. Counts are cumulative, so the later samples of that thread include them. Final counts belong to
    /// the main thread and are kept.
    fn drop_samples_after_exits(&mut self) {
        let mut dropped = Vec::new();
        for (place, event) in self.waiting.iter().enumerate() {
            let KernelEventKind::Exited { pid: Some(pid) } = event.kind else {
                continue;
            };
            if pid != event.tid {
                continue;
            }
            let since = event.at.saturating_sub(FINAL_COUNTS_NS);
            let after = self.waiting[..place]
                .iter()
                .enumerate()
                .rev()
                .take_while(|(_, n)| n.at > since);
            let is_sample = |n: &KernelEvent| {
                n.tid == pid && matches!(n.kind, KernelEventKind::Counted { last: false, .. })
            };
            dropped.extend(after.filter(|(_, n)| is_sample(n)).map(|(place, _)| place));
        }
        dropped.sort_unstable();
        dropped.dedup();
        for place in dropped.into_iter().rev() {
            self.waiting.remove(place);
        }
    }

    fn values_of(&self, event: &KernelEvent) -> &[u64] {
        match event.kind {
            KernelEventKind::Counted { first, events, .. } => {
                self.values.get(first..first + events).unwrap_or_default()
            }
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::record::testing;

    #[test]
    fn an_exec_by_another_thread_comes_after_the_main_threads_exit() {
        let mut sorter = EventSorter::default();
        sorter.record(&testing::exit(1, 3, 3_000_000));
        sorter.record(&testing::exit(1, 1, 3_100_000));
        sorter.record(&testing::exit(4, 4, 3_150_000));
        sorter.record(&testing::starts(1, 3_200_000));
        // The second thread has that TID before its program begins.
        sorter.record(&testing::sample(1, 1, 7, 3_120_000, 3, &[30]));
        sorter.record(&testing::last(1, 1, 7, 3_110_000, 3, &[8]));
        sorter.record(&testing::sample(1, 1, 7, 3_050_000, 3, &[7]));
        // It ends later than it started a program, and its process has no other threads.
        sorter.record(&testing::starts(5, 3_300_000));
        sorter.record(&testing::exit(5, 5, 3_400_000));
        let mut seen = Vec::new();
        let mut counted = Vec::new();
        sorter.settled(0, true, |n, values| match n.kind {
            KernelEventKind::Counted { .. } => counted.push((n.at, values[0])),
            kind => seen.push((n.tid, matches!(kind, KernelEventKind::Exited { .. }))),
        });
        assert_eq!(
            seen,
            [
                (3, true),
                (1, true),
                (1, false),
                (5, false),
                (4, true),
                (5, true)
            ]
        );
        assert_eq!(counted, [(3_050_000, 7), (3_110_000, 8)]);
    }

    #[test]
    fn recent_events_wait_for_earlier_ones_of_other_rings() {
        let mut sorter = EventSorter::default();
        sorter.record(&testing::last(1, 2, 7, 5_000_000, 3, &[30, 31]));
        sorter.record(&testing::exit(1, 2, 3_500_000));
        let mut seen = Vec::new();
        sorter.settled(5_050_000, false, |n, v| seen.push((n.at, v.to_vec())));
        assert_eq!(seen, [(4_500_000, vec![])]);
        sorter.record(&testing::fork(1, 3, 1, 4_900_000));
        sorter.record(&testing::lost(2));
        seen.clear();
        sorter.settled(0, true, |n, v| seen.push((n.at, v.to_vec())));
        assert_eq!(seen, [(4_900_000, vec![]), (5_000_000, vec![30, 31])]);
        assert_eq!(sorter.lost, 2);
    }

    #[test]
    fn an_end_waits_for_as_many_final_counts_as_there_are_groups() {
        let mut sorter = EventSorter {
            final_counts: 2,
            ..EventSorter::default()
        };
        let take = |sorter: &mut EventSorter, now, records: &[Vec<u8>]| {
            records.iter().for_each(|record| sorter.record(record));
            let mut events = Vec::new();
            sorter.settled(now, false, |n, _| {
                events.push((n.tid, matches!(n.kind, KernelEventKind::Exited { .. })))
            });
            events
        };
        let ms = |ms: u64| ms * 1_000_000;
        let [last, more] = [30, 31].map(|at| testing::last(1, 2, 7, ms(at), 3, &[8]));
        let records = [testing::fork(1, 2, 1, ms(10)), testing::exit(1, 2, ms(20))];
        assert_eq!(take(&mut sorter, ms(23), &records), [(2, false)]);
        assert_eq!(take(&mut sorter, ms(32), &[last]), [(2, false)]);
        // The exit of a root does not wait: a root has no final counts.
        assert_eq!(
            take(&mut sorter, ms(35), &[testing::exit(1, 1, ms(30))]),
            [(1, true)]
        );
        assert_eq!(take(&mut sorter, ms(36), &[more]), [(2, false), (2, true)]);
        assert!(sorter.owed.is_empty());
        // Four reasons end the wait: a reused TID, an exec by another thread, a second without a report, the end of counting.
        let dead = |sorter: &mut EventSorter| {
            let records = [testing::fork(5, 6, 5, ms(40)), testing::exit(5, 6, ms(41))];
            assert_eq!(take(sorter, ms(45), &records), [(6, false)]);
        };
        dead(&mut sorter);
        assert_eq!(
            take(&mut sorter, ms(47), &[testing::fork(9, 6, 9, ms(46))]),
            [(6, true), (6, false)]
        );
        sorter.expect_no_final_counts(6);
        dead(&mut sorter);
        assert_eq!(
            take(&mut sorter, ms(47), &[testing::starts(5, ms(46))]),
            [(6, true), (5, false)]
        );
        dead(&mut sorter);
        sorter.expect_no_final_counts(6);
        assert_eq!(take(&mut sorter, ms(46), &[]), [(6, true)]);
        assert_eq!(sorter.unheard, 2);
        dead(&mut sorter);
        assert_eq!(take(&mut sorter, ms(1041), &[]), []);
        assert_eq!(take(&mut sorter, ms(1043), &[]), [(6, true)]);
        dead(&mut sorter);
        sorter.no_more();
        assert_eq!(take(&mut sorter, ms(47), &[]), [(6, true)]);
        assert!(sorter.owed.is_empty());
    }
}
