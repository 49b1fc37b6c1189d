//! Events that every Linux knows by a portable name, and whether this machine counts them.
//!
//! One table: event strings, `steer events` and error messages read it.

use std::io;

use countersteer_core::sample::Event;

use super::sys::{self, Attr, Scope, abi};

/// An event of the kernel's own numbering.
#[derive(Clone, Copy, Debug)]
pub struct CatalogRow {
    pub name: &'static str,
    /// Other names, those of perf and PMCTrack among them; `-` and `_` are the same in all.
    pub aliases: &'static [&'static str],
    /// The kernel's type: hardware, software, cache.
    pub kind: u32,
    pub config: u64,
    /// The unit of a count; empty for plain counts.
    pub unit: &'static str,
    /// It happens in the kernel: counting user mode only would show zero.
    pub in_kernel: bool,
    pub prose: &'static str,
}

const HARDWARE: u32 = abi::PERF_TYPE_HARDWARE;
const SOFTWARE: u32 = abi::PERF_TYPE_SOFTWARE;
const CACHE: u32 = abi::PERF_TYPE_HW_CACHE;

/// The clock that leads groups.
pub(super) const TASK_CLOCK: u64 = abi::PERF_COUNT_SW_TASK_CLOCK as u64;

const fn row(
    name: &'static str,
    aliases: &'static [&'static str],
    (kind, config): (u32, u64),
    prose: &'static str,
) -> CatalogRow {
    CatalogRow {
        name,
        aliases,
        kind,
        config,
        unit: "",
        in_kernel: false,
        prose,
    }
}

const fn clock(name: &'static str, config: u64, prose: &'static str) -> CatalogRow {
    CatalogRow {
        unit: "ns",
        ..row(name, &[], (SOFTWARE, config), prose)
    }
}

const fn in_kernel(row: CatalogRow) -> CatalogRow {
    CatalogRow {
        in_kernel: true,
        ..row
    }
}

/// Cache events: cache, then what is done (8 bits up), then hit or miss (16 bits up).
const fn cache(cache: u64, miss: bool) -> (u32, u64) {
    (CACHE, cache | (miss as u64) << 16)
}

pub static CATALOG: &[CatalogRow] = &[
    row(
        "instructions",
        &["instr", "inst", "instructions_retired"],
        (HARDWARE, 1),
        "instructions retired",
    ),
    row(
        "cycles",
        &["cpu_cycles", "unhalted_core_cycles"],
        (HARDWARE, 0),
        "core cycles while not halted",
    ),
    row(
        "llc_references",
        &["cache_references"],
        (HARDWARE, 2),
        "accesses to the last-level cache",
    ),
    row(
        "llc_misses",
        &["cache_misses"],
        (HARDWARE, 3),
        "accesses that missed the last-level cache",
    ),
    row(
        "branches",
        &["branch_instructions"],
        (HARDWARE, 4),
        "branches retired",
    ),
    row(
        "branch_misses",
        &["branch_mispredictions"],
        (HARDWARE, 5),
        "mispredicted branches",
    ),
    row("bus_cycles", &[], (HARDWARE, 6), "cycles of the bus"),
    row(
        "stalled_cycles_frontend",
        &[],
        (HARDWARE, 7),
        "cycles in which nothing was fetched or decoded",
    ),
    row(
        "stalled_cycles_backend",
        &[],
        (HARDWARE, 8),
        "cycles in which nothing was executed",
    ),
    row(
        "ref_cycles",
        &["unhalted_reference_cycles"],
        (HARDWARE, 9),
        "cycles at constant frequency while not halted",
    ),
    row(
        "l1d_loads",
        &["l1_dcache_loads"],
        cache(0, false),
        "loads from the level-one data cache",
    ),
    row(
        "l1d_load_misses",
        &["l1_dcache_load_misses"],
        cache(0, true),
        "loads that missed the level-one data cache",
    ),
    row(
        "l1i_load_misses",
        &["l1_icache_load_misses"],
        cache(1, true),
        "fetches that missed the level-one cache",
    ),
    row(
        "llc_loads",
        &[],
        cache(2, false),
        "loads from the last-level cache",
    ),
    row(
        "llc_load_misses",
        &[],
        cache(2, true),
        "loads that missed the last-level cache",
    ),
    row(
        "dtlb_load_misses",
        &[],
        cache(3, true),
        "loads that missed the data TLB",
    ),
    row(
        "itlb_load_misses",
        &[],
        cache(4, true),
        "fetches that missed the instruction TLB",
    ),
    clock("task_clock", TASK_CLOCK, "time on a CPU"),
    clock(
        "cpu_clock",
        abi::PERF_COUNT_SW_CPU_CLOCK as u64,
        "time on a CPU, by the CPU's own timer",
    ),
    row("page_faults", &["faults"], (SOFTWARE, 2), "page faults"),
    in_kernel(row(
        "context_switches",
        &["cs"],
        (SOFTWARE, 3),
        "times the CPU was left",
    )),
    in_kernel(row(
        "cpu_migrations",
        &["migrations"],
        (SOFTWARE, 4),
        "times another CPU was entered",
    )),
    row(
        "minor_faults",
        &[],
        (SOFTWARE, 5),
        "page faults without reading from a disk",
    ),
    row(
        "major_faults",
        &[],
        (SOFTWARE, 6),
        "page faults that read from a disk",
    ),
    row(
        "alignment_faults",
        &[],
        (SOFTWARE, 7),
        "unaligned accesses that the kernel mended",
    ),
    row(
        "emulation_faults",
        &[],
        (SOFTWARE, 8),
        "instructions that the kernel emulated",
    ),
    in_kernel(row(
        "cgroup_switches",
        &[],
        (SOFTWARE, 11),
        "switches to a thread of another control group",
    )),
];

impl CatalogRow {
    /// Whether it is the kernel's own and needs no hardware.
    #[must_use]
    pub const fn is_software(&self) -> bool {
        self.kind == SOFTWARE
    }

    /// The portable event of samples that it is.
    #[must_use]
    pub fn event(&self) -> Option<Event> {
        Event::by_name(self.name)
    }

    /// The row of a name, however it is spelt.
    #[must_use]
    pub fn by_name(name: &str) -> Option<&'static Self> {
        let name = name.replace('-', "_").to_ascii_lowercase();
        CATALOG
            .iter()
            .find(|row| row.name == name || row.aliases.contains(&name.as_str()))
    }
}

/// Whether an event counts here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    Counts,
    /// In user mode only, as long as the sysctl stays.
    UserOnly,
    /// The machine has no counter for it.
    NoCounter,
    Forbidden,
    /// Something else, as the system says it.
    Other(String),
}

/// Opens an event on this very thread and closes it again.
#[must_use]
pub fn probe(kind: u32, config: u64) -> Probe {
    let mut attr = Attr {
        kind,
        config: [config, 0, 0, 0],
        disabled: true,
        ..Attr::default()
    };
    let open = |attr: &Attr| sys::open(attr, Scope::Thread(0, None), None).map(drop);
    let denied = |e: &io::Error| matches!(e.raw_os_error(), Some(libc::EACCES | libc::EPERM));
    let error = match open(&attr) {
        Ok(()) => return Probe::Counts,
        Err(e) => e,
    };
    if denied(&error) {
        attr.exclude_kernel = true;
        return if open(&attr).is_ok() {
            Probe::UserOnly
        } else {
            Probe::Forbidden
        };
    }
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => Probe::NoCounter,
        _ => Probe::Other(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_however_they_are_spelt() {
        let mut names: Vec<&str> = CATALOG
            .iter()
            .flat_map(|r| r.aliases.iter().copied().chain([r.name]))
            .collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
        assert_eq!(
            CatalogRow::by_name("LLC-misses").map(|r| r.name),
            Some("llc_misses")
        );
        assert_eq!(
            CatalogRow::by_name("instr").and_then(CatalogRow::event),
            Some(Event::Instructions)
        );
    }
}
