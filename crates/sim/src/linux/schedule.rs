//! The core of the fair class: accounting, joining and leaving queues, and context switches.
//!
//! Input: decisions of the other modules (a thread joins a queue, a CPU must reschedule). Output: context switches, and load
//! averages that are correct at every event. Models `update_curr`, `enqueue_task_fair`, `dequeue_task_fair`, `wakeup_preempt` and
//! `update_misfit_status` (kernel/sched/fair.c), and `__schedule` (kernel/sched/core.c).

use countersteer_model::units::{CpuId, Nanos, ThreadId};

use super::Linux;
use super::clamps::{CapacityFit, fit};
use super::config::{ContextSwitch, FairClass};
use super::entity::{NONE, TaskState};
use super::pelt::initial_util;
use super::runqueue::WaitingThread;
use super::weights::virtual_time;

/// Reason why a thread joins a run queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Join {
    New,
    Wake,
    Move,
}

impl Linux {
    fn eevdf(&self) -> bool {
        self.config.scheduler == FairClass::Eevdf
    }

    /// Charges the running thread of a CPU for the time since the last charge. Returns true if its EEVDF time slice is over.
    pub(super) fn update_curr(&mut self, cpu: usize, now: u64) -> bool {
        let t = self.rqs[cpu].curr;
        if t == NONE {
            return false;
        }
        let thread = &mut self.threads[t as usize];
        let delta = now.saturating_sub(thread.exec_start);
        if delta == 0 {
            return false;
        }
        thread.exec_start = now;
        thread.ran += delta;
        thread.vruntime += virtual_time(delta as i64, thread.weight);
        self.charge_process(cpu, t, delta, now);
        self.charge_group(cpu, t, delta, now);
        if !self.eevdf() {
            self.cfs_update_min(cpu);
            return false;
        }
        let over = self.eevdf_update_deadline(t);
        let rq = &self.rqs[cpu];
        let v = if rq.waiting.is_empty() {
            self.threads[t as usize].vruntime
        } else {
            rq.average_vruntime(Some(&self.threads[t as usize]))
        };
        self.rqs[cpu].rebase(v);
        over
    }

    /// Updates the load averages of a run queue and a thread; must be called before the thread changes state.
    pub(super) fn sync_thread(&mut self, cpu: usize, t: u32, now: u64) {
        let rq = &mut self.rqs[cpu];
        rq.update_avg(now);
        let thread = &mut self.threads[t as usize];
        let rate = thread.rate();
        thread.avg.update(rq.pelt_clock(now), rate);
    }

    /// Returns a thread's sort key in its run queue: its deadline (EEVDF) or virtual time (CFS).
    fn key(&self, t: u32) -> i64 {
        let thread = &self.threads[t as usize];
        if self.eevdf() {
            thread.deadline
        } else {
            thread.vruntime
        }
    }

    pub(super) fn insert(&mut self, cpu: usize, t: u32) {
        let key = self.key(t);
        let thread = &self.threads[t as usize];
        self.rqs[cpu].insert(WaitingThread {
            key,
            vruntime: thread.vruntime,
            thread: t,
            weight: thread.weight,
        });
    }

    pub(super) fn remove(&mut self, cpu: usize, t: u32) {
        let key = self.key(t);
        self.rqs[cpu].remove(t, key);
    }

    pub(super) fn count_runnable(&mut self, cpu: usize, after: u32) {
        let before = self.rqs[cpu].runnable;
        self.rqs[cpu].runnable = after;
        self.domains.count_runnable(cpu, before, after);
        self.touch(cpu);
    }

    fn set_idle(&mut self, cpu: usize, idle: bool, now: u64) {
        if self.rqs[cpu].idle == idle {
            return;
        }
        self.rqs[cpu].update_avg(now);
        self.rqs[cpu].idle = idle;
        self.domains.count_idle(cpu, idle);
        if idle && !self.offline.has(cpu) {
            self.idle.set(cpu);
        } else if !idle {
            self.rqs[cpu].wake_clock(now);
            self.idle.clear(cpu);
        }
    }

    /// Moves a thread that is on no queue to another CPU. Its load averages move with it, and its virtual time stays relative to
    /// the queue.
    pub(super) fn move_entity(&mut self, t: u32, to: usize, now: u64) {
        let from = self.threads[t as usize].cpu as usize;
        if from == to {
            return;
        }
        self.sync_thread(from, t, now);
        self.rqs[to].update_avg(now);
        let thread = &mut self.threads[t as usize];
        self.rqs[from].avg.sub(&thread.avg);
        self.rqs[to].avg.add(&thread.avg);
        thread.avg.last = self.rqs[to].pelt_clock(now);
        // `migrate_task_rq_fair` and `dequeue_entity` of 6.5 keep the thread's virtual time relative to the queue's minimum.
        if self.config.scheduler == FairClass::Cfs {
            thread.vruntime += self.rqs[to].zero - self.rqs[from].zero;
        }
        thread.cpu = to as u32;
        thread.migrations += 1;
        // `migrate_task_rq_fair` (kernel/sched/fair.c): a thread that has migrated is not cache-hot.
        thread.exec_start = 0;
    }

    /// Sets the initial load averages of a forked thread and adds them to those of its queue.
    pub(super) fn attach_new(&mut self, cpu: usize, t: u32, now: u64) {
        self.rqs[cpu].update_avg(now);
        let rq = &mut self.rqs[cpu];
        let thread = &mut self.threads[t as usize];
        let weight = f64::from(thread.weight);
        thread.avg.util = initial_util(f64::from(rq.capacity), &rq.avg, weight);
        thread.avg.runnable = thread.avg.util;
        thread.avg.load = weight;
        thread.avg.last = rq.pelt_clock(now);
        rq.avg.add(&thread.avg);
    }

    /// Puts a thread into the run queue of its CPU.
    pub(super) fn activate(&mut self, t: u32, join: Join, now: u64) {
        let cpu = self.threads[t as usize].cpu as usize;
        self.set_idle(cpu, false, now);
        self.update_curr(cpu, now);
        if join != Join::Move {
            self.count_in_group(t, true, now);
        }
        if join == Join::New {
            self.attach_new(cpu, t, now);
        }
        self.sync_thread(cpu, t, now);
        match (self.eevdf(), join) {
            (true, _) => self.eevdf_place(cpu, t, join == Join::New),
            (false, Join::Move) => {}
            (false, _) => self.cfs_place(cpu, t, join == Join::New),
        }
        let thread = &mut self.threads[t as usize];
        thread.state = TaskState::Queued;
        thread.waiting_since = now;
        let rq = &mut self.rqs[cpu];
        rq.total_weight += f64::from(thread.weight);
        rq.util_est += thread.util_est;
        rq.custom_slices += u32::from(thread.custom_slice);
        let runnable = rq.runnable + 1;
        if join == Join::Wake {
            self.end_idle_spell(cpu, now);
        }
        self.count_runnable(cpu, runnable);
        self.count_preference(t, true);
        self.insert(cpu, t);
        self.link_newest(cpu, t);
    }

    /// Updates a CPU's average idle time at the first wake-up after an idle period (`ttwu_do_activate`, kernel/sched/core.c).
    fn end_idle_spell(&mut self, cpu: usize, now: u64) {
        let max = 2 * self.config.migration_cost_ns as i64;
        let rq = &mut self.rqs[cpu];
        if let Some(since) = rq.idle_since.take() {
            let diff = now.saturating_sub(since) as i64 - rq.average_idle as i64;
            rq.average_idle = (rq.average_idle as i64 + diff / 8).clamp(0, max) as u64;
        }
    }

    /// Removes a thread from its run queue, to sleep or to move. The caller has already charged the running thread.
    pub(super) fn deactivate(&mut self, t: u32, moving: bool, now: u64) {
        let cpu = self.threads[t as usize].cpu as usize;
        self.sync_thread(cpu, t, now);
        if self.eevdf() {
            self.eevdf_update_lag(cpu, t);
        }
        let state = self.threads[t as usize].state;
        if state == TaskState::Running {
            self.rqs[cpu].curr = NONE;
        } else {
            self.remove(cpu, t);
        }
        if state != TaskState::Delayed {
            let runnable = self.rqs[cpu].runnable - 1;
            self.count_runnable(cpu, runnable);
        }
        self.count_preference(t, false);
        self.unlink(cpu, t);
        let rq = &mut self.rqs[cpu];
        let thread = &mut self.threads[t as usize];
        rq.total_weight = (rq.total_weight - f64::from(thread.weight)).max(0.0);
        if state != TaskState::Delayed {
            rq.util_est = (rq.util_est - thread.util_est).max(0.0);
        }
        rq.custom_slices -= u32::from(thread.custom_slice);
        if state == TaskState::Queued {
            thread.waited += now.saturating_sub(thread.waiting_since);
        }
        // `dequeue_entity` (kernel/sched/fair.c): `PLACE_REL_DEADLINE` keeps the deadline of a thread that only moves.
        if moving && self.config.scheduler == FairClass::Eevdf {
            thread.deadline -= thread.vruntime;
            thread.rel_deadline = true;
        }
        thread.state = TaskState::Sleeping;
        let group = thread.group;
        self.touch(cpu);
        if group != NONE {
            self.return_quota(cpu, group, now);
            if !moving {
                self.count_in_group(t, false, now);
            }
        }
    }

    /// Blocks a running thread that received more than its share, but keeps it queued (`set_delayed`). It counts in the average
    /// virtual time V until it is picked or woken.
    pub(super) fn delay(&mut self, t: u32, now: u64) {
        let cpu = self.threads[t as usize].cpu as usize;
        self.sync_thread(cpu, t, now);
        self.threads[t as usize].state = TaskState::Delayed;
        let rq = &mut self.rqs[cpu];
        rq.curr = NONE;
        rq.util_est = (rq.util_est - self.threads[t as usize].util_est).max(0.0);
        let runnable = self.rqs[cpu].runnable - 1;
        self.count_runnable(cpu, runnable);
        self.insert(cpu, t);
    }

    /// Removes a delayed thread from the queue when it is picked, because its debt is paid (`finish_delayed_dequeue_entity`).
    fn finish_delayed(&mut self, cpu: usize, t: u32, now: u64) {
        self.deactivate(t, false, now);
        self.threads[t as usize].vlag = if self.config.delay_zero {
            self.threads[t as usize].vlag.min(0)
        } else {
            self.threads[t as usize].vlag
        };
        self.touch(cpu);
    }

    /// Wakes a delayed thread on its CPU, without a search for another CPU (`requeue_delayed_entity`).
    pub(super) fn requeue_delayed(&mut self, t: u32, now: u64) {
        let cpu = self.threads[t as usize].cpu as usize;
        self.set_idle(cpu, false, now);
        self.update_curr(cpu, now);
        self.sync_thread(cpu, t, now);
        self.eevdf_update_lag(cpu, t);
        // `DELAY_ZERO`: a positive lag of the thread is set to zero.
        if self.config.delay_zero && self.threads[t as usize].vlag > 0 {
            self.remove(cpu, t);
            self.threads[t as usize].vlag = 0;
            self.eevdf_place(cpu, t, false);
            self.insert(cpu, t);
        }
        let thread = &mut self.threads[t as usize];
        thread.state = TaskState::Queued;
        thread.waiting_since = now;
        self.rqs[cpu].util_est += thread.util_est;
        let runnable = self.rqs[cpu].runnable + 1;
        self.end_idle_spell(cpu, now);
        self.count_runnable(cpu, runnable);
    }

    /// Reschedules a CPU if thread `t`, just queued there, preempts the running thread. `remote` is true if another CPU queued
    /// `t`.
    pub(super) fn wakeup_preempt(&mut self, cpu: usize, t: u32, remote: bool) {
        if self.rqs[cpu].curr == NONE {
            self.resched(cpu);
            return;
        }
        // `check_preempt_wakeup_fair` (kernel/sched/fair.c): a CPU that is already marked for rescheduling is not checked again.
        if self.rqs[cpu].need_resched {
            return;
        }
        let preempts = if self.eevdf() {
            self.eevdf_wakeup_preempts(cpu, t)
        } else {
            self.cfs_wakeup_preempts(cpu, t)
        };
        if preempts && remote && self.config.lazy_preemption {
            self.rqs[cpu].lazy_resched = true;
            self.touch(cpu);
        } else if preempts {
            self.resched(cpu);
        }
    }

    /// Marks a CPU for rescheduling at the end of the current event.
    pub(super) fn resched(&mut self, cpu: usize) {
        if !self.rqs[cpu].need_resched {
            self.rqs[cpu].need_resched = true;
            self.pending.push(cpu as u32);
        }
    }

    /// Picks the thread that runs next on `cpu` and switches to it. Searches other CPUs for a thread if the queue is empty.
    pub(super) fn schedule(&mut self, cpu: usize, now: u64) {
        self.park_throttled(cpu, now);
        let rq = &mut self.rqs[cpu];
        (rq.need_resched, rq.lazy_resched) = (false, false);
        let next = self.pick(cpu, now);
        let curr = self.rqs[cpu].curr;
        if next == NONE || next != curr {
            if curr != NONE {
                self.put_prev(cpu, curr, now);
            }
            if next != NONE {
                self.set_next(cpu, next, now);
            }
        }
        if next == NONE {
            self.rqs[cpu].idle_stamp = now;
            self.set_idle(cpu, true, now);
        }
        self.update_misfit(cpu);
        self.touch(cpu);
        self.show(cpu, next, now);
    }

    /// Records a context switch if the running thread of a CPU differs from the last one that was reported.
    fn show(&mut self, cpu: usize, next: u32, now: u64) {
        let prev = std::mem::replace(&mut self.rqs[cpu].shown, next);
        if prev != next {
            self.switch_count += 1;
            let id = |t: u32| (t != NONE).then_some(ThreadId(t));
            self.switches.push(ContextSwitch {
                cpu: CpuId(cpu as u32),
                prev: id(prev),
                next: id(next),
                at: Nanos(now),
            });
        }
    }

    fn pick(&mut self, cpu: usize, now: u64) -> u32 {
        let was_idle = self.rqs[cpu].idle;
        // After a disturbance, the slice of the running thread is not protected: it competes with the waiting threads.
        let protect = !std::mem::take(&mut self.rqs[cpu].disturbed);
        self.update_curr(cpu, now);
        let mut looked = was_idle;
        loop {
            let next = if self.eevdf() {
                self.eevdf_pick(cpu, protect)
            } else {
                self.cfs_pick(cpu)
            };
            if next == NONE {
                // `pick_next_task_fair` (kernel/sched/fair.c): a CPU without threads tries `sched_balance_newidle` once before it
                // idles.
                if looked || !self.newidle_balance(cpu, now) {
                    return NONE;
                }
                looked = true;
            } else if self.threads[next as usize].state == TaskState::Delayed {
                // `pick_next_entity` (kernel/sched/fair.c): a delayed entity leaves the queue, and another entity is picked.
                self.finish_delayed(cpu, next, now);
            } else {
                return next;
            }
        }
    }

    fn put_prev(&mut self, cpu: usize, t: u32, now: u64) {
        self.sync_thread(cpu, t, now);
        let thread = &mut self.threads[t as usize];
        thread.state = TaskState::Queued;
        thread.waiting_since = now;
        self.rqs[cpu].curr = NONE;
        self.insert(cpu, t);
    }

    fn set_next(&mut self, cpu: usize, t: u32, now: u64) {
        self.sync_thread(cpu, t, now);
        self.remove(cpu, t);
        self.rqs[cpu].curr = t;
        let thread = &mut self.threads[t as usize];
        thread.state = TaskState::Running;
        let waited = now.saturating_sub(thread.waiting_since);
        thread.waited += waited;
        if let Some(waits) = self.waits.get_mut(thread.waits as usize) {
            waits.record(waited, 1);
        }
        thread.exec_start = now;
        thread.ran_at_pick = thread.ran;
        // `set_next_task_fair` (kernel/sched/fair.c) keeps `cfs_tasks` in MRU order.
        self.unlink(cpu, t);
        self.link_newest(cpu, t);
        if self.eevdf() {
            self.eevdf_protect(cpu, t);
        }
    }

    /// Updates a CPU's misfit load: the load of its running thread if the thread needs a larger CPU and may use one
    /// (`update_misfit_status`).
    pub(super) fn update_misfit(&mut self, cpu: usize) {
        if !self.domains.asymmetric {
            return;
        }
        let t = self.rqs[cpu].curr;
        let load = match self.threads.get(t as usize) {
            Some(thread)
                if thread.best_capacity > self.rqs[cpu].capacity && thread.allowed_count > 1 =>
            {
                let util = thread.planned_util();
                if fit(util, thread.clamp, self.rqs[cpu].capacity) == CapacityFit::Yes {
                    0.0
                } else {
                    thread.avg.load.max(1.0)
                }
            }
            _ => 0.0,
        };
        let was = std::mem::replace(&mut self.rqs[cpu].misfit_load, load) > 0.0;
        match (was, load > 0.0) {
            (false, true) => self.misfits += 1,
            (true, false) => self.misfits -= 1,
            _ => {}
        }
    }

    /// Updates the load averages of the running thread and checks again if the thread fits its CPU.
    pub(super) fn refresh_misfit(&mut self, cpu: usize, now: u64) {
        let t = self.rqs[cpu].curr;
        if t != NONE && self.domains.asymmetric {
            self.sync_thread(cpu, t, now);
            self.update_misfit(cpu);
        }
    }

    fn link_newest(&mut self, cpu: usize, t: u32) {
        let old = std::mem::replace(&mut self.rqs[cpu].newest, t);
        let thread = &mut self.threads[t as usize];
        (thread.newer, thread.older) = (NONE, old);
        match self.threads.get_mut(old as usize) {
            Some(o) => o.newer = t,
            None => self.rqs[cpu].oldest = t,
        }
    }

    fn unlink(&mut self, cpu: usize, t: u32) {
        let newer = self.threads[t as usize].newer;
        let older = self.threads[t as usize].older;
        match self.threads.get_mut(newer as usize) {
            Some(n) => n.older = older,
            None => self.rqs[cpu].newest = older,
        }
        match self.threads.get_mut(older as usize) {
            Some(o) => o.newer = newer,
            None => self.rqs[cpu].oldest = newer,
        }
    }

    /// Iterates over the threads in a CPU's run queue, least recently run first.
    pub(super) fn queue_of(&self, cpu: usize) -> impl Iterator<Item = u32> + '_ {
        let mut at = self.rqs[cpu].oldest;
        std::iter::from_fn(move || {
            let t = at;
            (t != NONE).then(|| {
                at = self.threads[t as usize].newer;
                t
            })
        })
    }

    /// Moves a thread to the most recently run end of its queue's list, so that balancing considers other threads first
    /// (`detach_tasks`).
    pub(super) fn skip_in_list(&mut self, cpu: usize, t: u32) {
        self.unlink(cpu, t);
        self.link_newest(cpu, t);
    }
}
