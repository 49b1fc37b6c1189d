//! `capacity+mpi`: separates poison from vulnerable threads, whose co-runners are the threads that hold least.
//!
//! Source: CMPSched$im, section 4.3, as published; `contention` is the tuned form. Assumes: occupancy and misses can be read
//! per thread; cores are alike. Loses: with one last-level cache, with phases, and for programs that never had enough cache to
//! fall below the threshold.

use crate::published::{EVERY, LABELS, PublishedPolicy, ThreadOrder};
use countersteer_model::policy::{ParamDef, PolicyDef};

pub(crate) const DEF: PolicyDef = PolicyDef {
    name: "capacity+mpi",
    summary: "cache poison apart from the threads it would hurt",
    source: "CMPSched$im, section 4.3",
    params: &[
        EVERY,
        LABELS,
        ParamDef {
            key: "mpki",
            default: "10",
            prose: "last-level cache misses per kilo-instruction above which a thread that holds much is poison; 8 is the paper's more \
                aggressive choice",
        },
    ],
    make: |params, topology| {
        let mpki = params.number("mpki", 0.0)?;
        PublishedPolicy::boxed(ThreadOrder::Poison { mpki }, params, topology)
    },
};
