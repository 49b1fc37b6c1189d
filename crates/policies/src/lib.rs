//! Policies that ship with Countersteer, and the table of their names.
//!
//! A policy is one file with a [`PolicyDef`] and one row in [`POLICIES`]. Names, lists, help, parameters and the conformance
//! test derive from that row. The files use only the public items of [`countersteer_model`]. A policy of another package, added
//! by [`add`], can therefore use the same functions.

#![warn(missing_docs)]

mod aarr;
mod abstain;
mod acfs;
mod adwrr;
mod auto;

mod best_static;
mod capacity;
mod capacity_mpi;
mod clusters;
mod contention;
mod ef;
mod eqp;
mod foreground;
mod greedy_energy;
mod groups;
mod hass;
mod hsf;
mod interval;
mod ipc_driven;
mod joint;
mod life;
mod linux;
mod mpi;
mod neighbours;
mod open_mapping;
mod order;
mod prim;
mod progress;
mod published;
mod random_static;
pub mod reach;
mod registry;
mod relabel;
mod rr;
pub mod scx;
mod speedup;
mod static_mapping;
pub mod ways;

use countersteer_model::policy::PolicyDef;

pub use foreground::{KEY as FOREGROUND, foreground_of, is_foreground};
pub use linux::NAME as LINUX;
pub use registry::{add, all, by_name, head, names, params, parse, replace, with_param};

/// Declares the table of policies, and the table of the files whose heads describe them.
macro_rules! policies {
    ($($def:path: $file:literal,)*) => {
        /// Definitions of all policies of this crate.
        pub static POLICIES: &[PolicyDef] = &[$($def),*];

        /// Name of each policy of this crate, with the text of its source file.
        const FILES: &[(&str, &str)] = &[$(($def.name, include_str!($file))),*];
    };
}

policies! {
    linux::DEF: "linux.rs",
    random_static::DEF: "random_static.rs",
    static_mapping::DEF: "static_mapping.rs",
    best_static::DEF: "best_static/mod.rs",
    rr::DEF: "rr.rs",
    aarr::DEF: "aarr.rs",
    aarr::IDEAL_RR: "aarr.rs",
    adwrr::DEF: "adwrr.rs",
    eqp::DEF: "eqp.rs",
    acfs::DEF: "acfs.rs",
    hsf::DEF: "hsf/mod.rs",
    ef::DEF: "ef.rs",
    prim::DEF: "prim.rs",
    greedy_energy::DEF: "greedy_energy/mod.rs",
    hass::DEF: "hass/mod.rs",
    ipc_driven::DEF: "ipc_driven.rs",
    mpi::DEF: "mpi.rs",
    capacity::DEF: "capacity.rs",
    capacity_mpi::DEF: "capacity_mpi.rs",
    contention::DEF: "contention/mod.rs",
    joint::DEF: "joint/mod.rs",
    clusters::DEF: "clusters/mod.rs",
    auto::DEF: "auto/mod.rs",
    groups::DEF: "groups/mod.rs",
    scx::DEF: "scx.rs",
}
