//! Choice of the CPU for a woken thread.
//!
//! Input: the thread, the waking CPU, and the state of the caches around both. Output: a CPU. Models `select_task_rq_fair`,
//! `record_wakee`, `wake_wide`, `wake_affine`, and `select_idle_sibling` with its searches (kernel/sched/fair.c). Left out:
//! idle-class threads.

use countersteer_model::placement::Clamp;

use super::Linux;
use super::clamps::{CapacityFit, fit};
use super::domains::SchedDomain;
use super::entity::NONE;
use super::mask::Mask;

/// Time in nanoseconds after which the number of times that a thread changed its wakee is halved.
const FLIP_DECAY_NS: u64 = 1_000_000_000;

/// Source of a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waker {
    Interrupt,
    /// Wake-up by the thread that runs on this CPU.
    Thread(usize),
    /// Wake-up by the thread that runs on this CPU and is about to sleep.
    Sync(usize),
}

impl Waker {
    pub(super) fn cpu(self) -> Option<usize> {
        match self {
            Self::Interrupt => None,
            Self::Thread(cpu) | Self::Sync(cpu) => Some(cpu),
        }
    }
}

impl Linux {
    /// Returns the CPU for a woken thread; `this` is the waking CPU.
    pub(super) fn place_wakeup(&mut self, t: u32, this: usize, by: Waker, now: u64) -> usize {
        let prev = self.threads[t as usize].cpu as usize;
        let waker = by.cpu().map_or(NONE, |cpu| self.rqs[cpu].curr);
        // `select_task_rq` (kernel/sched/core.c) does not call the scheduling class if the affinity mask has one CPU.
        if self.threads[t as usize].allowed_count == 1 {
            return self.fallback(t, prev, prev);
        }
        self.record_wakee(waker, t, now);
        if self.energy.is_some()
            && !self.overutilised(now)
            && let Some(cpu) = self.place_by_energy(t, this, prev, now)
        {
            return self.fallback(t, prev, cpu);
        }
        let thread = &self.threads[t as usize];
        let mut target = prev;
        if this != prev
            && thread.allowed.has(this)
            && !self.wake_wide(waker, t)
            && self.wake_affine(t, this, prev, matches!(by, Waker::Sync(_)), now)
        {
            target = this;
        }
        let cpu = self.idle_sibling(t, prev, target, now);
        self.fallback(t, prev, cpu)
    }

    /// Returns `cpu` if it is allowed, else the first allowed CPU of the memory node, else the first allowed CPU
    /// (`select_fallback_rq`).
    pub(super) fn fallback(&self, t: u32, prev: usize, cpu: usize) -> usize {
        let allowed = &self.threads[t as usize].allowed;
        if allowed.has(cpu) {
            return cpu;
        }
        let node = &self.domains.node(self.node_of[prev]).mask;
        node.next_common(allowed, 0)
            .or_else(|| allowed.next_wrapping(0))
            .unwrap_or(cpu)
    }

    /// Counts the wake-ups in which a waker wakes another thread than before.
    fn record_wakee(&mut self, waker: u32, t: u32, now: u64) {
        let Some(thread) = self.threads.get_mut(waker as usize) else {
            return;
        };
        if now > thread.flips_decayed_at + FLIP_DECAY_NS {
            thread.wakee_flips >>= 1;
            thread.flips_decayed_at = now;
        }
        if thread.last_wakee != t {
            thread.last_wakee = t;
            thread.wakee_flips += 1;
        }
    }

    /// True if waker and wakee have too many partners for the wakee to be pulled to the waker's cache (`wake_wide`).
    pub(super) fn wake_wide(&self, waker: u32, t: u32) -> bool {
        let Some(waker) = self.threads.get(waker as usize) else {
            return false;
        };
        let a = waker.wakee_flips;
        let b = self.threads[t as usize].wakee_flips;
        let master = a.max(b);
        let slave = a.min(b);
        let factor = self
            .domains
            .node(self.domains.llc[waker.cpu as usize])
            .weight();
        !(slave < factor || master < slave * factor)
    }

    /// True if the search for an idle CPU should start at the waking CPU and not at the thread's previous CPU (`wake_affine`).
    fn wake_affine(&self, t: u32, this: usize, prev: usize, sync: bool, now: u64) -> bool {
        // `wake_affine_idle`: if both CPUs share a cache and are idle, the previous CPU is chosen.
        if self.rqs[this].idle && self.domains.shares_cache(this, prev) {
            return !self.rqs[prev].idle;
        }
        // `wake_affine_idle`: a waker that is about to sleep and is alone on its CPU will free this CPU.
        if sync && self.rqs[this].runnable == 1 {
            return true;
        }
        if self.rqs[prev].idle {
            return false;
        }
        // `wake_affine_weight`: the CPU with the lower load relative to its capacity is chosen.
        let mut this_load = self.rqs[this].avg_at(now).load;
        if sync && let Some(waker) = self.threads.get(self.rqs[this].curr as usize) {
            let clock = self.rqs[this].pelt_clock(now);
            let load = waker.avg.at(clock, waker.rate()).load;
            if load > this_load {
                return true;
            }
            this_load -= load;
        }
        let thread = &self.threads[t as usize];
        let load = thread
            .avg
            .at(self.rqs[prev].pelt_clock(now), thread.rate())
            .load;
        let pct = self
            .common_domain(this, prev)
            .map_or(117, |d| d.imbalance_pct) as f64;
        let here = (this_load + load) * 100.0 * f64::from(self.rqs[prev].capacity);
        let there = (self.rqs[prev].avg_at(now).load - load).max(0.0)
            * (100.0 + (pct - 100.0) / 2.0)
            * f64::from(self.rqs[this].capacity);
        // With `sync`, the waking CPU is chosen at equal loads.
        here < there + f64::from(u8::from(sync))
    }

    /// Returns the smallest domain that contains both CPUs; `None` if there is none.
    fn common_domain(&self, a: usize, b: usize) -> Option<&SchedDomain> {
        self.domains
            .path(a)
            .map(|d| self.domains.node(d))
            .find(|d| d.mask.has(b))
    }

    /// True if a thread of utilisation `util` fits the CPU, or if all CPUs have equal capacity (`asym_fits_cpu`).
    fn fits_cpu(&self, (util, clamp): (f64, Clamp), cpu: usize) -> bool {
        !self.domains.asymmetric || fit(util, clamp, self.rqs[cpu].capacity) == CapacityFit::Yes
    }

    /// Returns an idle CPU near `target`, or `target` if no idle CPU is found (`select_idle_sibling`).
    fn idle_sibling(&mut self, t: u32, prev: usize, target: usize, now: u64) -> usize {
        let thread = &mut self.threads[t as usize];
        let util = if self.domains.asymmetric {
            thread
                .avg
                .update(self.rqs[prev].pelt_clock(now), thread.rate());
            (thread.planned_util(), thread.clamp)
        } else {
            (0.0, Clamp::FREE)
        };
        if self.rqs[target].idle && self.fits_cpu(util, target) {
            return target;
        }
        let mut near = None;
        // `select_idle_sibling`: next, the previous and the recently used CPU are chosen if they are idle and share the target's
        // cache.
        if prev != target && self.idle_nearby(prev, target, util) {
            if !self.domains.clusters || self.domains.shares_cluster(prev, target) {
                return prev;
            }
            near = Some(prev);
        }
        let thread = &mut self.threads[t as usize];
        let recent = std::mem::replace(&mut thread.recent_cpu, prev as u32) as usize;
        let usable = recent != prev
            && recent != target
            && self.idle_nearby(recent, target, util)
            && self.threads[t as usize].allowed.has(recent);
        if usable && (!self.domains.clusters || self.domains.shares_cluster(recent, target)) {
            return recent;
        }
        if self.domains.asymmetric {
            return self.idle_capacity(t, util, target).unwrap_or(target);
        }
        let found = self.idle_in_llc(t, prev, target, now);
        found
            .or(near)
            .unwrap_or(if usable { recent } else { target })
    }

    fn idle_nearby(&self, cpu: usize, target: usize, util: (f64, Clamp)) -> bool {
        self.rqs[cpu].idle && self.domains.shares_cache(cpu, target) && self.fits_cpu(util, cpu)
    }

    /// Returns the first idle CPU, counted from `target`, that the thread fits, or else the largest idle CPU
    /// (`select_idle_capacity`). `None` if no allowed CPU is idle.
    fn idle_capacity(&self, t: u32, (util, clamp): (f64, Clamp), target: usize) -> Option<usize> {
        let span = &self.domains.node(self.domains.full_capacity[target]).mask;
        let allowed = &self.threads[t as usize].allowed;
        let mut best: Option<(usize, (CapacityFit, u32))> = None;
        for cpu in wrapping(&self.idle, span, target).filter(|c| allowed.has(*c)) {
            let capacity = self.rqs[cpu].capacity;
            let rank = (fit(util, clamp, capacity), capacity);
            if rank.0 == CapacityFit::Yes {
                return Some(cpu);
            }
            if best.is_none_or(|b| rank > b.1) {
                best = Some((cpu, rank));
            }
        }
        best.map(|b| b.0)
    }

    /// Returns an idle CPU under the target's last-level cache: on an idle core if there is one, else from a scan of limited
    /// depth.
    fn idle_in_llc(&mut self, t: u32, prev: usize, target: usize, now: u64) -> Option<usize> {
        let llc = self.domains.llc[target];
        let whole_cores = self.domains.smt && self.domains.node(llc).idle_cores > 0;
        let allowed_idle = |this: &Self, cpu: usize| {
            this.rqs[cpu].idle && this.threads[t as usize].allowed.has(cpu)
        };
        // `select_idle_smt`: without an idle core, the idle SMT siblings of the previous CPU are tried first.
        if self.domains.smt && !whole_cores && self.domains.shares_cache(prev, target) {
            let siblings = &self.domains.node(self.domains.core[prev]).cpus;
            let found = siblings
                .iter()
                .map(|c| *c as usize)
                .find(|c| *c != prev && allowed_idle(self, *c));
            if found.is_some() {
                return found;
            }
        }
        if self.domains.node(llc).idle_cpus == 0 {
            return None;
        }
        let budget = if whole_cores {
            usize::MAX
        } else {
            self.scan_depth(llc, now)
        };
        // `select_idle_cpu` scans the target's cluster before the whole last-level cache.
        if self.domains.clusters {
            let cluster = self.domains.cluster[target];
            if cluster != llc {
                let found = self.scan(t, cluster, target, whole_cores, budget);
                if found.is_some() {
                    return found;
                }
            }
        }
        self.scan(t, llc, target, whole_cores, budget)
    }

    /// Returns an idle CPU among the first `budget` allowed CPUs of a domain, starting after `target`. With `whole_cores`, idle
    /// cores are preferred and `budget` does not apply.
    fn scan(
        &self,
        t: u32,
        domain: u32,
        target: usize,
        whole_cores: bool,
        budget: usize,
    ) -> Option<usize> {
        let span = &self.domains.node(domain).mask;
        let allowed = &self.threads[t as usize].allowed;
        let mut any = None;
        if whole_cores {
            for cpu in wrapping(&self.idle, span, target + 1).filter(|c| allowed.has(*c)) {
                if self.domains.core_is_idle(cpu) {
                    return Some(cpu);
                }
                any = any.or(Some(cpu));
            }
            return any;
        }
        wrapping(allowed, span, target + 1)
            .take(budget)
            .find(|c| self.rqs[*c].idle)
    }

    /// Returns the number of CPUs to scan under a last-level cache, which is lower if its CPUs are busier (`SIS_UTIL`,
    /// `update_idle_cpu_scan`). The kernel updates the number when it balances; the model updates it after a fixed time.
    fn scan_depth(&mut self, llc: u32, now: u64) -> usize {
        let node = self.domains.node(llc);
        let weight = node.weight();
        let slot = &self.scan_depths[node.cpus[0] as usize];
        if slot.0 > now {
            return slot.1;
        }
        let util: f64 = node
            .cpus
            .iter()
            .map(|c| self.rqs[*c as usize].util(now))
            .sum();
        let used = util / f64::from(weight);
        let pct = node.imbalance_pct as f64 / 100.0;
        let spare = (1024.0 - used * used * pct * pct / 1024.0).max(0.0);
        // `select_idle_cpu` adds one to this number, and stops when its counter reaches zero: it scans exactly this number of
        // CPUs.
        let depth = (spare * f64::from(weight) / 1024.0) as usize;
        let until = now + u64::from(weight.max(4)) * 1_000_000;
        self.scan_depths[node.cpus[0] as usize] = (until, depth);
        depth
    }
}

/// Iterates over the common members of two masks from `start` on, then from 0 to `start`.
fn wrapping<'a>(a: &'a Mask, b: &'a Mask, start: usize) -> impl Iterator<Item = usize> + 'a {
    a.common_from(b, start)
        .chain(a.common(b).take_while(move |c| *c < start))
}
