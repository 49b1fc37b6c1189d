//! Choice of the CPU for a new thread: a descent through the domains, at each level into the idlest group.
//!
//! Input: the forking CPU and the thread's affinity mask. Output: a CPU. Models `sched_balance_find_dst_cpu`,
//! `sched_balance_find_dst_group` and `sched_balance_find_dst_group_cpu` (kernel/sched/fair.c). If the thread may use all CPUs of
//! a group, the counters of the domain tree describe the group. Averages are summed only if the counts of threads do not decide.
//! Left out: exit latencies of idle states. All idle CPUs are in the same state here, so that the CPU that became idle last is
//! chosen.

use super::Linux;
use super::domains::DomainLevel;
use super::entity::TaskEntity;
use super::imbalance::{GroupKind, Stats, has_capacity, overloaded};

impl Linux {
    /// Returns the idlest CPU that a new thread may use; the search starts at the forking CPU `cpu`.
    pub(super) fn place_fork(&mut self, t: u32, cpu: usize, now: u64) -> usize {
        let thread = std::mem::take(&mut self.threads[t as usize]);
        let mut at = cpu;
        let mut domain = self.domains.root;
        while !self.domains.node(domain).children.is_empty() {
            let here = self.domains.local_group(domain, at);
            match self.idlest_group(domain, here, &thread, now) {
                None => domain = here,
                Some(group) => {
                    at = self.idlest_cpu(group, &thread, now).unwrap_or(at);
                    domain = group;
                }
            }
        }
        self.threads[t as usize] = thread;
        self.fallback(t, cpu, at)
    }

    /// Returns the group in which to place the thread instead of the local group; `None` if the local group is best.
    fn idlest_group(&self, domain: u32, local: u32, thread: &TaskEntity, now: u64) -> Option<u32> {
        let node = self.domains.node(domain);
        let pct = node.imbalance_pct as f64;
        let here = self.room(local, thread, pct, now);
        let at = node.children.iter().position(|c| *c == local)?;
        let mut idlest: Option<Stats> = None;
        for group in node.children[at + 1..].iter().chain(&node.children[..at]) {
            let Some(stats) = self.room(*group, thread, pct, now) else {
                continue;
            };
            if idlest
                .as_ref()
                .is_none_or(|best| self.idler(best, &stats, now))
            {
                idlest = Some(stats);
            }
        }
        let idlest = idlest?;
        let Some(here) = here else {
            return Some(idlest.group);
        };
        let leave = if here.kind == idlest.kind {
            self.leaves(domain, &here, &idlest, thread)
        } else {
            here.kind > idlest.kind
        };
        leave.then_some(idlest.group)
    }

    /// True if group `there` is better for the thread than the local group `here` of the same kind.
    fn leaves(&self, domain: u32, here: &Stats, there: &Stats, thread: &TaskEntity) -> bool {
        let node = self.domains.node(domain);
        let numa = node.level == DomainLevel::Numa;
        if here.kind == GroupKind::HasSpare {
            let allowed = self
                .domains
                .node(here.group)
                .cpus
                .iter()
                .filter(|c| thread.allowed.has(**c as usize));
            let slack = if numa {
                node.numa_slack.min(allowed.count() as u32)
            } else {
                0
            };
            // `adjust_numa_imbalance` (kernel/sched/fair.c): a NUMA node keeps a small number of threads although another has
            // more idle CPUs.
            let tolerated =
                numa && here.running < slack && here.idle_cpus.abs_diff(there.idle_cpus) <= 2;
            // `sched_balance_find_dst_group`: the number of idle CPUs decides, not the utilisation.
            return !tolerated && here.idle_cpus < there.idle_cpus;
        }
        let pct = node.imbalance_pct as f64;
        let margin = 1024.0 * (pct - 100.0) / 100.0;
        // `sched_balance_find_dst_group`: across NUMA nodes, the margin favours the local group, which may be lightly loaded.
        let alike = numa && there.avg_load + margin >= here.avg_load;
        !alike
            && there.avg_load < here.avg_load + margin
            && 100.0 * here.avg_load > pct * there.avg_load
    }

    /// True if group `new` is idler than group `best` (`update_pick_idlest`, kernel/sched/fair.c).
    fn idler(&self, best: &Stats, new: &Stats, now: u64) -> bool {
        if new.kind != best.kind {
            return new.kind < best.kind;
        }
        if new.kind != GroupKind::HasSpare {
            return new.avg_load < best.avg_load;
        }
        if new.idle_cpus != best.idle_cpus {
            return new.idle_cpus > best.idle_cpus;
        }
        self.group_util(new.group, now) < self.group_util(best.group, now)
    }

    fn group_util(&self, group: u32, now: u64) -> f64 {
        self.domains
            .node(group)
            .cpus
            .iter()
            .map(|c| self.rqs[*c as usize].util(now))
            .sum()
    }

    /// Returns the statistics of a group; `None` if the thread may not run on any of its CPUs.
    fn room(&self, group: u32, thread: &TaskEntity, pct: f64, now: u64) -> Option<Stats> {
        let node = self.domains.node(group);
        if !node.mask.intersects(&thread.allowed) {
            return None;
        }
        let whole =
            thread.allowed_count as usize == self.rqs.len() || node.mask.within(&thread.allowed);
        let usable = || {
            node.cpus
                .iter()
                .map(|c| *c as usize)
                .filter(|c| whole || thread.allowed.has(*c))
        };
        let (running, idle_cpus) = if whole {
            (node.runnable, node.idle_cpus)
        } else {
            usable().fold((0, 0), |(r, i), c| {
                (r + self.rqs[c].runnable, i + u32::from(self.rqs[c].idle))
            })
        };
        let mut stats = Stats {
            group,
            kind: GroupKind::HasSpare,
            running,
            idle_cpus,
            weight: node.weight(),
            capacity: node.capacity,
            load: 0.0,
            util: 0.0,
            runnable: 0.0,
            avg_load: 0.0,
            misfit_load: 0.0,
        };
        if running >= stats.weight {
            self.add_room(&mut stats, usable(), pct, now);
        }
        Some(stats)
    }

    /// Adds the load averages of a group with at least one thread per CPU, and sets the group's kind.
    fn add_room(&self, stats: &mut Stats, cpus: impl Iterator<Item = usize>, pct: f64, now: u64) {
        for cpu in cpus {
            let avg = self.rqs[cpu].avg_at(now);
            stats.load += avg.load;
            stats.runnable += avg.runnable;
            stats.util += avg
                .util
                .max(self.rqs[cpu].util_est)
                .min(f64::from(self.rqs[cpu].capacity));
        }
        stats.avg_load = stats.load * 1024.0 / stats.capacity;
        stats.kind = if overloaded(stats, pct) {
            GroupKind::Overloaded
        } else if has_capacity(stats, pct) {
            GroupKind::HasSpare
        } else {
            GroupKind::FullyBusy
        };
    }

    /// Returns the group's CPU that became idle last, or its least loaded CPU if none is idle. `None` if the thread may use none
    /// of them.
    fn idlest_cpu(&self, group: u32, thread: &TaskEntity, now: u64) -> Option<usize> {
        let node = self.domains.node(group);
        let usable = || {
            node.cpus
                .iter()
                .map(|c| *c as usize)
                .filter(|c| thread.allowed.has(*c))
        };
        let idle = usable().filter(|c| self.rqs[*c].idle).reduce(|best, cpu| {
            if self.rqs[cpu].idle_stamp > self.rqs[best].idle_stamp {
                cpu
            } else {
                best
            }
        });
        idle.or_else(|| {
            let loads = usable().map(|c| (c, self.rqs[c].avg_at(now).load));
            loads
                .reduce(|best, next| if next.1 < best.1 { next } else { best })
                .map(|b| b.0)
        })
    }
}
