//! Abstention: a policy leaves threads to Linux, usually because the machine does not meet the policy's assumptions.
//!
//! Input: a policy's name, a topology, and the threads of each decision. Output: one placement per thread, on all CPUs. Its rule
//! names the assumption that does not hold, so that the record and `why` show it.

use std::borrow::Cow;
use std::collections::BTreeSet;

use countersteer_model::placement::{Reason, Target, ThreadPlacement};
use countersteer_model::policy::View;
use countersteer_model::topology::Topology;
use countersteer_model::units::ThreadId;

use crate::reach;

/// Reason for which a policy leaves all threads to Linux, and the threads for which a placement has recorded it.
pub(crate) struct Abstention {
    rule: Cow<'static, str>,
    left: BTreeSet<ThreadId>,
}

impl Abstention {
    /// Returns an abstention for this reason.
    pub(crate) fn new(rule: impl Into<Cow<'static, str>>) -> Self {
        Self {
            rule: rule.into(),
            left: BTreeSet::new(),
        }
    }

    /// Returns the abstention of a policy on a machine; `None` if the machine meets all assumptions of the policy.
    pub(crate) fn of(policy: &str, topology: &Topology) -> Option<Self> {
        let unmet = reach::unmet(policy, topology).into_iter().next();
        unmet.map(Self::new)
    }

    /// Returns the abstention of a policy on a machine where it can never act, or whose assumptions do not all hold. `None` if
    /// the policy can act.
    pub(crate) fn anyhow(policy: &str, topology: &Topology) -> Option<Self> {
        let idle = reach::idle_on(policy, topology).map(Self::new);
        idle.or_else(|| Self::of(policy, topology))
    }

    /// Returns placements on all CPUs for the threads that have none from an earlier call.
    pub(crate) fn leave(&mut self, view: &View<'_>) -> Vec<ThreadPlacement> {
        self.left.retain(|thread| view.lives(*thread));
        let new = view.threads.iter().filter(|t| self.left.insert(t.id));
        let reason = || Reason::rule(self.rule.clone());
        let place = |id: ThreadId| ThreadPlacement::new(id, Target::Anywhere, reason());
        new.map(|t| t.id).map(place).collect()
    }
}
