//! Threads followed and counted inside the kernel: `bpf/follow.bpf.c` loaded, and read.
//!
//! Input: sets of events, CPUs, threads. Output: what was read of them and of all their descendants.

mod classes;
mod layout;
mod table;

use std::io;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use countersteer_core::units::{CpuId, Nanos};
use countersteer_host::counters::{CpuCounters, Errand, Follow, Hear, Heard, Kind};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{ErrorExt, Link, MapCore, MapFlags, PrintLevel, ProgramInput};
use rustc_hash::FxHashMap;

use crate::generated::adopt::{AdoptSkel, AdoptSkelBuilder};
use crate::generated::follow::{FollowSkel, FollowSkelBuilder, shared, types};
use classes::Classes;
use layout::Layout;
use table::{Entry, Plain, Table};

// SAFETY: structures of integers, as `follow.h` declares them.
unsafe impl Plain for types::seat {}
// SAFETY: likewise.
unsafe impl Plain for types::row {}
// SAFETY: likewise.
unsafe impl Plain for types::here {}

/// Fewest seats: of threads that live, and of those that ended since somebody last looked.
const LEAST_SEATS: usize = 4096;
/// Seats per CPU, if that is more: each gives birth to threads of its own.
const SEATS_PER_CPU: usize = 128;
/// What the program of switches is told: four words, all zero for who is only to be read.
const SWITCH_BYTES: usize = 4 * size_of::<u64>();
/// Runs a program on the CPU that is named.
const ON_CPU: u32 = 1;

/// What is known of who has a seat.
#[derive(Clone, Copy, Default)]
struct Known {
    /// How often it had changed.
    changes: u64,
    named: u32,
    /// What its number was, and its process's; 0 before it was told of.
    tid: u32,
    pid: u32,
}

impl Known {
    /// Whether nothing but counts is new of a seat.
    const fn is_nothing_new(self, state: u32, named: u32, renumbered_ns: u64) -> bool {
        let numbers = self.tid > 0 && (renumbered_ns == 0 || self.tid == self.pid);
        numbers && state == shared::SEAT_TAKEN && named == self.named
    }
}

/// Programs inside the kernel that follow threads; dropping it takes them out.
pub struct InKernel {
    links: Vec<Link>,
    seats: Table<types::seat>,
    rows: Table<types::row>,
    cpus: Table<types::here>,
    counters: CpuCounters,
    layout: Layout,
    classes: Classes,
    room: usize,
    /// Of those that were ever taken, as far as that was noticed.
    known: Vec<Known>,
    /// By seat: its counts as they were told last, and as they were when its thread got another number.
    told: Vec<u64>,
    before: FxHashMap<usize, Vec<u64>>,
    /// Whoever has had a CPU for less is not interrupted.
    sparing: Nanos,
    /// Threads whose ends were told at the last look, perhaps later than others took their numbers.
    parted: Vec<u32>,
    /// Threads that ended without having been seen to run.
    unseen: u64,
    /// Seats in use when they were last looked at.
    living: u64,
    adopting: Option<AdoptSkel<'static>>,
    counts: Vec<u64>,
    skel: FollowSkel<'static>,
}

// SAFETY: what the library has allocated belongs to this value alone, and nothing of it is tied to a thread.
unsafe impl Send for InKernel {}

impl Drop for InKernel {
    fn drop(&mut self) {
        // Nobody writes any more when memory is unmapped.
        self.links.clear();
    }
}

fn at(what: &'static str) -> impl Fn(libbpf_rs::Error) -> String {
    move |error| format!("{what}: {error}")
}

fn failed(what: &'static str) -> impl Fn(libbpf_rs::Error) -> io::Error {
    move |error| io::Error::other(error.context(what))
}

/// Loads what an errand needs; says why that cannot be done.
///
/// # Errors
/// No privilege, a kernel that is too old, too many events or types of cores.
pub fn load(errand: &Errand<'_>) -> Result<Box<dyn Follow>, String> {
    InKernel::load(errand).map(|inside| Box::new(inside) as Box<dyn Follow>)
}

/// Does it without the library printing anything.
pub(crate) fn quietly<T>(what: impl FnOnce() -> T) -> T {
    struct Talk<F: FnMut()>(F);
    impl<F: FnMut()> Drop for Talk<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    let talk = libbpf_rs::get_print();
    let _talk = Talk(|| _ = libbpf_rs::set_print(talk));
    libbpf_rs::set_print(Some((PrintLevel::Warn, |_, _| {})));
    what()
}

/// Seats for so many threads that are there already, and for those that will be born on so many CPUs.
fn room(cpus: usize, threads: usize) -> usize {
    LEAST_SEATS.max(SEATS_PER_CPU * cpus).max(2 * threads)
}

/// Whether somebody runs there who is followed.
fn is_busy(here: &Entry<'_, types::here>) -> bool {
    here.half(offset_of!(types::here, seat)) != shared::NONE
}

impl InKernel {
    fn load(errand: &Errand<'_>) -> Result<Self, String> {
        // Most who may not are told without trying, which takes time.
        if !countersteer_host::doctor::may_load_programs(Path::new("/")) {
            return Err("that needs root, or CAP_BPF and CAP_PERFMON".into());
        }
        let layout = Layout::of(errand.sets)?;
        let most = libbpf_rs::num_possible_cpus().map_err(at("asking for CPUs"))?;
        let classes = Classes::find(Path::new("/"), errand.cpus, errand.core_types, most);
        // What the library would print is an error of its own only where somebody insists.
        quietly(|| Self::load_for(errand, layout, classes))
    }

    fn load_for(errand: &Errand<'_>, layout: Layout, classes: Classes) -> Result<Self, String> {
        let nr_cpus = classes.of.len();
        let seats = room(errand.cpus.len(), errand.threads);
        let per_seat = classes.first.len() * layout.sets.len();
        if per_seat > shared::MAX_KINDS as usize {
            return Err(format!(
                "{per_seat} sets of events by class of CPUs, of {} at most",
                shared::MAX_KINDS
            ));
        }
        let rows = (seats + nr_cpus) * per_seat;
        // The skeleton borrows its object; a pointer's worth of memory is given up per load so that it may do so for ever.
        let place = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = FollowSkelBuilder::default()
            .open(place)
            .map_err(at("reading programs"))?;
        if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
            let settings = &mut rodata.settings;
            settings.seats = seats as u32;
            settings.kinds = per_seat as u32;
            settings.events = layout.places() as u32;
            settings.timed = u32::from(Layout::is_timed(errand.sets));
            settings.program = errand.program.unwrap_or(0);
        }
        // Nobody is adopted, so everybody is seen to end.
        open.progs.on_free.set_autoload(errand.program.is_none());
        let events = layout.places() * per_seat * nr_cpus;
        let sizes = [
            open.maps.followed.set_max_entries(2 * seats as u32),
            open.maps.seats.set_max_entries((seats + nr_cpus) as u32),
            open.maps.rows.set_max_entries(rows as u32),
            open.maps.cpus.set_max_entries(nr_cpus as u32),
            open.maps.spare.set_max_entries(seats as u32),
            open.maps.events.set_max_entries(events.max(1) as u32),
        ];
        sizes
            .into_iter()
            .collect::<Result<(), _>>()
            .map_err(at("making room"))?;
        let skel = open.load().map_err(at("loading programs"))?;
        let mapped = |e: io::Error| format!("mapping tables: {e}");
        let mut inside = Self {
            links: Vec::new(),
            seats: Table::map(&skel.maps.seats, seats + nr_cpus).map_err(mapped)?,
            rows: Table::map(&skel.maps.rows, rows).map_err(mapped)?,
            cpus: Table::map(&skel.maps.cpus, nr_cpus).map_err(mapped)?,
            counters: CpuCounters::default(),
            layout,
            classes,
            room: seats,
            known: Vec::new(),
            told: Vec::new(),
            before: FxHashMap::default(),
            sparing: errand.sparing,
            parted: Vec::new(),
            unseen: 0,
            living: 0,
            adopting: None,
            counts: Vec::new(),
            skel,
        };
        inside.count(errand)?;
        inside.counts.resize(inside.layout.width(), 0);
        let kinds = per_seat as u32;
        for cpu in 0..nr_cpus {
            inside.cpus.write(
                cpu,
                types::here {
                    seat: shared::NONE,
                    kind: kinds,
                    ..types::here::default()
                },
            );
            // Who stands there has neither a number nor a way.
            let tid = shared::NONE;
            let at = cpu as u32;
            inside.seats.write(
                seats + cpu,
                types::seat {
                    tid,
                    cpu: at,
                    ..types::seat::default()
                },
            );
        }
        inside.want(errand.program.and(Some(0)));
        if let Some(program) = errand.program {
            inside.take_seats(1).map_err(|e| e.to_string())?;
            let tid = program;
            let tgid = program;
            let cpu = shared::NONE;
            let state = shared::SEAT_TAKEN;
            inside.seats.write(
                0,
                types::seat {
                    tid,
                    tgid,
                    cpu,
                    state,
                    ..types::seat::default()
                },
            );
        }
        if errand.program.is_some() && !inside.layout.sets.is_empty() {
            inside.counters.switch(0, true).map_err(|e| e.to_string())?;
        }
        if errand.program.is_none() {
            // Found out now, while there is another way.
            inside.adopter().map_err(|e| e.to_string())?;
        }
        inside.attach().map_err(at("attaching programs"))?;
        Ok(inside)
    }

    /// Opens counters on CPUs and hands them over.
    fn count(&mut self, errand: &Errand<'_>) -> Result<(), String> {
        let counted = self.layout.counted(errand.sets);
        self.counters = CpuCounters::open(&counted, errand.cpus).map_err(|e| e.to_string())?;
        let wanted = |cpu| {
            counted
                .iter()
                .flatten()
                .filter(|event| event.on(cpu).is_some())
                .count()
        };
        if self.counters.events().len() < errand.cpus.iter().map(wanted).sum() {
            return Err("CPUs cannot count all that at once".into());
        }
        let sets = counted.len();
        let places = self.layout.places();
        for cpu in &self.classes.first {
            self.layout.add_class(&counted, *cpu);
        }
        let kinds = self.layout.counters.len();
        for event in self.counters.events() {
            let Some(class) = self.classes.of[event.cpu.index()] else {
                continue;
            };
            let kind = class as usize * sets + event.set as usize;
            let Some(place) = self.layout.counters[kind].place_of(event.place) else {
                continue;
            };
            let key = ((event.cpu.index() * kinds + kind) * places + place) as u32;
            let file = event.as_fd().as_raw_fd().to_ne_bytes();
            let update = self
                .skel
                .maps
                .events
                .update(&key.to_ne_bytes(), &file, MapFlags::ANY);
            update.map_err(at("handing counters over"))?;
        }
        Ok(())
    }

    fn attach(&mut self) -> libbpf_rs::Result<()> {
        let programs = &mut self.skel.progs;
        // Nobody is followed before the last one.
        self.links = vec![programs.on_switch.attach()?, programs.on_birth.attach()?];
        if programs.on_free.autoload() {
            self.links.push(programs.on_free.attach()?);
        }
        self.links.push(programs.on_name.attach()?);
        Ok(())
    }

    /// Reads or changes what both sides know.
    fn control<R>(&mut self, with: impl FnOnce(&mut types::follow_control) -> R) -> R {
        match self.skel.maps.bss_data.as_deref_mut() {
            Some(bss) => with(&mut bss.control),
            None => with(&mut types::follow_control::default()),
        }
    }

    /// It is this set's turn, or none's.
    fn want(&self, set: Option<u32>) {
        let sets = self.layout.sets.len() as u32;
        let kinds = self.kinds_per_seat() as u32;
        for (cpu, class) in self.classes.of.iter().enumerate() {
            let kind = class
                .zip(set)
                .map_or(kinds, |(class, set)| class * sets + set);
            self.cpus.store(cpu, offset_of!(types::here, wanted), kind);
        }
    }

    /// Seats that were ever taken.
    fn taken(&mut self) -> usize {
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

    /// Puts down what threads that run at this moment have counted so far, on CPUs of which that is to be done.
    fn read_running(&self, wanted: impl Fn(&Entry<'_, types::here>) -> bool) {
        let mut nobody = [0; SWITCH_BYTES];
        for cpu in (0..self.classes.of.len()).filter(|cpu| wanted(&self.cpus.entry(*cpu))) {
            let input = ProgramInput {
                context_in: Some(&mut nobody),
                cpu: cpu as u32,
                flags: ON_CPU,
                ..ProgramInput::default()
            };
            // A CPU that is offline runs nobody.
            let _ = self.skel.progs.on_switch.test_run(input);
        }
    }

    /// Kinds of counts that each thread has.
    fn kinds_per_seat(&self) -> usize {
        self.classes.first.len() * self.layout.sets.len()
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
    fn tell(&mut self, nr: usize, hear: Hear<'_>) -> bool {
        // Most threads have counted, and that is all.
        let (changes, (state, named, renumbered_ns, at_ns)) = self.settled(nr, |seats| {
            let seat = seats.entry(nr);
            let state = seat.half(offset_of!(types::seat, state));
            let named = seat.half(offset_of!(types::seat, named));
            (
                state,
                named,
                seat.field(offset_of!(types::seat, renumbered_ns)),
                seat.field(offset_of!(types::seat, at_ns)),
            )
        });
        let known = self.known[nr];
        if !known.is_nothing_new(state, named, renumbered_ns) {
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
        if known.named != seat.named || born {
            let since = if renumbered || !born {
                now
            } else {
                Nanos(seat.born_ns)
            };
            hear(
                since,
                tid,
                Heard::Named(seat.name.map(|letter| letter as u8)),
            );
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
    fn give_back(&mut self, nr: usize) {
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
    fn take_seats(&mut self, threads: usize) -> io::Result<usize> {
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

    fn adopter(&mut self) -> io::Result<&mut AdoptSkel<'static>> {
        if self.adopting.is_none() {
            let place = Box::leak(Box::new(MaybeUninit::uninit()));
            let mut open = AdoptSkelBuilder::default()
                .open(place)
                .map_err(failed("reading a program"))?;
            open.maps
                .followed
                .reuse_fd(self.skel.maps.followed.as_fd())
                .map_err(failed("sharing tables"))?;
            open.maps
                .seats
                .reuse_fd(self.skel.maps.seats.as_fd())
                .map_err(failed("sharing tables"))?;
            self.adopting = Some(open.load().map_err(failed("loading a program"))?);
        }
        self.adopting
            .as_mut()
            .ok_or_else(|| io::Error::other("no program"))
    }
}

impl Follow for InKernel {
    fn kinds(&self) -> Vec<Kind> {
        let sets = self.layout.sets.len();
        let kind = |(class, cpu): (usize, &CpuId), set: usize| {
            let present = self.layout.sets[set].present(&self.layout.counters[class * sets + set]);
            Kind {
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
        let mut seat = self.take_seats(threads.len())?;
        for some in threads.chunks(shared::MAX_ADOPTED as usize) {
            let adopter = self.adopter()?;
            let Some(bss) = adopter.maps.bss_data.as_deref_mut() else {
                break;
            };
            for (nth, (into, (pid, tid))) in bss.adoptions.iter_mut().zip(some).enumerate() {
                (into.tgid, into.tid, into.seat) = (*pid, *tid, (seat + nth) as u32);
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
            let needless = |nth: &usize| bss.adoptions[*nth].seat == shared::NONE;
            let needless: Vec<usize> = (0..some.len())
                .filter(needless)
                .map(|nth| seat + nth)
                .collect();
            needless.into_iter().for_each(|nr| self.give_back(nr));
            seat += some.len();
        }
        self.control(|control| {
            // SAFETY: an aligned integer that the kernel changes atomically, too.
            let generation =
                unsafe { std::sync::atomic::AtomicU64::from_ptr(&raw mut control.generation) };
            generation.fetch_add(1, std::sync::atomic::Ordering::AcqRel);
        });
        // Those that run at this moment do not have to leave their CPU first.
        self.read_running(|_| true);
        Ok(())
    }

    fn switch(&mut self, set: u32, on: bool) -> io::Result<()> {
        let switched = |e| io::Error::other(format!("{e}"));
        if on {
            self.counters.switch(set, true).map_err(switched)?;
        }
        self.want(on.then_some(set));
        // A CPU that is just passing from one thread to another may have seen the former set, and show only afterwards.
        for _ in 0..2 {
            let kind = |here: &Entry<'_, types::here>| here.half(offset_of!(types::here, kind));
            self.read_running(|here| {
                is_busy(here) && kind(here) != here.half(offset_of!(types::here, wanted))
            });
        }
        if !on {
            self.counters.switch(set, false).map_err(switched)?;
        }
        Ok(())
    }

    fn collect(&mut self, hear: Hear<'_>) {
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
        let now = now.map_or(u64::MAX, |t| {
            t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64
        });
        let sparing = self.sparing.0;
        self.read_running(|here| {
            is_busy(here)
                && now.saturating_sub(here.field(offset_of!(types::here, since_ns))) >= sparing
        });
        self.parted.clear();
        for nr in 0..self.taken() {
            if self.seats.changes(nr) != self.known[nr].changes && self.tell(nr, hear) {
                self.give_back(nr);
            }
        }
        self.living = self.control(|control| {
            // SAFETY: a plain integer in memory that the kernel writes too.
            unsafe { (&raw const control.taken).read_volatile() }.saturating_sub(control.given)
        });
    }

    fn living(&mut self) -> Vec<(u32, u32)> {
        let taken = self.taken();
        let seats = (0..taken).map(|nr| self.seats.read(nr));
        seats
            .filter(|seat| seat.state == shared::SEAT_TAKEN && seat.tid != 0)
            .map(|seat| match seat.renumbered_ns {
                0 => (seat.tgid, seat.tid),
                _ => (seat.tgid, seat.tgid),
            })
            .collect()
    }

    fn rest(&mut self) -> Vec<(usize, Vec<u64>)> {
        let seats = self.room;
        let kinds = self.kinds_per_seat();
        let mut sums: Vec<(usize, Vec<u64>)> = Vec::new();
        for cpu in 0..self.classes.of.len() {
            for kind in 0..kinds {
                let mut counts = vec![0; self.layout.span(kind).len()];
                let row = (seats + cpu) * kinds + kind;
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
        let used = |control: &types::follow_control| {
            // SAFETY: a plain integer in memory that the kernel writes too.
            unsafe { (&raw const control.taken).read_volatile() }.saturating_sub(control.given)
        };
        let used = self
            .skel
            .maps
            .bss_data
            .as_deref()
            .map_or(0, |bss| used(&bss.control));
        let room = self.room as u64;
        used > room / 2 && used > self.living + room / 8
    }
}
