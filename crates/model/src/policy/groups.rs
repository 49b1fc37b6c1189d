//! Calls of policies: one call for the machine, or one for each core group.
//!
//! Source: PMCSched, section 3: a plug-in is invoked for one core group at a time. Input: a view of the machine. Output: the
//! combined placements of all groups.

use super::{Policy, PolicyRng, View};
use crate::cpuset::CpuSet;
use crate::engine::{ThreadEvent, ThreadEventKind, ThreadInfo};
use crate::placement::Placement;

/// Calls a policy once, or once for each core group of the kind in [`Needs::groups`](super::Needs::groups), in the order of the
/// groups.
///
/// The view of a group contains the threads whose CPU is in the group, and their events. All groups see the exits of threads.
/// Placements and cache classes of all groups are combined. The admission table of the last group that sets one applies to all.
pub fn decide(policy: &mut dyn Policy, view: &mut View<'_>, rng: &mut PolicyRng) -> Placement {
    let Some(by) = policy.needs().groups else {
        return policy.decide(view, rng);
    };
    let topology = view.topology;
    let mut all = Placement::default();
    for group in topology.groups_by(by) {
        let threads = threads_in(view.threads, &group.cpus);
        let events = events_of(view.events, &threads);
        let mut part = View {
            now: view.now,
            topology,
            group: Some(group),
            threads: &threads,
            programs: view.programs,
            events: &events,
            metrics: view.metrics,
            forecast: match &mut view.forecast {
                Some(forecast) => Some(&mut **forecast),
                None => None,
            },
        };
        let placement = policy.decide(&mut part, rng);
        all.threads.extend(placement.threads);
        all.admission = placement.admission.or(all.admission);
        if let Some(classes) = placement.caches {
            all.caches.get_or_insert_default().extend(classes);
        }
        if let Some(limits) = placement.clocks {
            all.clocks.get_or_insert_default().extend(limits);
        }
    }
    all.threads.sort_by_key(|t| t.thread);
    // If several groups placed a thread, only the placement of the first of these groups is kept.
    all.threads.dedup_by_key(|t| t.thread);
    all
}

fn threads_in(threads: &[ThreadInfo], cpus: &CpuSet) -> Vec<ThreadInfo> {
    let inside = threads.iter().filter(|t| cpus.contains(t.cpu));
    inside.cloned().collect()
}

fn events_of(events: &[ThreadEvent], threads: &[ThreadInfo]) -> Vec<ThreadEvent> {
    let is_here = |event: &&ThreadEvent| {
        event.kind == ThreadEventKind::Exit
            || threads
                .binary_search_by_key(&event.thread, |t| t.id)
                .is_ok()
    };
    events.iter().filter(is_here).copied().collect()
}
