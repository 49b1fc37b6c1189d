//! The policies that ship with Countersteer, and the table that names them.
//!
//! A policy is one file with a [`PolicyDef`] and one row in [`POLICIES`]; names, lists, help, parameters and the conformance
//! test derive from that row. The files use what [`countersteer_core`] makes public and nothing else, so that a policy of
//! another package, added by [`add`], has the same means.

#![warn(missing_docs)]

mod aarr;
mod acfs;
mod adwrr;
mod best_static;
mod capacity;
mod capacity_mpi;
mod contention;
mod ef;
mod eqp;
mod greedy_energy;
mod hass;
mod hsf;
mod ipc_driven;
mod joint;
mod linux;
mod mpi;
mod order;
mod prim;
mod progress;
mod published;
mod random_static;
pub mod reach;
mod registry;
mod rr;
mod speedup;
mod static_mapping;

use countersteer_core::policy::PolicyDef;

pub use registry::{add, all, by_name, names, params, parse, with_param};

/// Every policy of this crate.
pub static POLICIES: &[PolicyDef] = &[
    linux::DEF,
    random_static::DEF,
    static_mapping::DEF,
    best_static::DEF,
    rr::DEF,
    aarr::DEF,
    aarr::IDEAL_RR,
    adwrr::DEF,
    eqp::DEF,
    acfs::DEF,
    hsf::DEF,
    ef::DEF,
    prim::DEF,
    greedy_energy::DEF,
    hass::DEF,
    ipc_driven::DEF,
    mpi::DEF,
    capacity::DEF,
    capacity_mpi::DEF,
    contention::DEF,
    joint::DEF,
];
