//! `capacity`: the threads that hold most of a shared cache are kept from running side by side.
//!
//! Idea: as `mpi`, sorted by occupancy of the last-level cache, averaged over the interval. Occupancy varies less than
//! misses do when the mapping changes, so this settles where `mpi` swings.
//!
//! Source: CMPSched$im, section 4.2. Assumes: occupancy can be read per thread (resctrl, or a simulator), best when it is
//! switched out; cores are alike. Loses: it cannot tell who uses what it holds, so it gives wasteful programs the same
//! shelter as those that need it (`capacity+mpi`).
//!
//! With `ways=split` it also divides the caches' ways: what the paper does by mapping, keeping what streams away from what
//! gains, way masks do inside a cache. A program is poison by the evidence that `capacity+mpi` goes by.

use crate::contention::{Contention, EVERY, Mode, WAYS};
use countersteer_core::policy::{ParamDef, PolicyDef};

pub(crate) const DEF: PolicyDef = PolicyDef {
    name: "capacity",
    summary: "threads that hold most of a shared cache apart",
    source: "CMPSched$im, section 4.2",
    params: &[
        EVERY,
        WAYS,
        ParamDef {
            key: "mpki",
            default: "10",
            prose: "ways=split: last-level cache misses per kilo-instruction above which a thread that holds much may be poison",
        },
    ],
    make: |params, topology| Contention::boxed(Mode::Capacity, params, topology),
};
