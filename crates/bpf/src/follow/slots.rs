//! Slots: the kernel adds up the counts of a thread there; user space keeps the last report of each.
//!
//! Input: slots that changed. Output: events of their threads, and new counts.

use std::io;
use std::mem::offset_of;

use countersteer_counters::{TakeReport, TaskReport};
use countersteer_model::units::{CpuId, Nanos};
use libbpf_rs::{MapCore, MapFlags};

use super::InKernel;
use super::table::FollowTable;
use crate::generated::follow::{shared, types};

/// Last report of the thread in a slot.
#[derive(Clone, Copy, Default)]
pub(super) struct LastReport {
    /// Number of changes at that time.
    pub(super) changes: u64,
    named: u32,
    exec_ns: u64,
    /// TID and PID of the thread; 0 before it was reported.
    tid: u32,
    pid: u32,
}

impl LastReport {
    /// True if only counts of a slot are new.
    const fn is_nothing_new(
        self,
        state: u32,
        named: u32,
        renumbered_ns: u64,
        exec_ns: u64,
    ) -> bool {
        let numbers = self.tid > 0 && (renumbered_ns == 0 || self.tid == self.pid);
        numbers && state == shared::SLOT_TAKEN && named == self.named && exec_ns == self.exec_ns
    }
}

impl InKernel {
    /// Number of slots that were ever taken.
    pub(super) fn taken(&mut self) -> usize {
        let fresh = self.control(|control| {
            // SAFETY: a plain integer in memory that the kernel writes too.
            unsafe { (&raw const control.fresh).read_volatile() }
        });
        let taken = (fresh as usize).min(self.room);
        if taken > self.last_reports.len() {
            self.last_reports.resize(taken, LastReport::default());
            self.reported.resize(taken * self.layout.width(), 0);
        }
        taken
    }

    /// Reads a slot's counts, and the parts of it that `read` reads; returns its number of changes at that time.
    #[inline]
    fn settled<R>(&mut self, nr: usize, read: impl Fn(&FollowTable<types::slot>) -> R) -> (u64, R) {
        let kinds = self.kinds_per_slot();
        let Self {
            slots,
            rows,
            layout,
            counts,
            ..
        } = self;
        slots.settled(nr, || {
            for kind in 0..kinds {
                let row = rows.entry(nr * kinds + kind);
                layout.counts(
                    kind,
                    |field| row.field(field),
                    &mut counts[layout.span(kind)],
                );
            }
            read(slots)
        })
    }

    /// Reports the news of a slot; returns true if its thread has exited.
    pub(super) fn report(&mut self, nr: usize, take: TakeReport<'_>) -> bool {
        // Mostly only the counts of a thread are new.
        let (changes, (state, named, renumbered_ns, exec_ns, at_ns)) = self.settled(nr, |slots| {
            let slot = slots.entry(nr);
            let state = slot.half(offset_of!(types::slot, state));
            let named = slot.half(offset_of!(types::slot, named));
            (
                state,
                named,
                slot.field(offset_of!(types::slot, renumbered_ns)),
                slot.field(offset_of!(types::slot, exec_ns)),
                slot.field(offset_of!(types::slot, at_ns)),
            )
        });
        let known = self.last_reports[nr];
        if !known.is_nothing_new(state, named, renumbered_ns, exec_ns) {
            return self.report_all(nr, take);
        }
        self.last_reports[nr].changes = changes;
        self.report_counts(
            nr,
            (known.pid, known.tid),
            Nanos(at_ns.max(renumbered_ns)),
            true,
            take,
        );
        false
    }

    /// Reports the news of a slot that may have more than counts.
    fn report_all(&mut self, nr: usize, take: TakeReport<'_>) -> bool {
        let (changes, slot) = self.settled(nr, |slots| slots.read(nr));
        // A thread that has never run does not know its TID yet.
        if slot.state == shared::SLOT_FREE || slot.tid == 0 {
            let unseen = slot.state == shared::SLOT_EXITED;
            self.unseen += u64::from(unseen);
            return unseen;
        }
        // A TID that passes to another thread is reported after its former owner's exit, at the next collection.
        let renumbered = slot.renumbered_ns > 0 && self.last_reports[nr].tid != slot.tgid;
        if renumbered && (self.exited.contains(&slot.tgid) || self.has_another(slot.tgid, nr)) {
            return false;
        }
        let pid = slot.tgid;
        let now = Nanos(slot.at_ns.max(slot.renumbered_ns));
        let tid = if slot.renumbered_ns > 0 {
            pid
        } else {
            slot.tid
        };
        let known = std::mem::replace(
            &mut self.last_reports[nr],
            LastReport {
                changes,
                named: slot.named,
                exec_ns: slot.exec_ns,
                tid,
                pid,
            },
        );
        if renumbered {
            // Counts since the last report belong to its new TID.
            let width = self.layout.width();
            self.before
                .insert(nr, self.reported[nr * width..][..width].to_vec());
        }
        report_news(&slot, known, renumbered, take);
        self.report_counts(nr, (pid, tid), now, false, take);
        let left = slot.state == shared::SLOT_EXITED;
        if left {
            self.exited.push(tid);
            take(now, tid, TaskReport::Exited);
        }
        left
    }

    /// Reports the counts that were just read, as far as they are new.
    fn report_counts(
        &mut self,
        nr: usize,
        (pid, tid): (u32, u32),
        now: Nanos,
        alone: bool,
        take: TakeReport<'_>,
    ) {
        let kinds = self.kinds_per_slot();
        let width = self.layout.width();
        for kind in 0..kinds {
            let span = self.layout.span(kind);
            let reported = &mut self.reported[nr * width..][span.clone()];
            let counts = &mut self.counts[span.clone()];
            if counts[0] == reported[0] {
                continue;
            }
            reported.copy_from_slice(counts);
            if let Some(before) = self.before.get(&nr) {
                counts
                    .iter_mut()
                    .zip(&before[span])
                    .for_each(|(count, before)| *count = count.saturating_sub(*before));
            }
            let [enabled, running, values @ ..] = &*counts else {
                continue;
            };
            let enabled = Nanos(*enabled);
            let running = Nanos(*running);
            let cpu = CpuId(
                self.rows
                    .entry(nr * kinds + kind)
                    .field(offset_of!(types::row, cpu)) as u32,
            );
            take(
                now,
                tid,
                TaskReport::Counted {
                    pid,
                    kind,
                    cpu,
                    enabled,
                    running,
                    values,
                    alone,
                },
            );
        }
    }

    /// True if another slot still holds this TID.
    fn has_another(&mut self, tid: u32, nr: usize) -> bool {
        let is = |slot: types::slot| {
            slot.state != shared::SLOT_FREE && slot.tid == tid && slot.renumbered_ns == 0
        };
        (0..self.taken()).any(|other| other != nr && is(self.slots.read(other)))
    }

    /// Returns a slot in its initial state.
    pub(super) fn give_back(&mut self, nr: usize) {
        let kinds = self.kinds_per_slot();
        (0..kinds).for_each(|kind| self.rows.write(nr * kinds + kind, types::row::default()));
        self.before.remove(&nr);
        let width = self.layout.width();
        self.reported[nr * width..][..width].fill(0);
        // The next collection has to see that it changed.
        let changes = self.slots.changes(nr) + 2;
        self.slots.write(
            nr,
            types::slot {
                changes,
                ..types::slot::default()
            },
        );
        self.last_reports[nr] = LastReport {
            changes,
            ..LastReport::default()
        };
        let spare = self
            .skel
            .maps
            .spare
            .update(&[], &(nr as u32).to_ne_bytes(), MapFlags::ANY);
        if spare.is_ok() {
            self.control(|control| control.given += 1);
        }
    }

    /// Takes slots for existing threads: first returned ones, then unused ones.
    ///
    /// # Errors
    /// Fails if there are too few; none is taken then.
    pub(super) fn take_slots(&mut self, threads: usize) -> io::Result<Vec<usize>> {
        let mut slots = Vec::with_capacity(threads);
        while slots.len() < threads {
            let Some(nr) = self.take_slot() else {
                slots.into_iter().for_each(|nr| self.give_back(nr));
                return Err(io::Error::other(format!(
                    "there is room for {} threads only; look at fewer at once",
                    self.room
                )));
            };
            slots.push(nr);
        }
        Ok(slots)
    }

    fn take_slot(&mut self) -> Option<usize> {
        let spare = self.skel.maps.spare.lookup_and_delete(&[]).ok().flatten();
        let nr = match spare.and_then(|bytes| Some(u32::from_ne_bytes(bytes.try_into().ok()?))) {
            Some(nr) => nr as usize,
            None => {
                let nr = self.add(|control| &mut control.fresh, 1) as usize;
                if nr >= self.room {
                    self.add(|control| &mut control.fresh, u64::MAX);
                    return None;
                }
                nr
            }
        };
        self.add(|control| &mut control.taken, 1);
        self.taken();
        Some(nr)
    }
}

/// Reports the events of the thread in a slot, without counts, in the order of time.
fn report_news(slot: &types::slot, last: LastReport, renumbered: bool, take: TakeReport<'_>) {
    let pid = slot.tgid;
    let parent = slot.parent;
    let forked = Nanos(slot.forked_ns);
    let is_new = last.tid == 0 && parent != 0;
    if is_new {
        take(forked, slot.tid, TaskReport::Forked { pid, parent });
    }
    let tid = if slot.renumbered_ns > 0 {
        pid
    } else {
        slot.tid
    };
    if renumbered {
        let before = slot.tid;
        take(
            Nanos(slot.renumbered_ns),
            tid,
            TaskReport::Renumbered { pid, before },
        );
    }
    let name = slot.name.map(|letter| letter as u8);
    if last.exec_ns != slot.exec_ns {
        take(Nanos(slot.exec_ns), tid, TaskReport::Exec(name));
    } else if last.named != slot.named || is_new {
        let since = if is_new && !renumbered {
            forked
        } else {
            Nanos(slot.at_ns.max(slot.renumbered_ns))
        };
        take(since, tid, TaskReport::Named(name));
    }
}
