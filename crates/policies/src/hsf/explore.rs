//! Visits of threads to a core type on which their speed or phase has to be measured.

use countersteer_model::policy::HintClass;
use countersteer_model::units::{Nanos, ThreadId};

use super::Hsf;
use super::candidate::{HsfCandidate, ThreadMemory, Trip};

/// Divisor of `refresh_ms` for threads whose phase changed.
const SOONER: u64 = 4;

/// Limit on the number of times by which the time between fruitless measurements is doubled.
const MOST_PATIENCE: u32 = 6;

/// Number of decisions for which a thread stays on the big core while its phase is added to its table.
const VISIT: u32 = 3;
/// Threshold: number of consecutive samples without a table entry at which a thread is sent to a big core.
const MISSES: f64 = 2.0;
/// Minimum time between two visits of a thread to a big core, after a visit that changed its rank.
const LEAST_GAP: Nanos = Nanos::from_millis(2_000);
/// Limit on that time, which doubles after each visit that did not change the rank.
const MOST_GAP: Nanos = Nanos::from_millis(32_000);

/// Visit of a thread to a big core, because its phase is not in its table.
#[derive(Clone, Copy)]
pub(super) struct Visit {
    thread: ThreadId,
    /// Number of decisions until the visit ends and the thread is ranked again.
    left: u32,
}

impl Hsf {
    /// Sends each thread that has to be measured to the type on which it was not measured.
    pub(super) fn explore(&mut self, all: &mut [HsfCandidate<'_>], now: Nanos, quota: &[usize]) {
        let last = quota.len() - 1;
        for c in all.iter_mut() {
            if let Some(rank) = c.assigned {
                self.note_place(&mut c.memory, rank, now);
            }
        }
        if quota[0] == 0 || quota[last] == 0 {
            return;
        }
        for c in all.iter_mut().filter(|c| is_measured(c)) {
            match c.memory.been {
                _ if c.sf.is_some() => {}
                [None, _] => c.send(Trip::Measure, f64::INFINITY),
                [Some(_), None] => c.send(Trip::Measure, f64::NEG_INFINITY),
                _ => {}
            }
        }
        if all.iter().all(|c| c.sent.is_none()) {
            self.measure_again(all, now);
        }
    }

    /// Records that a thread was placed on the fastest or the slowest type. A thread that is sent there counts at once: it may
    /// be asleep at the next decision although its measurement is done.
    pub(super) fn note_place(&self, memory: &mut ThreadMemory, rank: usize, now: Nanos) {
        let last = self.slots.ranks().len() - 1;
        if let Some(end) = [0, last].iter().position(|r| *r == rank) {
            memory.been[end] = Some(now);
        }
    }

    /// Sends the thread with the oldest measurement, if `refresh_ms` has passed since the last one was sent.
    fn measure_again(&mut self, all: &mut [HsfCandidate<'_>], now: Nanos) {
        let since = now.since(self.last_refresh).0;
        if since < self.refresh.0 / SOONER {
            return;
        }
        let due = since >= self.refresh.0;
        let oldest = |c: &HsfCandidate<'_>| c.memory.been.iter().copied().min().flatten();
        // A thread without a factor after visits to both types slept there, or cannot be measured. It is tried again at
        // growing intervals.
        let patient = |c: &HsfCandidate<'_>| {
            let tried = oldest(c).unwrap_or_default();
            now.since(tried).0 >= self.refresh.0 << c.memory.fruitless.min(MOST_PATIENCE)
        };
        let wanted = |c: &&mut HsfCandidate<'_>| match c.sf {
            Some(_) => due || c.memory.changed,
            None => due && patient(c),
        };
        let stale = all.iter_mut().filter(|c| is_measured(c)).filter(wanted);
        if let Some(c) = stale.min_by_key(|c| (!c.memory.changed, oldest(c), c.info.id)) {
            c.memory.changed = false;
            c.memory.fruitless = if c.sf.is_some() {
                0
            } else {
                c.memory.fruitless + 1
            };
            self.last_refresh = now;
            let [fast, slow] = c.memory.been;
            let to_fast = if fast <= slow { 1.0 } else { -1.0 };
            c.send(Trip::Measure, to_fast * f64::INFINITY);
        }
    }

    /// Sends a thread whose phase is not in its table to a big core, one thread at a time. It is exchanged for the thread that
    /// gains least there.
    pub(super) fn refresh_history(
        &mut self,
        all: &mut [HsfCandidate<'_>],
        now: Nanos,
        quota: &[usize],
    ) {
        if quota.len() < 2 || quota[0] == 0 {
            return;
        }
        if let Some(visit) = &mut self.visit {
            let row = all.binary_search_by_key(&visit.thread, |c| c.info.id);
            let Ok(row) = row else {
                self.visit = None;
                return;
            };
            if visit.left > 0 {
                visit.left -= 1;
                all[row].send(Trip::Refresh, f64::INFINITY);
            } else {
                all[row].visits = true;
            }
            return;
        }
        let lost = |c: &&mut HsfCandidate<'_>| {
            let waited = c
                .memory
                .forced
                .is_none_or(|at| now.since(at) >= c.memory.gap);
            c.misses >= MISSES
                && waited
                && c.assigned != Some(0)
                && c.stuck.is_none()
                && c.class == HintClass::Full
                && !c.young
        };
        let next = all
            .iter_mut()
            .filter(lost)
            .min_by_key(|c| (c.sf.is_some(), c.memory.forced, c.info.id));
        if let Some(c) = next {
            c.memory.forced = Some(now);
            c.memory.gap = c.memory.gap.max(LEAST_GAP);
            c.send(Trip::Refresh, f64::INFINITY);
            self.visit = Some(Visit {
                thread: c.info.id,
                left: VISIT - 1,
            });
        }
    }

    /// Ends a visit once the thread was ranked again. If the visit did not change the thread's rank, the time until its next
    /// visit doubles.
    pub(super) fn end_visit(&mut self, all: &mut [HsfCandidate<'_>], ranks: &[usize]) {
        let ended = all.iter().position(|c| c.visits);
        if let Some(row) = ended {
            let gap = &mut all[row].memory.gap;
            *gap = if ranks[row] == 0 {
                LEAST_GAP
            } else {
                Nanos(gap.0 * 2).min(MOST_GAP)
            };
            self.visit = None;
        }
    }
}

fn is_measured(c: &HsfCandidate<'_>) -> bool {
    c.measured && !c.young && c.stuck.is_none() && c.class == HintClass::Full
}
