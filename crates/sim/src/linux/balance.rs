//! Load balancing: a CPU searches its domains, from the innermost outwards, for a busier group, and pulls threads from it.
//!
//! Input: a CPU, its idle state, and the time. Output: threads moved by [`super::migrate`]. Models `sched_balance_domains`,
//! `sched_balance_rq`, `should_we_balance`, `sched_balance_newidle` and `need_active_balance` (kernel/sched/fair.c). The kernel
//! measures the cost of a search; the model uses a fixed cost per CPU searched.

use super::Linux;
use super::domains::{DomainLevel, SchedDomain};
use super::entity::NONE;
use super::env::{Env, Idleness, Migration};
use super::imbalance::capacity_greater;
use rand::RngExt;

/// Factor by which the balance intervals of a busy CPU are longer than those of an idle CPU.
const BUSY_FACTOR: u64 = 16;
/// Limit on the balance interval in milliseconds while all threads are pinned.
const MAX_PINNED_MS: u32 = 512;

struct BalanceOutcome {
    moved: u32,
    /// True if outer domains may be balanced as well.
    go_on: bool,
}

impl Linux {
    /// Returns the time in nanoseconds between two balances of a domain (`get_sd_balance_interval`).
    fn interval(&self, cpu: usize, level: usize, idle: bool) -> u64 {
        let ms = u64::from(self.rqs[cpu].domains[level].interval_ms);
        let ns = ms * 1_000_000 * if idle { 1 } else { BUSY_FACTOR };
        // The interval is a whole number of ticks. It is one tick less on a busy CPU, so that the intervals of the levels are not
        // multiples of each other.
        let ticks = ns.div_ceil(self.tick_ns) - u64::from(!idle);
        let longest = self.rqs.len() as u64 * 100_000_000 / self.tick_ns;
        ticks.clamp(1, longest.max(1)) * self.tick_ns
    }

    /// Returns the time of a domain's last balance in nanoseconds. Balances that were skipped because they could not move
    /// anything count as well.
    fn last_balance(&self, cpu: usize, level: usize, idle: bool, interval: u64) -> i64 {
        let last = self.rqs[cpu].domains[level].last;
        let idled_through = |since: u64| self.rqs[cpu].idle_stamp <= since;
        let resumed = if !idle {
            self.nohz.balancing_since
        } else if self.nohz.quiet_since.is_some_and(idled_through) {
            self.nohz.resumed_at
        } else {
            return last;
        };
        let behind = resumed as i64 - last - interval as i64;
        if behind < 0 {
            last
        } else {
            last + (behind / interval as i64 + 1) * interval as i64
        }
    }

    /// Returns the earliest time at which one of a CPU's domains is due for a balance.
    pub(super) fn next_balance(&self, cpu: usize, idle: bool) -> u64 {
        let due = |level| {
            let interval = self.interval(cpu, level, idle);
            (self.last_balance(cpu, level, idle, interval) + interval as i64).max(0) as u64
        };
        (0..self.rqs[cpu].domains.len())
            .map(due)
            .min()
            .unwrap_or(super::timers::NEVER)
    }

    /// True if no value that decides a balance of this domain has changed since the last balance that found nothing to move.
    fn is_quiet(&self, cpu: usize, level: usize) -> bool {
        let state = &self.rqs[cpu].domains[level];
        let node = self.domains.node(state.node);
        node.overloaded == 0
            && !self.misfit_helpable()
            && !self.gatherable(node)
            && state.quiet_generation == self.generation(node)
    }

    /// True if a thread does not fit its CPU, and a larger CPU has no running thread.
    pub(super) fn misfit_helpable(&self) -> bool {
        if self.misfits == 0 {
            return false;
        }
        let smallest = self
            .rqs
            .iter()
            .filter(|rq| rq.misfit_load > 0.0)
            .map(|rq| rq.capacity)
            .min();
        let largest = self
            .rqs
            .iter()
            .enumerate()
            .filter(|(cpu, rq)| rq.curr == NONE && !self.offline.has(*cpu))
            .map(|(_, rq)| rq.capacity)
            .max();
        matches!((smallest, largest), (Some(s), Some(l)) if capacity_greater(l, s))
    }

    fn set_quiet(&mut self, cpu: usize, level: usize) {
        let node = self.rqs[cpu].domains[level].node;
        self.rqs[cpu].domains[level].quiet_generation = self.generation(self.domains.node(node));
    }

    /// Balances every domain of `cpu` whose balance interval has passed.
    pub(super) fn balance_domains(&mut self, cpu: usize, mut idle: bool, now: u64) {
        for level in 0..self.rqs[cpu].domains.len() {
            let interval = self.interval(cpu, level, idle);
            if self.last_balance(cpu, level, idle, interval) + interval as i64 > now as i64 {
                continue;
            }
            self.rqs[cpu].domains[level].last = now as i64;
            let node = self.domains.node(self.rqs[cpu].domains[level].node);
            if self.is_quiet(cpu, level)
                || (!idle
                    && node.overloaded == 0
                    && !self.misfit_helpable()
                    && !self.gatherable(node))
            {
                continue;
            }
            let outcome = self.balance(
                cpu,
                level,
                if idle { Idleness::Idle } else { Idleness::Busy },
                now,
            );
            if outcome.moved > 0 {
                // `sched_balance_domains` (kernel/sched/fair.c) checks again if the CPU is idle, because it may have pulled a
                // thread.
                idle = self.rqs[cpu].runnable == 0;
            }
            // `should_we_balance`: another CPU of the group balances this domain and the outer ones.
            if !outcome.go_on {
                (level..self.rqs[cpu].domains.len()).for_each(|l| self.set_quiet(cpu, l));
                break;
            }
        }
    }

    /// Pulls one thread to a CPU that becomes idle, if a CPU is overloaded or a thread does not fit its CPU. Returns true if the
    /// newly idle CPU has a runnable thread afterwards.
    ///
    /// The CPU does not search if its expected idle time is shorter than the search (`sched_balance_newidle`).
    pub(super) fn newidle_balance(&mut self, cpu: usize, now: u64) -> bool {
        self.rqs[cpu].idle_since = Some(now);
        let root = self.domains.node(self.domains.root);
        // `sched_balance_newidle` (kernel/sched/fair.c) searches only if at least one CPU of the machine is overloaded.
        if root.overloaded == 0 && !self.misfit_helpable() {
            return false;
        }
        let mut spent = 0;
        for level in 0..self.rqs[cpu].domains.len() {
            let node = self.domains.node(self.rqs[cpu].domains[level].node);
            spent += u64::from(node.weight()) * self.config.newidle_cost_per_cpu_ns;
            // `sched_balance_newidle` stops when the search would take longer than the CPU's expected idle time.
            if self.rqs[cpu].average_idle < spent {
                break;
            }
            if node.overloaded == 0 && !self.misfit_helpable() && !self.gatherable(node) {
                continue;
            }
            let Some(weight) = self.dares_newidle(cpu, level, now) else {
                continue;
            };
            let outcome = self.balance(cpu, level, Idleness::Newly, now);
            let successes = if outcome.moved > 0 { weight } else { 0 };
            self.count_newidle(cpu, level, successes, now);
            // `sched_balance_newidle` stops as soon as the queue has a runnable thread.
            if outcome.moved > 0 || !outcome.go_on || self.rqs[cpu].runnable > 0 {
                break;
            }
        }
        let found = self.rqs[cpu].runnable > 0;
        if found {
            self.rqs[cpu].idle_since = None;
        }
        found
    }

    /// Decides at random if a newly idle CPU searches a domain (`NI_RANDOM`). Returns the number that one success adds to the
    /// count of successes; `None` if the search is skipped.
    fn dares_newidle(&mut self, cpu: usize, level: usize, now: u64) -> Option<u32> {
        let ratio = self.rqs[cpu].domains[level].newidle.ratio;
        if !self.config.newidle_by_success || ratio >= 1024 {
            return Some(1);
        }
        let weight = 1 + ratio;
        if self.rng.random_range(0..1024) > weight {
            self.count_newidle(cpu, level, 0, now);
            return None;
        }
        Some((1024 + weight / 2) / weight)
    }

    fn count_newidle(&mut self, cpu: usize, level: usize, successes: u32, now: u64) {
        let by_rate = self.config.newidle_by_rate;
        let state = &mut self.rqs[cpu].domains[level].newidle;
        state.count(successes, by_rate, now);
    }

    /// True if `cpu` is the one CPU of its group that balances (`should_we_balance`). This is the group's first idle CPU,
    /// preferably on an idle core; without idle CPUs, it is the group's first CPU.
    fn should_balance(&self, cpu: usize, node: &SchedDomain, kind: Idleness) -> bool {
        if kind == Idleness::Newly {
            return self.rqs[cpu].runnable == 0;
        }
        let group = self
            .domains
            .node(self.domains.local_group(self.group_parent(node), cpu));
        let mut spare = NONE;
        let mut from = 0;
        while let Some(idle) = self.idle.next_common(&group.mask, from) {
            from = idle + 1;
            if node.level != DomainLevel::Core && !self.domains.core_is_idle(idle) {
                // `should_we_balance`: an idle SMT sibling of a busy core is only chosen if there is no idle core.
                spare = spare.min(idle as u32);
                continue;
            }
            return idle == cpu;
        }
        if spare == NONE {
            group.balance_cpu() == cpu as u32
        } else {
            spare == cpu as u32
        }
    }

    /// Returns the index of a domain in the domain tree.
    fn group_parent(&self, node: &SchedDomain) -> u32 {
        node.children
            .first()
            .map_or(NONE, |c| self.domains.node(*c).parent)
    }

    /// Balances one domain on behalf of `cpu`. Returns the number of threads moved, and if outer domains may be balanced.
    fn balance(&mut self, cpu: usize, level: usize, kind: Idleness, now: u64) -> BalanceOutcome {
        let id = self.rqs[cpu].domains[level].node;
        if !self.should_balance(cpu, self.domains.node(id), kind) {
            return BalanceOutcome {
                moved: 0,
                go_on: false,
            };
        }
        self.excluded.clear();
        let failed = self.rqs[cpu].domains[level].failed;
        let mut env = Env::new(id, self.domains.local_group(id, cpu), cpu, kind, failed);
        loop {
            let source = self
                .find_source_group(&mut env, now)
                .and_then(|g| self.find_source_queue(&env, g, now));
            let Some(source) = source else {
                self.nothing_to_do(level, &env);
                return BalanceOutcome {
                    moved: 0,
                    go_on: true,
                };
            };
            env.source = source;
            env.all_pinned = true;
            let mut moved = 0;
            if self.rqs[source].runnable > 1 {
                moved = self.move_threads(&mut env, now);
                self.domains.nodes[id as usize].imbalanced |=
                    env.some_pinned && env.imbalance > 0.0;
                // `sched_balance_rq` (kernel/sched/fair.c): a source whose threads are all pinned is excluded, and the search is
                // repeated.
                if env.all_pinned && moved == 0 {
                    self.excluded.push(source as u32);
                    if self.others_remain(&env) {
                        continue;
                    }
                    self.back_off(level, &env);
                    return BalanceOutcome {
                        moved: 0,
                        go_on: true,
                    };
                }
            }
            self.conclude(level, &env, moved, now);
            return BalanceOutcome { moved, go_on: true };
        }
    }

    /// True if at least one CPU outside the local group has not been excluded.
    fn others_remain(&self, env: &Env) -> bool {
        let (node, local) = (self.domains.node(env.node), self.domains.node(env.local));
        node.cpus
            .iter()
            .any(|c| !local.mask.has(*c as usize) && !self.excluded.contains(c))
    }

    fn nothing_to_do(&mut self, level: usize, env: &Env) {
        self.domains.nodes[env.node as usize].imbalanced = false;
        self.set_quiet(env.cpu, level);
        self.back_off(level, env);
    }

    /// Doubles the balance interval of a domain in which there is nothing to move or all threads are pinned (`sched_balance_rq`).
    fn back_off(&mut self, level: usize, env: &Env) {
        let longest = 2 * self.domains.node(env.node).weight();
        let state = &mut self.rqs[env.cpu].domains[level];
        state.failed = 0;
        if env.kind != Idleness::Newly
            && ((env.all_pinned && state.interval_ms < MAX_PINNED_MS)
                || state.interval_ms < longest)
        {
            state.interval_ms *= 2;
        }
    }

    fn conclude(&mut self, level: usize, env: &Env, moved: u32, now: u64) {
        let shortest = self.domains.node(env.node).weight();
        let state = &mut self.rqs[env.cpu].domains[level];
        if moved > 0 {
            state.failed = 0;
            state.interval_ms = shortest;
            return;
        }
        // `sched_balance_rq`: newly idle balances are frequent and would raise the failure count; misfits are unrelated to load.
        if env.kind != Idleness::Newly && env.migration != Migration::Misfit && !env.llc_pinned {
            state.failed += 1;
        }
        let failed = state.failed;
        if self.needs_active_balance(env, failed, now) {
            let curr = self.rqs[env.source].curr;
            let pinned = self
                .threads
                .get(curr as usize)
                .is_none_or(|t| !t.allowed.has(env.cpu));
            if pinned {
                let state = &mut self.rqs[env.cpu].domains[level];
                if env.kind != Idleness::Newly && state.interval_ms < 2 * shortest {
                    state.interval_ms *= 2;
                }
                self.quieten_pinned(level, env);
                return;
            }
            if self.active_balance(env, now) {
                // The source CPU pushed the thread, so that earlier failures no longer count.
                self.rqs[env.cpu].domains[level].failed = 0;
            }
        }
        self.rqs[env.cpu].domains[level].interval_ms = shortest;
    }

    /// Marks a domain as quiet if the source's only thread is pinned. The domain stays quiet until affinities or counts change.
    fn quieten_pinned(&mut self, level: usize, env: &Env) {
        if self.rqs[env.source].runnable <= 1 {
            self.set_quiet(env.cpu, level);
        }
    }

    /// True if the source CPU should push its running thread to the balancing CPU (`need_active_balance`).
    fn needs_active_balance(&self, env: &Env, failed: u32, now: u64) -> bool {
        let node = self.domains.node(env.node);
        if self.keeps_threads(env, now) {
            return false;
        }
        if matches!(env.migration, Migration::Misfit | Migration::Llc) {
            return true;
        }
        // `asym_active_balance`: an idle core helps one with several busy siblings, whatever their priorities.
        if env.kind != Idleness::Busy
            && self.counts_priority(node, env.cpu)
            && (self.prefers(node, env.cpu, env.source) || !self.counts_priority(node, env.source))
        {
            return true;
        }
        env.migration == Migration::Threads && failed > node.cache_nice_tries + 2
    }
}
