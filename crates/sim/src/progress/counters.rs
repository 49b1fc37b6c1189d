//! Counters of a simulated thread.
//!
//! The progress model accumulates the counts since a thread was added, and the simulated PMU samples their differences.

use countersteer_model::events::Event;

/// Cumulative event counts of one thread, exact (without sampling and noise).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TrueCounters {
    pub instructions: f64,
    /// Unhalted core cycles at the frequencies of the cores on which the thread ran.
    pub cycles: f64,
    /// Number of accesses that missed every private cache.
    pub l2_misses: f64,
    /// Number of accesses to the last-level cache.
    pub llc_references: f64,
    /// Number of accesses that missed the last-level cache.
    pub llc_misses: f64,
    /// Number of accesses to lines that a core modified for another thread of the program.
    pub shared_modified: f64,
    pub branch_instructions: f64,
    pub branch_misses: f64,
    /// Energy in nanojoules of the core while it ran this thread, and of the thread's cache and memory accesses.
    pub energy_nj: f64,
    pub run_ns: f64,
    pub detail: CounterDetail,
    pub unmeasured: Unmeasured,
    /// Lines evicted by and from co-runners; `None` if the model does not simulate lines.
    pub evictions: Option<Evictions>,
}

/// Lines that a thread's program and its co-runners evicted from each other in the last-level caches, divided by the program's
/// number of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Evictions {
    pub suffered: f64,
    pub caused: f64,
}

/// Number of instructions from tabulated profiles that lack certain events. The counts of these events stay zero, but were not
/// measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Unmeasured {
    /// Number of instructions without counts of cache misses.
    pub misses: f64,
    /// Number of instructions without counts of mispredicted branches.
    pub branch_misses: f64,
    /// Number of instructions of programs that were recorded without the sharing of data.
    pub sharing: f64,
}

/// Events that only recorded profiles provide, because measurements at a few cache sizes do not include the instruction mix.
///
/// Every cycle is one of dispatch at full width or lost to one of three causes:
/// `cycles = instructions / width + stall_memory + stall_branches + stall_other`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CounterDetail {
    /// Number of instructions for which these events were counted.
    pub instructions: f64,
    pub loads: f64,
    pub stores: f64,
    pub fp_operations: f64,
    pub simd_operations: f64,
    pub l1d_misses: f64,
    /// Cycles of waiting for caches and memory, including the refill of private caches after a context switch.
    pub stall_memory: f64,
    /// Cycles lost to mispredicted branches.
    pub stall_branches: f64,
    /// Cycles lost to dependences, and to SMT siblings that use dispatch slots.
    pub stall_other: f64,
}

impl CounterDetail {
    pub const NONE: Self = Self {
        instructions: 0.0,
        loads: 0.0,
        stores: 0.0,
        fp_operations: 0.0,
        simd_operations: 0.0,
        l1d_misses: 0.0,
        stall_memory: 0.0,
        stall_branches: 0.0,
        stall_other: 0.0,
    };
}

impl TrueCounters {
    /// Returns the sum of these counts and the fraction `part` of another thread's counts; evictions stay unchanged.
    #[must_use]
    pub fn plus(&self, other: &Self, part: f64) -> Self {
        let add = |of: fn(&Self) -> f64| of(self) + of(other) * part;
        Self {
            instructions: add(|c| c.instructions),
            cycles: add(|c| c.cycles),
            l2_misses: add(|c| c.l2_misses),
            llc_references: add(|c| c.llc_references),
            llc_misses: add(|c| c.llc_misses),
            shared_modified: add(|c| c.shared_modified),
            branch_instructions: add(|c| c.branch_instructions),
            branch_misses: add(|c| c.branch_misses),
            energy_nj: add(|c| c.energy_nj),
            run_ns: add(|c| c.run_ns),
            detail: CounterDetail {
                instructions: add(|c| c.detail.instructions),
                loads: add(|c| c.detail.loads),
                stores: add(|c| c.detail.stores),
                fp_operations: add(|c| c.detail.fp_operations),
                simd_operations: add(|c| c.detail.simd_operations),
                l1d_misses: add(|c| c.detail.l1d_misses),
                stall_memory: add(|c| c.detail.stall_memory),
                stall_branches: add(|c| c.detail.stall_branches),
                stall_other: add(|c| c.detail.stall_other),
            },
            unmeasured: Unmeasured {
                misses: add(|c| c.unmeasured.misses),
                branch_misses: add(|c| c.unmeasured.branch_misses),
                sharing: add(|c| c.unmeasured.sharing),
            },
            evictions: self.evictions,
        }
    }

    /// Returns the count of an event; `None` if the model does not provide it, or if the thread's profile lacks the data.
    #[must_use]
    pub fn event(&self, event: Event) -> Option<f64> {
        let detail = |value: f64| {
            let whole = self.detail.instructions > 0.5 * self.instructions;
            whole.then_some(value)
        };
        let measured = |value: f64, without: f64| {
            let whole = without <= 0.5 * self.instructions;
            whole.then_some(value)
        };
        let misses = |value: f64| measured(value, self.unmeasured.misses);
        match event {
            Event::Instructions | Event::Work => Some(self.instructions),
            Event::Cycles => Some(self.cycles),
            Event::L2Misses => misses(self.l2_misses),
            Event::LlcReferences => misses(self.llc_references),
            Event::LlcMisses => misses(self.llc_misses),
            Event::SharedModified => measured(self.shared_modified, self.unmeasured.sharing),
            Event::Branches => Some(self.branch_instructions),
            Event::BranchMisses => measured(self.branch_misses, self.unmeasured.branch_misses),
            Event::EnergyNj => Some(self.energy_nj),
            Event::L1dAccesses => detail(self.detail.loads + self.detail.stores),
            // A miss of the level-one cache is an access to the level-two cache.
            Event::L1dMisses | Event::L2Accesses => detail(self.detail.l1d_misses),
            Event::Loads => detail(self.detail.loads),
            Event::Stores => detail(self.detail.stores),
            Event::FpOperations => detail(self.detail.fp_operations),
            Event::SimdOperations => detail(self.detail.simd_operations),
            Event::StallMemory => detail(self.detail.stall_memory),
            Event::StallBranches => detail(self.detail.stall_branches),
            Event::StallOther => detail(self.detail.stall_other),
            Event::EvictionsSuffered => self.evictions.map(|e| e.suffered),
            Event::EvictionsCaused => self.evictions.map(|e| e.caused),
            _ => None,
        }
    }
}
