//! `capacity`: the threads that hold most of a shared cache are kept from running side by side.
//!
//! Idea: as `mpi`, sorted by occupancy of the last-level cache, averaged over the interval. Occupancy varies less than
//! misses do when the mapping changes, so this settles where `mpi` swings.
//!
//! Source: CMPSched$im, section 4.2. Assumes: occupancy can be read per thread (resctrl, or a simulator), best when it is
//! switched out; cores are alike. Loses: it cannot tell who uses what it holds, so it gives wasteful programs the same
//! shelter as those that need it (`capacity+mpi`).

use super::PolicyDef;
use super::contention::{Contention, EVERY, Mode};

pub(super) const DEF: PolicyDef = PolicyDef {
    name: "capacity",
    summary: "threads that hold most of a shared cache apart",
    source: "CMPSched$im, section 4.2",
    params: &[EVERY],
    make: |params, topology| Contention::boxed(Mode::Capacity, params, topology),
};
