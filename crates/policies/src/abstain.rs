//! Abstention: threads that a policy leaves to Linux because the machine does not meet its assumptions.
//!
//! Input: a policy's name, a topology, the threads of each decision. Output: a placement on all CPUs, once for each thread. Its
//! rule names the assumption that does not hold, so the record and `why` show it.

use std::collections::BTreeSet;

use countersteer_model::placement::{Reason, Target, ThreadPlacement};
use countersteer_model::policy::View;
use countersteer_model::topology::Topology;
use countersteer_model::units::ThreadId;

use crate::reach;

/// Reason of a policy to leave all threads to Linux, and the threads for which a placement recorded it.
pub(crate) struct Abstention {
    rule: &'static str,
    left: BTreeSet<ThreadId>,
}

impl Abstention {
    /// Returns the abstention of a policy on a machine; `None` if all its assumptions hold.
    pub(crate) fn of(policy: &str, topology: &Topology) -> Option<Self> {
        let rule = reach::unmet(policy, topology).into_iter().next()?;
        let left = BTreeSet::new();
        Some(Self { rule, left })
    }

    /// Returns the abstention of a policy on a machine that it cannot act on at all, or whose assumptions do not all hold; `None`
    /// if it can act.
    pub(crate) fn anyhow(policy: &str, topology: &Topology) -> Option<Self> {
        let idle = reach::idle_on(policy, topology).map(|rule| Self {
            rule,
            left: BTreeSet::new(),
        });
        idle.or_else(|| Self::of(policy, topology))
    }

    /// Returns placements of threads that were not left to Linux before.
    pub(crate) fn leave(&mut self, view: &View<'_>) -> Vec<ThreadPlacement> {
        self.left.retain(|thread| view.lives(*thread));
        let new = view.threads.iter().filter(|t| self.left.insert(t.id));
        let place =
            |id: ThreadId| ThreadPlacement::new(id, Target::Anywhere, Reason::rule(self.rule));
        new.map(|t| t.id).map(place).collect()
    }
}
