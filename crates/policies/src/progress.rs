//! Progress counters: one number per thread that grows while the thread runs, and the rules for threads that start or wake.
//!
//! A thread that starts or wakes must have neither an advantage nor a disadvantage from its absence. It starts at the
//! smallest counter of the active threads, or keeps its own counter if that is at most `slack` smaller. If no thread was
//! active, the counters of those that were active last are used.

use std::collections::BTreeMap;

use countersteer_model::engine::ThreadInfo;
pub(crate) use countersteer_model::score::nice_weight;
use countersteer_model::units::{ProgramId, ThreadId};

/// Progress counters of threads.
#[derive(Default)]
pub(crate) struct ThreadProgress {
    counters: BTreeMap<ThreadId, ProgressCounter>,
    /// Smallest counter of the active threads so far. It never decreases, so it stays valid while no thread is active.
    floor: f64,
}

struct ProgressCounter {
    value: f64,
    /// True if the thread was active at the last decision.
    active: bool,
}

impl ThreadProgress {
    /// Updates the counters for the active threads, which are in ascending order of ids. Other living threads keep their
    /// counters; exited threads are removed.
    pub(crate) fn admit(&mut self, active: &[&ThreadInfo], alive: &[ThreadInfo], slack: f64) {
        let least_of_those_who_ran = |who_stayed: bool| {
            let stayed = |id: &ThreadId| active.binary_search_by_key(id, |t| t.id).is_ok();
            let ran = self.counters.iter().filter(|(_, c)| c.active);
            ran.filter(|(id, _)| !who_stayed || stayed(id))
                .map(|(_, c)| c.value)
                .reduce(f64::min)
        };
        // If none of the threads stayed active, the counters of those that just became inactive are used.
        let reached = least_of_those_who_ran(true).or_else(|| least_of_those_who_ran(false));
        self.floor = self.floor.max(reached.unwrap_or(0.0));
        let least = self.floor;
        let exists = |id: &ThreadId| alive.binary_search_by_key(id, |t| t.id).is_ok();
        self.counters.retain(|id, _| exists(id));
        let starts = self.program_means(active);
        for counter in self.counters.values_mut() {
            counter.active = false;
        }
        for info in active {
            let start = starts.get(&info.program).copied().unwrap_or(least);
            let counter = self.counters.entry(info.id).or_insert(ProgressCounter {
                value: start,
                active: true,
            });
            // A thread that slept keeps at most `slack` of its lag, so that sleep earns no credit.
            counter.value = counter.value.max(least - slack);
            counter.active = true;
        }
    }

    /// Returns the mean counter of each program's threads.
    fn program_means(&self, threads: &[&ThreadInfo]) -> BTreeMap<ProgramId, f64> {
        let mut sums: BTreeMap<ProgramId, (f64, f64)> = BTreeMap::new();
        for info in threads {
            if let Some(counter) = self.counters.get(&info.id) {
                let (sum, count) = sums.entry(info.program).or_default();
                (*sum, *count) = (*sum + counter.value, *count + 1.0);
            }
        }
        let mean = |(program, (sum, count)): (ProgramId, (f64, f64))| (program, sum / count);
        sums.into_iter().map(mean).collect()
    }

    pub(crate) fn add(&mut self, thread: ThreadId, amount: f64) {
        if let Some(counter) = self.counters.get_mut(&thread) {
            counter.value += amount;
        }
    }

    pub(crate) fn get(&self, thread: ThreadId) -> f64 {
        self.counters.get(&thread).map_or(0.0, |c| c.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersteer_model::units::CpuId;
    use std::sync::Arc;

    fn thread(id: u32, program: u32) -> ThreadInfo {
        ThreadInfo {
            id: ThreadId(id),
            program: ProgramId(program),
            name: "p".into(),
            cpu: CpuId(0),
            runnable: true,
            nice: 0,
            allowed: Arc::default(),
            hint: None,
        }
    }

    #[test]
    fn sleep_earns_no_more_than_the_slack() {
        let threads = [thread(1, 1), thread(2, 2)];
        let [sleeper, runner] = [&threads[0], &threads[1]];
        let mut progress = ThreadProgress::default();
        progress.admit(&[sleeper, runner], &threads, 1.0);
        progress.admit(&[runner], &threads, 1.0);
        progress.add(runner.id, 10.0);
        progress.admit(&[sleeper, runner], &threads, 1.0);
        assert_eq!(progress.get(sleeper.id), 9.0);
    }

    #[test]
    fn threads_that_start_while_none_is_active_begin_where_the_last_ones_were() {
        let threads = [thread(1, 1), thread(2, 2), thread(3, 3)];
        let [runner, sleeper, newcomer] = [&threads[0], &threads[1], &threads[2]];
        let mut progress = ThreadProgress::default();
        progress.admit(&[runner, sleeper], &threads[..2], 1.0);
        progress.admit(&[runner], &threads[..2], 1.0);
        progress.add(runner.id, 1_000.0);
        progress.admit(&[], &threads[..2], 1.0);
        progress.admit(&[], &threads[..2], 1.0);
        progress.admit(&[sleeper, newcomer], &threads, 1.0);
        assert_eq!(progress.get(sleeper.id), 999.0);
        assert_eq!(progress.get(newcomer.id), 1_000.0);
    }

    #[test]
    fn a_thread_that_starts_as_the_only_active_one_exits_begins_where_that_was() {
        let threads = [thread(1, 1), thread(2, 2)];
        let mut progress = ThreadProgress::default();
        progress.admit(&[&threads[0]], &threads[..1], 1.0);
        progress.add(threads[0].id, 1_000.0);
        progress.admit(&[&threads[1]], &threads[1..], 1.0);
        assert_eq!(progress.get(threads[1].id), 1_000.0);
    }

    #[test]
    fn a_new_thread_starts_as_the_mean_of_its_program() {
        let threads = [thread(1, 1), thread(2, 1), thread(3, 2), thread(4, 1)];
        let refs: Vec<&ThreadInfo> = threads.iter().collect();
        let mut progress = ThreadProgress::default();
        progress.admit(&refs[..3], &threads, 100.0);
        progress.add(threads[0].id, 4.0);
        progress.add(threads[1].id, 8.0);
        progress.admit(&refs, &threads, 100.0);
        assert_eq!(progress.get(threads[3].id), 6.0);
    }

    #[test]
    fn a_nice_step_is_a_quarter() {
        assert_eq!(nice_weight(-1), 1.25);
    }
}
