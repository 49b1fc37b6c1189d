//! Earliest eligible virtual deadline first: Linux 6.6 and later, with the rules of 6.12 to 7.x.
//!
//! Input: a run queue and its threads. Output: the thread that runs next, until when, and preemptions. Models `place_entity`,
//! `update_entity_lag`, `update_deadline`, `pick_eevdf`, the slice protection of run-to-parity, and the wake-up preemption of
//! `check_preempt_wakeup_fair`. Left out: buddies (`NEXT_BUDDY` is off by default), `SCHED_IDLE` and `SCHED_BATCH`, group
//! scheduling (one flat queue per CPU).

use super::Linux;
use super::entity::{NONE, State, Thread};
use super::runqueue::RunQueue;
use super::weights::virtual_time;

/// The running entity of a queue, when there is one.
pub(super) fn current<'a>(rq: &RunQueue, threads: &'a [Thread]) -> Option<&'a Thread> {
    threads.get(rq.curr as usize)
}

impl Linux {
    /// Records how far a thread leaving its queue is ahead of or behind V, within limits.
    pub(super) fn eevdf_update_lag(&mut self, cpu: usize, t: u32) {
        let rq = &self.rqs[cpu];
        let v = rq.average_vruntime(current(rq, &self.threads));
        let tick = self.tick_ns as i64;
        let thread = &mut self.threads[t as usize];
        let limit = virtual_time((2 * thread.slice).max(tick), thread.weight);
        thread.vlag = (v - thread.vruntime).clamp(-limit, limit);
    }

    /// Gives an entity joining the queue its virtual time and deadline so that its lag survives: adding it moves V, so the
    /// lag is stretched by (W + w) / W first.
    pub(super) fn eevdf_place(&mut self, cpu: usize, t: u32, new: bool) {
        let rq = &self.rqs[cpu];
        let curr = current(rq, &self.threads);
        let v = rq.average_vruntime(curr);
        let load = rq.weight + curr.map_or(0, |c| i64::from(c.weight));
        let base = self.base_slice;
        let thread = &mut self.threads[t as usize];
        if !thread.custom_slice {
            thread.slice = base;
        }
        let lag = if load > 0 && thread.vlag != 0 {
            thread.vlag * (load + i64::from(thread.weight)) / load
        } else {
            0
        };
        thread.vruntime = v - lag;
        if thread.rel_deadline {
            thread.deadline += thread.vruntime;
            thread.rel_deadline = false;
            return;
        }
        // The others are halfway through their slices on average: a newcomer starts with half a slice.
        let slice = thread.virtual_slice();
        thread.deadline = thread.vruntime + if new { slice / 2 } else { slice };
    }

    /// Renews the running thread's deadline once it has received its slice.
    pub(super) fn eevdf_update_deadline(&mut self, t: u32) -> bool {
        let base = self.base_slice;
        let thread = &mut self.threads[t as usize];
        if thread.vruntime < thread.deadline {
            return false;
        }
        if !thread.custom_slice {
            thread.slice = base;
        }
        thread.deadline = thread.vruntime + thread.virtual_slice();
        true
    }

    /// The shortest slice anyone on the queue asks for.
    fn shortest_slice(&self, cpu: usize) -> i64 {
        let rq = &self.rqs[cpu];
        if rq.custom_slices == 0 {
            return self.base_slice;
        }
        let running = current(rq, &self.threads).map(|c| c.slice);
        let waiting = rq
            .waiting
            .iter()
            .map(|w| self.threads[w.thread as usize].slice);
        running
            .into_iter()
            .chain(waiting)
            .min()
            .unwrap_or(self.base_slice)
    }

    /// A thread that was just picked may run for the shortest slice queued before others are considered.
    pub(super) fn eevdf_protect(&mut self, cpu: usize, t: u32) {
        let shortest = if self.config.run_to_parity {
            self.shortest_slice(cpu)
        } else {
            self.unscaled_slice
        };
        let thread = &mut self.threads[t as usize];
        let slice = shortest.min(thread.slice);
        thread.protected_until = thread.deadline;
        if slice != thread.slice {
            thread.protected_until = thread
                .deadline
                .min(thread.vruntime + virtual_time(slice, thread.weight));
        }
    }

    /// A thread with a shorter slice arrived: the running thread's protection shrinks.
    fn shrink_protection(&mut self, cpu: usize, t: u32) {
        let slice = self.shortest_slice(cpu);
        let thread = &mut self.threads[t as usize];
        thread.protected_until = thread
            .protected_until
            .min(thread.vruntime + virtual_time(slice, thread.weight));
    }

    /// The earliest deadline among the eligible; `None` when the queue is empty.
    pub(super) fn eevdf_pick(&self, cpu: usize, protect: bool) -> u32 {
        let rq = &self.rqs[cpu];
        let curr = current(rq, &self.threads);
        if rq.waiting.is_empty() {
            return rq.curr;
        }
        let contender = curr.filter(|c| rq.eligible(curr, c.vruntime));
        if protect && contender.is_some_and(|c| c.protected_until > c.vruntime) {
            return rq.curr;
        }
        let best = rq.waiting.iter().find(|w| rq.eligible(curr, w.vruntime));
        match (contender, best) {
            (Some(c), Some(w)) if w.key <= c.deadline => w.thread,
            (Some(_), _) => rq.curr,
            (None, Some(w)) => w.thread,
            // Rounding can leave nobody eligible: the least served runs.
            (None, None) => rq
                .waiting
                .iter()
                .min_by_key(|w| w.vruntime)
                .map_or(NONE, |w| w.thread),
        }
    }

    /// Whether a woken thread with a shorter slice may break the running one's protection.
    fn preempts_by_short_slice(&self, cpu: usize, t: u32) -> bool {
        let rq = &self.rqs[cpu];
        let curr = current(rq, &self.threads);
        let (Some(c), p) = (curr, &self.threads[t as usize]) else {
            return false;
        };
        p.slice < c.slice
            && rq.eligible(curr, p.vruntime)
            && (p.deadline < c.deadline || !rq.eligible(curr, c.vruntime))
    }

    /// Whether thread `t`, just queued, takes the CPU from the running one.
    pub(super) fn eevdf_wakeup_preempts(&mut self, cpu: usize, t: u32) -> bool {
        let curr = self.rqs[cpu].curr;
        if self.preempts_by_short_slice(cpu, t) {
            let running = &mut self.threads[curr as usize];
            running.protected_until = running.protected_until.min(running.vruntime);
        }
        if self.eevdf_pick(cpu, true) == t {
            return true;
        }
        if self.config.run_to_parity && self.rqs[cpu].custom_slices > 0 {
            self.shrink_protection(cpu, curr);
        }
        false
    }

    /// Whether a thread about to sleep must stay queued: it got more than its share and would otherwise escape the debt.
    pub(super) fn eevdf_delays(&self, cpu: usize, t: u32) -> bool {
        let rq = &self.rqs[cpu];
        self.config.delay_dequeue
            && !rq.eligible(
                current(rq, &self.threads),
                self.threads[t as usize].vruntime,
            )
    }

    /// `sched_yield`: an eligible thread gives up the rest of its slice.
    pub(super) fn eevdf_yield(&mut self, cpu: usize, t: u32) {
        let rq = &self.rqs[cpu];
        let eligible = rq.eligible(
            current(rq, &self.threads),
            self.threads[t as usize].vruntime,
        );
        let thread = &mut self.threads[t as usize];
        debug_assert_eq!(thread.state, State::Running);
        if eligible {
            thread.vruntime = thread.vruntime.max(thread.deadline);
            thread.deadline = thread.vruntime + thread.virtual_slice();
        }
    }
}
