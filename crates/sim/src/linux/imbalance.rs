//! Choice of the busiest group of a domain, and of the amount of load to take from it.
//!
//! Input: a domain and the CPU that balances. Output: the source group, the source queue, and the kind and amount to migrate.
//! Models `update_sd_lb_stats`, `group_classify`, `update_sd_pick_busiest`, `sched_balance_find_src_group`,
//! `calculate_imbalance`, `sibling_imbalance` and `sched_balance_find_src_rq` (kernel/sched/fair.c). Left out: capacity lost to
//! interrupts and other classes, and NUMA preferences of threads.

use super::Linux;
use super::domains::{DomainLevel, SchedDomain};
use super::env::{Env, Migration};

/// Kinds of groups, from the least busy to the busiest (`enum group_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum GroupKind {
    HasSpare,
    FullyBusy,
    Misfit,
    SmtBalance,
    AsymPacking,
    Imbalanced,
    LlcBalance,
    Overloaded,
}

/// Statistics of a group at the time of a balance (`struct sg_lb_stats`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Stats {
    pub group: u32,
    pub kind: GroupKind,
    pub running: u32,
    pub idle_cpus: u32,
    pub weight: u32,
    pub capacity: f64,
    pub load: f64,
    pub util: f64,
    pub runnable: f64,
    /// Load divided by capacity, times 1,024; computed only for groups whose loads are compared, otherwise zero.
    pub avg_load: f64,
    pub misfit_load: f64,
}

/// True if `a` is larger than `b` by more than 5 % (`capacity_greater`).
pub(super) fn capacity_greater(a: u32, b: u32) -> bool {
    a * 1024 > b * 1078
}

impl Linux {
    /// True if this domain balances by CPU priority, and CPU `a` has a higher priority than CPU `b` (`sched_asym`).
    pub(super) fn prefers(&self, node: &SchedDomain, a: usize, b: usize) -> bool {
        self.counts_priority(node, a) && self.domains.priority[a] > self.domains.priority[b]
    }

    /// True if the priority of a CPU counts in this domain: the other CPUs of its core are idle (`sched_use_asym_prio`).
    pub(super) fn counts_priority(&self, node: &SchedDomain, cpu: usize) -> bool {
        let alone = || self.domains.others_of_core_idle(cpu, self.rqs[cpu].idle);
        node.asym_packing && (!self.domains.smt || alone())
    }

    /// Returns the statistics of a group. Load averages are included only if the group has at least one thread per CPU.
    fn stats(&self, env: &Env, group: u32, now: u64) -> Stats {
        let node = self.domains.node(group);
        let mut stats = Stats {
            group,
            kind: GroupKind::HasSpare,
            running: node.runnable,
            idle_cpus: node.idle_cpus,
            weight: node.weight(),
            capacity: node.capacity,
            load: 0.0,
            util: 0.0,
            runnable: 0.0,
            avg_load: 0.0,
            misfit_load: 0.0,
        };
        for cpu in self.excluded.iter().filter(|c| node.mask.has(**c as usize)) {
            stats.running -= self.rqs[*cpu as usize].runnable;
            stats.idle_cpus -= u32::from(self.rqs[*cpu as usize].idle);
        }
        if stats.running >= stats.weight {
            self.add_averages(&mut stats, now);
        }
        // `update_sg_lb_stats` (kernel/sched/fair.c): misfits of the local group do not count, since it pulls nothing from itself.
        if self.misfits > 0 && group != env.local && self.domains.node(env.node).asym_capacity {
            stats.misfit_load = node
                .cpus
                .iter()
                .map(|c| self.rqs[*c as usize].misfit_load)
                .fold(0.0, f64::max);
        }
        stats.kind = self.classify(env, &stats, now);
        if stats.kind == GroupKind::Overloaded {
            stats.avg_load = stats.load * 1024.0 / stats.capacity;
        }
        stats
    }

    fn add_averages(&self, stats: &mut Stats, now: u64) {
        (stats.load, stats.util, stats.runnable) = (0.0, 0.0, 0.0);
        for cpu in self
            .domains
            .node(stats.group)
            .cpus
            .iter()
            .filter(|c| !self.excluded.contains(c))
        {
            let rq = &self.rqs[*cpu as usize];
            let avg = rq.avg_at(now);
            stats.load += avg.load;
            stats.util += avg.util.max(rq.util_est).min(f64::from(rq.capacity));
            stats.runnable += avg.runnable;
        }
    }

    fn classify(&self, env: &Env, stats: &Stats, now: u64) -> GroupKind {
        let node = self.domains.node(env.node);
        let group = self.domains.node(stats.group);
        let pct = node.imbalance_pct as f64;
        let remote_idle = stats.group != env.local && env.idle() && stats.running > 0;
        // `group_classify` (kernel/sched/fair.c): the order of the checks decides which kind a group has.
        if overloaded(stats, pct) {
            GroupKind::Overloaded
        } else if stats.group != env.local
            && self.is_llc_balance(env, group, stats.misfit_load > 0.0, now)
        {
            GroupKind::LlcBalance
        } else if group.imbalanced {
            GroupKind::Imbalanced
        } else if remote_idle && self.group_is_lesser(env, stats) {
            GroupKind::AsymPacking
        } else if remote_idle && group.shares_capacity() && stats.running > 1 {
            GroupKind::SmtBalance
        } else if stats.misfit_load > 0.0 {
            GroupKind::Misfit
        } else if has_capacity(stats, pct) {
            GroupKind::HasSpare
        } else {
            GroupKind::FullyBusy
        }
    }

    /// True if the target has a higher priority than the group's preferred CPU. False for a core of which several SMT siblings
    /// are busy.
    fn group_is_lesser(&self, env: &Env, stats: &Stats) -> bool {
        let group = self.domains.node(stats.group);
        if group.shares_capacity() && stats.weight - stats.idle_cpus != 1 {
            return false;
        }
        self.prefers(
            self.domains.node(env.node),
            env.target,
            group.preferred as usize,
        )
    }

    /// True if `new` should replace `old` as the busiest group (`update_sd_pick_busiest`).
    fn busier(&self, env: &Env, local: &Stats, old: Option<&Stats>, new: &Stats) -> bool {
        if new.running == 0 {
            return false;
        }
        let node = self.domains.node(env.node);
        let group = self.domains.node(new.group);
        let capacity = self.rqs[env.target].capacity;
        // `update_sd_pick_busiest`: a misfit thread only moves to a larger CPU in a group that has spare capacity.
        if node.asym_capacity
            && new.kind == GroupKind::Misfit
            && (!capacity_greater(capacity, group.max_capacity)
                || local.kind != GroupKind::HasSpare)
        {
            return false;
        }
        let Some(old) = old else {
            return !self.would_shrink(node, new, capacity);
        };
        if new.kind != old.kind {
            return new.kind > old.kind
                && !(new.kind <= GroupKind::FullyBusy && self.would_shrink(node, new, capacity));
        }
        let replaces = match new.kind {
            GroupKind::Overloaded => return new.avg_load > old.avg_load,
            GroupKind::LlcBalance => {
                let homesick = |s: &Stats| self.homesick(self.domains.node(s.group), env.target);
                return homesick(new) > homesick(old);
            }
            GroupKind::Imbalanced => return false,
            GroupKind::AsymPacking => {
                let rank = |s: &Stats| {
                    self.domains.priority[self.domains.node(s.group).preferred as usize]
                };
                return rank(old) > rank(new);
            }
            GroupKind::Misfit => return new.misfit_load > old.misfit_load,
            GroupKind::SmtBalance if new.idle_cpus == 0 && old.idle_cpus == 0 => {
                self.fuller(old, new)
            }
            GroupKind::FullyBusy => self.fuller(old, new),
            GroupKind::SmtBalance => more_crowded(old, new),
            GroupKind::HasSpare => {
                let was_smt = self.domains.node(old.group).shares_capacity();
                let is_smt = group.shares_capacity();
                if was_smt == is_smt {
                    more_crowded(old, new)
                } else {
                    !(is_smt && new.running <= 1)
                }
            }
        };
        replaces && !self.would_shrink(node, new, capacity)
    }

    /// True if the fully busy group `new` has more load than `old`, or equal load and `old` is not an SMT core.
    fn fuller(&self, old: &Stats, new: &Stats) -> bool {
        new.avg_load > old.avg_load
            || (new.avg_load >= old.avg_load && !self.domains.node(old.group).shares_capacity())
    }

    /// True if threads would move to a smaller CPU although their group has at most one thread per CPU.
    fn would_shrink(&self, node: &SchedDomain, stats: &Stats, capacity: u32) -> bool {
        node.asym_capacity
            && stats.kind <= GroupKind::FullyBusy
            && capacity_greater(self.domains.node(stats.group).min_capacity, capacity)
    }

    /// Returns the busiest group if taking threads from it improves the balance, otherwise `None`. Sets the kind and amount of
    /// the migration in `env`.
    pub(super) fn find_source_group(&self, env: &mut Env, now: u64) -> Option<u32> {
        let node = self.domains.node(env.node);
        let mut local = self.stats(env, env.local, now);
        let at = node.children.iter().position(|c| *c == env.local)?;
        let mut busiest: Option<Stats> = None;
        let others = node.children[at + 1..].iter().chain(&node.children[..at]);
        for group in others {
            let stats = self.stats(env, *group, now);
            if self.busier(env, &local, busiest.as_ref(), &stats) {
                busiest = Some(stats);
            }
        }
        let busiest = busiest?;
        if !self.worth_it(env, &mut local, &busiest, now) {
            return None;
        }
        self.set_imbalance(env, &mut local, &busiest, now);
        (env.imbalance > 0.0).then_some(busiest.group)
    }

    fn worth_it(&self, env: &Env, local: &mut Stats, busiest: &Stats, now: u64) -> bool {
        if busiest.kind == GroupKind::Misfit {
            return true;
        }
        // `sched_balance_find_src_group` (kernel/sched/fair.c): while no CPU is overutilised, energy-aware placement decides
        // alone.
        if self.energy.is_some() && !self.overutilised(now) {
            return false;
        }
        if matches!(busiest.kind, GroupKind::AsymPacking | GroupKind::Imbalanced) {
            return true;
        }
        // `sched_balance_find_src_group`: a local group that is busier than the busiest other group takes nothing.
        if local.kind > busiest.kind {
            return false;
        }
        let pct = self.domains.node(env.node).imbalance_pct as f64;
        if local.kind == GroupKind::Overloaded {
            let too_alike = local.avg_load >= busiest.avg_load
                || local.avg_load >= self.average_load(env, now)
                || 100.0 * busiest.avg_load <= pct * local.avg_load;
            if too_alike {
                return false;
            }
        }
        if self.spreads(busiest)
            && local.kind == GroupKind::HasSpare
            && (busiest.kind == GroupKind::LlcBalance
                || self.sibling_imbalance(env, local, busiest) > 1.0)
        {
            return true;
        }
        if busiest.kind == GroupKind::Overloaded {
            return true;
        }
        let one_is_smt = self.domains.node(local.group).shares_capacity()
            != self.domains.node(busiest.group).shares_capacity();
        // `sched_balance_find_src_group`: without overload, a busy CPU leaves the pull to idle CPUs. Between groups whose numbers
        // of idle CPUs differ by one, a pull would only move the imbalance. A single running thread cannot be pulled.
        if !env.idle() {
            false
        } else if busiest.kind == GroupKind::SmtBalance && one_is_smt {
            true
        } else {
            !(busiest.weight > 1 && local.idle_cpus <= busiest.idle_cpus + 1)
                && busiest.running != 1
        }
    }

    /// True if threads of the busiest group are to be spread over sibling groups (`SD_PREFER_SIBLING`).
    fn spreads(&self, busiest: &Stats) -> bool {
        self.domains.node(busiest.group).prefer_sibling
    }

    /// Returns the load of the whole domain divided by its capacity, times 1,024.
    fn average_load(&self, env: &Env, now: u64) -> f64 {
        let node = self.domains.node(env.node);
        let load: f64 = node
            .cpus
            .iter()
            .map(|c| self.rqs[*c as usize].avg_at(now).load)
            .sum();
        load * 1024.0 / node.capacity
    }

    /// Number of threads to move so that both groups have equally many per core; zero if the balancing CPU is busy
    /// (`sibling_imbalance`).
    fn sibling_imbalance(&self, env: &Env, local: &Stats, busiest: &Stats) -> f64 {
        if !env.idle() || busiest.running == 0 {
            return 0.0;
        }
        let here = self.domains.node(local.group).cores;
        let there = self.domains.node(busiest.group).cores;
        if here == there {
            return f64::from(busiest.running.saturating_sub(local.running));
        }
        let excess = (here * busiest.running).saturating_sub(there * local.running);
        let rounded = (2 * excess + here + there) / (here + there);
        if rounded <= 1 && local.running == 0 && busiest.running > 1 {
            2.0
        } else {
            f64::from(rounded)
        }
    }

    fn set_imbalance(&self, env: &mut Env, local: &mut Stats, busiest: &Stats, now: u64) {
        let node = self.domains.node(env.node);
        let (migration, imbalance) = match busiest.kind {
            GroupKind::Misfit => (Migration::Misfit, 1.0),
            GroupKind::AsymPacking => (Migration::Threads, f64::from(busiest.running)),
            GroupKind::SmtBalance | GroupKind::Imbalanced => (Migration::Threads, 1.0),
            GroupKind::LlcBalance => (Migration::Llc, 1.0),
            _ if local.kind == GroupKind::HasSpare => self.fill_spare(env, local, busiest, now),
            _ => {
                // `calculate_imbalance`: both groups move towards the domain's average load, and neither crosses it.
                if local.kind < GroupKind::Overloaded {
                    self.add_averages(local, now);
                    local.avg_load = local.load * 1024.0 / local.capacity;
                }
                let average = self.average_load(env, now);
                if local.avg_load >= busiest.avg_load || local.avg_load >= average {
                    (Migration::Load, 0.0)
                } else {
                    let give = (busiest.avg_load - average) * busiest.capacity;
                    let take = (average - local.avg_load) * local.capacity;
                    (Migration::Load, give.min(take) / 1024.0)
                }
            }
        };
        debug_assert!(node.level != DomainLevel::Cpu);
        (env.migration, env.imbalance) = (migration, imbalance);
    }

    /// Returns the unit and amount to move if the local group has spare capacity. The amount is the spare utilisation, or half of
    /// the difference in threads or idle CPUs.
    fn fill_spare(
        &self,
        env: &Env,
        local: &mut Stats,
        busiest: &Stats,
        now: u64,
    ) -> (Migration, f64) {
        let node = self.domains.node(env.node);
        // `calculate_imbalance`: threads of an overloaded busiest group fill the spare capacity. A local group without spare
        // capacity, but with an idle CPU, takes one thread.
        if busiest.kind > GroupKind::FullyBusy && !node.shares_llc() {
            self.add_averages(local, now);
            let room = (local.capacity - local.util).max(0.0);
            return if env.idle() && room < 1.0 {
                (Migration::Threads, 1.0)
            } else {
                (Migration::Util, room)
            };
        }
        let mut threads = if busiest.weight == 1 || self.spreads(busiest) {
            self.sibling_imbalance(env, local, busiest)
        } else {
            f64::from(local.idle_cpus.saturating_sub(busiest.idle_cpus))
        };
        // `adjust_numa_imbalance`: a small number of threads may stay together on their NUMA node.
        if node.level == DomainLevel::Numa && local.running < node.numa_slack && threads <= 2.0 {
            threads = 0.0;
        }
        (Migration::Threads, (threads / 2.0).floor())
    }

    /// Returns the CPU of the group from whose run queue threads are taken; `None` if no queue qualifies
    /// (`sched_balance_find_src_rq`).
    pub(super) fn find_source_queue(&self, env: &Env, group: u32, now: u64) -> Option<usize> {
        let node = self.domains.node(env.node);
        let mut best: Option<(usize, f64)> = None;
        for cpu in self
            .domains
            .node(group)
            .cpus
            .iter()
            .filter(|c| !self.excluded.contains(c))
        {
            let cpu = *cpu as usize;
            let rq = &self.rqs[cpu];
            let single = rq.runnable == 1;
            // `sched_balance_find_src_rq` (kernel/sched/fair.c): a single thread is not pulled to a smaller CPU or to one of
            // lower priority.
            if rq.runnable == 0
                || (single
                    && node.asym_capacity
                    && !capacity_greater(self.rqs[env.target].capacity, rq.capacity))
                || (single && self.prefers(node, cpu, env.target))
            {
                continue;
            }
            let measure = match env.migration {
                Migration::Load => {
                    let load = rq.avg_at(now).load;
                    if single && load > env.imbalance {
                        continue;
                    }
                    load / f64::from(rq.capacity)
                }
                // A CPU with a single thread has no utilisation to give: the running thread cannot be detached.
                Migration::Util if single => continue,
                Migration::Util => {
                    let avg = rq.avg_at(now);
                    avg.util.max(rq.util_est).max(avg.runnable)
                }
                Migration::Threads => f64::from(rq.runnable),
                Migration::Misfit => rq.misfit_load,
                Migration::Llc => f64::from(self.homesick_on(cpu, env.target)),
            };
            if measure > best.map_or(0.0, |b| b.1) {
                best = Some((cpu, measure));
            }
        }
        best.map(|b| b.0)
    }
}

fn more_crowded(old: &Stats, new: &Stats) -> bool {
    new.idle_cpus < old.idle_cpus || (new.idle_cpus == old.idle_cpus && new.running > old.running)
}

/// True if a group has more threads than CPUs and no capacity left (`group_is_overloaded`).
pub(super) fn overloaded(stats: &Stats, pct: f64) -> bool {
    stats.running > stats.weight
        && (stats.capacity * 100.0 < stats.util * pct
            || stats.capacity * pct < stats.runnable * 100.0)
}

/// True if a group has fewer threads than CPUs, or capacity left (`group_has_capacity`).
pub(super) fn has_capacity(stats: &Stats, pct: f64) -> bool {
    stats.running < stats.weight
        || (stats.capacity * pct >= stats.runnable * 100.0
            && stats.capacity * 100.0 > stats.util * pct)
}
