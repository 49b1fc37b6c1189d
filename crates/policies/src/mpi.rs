//! `mpi`: the threads that miss most are kept from running side by side.
//!
//! Source: CMPSched$im, section 4.1, as published; `contention` is the tuned form. Assumes: misses show which threads want
//! the cache; cores are alike. Loses: it takes a squeezed program for one that wastes the cache, and threads bounce: their misses fall
//! once they are placed well, so the next order undoes it.

use crate::published::{EVERY, Order, Published};
use countersteer_model::policy::PolicyDef;

pub(crate) const DEF: PolicyDef = PolicyDef {
    name: "mpi",
    summary: "threads with the most cache misses per instruction apart",
    source: "CMPSched$im, section 4.1",
    params: &[EVERY],
    make: |params, topology| Published::boxed(Order::Misses, params, topology),
};
