//! Threads that have exited recently. Counts may arrive after a thread's exit and must not create its state again.
//!
//! Input: observations. Output: the exited threads among those with samples. A reused id belongs to a living thread.

use std::collections::BTreeMap;

use crate::observation::{Observation, ThreadEventKind};
use crate::units::{Nanos, ThreadId};

/// Limit on the delay of counts after a thread's exit.
const LATEST: Nanos = Nanos::from_millis(1000);

/// Exited threads, with the time of the observation that reported the exit.
#[derive(Default)]
pub(crate) struct Departed(BTreeMap<ThreadId, Nanos>);

impl Departed {
    /// Updates the table by the exit and start events of an observation.
    pub(crate) fn update(&mut self, seen: &Observation) {
        for event in &seen.events {
            match event.kind {
                ThreadEventKind::Exit => _ = self.0.insert(event.thread, seen.at),
                ThreadEventKind::New => _ = self.0.remove(&event.thread),
                _ => {}
            }
        }
        // A listed thread with the id of an exited one is another thread, even if no event reported its start.
        let listed = |id| seen.threads.binary_search_by_key(&id, |t| t.id).is_ok();
        self.0
            .retain(|id, at| *at == seen.at || seen.at.since(*at) <= LATEST && !listed(*id));
    }

    /// Returns the exited threads that have samples in an observation, in ascending order.
    pub(crate) fn late(&self, seen: &Observation) -> Vec<ThreadId> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let sampled = seen.samples.of_threads().map(|(thread, _)| thread);
        sampled.filter(|id| self.0.contains_key(id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::{ThreadEvent, ThreadInfo};
    use crate::units::{CpuId, ProgramId};

    const THREAD: ThreadId = ThreadId(7);

    fn seen(ms: u64, kinds: &[ThreadEventKind]) -> Observation {
        let at = Nanos::from_millis(ms);
        let event = |kind: &ThreadEventKind| ThreadEvent {
            at,
            thread: THREAD,
            kind: *kind,
        };
        Observation {
            at,
            events: kinds.iter().map(event).collect(),
            ..Observation::default()
        }
    }

    fn is_gone(after: &[Observation]) -> bool {
        let mut departed = Departed::default();
        after.iter().for_each(|seen| departed.update(seen));
        departed.0.contains_key(&THREAD)
    }

    #[test]
    fn a_thread_is_gone_for_a_while_unless_its_id_is_given_again() {
        use ThreadEventKind::{Exit, New};
        assert!(is_gone(&[seen(0, &[New, Exit]), seen(1000, &[])]));
        assert!(!is_gone(&[seen(0, &[New, Exit]), seen(1001, &[])]));
        assert!(!is_gone(&[seen(0, &[Exit, New])]));
        let mut listed = seen(100, &[]);
        listed.threads.push(ThreadInfo {
            id: THREAD,
            program: ProgramId(1),
            name: "p".into(),
            cpu: CpuId(0),
            runnable: true,
            nice: 0,
            allowed: Default::default(),
            hint: None,
        });
        assert!(!is_gone(&[seen(0, &[Exit]), listed]));
    }
}
