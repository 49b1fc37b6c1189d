//! NUMA balancing: threads stay on the memory node of their pages, and return to it.
//!
//! Input: the node of each thread's pages, which the engine knows. Output: balances that leave threads at home, and moves of threads
//! back. Models `migrate_degrades_locality` and the idle case of `task_numa_migrate` (kernel/sched/fair.c). The engine moves pages
//! (`engine/pages.rs`). Left out: swaps of two threads (`task_numa_compare`), groups of threads that share pages, and the choice of the
//! busiest queue by kinds of threads (`fbq_classify_rq`).

use std::cmp::Ordering;

use countersteer_model::units::{Nanos, ThreadId};

use super::Linux;
use super::entity::NONE;

impl Linux {
    /// Sets the memory node of a thread's pages, as scanning has found it (`numa_preferred_nid`).
    pub(crate) fn set_home(&mut self, thread: ThreadId, node: u32) {
        if self.config.numa_balancing {
            self.threads[thread.index()].home = node;
        }
    }

    /// Moves a runnable thread to an idle CPU of its home node; returns false if it is there, or if there is no such CPU.
    pub(crate) fn return_home(&mut self, thread: ThreadId, now: Nanos) -> bool {
        let now = self.begin(now);
        let moved = self.go_home(thread.0, now);
        self.end(now);
        moved
    }

    fn go_home(&mut self, t: u32, now: u64) -> bool {
        let of = &self.threads[t as usize];
        let home = of.home;
        if home == NONE || !of.runnable() || self.memory_of[of.cpu as usize] == home {
            return false;
        }
        // `task_numa_find_cpu`: an idle CPU of the node takes the thread at once.
        let idle = |cpu: &usize| {
            self.memory_of[*cpu] == home
                && self.idle.has(*cpu)
                && self.threads[t as usize].allowed.has(*cpu)
                && !self.is_throttled(self.threads[t as usize].group, *cpu)
        };
        let Some(to) = (0..self.memory_of.len()).find(idle) else {
            return false;
        };
        self.transfer(t, to, now);
        true
    }

    /// Effect of a move on the locality of a thread's pages (`migrate_degrades_locality`).
    pub(super) fn locality(&self, source: usize, target: usize, t: u32) -> Ordering {
        let home = self.threads[t as usize].home;
        let (from, to) = (self.memory_of[source], self.memory_of[target]);
        if home == NONE || from == to {
            return Ordering::Equal;
        }
        if to == home {
            return Ordering::Greater;
        }
        // A thread leaves its preferred node only if all threads of its queue prefer this node.
        let prefers = |t: &u32| self.threads[*t as usize].home == from;
        let others = self.queue_of(source).any(|t| !prefers(&t));
        if from == home && others {
            Ordering::Less
        } else {
            Ordering::Equal
        }
    }
}
