//! Ticks and timers: the events that the model produces by itself, and the times at which they are due.
//!
//! Input: the state of the run queues after each event. Output: one timer per CPU and one for the machine. Models
//! `task_tick_fair` and `sched_balance_trigger` (kernel/sched/fair.c), and `sched_tick` (kernel/sched/core.c). A tick that would
//! change nothing is never scheduled. A CPU's timer jumps to the first tick at which its slice is over, its balance is due, or
//! its thread has outgrown it.

use super::Linux;
use super::config::FairClass;
use super::entity::NONE;
use super::pelt::time_to_reach;
use super::timers::NEVER;
use super::weights::real_time;
use countersteer_model::units::Nanos;
use rand::RngExt;

/// Minimum delay of a high-resolution tick (`hrtick_start`, kernel/sched/core.c).
const HRTICK_MIN_NS: u64 = 10_000;

impl Linux {
    /// Starts an event at `now`, after handling all timers due by then. Returns the time of the event in nanoseconds.
    pub(super) fn begin(&mut self, now: Nanos) -> u64 {
        let now = now.0.max(self.now);
        while self.timers.earliest() <= now {
            let at = self.timers.earliest().max(self.now);
            let slot = self.timers.earliest_slot();
            self.now = at;
            self.timers.set(slot, NEVER);
            match slot.checked_sub(self.rqs.len()) {
                None => self.tick(slot, at),
                Some(0) => self.machine_timer(at),
                Some(_) => self.groups_timer(at),
            }
            self.end(at);
        }
        self.now = now;
        now
    }

    /// Ends an event: reschedules the pending CPUs and sets the timers of all CPUs whose state changed.
    pub(super) fn end(&mut self, now: u64) {
        let mut next = 0;
        while next < self.pending.len() {
            let cpu = self.pending[next] as usize;
            next += 1;
            if self.rqs[cpu].need_resched {
                self.schedule(cpu, now);
            }
        }
        self.pending.clear();
        while let Some(cpu) = self.stale.pop() {
            self.rqs[cpu as usize].touched = false;
            self.arm(cpu as usize, now);
        }
        self.arm_machine(now);
        self.arm_groups();
    }

    /// Marks a CPU's timer to be set again at the end of the current event.
    pub(super) fn touch(&mut self, cpu: usize) {
        if !self.rqs[cpu].touched {
            self.rqs[cpu].touched = true;
            self.stale.push(cpu as u32);
        }
    }

    /// Returns the time of a CPU's first tick at or after `at`.
    fn next_tick(&self, cpu: usize, at: u64) -> u64 {
        self.next_beat(self.phase + self.rqs[cpu].tick_offset, at)
    }

    /// Returns the first time at or after `at` that is a whole number of ticks after `origin`.
    pub(super) fn next_beat(&self, origin: u64, at: u64) -> u64 {
        origin.saturating_add(
            at.saturating_sub(origin)
                .div_ceil(self.tick_ns)
                .saturating_mul(self.tick_ns),
        )
    }

    fn tick(&mut self, cpu: usize, now: u64) {
        self.touch(cpu);
        let t = self.rqs[cpu].curr;
        if t == NONE {
            return;
        }
        let over = self.update_curr(cpu, now);
        self.disturb(cpu, now);
        // `sched_tick` (kernel/sched/core.c): a lazy request to reschedule takes effect at the tick.
        if !self.rqs[cpu].waiting.is_empty()
            && (over || self.rqs[cpu].lazy_resched || self.slice_is_over(cpu, t))
        {
            self.resched(cpu);
        }
        self.refresh_misfit(cpu, now);
        if self.rqs[cpu].balancing {
            self.tick_balance(cpu, now);
        }
    }

    /// Reschedules the CPU if a disturbance is due now.
    fn disturb(&mut self, cpu: usize, now: u64) {
        let rq = &mut self.rqs[cpu];
        if self.config.disturbed_every_ns.is_some() && rq.disturbed_at == now {
            rq.disturbed = true;
            self.resched(cpu);
        }
    }

    /// Returns the time of a CPU's next disturbance; `NEVER` if disturbances are off. A new time is drawn once the old one has
    /// passed; intervals are exponential.
    fn next_disturbance(&mut self, cpu: usize, now: u64) -> u64 {
        let Some(mean) = self.config.disturbed_every_ns else {
            return NEVER;
        };
        if self.rqs[cpu].disturbed_at <= now {
            let part: f64 = self.disturbances.random();
            let wait = -(1.0 - part).ln() * mean as f64;
            self.rqs[cpu].disturbed_at = now.saturating_add(wait as u64 + 1);
        }
        self.rqs[cpu].disturbed_at
    }

    fn slice_is_over(&self, cpu: usize, t: u32) -> bool {
        let thread = &self.threads[t as usize];
        match self.config.scheduler {
            FairClass::Eevdf => thread.vruntime >= thread.protected_until,
            FairClass::Cfs => self.cfs_tick_preempts(cpu, t),
        }
    }

    /// Balances if a balance is due at this tick. Stops periodic balancing if no CPU of the machine is overloaded.
    fn tick_balance(&mut self, cpu: usize, now: u64) {
        if self.domains.node(self.domains.root).overloaded == 0 {
            self.rqs[cpu].balancing = false;
            self.nohz.balancing = false;
        } else if self.rqs[cpu].balance_at <= now {
            self.balance_domains(cpu, false, now);
            self.rqs[cpu].balance_at = self.next_balance(cpu, false);
        }
    }

    fn arm(&mut self, cpu: usize, now: u64) {
        let rq = &self.rqs[cpu];
        if rq.curr == NONE {
            self.timers.set(cpu, NEVER);
            return;
        }
        let soon = now + 1;
        let mut at = NEVER;
        if rq.lazy_resched {
            at = self.next_tick(cpu, soon);
        } else if !rq.waiting.is_empty() {
            let over = self.slice_end(cpu);
            at = if self.config.hrtick {
                over.max(now + HRTICK_MIN_NS)
            } else {
                self.next_tick(cpu, over.max(soon))
            };
            at = at.min(self.next_disturbance(cpu, now));
        }
        if let Some(ends) = self.quota_ends(cpu) {
            // `sched_tick` charges the group; the quota is overdrawn until then.
            at = at.min(self.next_tick(cpu, ends.max(soon)));
        }
        let rq = &self.rqs[cpu];
        if rq.balancing {
            at = at.min(self.next_tick(cpu, rq.balance_at.max(soon)));
        }
        if let Some(outgrown) = self.outgrows_at(cpu, now) {
            at = at.min(self.next_tick(cpu, outgrown.max(soon)));
        }
        self.timers.set(cpu, at);
    }

    /// Returns the time at which the running thread's slice, or the protection of its slice, ends. Returns 0 for CFS.
    fn slice_end(&self, cpu: usize) -> u64 {
        let thread = &self.threads[self.rqs[cpu].curr as usize];
        match self.config.scheduler {
            FairClass::Eevdf => {
                let protected = thread.protected_until > thread.vruntime || !self.config.hrtick;
                // Once the protection is over and the thread was picked again, its deadline is the next time at which the choice
                // may change.
                let until = if protected {
                    thread.protected_until.min(thread.deadline)
                } else {
                    thread.deadline
                };
                let left = until - thread.vruntime;
                thread.exec_start + real_time(left.max(0), thread.weight) as u64
            }
            // CFS preempts under two conditions, one of them on the waiting threads, so it checks at every tick
            // (`check_preempt_tick`, kernel/sched/fair.c).
            FairClass::Cfs => 0,
        }
    }

    /// Returns the time at which the running thread outgrows its CPU; `None` if it already has, or could not move to a larger
    /// CPU.
    fn outgrows_at(&self, cpu: usize, now: u64) -> Option<u64> {
        let rq = &self.rqs[cpu];
        let thread = &self.threads[rq.curr as usize];
        let could_move = thread.best_capacity > rq.capacity && thread.allowed_count > 1;
        let capped = thread.clamp.most <= rq.capacity;
        if !self.domains.asymmetric || rq.misfit_load > 0.0 || !could_move || capped {
            return None;
        }
        let clock = rq.pelt_clock(now);
        let util = thread.avg.at(clock, thread.rate()).util;
        // 0.8 is the limit of `fits_capacity` (kernel/sched/fair.c). PELT time passes more slowly on a small CPU.
        let left = time_to_reach(util, f64::from(rq.capacity) * 0.8);
        (left < NEVER / 2048).then(|| now + left * 1024 / u64::from(rq.capacity))
    }
}
