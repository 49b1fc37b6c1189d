//! Loading the programs that follow threads, with tables of the sizes that are asked for.
//!
//! Input: what is to be counted, where, of how many threads. Output: programs that are attached, or why there are none.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use countersteer_counters::{CpuCounters, Errand};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{ErrorExt, MapCore, MapFlags, PrintLevel};
use rustc_hash::FxHashMap;

use super::InKernel;
use super::classes::Classes;
use super::judging::{self, Judging};
use super::layout::Layout;
use super::table::Table;
use crate::generated::adopt::{AdoptSkel, AdoptSkelBuilder};
use crate::generated::follow::{FollowSkel, FollowSkelBuilder, shared, types};

/// Fewest seats: of threads that live, and of those that ended since somebody last looked.
const LEAST_SEATS: usize = 4096;
/// Seats per CPU, if that is more: each gives birth to threads of its own.
const SEATS_PER_CPU: usize = 128;

/// Rows of the tables.
struct Sizes {
    cpus: usize,
    seats: usize,
    /// Sets of events by class of CPUs: rows of counts that each seat has.
    per_seat: usize,
}

impl Sizes {
    fn of(errand: &Errand<'_>, layout: &Layout, classes: &Classes) -> Result<Self, String> {
        let per_seat = classes.first.len() * layout.sets.len();
        if per_seat > shared::MAX_KINDS as usize {
            return Err(format!(
                "{per_seat} sets of events by class of CPUs, of {} at most",
                shared::MAX_KINDS
            ));
        }
        // Room for so many threads that are there already, and for those that will be created on so many CPUs.
        let created = LEAST_SEATS.max(SEATS_PER_CPU * errand.cpus.len());
        Ok(Self {
            cpus: classes.of.len(),
            seats: created.max(2 * errand.threads),
            per_seat,
        })
    }

    /// A seat for each CPU, too, where what nobody has is counted.
    const fn all_seats(&self) -> usize {
        self.seats + self.cpus
    }

    const fn rows(&self) -> usize {
        self.all_seats() * self.per_seat
    }
}

pub(super) fn at(what: &'static str) -> impl Fn(libbpf_rs::Error) -> String {
    move |error| format!("{what}: {error}")
}

pub(super) fn failed(what: &'static str) -> impl Fn(libbpf_rs::Error) -> io::Error {
    move |error| io::Error::other(error.context(what))
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

/// The programs with tables of these sizes, in the kernel but not attached.
fn skeleton(
    errand: &Errand<'_>,
    layout: &Layout,
    sizes: &Sizes,
    judging: Option<&Judging>,
) -> Result<FollowSkel<'static>, String> {
    // The skeleton borrows its object; a pointer's worth of memory is given up per load so that it may do so for ever.
    let place = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut open = FollowSkelBuilder::default()
        .open(place)
        .map_err(at("reading programs"))?;
    if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
        let settings = &mut rodata.settings;
        settings.seats = sizes.seats as u32;
        settings.kinds = sizes.per_seat as u32;
        settings.sets = layout.sets.len() as u32;
        settings.events = layout.places() as u32;
        settings.timed = u32::from(Layout::is_timed(errand.sets));
        settings.program = errand.program.unwrap_or(0);
        settings.judging = u32::from(judging.is_some());
    }
    // Nobody is adopted, so everybody is seen to end.
    open.progs.on_free.set_autoload(errand.program.is_none());
    let events = layout.places() * sizes.per_seat * sizes.cpus;
    let maps = &mut open.maps;
    let judged = judging.map_or(1, |_| sizes.seats as u32);
    let shared = match judging {
        Some(judging) => maps.metrics.reuse_fd(judging.metrics()),
        None => maps.metrics.set_max_entries(1),
    };
    let made = [
        shared,
        maps.judgements.set_max_entries(judged),
        maps.followed.set_max_entries(2 * sizes.seats as u32),
        maps.seats.set_max_entries(sizes.all_seats() as u32),
        maps.rows.set_max_entries(sizes.rows() as u32),
        maps.cpus.set_max_entries(sizes.cpus as u32),
        maps.spare.set_max_entries(sizes.seats as u32),
        maps.events.set_max_entries(events.max(1) as u32),
    ];
    let made: Result<(), _> = made.into_iter().collect();
    made.map_err(at("making room"))?;
    open.load().map_err(at("loading programs"))
}

impl InKernel {
    pub(super) fn load(errand: &Errand<'_>, judging: Option<&Judging>) -> Result<Self, String> {
        // Most who may not are told without trying, which takes time.
        if !countersteer_counters::may_load_programs(Path::new("/")) {
            return Err("that needs root, or CAP_BPF and CAP_PERFMON".into());
        }
        let layout = Layout::of(errand.sets)?;
        let most = libbpf_rs::num_possible_cpus().map_err(at("asking for CPUs"))?;
        let classes = Classes::find(Path::new("/"), errand.cpus, errand.core_types, most);
        // What the library would print is an error of its own only where somebody insists.
        quietly(|| Self::load_for(errand, layout, classes, judging))
    }

    fn load_for(
        errand: &Errand<'_>,
        layout: Layout,
        classes: Classes,
        judging: Option<&Judging>,
    ) -> Result<Self, String> {
        let sizes = Sizes::of(errand, &layout, &classes)?;
        let judging = judging.filter(|_| judging::fits(&layout, &classes));
        let skel = skeleton(errand, &layout, &sizes, judging)?;
        let mapped = |e: io::Error| format!("mapping tables: {e}");
        let mut inside = Self {
            links: Vec::new(),
            seats: Table::map(&skel.maps.seats, sizes.all_seats()).map_err(mapped)?,
            rows: Table::map(&skel.maps.rows, sizes.rows()).map_err(mapped)?,
            cpus: Table::map(&skel.maps.cpus, sizes.cpus).map_err(mapped)?,
            counters: CpuCounters::default(),
            layout,
            classes,
            room: sizes.seats,
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
        if let Some(judging) = judging {
            judging.set_judges(inside.model(errand, judging));
        }
        inside.prepare_cpus(&sizes);
        inside.want(errand.program.and(Some(0)));
        match errand.program {
            Some(program) => inside.seat_program(program)?,
            // Found out now, while there is another way.
            None => inside.adopter().map(drop).map_err(|e| e.to_string())?,
        }
        inside.attach().map_err(at("attaching programs"))?;
        Ok(inside)
    }

    /// No thread that is followed runs on any CPU yet.
    fn prepare_cpus(&self, sizes: &Sizes) {
        for cpu in 0..sizes.cpus {
            let here = types::here {
                seat: shared::NONE,
                kind: sizes.per_seat as u32,
                ..types::here::default()
            };
            self.cpus.write(cpu, here);
            // Who stands there has neither a number nor a way.
            let seat = types::seat {
                tid: shared::NONE,
                cpu: cpu as u32,
                ..types::seat::default()
            };
            self.seats.write(sizes.seats + cpu, seat);
        }
    }

    /// Gives the program that is about to start the first seat, and switches its counters on.
    fn seat_program(&mut self, program: u32) -> Result<(), String> {
        self.take_seats(1).map_err(|e| e.to_string())?;
        let seat = types::seat {
            tid: program,
            tgid: program,
            cpu: shared::NONE,
            state: shared::SEAT_TAKEN,
            ..types::seat::default()
        };
        self.seats.write(0, seat);
        if self.layout.sets.is_empty() {
            return Ok(());
        }
        self.counters.switch(0, true).map_err(|e| e.to_string())
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
        for cpu in &self.classes.first {
            self.layout.add_class(&counted, *cpu);
        }
        self.hand_over()
    }

    /// Hands counters over to the programs.
    fn hand_over(&self) -> Result<(), String> {
        let sets = self.layout.sets.len();
        let places = self.layout.places();
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

    /// Takes counters anew of CPUs that are back.
    pub(super) fn renew(&mut self) -> Result<(), String> {
        if self.counters.renew().map_err(|e| e.to_string())? {
            self.hand_over()?;
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
        self.links.push(programs.on_exec.attach()?);
        self.links.push(programs.on_name.attach()?);
        Ok(())
    }

    pub(super) fn adopter(&mut self) -> io::Result<&mut AdoptSkel<'static>> {
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
