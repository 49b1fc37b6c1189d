//! One CPU's run queue of fair threads.
//!
//! Input: entities that join and leave. Output: the weighted average virtual time V, eligibility, and the order of the waiting
//! entities. Models `struct cfs_rq`: the timeline, `avg_vruntime`, `entity_eligible`, and the clock of PELT. The timeline is a
//! sorted deque here: queues are short, and scanning plain numbers is faster than walking a tree.

use std::collections::VecDeque;

use super::entity::{NONE, Thread};
use super::pelt::{Avg, FULL, Rate};

/// A waiting entity; the thread's own values do not change while it waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    /// Sort key: the virtual deadline (EEVDF) or the virtual time (CFS).
    pub key: i64,
    pub vruntime: i64,
    pub thread: u32,
    pub weight: u32,
}

/// Balancing state of a CPU in one of its domains.
#[derive(Clone, Copy, Debug)]
pub(super) struct DomainState {
    /// Row of the domain tree.
    pub node: u32,
    /// Time of the last balance; negative before the start.
    pub last: i64,
    /// Milliseconds between balances while the CPU idles.
    pub interval_ms: u32,
    pub failed: u32,
    /// Generation of the domain when a balance by counts last found nothing to do.
    pub quiet_generation: u64,
    pub newidle: NewIdle,
}

/// Success of a newly idle CPU's searches in a domain (`update_newidle_stats`, kernel/sched/fair.c).
#[derive(Clone, Copy, Debug)]
pub(super) struct NewIdle {
    calls: u32,
    successes: u32,
    /// Number of searches out of 1,024 that are made.
    pub ratio: u32,
    since: u64,
}

impl NewIdle {
    /// Starts as if half of the searches had succeeded; `ratio` of 1,024 searches are made at first.
    pub(super) fn new(ratio: u32) -> Self {
        Self {
            calls: 512,
            successes: 256,
            ratio,
            since: 0,
        }
    }

    /// Counts a search, or one that was skipped; `by_rate` lets rare searches through.
    pub(super) fn count(&mut self, successes: u32, by_rate: bool, now: u64) {
        self.calls += 1;
        self.successes += successes;
        if self.calls >= 1024 {
            let rare = if by_rate { (now - self.since) >> 22 } else { 0 };
            self.since = now;
            self.ratio = (u64::from(self.successes) + rare).min(1024) as u32;
            self.calls /= 2;
            self.successes /= 2;
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct RunQueue {
    pub curr: u32,
    /// Running thread as last reported to the engine.
    pub shown: u32,
    pub waiting: VecDeque<Waiting>,
    /// Number of runnable threads: waiting and running, but not delayed.
    pub runnable: u32,
    /// Sum of weights of the waiting entities.
    pub weight: i64,
    /// Sum of weight x (virtual time - `zero`) of the waiting entities.
    pub weighted_vruntime: i64,
    /// Origin that keeps the products small; follows V (EEVDF) or is the monotonic minimum (CFS).
    pub zero: i64,
    /// Number of waiting or running entities with a slice of their own.
    pub custom_slices: u32,
    pub avg: Avg,
    /// Sum of the estimated utilisation of the queued threads.
    pub util_est: f64,
    /// Total weight of the queue, the running thread's included.
    pub total_weight: f64,
    pub capacity: u32,
    /// Capacity at the present frequency.
    speed: u32,
    /// Wall and PELT time when the CPU last stopped being idle.
    busy_since: (u64, u64),
    /// True if nothing runs, nothing is queued, and the search for work to pull is over.
    pub idle: bool,
    pub need_resched: bool,
    /// True if a woken thread is to preempt at the next tick (lazy preemption).
    pub lazy_resched: bool,
    /// Time of the next disturbance, and true if one just happened.
    pub disturbed_at: u64,
    pub disturbed: bool,
    /// Time at which it last became idle; `None` after the next wake-up.
    pub idle_since: Option<u64>,
    /// Time at which it last became idle, for the choice among idle CPUs.
    pub idle_stamp: u64,
    pub average_idle: u64,
    /// Load of the running thread if it does not fit this CPU; zero otherwise.
    pub misfit_load: f64,
    /// Most and least recently run threads; the running one is the most recent.
    pub newest: u32,
    pub oldest: u32,
    pub domains: Vec<DomainState>,
    /// Offset of its tick from the machine's.
    pub tick_offset: u64,
    /// True if its timer is stale.
    pub touched: bool,
    pub balancing: bool,
    /// Time of its next balance as a busy CPU, while `balancing`.
    pub balance_at: u64,
}

impl RunQueue {
    pub(super) fn new(capacity: u32) -> Self {
        Self {
            curr: NONE,
            shown: NONE,
            waiting: VecDeque::new(),
            runnable: 0,
            weight: 0,
            weighted_vruntime: 0,
            zero: 0,
            custom_slices: 0,
            avg: Avg::default(),
            util_est: 0.0,
            total_weight: 0.0,
            capacity,
            speed: capacity,
            busy_since: (0, 0),
            idle: true,
            need_resched: false,
            lazy_resched: false,
            disturbed_at: 0,
            disturbed: false,
            idle_since: Some(0),
            idle_stamp: 0,
            average_idle: 1_000_000,
            misfit_load: 0.0,
            newest: NONE,
            oldest: NONE,
            domains: Vec::new(),
            tick_offset: 0,
            touched: false,
            balancing: false,
            balance_at: 0,
        }
    }

    /// Sum of weight x (virtual time - `zero`) and sum of weights, the running entity included.
    fn sums(&self, curr: Option<&Thread>) -> (i64, i64) {
        match curr {
            Some(c) => {
                let weight = i64::from(c.weight);
                (
                    self.weighted_vruntime + (c.vruntime - self.zero) * weight,
                    self.weight + weight,
                )
            }
            None => (self.weighted_vruntime, self.weight),
        }
    }

    /// Weighted average virtual time V, rounded down; `zero` if no entity is queued.
    pub(super) fn average_vruntime(&self, curr: Option<&Thread>) -> i64 {
        let (sum, weight) = self.sums(curr);
        if weight == 0 {
            self.zero
        } else {
            self.zero + sum.div_euclid(weight)
        }
    }

    /// True if an entity at `vruntime` has received no more than its share (`entity_eligible`).
    pub(super) fn eligible(&self, curr: Option<&Thread>, vruntime: i64) -> bool {
        let (sum, weight) = self.sums(curr);
        sum >= (vruntime - self.zero) * weight
    }

    /// Moves the origin to `zero`.
    pub(super) fn rebase(&mut self, zero: i64) {
        self.weighted_vruntime -= self.weight * (zero - self.zero);
        self.zero = zero;
    }

    pub(super) fn insert(&mut self, entry: Waiting) {
        let at = self.waiting.partition_point(|w| w.key <= entry.key);
        self.waiting.insert(at, entry);
        self.weight += i64::from(entry.weight);
        self.weighted_vruntime += i64::from(entry.weight) * (entry.vruntime - self.zero);
    }

    /// Removes a waiting thread; `key` is its key at insertion.
    pub(super) fn remove(&mut self, thread: u32, key: i64) {
        let first = self.waiting.partition_point(|w| w.key < key);
        let found = (first..self.waiting.len()).find(|i| self.waiting[*i].thread == thread);
        debug_assert!(found.is_some(), "thread {thread} is not queued under {key}");
        if let Some(entry) = found.and_then(|i| self.waiting.remove(i)) {
            self.weight -= i64::from(entry.weight);
            self.weighted_vruntime -= i64::from(entry.weight) * (entry.vruntime - self.zero);
        }
    }

    /// PELT's clock: a small CPU slows it down while it is busy, and it catches up when the CPU idles. A thread's utilisation
    /// thus means the same on every CPU.
    pub(super) fn pelt_clock(&self, now: u64) -> u64 {
        if self.idle {
            return now;
        }
        let (wall, pelt) = self.busy_since;
        pelt + ((now.saturating_sub(wall) * u64::from(self.speed)) >> 10)
    }

    /// Sets the CPU's frequency from now on, as the fraction `clock` of its type's `freq_ghz`.
    pub(super) fn set_clock(&mut self, clock: f64, now: u64) {
        let pelt = self.pelt_clock(now);
        if !self.idle {
            self.busy_since = (now, pelt);
        }
        self.speed = (f64::from(self.capacity) * clock.min(1.0)).round() as u32;
    }

    /// Starts PELT's clock when the CPU stops being idle.
    pub(super) fn wake_clock(&mut self, now: u64) {
        self.busy_since = (now, now);
    }

    fn rate(&self) -> Rate {
        Rate {
            load: self.total_weight,
            runnable: FULL * f64::from(self.runnable),
            util: if self.curr == NONE { 0.0 } else { FULL },
        }
    }

    /// Brings the queue's averages up to date; must be called before the queue changes.
    pub(super) fn update_avg(&mut self, now: u64) {
        let clock = self.pelt_clock(now);
        let rate = self.rate();
        self.avg.update(clock, rate);
    }

    /// Averages of the queue at `now`.
    pub(super) fn avg_at(&self, now: u64) -> Avg {
        self.avg.at(self.pelt_clock(now), self.rate())
    }

    /// Utilisation, at most the CPU's capacity (`cpu_util_cfs`).
    pub(super) fn util(&self, now: u64) -> f64 {
        self.avg_at(now)
            .util
            .max(self.util_est)
            .min(f64::from(self.capacity))
    }
}
