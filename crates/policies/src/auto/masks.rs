//! Affinity masks that other programs set: such a thread is left alone.
//!
//! Input: the masks of threads at each decision, and the placements of the policy. Output: the placements without those threads,
//! and a reason for each thread that is left alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::engine::ThreadInfo;
use countersteer_model::placement::{AdmissionTable, Placement, Reason, Target, ThreadPlacement};
use countersteer_model::policy::View;
use countersteer_model::topology::Topology;
use countersteer_model::units::ThreadId;

const FOREIGN: &str = "left alone: another program set its affinity mask";
const FREE: &str = "steered again: its affinity mask is as wide as before";

/// Mask of a thread, and its last placement.
struct ThreadMask {
    /// Mask at the first decision.
    first: Arc<CpuSet>,
    now: Arc<CpuSet>,
    target: Option<Target>,
    is_foreign: bool,
}

impl ThreadMask {
    /// True if the last placement, or the admission of new and waking threads, explains a mask.
    fn explains(&self, mask: &CpuSet, topology: &Topology, table: Option<&AdmissionTable>) -> bool {
        let placed = match &self.target {
            None => false,
            // Threads that inherit a mask of this policy get a wider one of their own.
            Some(Target::Anywhere) => self.now.is_subset(mask),
            Some(target) => mask.is_subset(&target.cpus(topology)),
        };
        let groups = table.into_iter().flat_map(|table| &table.rows);
        let mut groups = groups.map(|(_, group)| &topology.group(*group).cpus);
        placed || *mask == *self.first || groups.any(|cpus| mask.is_subset(cpus))
    }
}

/// Masks of all living threads.
#[derive(Default)]
pub(super) struct Masks {
    threads: BTreeMap<ThreadId, ThreadMask>,
    /// Admission table of the last placement that had one.
    table: Option<AdmissionTable>,
}

impl Masks {
    /// Compares the masks with the last placements. Returns placements with reasons for threads that are left alone from now
    /// on, or no longer.
    pub fn note(&mut self, view: &View<'_>) -> Vec<ThreadPlacement> {
        self.threads.retain(|id, _| view.lives(*id));
        let table = self.table.as_ref();
        let mut changes = Vec::new();
        for info in view.threads {
            let mask = self.threads.entry(info.id).or_insert_with(|| ThreadMask {
                first: Arc::clone(&info.allowed),
                now: Arc::clone(&info.allowed),
                target: None,
                is_foreign: false,
            });
            if mask.now == info.allowed {
                continue;
            }
            let is_foreign = if mask.is_foreign {
                !mask.first.is_subset(&info.allowed)
            } else {
                !mask.explains(&info.allowed, view.topology, table)
            };
            mask.now = Arc::clone(&info.allowed);
            if std::mem::replace(&mut mask.is_foreign, is_foreign) != is_foreign {
                let why = if is_foreign { FOREIGN } else { FREE };
                changes.push(anywhere(info, why));
            }
        }
        changes
    }

    /// Removes placements of threads that are left alone, and stores the others.
    pub fn filter(&mut self, mut placement: Placement, changes: Vec<ThreadPlacement>) -> Placement {
        let is_foreign = |id| self.threads.get(&id).is_some_and(|mask| mask.is_foreign);
        placement.threads.retain(|t| !is_foreign(t.thread));
        for placed in &placement.threads {
            if let Some(mask) = self.threads.get_mut(&placed.thread) {
                mask.target = Some(placed.target.clone());
            }
        }
        if placement.admission.is_some() {
            self.table.clone_from(&placement.admission);
        }
        let placed = |id| placement.threads.iter().any(|t| t.thread == id);
        let new: Vec<_> = changes.into_iter().filter(|t| !placed(t.thread)).collect();
        if !new.is_empty() {
            placement.threads.extend(new);
            placement.threads.sort_by_key(|t| t.thread);
        }
        placement
    }
}

fn anywhere(info: &ThreadInfo, why: &'static str) -> ThreadPlacement {
    ThreadPlacement::new(info.id, Target::Anywhere, Reason::rule(why))
}
