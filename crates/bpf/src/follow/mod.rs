//! Threads followed and counted inside the kernel: `bpf/follow.bpf.c` loaded, and read.
//!
//! Input: sets of events, CPUs, threads. Output: counts and events of these threads and of all their descendants.

mod classes;
mod judging;
mod layout;
mod load;
mod slots;
mod table;

use std::io;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};

use countersteer_counters::{BpfRequest, CpuCounters, Follow, SetOfClass, TakeReport};
use countersteer_model::units::{CpuId, Nanos};
use libbpf_rs::{Link, ProgramInput, ProgramMut};
use rustc_hash::FxHashMap;

use crate::generated::adopt::AdoptSkel;
use crate::generated::follow::{FollowSkel, shared, types};
use crate::object::{failed, now_ns};
use classes::CpuClasses;
pub use judging::Judging;
use layout::FollowLayout;
use slots::LastReport;
use table::{FollowTable, Plain, TableEntry};

// SAFETY: structures of integers, as `follow.h` declares them.
unsafe impl Plain for types::slot {}
// SAFETY: likewise.
unsafe impl Plain for types::row {}
// SAFETY: likewise.
unsafe impl Plain for types::cpu_state {}

/// Arguments of the context switch program: four words, all zero if only the running thread is to be read.
const SWITCH_BYTES: usize = 4 * size_of::<u64>();
/// Flag that runs a program on the given CPU.
const ON_CPU: u32 = 1;

/// Programs inside the kernel that follow threads; a drop detaches them.
pub struct InKernel {
    links: Vec<Link>,
    slots: FollowTable<types::slot>,
    rows: FollowTable<types::row>,
    cpus: FollowTable<types::cpu_state>,
    counters: CpuCounters,
    layout: FollowLayout,
    classes: CpuClasses,
    room: usize,
    /// Last reports of the slots that were ever taken, as far as known.
    last_reports: Vec<LastReport>,
    /// By slot: its counts at the last report, and at the time when its thread took another TID.
    reported: Vec<u64>,
    before: FxHashMap<usize, Vec<u64>>,
    /// A thread that has had a CPU for less is not interrupted.
    spacing: Nanos,
    /// Threads whose exits were reported at the last collection, perhaps after other threads took their TIDs.
    exited: Vec<u32>,
    /// Threads that ended without having been seen to run.
    unseen: u64,
    /// Slots in use at the last collection.
    living: u64,
    adopting: Option<AdoptSkel<'static>>,
    counts: Vec<u64>,
    skel: FollowSkel<'static>,
}

// SAFETY: the library's allocations belong to this value alone, and nothing of them is tied to a thread.
unsafe impl Send for InKernel {}

impl Drop for InKernel {
    fn drop(&mut self) {
        // The programs are detached before their memory is unmapped.
        self.links.clear();
    }
}

/// Loads the programs of a request.
///
/// # Errors
/// Returns the reason: no privilege, a kernel that is too old, too many events or types of cores.
pub fn load(request: &BpfRequest<'_>) -> Result<Box<dyn Follow>, String> {
    InKernel::load(request, None).map(|inside| Box::new(inside) as Box<dyn Follow>)
}

/// Loads the programs of a request, with speed-up factors computed from its counts if there is room for them.
pub(crate) fn load_judging(
    request: &BpfRequest<'_>,
    judging: &Judging,
) -> Result<Box<dyn Follow>, String> {
    judging.set_judges(false);
    InKernel::load(request, Some(judging)).map(|inside| Box::new(inside) as Box<dyn Follow>)
}

/// True if a followed thread runs on that CPU.
fn is_busy(here: &TableEntry<'_, types::cpu_state>) -> bool {
    here.half(offset_of!(types::cpu_state, slot)) != shared::NONE
}

impl InKernel {
    /// Reads or changes the control structure that both sides share.
    fn control<R>(&mut self, with: impl FnOnce(&mut types::follow_control) -> R) -> R {
        match self.skel.maps.bss_data.as_deref_mut() {
            Some(bss) => with(&mut bss.control),
            None => with(&mut types::follow_control::default()),
        }
    }

    /// Adds to a number that the kernel changes, too; returns its former value.
    fn add(&mut self, field: impl FnOnce(&mut types::follow_control) -> &mut u64, by: u64) -> u64 {
        self.control(|control| {
            // SAFETY: an aligned integer, which the kernel changes atomically.
            let number = unsafe { AtomicU64::from_ptr(field(control)) };
            number.fetch_add(by, Ordering::AcqRel)
        })
    }

    /// Number of slots in use.
    fn used(&self) -> u64 {
        let used = |bss: &types::bss| {
            // SAFETY: a plain integer in memory that the kernel writes too.
            let taken = unsafe { (&raw const bss.control.taken).read_volatile() };
            taken.saturating_sub(bss.control.given)
        };
        self.skel.maps.bss_data.as_deref().map_or(0, used)
    }

    /// Selects the set that counts, or none.
    fn want(&self, set: Option<u32>) {
        let sets = self.layout.sets.len() as u32;
        let kinds = self.kinds_per_slot() as u32;
        for (cpu, class) in self.classes.of.iter().enumerate() {
            let kind = class
                .zip(set)
                .map_or(kinds, |(class, set)| class * sets + set);
            self.cpus
                .store(cpu, offset_of!(types::cpu_state, wanted), kind);
        }
    }

    /// Makes the kernel store the counts so far of running threads, on the CPUs for which `wanted` is true.
    fn read_running(&self, wanted: impl Fn(&TableEntry<'_, types::cpu_state>) -> bool) {
        let mut no_thread = [0; SWITCH_BYTES];
        for cpu in (0..self.classes.of.len()).filter(|cpu| wanted(&self.cpus.entry(*cpu))) {
            let input = ProgramInput {
                context_in: Some(&mut no_thread),
                cpu: cpu as u32,
                flags: ON_CPU,
                ..ProgramInput::default()
            };
            // A CPU that is offline runs no thread.
            let _ = self.on_switch().test_run(input);
        }
    }

    /// Context switch program that was loaded.
    fn on_switch(&self) -> &ProgramMut<'static> {
        let programs = &self.skel.progs;
        if programs.on_switch.autoload() {
            &programs.on_switch
        } else {
            &programs.on_switch_judging
        }
    }

    /// Kinds of counts of each thread.
    fn kinds_per_slot(&self) -> usize {
        self.classes.first.len() * self.layout.sets.len()
    }
}

impl Follow for InKernel {
    fn kinds(&self) -> Vec<SetOfClass> {
        let sets = self.layout.sets.len();
        let kind = |(class, cpu): (usize, &CpuId), set: usize| {
            let present = self.layout.sets[set].present(&self.layout.counters[class * sets + set]);
            SetOfClass {
                cpu: *cpu,
                set: set as u32,
                present,
            }
        };
        self.classes
            .first
            .iter()
            .enumerate()
            .flat_map(|class| (0..sets).map(move |set| kind(class, set)))
            .collect()
    }

    fn adopt(&mut self, threads: &[(u32, u32)]) -> io::Result<()> {
        let most = shared::MAX_ADOPTED as usize;
        let slots = self.take_slots(threads.len())?;
        for (some, slots) in threads.chunks(most).zip(slots.chunks(most)) {
            let adopter = self.adopter()?;
            let Some(bss) = adopter.maps.bss_data.as_deref_mut() else {
                break;
            };
            for ((into, (pid, tid)), slot) in bss.adoptions.iter_mut().zip(some).zip(slots) {
                into.tgid = *pid;
                into.tid = *tid;
                into.slot = *slot as u32;
            }
            bss.nr_adoptions = some.len() as u32;
            adopter
                .progs
                .adopt
                .test_run(ProgramInput::default())
                .map_err(failed("following threads"))?;
            let Some(bss) = adopter.maps.bss_data.as_deref() else {
                break;
            };
            let adopted = bss.adoptions.iter().zip(slots);
            let needless: Vec<usize> = adopted
                .filter(|(adoption, _)| adoption.slot == shared::NONE)
                .map(|(_, slot)| *slot)
                .collect();
            needless.into_iter().for_each(|nr| self.give_back(nr));
        }
        self.add(|control| &mut control.generation, 1);
        // Running threads need not leave their CPU first.
        self.read_running(|_| true);
        Ok(())
    }

    fn switch(&mut self, set: u32, on: bool) -> io::Result<()> {
        let switched = |e| io::Error::other(format!("{e}"));
        if on {
            self.counters.switch(set, true).map_err(switched)?;
        }
        self.want(on.then_some(set));
        // A CPU in the middle of a context switch may have seen the former set, and show it only afterwards.
        for _ in 0..2 {
            let kind = |here: &TableEntry<'_, types::cpu_state>| {
                here.half(offset_of!(types::cpu_state, kind))
            };
            self.read_running(|here| {
                is_busy(here) && kind(here) != here.half(offset_of!(types::cpu_state, wanted))
            });
        }
        if !on {
            self.counters.switch(set, false).map_err(switched)?;
        }
        Ok(())
    }

    fn collect(&mut self, take: TakeReport<'_>) {
        let now = now_ns();
        // If that fails, a CPU that was offline stays uncounted, and all others are counted.
        let _ = self.renew();
        let spacing = self.spacing.0;
        self.read_running(|here| {
            is_busy(here)
                && now.saturating_sub(here.field(offset_of!(types::cpu_state, since_ns))) >= spacing
        });
        self.exited.clear();
        for nr in 0..self.taken() {
            if self.slots.changes(nr) != self.last_reports[nr].changes && self.report(nr, take) {
                self.give_back(nr);
            }
        }
        self.living = self.used();
    }

    fn living(&mut self) -> Vec<(u32, u32)> {
        let taken = self.taken();
        let slots = (0..taken).map(|nr| self.slots.read(nr));
        slots
            .filter(|slot| slot.state == shared::SLOT_TAKEN && slot.tid != 0)
            .map(|slot| match slot.renumbered_ns {
                0 => (slot.tgid, slot.tid),
                _ => (slot.tgid, slot.tgid),
            })
            .collect()
    }

    fn rest(&mut self) -> Vec<(usize, Vec<u64>)> {
        let slots = self.room;
        let kinds = self.kinds_per_slot();
        let mut sums: Vec<(usize, Vec<u64>)> = Vec::new();
        for cpu in 0..self.classes.of.len() {
            for kind in 0..kinds {
                let mut counts = vec![0; self.layout.span(kind).len()];
                let row = (slots + cpu) * kinds + kind;
                self.layout
                    .counts(kind, |field| self.rows.entry(row).field(field), &mut counts);
                if counts[0] == 0 {
                    continue;
                }
                match sums.iter_mut().find(|(of, _)| *of == kind) {
                    Some((_, sum)) => sum
                        .iter_mut()
                        .zip(counts)
                        .for_each(|(sum, count)| *sum += count),
                    None => sums.push((kind, counts)),
                }
            }
        }
        sums
    }

    fn lost(&self) -> u64 {
        self.unseen
            + self
                .skel
                .maps
                .bss_data
                .as_deref()
                .map_or(0, |bss| bss.control.missed)
    }

    fn is_crowded(&self) -> bool {
        let used = self.used();
        let room = self.room as u64;
        used > room / 2 && used > self.living + room / 8
    }
}
