//! Targets: sets of CPUs that threads are placed on, by the scheduler's numbers.
//!
//! Input: sets of CPUs. Output: their numbers. Number 0 is all CPUs permanently. Other numbers that no thread needs any more
//! may be reused for other sets.

use std::collections::BTreeSet;
use std::sync::Arc;

use countersteer_model::cpuset::CpuSet;

pub(crate) struct BpfTargets {
    all: Arc<CpuSet>,
    sets: Vec<Option<Arc<CpuSet>>>,
    /// Numbers that were requested since the last decision: its threads are about to have them.
    claimed: BTreeSet<u32>,
    /// Limit on the number of targets.
    most: usize,
}

impl BpfTargets {
    pub fn new(all: Arc<CpuSet>, most: usize) -> Self {
        Self {
            sets: vec![Some(Arc::clone(&all))],
            all,
            claimed: BTreeSet::new(),
            most,
        }
    }

    pub fn begin(&mut self) {
        self.claimed.clear();
    }

    /// Number of a set, if it has one.
    pub fn find(&mut self, cpus: &CpuSet) -> Option<u32> {
        let id = self
            .sets
            .iter()
            .position(|set| set.as_deref() == Some(cpus))? as u32;
        self.claimed.insert(id);
        Some(id)
    }

    /// Unused number; `None` if all are in use.
    pub fn vacant(&self) -> Option<u32> {
        let id = self
            .sets
            .iter()
            .position(Option::is_none)
            .unwrap_or(self.sets.len());
        (id < self.most).then_some(id as u32)
    }

    /// Gives a set an unused number.
    pub fn put(&mut self, id: u32, cpus: Arc<CpuSet>) {
        let row = id as usize;
        self.sets.resize(self.sets.len().max(row + 1), None);
        self.sets[row] = Some(cpus);
        self.claimed.insert(id);
    }

    /// Numbers that may be retired, if no thread has them.
    pub fn idle(&self) -> Vec<u32> {
        let taken = (1..)
            .zip(&self.sets[1..])
            .filter(|(_, set)| set.is_some())
            .map(|(id, _)| id);
        taken.filter(|id| !self.claimed.contains(id)).collect()
    }

    pub fn take(&mut self, id: u32) {
        self.sets[id as usize] = None;
    }

    /// CPUs of a number; all CPUs, if it has been retired.
    pub fn cpus(&self, id: u32) -> &Arc<CpuSet> {
        self.sets
            .get(id as usize)
            .and_then(Option::as_ref)
            .unwrap_or(&self.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> Arc<CpuSet> {
        Arc::new(text.parse().unwrap())
    }

    #[test]
    fn numbers_are_given_again_when_nobody_needs_them() {
        let mut targets = BpfTargets::new(set("0-3"), 3);
        assert_eq!(targets.find(&set("0-3")), Some(0));
        for cpus in ["0", "1"] {
            assert_eq!(targets.find(&set(cpus)), None);
            let id = targets.vacant().unwrap();
            targets.put(id, set(cpus));
        }
        assert_eq!(
            (targets.vacant(), targets.idle()),
            (None, vec![]),
            "both are claimed"
        );
        targets.begin();
        assert_eq!(targets.find(&set("1")), Some(2));
        assert_eq!(targets.idle(), [1]);
        targets.take(1);
        assert_eq!((targets.vacant(), targets.cpus(1)), (Some(1), &set("0-3")));
        targets.put(1, set("2-3"));
        assert_eq!(
            (targets.find(&set("0")), targets.find(&set("2-3"))),
            (None, Some(1))
        );
    }
}
