//! Exploration: threads change places, so that each thread is measured on each kind of core.

use std::collections::{BTreeMap, BTreeSet};

use countersteer_model::engine::ThreadInfo;
use countersteer_model::units::{Nanos, ThreadId};

use super::policy::Joint;

/// Intervals for which an exploring mapping holds; the first contains the move.
const INTERVALS: u32 = 3;
/// Part of the threads' expected remaining time that exploration may take.
const PAYS: f64 = 0.125;
/// Limit on the exchanges of all threads; further ones do not pay.
const MOST_VISITS: usize = 16;

impl Joint {
    /// True if threads are expected to run long enough for one more exploring mapping.
    fn pays(&self, heavy: &[&ThreadInfo]) -> bool {
        let visit_s = f64::from(INTERVALS) * self.interval.as_secs_f64();
        let cost_s = (self.visits + 1) as f64 * visit_s;
        let expected_s = heavy.iter().map(|t| self.lives.expected_s(t.id));
        let mean_s = expected_s.sum::<f64>() / heavy.len().max(1) as f64;
        cost_s <= PAYS * mean_s
    }

    /// Advances the exploration; returns true if it continues.
    pub(super) fn visit(&mut self, heavy: &[&ThreadInfo], now: Nanos) -> bool {
        if !self.explore {
            return false;
        }
        if self.visiting > 0 {
            self.visiting -= 1;
            return true;
        }
        if heavy.is_empty() {
            return false;
        }
        let kinds = self.places.kinds.len();
        let lacks =
            |id: &ThreadId, kind: usize| self.threads.get(id).is_some_and(|e| !e.knows(kind));
        let missing = heavy.iter().any(|t| (0..kinds).any(|k| lacks(&t.id, k)));
        if !missing || self.visits >= MOST_VISITS {
            self.explore = false;
            return false;
        }
        if !self.pays(heavy) {
            return false;
        }
        self.visits += 1;
        self.visiting = INTERVALS - 1;
        let rows = self.placed.iter().map(|(id, (spot, _))| HomelessThread {
            id: *id,
            at: *spot,
            lacks: (0..kinds).map(|kind| lacks(id, kind)).collect(),
        });
        let mut left = RemainingThreads::new(rows.collect(), kinds);
        // Cores in use rotate among the threads. Threads that lack the kind come first; kinds with few cores choose first.
        let mut free: Vec<usize> = self.placed.values().map(|(spot, _)| *spot).collect();
        free.sort_by_key(|spot| {
            let kind = self.places.spots[*spot].kind;
            (self.places.kinds[kind].cores, kind, *spot)
        });
        for spot in free {
            let Some(row) = left.take(spot, self.places.spots[spot].kind) else {
                break;
            };
            if row.at != spot {
                self.placed.insert(row.id, (spot, now));
            }
        }
        true
    }
}

/// Thread without a core in the next mapping.
struct HomelessThread {
    id: ThreadId,
    /// Present core.
    at: usize,
    /// By kind of core: true if it was not measured there.
    lacks: Vec<bool>,
}

impl HomelessThread {
    fn known(&self) -> usize {
        self.lacks.iter().filter(|lacks| !**lacks).count()
    }
}

/// Threads in the order in which cores choose them: those that know fewer kinds first.
struct RemainingThreads {
    rows: Vec<HomelessThread>,
    /// By kind: number of kinds known, and row. First the threads that lack the kind, then the others.
    order: Vec<[BTreeSet<(usize, usize)>; 2]>,
    /// Rows by present core.
    at: BTreeMap<usize, BTreeSet<usize>>,
}

impl RemainingThreads {
    fn new(rows: Vec<HomelessThread>, kinds: usize) -> Self {
        let mut left = Self {
            order: vec![Default::default(); kinds],
            at: BTreeMap::new(),
            rows,
        };
        for (nth, row) in left.rows.iter().enumerate() {
            left.at.entry(row.at).or_default().insert(nth);
            for (order, lacks) in left.order.iter_mut().zip(&row.lacks) {
                order[usize::from(!lacks)].insert((row.known(), nth));
            }
        }
        left
    }

    /// Thread for a core of a kind: one that lacks the kind, preferably one that is already on the core.
    fn take(&mut self, spot: usize, kind: usize) -> Option<&HomelessThread> {
        let here = self.at.get(&spot);
        let wants = |nth: &usize| self.rows[*nth].lacks[kind];
        let lacking = here.and_then(|rows| rows.iter().copied().find(wants));
        let first = |order: usize| self.order[kind][order].first().copied();
        let nth = lacking
            .or_else(|| first(0).map(|(_, nth)| nth))
            .or_else(|| {
                let (known, nth) = first(1)?;
                let alike = |nth: &usize| self.rows[*nth].known() == known;
                let stays = here.and_then(|rows| rows.iter().copied().find(alike));
                Some(stays.unwrap_or(nth))
            })?;
        let row = &self.rows[nth];
        if let Some(rows) = self.at.get_mut(&row.at) {
            rows.remove(&nth);
        }
        for (order, lacks) in self.order.iter_mut().zip(&row.lacks) {
            order[usize::from(!lacks)].remove(&(row.known(), nth));
        }
        Some(row)
    }
}
