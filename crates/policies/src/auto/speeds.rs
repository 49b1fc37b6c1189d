//! Speeds of threads in a block: instructions per second of wall time in which they wanted a CPU.
//!
//! Input: the view at the end of each interval. Output: the gain of two blocks over the block between them. A thread that slept
//! counts for none of the interval, since its waiting may depend on others. A thread that waited for a CPU counts in full.

use std::collections::{BTreeMap, BTreeSet};

use countersteer_model::engine::ThreadEventKind;
use countersteer_model::policy::View;
use countersteer_model::units::ThreadId;

/// Instructions and time in s by thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Speeds {
    threads: BTreeMap<ThreadId, (f64, f64)>,
}

impl Speeds {
    /// Adds an interval.
    pub fn note(&mut self, view: &View<'_>, passed_s: f64) {
        let counts = |kind| {
            !matches!(
                kind,
                ThreadEventKind::Migrate { .. } | ThreadEventKind::Phase
            )
        };
        let events = view.events.iter().filter(|e| counts(e.kind));
        let stirred: BTreeSet<ThreadId> = events.map(|e| e.thread).collect();
        let mut usage = view.metrics.usage().read_threads();
        for info in view.threads {
            let Some(usage) = usage.get(info.id) else {
                continue;
            };
            if info.runnable && !stirred.contains(&info.id) {
                self.add(info.id, usage.last_instructions(), passed_s);
            }
        }
    }

    fn add(&mut self, thread: ThreadId, instructions: f64, passed_s: f64) {
        let (sum, time_s) = self.threads.entry(thread).or_default();
        *sum += instructions;
        *time_s += passed_s;
    }

    /// Instructions per second of a thread; `None` if it was not measured.
    fn of(&self, thread: ThreadId) -> Option<f64> {
        let (instructions, time_s) = self.threads.get(&thread)?;
        (*time_s > 0.0).then(|| instructions / time_s)
    }

    /// Natural logarithm of the mean gain of the blocks `before` and `after` over this one. `None` if no thread ran in all three.
    pub fn gain_around(&self, before: &Self, after: &Self) -> Option<f64> {
        let mut around = 0.0;
        let mut here = 0.0;
        for thread in self.threads.keys() {
            let (Some(own), Some(first), Some(last)) =
                (self.of(*thread), before.of(*thread), after.of(*thread))
            else {
                continue;
            };
            let most = own.max(first).max(last);
            if most > 0.0 {
                around += 0.5 * (first + last) / most;
                here += own / most;
            }
        }
        let log = (around / here).ln();
        log.is_finite().then_some(log)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(speeds: &[f64]) -> Speeds {
        let mut block = Speeds::default();
        for (row, speed) in speeds.iter().enumerate() {
            block.add(ThreadId::from_index(row), speed * 2.0, 2.0);
        }
        block
    }

    #[test]
    fn threads_that_exchange_equal_places_gain_nothing() {
        let [here, there] = [block(&[1.0, 0.4]), block(&[0.4, 1.0])];
        let gain = here.gain_around(&there, &there).unwrap();
        assert!(gain.abs() < 1e-12, "{gain}");
    }

    #[test]
    fn a_thread_counts_by_its_own_speed_and_a_drift_cancels() {
        // The second thread is a hundred times as fast; the first gains a tenth. Both drift by a tenth per block.
        let [before, here, after] = [
            block(&[1.1 * 0.9, 90.0]),
            block(&[1.0, 100.0]),
            block(&[1.1 * 1.1, 110.0]),
        ];
        let gain = here.gain_around(&before, &after).unwrap();
        assert!((gain.exp_m1() - 0.05).abs() < 0.005, "{gain}");
    }

    #[test]
    fn threads_of_one_block_are_left_out() {
        let [two, one] = [block(&[1.0, 7.0]), block(&[2.0])];
        assert_eq!(two.gain_around(&one, &one), Some(2f64.ln()));
        assert_eq!(two.gain_around(&Speeds::default(), &one), None);
    }
}
