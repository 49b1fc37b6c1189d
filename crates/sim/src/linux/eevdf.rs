//! Earliest eligible virtual deadline first: Linux 6.6 and later, with the rules of 6.12 to 7.x.
//!
//! Input: a run queue and its threads. Output: the thread that runs next, the time until which it runs, and preemptions. Models
//! `place_entity`, `update_entity_lag`, `update_deadline`, `pick_eevdf`, the slice protection of run-to-parity, and the wakeup
//! preemption of `check_preempt_wakeup_fair` (kernel/sched/fair.c). Left out: buddies (`NEXT_BUDDY` is off by default),
//! `SCHED_IDLE`, `SCHED_BATCH`, and group scheduling: each CPU has one flat queue.

use super::Linux;
use super::entity::{NONE, TaskEntity, TaskState};
use super::runqueue::RunQueue;
use super::weights::virtual_time;

/// Returns the running entity of a queue; `None` if nothing runs.
pub(super) fn current<'a>(rq: &RunQueue, threads: &'a [TaskEntity]) -> Option<&'a TaskEntity> {
    threads.get(rq.curr as usize)
}

impl Linux {
    /// Sets the lag of a thread that leaves its queue: the average virtual time V minus the thread's, within limits
    /// (`update_entity_lag`).
    pub(super) fn eevdf_update_lag(&mut self, cpu: usize, t: u32) {
        let rq = &self.rqs[cpu];
        let v = rq.average_vruntime(current(rq, &self.threads));
        let tick = self.tick_ns as i64;
        let thread = &mut self.threads[t as usize];
        // The lag is limited in both directions to two slices or one tick, whichever is longer.
        let limit = virtual_time((2 * thread.slice).max(tick), thread.weight);
        thread.vlag = (v - thread.vruntime).clamp(-limit, limit);
    }

    /// Sets virtual time and deadline of an entity that joins the queue, so that its lag is preserved (`place_entity`).
    ///
    /// An entity of weight w moves the average virtual time V of a queue of weight W. The lag is therefore first scaled by (W +
    /// w) / W.
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
        // `PLACE_REL_DEADLINE`: a thread that migrates keeps the distance to its deadline.
        if thread.rel_deadline {
            thread.deadline += thread.vruntime;
            thread.rel_deadline = false;
            return;
        }
        // `PLACE_DEADLINE_INITIAL`: the other threads are halfway through their slices on average, so a new thread starts with
        // half a slice.
        let slice = thread.virtual_slice();
        thread.deadline = thread.vruntime + if new { slice / 2 } else { slice };
    }

    /// Sets a new deadline for the running thread if the thread has received its slice; returns true if so.
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

    /// Returns the shortest time slice that any entity of the queue requests, in nanoseconds.
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

    /// Protects a thread that was just picked from preemption for the shortest slice of the queue (`set_protect_slice`).
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

    /// Shortens the protection of the running thread after a thread with a shorter slice joined the queue
    /// (`update_protect_slice`).
    fn shrink_protection(&mut self, cpu: usize, t: u32) {
        let slice = self.shortest_slice(cpu);
        let thread = &mut self.threads[t as usize];
        thread.protected_until = thread
            .protected_until
            .min(thread.vruntime + virtual_time(slice, thread.weight));
    }

    /// Returns the eligible thread with the earliest deadline; `NONE` if there is no thread (`pick_eevdf`). With `protect`, a
    /// protected running thread is returned first.
    pub(super) fn eevdf_pick(&self, cpu: usize, protect: bool) -> u32 {
        let rq = &self.rqs[cpu];
        let curr = current(rq, &self.threads);
        if rq.waiting.is_empty() {
            return rq.curr;
        }
        let contender = curr.filter(|c| rq.eligible(curr, c.vruntime));
        // `RUN_TO_PARITY`: an eligible running thread stays until its protection ends.
        if protect && contender.is_some_and(|c| c.protected_until > c.vruntime) {
            return rq.curr;
        }
        let best = rq.waiting.iter().find(|w| rq.eligible(curr, w.vruntime));
        match (contender, best) {
            (Some(c), Some(w)) if w.key <= c.deadline => w.thread,
            (Some(_), _) => rq.curr,
            (None, Some(w)) => w.thread,
            // Rounding can make all entities ineligible: the one with the least virtual time then runs.
            (None, None) => rq
                .waiting
                .iter()
                .min_by_key(|w| w.vruntime)
                .map_or(NONE, |w| w.thread),
        }
    }

    /// True if a woken thread with a shorter slice may end the protection of the running thread (`do_preempt_short`).
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

    /// True if thread `t`, just queued, preempts the running thread (`check_preempt_wakeup_fair`).
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

    /// True if a thread about to sleep must stay queued because it received more than its share. Sleep would otherwise cancel the
    /// debt.
    pub(super) fn eevdf_delays(&self, cpu: usize, t: u32) -> bool {
        let rq = &self.rqs[cpu];
        self.config.delay_dequeue
            && !rq.eligible(
                current(rq, &self.threads),
                self.threads[t as usize].vruntime,
            )
    }

    /// Yields the CPU (`yield_task_fair`): an eligible running thread gives up the rest of its slice.
    pub(super) fn eevdf_yield(&mut self, cpu: usize, t: u32) {
        let rq = &self.rqs[cpu];
        let eligible = rq.eligible(
            current(rq, &self.threads),
            self.threads[t as usize].vruntime,
        );
        let thread = &mut self.threads[t as usize];
        debug_assert_eq!(thread.state, TaskState::Running);
        if eligible {
            thread.vruntime = thread.vruntime.max(thread.deadline);
            thread.deadline = thread.vruntime + thread.virtual_slice();
        }
    }
}
