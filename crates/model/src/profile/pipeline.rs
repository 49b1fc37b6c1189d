//! Pipeline properties of a behaviour: execution units, latencies along dependency chains, branches, prefetching and
//! cache conflicts.
//!
//! These properties are part of a recorded behaviour. Older profiles lack them; models then estimate them from the
//! instruction mix.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounds;

/// Latency of a load in cycles, in the recorder's model run with slow loads.
pub const REFERENCE_LOAD_CYCLES: u8 = 5;
/// Largest number of ways for which cache conflicts are recorded, from 1 on.
pub const CONFLICT_WAYS: usize = 16;
/// Number of sets of the cache for which conflicts are recorded. Most L1 data caches have this number of sets.
pub const CONFLICT_SETS: u32 = 64;

/// Kind of operation, by execution unit and latency.
///
/// Loads, stores and branches are counted separately; plain moves and no-operations need no unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Operation {
    /// Integer arithmetic, logic, address arithmetic.
    Alu,
    /// Shifts and rotations.
    Shift,
    /// Integer multiplication.
    Multiply,
    /// Integer division.
    Divide,
    /// Floating-point addition, comparison, conversion; scalar or vector.
    FpAdd,
    /// Floating-point multiplication, fused or not; scalar or vector.
    FpMultiply,
    /// Floating-point division and square root; scalar or vector.
    FpDivide,
    /// Vector operations of other kinds.
    Simd,
}

impl Operation {
    pub const ALL: [Self; 8] = [
        Self::Alu,
        Self::Shift,
        Self::Multiply,
        Self::Divide,
        Self::FpAdd,
        Self::FpMultiply,
        Self::FpDivide,
        Self::Simd,
    ];

    /// Returns true for floating-point arithmetic.
    #[must_use]
    pub const fn is_fp(self) -> bool {
        matches!(self, Self::FpAdd | Self::FpMultiply | Self::FpDivide)
    }

    /// Returns the latency of the operation in cycles, in the recorder's model run with slow operations.
    #[must_use]
    pub const fn reference_cycles(self) -> u8 {
        match self {
            Self::Alu | Self::Shift | Self::Simd => 1,
            Self::Multiply => 3,
            Self::Divide => 18,
            Self::FpAdd => 3,
            Self::FpMultiply => 4,
            Self::FpDivide => 14,
        }
    }
}

/// Pipeline properties of a behaviour.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pipeline {
    /// Operations per instruction.
    pub operations: Operations,
    /// Number of pairs of a compare and an adjacent conditional branch, which cores fuse, per instruction.
    pub fused: f64,
    /// Taken branches per instruction.
    pub taken: f64,
    /// Latency added along dependency chains, by window, ascending.
    pub chains: Vec<ChainPoint>,
    /// Cycles from a mispredicted branch's dispatch to its resolution, by the latencies of loads and operations.
    pub resolution: Resolution,
    /// Predictions of a stream prefetcher, by cache size, ascending.
    pub streams: Vec<StreamPoint>,
    /// Misses per kilo-instruction of LRU caches with 64 sets and 1, 2, 3, ... ways.
    pub conflicts: Vec<f64>,
}

/// Operations per instruction, by [`Operation`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Operations {
    pub alu: f64,
    pub shift: f64,
    pub multiply: f64,
    pub divide: f64,
    pub fp_add: f64,
    pub fp_multiply: f64,
    pub fp_divide: f64,
    pub simd: f64,
}

impl Operations {
    /// Returns the number of operations of one kind per instruction.
    #[must_use]
    pub const fn of(&self, operation: Operation) -> f64 {
        match operation {
            Operation::Alu => self.alu,
            Operation::Shift => self.shift,
            Operation::Multiply => self.multiply,
            Operation::Divide => self.divide,
            Operation::FpAdd => self.fp_add,
            Operation::FpMultiply => self.fp_multiply,
            Operation::FpDivide => self.fp_divide,
            Operation::Simd => self.simd,
        }
    }
}

/// Cycles per instruction that latencies add to dependency chains of unit latency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChainPoint {
    /// Number of instructions in the window.
    pub window: u32,
    /// Cycles added by loads with a latency of [`REFERENCE_LOAD_CYCLES`] cycles.
    pub loads: f64,
    /// Cycles added further by operations with the latencies [`Operation::reference_cycles`].
    pub operations: f64,
}

/// Mean cycles from the dispatch of a mispredicted branch to its resolution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Resolution {
    /// Cycles if all loads and operations have a latency of one cycle.
    pub unit: f64,
    /// Cycles added by loads with a latency of [`REFERENCE_LOAD_CYCLES`] cycles.
    pub loads: f64,
    /// Cycles added further by operations with the latencies [`Operation::reference_cycles`].
    pub operations: f64,
}

/// Misses of a cache that a stream prefetcher predicts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StreamPoint {
    /// Number of lines of the cache whose misses are counted.
    pub cache_lines: u64,
    /// Fraction of the cache's misses that continue a stream of constant stride within a page or across pages.
    pub share: f64,
}

impl Pipeline {
    pub(super) fn check(&self) -> Result<(), String> {
        for operation in Operation::ALL {
            bounds::PER_INSTRUCTION.check("operations", self.operations.of(operation))?;
        }
        bounds::SHARE.check("fused", self.fused)?;
        bounds::SHARE.check("taken", self.taken)?;
        let r = self.resolution;
        for cycles in [r.unit, r.loads, r.operations] {
            bounds::RESOLUTION.check("resolution", cycles)?;
        }
        if self.chains.is_empty() {
            return Err("`pipeline.chains` needs at least one window".into());
        }
        for c in &self.chains {
            bounds::WINDOW.check("window", f64::from(c.window))?;
            bounds::CHAIN.check("loads", c.loads)?;
            bounds::CHAIN.check("operations", c.operations)?;
        }
        for s in &self.streams {
            bounds::CACHE_LINES.check("cache_lines", s.cache_lines as f64)?;
            bounds::SHARE.check("share", s.share)?;
        }
        self.conflicts
            .iter()
            .try_for_each(|rate| bounds::PER_KILO_INSTRUCTION.check("conflicts", *rate))
    }
}
