//! `mpi`: the threads with the most cache misses never run at the same time.
//!
//! Source: CMPSched$im, section 4.1, as published; `contention` is the tuned form. Assumes: misses show which threads need the
//! cache; cores are alike. Loses: it cannot tell a squeezed program from one that wastes the cache. Threads also bounce: their
//! misses fall once they are placed well, so the next order undoes the placement.

use crate::published::{EVERY, LABELS, PublishedPolicy, ThreadOrder};
use countersteer_model::policy::PolicyDef;

pub(crate) const DEF: PolicyDef = PolicyDef {
    name: "mpi",
    summary: "threads with the most cache misses per instruction apart",
    source: "CMPSched$im, section 4.1",
    params: &[EVERY, LABELS],
    make: |params, topology| PublishedPolicy::boxed(ThreadOrder::Misses, params, topology),
};
