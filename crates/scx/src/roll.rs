//! A roll of threads inside the kernel: `bpf/roll.bpf.c` loaded, and read.
//!
//! Input: threads. Output: what befell them and all that they gave birth to, and how long families of them ran.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::rc::Rc;

use countersteer_core::units::Nanos;
use countersteer_host::counters::{Family, Hear, Heard, Roll, ran, sees_all_threads};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{ErrorExt, Link, MapCore, MapFlags, ProgramInput, RingBuffer, RingBufferBuilder};
use rustc_hash::FxHashMap;

use crate::fields::Types;
use crate::follow::quietly;
use crate::generated::roll::{RollSkel, RollSkelBuilder, shared, types};

/// What the kernel knows of its own types.
const BTF: &str = "/sys/kernel/btf/vmlinux";

/// How often families are looked at anew because threads were moved meanwhile.
const MOST_LOOKS: usize = 20;

/// For how many threads there is to be room: for as many, or so many times as many as the machine has. Those that are born take but
/// a seat, those that enter more.
const BORN: (u32, u32) = (1 << 15, 16);
const ENTERED: (u32, u32) = (1 << 12, 4);
const MOST_ROOM: u32 = 1 << 20;

/// Memory for who is followed is taken when he is.
const NO_PREALLOC: u32 = 1;

/// How often a place of a family was given away, in its number.
const GENERATION: u64 = 1 << 32;

/// A family that is on the roll.
struct Entered {
    /// What it is called inside the kernel: its place, and above that how often that was given away.
    number: u64,
    /// Its first thread, as long as that is known by its number.
    not_met: Option<u32>,
}

const fn place(number: u64) -> [u8; 4] {
    (number as u32).to_ne_bytes()
}

/// The programs inside the kernel; dropping this takes them out.
struct InKernel {
    links: Vec<Link>,
    ring: RingBuffer<'static>,
    told: Rc<RefCell<Vec<types::roll_event>>>,
    families: FxHashMap<u32, Entered>,
    /// Numbers that places of families had last, of those that are given back.
    spare: VecDeque<u64>,
    skel: RollSkel<'static>,
}

// SAFETY: what the library has allocated, and what it shares with its callback, belongs to this value alone and goes where it goes.
unsafe impl Send for InKernel {}

impl Drop for InKernel {
    fn drop(&mut self) {
        // Nobody writes any more when maps go.
        self.links.clear();
    }
}

fn failed(what: &'static str) -> impl Fn(libbpf_rs::Error) -> io::Error {
    move |error| io::Error::other(error.context(what))
}

/// Loads an empty roll; says why that cannot be done.
///
/// # Errors
/// No privilege, a kernel that is too old.
pub fn load() -> Result<Box<dyn Roll>, String> {
    if !countersteer_host::doctor::may_load_programs(Path::new("/")) {
        return Err("that needs root, or CAP_BPF and CAP_PERFMON".into());
    }
    if !sees_all_threads(Path::new("/")) {
        return Err("threads have other numbers in the kernel than in this container".into());
    }
    let settings = std::fs::read(BTF).map_err(|e| format!("{BTF}: {e}"))?;
    let settings = Types::read(&settings).and_then(|types| settings_by(&types));
    let settings =
        settings.ok_or_else(|| format!("{BTF} does not say where a thread's fields are"))?;
    if ran(std::process::id()).is_none() {
        return Err(
            "the kernel does not say in /proc how long threads ran (CONFIG_SCHED_INFO)".into(),
        );
    }
    // There is another way, so what the library would print helps nobody.
    let loaded = quietly(|| InKernel::load(settings));
    loaded
        .map(|roll| Box::new(roll) as Box<dyn Roll>)
        .map_err(|e| e.to_string())
}

/// Threads that the machine has.
fn threads() -> u32 {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split_whitespace()
        .nth(3)
        .and_then(|of| of.split('/').nth(1)?.parse().ok())
        .unwrap_or(0)
}

fn room(threads: u32, (least, times): (u32, u32)) -> u32 {
    threads.saturating_mul(times).clamp(least, MOST_ROOM)
}

fn settings_by(types: &Types<'_>) -> Option<types::roll_settings> {
    let thread = types.structure("task_struct")?;
    let offset = |path: &[&str]| thread.offset(path);
    Some(types::roll_settings {
        pid: offset(&["pid"])?,
        tgid: offset(&["tgid"])?,
        flags: offset(&["flags"])?,
        state: offset(&["__state"])?,
        on_cpu: offset(&["on_cpu"])?,
        ran: offset(&["se", "sum_exec_runtime"])?,
        seats: 0,
    })
}

impl InKernel {
    fn load(settings: types::roll_settings) -> io::Result<Self> {
        // The skeleton borrows its object; a pointer's worth of memory is given up per load so that it may do so for ever.
        let place = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = RollSkelBuilder::default()
            .open(place)
            .map_err(failed("reading programs"))?;
        let threads = threads();
        let seats = room(threads, BORN);
        let families = room(threads, ENTERED);
        if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
            rodata.settings = types::roll_settings { seats, ..settings };
        }
        let maps = &mut open.maps;
        let sizes = [
            maps.followed.set_max_entries(seats),
            maps.followed.set_map_flags(NO_PREALLOC),
            maps.seats.set_max_entries(seats),
            maps.spare.set_max_entries(seats),
            maps.entrants.set_max_entries(families),
            maps.families.set_max_entries(families),
        ];
        sizes
            .into_iter()
            .collect::<Result<(), _>>()
            .map_err(failed("making room"))?;
        let mut skel = open.load().map_err(failed("loading programs"))?;
        let told = Rc::new(RefCell::new(Vec::new()));
        let taken = Rc::clone(&told);
        let take = move |bytes: &[u8]| {
            taken
                .borrow_mut()
                .extend(crate::kernel::read::<types::roll_event>(bytes));
            0
        };
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&skel.maps.ring, take)
            .map_err(failed("opening the ring"))?;
        let ring = builder.build().map_err(failed("opening the ring"))?;
        let programs = &mut skel.progs;
        let links = [
            &mut programs.on_birth,
            &mut programs.on_exec,
            &mut programs.on_exit,
            &mut programs.on_free,
        ];
        let links = links
            .into_iter()
            .map(|program| program.attach())
            .collect::<Result<_, _>>();
        let links = links.map_err(failed("attaching programs"))?;
        Ok(Self {
            links,
            ring,
            told,
            families: FxHashMap::default(),
            spare: VecDeque::new(),
            skel,
        })
    }

    /// What the kernel changes at any time.
    fn control(&self) -> *mut types::roll_control {
        self.skel
            .maps
            .bss_data
            .as_deref()
            .map_or(std::ptr::null_mut(), |bss| {
                (&raw const bss.control).cast_mut()
            })
    }

    /// Adds up, and takes in those families that no thread of which was moved meanwhile, or all.
    fn look(
        &mut self,
        wanted: &mut Vec<u32>,
        all: bool,
        take: &mut dyn FnMut(u32, Family),
    ) -> io::Result<()> {
        // Who is not met until then has run a little more by now than this, and is not counted twice.
        let alone = |nr| {
            self.families
                .get(nr)
                .and_then(|family| family.not_met)
                .and_then(ran)
                .unwrap_or_default()
        };
        let alone: Vec<Nanos> = wanted.iter().map(alone).collect();
        self.skel
            .progs
            .add_up
            .test_run(ProgramInput::default())
            .map_err(failed("adding up"))?;
        let mut failure = None;
        let mut alone = alone.into_iter();
        wanted.retain(|nr| {
            let alone = alone.next().unwrap_or_default();
            let Some(entered) = self.families.get_mut(nr) else {
                return false;
            };
            let family = match self
                .skel
                .maps
                .families
                .lookup(&place(entered.number), MapFlags::ANY)
            {
                Ok(bytes) => bytes.and_then(|bytes| crate::kernel::read::<types::family>(&bytes)),
                Err(error) => {
                    failure.get_or_insert(failed("looking at a family")(error));
                    None
                }
            };
            let Some(family) = family else { return false };
            if family.met != 0 {
                entered.not_met = None;
            }
            // It may have been met after it was added up.
            let whole = family.whole != 0 && family.begun == family.moves;
            if !whole && !all {
                return true;
            }
            let alone = if family.met == 0 { alone.0 } else { 0 };
            let ran_ns = family.ran_ns.wrapping_add(alone) as i64;
            // Who was being moved is missing, and is there before long.
            let leaving = family.leaving.max(u64::from(!whole));
            take(
                *nr,
                Family {
                    ran: Nanos(ran_ns.max(0) as u64),
                    leaving,
                },
            );
            false
        });
        failure.map_or(Ok(()), Err)
    }

    /// A number for a family, of a place that nobody has.
    fn number(&mut self) -> io::Result<u64> {
        // The one that was given back first: who belonged to it may be going still.
        if let Some(before) = self.spare.pop_front() {
            return Ok(before + GENERATION);
        }
        let control = self.control();
        if control.is_null() {
            return Err(io::Error::other("the programs have no memory of their own"));
        }
        // SAFETY: an integer in memory that the kernel shares and only reads; it lives as long as the programs.
        unsafe {
            let places = &raw mut (*control).families;
            let new = places.read_volatile();
            places.write_volatile(new + 1);
            Ok(GENERATION + u64::from(new))
        }
    }

    fn enter_as(&mut self, tid: u32, number: u64) -> io::Result<bool> {
        let Some(ran) = ran(tid) else {
            return Ok(false);
        };
        let new = types::family {
            number,
            gone_ns: ran.0.wrapping_neg(),
            ..types::family::default()
        };
        // SAFETY: a structure of integers without padding that lives longer than the slice.
        let bytes =
            unsafe { std::slice::from_raw_parts((&raw const new).cast::<u8>(), size_of_val(&new)) };
        let maps = &self.skel.maps;
        maps.families
            .update(&place(number), bytes, MapFlags::ANY)
            .map_err(failed("making room for a family"))?;
        let entry = maps
            .entrants
            .update(&tid.to_ne_bytes(), &number.to_ne_bytes(), MapFlags::ANY);
        entry.map_err(failed("making room for a thread"))?;
        Ok(true)
    }
}

impl Roll for InKernel {
    fn enter(&mut self, tid: u32, family: u32) -> io::Result<bool> {
        let number = self.number()?;
        let entered = self.enter_as(tid, number);
        if matches!(entered, Ok(true)) {
            self.families.insert(
                family,
                Entered {
                    number,
                    not_met: Some(tid),
                },
            );
        } else {
            self.spare.push_back(number);
        }
        entered
    }

    fn hear(&mut self, hear: Hear<'_>) {
        // Only a callback that fails could fail, and the one here does not.
        let _ = self.ring.consume();
        for event in self.told.borrow_mut().drain(..) {
            let heard = match event.what {
                shared::ROLL_BORN => Heard::Born {
                    pid: event.pid,
                    parent: event.parent,
                },
                shared::ROLL_STARTS => Heard::Starts(event.name.map(|letter| letter as u8)),
                _ => Heard::Ended,
            };
            hear(Nanos(event.at_ns), event.tid, heard);
        }
    }

    fn families(&mut self, wanted: &[u32], take: &mut dyn FnMut(u32, Family)) -> io::Result<()> {
        let mut wanted = wanted.to_vec();
        for look in 1..=MOST_LOOKS {
            self.look(&mut wanted, look == MOST_LOOKS, take)?;
            if wanted.is_empty() {
                break;
            }
        }
        Ok(())
    }

    fn forget(&mut self, family: u32) {
        let Some(entered) = self.families.remove(&family) else {
            return;
        };
        let entrants = &self.skel.maps.entrants;
        // Another one that has entered may have the number by now.
        let is_its = |tid: &u32| {
            let found = entrants
                .lookup(&tid.to_ne_bytes(), MapFlags::ANY)
                .ok()
                .flatten();
            found.is_some_and(|number| number == entered.number.to_ne_bytes())
        };
        if let Some(tid) = entered.not_met.filter(is_its) {
            // One that is met at this moment need not be forgotten.
            let _ = entrants.delete(&tid.to_ne_bytes());
        }
        self.spare.push_back(entered.number);
    }

    fn lost(&self) -> u64 {
        let control = self.control();
        // SAFETY: an integer in memory that the kernel writes too and that lives as long as the programs.
        if control.is_null() {
            0
        } else {
            unsafe { (&raw const (*control).lost).read_volatile() }
        }
    }

    fn file(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor belongs to the ring and lives as long.
        unsafe { BorrowedFd::borrow_raw(self.ring.epoll_fd()) }
    }
}
