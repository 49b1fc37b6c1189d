//! Ground: the policies that can gain on a machine, best first, and the reason in words.
//!
//! Input: a topology. Output: a row of the table in the module's head.

use countersteer_model::policy::PolicyDef;
use countersteer_model::topology::{GroupBy, Topology};

use crate::reach::{cores_alike, is_uniform};
use crate::{contention, hsf, joint};

/// Policies for a kind of machine.
pub(super) struct Ground {
    pub candidates: &'static [&'static PolicyDef],
    /// Property of the machine that decides.
    pub why: &'static str,
}

const UNIFORM: Ground = Ground {
    candidates: &[],
    why: "left to Linux: all cores are alike and share one cache, so no place is better than another",
};
const PRIVATE: Ground = Ground {
    candidates: &[],
    why: "left to Linux: all cores are alike and none shares a cache, so no place is better than another",
};
const CACHES: Ground = Ground {
    candidates: &[&joint::DEF, &contention::DEF],
    why: "cores share several last-level caches",
};
const SIBLINGS: Ground = Ground {
    candidates: &[&joint::DEF],
    why: "SMT siblings share cores",
};
const TYPES: Ground = Ground {
    candidates: &[&joint::DEF, &hsf::DEF],
    why: "core types differ",
};
const TYPES_AND_SIBLINGS: Ground = Ground {
    candidates: &[&hsf::DEF, &joint::DEF],
    why: "core types differ, and SMT siblings share cores",
};

impl Ground {
    /// Returns the ground of a machine.
    pub fn of(topology: &Topology) -> &'static Self {
        let number = |by| topology.groups_by(by).len();
        let cores = number(GroupBy::Core);
        let siblings = cores < topology.cpus.len();
        let types_differ = number(GroupBy::CoreType) > 1 && !cores_alike(&topology.core_types);
        match (types_differ, siblings) {
            (true, true) => &TYPES_AND_SIBLINGS,
            (true, false) => &TYPES,
            (false, _) if is_uniform(topology) => &UNIFORM,
            (false, true) if number(GroupBy::Llc) < 2 => &SIBLINGS,
            (false, false) if number(GroupBy::Llc) < 2 => &UNIFORM,
            (false, false) if number(GroupBy::Llc) >= cores => &PRIVATE,
            (false, _) => &CACHES,
        }
    }

    /// Number of runnable threads up to which Linux decides alone: alike cores, each thread with a last-level cache of its own.
    pub fn few(topology: &Topology) -> usize {
        match topology.groups_by(GroupBy::CoreType).len() {
            1 => topology.groups_by(GroupBy::Llc).len(),
            _ => 0,
        }
    }
}
