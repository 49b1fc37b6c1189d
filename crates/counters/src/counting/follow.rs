//! Follower of threads: turns reports of the kernel into task events, names of threads, and counts in the ledger.
//!
//! Input: kernel events in the order of time, and totals of groups. Output: [`TaskEvent`]s, names, and a [`Ledger`] that is up
//! to date.
use std::sync::Arc;

use countersteer_model::counters::{Cumulative, Ledger, Owner, Samples, SetPlan, Which};
use countersteer_model::units::{CpuId, Nanos};
use countersteer_sysfs::procfs::PROC;
use rustc_hash::FxHashMap;

use super::event_sorter::{EventSorter, KernelEvent, KernelEventKind};
use super::task_counters::TaskCounters;
use super::trees::CounterTrees;
use crate::CounterError;
use crate::perf::open::{GroupInfo, Says};

/// State of all counted threads.
#[derive(Debug)]
pub(super) struct Follower {
    pub(super) ledger: Ledger,
    names: FxHashMap<u32, Arc<str>>,
    sorter: EventSorter,
    /// Samples that were not passed to the caller yet.
    pub(super) readings: Samples,
    /// True if each sample of the kernel becomes one sample for the caller.
    pub(super) each_sample: bool,
    /// Buffer: values of a group, in the order of its set's events.
    scratch: Vec<u64>,
    /// Buffer: values of a total.
    values: Vec<u64>,
    /// TIDs of threads that have exited, whose names are needed for one more report.
    ended: Vec<u32>,
    /// Number of threads created during counting.
    pub(super) forked: u64,
    /// Number of final counts that the kernel has reported.
    final_counts: u64,
    /// Number of final counts that lacked the value of an event.
    pub(super) partial: u64,
    /// Number of final counts of unknown threads, or of threads that were already removed.
    late: u64,
    /// Forks, execs and exits, by time, with their TIDs; `None` if the caller does not need them.
    pub(super) task_events: Option<Vec<(Nanos, u32, TaskEvent)>>,
    /// Trees of the threads.
    pub(super) trees: CounterTrees,
}

/// Change of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskEvent {
    /// The thread was created in the process `pid`, by the thread `parent`.
    Forked {
        pid: u32,
        parent: u32,
    },
    /// The thread executes another program from now on.
    Exec,
    Exited,
}

impl Follower {
    pub(super) fn new(core_types: &[u32], groups: &[GroupInfo], plan: &SetPlan) -> Self {
        let mut follower = Self {
            ledger: Ledger::new(core_types.to_vec()),
            names: FxHashMap::default(),
            sorter: EventSorter::default(),
            readings: Samples::by_sets(plan.event_sets()),
            each_sample: false,
            scratch: Vec::new(),
            values: Vec::new(),
            ended: Vec::new(),
            forked: 0,
            final_counts: 0,
            partial: 0,
            late: 0,
            task_events: None,
            trees: CounterTrees::default(),
        };
        follower.groups(groups);
        follower
    }

    /// Stores, for each CPU and set, which events its groups count together.
    pub(super) fn groups(&mut self, groups: &[GroupInfo]) {
        let mut present: FxHashMap<(CpuId, u32), u64> = FxHashMap::default();
        for group in groups {
            *present.entry((group.cpu, group.set)).or_default() |= group.places.present();
        }
        present
            .into_iter()
            .for_each(|((cpu, set), bits)| self.ledger.counted(cpu, set, bits));
    }

    /// Adds a thread that existed before counting began.
    pub(super) fn root(&mut self, pid: u32, tid: u32, at: Nanos) {
        self.sorter.expect_no_final_counts(tid);
        let tree = self.ledger.root(pid, tid, at);
        self.trees.root(tid, tree);
        self.names.insert(tid, name_of(tid));
    }

    /// Returns the name of a thread; `?` if unknown.
    pub(super) fn name(&self, tid: u32) -> &str {
        self.names.get(&tid).map_or("?", |name| name)
    }

    /// Returns the number of records that did not fit into a ring buffer.
    pub(super) const fn lost(&self) -> u64 {
        self.sorter.lost
    }

    /// Processes all records in the ring buffers, at the end of counting.
    pub(super) fn drain(&mut self, counters: &mut dyn TaskCounters) {
        // The ring buffers are read twice: a TID that passes to another thread is reported only after the exit of its former
        // owner.
        self.listen(counters, true);
        self.sorter.no_more();
        self.listen(counters, true);
    }

    /// Processes the records of the ring buffers that are old enough; with `all`, all records.
    pub(super) fn listen(&mut self, counters: &mut dyn TaskCounters, all: bool) {
        let now = counters.now();
        let mut sorter = std::mem::take(&mut self.sorter);
        counters.poll(&mut sorter, &mut self.ledger);
        let take = |event: &KernelEvent, values: &[u64]| self.push(counters, event, values);
        if counters.is_prompt() {
            sorter.take_all(now.0, take);
        } else {
            sorter.settled(now.0, all, take);
        }
        self.sorter = sorter;
    }

    fn push(&mut self, counters: &dyn TaskCounters, event: &KernelEvent, values: &[u64]) {
        let tid = event.tid;
        match event.kind {
            KernelEventKind::Forked { pid, parent } => {
                self.forked += 1;
                self.trees.forked(tid, parent);
                self.ledger
                    .forked(Owner::Thread { pid, tid }, Nanos(event.at));
                let name = self
                    .names
                    .get(&parent)
                    .cloned()
                    .unwrap_or_else(|| name_of(tid));
                self.names.insert(tid, name);
                self.report(event, TaskEvent::Forked { pid, parent });
            }
            KernelEventKind::Renumbered { pid, before } => {
                self.ledger.exit(before);
                self.ledger
                    .forked(Owner::Thread { pid, tid }, Nanos(event.at));
                self.took_number(event, before);
            }
            KernelEventKind::Named { name, exec } => {
                if exec && !self.ledger.is_alive(tid) {
                    self.renumber(event);
                }
                let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
                self.names
                    .insert(tid, String::from_utf8_lossy(&name[..end]).into());
                if exec {
                    self.report(event, TaskEvent::Exec);
                }
            }
            KernelEventKind::Exited { .. } => {
                self.ledger.exit(tid);
                self.trees.ended(tid);
                self.report(event, TaskEvent::Exited);
                self.ended.push(tid);
            }
            KernelEventKind::Counted { .. } => self.counted(counters, event, values),
        }
    }

    /// Adds the counts of a thread to the ledger.
    fn counted(&mut self, counters: &dyn TaskCounters, event: &KernelEvent, values: &[u64]) {
        let tid = event.tid;
        let KernelEventKind::Counted {
            pid,
            id,
            last,
            enabled,
            running,
            cpu,
            ..
        } = event.kind
        else {
            return;
        };
        let Some((group, says)) = counters.group_of(id) else {
            return;
        };
        let Some(group) = counters.groups().get(group) else {
            return;
        };
        self.final_counts += u64::from(last);
        if values.len() != group.places.members() {
            self.partial += u64::from(last);
            return;
        }
        if tid == pid && !last && !self.ledger.is_alive(tid) && self.ledger.survivor(pid).is_some()
        {
            // The sample belongs to a thread that has taken over the TID of its process, but whose program has not begun.
            return;
        }
        let owner = Owner::Thread { pid, tid };
        let at = Nanos(event.at);
        // Enabled time: for a group on one CPU, the time that it counted; for other groups, the time that the thread ran.
        let enabled = cpu.map_or(running, |_| enabled);
        let unknown = self.tell(group, owner, at, (enabled, running, cpu), values);
        if unknown {
            self.names.entry(tid).or_insert_with(|| name_of(tid));
        }
        if unknown && last {
            self.late += 1;
            // Either the fork of this thread was not reported, or its exit was reported before these counts. No other report
            // of its exit comes.
            self.ledger.exit(tid);
            self.ended.push(tid);
        } else if last {
            self.ledger.leaves(tid);
        }
        if self.each_sample && says == Says::Due && !last {
            self.ledger.flush(Which::All, &mut self.readings);
        }
    }

    /// Handles an exec by a thread other than the main thread. The exec ends all other threads, and that thread takes over the
    /// TID of the main thread. The kernel does not report which thread it is. It must be the only one left.
    fn renumber(&mut self, event: &KernelEvent) {
        let pid = event.tid;
        let at = Nanos(event.at);
        let Some(before) = self.ledger.survivor(pid) else {
            return;
        };
        self.ledger
            .renumber(before, Owner::Thread { pid, tid: pid }, at);
        self.took_number(event, before);
    }

    /// Reports that the thread `before` now has the TID of its process.
    fn took_number(&mut self, event: &KernelEvent, before: u32) {
        self.trees.forked(event.tid, before);
        self.trees.ended(before);
        self.ended.push(before);
        self.report(
            event,
            TaskEvent::Forked {
                pid: event.tid,
                parent: before,
            },
        );
        self.report(
            &KernelEvent {
                tid: before,
                ..*event
            },
            TaskEvent::Exited,
        );
    }

    fn report(&mut self, event: &KernelEvent, of_task: TaskEvent) {
        if let Some(events) = &mut self.task_events {
            events.push((Nanos(event.at), event.tid, of_task));
        }
    }

    /// Adds counts to the ledger. Returns true if the thread was unknown.
    #[inline]
    fn tell(
        &mut self,
        group: &GroupInfo,
        owner: Owner,
        at: Nanos,
        (enabled, running, cpu): (u64, u64, Option<CpuId>),
        values: &[u64],
    ) -> bool {
        let values = group.places.in_set(values, &mut self.scratch);
        let mut counts = cumulative(group, at, (enabled, running), values);
        counts.seen_on = cpu.unwrap_or(group.cpu);
        if self.each_sample {
            // This sample is of one group, at a time of its own. The running time of other groups at that time is unknown.
            counts.enabled = counts.running;
        }
        self.ledger
            .tell(owner, group.tree, group.cpu, group.set, &counts)
    }

    /// Reads the counts of CPUs, control groups or whole trees, and adds them to the ledger.
    pub(super) fn read(
        &mut self,
        counters: &mut dyn TaskCounters,
        owner: Owner,
    ) -> Result<(), CounterError> {
        let mut values = std::mem::take(&mut self.values);
        for index in 0..counters.groups().len() {
            let (_, running) = counters.read(index, &mut values)?;
            let at = counters.now();
            if let Some(group) = counters.groups().get(index) {
                self.tell(group, owner, at, (running, running, None), &values);
            }
        }
        self.values = values;
        Ok(())
    }

    pub(super) fn flush(&mut self, which: Which) {
        self.ledger.flush(which, &mut self.readings);
    }

    /// Ends counting: gives each root its share of the totals, and reports the counts that cannot be attributed to a thread.
    pub(super) fn settle(&mut self, counters: &mut dyn TaskCounters) -> Result<(), CounterError> {
        // The difference between the total and the counts of all threads belongs to the root alone only under
        // three conditions: no thread is alive, no exit was lost, and every thread has reported all its counts.
        let all_reported = self.ledger.alive() == 0
            && self.lost() == 0
            && self.partial + self.late + self.sorter.unheard == 0;
        let final_counts = self.final_counts >= self.forked;
        let only_root =
            all_reported && (final_counts || (self.forked == 0 && self.ledger.trees() == 1));
        let mut rest: FxHashMap<(CpuId, u32), Vec<u64>> = FxHashMap::default();
        let mut values = std::mem::take(&mut self.values);
        for index in 0..counters.groups().len() {
            let (_, running) = counters.read(index, &mut values)?;
            let at = counters.now();
            let Some(group) = counters.groups().get(index) else {
                continue;
            };
            let counts = cumulative(
                group,
                at,
                (running, running),
                group.places.in_set(&values, &mut self.scratch),
            );
            if let Some(own) = self
                .ledger
                .total(group.tree, group.cpu, group.set, &counts, only_root)
            {
                let sums = rest
                    .entry((group.cpu, group.set))
                    .or_insert_with(|| vec![0; own.len()]);
                sums.iter_mut()
                    .zip(own)
                    .for_each(|(sum, value)| *sum += value);
            }
        }
        self.values = values;
        rest.extend(counters.rest());
        self.flush(Which::All);
        self.ledger.final_counts(&mut self.readings);
        self.ledger
            .rest(counters.now(), rest.into_iter(), &mut self.readings);
        Ok(())
    }

    /// Removes the names of threads whose exit was reported to the caller.
    pub(super) fn reported(&mut self) {
        for tid in self.ended.drain(..) {
            if !self.ledger.is_alive(tid) {
                self.names.remove(&tid);
            }
        }
    }
}

const fn cumulative<'a>(
    group: &GroupInfo,
    at: Nanos,
    (enabled, running): (u64, u64),
    values: &'a [u64],
) -> Cumulative<'a> {
    let enabled = Nanos(if group.clock { enabled } else { 0 });
    let running = Nanos(if group.counts { running } else { 0 });
    Cumulative {
        at,
        seen_on: group.cpu,
        enabled,
        running,
        values,
    }
}

fn name_of(tid: u32) -> Arc<str> {
    PROC.name(tid).unwrap_or_else(|| "?".into()).into()
}
