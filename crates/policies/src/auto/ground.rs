//! Ground: the policies that can gain on a machine and on its load, best first, and the reason in words.
//!
//! Input: a topology, the number of threads, and what their miss curves say. Output: a row of the table in the module's head, in
//! the order for the load.

use std::borrow::Cow;

use countersteer_model::policy::PolicyDef;
use countersteer_model::topology::{GroupBy, Topology};

use super::curves::CacheTimePart;
use crate::reach::{cores_alike, is_uniform};
use crate::{contention, hsf, joint};

/// Policies for a kind of machine.
pub(super) struct MachineGround {
    pub candidates: &'static [&'static PolicyDef],
    /// Property of the machine that decides.
    pub why: &'static str,
}

/// Mean part of the time that caches decide, below which core types alone decide.
const LITTLE: f64 = 0.02;
/// Part for each thread below which no cache is worth a move.
const NOTHING: f64 = 0.01;

/// Policies for a load on a ground.
pub(super) struct Choice {
    pub candidates: Vec<&'static PolicyDef>,
    pub why: Cow<'static, str>,
}

const UNIFORM: MachineGround = MachineGround {
    candidates: &[],
    why: "left to Linux: all cores are alike and share one cache, so no place is better than another",
};
const PRIVATE: MachineGround = MachineGround {
    candidates: &[],
    why: "left to Linux: all cores are alike and none shares a cache, so no place is better than another",
};
const CACHES: MachineGround = MachineGround {
    candidates: &[&joint::DEF, &contention::DEF],
    why: "cores share several last-level caches",
};
const ALIKE_BUT_CACHES: MachineGround = MachineGround {
    candidates: &[&joint::DEF, &contention::DEF],
    why: "cores share several last-level caches, and are alike otherwise",
};
const SIBLINGS: MachineGround = MachineGround {
    candidates: &[&joint::DEF],
    why: "SMT siblings share cores",
};
const TYPES: MachineGround = MachineGround {
    candidates: &[&joint::DEF, &hsf::DEF],
    why: "core types differ",
};
const TYPES_AND_SIBLINGS: MachineGround = MachineGround {
    candidates: &[&hsf::DEF, &joint::DEF],
    why: "core types differ, and SMT siblings share cores",
};

impl MachineGround {
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
            (false, false) if number(GroupBy::CoreType) < 2 && caches_alike(topology) => {
                &ALIKE_BUT_CACHES
            }
            (false, _) => &CACHES,
        }
    }

    /// True if miss curves can change the choice here. They say nothing of what SMT siblings share besides caches, and little where last-level
    /// caches differ.
    pub fn asks_curves(&self) -> bool {
        [&TYPES, &ALIKE_BUT_CACHES]
            .iter()
            .any(|ground| ground.why == self.why)
    }

    /// Returns the policies before any miss curve is known.
    pub fn choice(&self) -> Choice {
        Choice {
            candidates: self.candidates.to_vec(),
            why: self.why.into(),
        }
    }

    /// Returns the policies for a load whose miss curves are known, or cannot be (`None`).
    pub fn choice_by(&self, worth: Option<CacheTimePart>, cpus: usize) -> Choice {
        let mut choice = self.choice();
        let Some(worth) = worth else {
            choice.why = format!("{}; miss curves are not known", self.why).into();
            return choice;
        };
        let fits = worth.threads <= cpus;
        let percent = 100.0 * worth.mean;
        if self.why == ALIKE_BUT_CACHES.why && fits && worth.most < NOTHING {
            choice.candidates.clear();
            choice.why = format!(
                "left to Linux: by their miss curves, caches decide less than {:.0} % of the time of each of {} threads",
                100.0 * NOTHING,
                worth.threads
            )
            .into();
            return choice;
        }
        let order = if self.why == TYPES.why && fits && worth.mean < LITTLE {
            choice.candidates.reverse();
            ", so core types alone"
        } else {
            ""
        };
        choice.why = format!(
            "{}; by miss curves, caches decide {percent:.1} % of the time{order}",
            self.why
        )
        .into();
        choice
    }

    /// Number of runnable threads up to which Linux decides alone: alike cores, each thread with a last-level cache of its own.
    pub fn few(topology: &Topology) -> usize {
        match topology.groups_by(GroupBy::CoreType).len() {
            1 => topology.groups_by(GroupBy::Llc).len(),
            _ => 0,
        }
    }
}

/// True if all last-level caches have the same size.
fn caches_alike(topology: &Topology) -> bool {
    let lines = |cpu| {
        let llc = topology.llc_of(cpu);
        topology
            .caches
            .iter()
            .find(|cache| cache.id == llc)
            .map(|cache| cache.lines)
    };
    let mut all = topology.cpus.iter().map(|cpu| lines(cpu.id));
    let first = all.next();
    all.all(|lines| Some(lines) == first)
}
