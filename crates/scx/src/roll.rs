//! A roll of threads inside the kernel: `bpf/roll.bpf.c` loaded, and read.
//!
//! Input: threads. Output: what befell them and all that they gave birth to, and how long families of them ran.

use std::cell::RefCell;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::rc::Rc;

use countersteer_core::units::Nanos;
use countersteer_host::counters::{Family, Hear, Heard, Roll, ran, sees_all_threads};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{ErrorExt, Link, MapCore, MapFlags, PrintLevel, ProgramInput, RingBuffer, RingBufferBuilder};
use rustc_hash::FxHashMap;

use crate::fields::Types;
use crate::generated::roll::{RollSkel, RollSkelBuilder, shared, types};

/// What the kernel knows of its own types.
const BTF: &str = "/sys/kernel/btf/vmlinux";

/// How often families are looked at anew because threads were moved meanwhile.
const MOST_LOOKS: usize = 20;

const LEAST_ROOM: u32 = 8192;
const MOST_ROOM: u32 = 1 << 20;

/// A family that is on the roll.
struct Entered {
    /// What it is called inside the kernel: its place, and above that how often it was given to others.
    number: u64,
    /// Its first thread, if that may not have been met inside the kernel.
    not_met: Option<u32>,
}

impl Entered {
    const fn place(&self) -> [u8; 4] {
        (self.number as u32).to_ne_bytes()
    }
}

/// The programs inside the kernel; dropping this takes them out.
struct InKernel {
    links: Vec<Link>,
    ring: RingBuffer<'static>,
    told: Rc<RefCell<Vec<types::roll_event>>>,
    families: FxHashMap<u32, Entered>,
    /// Numbers that places of families had last, of those that are given back.
    spare: Vec<u64>,
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
    let settings = settings.ok_or_else(|| format!("{BTF} does not say where a thread's fields are"))?;
    // There is another way, so what the library would print helps nobody.
    let talk = libbpf_rs::get_print();
    libbpf_rs::set_print(Some((PrintLevel::Warn, |_, _| {})));
    let loaded = InKernel::load(settings);
    libbpf_rs::set_print(talk);
    loaded.map(|roll| Box::new(roll) as Box<dyn Roll>).map_err(|e| e.to_string())
}

/// Whether the thread of this number has entered with that family and was not met since; another one may have the number by now.
fn waits(entrants: &impl MapCore, tid: u32, family: u64) -> io::Result<bool> {
    let found = entrants.lookup(&tid.to_ne_bytes(), MapFlags::ANY).map_err(failed("looking for a thread"))?;
    Ok(found.is_some_and(|number| number == family.to_ne_bytes()))
}

/// For how many threads there is to be room: for many more than the machine has. Making it takes its time.
fn room() -> u32 {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let threads = load.split_whitespace().nth(3).and_then(|of| of.split('/').nth(1)?.parse::<u32>().ok());
    (threads.unwrap_or(0).saturating_mul(4)).clamp(LEAST_ROOM, MOST_ROOM)
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
    })
}

impl InKernel {
    fn load(settings: types::roll_settings) -> io::Result<Self> {
        // The skeleton borrows its object; a pointer's worth of memory is given up per load so that it may do so for ever.
        let place = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = RollSkelBuilder::default().open(place).map_err(failed("reading programs"))?;
        if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
            rodata.settings = settings;
        }
        let room = room();
        let maps = &mut open.maps;
        let sizes = [
            maps.followed.set_max_entries(room),
            maps.seats.set_max_entries(room),
            maps.spare.set_max_entries(room),
            maps.entrants.set_max_entries(room),
            maps.families.set_max_entries(room),
        ];
        sizes.into_iter().collect::<Result<(), _>>().map_err(failed("making room"))?;
        let mut skel = open.load().map_err(failed("loading programs"))?;
        let told = Rc::new(RefCell::new(Vec::new()));
        let taken = Rc::clone(&told);
        let take = move |bytes: &[u8]| {
            taken.borrow_mut().extend(crate::kernel::read::<types::roll_event>(bytes));
            0
        };
        let mut builder = RingBufferBuilder::new();
        builder.add(&skel.maps.ring, take).map_err(failed("opening the ring"))?;
        let ring = builder.build().map_err(failed("opening the ring"))?;
        let programs = &mut skel.progs;
        let links = [&mut programs.on_fork, &mut programs.on_exec, &mut programs.on_exit, &mut programs.on_free];
        let links = links.into_iter().map(|program| program.attach()).collect::<Result<_, _>>();
        let links = links.map_err(failed("attaching programs"))?;
        Ok(Self { links, ring, told, families: FxHashMap::default(), spare: Vec::new(), skel })
    }

    /// How long a family's first thread has run, if it has not been met since it entered.
    fn alone(&mut self, family: u32) -> io::Result<Nanos> {
        let Some(entered) = self.families.get_mut(&family) else { return Ok(Nanos::ZERO) };
        let Some(tid) = entered.not_met else { return Ok(Nanos::ZERO) };
        if waits(&self.skel.maps.entrants, tid, entered.number)? {
            return Ok(ran(tid).unwrap_or_default());
        }
        entered.not_met = None;
        Ok(Nanos::ZERO)
    }

    /// Threads that were being moved from one account to another so far, and those that have been.
    fn moved(&self) -> (u64, u64) {
        self.skel.maps.bss_data.as_deref().map_or((0, 0), |bss| {
            // SAFETY: plain integers in memory that the kernel writes too.
            unsafe { ((&raw const bss.moving).read_volatile(), (&raw const bss.moved).read_volatile()) }
        })
    }

    fn look(&mut self, wanted: &[u32], found: &mut Vec<(u32, Family)>) -> io::Result<()> {
        self.skel.progs.add_up.test_run(ProgramInput::default()).map_err(failed("adding up"))?;
        found.clear();
        for nr in wanted {
            let Some(entered) = self.families.get(nr) else { continue };
            let family = self.skel.maps.families.lookup(&entered.place(), MapFlags::ANY);
            let family = family.map_err(failed("looking at a family"))?;
            let Some(family) = family.and_then(|bytes| crate::kernel::read::<types::family>(&bytes)) else { continue };
            let ran_ns = family.ran_ns.wrapping_add(self.alone(*nr)?.0) as i64;
            found.push((*nr, Family { ran: Nanos(ran_ns.max(0) as u64), leaving: family.leaving }));
        }
        Ok(())
    }

    /// A number for a family, of a place that nobody has.
    fn number(&mut self) -> u64 {
        let again = self.spare.pop().map(|before| before + (1 << 32));
        again.unwrap_or_else(|| {
            let Some(bss) = self.skel.maps.bss_data.as_deref_mut() else { return 0 };
            bss.nr_families += 1;
            u64::from(bss.nr_families - 1)
        })
    }
}

impl Roll for InKernel {
    fn enter(&mut self, tid: u32, family: u32) -> io::Result<()> {
        let number = self.number();
        let entered = Entered { number, not_met: Some(tid) };
        let gone_ns = ran(tid).unwrap_or_default().0.wrapping_neg();
        let new = types::family { number, gone_ns, ..types::family::default() };
        // SAFETY: a structure of integers without padding that lives longer than the slice.
        let bytes = unsafe { std::slice::from_raw_parts((&raw const new).cast::<u8>(), size_of_val(&new)) };
        let maps = &self.skel.maps;
        maps.families.update(&entered.place(), bytes, MapFlags::ANY).map_err(failed("making room for a family"))?;
        let entry = maps.entrants.update(&tid.to_ne_bytes(), &number.to_ne_bytes(), MapFlags::ANY);
        entry.map_err(failed("making room for a thread"))?;
        self.families.insert(family, entered);
        Ok(())
    }

    fn hear(&mut self, hear: Hear<'_>) {
        // Only a callback that fails could fail, and the one here does not.
        let _ = self.ring.consume();
        for event in self.told.borrow_mut().drain(..) {
            let heard = match event.what {
                shared::ROLL_BORN => Heard::Born { pid: event.pid, parent: event.parent },
                shared::ROLL_STARTS => Heard::Starts(event.name.map(|letter| letter as u8)),
                _ => Heard::Ended,
            };
            hear(Nanos(event.at_ns), event.tid, heard);
        }
    }

    fn families(&mut self, wanted: &[u32], take: &mut dyn FnMut(u32, Family)) -> io::Result<()> {
        let mut found = Vec::with_capacity(wanted.len());
        // Who is moved from one account to another meanwhile may be in neither.
        for _ in 0..MOST_LOOKS {
            let before = self.moved();
            self.look(wanted, &mut found)?;
            if before.0 == before.1 && self.moved() == before {
                break;
            }
        }
        found.into_iter().for_each(|(nr, family)| take(nr, family));
        Ok(())
    }

    fn forget(&mut self, family: u32) {
        let Some(entered) = self.families.remove(&family) else { return };
        let entrants = &self.skel.maps.entrants;
        if let Some(tid) = entered.not_met.filter(|tid| waits(entrants, *tid, entered.number).unwrap_or(false)) {
            // One that is met at this moment need not be forgotten.
            let _ = entrants.delete(&tid.to_ne_bytes());
        }
        self.spare.push(entered.number);
    }

    fn lost(&self) -> u64 {
        self.skel.maps.bss_data.as_deref().map_or(0, |bss| {
            // SAFETY: a plain integer in memory that the kernel writes too.
            unsafe { (&raw const bss.lost).read_volatile() }
        })
    }

    fn file(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor belongs to the ring and lives as long.
        unsafe { BorrowedFd::borrow_raw(self.ring.epoll_fd()) }
    }
}
