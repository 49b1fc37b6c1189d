//! Per-thread counters. They are opened with `perf_event_open`, inherited by created threads, and read through ring buffers.
//!
//! Input: open counters. Output: their records, put into an [`EventSorter`]. A user needs no privilege to count threads of the
//! same user.
use std::os::fd::{AsFd, OwnedFd};

use countersteer_model::counters::Ledger;
use countersteer_model::units::{CpuId, Nanos};
use countersteer_sysfs::poll::{Poller, Wake};
use nix::poll::PollFlags;

use super::event_sorter::EventSorter;
use super::task_counters::TaskCounters;
use crate::CounterError;
use crate::perf::open::{CountedTasks, GroupInfo, GroupOpening, OpenedGroups, Says};
use crate::perf::sys;

/// Interval in ns between reads of ring buffers while threads exit more often than that. Waiting for ring buffers would end at
/// each exit, once per counter of the thread, although there is nothing to read yet. A ring buffer holds more than CPUs can
/// write in twice this interval.
const LOOK_NS: u64 = 4_000_000;

pub(super) struct PerThread {
    opened: OpenedGroups,
    poller: Poller,
    /// True for each ring buffer whose threads have all exited; waiting for it would return at once.
    silent: Vec<bool>,
    /// Time in ns at which the ring buffers were last read.
    drained: u64,
    /// True if threads exited more often than once per `LOOK_NS` before the last read; then the poller waits for a time, not
    /// for ring buffers.
    hectic: bool,
    /// Buffer for one record.
    bytes: Vec<u8>,
}

impl PerThread {
    /// Takes over open counters. The descriptors `processes` report the exits of the counted processes.
    pub(super) fn new(opened: OpenedGroups, processes: Vec<OwnedFd>) -> Result<Self, CounterError> {
        let silent = vec![false; opened.rings.len()];
        let poller =
            Poller::new(processes).map_err(CounterError::system("listening for signals"))?;
        let drained = sys::now();
        let hectic = false;
        Ok(Self {
            opened,
            poller,
            silent,
            drained,
            hectic,
            bytes: Vec::new(),
        })
    }
}

impl TaskCounters for PerThread {
    fn now(&self) -> Nanos {
        Nanos(sys::now())
    }

    fn attach(
        &mut self,
        opening: &GroupOpening<'_>,
        threads: &[(u32, u32)],
    ) -> Result<(), CounterError> {
        let tids: Vec<u32> = threads.iter().map(|(_, tid)| *tid).collect();
        self.opened.add_threads(opening, &tids)
    }

    fn detach(&mut self, trees: &[u32]) {
        self.opened.close(trees);
    }

    fn renew(
        &mut self,
        opening: &GroupOpening<'_>,
        whom: CountedTasks<'_>,
        cpu: CpuId,
    ) -> Result<(), CounterError> {
        // The old counters still count if the CPU stayed online while the machine was suspended, so they are closed.
        self.opened.close_cpu(cpu);
        self.opened
            .add_cpus(opening, whom, &std::iter::once(cpu).collect())
    }

    fn poller(&mut self) -> &mut Poller {
        &mut self.poller
    }

    fn wait(&mut self, until: Nanos) -> Result<Wake, CounterError> {
        let most = if self.hectic {
            LOOK_NS
        } else {
            3_600_000_000_000
        };
        let left = Nanos(until.since(self.now()).0.min(most));
        self.silent.resize(self.opened.rings.len(), false);
        let rings = self
            .opened
            .rings
            .iter()
            .zip(&self.silent)
            .filter(|(_, silent)| !**silent && !self.hectic);
        let rings = rings.map(|((_, group), _)| self.opened.leaders[*group].as_fd());
        let rings: Vec<_> = rings.collect();
        let (wake, came) = self
            .poller
            .wait(left, &rings)
            .map_err(CounterError::system("waiting for counters"))?;
        for (silent, came) in self.silent.iter_mut().filter(|s| !**s).zip(came) {
            *silent = came.contains(PollFlags::POLLHUP);
        }
        Ok(wake)
    }

    fn poll(&mut self, sorter: &mut EventSorter, _: &mut Ledger) {
        let now = sys::now();
        let ended = sorter.ended;
        sorter.final_counts = self.opened.final_counts_each;
        for (ring, _) in self
            .opened
            .rings
            .iter_mut()
            .chain(&mut self.opened.final_counts)
        {
            ring.drain(&mut self.bytes, |record| sorter.record(record));
        }
        self.hectic = (sorter.ended - ended) * LOOK_NS > now - self.drained;
        self.drained = now;
    }

    fn groups(&self) -> &[GroupInfo] {
        &self.opened.infos
    }

    fn group_of(&self, id: u64) -> Option<(usize, Says)> {
        self.opened.ids.get(&id).copied()
    }

    fn read(&mut self, group: usize, values: &mut Vec<u64>) -> Result<(u64, u64), CounterError> {
        self.opened
            .total(group, &mut self.bytes, values)
            .map_err(CounterError::system("reading counters"))
    }

    fn select(&mut self, set: u32, on: bool) -> Result<(), CounterError> {
        self.opened.switch(set, on)
    }

    fn user_only(&self) -> bool {
        self.opened.user_only
    }
}
