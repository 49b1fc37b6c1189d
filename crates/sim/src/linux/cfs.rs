//! The completely fair scheduler: Linux up to 6.5.
//!
//! Input: a run queue and its threads. Output: the thread that runs next, its time slice, and preemptions. Models `sched_slice`,
//! `check_preempt_tick`, `place_entity` with gentle fair sleepers and start debit, `update_min_vruntime` and
//! `wakeup_preempt_entity` (kernel/sched/fair.c). Left out: buddies (next, last, skip) and group scheduling.

use super::Linux;
use super::eevdf::current;
use super::entity::NONE;
use super::weights::virtual_time;

/// Scheduling period of a queue with few threads, in nanoseconds, before it is scaled by 1 + ilog2(min(cpus, 8)).
pub(super) const LATENCY_NS: i64 = 6_000_000;
/// Minimum time slice in nanoseconds, before it is scaled by 1 + ilog2(min(cpus, 8)).
pub(super) const MIN_GRANULARITY_NS: i64 = 750_000;
/// Virtual time by which a woken thread must be behind to preempt, in nanoseconds, before it is scaled by 1 + ilog2(min(cpus,
/// 8)).
pub(super) const WAKEUP_GRANULARITY_NS: i64 = 1_000_000;
/// Number of threads above which the scheduling period grows, so that each thread still receives the minimum granularity.
const LATENCY_THREADS: i64 = 8;

impl Linux {
    /// Advances the queue's minimum virtual time, which never decreases, because sleepers are placed relative to it
    /// (`update_min_vruntime`).
    pub(super) fn cfs_update_min(&mut self, cpu: usize) {
        let rq = &mut self.rqs[cpu];
        let curr = current(rq, &self.threads).map(|c| c.vruntime);
        let left = rq.waiting.front().map(|w| w.vruntime);
        let min = match (curr, left) {
            (Some(a), Some(b)) => a.min(b),
            (Some(a), None) | (None, Some(a)) => a,
            (None, None) => return,
        };
        if min > rq.zero {
            rq.rebase(min);
        }
    }

    /// Returns the time slice of a thread: its share of the scheduling period, in nanoseconds (`sched_slice`).
    pub(super) fn cfs_slice(&self, cpu: usize, t: u32) -> i64 {
        let rq = &self.rqs[cpu];
        let thread = &self.threads[t as usize];
        let queued = i64::from(rq.runnable.max(1));
        let scale = self.cpu_scale;
        // `__sched_period`: the latency for few threads, the minimum granularity per thread for many.
        let period = if queued > LATENCY_THREADS {
            queued * MIN_GRANULARITY_NS * scale
        } else {
            LATENCY_NS * scale
        };
        let curr = current(rq, &self.threads);
        let mut total = rq.weight + curr.map_or(0, |c| i64::from(c.weight));
        if !thread.on_queue() {
            total += i64::from(thread.weight);
        }
        (period * i64::from(thread.weight) / total.max(1)).max(MIN_GRANULARITY_NS * scale)
    }

    /// Sets the virtual time of a thread that joins. New threads start one slice late; sleepers receive at most half of the
    /// latency as credit.
    pub(super) fn cfs_place(&mut self, cpu: usize, t: u32, new: bool) {
        let min = self.rqs[cpu].zero;
        let slice = if new { self.cfs_slice(cpu, t) } else { 0 };
        let latency = LATENCY_NS * self.cpu_scale;
        let thread = &mut self.threads[t as usize];
        // `START_DEBIT`, and `GENTLE_FAIR_SLEEPERS`, which halves the credit of sleepers.
        if new {
            thread.vruntime = thread
                .vruntime
                .max(min + virtual_time(slice, thread.weight));
        } else {
            thread.vruntime = thread.vruntime.max(min - latency / 2);
        }
    }

    /// True if the running thread must be preempted at this tick (`check_preempt_tick`).
    pub(super) fn cfs_tick_preempts(&self, cpu: usize, t: u32) -> bool {
        let rq = &self.rqs[cpu];
        let thread = &self.threads[t as usize];
        let ideal = self.cfs_slice(cpu, t);
        let ran = (thread.ran - thread.ran_at_pick) as i64;
        if ran > ideal {
            return true;
        }
        // `check_preempt_tick`: after the minimum granularity, a thread is preempted if its virtual time leads by more than its
        // slice.
        if ran < MIN_GRANULARITY_NS * self.cpu_scale {
            return false;
        }
        rq.waiting
            .front()
            .is_some_and(|first| thread.vruntime - first.vruntime > ideal)
    }

    pub(super) fn cfs_pick(&self, cpu: usize) -> u32 {
        let rq = &self.rqs[cpu];
        match (current(rq, &self.threads), rq.waiting.front()) {
            (Some(c), Some(w)) if w.vruntime < c.vruntime => w.thread,
            (Some(_), _) => rq.curr,
            (None, Some(w)) => w.thread,
            (None, None) => NONE,
        }
    }

    /// True if a woken thread preempts: its virtual time must be behind the running thread's by more than the wakeup granularity.
    pub(super) fn cfs_wakeup_preempts(&self, cpu: usize, t: u32) -> bool {
        let thread = &self.threads[t as usize];
        let Some(curr) = current(&self.rqs[cpu], &self.threads) else {
            return false;
        };
        let behind = curr.vruntime - thread.vruntime;
        // The granularity is scaled by the woken thread's weight: light threads must be further behind (`wakeup_gran`).
        behind > virtual_time(WAKEUP_GRANULARITY_NS * self.cpu_scale, thread.weight)
    }

    /// Yields the CPU (`sched_yield`): the first waiting thread goes first.
    pub(super) fn cfs_yield(&mut self, cpu: usize, t: u32) {
        if let Some(last) = self.rqs[cpu].waiting.front().map(|w| w.vruntime) {
            let thread = &mut self.threads[t as usize];
            thread.vruntime = thread.vruntime.max(last + 1);
        }
    }
}
