//! Migration of threads between run queues, by load balancing and by a change of affinity.
//!
//! Input: a balance's [`Env`], or a thread that must leave its CPU. Output: threads on other queues. Models `detach_tasks`,
//! `can_migrate_task`, `task_hot`, `active_load_balance_cpu_stop` and `reweight_entity` (kernel/sched/fair.c), and
//! `affine_move_task` (kernel/sched/core.c). The locality of pages is in `numa`. Left out: the migration of delayed threads, which
//! stay where they are.

use std::cmp::Ordering;

use super::Linux;
use super::clamps::{CapacityFit, fit};
use super::config::FairClass;
use super::domains::DomainLevel;
use super::eevdf::current;
use super::entity::{NONE, TaskState};
use super::env::{Env, Idleness, Migration};
use super::schedule::Join;

impl Linux {
    /// Moves threads from the source to the target until the imbalance is removed, and returns the number of moved threads.
    /// Threads that may not run on the target go to another CPU of the local group.
    pub(super) fn move_threads(&mut self, env: &mut Env, now: u64) -> u32 {
        let mut moved = 0;
        self.update_curr(env.source, now);
        loop {
            env.other_target = None;
            moved += self.detach(env, now);
            let Some(other) = env.other_target.filter(|_| env.imbalance > 0.0) else {
                break;
            };
            // `sched_balance_rq`: threads that may not run on the target go to another CPU of its group (`LBF_DST_PINNED`).
            self.excluded.push(env.target as u32);
            env.target = other;
        }
        moved
    }

    /// Makes one pass over the source's threads, least recently run first, and moves those that may migrate. Returns the number
    /// of moved threads.
    fn detach(&mut self, env: &mut Env, now: u64) -> u32 {
        let most = self
            .config
            .balance_threads
            .min(self.rqs[env.source].runnable);
        let mut moved = 0;
        let mut seen = 0;
        let mut left = self.queued(env.source);
        while left > 0 {
            // `detach_tasks` (kernel/sched/fair.c): an idle CPU never takes the last thread of the source.
            if env.kind != Idleness::Busy && self.rqs[env.source].runnable <= 1 {
                break;
            }
            seen += 1;
            if seen > most && !env.all_pinned {
                break;
            }
            left -= 1;
            let t = self.rqs[env.source].oldest;
            if !self.may_migrate(env, t, now) || !self.take_share(env, t, now) {
                self.skip_in_list(env.source, t);
                continue;
            }
            self.transfer(t, env.target, now);
            moved += 1;
            // `detach_tasks`: newly idle balancing delays its CPU, so it stops after the first thread.
            if env.kind == Idleness::Newly || env.imbalance <= 0.0 {
                break;
            }
        }
        moved
    }

    /// Number of threads on a CPU's queue, including the running thread and delayed threads.
    fn queued(&self, cpu: usize) -> usize {
        self.rqs[cpu].waiting.len() + usize::from(self.rqs[cpu].curr != NONE)
    }

    fn may_migrate(&self, env: &mut Env, t: u32, now: u64) -> bool {
        let thread = &self.threads[t as usize];
        // `can_migrate_task`: a throttled control group takes no threads on the target.
        if thread.state == TaskState::Delayed
            || self.is_throttled(thread.group, env.target)
            || self.waits_its_turn(env, t)
        {
            return false;
        }
        if !thread.allowed.has(env.target) {
            // `can_migrate_task` remembers a CPU of the local group where the thread may run; newly idle balances do not use this
            // CPU.
            env.some_pinned = true;
            if env.kind != Idleness::Newly && env.other_target.is_none() {
                let group = &self.domains.node(env.local).mask;
                let free =
                    |cpu: &usize| !self.excluded.contains(&(*cpu as u32)) && *cpu != env.target;
                env.other_target = group.common(&thread.allowed).find(free);
            }
            return false;
        }
        env.all_pinned = false;
        if thread.state == TaskState::Running {
            return false;
        }
        if self.parts(env, t, now) {
            env.llc_pinned |= env.migration != Migration::Llc;
            return false;
        }
        // `can_migrate_task`: the locality of pages decides before the contents of caches.
        match self.locality(env.source, env.target, t) {
            Ordering::Greater => return true,
            Ordering::Less => {
                return env.failed > self.domains.node(env.node).cache_nice_tries;
            }
            Ordering::Equal => {}
        }
        // `task_hot` (kernel/sched/fair.c): SMT siblings share all caches, so no thread is hot there.
        let node = self.domains.node(env.node);
        let hot = node.level != DomainLevel::Core
            && now.saturating_sub(thread.exec_start) < self.config.migration_cost_ns;
        !hot || env.failed > node.cache_nice_tries
    }

    /// True if a thread must stay because it received more than its share, and would be ineligible on the target as well. Other
    /// threads are moved first (`task_is_ineligible_on_dst_cpu`).
    fn waits_its_turn(&self, env: &Env, t: u32) -> bool {
        let rq = &self.rqs[env.source];
        let queued = self.queued(env.target) > 0;
        self.config.eligible_first
            && env.failed == 0
            && queued
            && !rq.eligible(
                current(rq, &self.threads),
                self.threads[t as usize].vruntime,
            )
    }

    /// Subtracts a thread's load, utilisation or count from the imbalance. Returns false if the thread is too large to be moved.
    fn take_share(&self, env: &mut Env, t: u32, now: u64) -> bool {
        let thread = &self.threads[t as usize];
        let avg = thread
            .avg
            .at(self.rqs[env.source].pelt_clock(now), thread.rate());
        // `shr_bound` (kernel/sched/fair.c): each failed balance halves the apparent size of a thread.
        let bound = |x: f64| x / f64::from(1_u32 << env.failed.min(20));
        match env.migration {
            Migration::Load => {
                // `detach_tasks`: a load of at least 1 guarantees that the imbalance shrinks.
                let load = avg.load.max(1.0);
                if bound(load) > env.imbalance {
                    return false;
                }
                env.imbalance -= load;
            }
            Migration::Util => {
                let util = avg.util.max(thread.util_est);
                if bound(util) > env.imbalance {
                    return false;
                }
                env.imbalance -= util;
            }
            Migration::Threads | Migration::Llc => env.imbalance -= 1.0,
            Migration::Misfit => {
                let util = avg.util.max(thread.util_est);
                if fit(util, thread.clamp, self.rqs[env.source].capacity) == CapacityFit::Yes {
                    return false;
                }
                env.imbalance = 0.0;
            }
        }
        true
    }

    /// Moves a queued or running thread to another CPU's run queue.
    pub(super) fn transfer(&mut self, t: u32, to: usize, now: u64) {
        let from = self.threads[t as usize].cpu as usize;
        let was_running = self.threads[t as usize].state == TaskState::Running;
        self.update_curr(from, now);
        self.deactivate(t, true, now);
        self.move_entity(t, to, now);
        let group = self.threads[t as usize].group;
        if self.is_throttled(group, to) {
            // A thread that is forced to a CPU where its control group is throttled waits there.
            self.count_in_group(t, false, now);
            self.activate_or_park(t, Join::Wake, now);
        } else {
            self.activate(t, Join::Move, now);
        }
        if was_running {
            self.resched(from);
        }
        if self.threads[t as usize].state == TaskState::Queued {
            self.wakeup_preempt(to, t, true);
        }
    }

    /// Pushes the first thread of the source that may run on the balancing CPU to this CPU. Returns false if there is no such
    /// thread.
    pub(super) fn active_balance(&mut self, env: &Env, now: u64) -> bool {
        let movable = |t: &u32| {
            let thread = &self.threads[*t as usize];
            thread.runnable()
                && thread.allowed.has(env.cpu)
                && !self.is_throttled(thread.group, env.cpu)
                && !self.prefers_elsewhere(env, *t)
        };
        let Some(t) = self.queue_of(env.source).find(movable) else {
            return false;
        };
        self.transfer(t, env.cpu, now);
        true
    }

    /// Moves a thread away from a forbidden CPU. Successive moves go to successive allowed CPUs, whatever runs there.
    pub(super) fn force_away(&mut self, t: u32, now: u64) {
        if let Some(to) = self.threads[t as usize]
            .allowed
            .next_wrapping(self.last_forced + 1)
        {
            self.last_forced = to;
            self.transfer(t, to, now);
        }
    }

    /// Changes a thread's weight; the thread's lag in real time stays unchanged (`reweight_entity`).
    pub(super) fn reweight(&mut self, t: u32, weight: u32, now: u64) {
        let cpu = self.threads[t as usize].cpu as usize;
        let state = self.threads[t as usize].state;
        let old = self.threads[t as usize].weight;
        if old == weight {
            return;
        }
        let eevdf = self.config.scheduler == FairClass::Eevdf;
        let queued = self.threads[t as usize].on_queue();
        if queued {
            self.update_curr(cpu, now);
            self.leave_for_reweight(cpu, t, now);
        }
        let thread = &mut self.threads[t as usize];
        let scaled = |x: i64| (i128::from(x) * i128::from(old) / i128::from(weight)) as i64;
        thread.vlag = scaled(thread.vlag);
        if thread.rel_deadline {
            thread.deadline = scaled(thread.deadline);
        }
        let load = thread.avg.load;
        thread.avg.load *= f64::from(weight) / f64::from(old);
        thread.weight = weight;
        if state == TaskState::Sleeping {
            // The load of a sleeping thread is still a part of its queue's.
            let change = self.threads[t as usize].avg.load - load;
            let avg = &mut self.rqs[cpu].avg;
            avg.load = (avg.load + change).max(0.0);
        }
        if queued {
            self.rqs[cpu].total_weight += f64::from(weight);
            let load = self.threads[t as usize].avg.load;
            self.rqs[cpu].avg.load += load;
            if eevdf {
                self.eevdf_place(cpu, t, false);
            }
            if state == TaskState::Running {
                self.rqs[cpu].curr = t;
                let thread = &mut self.threads[t as usize];
                thread.protected_until = thread.protected_until.min(thread.deadline);
            } else {
                self.insert(cpu, t);
            }
            self.touch(cpu);
        }
    }

    /// Subtracts a thread from the sums of its queue before its weight changes.
    fn leave_for_reweight(&mut self, cpu: usize, t: u32, now: u64) {
        self.sync_thread(cpu, t, now);
        let eevdf = self.config.scheduler == FairClass::Eevdf;
        if eevdf {
            self.eevdf_update_lag(cpu, t);
        }
        if self.threads[t as usize].state == TaskState::Running {
            self.rqs[cpu].curr = NONE;
        } else {
            self.remove(cpu, t);
        }
        let rq = &mut self.rqs[cpu];
        let thread = &mut self.threads[t as usize];
        if eevdf {
            thread.deadline -= thread.vruntime;
            thread.rel_deadline = true;
        }
        rq.total_weight = (rq.total_weight - f64::from(thread.weight)).max(0.0);
        rq.avg.load = (rq.avg.load - thread.avg.load).max(0.0);
    }
}
