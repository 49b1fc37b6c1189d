//! `capacity`: the threads that hold most of a shared cache never run at the same time.
//!
//! Source: CMPSched$im, section 4.2, as published; `contention` is the tuned form. Assumes: occupancy can be read per thread;
//! cores are alike. Loses: it protects poison like vulnerable threads, and the occupancy of a squeezed thread understates its
//! need.

use crate::published::{EVERY, LABELS, PublishedPolicy, ThreadOrder};
use countersteer_model::policy::PolicyDef;

pub(crate) const DEF: PolicyDef = PolicyDef {
    name: "capacity",
    summary: "threads that hold most of a shared cache apart",
    source: "CMPSched$im, section 4.2",
    params: &[EVERY, LABELS],
    make: |params, topology| PublishedPolicy::boxed(ThreadOrder::Occupancy, params, topology),
};
