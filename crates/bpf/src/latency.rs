//! Run-queue latency of threads, measured inside the kernel: `bpf/latency.bpf.c` loaded, and read.
//!
//! Input: processes. Output: histograms of the run-queue latency of their threads, and of all their descendants'.

use std::mem::size_of;

use countersteer_sysfs::procfs::PROC;
use countersteer_sysfs::waits::{Histogram, MeasuredWaits, ThreadWaits, WaitSource, Waits, Whose};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags};
use rustc_hash::FxHashMap;

use crate::generated::latency::{LatencySkel, LatencySkelBuilder, shared, types};
use crate::object::{at, place, quietly};

const _: () = assert!(
    shared::BUCKETS as usize == Histogram::BUCKETS
        && shared::GRAIN_BITS == Histogram::GRAIN_BITS
        && shared::SUB_BITS == Histogram::SUB_BITS,
    "both sides have the same buckets"
);

/// Room for threads: live ones, and those that ended since the last read.
const ROOM: u32 = 4096;
/// Limit on the processes that can be followed at a time.
const PROCESSES: u32 = 16_384;
const REASONS: usize = shared::REASONS as usize;

/// Programs inside the kernel that measure run-queue latency; a drop detaches them.
pub struct LatencyPrograms {
    links: Vec<Link>,
    skel: LatencySkel<'static>,
    /// Last values of live threads.
    before: FxHashMap<LatencyKey, LatencyRow>,
}

/// Key and row of the kernel's table, as bytes.
type LatencyKey = [u8; size_of::<types::thread_key>()];

#[derive(Clone, Debug, Default)]
struct LatencyRow {
    total_ns: u64,
    buckets: [Vec<u32>; REASONS],
}

// SAFETY: the library's allocations belong to this value alone, and nothing of them is tied to a thread.
unsafe impl Send for LatencyPrograms {}

impl Drop for LatencyPrograms {
    fn drop(&mut self) {
        self.links.clear();
    }
}

/// Loads the programs.
///
/// # Errors
/// Returns the reason: no privilege, or a kernel that is too old or has no type information.
pub fn load(whose: &Whose) -> Result<Box<dyn WaitSource>, String> {
    quietly(|| LatencyPrograms::load(whose)).map(|latency| Box::new(latency) as Box<dyn WaitSource>)
}

impl LatencyPrograms {
    fn load(whose: &Whose) -> Result<Self, String> {
        let mut open = LatencySkelBuilder::default()
            .open(place())
            .map_err(at("reading programs that measure waits"))?;
        if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
            rodata.settings.ancestor = if whose.children {
                std::process::id()
            } else {
                0
            };
            rodata.settings.everyone = u32::from(whose.all);
        }
        let sizes = [
            open.maps.processes.set_max_entries(PROCESSES),
            open.maps.threads.set_max_entries(ROOM),
        ];
        sizes
            .into_iter()
            .collect::<Result<(), _>>()
            .map_err(at("making room"))?;
        let mut skel = open
            .load()
            .map_err(at("loading programs that measure waits"))?;
        let attach = at("attaching programs that measure waits");
        let programs = &mut skel.progs;
        let links = vec![
            programs.on_switch.attach().map_err(&attach)?,
            programs.on_wakeup.attach().map_err(&attach)?,
            programs.on_free.attach().map_err(&attach)?,
            programs.on_fork.attach().map_err(&attach)?,
        ];
        let mut latency = Self {
            links,
            skel,
            before: FxHashMap::default(),
        };
        whose.pids.iter().for_each(|pid| latency.follow(*pid));
        Ok(latency)
    }

    /// New latencies of a thread with this row; `None` if there are none.
    fn news(&mut self, key: LatencyKey, value: &[u8]) -> Option<ThreadWaits> {
        let row = ThreadLatency::parse(value)?;
        let before = self.before.remove(&key).unwrap_or_default();
        let since = |reason: usize| {
            let old = &before.buckets[reason];
            let new = row.row.buckets[reason].iter().enumerate();
            let counts: Vec<u64> = new
                .map(|(i, n)| u64::from(n.wrapping_sub(old.get(i).copied().unwrap_or(0))))
                .collect();
            Histogram::from_buckets(&counts)
        };
        let measured = MeasuredWaits {
            woken: since(shared::WOKEN as usize),
            preempted: since(shared::PREEMPTED as usize),
            longest_ns: row.longest_ns,
        };
        let times = measured.woken.count() + measured.preempted.count();
        let waits = Waits {
            times,
            total_ns: row.row.total_ns.saturating_sub(before.total_ns),
            measured: Some(measured),
        };
        let number = |at: usize| u32::from_ne_bytes(key[at..at + 4].try_into().unwrap_or_default());
        let (tid, pid) = (number(8), number(12));
        if row.ended {
            let _ = self.skel.maps.threads.delete(&key);
        } else {
            self.before.insert(key, row.row);
        }
        (times > 0 || row.ended).then(|| ThreadWaits {
            pid,
            tid,
            name: row.name.or_else(|| PROC.name(tid)).unwrap_or_default(),
            ended: row.ended,
            waits,
        })
    }
}

/// Row of a thread, as read.
struct ThreadLatency {
    row: LatencyRow,
    longest_ns: u64,
    ended: bool,
    /// Name of a thread that ended.
    name: Option<String>,
}

impl ThreadLatency {
    fn parse(value: &[u8]) -> Option<Self> {
        use std::mem::offset_of;
        let at = |offset: usize, size: usize| value.get(offset..offset + size);
        let long = |offset| Some(u64::from_ne_bytes(at(offset, 8)?.try_into().ok()?));
        let int = |offset| Some(u32::from_ne_bytes(at(offset, 4)?.try_into().ok()?));
        let total = offset_of!(types::thread_waits, total_ns);
        let buckets = offset_of!(types::thread_waits, buckets);
        let mut row = LatencyRow::default();
        for reason in 0..REASONS {
            row.total_ns += long(total + 8 * reason)?;
            let first = buckets + 4 * reason * Histogram::BUCKETS;
            row.buckets[reason] = (0..Histogram::BUCKETS)
                .map(|i| int(first + 4 * i))
                .collect::<Option<_>>()?;
        }
        let name = at(offset_of!(types::thread_waits, name), 16)?;
        let name: Vec<u8> = name.iter().copied().take_while(|b| *b != 0).collect();
        let ended = int(offset_of!(types::thread_waits, ended))? != 0;
        Some(Self {
            row,
            longest_ns: long(offset_of!(types::thread_waits, longest_ns))?,
            ended,
            name: ended.then(|| String::from_utf8_lossy(&name).into_owned()),
        })
    }
}

impl WaitSource for LatencyPrograms {
    fn follow(&mut self, pid: u32) {
        let yes = 1u32.to_ne_bytes();
        // A process that does not fit is counted as lost when its threads wait.
        let _ = self
            .skel
            .maps
            .processes
            .update(&pid.to_ne_bytes(), &yes, MapFlags::ANY);
    }

    fn follow_thread(&mut self, tid: u32, _: bool) -> Option<u32> {
        let pid = PROC.process_of(tid)?;
        self.follow(pid);
        Some(pid)
    }

    fn read(&mut self, hear: &mut dyn FnMut(ThreadWaits)) {
        let keys: Vec<LatencyKey> = self
            .skel
            .maps
            .threads
            .keys()
            .filter_map(|key| key.try_into().ok())
            .collect();
        for key in keys {
            let Ok(Some(value)) = self.skel.maps.threads.lookup(&key, MapFlags::ANY) else {
                continue;
            };
            if let Some(news) = self.news(key, &value) {
                hear(news);
            }
        }
    }

    fn lost(&self) -> bool {
        let bss = self.skel.maps.bss_data.as_deref();
        bss.is_some_and(|bss| bss.control.missed > 0)
    }
}
