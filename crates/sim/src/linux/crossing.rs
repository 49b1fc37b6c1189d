//! Balancing between last-level caches under cache-aware scheduling: moves that gather a process, and moves that split it.
//!
//! Input: a balance's [`Env`], a thread, and the caches that processes prefer ([`super::gather`]). Output: decisions for
//! [`super::balance`] and [`super::migrate`]. Models `can_migrate_llc`, `can_migrate_llc_task`, `llc_balance`,
//! `migrate_degrades_llc` and `alb_break_llc`. The kernel uses a cache's utilisation at the last periodic balance
//! (`record_sg_llc_stats`). The model uses the present utilisation.

use super::Linux;
use super::domains::SchedDomain;
use super::entity::NONE;
use super::env::{Env, Migration};
use super::pelt::fits;

/// Limit on a cache's utilisation up to which processes are gathered there, in per cent of its capacity (`llc_overaggr_pct`).
/// Without SMT, the limit is 1.5 times as high.
const FULL_PCT: f64 = 50.0;
/// Threshold in per cent by which the utilisation of one cache must exceed that of another to count as busier (`llc_imb_pct`).
const BUSIER_PCT: f64 = 20.0;

/// Decision on a move between last-level caches (`enum llc_mig`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Crossing {
    Forbidden,
    Wanted,
    /// The move is left to ordinary load balancing.
    Free,
}

impl Linux {
    /// Number of queued threads of a group that prefer the target's cache but are queued under another cache (`nr_pref_dst_llc`).
    pub(super) fn homesick(&self, group: &SchedDomain, target: usize) -> u32 {
        if self.gather.misplaced == 0 {
            return 0;
        }
        let inside = |llc: u32| group.mask.has(self.domains.node(llc).cpus[0] as usize);
        self.gather.homesick(target, inside)
    }

    /// Number of threads on a CPU's queue that prefer the target's last-level cache.
    pub(super) fn homesick_on(&self, cpu: usize, target: usize) -> u32 {
        let llc = self.gather.llc_of[target];
        self.queue_of(cpu)
            .filter(|t| self.threads[*t as usize].preferred_llc == llc)
            .count() as u32
    }

    /// True if at least one queued thread is not under its preferred cache, and this domain has several last-level caches.
    pub(super) fn gatherable(&self, node: &SchedDomain) -> bool {
        self.gather.misplaced > 0 && !node.shares_llc()
    }

    /// True if this balance first moves threads to their preferred cache (`llc_balance`).
    pub(super) fn is_llc_balance(
        &self,
        env: &Env,
        group: &SchedDomain,
        misfit: bool,
        now: u64,
    ) -> bool {
        let node = self.domains.node(env.node);
        if !self.gatherable(node)
            || (node.asym_capacity && misfit)
            || env.failed > node.cache_nice_tries
        {
            return false;
        }
        let source = group.cpus[0] as usize;
        self.homesick(group, env.target) > 0
            && self.crossing(source, env.target, 0.0, true, now) == Crossing::Wanted
    }

    /// Decides if a thread of utilisation `util` may move from one CPU's last-level cache to another's (`can_migrate_llc`).
    /// `to_preferred` is true if the thread prefers the cache that it would move to.
    pub(super) fn crossing(
        &self,
        from: usize,
        to: usize,
        util: f64,
        to_preferred: bool,
        now: u64,
    ) -> Crossing {
        let at = |cpu: usize| self.domains.node(self.domains.llc[cpu]);
        let (source, target) = (at(from), at(to));
        // `get_llc_stats` keeps no statistics for a cache of one CPU.
        if source.weight() < 2 || target.weight() < 2 {
            return Crossing::Free;
        }
        let sum = |node: &SchedDomain| -> f64 {
            let utils = node.cpus.iter().map(|c| self.rqs[*c as usize].util(now));
            utils.sum()
        };
        let source_util = (sum(source) - util).max(0.0);
        let target_util = sum(target) + util;
        let full_pct = if self.domains.smt {
            FULL_PCT
        } else {
            FULL_PCT * 1.5
        };
        let has_room = |util: f64, node: &SchedDomain| util * 100.0 < node.capacity * full_pct;
        let busier = |a: f64, b: f64| a * 100.0 > b * (100.0 + BUSIER_PCT);
        let (source_room, target_room) =
            (has_room(source_util, source), has_room(target_util, target));
        let forbidden = if !source_room && !target_room {
            return Crossing::Free;
        } else if to_preferred {
            !target_room && busier(target_util, source_util)
        } else {
            source_room || !busier(source_util, target_util)
        };
        if forbidden {
            Crossing::Forbidden
        } else {
            Crossing::Wanted
        }
    }

    /// Decides if a thread may move from the balance's source to its target (`can_migrate_llc_task`).
    fn crossing_of(&self, env: &Env, t: u32, now: u64) -> Crossing {
        let process = self.threads[t as usize].process;
        let preferred = self.gather.preferred(process);
        let shares = |a, b| self.domains.shares_cache(a, b);
        if preferred == NONE
            || shares(env.source, env.target)
            || self.too_many_threads(process, env.target)
        {
            return Crossing::Free;
        }
        let preferred = preferred as usize;
        let to_preferred = shares(env.target, preferred);
        if !to_preferred && !shares(env.source, preferred) {
            return Crossing::Free;
        }
        self.crossing(
            env.source,
            env.target,
            self.util_of(t, now),
            to_preferred,
            now,
        )
    }

    /// Returns the present utilisation of a thread (`task_util`).
    fn util_of(&self, t: u32, now: u64) -> f64 {
        let thread = &self.threads[t as usize];
        let clock = self.rqs[thread.cpu as usize].pelt_clock(now);
        thread.avg.at(clock, thread.rate()).util
    }

    /// True if a thread of utilisation `util` fits the source CPU but not the target CPU (`task_misfits_asym_cpu`).
    fn would_misfit(&self, env: &Env, util: f64) -> bool {
        let capacity = |cpu: usize| f64::from(self.rqs[cpu].capacity);
        self.domains.node(env.node).asym_capacity
            && !fits(util, capacity(env.target))
            && fits(util, capacity(env.source))
    }

    /// True if this balance moves threads to their preferred cache, but the thread does not prefer the target's cache
    /// (`migrate_llc_task_wrong_dst`).
    pub(super) fn prefers_elsewhere(&self, env: &Env, t: u32) -> bool {
        env.migration == Migration::Llc
            && self.threads[t as usize].preferred_llc != self.gather.llc_of[env.target]
    }

    /// True if a thread must stay because the move would leave its preferred cache (`migrate_degrades_llc`) or go to a CPU that
    /// is too small. False after several failed balances.
    pub(super) fn parts(&self, env: &Env, t: u32, now: u64) -> bool {
        if !self.gather.active || env.failed > self.domains.node(env.node).cache_nice_tries {
            return false;
        }
        let util = self.threads[t as usize].planned_util();
        self.prefers_elsewhere(env, t)
            || self.would_misfit(env, util)
            || self.crossing_of(env, t, now) == Crossing::Forbidden
    }

    /// True if all threads of the source are under their preferred cache, and the running thread should not be pushed away from
    /// it (`alb_break_llc`).
    pub(super) fn keeps_threads(&self, env: &Env, now: u64) -> bool {
        if !self.gather.active || self.domains.shares_cache(env.source, env.target) {
            return false;
        }
        let llc = self.gather.llc_of[env.source];
        let mut runnable = self
            .queue_of(env.source)
            .map(|t| &self.threads[t as usize])
            .filter(|t| t.runnable());
        let at_home = self.rqs[env.source].runnable > 0 && runnable.all(|t| t.preferred_llc == llc);
        if !at_home || env.migration == Migration::Misfit {
            return false;
        }
        let curr = self.rqs[env.source].curr;
        if self.rqs[env.source].runnable <= 1 || curr == NONE {
            return true;
        }
        let util = self.util_of(curr, now);
        self.would_misfit(env, util)
            || self.crossing(env.source, env.target, util, false, now) == Crossing::Forbidden
    }
}
