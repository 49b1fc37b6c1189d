//! `mpi`: the threads that miss most are kept from running side by side.
//!
//! Idea: every interval, threads are sorted by misses of the last-level cache per instruction. The two highest share a core,
//! so they never run at the same time; the next two share one under another cache; and so on, each to the cache with the
//! least misses so far. A mapping that is about as even as the new one is kept, and equal caches and cores are exchanged
//! rather than threads moved.
//!
//! Source: CMPSched$im, section 4.1. Assumes: misses show who wants the cache; cores are alike. Loses: it takes a program
//! that was robbed of the cache for one that wastes it, and separates what its own mapping just cured: its misses fall and
//! the next interval sorts it elsewhere. On machines with one last-level cache only the pairing on cores is left.

use crate::contention::{Contention, EVERY, Mode};
use countersteer_core::policy::PolicyDef;

pub(crate) const DEF: PolicyDef = PolicyDef {
    name: "mpi",
    summary: "threads with the most cache misses per instruction apart",
    source: "CMPSched$im, section 4.1",
    params: &[EVERY],
    make: |params, topology| Contention::boxed(Mode::Mpi, params, topology),
};
