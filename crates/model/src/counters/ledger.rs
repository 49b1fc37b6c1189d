//! Ledger of counts: the current counts of each thread, and the counts already reported.
//!
//! Input: cumulative counts of a thread on a CPU by a set, whenever the kernel reports them, and the totals of trees of threads.
//! Output: [`Samples`] since the last flush. Nothing is counted twice or lost: the samples of a tree add up to its total, in
//! whatever order reports arrive.
//!
//! A *tree* is a thread that existed before counting began (its root) and all its descendants. The kernel reports final counts
//! of descendants when they exit. For the root it has only the tree's total, so the root's own counts are the difference.

mod thread;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::units::{CoreTypeId, CpuId, Nanos};

use crate::sample::{Owner, Sample, Samples};
use thread::{LedgerSlot, LedgerThread, TIMES, advance};

/// Tree number of a thread that belongs to no tree. Such a thread has its own counts, without a tree's total to compare with.
pub const NO_TREE: u32 = u32::MAX;

/// Cumulative counts of a thread since its fork, as the kernel reports them.
#[derive(Clone, Copy, Debug)]
pub struct Cumulative<'a> {
    pub at: Nanos,
    /// CPU on which the thread last ran, if counts of several CPUs are stored under one CPU number.
    pub seen_on: CpuId,
    /// Time for which the thread ran on that CPU while the event set was scheduled.
    pub enabled: Nanos,
    /// Time for which the event set counted the thread on that CPU.
    pub running: Nanos,
    /// Cumulative counts, one per event of the set.
    pub values: &'a [u64],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Ended,
    All,
}

/// Cumulative counts and already reported counts of all threads.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    threads: FxHashMap<u32, LedgerThread>,
    core_types: Vec<u32>,
    /// Events that are counted, one bit per event, by (CPU, event set).
    present: FxHashMap<(u32, u32), u64>,
    /// TID of the root of each existing tree, by the tree's number.
    roots: FxHashMap<u32, u32>,
    is_root: FxHashSet<u32>,
    /// Number of trees created so far.
    trees: u32,
    /// Sum of the counts of a tree's threads except the root, by (tree, CPU, event set).
    others: FxHashMap<(u32, u32, u32), Vec<u64>>,
    /// TIDs of the threads with unreported counts, in order of arrival.
    dirty: Vec<u32>,
    /// Exited threads with unreported counts whose TID was reused by another thread.
    replaced: Vec<LedgerThread>,
    /// Slots of exited threads, kept for reuse.
    spare: Vec<LedgerSlot>,
}

impl Ledger {
    /// Creates a ledger for a machine; `core_types` holds the core type of each CPU.
    #[must_use]
    pub fn new(core_types: Vec<u32>) -> Self {
        Self {
            core_types,
            ..Self::default()
        }
    }

    /// Sets which events of an event set are counted on a CPU, one bit per event.
    pub fn counted(&mut self, cpu: CpuId, set: u32, present: u64) {
        // Until the first call for a CPU and set, all events are taken as counted.
        if self
            .present
            .insert((cpu.0, set), present)
            .unwrap_or(u64::MAX)
            == present
        {
            return;
        }
        let here = |slot: &&mut LedgerSlot| (slot.cpu, slot.set) == (cpu.0, set);
        self.threads
            .values_mut()
            .flat_map(|thread| &mut thread.slots)
            .filter(here)
            .for_each(|s| s.present = present);
    }

    /// Adds the tree of a root thread that exists already. Returns the tree's number.
    pub fn root(&mut self, pid: u32, tid: u32, at: Nanos) -> u32 {
        self.forked(Owner::Thread { pid, tid }, at);
        let tree = self.trees;
        self.trees += 1;
        self.roots.insert(tree, tid);
        self.is_root.insert(tid);
        for slot in self
            .threads
            .get_mut(&tid)
            .into_iter()
            .flat_map(|t| &mut t.slots)
        {
            slot.own |= slot.tree == tree;
        }
        tree
    }

    /// Forgets a tree whose threads have all exited and been reported.
    pub fn forget_tree(&mut self, tree: u32) {
        let Some(tid) = self.roots.remove(&tree) else {
            return;
        };
        self.others.retain(|(of, _, _), _| *of != tree);
        if !self.roots.values().any(|root| *root == tid) {
            self.is_root.remove(&tid);
        }
        if !self.is_alive(tid) {
            self.recycle(tid);
        }
    }

    /// Adds a thread that was forked. If another thread has the same TID and its exit was not reported, that thread has exited.
    pub fn forked(&mut self, owner: Owner, at: Nanos) {
        let Owner::Thread { tid, .. } = owner else {
            return;
        };
        if let Some(early) = self
            .threads
            .get_mut(&tid)
            .filter(|t| t.unannounced && !t.ended)
        {
            early.unannounced = false;
            return;
        }
        let unsaid = |t: &LedgerThread| t.dirty || (t.ended && !t.end_reported);
        if self.threads.get(&tid).is_some_and(unsaid) {
            self.replaced.extend(self.threads.remove(&tid));
        }
        self.recycle(tid);
        self.threads.insert(
            tid,
            LedgerThread {
                owner: Some(owner),
                forked: at,
                ..LedgerThread::default()
            },
        );
    }

    /// Changes the TID of a thread. The thread's counts continue, and the thread with the new TID counts as exited.
    pub fn renumber(&mut self, before: u32, owner: Owner, at: Nanos) {
        let Owner::Thread { tid, .. } = owner else {
            return;
        };
        let reported = |thread: &LedgerThread| {
            thread
                .slots
                .iter()
                .map(|slot| slot.as_reported(at))
                .collect::<Vec<_>>()
        };
        let mut slots = self.threads.get(&before).map_or_else(Vec::new, reported);
        // The former owner of this TID may be the root of an existing tree. That owner's share of the tree's total is kept.
        let own = self
            .threads
            .get(&tid)
            .filter(|_| self.is_root.contains(&tid))
            .map_or_else(Vec::new, reported);
        slots.extend(own.into_iter().filter(|slot| slot.own));
        let mut trees_before = self
            .threads
            .get(&before)
            .map_or_else(Vec::new, |thread| thread.trees_before.clone());
        trees_before.extend(
            self.roots
                .iter()
                .filter(|(_, root)| **root == tid)
                .map(|(tree, _)| *tree),
        );
        if self.is_root.remove(&before) {
            self.roots
                .values_mut()
                .filter(|root| **root == before)
                .for_each(|root| *root = tid);
            self.is_root.insert(tid);
        }
        self.exit(before);
        self.forked(owner, at);
        if let Some(thread) = self.threads.get_mut(&tid) {
            (thread.slots, thread.trees_before) = (slots, trees_before);
        }
    }

    /// Returns the TID of the only living thread of a process apart from the main thread. `None` if there are several or none.
    #[must_use]
    pub fn survivor(&self, pid: u32) -> Option<u32> {
        let of = |(tid, thread): (&u32, &LedgerThread)| {
            let here = matches!(thread.owner, Some(Owner::Thread { pid: its, .. }) if its == pid);
            (here && !thread.ended && *tid != pid).then_some(*tid)
        };
        let mut living = self.threads.iter().filter_map(of);
        living.next().filter(|_| living.next().is_none())
    }

    /// Records that a thread exited. The thread is removed at the next flush.
    pub fn exit(&mut self, tid: u32) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.ended = true;
            if !std::mem::replace(&mut thread.dirty, true) {
                self.dirty.push(tid);
            }
        }
    }

    /// True if a thread is known and has not exited.
    #[must_use]
    pub fn is_alive(&self, tid: u32) -> bool {
        self.threads.get(&tid).is_some_and(|t| !t.ended)
    }

    /// Updates the cumulative counts of a thread since its start. Values smaller than the stored ones are outdated and ignored.
    #[must_use]
    pub fn trees(&self) -> usize {
        self.roots.len()
    }

    /// Returns the number of threads that have not exited, excluding the roots of trees.
    #[must_use]
    pub fn alive(&self) -> usize {
        self.threads
            .iter()
            .filter(|(tid, t)| !t.ended && !self.is_root.contains(tid))
            .count()
    }

    /// Updates the cumulative counts of a thread since its start. Values smaller than the known ones are outdated and ignored.
    ///
    /// The counts of a set may arrive in parts; a part has zero for the values that it lacks. Returns true if the thread was
    /// unknown.
    #[inline]
    pub fn tell(
        &mut self,
        owner: Owner,
        tree: u32,
        cpu: CpuId,
        set: u32,
        cumulative: &Cumulative<'_>,
    ) -> bool {
        self.take_in(owner, (tree, cpu, set), cumulative, false)
    }

    /// Updates cumulative counts like [`Self::tell`]. With `of_root`, the counts belong to the tree's root even if another
    /// thread now has its TID.
    fn take_in(
        &mut self,
        owner: Owner,
        (tree, cpu, set): (u32, CpuId, u32),
        cumulative: &Cumulative<'_>,
        of_root: bool,
    ) -> bool {
        let tid = if let Owner::Thread { tid, .. } = owner {
            tid
        } else {
            cpu.0
        };
        let Self {
            threads,
            others,
            roots,
            spare,
            dirty,
            core_types,
            present,
            ..
        } = self;
        let mut unknown = false;
        let thread = match threads.get_mut(&tid) {
            Some(thread) => thread,
            None => {
                unknown = true;
                let new = LedgerThread {
                    owner: Some(owner),
                    forked: cumulative.at,
                    unannounced: true,
                    ..LedgerThread::default()
                };
                threads.entry(tid).or_insert(new)
            }
        };
        let found = thread.slot((tree, cpu, set), of_root);
        let index = found.unwrap_or_else(|| {
            let mut slot = spare.pop().unwrap_or_default();
            slot.reset((cpu.0, set, tree), cumulative.values.len(), thread.forked);
            slot.core_type = core_types.get(cpu.index()).copied().unwrap_or_default();
            slot.present = present.get(&(cpu.0, set)).copied().unwrap_or(u64::MAX);
            slot.own = if thread.trees_before.contains(&tree) {
                of_root
            } else {
                roots.get(&tree) == Some(&tid)
            };
            thread.slots.push(slot);
            thread.slots.len() - 1
        });
        let slot = &mut thread.slots[index];
        // If each thread is its own tree, this table has one entry per thread and does not fit into the processor's caches.
        let shared = (!slot.own && tree != NO_TREE).then(|| {
            others
                .entry((tree, cpu.0, set))
                .or_insert_with(|| vec![0; TIMES + cumulative.values.len()])
        });
        let (time_sums, value_sums) = shared.map(|sums| sums.split_at_mut(TIMES)).unzip();
        let (times, values) = slot.counts.split_at_mut(TIMES);
        // The clock and the counts of a PMU are read one after the other. A thread has run for at least as long as its events
        // counted.
        let enabled = cumulative.enabled.0.max(cumulative.running.0).max(times[1]);
        slot.dirty |= advance(times, &[enabled, cumulative.running.0], time_sums);
        slot.dirty |= advance(values, cumulative.values, value_sums);
        slot.at = slot.at.max(cumulative.at);
        slot.seen_on = cumulative.seen_on;
        if slot.dirty && !std::mem::replace(&mut thread.dirty, true) {
            dirty.push(tid);
        }
        unknown
    }

    /// Marks the current counts of a thread as final. The thread's exit is reported with them if it arrives before the next
    /// flush but one.
    pub fn leaves(&mut self, tid: u32) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.leaving = true;
        }
    }

    /// Updates the total of a tree. With `only_root`, the difference between the total and the sum of known counts is attributed
    /// to the root. Otherwise the difference is returned: the living threads have counted it since their last report.
    pub fn total(
        &mut self,
        tree: u32,
        cpu: CpuId,
        set: u32,
        total: &Cumulative<'_>,
        only_root: bool,
    ) -> Option<Vec<u64>> {
        let tid = *self.roots.get(&tree)?;
        let others = self.others.get(&(tree, cpu.0, set));
        let all = [total.enabled.0, total.running.0]
            .into_iter()
            .chain(total.values.iter().copied());
        let mut own: Vec<u64> = all.collect();
        for (value, other) in own.iter_mut().zip(others.into_iter().flatten()) {
            *value = value.saturating_sub(*other);
        }
        if only_root {
            let owner = self
                .threads
                .get(&tid)
                .and_then(|t| t.owner)
                .unwrap_or(Owner::Rest);
            let enabled = Nanos(own[0]);
            let running = Nanos(own[1]);
            let cumulative = Cumulative {
                at: total.at,
                seen_on: cpu,
                enabled,
                running,
                values: &own[TIMES..],
            };
            if own.iter().any(|v| *v > 0) {
                self.take_in(owner, (tree, cpu, set), &cumulative, true);
            }
            return None;
        }
        let root = self.threads.get(&tid);
        if let Some(slot) =
            root.and_then(|root| Some(&root.slots[root.slot((tree, cpu, set), true)?]))
        {
            own.iter_mut()
                .zip(&slot.counts)
                .for_each(|(v, counted)| *v = v.saturating_sub(*counted));
        }
        own.iter().any(|v| *v > 0).then_some(own)
    }

    /// Appends unreported counts to `into`, thread by thread, and removes exited threads.
    pub fn flush(&mut self, which: Which, into: &mut Samples) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for mut thread in std::mem::take(&mut self.replaced) {
            thread.ended = true;
            thread.report(into);
            thread.final_counts(into);
            self.spare.append(&mut thread.slots);
        }
        dirty.retain(|tid| {
            // A TID may be listed twice: once for a thread that had it earlier.
            let Some(thread) = self.threads.get_mut(tid) else {
                return false;
            };
            let waits = which == Which::Ended || std::mem::take(&mut thread.leaving);
            let stays = waits && !thread.ended;
            if !stays && thread.dirty {
                thread.report(into);
            }
            if thread.ended && !stays {
                // The total of the tree may still add counts to its root.
                if !self.is_root.contains(tid) {
                    thread.final_counts(into);
                }
                self.recycle(*tid);
            }
            stays
        });
        self.dirty = dirty;
    }

    /// Reports the exits of roots that are still unreported, because no more counts of these threads will arrive.
    pub fn final_counts(&mut self, into: &mut Samples) {
        let mut roots: Vec<u32> = self.is_root.iter().copied().collect();
        roots.sort_unstable();
        for tid in roots {
            if let Some(thread) = self.threads.get_mut(&tid).filter(|t| t.ended) {
                thread.final_counts(into);
            }
        }
    }

    /// Appends counts that are known only as a sum per CPU and event set: enabled time, running time, then values.
    pub fn rest(
        &self,
        at: Nanos,
        rest: impl Iterator<Item = ((CpuId, u32), Vec<u64>)>,
        into: &mut Samples,
    ) {
        for ((cpu, set), counts) in rest {
            let core_type = self
                .core_types
                .get(cpu.index())
                .copied()
                .unwrap_or_default();
            let time = |i: usize| Nanos(counts.get(i).copied().unwrap_or(0));
            let enabled = time(0);
            let running = time(1);
            let present = self.present.get(&(cpu.0, set)).copied().unwrap_or(u64::MAX);
            let blank = Sample::new(Owner::Rest, Some(cpu), CoreTypeId(core_type), set);
            let sample = Sample {
                start: at,
                end: at,
                enabled,
                running,
                present,
                last: true,
                ..blank
            };
            into.push(sample, counts.into_iter().skip(TIMES).map(|v| v as f64));
        }
    }

    fn recycle(&mut self, tid: u32) {
        // The slots of a root hold its share of the tree's total, so they are kept until the tree is removed.
        if self.is_root.contains(&tid) {
            return;
        }
        if let Some(thread) = self.threads.remove(&tid) {
            self.spare.extend(thread.slots);
        }
    }
}

#[cfg(test)]
mod tests;
