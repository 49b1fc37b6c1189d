//! Timer of the whole machine: idle balancing on behalf of sleeping CPUs, and the start of periodic balancing.
//!
//! Input: counts kept by the domain tree. Output: calls of [`super::balance`]. Models `nohz_balancer_kick`, `kick_ilb` and
//! `_nohz_idle_balance` (kernel/sched/fair.c). In the kernel, each busy CPU checks at every tick if an idle CPU should be woken
//! to balance. Here one timer replaces all those ticks. After a round that found nothing to move, the timer is off until a count
//! changes.

use super::Linux;
use super::domains::SchedDomain;
use super::timers::NEVER;

#[derive(Clone, Debug)]
pub(super) struct Nohz {
    /// Time at which busy CPUs next consider waking an idle CPU to balance; `NEVER` if not scheduled.
    at: u64,
    not_before: u64,
    /// Generation of the machine's domain at the last idle balance that found nothing to move.
    quiet_generation: u64,
    /// Start of the last quiet period, in which idle balancing would have found nothing to move. `None` if no tick requested idle
    /// balancing then.
    pub quiet_since: Option<u64>,
    pub resumed_at: u64,
    /// True if busy CPUs balance periodically.
    pub balancing: bool,
    /// Time at which periodic balancing starts; `NEVER` if not scheduled.
    balancing_from: u64,
    pub balancing_since: u64,
}

impl Default for Nohz {
    fn default() -> Self {
        Self {
            at: NEVER,
            not_before: 0,
            quiet_generation: 0,
            quiet_since: None,
            resumed_at: 0,
            balancing: false,
            balancing_from: NEVER,
            balancing_since: 0,
        }
    }
}

impl Linux {
    /// Returns a counter that changes whenever the result of balancing the domain may change.
    pub(super) fn generation(&self, node: &SchedDomain) -> u64 {
        node.generation + self.affinity_generation
    }

    /// Sets the machine's timer after an event: to the earliest of idle balancing, periodic balancing and gathering.
    pub(super) fn arm_machine(&mut self, now: u64) {
        let root = self.domains.node(self.domains.root);
        if root.weight() < 2 {
            return;
        }
        let overloaded = root.overloaded > 0;
        if overloaded && !self.nohz.balancing && self.nohz.balancing_from == NEVER {
            self.nohz.balancing_from = self.next_beat(self.phase, now + 1);
        }
        let mixed = root.idle_cpus > 0 && root.idle_cpus < root.weight();
        if mixed && self.nohz.at == NEVER {
            let changed = self.generation(root) != self.nohz.quiet_generation;
            if overloaded || changed || self.misfit_helpable() || self.gatherable(root) {
                self.nohz.at = self.next_beat(self.phase, self.nohz.not_before.max(now + 1));
                self.nohz.resumed_at = now;
            }
        }
        let slot = self.rqs.len();
        self.arm_gather(now);
        let balancing = self.nohz.at.min(self.nohz.balancing_from);
        self.timers.set(slot, balancing.min(self.gather.at));
    }

    pub(super) fn machine_timer(&mut self, now: u64) {
        if self.gather.at <= now {
            self.gather_tick(now);
        }
        if self.nohz.balancing_from <= now {
            self.start_balancing(now);
        }
        if self.nohz.at <= now {
            self.nohz.at = NEVER;
            self.consider_idle_balance(now);
        }
    }

    /// Starts periodic balancing on all CPUs if at least one CPU is overloaded.
    fn start_balancing(&mut self, now: u64) {
        self.nohz.balancing_from = NEVER;
        if self.domains.node(self.domains.root).overloaded == 0 {
            return;
        }
        self.nohz.balancing = true;
        self.nohz.balancing_since = now;
        for cpu in 0..self.rqs.len() {
            if !self.rqs[cpu].balancing {
                self.rqs[cpu].balancing = true;
                self.rqs[cpu].balance_at = self.next_balance(cpu, false);
                self.touch(cpu);
            }
        }
    }

    fn consider_idle_balance(&mut self, now: u64) {
        let root = self.domains.node(self.domains.root);
        let generation = self.generation(root);
        // `nohz_balancer_kick`: without an idle CPU no CPU can balance, and without a reason no tick requests a balance.
        if root.idle_cpus == 0 || !self.idle_balance_wanted() {
            self.nohz.quiet_generation = generation;
            self.nohz.quiet_since = None;
            return;
        }
        let switched = self.pending.len();
        let earliest = self.idle_balance(now);
        let root = self.domains.node(self.domains.root);
        let unchanged = self.generation(root) == generation && self.pending.len() == switched;
        let settled =
            unchanged && root.overloaded == 0 && !self.misfit_helpable() && !self.gatherable(root);
        if settled && self.idle_cpus_are_quiet() {
            self.nohz.quiet_generation = generation;
            self.nohz.quiet_since = Some(now);
            return;
        }
        // `_nohz_idle_balance` keeps the next time if no idle CPU gives one: CPUs that become idle later are balanced too.
        let next_tick = now + self.tick_ns;
        self.nohz.not_before = match earliest {
            NEVER => next_tick,
            named => named.max(next_tick),
        };
        self.nohz.at = self.next_beat(self.phase, self.nohz.not_before);
    }

    /// True if at least one busy CPU would wake an idle CPU at its tick to balance.
    fn idle_balance_wanted(&self) -> bool {
        if self.domains.node(self.domains.root).overloaded > 0 {
            return true;
        }
        // `nohz_balancer_kick`: with asymmetric capacities only misfits count, and the check of the caches below is skipped.
        if self.domains.asymmetric {
            return self.misfit_helpable();
        }
        self.packing_possible()
            || self.llcs.iter().any(|llc| {
                let llc = self.domains.node(*llc);
                llc.weight() - llc.idle_cpus > 1
            })
    }

    /// True if a preferred core is idle while a core of lower priority is busy; false except on SMT hybrids.
    fn packing_possible(&self) -> bool {
        if !self.packing {
            return false;
        }
        let priority = &self.domains.priority;
        let best_idle = self
            .idle
            .iter()
            .filter(|c| self.domains.core_is_idle(*c))
            .map(|c| priority[c])
            .max();
        let worst_busy = (0..self.rqs.len())
            .filter(|c| !self.rqs[*c].idle)
            .map(|c| priority[c])
            .min();
        matches!((best_idle, worst_busy), (Some(idle), Some(busy)) if idle > busy)
    }

    /// Balances on behalf of all idle CPUs whose interval has passed, the first idle CPU last. Returns the time of the next
    /// balance; `NEVER` if no CPU is idle.
    fn idle_balance(&mut self, now: u64) -> u64 {
        let n = self.rqs.len();
        let Some(first) = self.idle.next_wrapping(0) else {
            return NEVER;
        };
        let mut earliest = NEVER;
        for offset in 1..=n {
            let cpu = (first + offset) % n;
            if !self.rqs[cpu].idle {
                continue;
            }
            if self.next_balance(cpu, true) <= now {
                self.balance_domains(cpu, true, now);
            }
            earliest = earliest.min(self.next_balance(cpu, true));
        }
        earliest
    }

    fn idle_cpus_are_quiet(&self) -> bool {
        self.idle.iter().all(|cpu| {
            self.rqs[cpu]
                .domains
                .iter()
                .all(|d| d.quiet_generation == self.generation(self.domains.node(d.node)))
        })
    }
}
