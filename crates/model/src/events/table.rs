//! Table of events. A new event needs one line here, and one in the simulator if its model provides the
//! event.

use super::{EventDef, EventOrigin, ProcessorEvent};

/// Declares [`Event`] and [`EVENTS`] from the same lines: event, name, aliases, unit, source, prose.
macro_rules! events {
    ($($event:ident $name:literal $aliases:expr, $unit:literal $source:expr, $prose:literal;)*) => {
        /// Event that can be counted, by its portable name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Event {
            $(#[doc = $prose] $event,)*
            Own0, Own1, Own2, Own3, Own4, Own5, Own6, Own7,
        }

        impl Event {
            /// Slots for processor-specific events outside the table.
            pub const OWN: [Self; 8] = [
                Self::Own0, Self::Own1, Self::Own2, Self::Own3, Self::Own4, Self::Own5, Self::Own6, Self::Own7,
            ];
            /// Every event: first those of the table, in order, then [`Self::OWN`].
            pub const ALL: &'static [Self] = &[
                $(Self::$event,)*
                Self::Own0, Self::Own1, Self::Own2, Self::Own3, Self::Own4, Self::Own5, Self::Own6, Self::Own7,
            ];
        }

        /// Rows of the event table, in the order of [`Event`].
        pub static EVENTS: &[EventDef] = &[
            $(EventDef {
                event: Event::$event,
                name: $name,
                aliases: &$aliases,
                unit: $unit,
                source: $source,
                prose: $prose,
            },)*
        ];
    };
}

/// PMU models of Intel's cores from Skylake on, which share the codes in this table. On hybrid
/// processors the PMU is `cpu_core`.
const INTEL: &[&str] = &["cpu_core", "skylake", "icelake", "sapphire_rapids"];
/// PMU models of Intel's small cores from Gracemont on.
const INTEL_SMALL: &[&str] = &["cpu_atom", "gracemont", "crestmont"];
/// PMU models of AMD's cores from family 17h on.
const AMD: &[&str] = &["zen"];

/// Returns the encoding of an event that is in the PMUs' own lists.
const fn named(terms: &'static str) -> ProcessorEvent {
    ProcessorEvent { pmus: &[], terms }
}

const fn coded(pmus: &'static [&'static str], terms: &'static str) -> ProcessorEvent {
    ProcessorEvent { pmus, terms }
}

// Sources of the codes: Intel's perfmon lists and AMD's processor programming references. Source of the
// names: the Arm PMUv3 driver.
events! {
    Instructions      "instructions"      ["instr", "inst", "instructions_retired"], "" EventOrigin::hardware(1), "instructions retired";
    Cycles            "cycles"            ["cpu_cycles", "unhalted_core_cycles"],    "" EventOrigin::hardware(0), "core cycles while not halted";
    LlcReferences     "llc_references"    ["cache_references"],                      "" EventOrigin::hardware(2), "accesses to the last-level cache";
    LlcMisses         "llc_misses"        ["cache_misses"],                          "" EventOrigin::hardware(3), "accesses that missed the last-level cache";
    Branches          "branches"          ["branch_instructions"],                   "" EventOrigin::hardware(4), "branches retired";
    BranchMisses      "branch_misses"     ["branch_mispredictions"],                 "" EventOrigin::hardware(5), "mispredicted branches";
    BusCycles         "bus_cycles"        [],                                        "" EventOrigin::hardware(6), "cycles of the bus";
    StalledFrontend   "stalled_cycles_frontend" [],                                  "" EventOrigin::hardware(7), "cycles in which nothing was fetched or decoded";
    StalledBackend    "stalled_cycles_backend"  [],                                  "" EventOrigin::hardware(8), "cycles in which nothing was executed";
    RefCycles         "ref_cycles"        ["unhalted_reference_cycles"],             "" EventOrigin::hardware(9), "cycles at constant frequency while not halted";
    L1dLoads          "l1d_loads"         ["l1_dcache_loads"],                       "" EventOrigin::cache(0, false), "loads from the level-one data cache";
    L1dLoadMisses     "l1d_load_misses"   ["l1_dcache_load_misses"],                 "" EventOrigin::cache(0, true), "loads that missed the level-one data cache";
    L1iLoadMisses     "l1i_load_misses"   ["l1_icache_load_misses"],                 "" EventOrigin::cache(1, true), "fetches that missed the level-one cache";
    LlcLoads          "llc_loads"         [],                                        "" EventOrigin::cache(2, false), "loads from the last-level cache";
    LlcLoadMisses     "llc_load_misses"   [],                                        "" EventOrigin::cache(2, true), "loads that missed the last-level cache";
    DtlbLoadMisses    "dtlb_load_misses"  [],                                        "" EventOrigin::cache(3, true), "loads that missed the data TLB";
    ItlbLoadMisses    "itlb_load_misses"  [],                                        "" EventOrigin::cache(4, true), "fetches that missed the instruction TLB";
    L1dAccesses       "l1d_accesses"      [],                                        "" EventOrigin::Processor(&[named("l1d_cache"), coded(AMD, "event=0x29,umask=0x07")]), "loads and stores in the level-one data cache";
    L1dMisses         "l1d_misses"        [],                                        "" EventOrigin::Processor(&[named("l1d_cache_refill"), coded(INTEL, "event=0x51,umask=0x01"), coded(AMD, "event=0x60,umask=0xe8")]), "accesses that missed the level-one data cache";
    L2Accesses        "l2_accesses"       [],                                        "" EventOrigin::Processor(&[named("l2d_cache"), coded(INTEL, "event=0x24,umask=0xff"), coded(INTEL_SMALL, "event=0x24"), coded(AMD, "event=0x60,umask=0xe8")]), "data accesses to the level-two cache";
    L2Misses          "l2_misses"         [],                                        "" EventOrigin::Processor(&[named("l2d_cache_refill"), coded(INTEL, "event=0x24,umask=0x3f"), coded(INTEL_SMALL, "event=0x24,umask=0x01"), coded(AMD, "event=0x64,umask=0x08")]), "data accesses that left the core's private caches";
    Loads             "loads"             [],                                        "" EventOrigin::Processor(&[named("ld_retired"), named("ld_spec"), coded(INTEL, "event=0xd0,umask=0x81"), coded(INTEL_SMALL, "event=0xd0,umask=0x81"), coded(AMD, "event=0x29,umask=0x01")]), "load instructions";
    Stores            "stores"            [],                                        "" EventOrigin::Processor(&[named("st_retired"), named("st_spec"), coded(INTEL, "event=0xd0,umask=0x82"), coded(INTEL_SMALL, "event=0xd0,umask=0x82"), coded(AMD, "event=0x29,umask=0x02")]), "store instructions";
    FpOperations      "fp_operations"     [],                                        "" EventOrigin::Processor(&[named("vfp_spec"), coded(INTEL, "event=0xc7,umask=0x03")]), "scalar floating-point instructions";
    SimdOperations    "simd_operations"   [],                                        "" EventOrigin::Processor(&[named("ase_spec"), coded(INTEL, "event=0xc7,umask=0xfc")]), "vector instructions; on Intel's cores those on floating-point numbers";
    StallMemory       "stall_cycles_memory"   [],                                    "" EventOrigin::Processor(&[named("stall_backend_mem"), coded(&["skylake", "icelake"], "event=0xa3,umask=0x14,cmask=0x14")]), "cycles in which nothing was executed for waiting on memory or a cache";
    StallBranches     "stall_cycles_branches" [],                                    "" EventOrigin::Simulator, "cycles lost to mispredicted branches";
    StallOther        "stall_cycles_other"    [],                                    "" EventOrigin::Simulator, "cycles above one per dispatched width that are neither lost to memory nor to branches";
    EvictionsSuffered "llc_evictions_suffered" [],                                   "" EventOrigin::Simulator, "lines of the last-level caches that other programs took the place of; only a simulation line by line knows it";
    EvictionsCaused   "llc_evictions_caused" [],                                     "" EventOrigin::Simulator, "lines of other programs in the last-level caches that lines of this one took the place of; likewise";
    SharedModified    "shared_modified"   ["hitm", "mem_load_l3_hit_retired_xsnp_fwd", "mem_load_l3_hit_retired_xsnp_hitm"], "" EventOrigin::Processor(&[coded(INTEL, "event=0xd2,umask=0x04")]), "accesses that got a line which another core had modified; on Intel's cores loads only";
    TaskClock         "task_clock"        [],                                        "ns" EventOrigin::software(1, false), "time on a CPU";
    CpuClock          "cpu_clock"         [],                                        "ns" EventOrigin::software(0, false), "time on a CPU, by the CPU's own timer";
    PageFaults        "page_faults"       ["faults"],                                "" EventOrigin::software(2, false), "page faults";
    ContextSwitches   "context_switches"  ["cs"],                                    "" EventOrigin::software(3, true), "context switches: times that a thread left a CPU";
    CpuMigrations     "cpu_migrations"    ["migrations"],                            "" EventOrigin::software(4, true), "migrations: times that a thread came to another CPU";
    MinorFaults       "minor_faults"      [],                                        "" EventOrigin::software(5, false), "page faults without reading from a disk";
    MajorFaults       "major_faults"      [],                                        "" EventOrigin::software(6, false), "page faults that read from a disk";
    AlignmentFaults   "alignment_faults"  [],                                        "" EventOrigin::software(7, false), "unaligned accesses that the kernel emulated";
    EmulationFaults   "emulation_faults"  [],                                        "" EventOrigin::software(8, false), "instructions that the kernel emulated";
    CgroupSwitches    "cgroup_switches"   [],                                        "" EventOrigin::software(11, true), "switches to a thread of another control group";
    EnergyNj          "energy_nj"         [],                                        "nJ" EventOrigin::Virtual { counter: "thread_energy_j", factor: 1_000_000_000 }, "energy attributed to the thread, nanojoules";
    LlcOccupancyBytes "llc_occupancy_bytes" [],                                      "B" EventOrigin::Virtual { counter: "llc_occupancy_bytes", factor: 1 }, "bytes held in the last-level cache at the sample's end";
    SfTrue            "sf_true"           [],                                        "ratio" EventOrigin::Simulator, "true speed-up factor of the current phase; only a simulator knows it";
    EfTrue            "ef_true"           [],                                        "ratio" EventOrigin::Simulator, "true efficiency factor of the current phase; only a simulator knows it";
    TdClass           "td_class"          [],                                        "" EventOrigin::Simulator, "class (0 to 3) that Intel's Thread Director gives the thread; drawn by the simulator, no kernel says it";
    Work              "work"              [],                                        "" EventOrigin::Program, "units of work that the program says are done; in a simulator, instructions";
}
