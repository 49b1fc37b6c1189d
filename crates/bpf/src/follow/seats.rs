//! Seats: where the kernel adds up what a thread counts, and what of it was told.
//!
//! Input: seats that changed. Output: what befell their threads, and counts as far as they are new.

use std::io;
use std::mem::offset_of;

use countersteer_counters::{Hear, Heard};
use countersteer_model::units::{CpuId, Nanos};
use libbpf_rs::{MapCore, MapFlags};

use super::InKernel;
use super::table::Table;
use crate::generated::follow::{shared, types};

/// What is known of who has a seat.
#[derive(Clone, Copy, Default)]
pub(super) struct Known {
    /// How often it had changed.
    pub(super) changes: u64,
    named: u32,
    exec_ns: u64,
    /// What its number was, and its process's; 0 before it was told of.
    tid: u32,
    pid: u32,
}

impl Known {
    /// Whether nothing but counts is new of a seat.
    const fn is_nothing_new(
        self,
        state: u32,
        named: u32,
        renumbered_ns: u64,
        exec_ns: u64,
    ) -> bool {
        let numbers = self.tid > 0 && (renumbered_ns == 0 || self.tid == self.pid);
        numbers && state == shared::SEAT_TAKEN && named == self.named && exec_ns == self.exec_ns
    }
}

impl InKernel {
    /// Seats that were ever taken.
    pub(super) fn taken(&mut self) -> usize {
        let fresh = self.control(|control| {
            // SAFETY: a plain integer in memory that the kernel writes too.
            unsafe { (&raw const control.fresh).read_volatile() }
        });
        let taken = (fresh as usize).min(self.room);
        if taken > self.known.len() {
            self.known.resize(taken, Known::default());
            self.told.resize(taken * self.layout.width(), 0);
        }
        taken
    }

    /// Reads a seat's counts, and what of it `read` does; how often it had changed by then.
    #[inline]
    fn settled<R>(&mut self, nr: usize, read: impl Fn(&Table<types::seat>) -> R) -> (u64, R) {
        let kinds = self.kinds_per_seat();
        let Self {
            seats,
            rows,
            layout,
            counts,
            ..
        } = self;
        seats.settled(nr, || {
            for kind in 0..kinds {
                let row = rows.entry(nr * kinds + kind);
                layout.counts(
                    kind,
                    |field| row.field(field),
                    &mut counts[layout.span(kind)],
                );
            }
            read(seats)
        })
    }

    /// Tells what is new of a seat; whether its thread has left it.
    pub(super) fn tell(&mut self, nr: usize, hear: Hear<'_>) -> bool {
        // Most threads have counted, and that is all.
        let (changes, (state, named, renumbered_ns, exec_ns, at_ns)) = self.settled(nr, |seats| {
            let seat = seats.entry(nr);
            let state = seat.half(offset_of!(types::seat, state));
            let named = seat.half(offset_of!(types::seat, named));
            (
                state,
                named,
                seat.field(offset_of!(types::seat, renumbered_ns)),
                seat.field(offset_of!(types::seat, exec_ns)),
                seat.field(offset_of!(types::seat, at_ns)),
            )
        });
        let known = self.known[nr];
        if !known.is_nothing_new(state, named, renumbered_ns, exec_ns) {
            return self.tell_all(nr, hear);
        }
        self.known[nr].changes = changes;
        self.tell_counts(
            nr,
            (known.pid, known.tid),
            Nanos(at_ns.max(renumbered_ns)),
            true,
            hear,
        );
        false
    }

    /// The same if there may be more than counts to tell.
    fn tell_all(&mut self, nr: usize, hear: Hear<'_>) -> bool {
        let (changes, seat) = self.settled(nr, |seats| seats.read(nr));
        // Whoever has never run does not know its number yet.
        if seat.state == shared::SEAT_FREE || seat.tid == 0 {
            let unseen = seat.state == shared::SEAT_LEFT;
            self.unseen += u64::from(unseen);
            return unseen;
        }
        // A number that changes hands is told of at the look after that at its former owner's end.
        let renumbered = seat.renumbered_ns > 0 && self.known[nr].tid != seat.tgid;
        if renumbered && (self.parted.contains(&seat.tgid) || self.has_another(seat.tgid, nr)) {
            return false;
        }
        let pid = seat.tgid;
        let now = Nanos(seat.at_ns.max(seat.renumbered_ns));
        let tid = if seat.renumbered_ns > 0 {
            pid
        } else {
            seat.tid
        };
        let known = std::mem::replace(
            &mut self.known[nr],
            Known {
                changes,
                named: seat.named,
                exec_ns: seat.exec_ns,
                tid,
                pid,
            },
        );
        let born = known.tid == 0 && seat.parent != 0;
        if born {
            hear(
                Nanos(seat.born_ns),
                seat.tid,
                Heard::Born {
                    pid,
                    parent: seat.parent,
                },
            );
        }
        if renumbered {
            // What it has counted since it was told of last goes with its new number.
            let width = self.layout.width();
            self.before
                .insert(nr, self.told[nr * width..][..width].to_vec());
            hear(
                Nanos(seat.renumbered_ns),
                tid,
                Heard::Renumbered {
                    pid,
                    before: seat.tid,
                },
            );
        }
        let name = seat.name.map(|letter| letter as u8);
        if known.exec_ns != seat.exec_ns {
            hear(Nanos(seat.exec_ns), tid, Heard::Starts(name));
        } else if known.named != seat.named || born {
            let since = if renumbered || !born {
                now
            } else {
                Nanos(seat.born_ns)
            };
            hear(since, tid, Heard::Named(name));
        }
        self.tell_counts(nr, (pid, tid), now, false, hear);
        let left = seat.state == shared::SEAT_LEFT;
        if left {
            self.parted.push(tid);
            hear(now, tid, Heard::Ended);
        }
        left
    }

    /// Tells of counts that were just read, as far as they are new.
    fn tell_counts(
        &mut self,
        nr: usize,
        (pid, tid): (u32, u32),
        now: Nanos,
        alone: bool,
        hear: Hear<'_>,
    ) {
        let kinds = self.kinds_per_seat();
        let width = self.layout.width();
        for kind in 0..kinds {
            let span = self.layout.span(kind);
            let told = &mut self.told[nr * width..][span.clone()];
            let counts = &mut self.counts[span.clone()];
            if counts[0] == told[0] {
                continue;
            }
            told.copy_from_slice(counts);
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
            hear(
                now,
                tid,
                Heard::Counted {
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

    /// Whether another seat is still of the thread with this number.
    fn has_another(&mut self, tid: u32, nr: usize) -> bool {
        let is = |seat: types::seat| {
            seat.state != shared::SEAT_FREE && seat.tid == tid && seat.renumbered_ns == 0
        };
        (0..self.taken()).any(|other| other != nr && is(self.seats.read(other)))
    }

    /// Gives a seat back, as good as new.
    pub(super) fn give_back(&mut self, nr: usize) {
        let kinds = self.kinds_per_seat();
        (0..kinds).for_each(|kind| self.rows.write(nr * kinds + kind, types::row::default()));
        self.before.remove(&nr);
        let width = self.layout.width();
        self.told[nr * width..][..width].fill(0);
        // Whoever looks at it again has to see that it changed.
        let changes = self.seats.changes(nr) + 2;
        self.seats.write(
            nr,
            types::seat {
                changes,
                ..types::seat::default()
            },
        );
        self.known[nr] = Known {
            changes,
            ..Known::default()
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

    /// Seats for so many threads that are there already.
    pub(super) fn take_seats(&mut self, threads: usize) -> io::Result<usize> {
        let seats = self.room;
        let first = self.control(|control| {
            // SAFETY: an aligned integer that the kernel changes atomically, too.
            let fresh = unsafe { std::sync::atomic::AtomicU64::from_ptr(&raw mut control.fresh) };
            fresh.fetch_add(threads as u64, std::sync::atomic::Ordering::AcqRel) as usize
        });
        if first + threads > seats {
            return Err(io::Error::other(format!(
                "there is room for {seats} threads only; look at fewer at once"
            )));
        }
        self.control(|control| {
            // SAFETY: likewise.
            let taken = unsafe { std::sync::atomic::AtomicU64::from_ptr(&raw mut control.taken) };
            taken.fetch_add(threads as u64, std::sync::atomic::Ordering::AcqRel);
        });
        self.taken();
        Ok(first)
    }
}
