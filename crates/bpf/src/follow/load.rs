//! Loading of the programs that follow threads, with tables of the requested sizes.
//!
//! Input: events, CPUs, number of threads. Output: attached programs, or the reason for which there are none.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use countersteer_counters::{BpfRequest, CpuCounters};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags};
use rustc_hash::FxHashMap;

use super::InKernel;
use super::classes::CpuClasses;
use super::judging::Judging;
use super::layout::FollowLayout;
use super::table::FollowTable;
use crate::generated::adopt::{AdoptSkel, AdoptSkelBuilder};
use crate::generated::follow::{FollowSkel, FollowSkelBuilder, shared, types};
use crate::object::{at, failed, place, quietly};

/// Minimum number of slots: for live threads, and those that have exited since the last collection.
const LEAST_SLOTS: usize = 4096;
/// Slots per CPU, if that is more: each CPU forks threads of its own.
const SLOTS_PER_CPU: usize = 128;

/// Rows of the tables.
struct TableSizes {
    cpus: usize,
    slots: usize,
    /// Sets of events by class of CPUs: rows of counts per slot.
    per_slot: usize,
}

impl TableSizes {
    fn of(
        request: &BpfRequest<'_>,
        layout: &FollowLayout,
        classes: &CpuClasses,
    ) -> Result<Self, String> {
        let per_slot = classes.first.len() * layout.sets.len();
        if per_slot > shared::MAX_KINDS as usize {
            return Err(format!(
                "{per_slot} sets of events by class of CPUs, of {} at most",
                shared::MAX_KINDS
            ));
        }
        // Room for the existing threads, and for those that will be created on these CPUs.
        let created = LEAST_SLOTS.max(SLOTS_PER_CPU * request.cpus.len());
        Ok(Self {
            cpus: classes.of.len(),
            slots: created.max(2 * request.threads),
            per_slot,
        })
    }

    /// One more slot per CPU, for threads without a slot of their own.
    const fn all_slots(&self) -> usize {
        self.slots + self.cpus
    }

    const fn rows(&self) -> usize {
        self.all_slots() * self.per_slot
    }
}

/// Programs with tables of these sizes, in the kernel but not attached.
fn skeleton(
    request: &BpfRequest<'_>,
    layout: &FollowLayout,
    sizes: &TableSizes,
    judging: Option<&Judging>,
) -> Result<FollowSkel<'static>, String> {
    let mut open = FollowSkelBuilder::default()
        .open(place())
        .map_err(at("reading programs"))?;
    if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
        let settings = &mut rodata.settings;
        settings.slots = sizes.slots as u32;
        settings.kinds = sizes.per_slot as u32;
        settings.sets = layout.sets.len() as u32;
        settings.events = layout.places() as u32;
        settings.timed = u32::from(FollowLayout::is_timed(request.sets));
        settings.program = request.program.unwrap_or(0);
    }
    // No thread is adopted, so the exit of each is seen.
    open.progs.on_free.set_autoload(request.program.is_none());
    open.progs.on_switch.set_autoload(judging.is_none());
    open.progs.on_switch_judging.set_autoload(judging.is_some());
    let events = layout.places() * sizes.per_slot * sizes.cpus;
    let maps = &mut open.maps;
    let judged = judging.map_or(1, |_| sizes.slots as u32);
    let shared = match judging {
        Some(judging) => maps.metrics.reuse_fd(judging.metrics()),
        None => maps.metrics.set_max_entries(1),
    };
    let made = [
        shared,
        maps.judgements.set_max_entries(judged),
        maps.followed.set_max_entries(2 * sizes.slots as u32),
        maps.slots.set_max_entries(sizes.all_slots() as u32),
        maps.rows.set_max_entries(sizes.rows() as u32),
        maps.cpus.set_max_entries(sizes.cpus as u32),
        maps.spare.set_max_entries(sizes.slots as u32),
        maps.events.set_max_entries(events.max(1) as u32),
    ];
    let made: Result<(), _> = made.into_iter().collect();
    made.map_err(at("making room"))?;
    open.load().map_err(at("loading programs"))
}

impl InKernel {
    pub(super) fn load(
        request: &BpfRequest<'_>,
        judging: Option<&Judging>,
    ) -> Result<Self, String> {
        // An attempt takes time: most users without the privilege get the answer without it.
        if !countersteer_counters::may_load_programs(Path::new("/")) {
            return Err("that needs root, or CAP_BPF and CAP_PERFMON".into());
        }
        let layout = FollowLayout::of(request.sets)?;
        let most = libbpf_rs::num_possible_cpus().map_err(at("asking for CPUs"))?;
        let classes = CpuClasses::find(Path::new("/"), request.cpus, request.core_types, most);
        // The library's messages are errors only if BPF was requested.
        quietly(|| Self::load_for(request, layout, classes, judging))
    }

    fn load_for(
        request: &BpfRequest<'_>,
        layout: FollowLayout,
        classes: CpuClasses,
        judging: Option<&Judging>,
    ) -> Result<Self, String> {
        let sizes = TableSizes::of(request, &layout, &classes)?;
        let judging = judging.filter(|judging| judging.suits(request, &classes));
        let skel = skeleton(request, &layout, &sizes, judging)?;
        let mapped = |e: io::Error| format!("mapping tables: {e}");
        let mut inside = Self {
            links: Vec::new(),
            slots: FollowTable::map(&skel.maps.slots, sizes.all_slots()).map_err(mapped)?,
            rows: FollowTable::map(&skel.maps.rows, sizes.rows()).map_err(mapped)?,
            cpus: FollowTable::map(&skel.maps.cpus, sizes.cpus).map_err(mapped)?,
            counters: CpuCounters::default(),
            layout,
            classes,
            room: sizes.slots,
            last_reports: Vec::new(),
            reported: Vec::new(),
            before: FxHashMap::default(),
            spacing: request.spacing,
            exited: Vec::new(),
            unseen: 0,
            living: 0,
            adopting: None,
            counts: Vec::new(),
            skel,
        };
        inside.count(request)?;
        inside.counts.resize(inside.layout.width(), 0);
        if let Some(judging) = judging {
            judging.set_judges(inside.model(request, judging));
        }
        inside.prepare_cpus(&sizes);
        inside.want(request.program.and(Some(0)));
        match request.program {
            Some(program) => inside.slot_program(program)?,
            // Failures show now, while there is an alternative.
            None => inside.adopter().map(drop).map_err(|e| e.to_string())?,
        }
        inside.attach().map_err(at("attaching programs"))?;
        Ok(inside)
    }

    /// Initialises the state of CPUs: no followed thread runs on any of them yet.
    fn prepare_cpus(&self, sizes: &TableSizes) {
        for cpu in 0..sizes.cpus {
            let here = types::cpu_state {
                slot: shared::NONE,
                kind: sizes.per_slot as u32,
                ..types::cpu_state::default()
            };
            self.cpus.write(cpu, here);
            // The threads that share this slot have no TID, and no migrations.
            let slot = types::slot {
                tid: shared::NONE,
                cpu: cpu as u32,
                ..types::slot::default()
            };
            self.slots.write(sizes.slots + cpu, slot);
        }
    }

    /// Gives the program that is about to start the first slot, and switches its counters on.
    fn slot_program(&mut self, program: u32) -> Result<(), String> {
        self.take_slots(1).map_err(|e| e.to_string())?;
        let slot = types::slot {
            tid: program,
            tgid: program,
            cpu: shared::NONE,
            state: shared::SLOT_TAKEN,
            ..types::slot::default()
        };
        self.slots.write(0, slot);
        if self.layout.sets.is_empty() {
            return Ok(());
        }
        self.counters.switch(0, true).map_err(|e| e.to_string())
    }

    /// Opens counters on CPUs and passes them to the programs.
    fn count(&mut self, request: &BpfRequest<'_>) -> Result<(), String> {
        let counted = self.layout.counted(request.sets);
        self.counters = CpuCounters::open(&counted, request.cpus).map_err(|e| e.to_string())?;
        let wanted = |cpu| {
            counted
                .iter()
                .flatten()
                .filter(|event| event.on(cpu).is_some())
                .count()
        };
        if self.counters.events().len() < request.cpus.iter().map(wanted).sum() {
            return Err("CPUs cannot count all that at once".into());
        }
        for cpu in &self.classes.first {
            self.layout.add_class(&counted, *cpu);
        }
        self.hand_over()
    }

    /// Passes counters to the programs.
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

    /// Opens the counters of CPUs again that are back online.
    pub(super) fn renew(&mut self) -> Result<(), String> {
        if self.counters.renew().map_err(|e| e.to_string())? {
            self.hand_over()?;
        }
        Ok(())
    }

    fn attach(&mut self) -> libbpf_rs::Result<()> {
        let programs = &self.skel.progs;
        // No thread is followed before the last program is attached.
        self.links = vec![self.on_switch().attach()?, programs.on_fork.attach()?];
        if programs.on_free.autoload() {
            self.links.push(programs.on_free.attach()?);
        }
        self.links.push(programs.on_exec.attach()?);
        self.links.push(programs.on_name.attach()?);
        Ok(())
    }

    pub(super) fn adopter(&mut self) -> io::Result<&mut AdoptSkel<'static>> {
        if self.adopting.is_none() {
            let mut open = AdoptSkelBuilder::default()
                .open(place())
                .map_err(failed("reading a program"))?;
            open.maps
                .followed
                .reuse_fd(self.skel.maps.followed.as_fd())
                .map_err(failed("sharing tables"))?;
            open.maps
                .slots
                .reuse_fd(self.skel.maps.slots.as_fd())
                .map_err(failed("sharing tables"))?;
            self.adopting = Some(open.load().map_err(failed("loading a program"))?);
        }
        self.adopting
            .as_mut()
            .ok_or_else(|| io::Error::other("no program"))
    }
}
