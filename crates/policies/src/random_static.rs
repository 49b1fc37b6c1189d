//! `default`: every thread is bound to a random core when it starts, and stays there.
//!
//! Idea: the expected result of a scheduler that knows nothing about core types. Over seeds its completion time tends to
//! `sum over types of (cores of the type / cores) * time on that type`.
//!
//! Source: the baseline "default" of HASS, section 5. Decided here: cores are dealt without repetition until all are taken, so
//! that no core holds two threads more than another.
//!
//! Loses: to any policy that uses measurements.

use std::collections::BTreeMap;

use countersteer_model::placement::{Placement, Reason, Target, ThreadPlacement};
use countersteer_model::policy::{Needs, Policy, PolicyDef, PolicyRng, View};
use countersteer_model::topology::GroupBy;
use countersteer_model::units::ThreadId;
use rand::seq::SliceRandom;

pub(crate) const DEF: PolicyDef = PolicyDef {
    name: "default",
    summary: "baseline: every thread stays on a random core",
    source: "HASS, section 5 (default assignment)",
    params: &[],
    make: |_, _| Ok(Box::new(RandomStatic::default())),
};

#[derive(Default)]
struct RandomStatic {
    /// Core on which each thread is bound, by index of the core group.
    cores: BTreeMap<ThreadId, usize>,
    /// Indices of the cores that have not been drawn in the current round.
    deck: Vec<usize>,
}

impl Policy for RandomStatic {
    fn needs(&self) -> &Needs {
        const NEEDS: &Needs = &Needs::EVENTS;
        NEEDS
    }

    fn decide(&mut self, view: &mut View<'_>, rng: &mut PolicyRng) -> Placement {
        let alive = |id: &ThreadId| view.lives(*id);
        self.cores.retain(|id, _| alive(id));
        let cores = view.topology.groups_by(GroupBy::Core);
        let mut placement = Placement::default();
        for info in view.threads {
            if self.cores.contains_key(&info.id) {
                continue;
            }
            if self.deck.is_empty() {
                self.deck = (0..cores.len()).collect();
                self.deck.shuffle(rng);
            }
            let Some(core) = self.deck.pop() else { break };
            self.cores.insert(info.id, core);
            placement.threads.push(ThreadPlacement::new(
                info.id,
                Target::Group(cores[core].id),
                Reason::rule("bound at random when it started"),
            ));
        }
        placement
    }
}
