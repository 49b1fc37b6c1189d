//! Run queue of one CPU in the fair class.
//!
//! Input: entities that join and leave. Output: the weighted average virtual time V, eligibility, and the order of the waiting
//! entities. Models `struct cfs_rq`: the timeline, `avg_vruntime`, `entity_eligible`, and the clock of PELT. The timeline is a
//! sorted deque here: queues are short, and scanning plain numbers is faster than walking a tree.

use std::collections::VecDeque;

use super::entity::{NONE, TaskEntity};
use super::pelt::{Avg, FULL, PeltRate};

/// Copy of the values of a waiting thread, which do not change while the thread waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitingThread {
    /// Sort key: the virtual deadline (EEVDF) or the virtual time (CFS).
    pub key: i64,
    pub vruntime: i64,
    pub thread: u32,
    pub weight: u32,
}

/// State of a CPU's load balancing in one of its domains.
#[derive(Clone, Copy, Debug)]
pub(super) struct DomainState {
    /// Index of the domain in the domain tree.
    pub node: u32,
    /// Time of the last balance in nanoseconds; negative if before the start of the simulation.
    pub last: i64,
    /// Time in milliseconds between balances while the CPU is idle.
    pub interval_ms: u32,
    pub failed: u32,
    /// Generation of the domain at the last balance that found nothing to move.
    pub quiet_generation: u64,
    pub newidle: NewIdle,
}

/// Statistics of a newly idle CPU's searches in a domain (`update_newidle_stats`, kernel/sched/fair.c).
#[derive(Clone, Copy, Debug)]
pub(super) struct NewIdle {
    calls: u32,
    successes: u32,
    /// Probability that a search is made, in units of 1/1,024.
    pub ratio: u32,
    since: u64,
}

impl NewIdle {
    /// Creates statistics in which half of the searches succeeded. `ratio` is the initial probability of a search, in units of
    /// 1/1,024.
    pub(super) fn new(ratio: u32) -> Self {
        Self {
            calls: 512,
            successes: 256,
            ratio,
            since: 0,
        }
    }

    /// Counts a search, made or skipped, and its successes. `by_rate` raises the probability of searches that are rare.
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
    /// Index of the thread that was last reported to the engine as running.
    pub shown: u32,
    pub waiting: VecDeque<WaitingThread>,
    /// Number of runnable threads: waiting and running, but not delayed.
    pub runnable: u32,
    /// Sum of the weights of the waiting entities.
    pub weight: i64,
    /// Sum of weight x (virtual time - `zero`) of the waiting entities.
    pub weighted_vruntime: i64,
    /// Origin of virtual times, which keeps products small. Follows the average V (EEVDF) or is the monotonic minimum (CFS).
    pub zero: i64,
    /// Number of waiting or running entities whose time slice was set by the user.
    pub custom_slices: u32,
    pub avg: Avg,
    /// Sum of the estimated utilisation of the queued threads.
    pub util_est: f64,
    /// Sum of the weights of all queued threads, including the running thread.
    pub total_weight: f64,
    pub capacity: u32,
    /// Capacity at the CPU's current frequency.
    speed: u32,
    /// Wall-clock and PELT time, in nanoseconds, when the CPU last stopped being idle or changed its frequency.
    busy_since: (u64, u64),
    /// True if no thread runs or is queued, and the search for threads to pull is over.
    pub idle: bool,
    pub need_resched: bool,
    /// True if a woken thread preempts the running thread at the next tick (lazy preemption).
    pub lazy_resched: bool,
    /// Time of the next disturbance in nanoseconds.
    pub disturbed_at: u64,
    /// True if a disturbance has just occurred.
    pub disturbed: bool,
    /// Time at which the CPU last became idle; `None` after the next wake-up.
    pub idle_since: Option<u64>,
    /// Time at which the CPU last became idle; forks prefer the CPU that became idle last.
    pub idle_stamp: u64,
    pub average_idle: u64,
    /// Load of the running thread if the thread does not fit this CPU; zero otherwise.
    pub misfit_load: f64,
    /// Index of the thread that ran or joined the queue most recently; `NONE` if the queue is empty.
    pub newest: u32,
    /// Index of the thread that ran or joined the queue least recently; `NONE` if the queue is empty.
    pub oldest: u32,
    pub domains: Vec<DomainState>,
    /// Offset of the CPU's tick from the machine's tick, in nanoseconds.
    pub tick_offset: u64,
    /// True if the CPU's timer must be set again.
    pub touched: bool,
    /// True if a control group has just been throttled on this CPU.
    pub throttles: bool,
    pub balancing: bool,
    /// Time of the CPU's next periodic balance while it is busy; valid only if `balancing`.
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
            throttles: false,
            balancing: false,
            balance_at: 0,
        }
    }

    /// Returns the sum of weight x (virtual time - `zero`) and the sum of weights, both including the running entity `curr`.
    fn sums(&self, curr: Option<&TaskEntity>) -> (i64, i64) {
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

    /// Returns the weighted average virtual time V, rounded down; `zero` if no entity is queued.
    pub(super) fn average_vruntime(&self, curr: Option<&TaskEntity>) -> i64 {
        let (sum, weight) = self.sums(curr);
        if weight == 0 {
            self.zero
        } else {
            self.zero + sum.div_euclid(weight)
        }
    }

    /// True if an entity with virtual time `vruntime` has received no more than its share (`entity_eligible`).
    pub(super) fn eligible(&self, curr: Option<&TaskEntity>, vruntime: i64) -> bool {
        let (sum, weight) = self.sums(curr);
        sum >= (vruntime - self.zero) * weight
    }

    /// Moves the origin of virtual times to `zero`.
    pub(super) fn rebase(&mut self, zero: i64) {
        self.weighted_vruntime -= self.weight * (zero - self.zero);
        self.zero = zero;
    }

    pub(super) fn insert(&mut self, entry: WaitingThread) {
        let at = self.waiting.partition_point(|w| w.key <= entry.key);
        self.waiting.insert(at, entry);
        self.weight += i64::from(entry.weight);
        self.weighted_vruntime += i64::from(entry.weight) * (entry.vruntime - self.zero);
    }

    /// Removes a waiting thread from the queue; `key` is the sort key with which it was inserted.
    pub(super) fn remove(&mut self, thread: u32, key: i64) {
        let first = self.waiting.partition_point(|w| w.key < key);
        let found = (first..self.waiting.len()).find(|i| self.waiting[*i].thread == thread);
        debug_assert!(found.is_some(), "thread {thread} is not queued under {key}");
        if let Some(entry) = found.and_then(|i| self.waiting.remove(i)) {
            self.weight -= i64::from(entry.weight);
            self.weighted_vruntime -= i64::from(entry.weight) * (entry.vruntime - self.zero);
        }
    }

    /// Returns the time of the PELT clock, which runs more slowly on a small busy CPU and equals wall-clock time on an idle CPU.
    /// A thread's utilisation thus means the same on every CPU.
    pub(super) fn pelt_clock(&self, now: u64) -> u64 {
        if self.idle {
            return now;
        }
        let (wall, pelt) = self.busy_since;
        pelt + ((now.saturating_sub(wall) * u64::from(self.speed)) >> 10)
    }

    /// Sets the CPU's current frequency, as the fraction `clock` of its core type's `freq_ghz`.
    pub(super) fn set_clock(&mut self, clock: f64, now: u64) {
        let pelt = self.pelt_clock(now);
        if !self.idle {
            self.busy_since = (now, pelt);
        }
        self.speed = (f64::from(self.capacity) * clock.min(1.0)).round() as u32;
    }

    /// Restarts the PELT clock at wall-clock time when the CPU stops being idle.
    pub(super) fn wake_clock(&mut self, now: u64) {
        self.busy_since = (now, now);
    }

    fn rate(&self) -> PeltRate {
        PeltRate {
            load: self.total_weight,
            runnable: FULL * f64::from(self.runnable),
            util: if self.curr == NONE { 0.0 } else { FULL },
        }
    }

    /// Updates the queue's load averages to time `now`; must be called before the queue changes.
    pub(super) fn update_avg(&mut self, now: u64) {
        let clock = self.pelt_clock(now);
        let rate = self.rate();
        self.avg.update(clock, rate);
    }

    /// Returns the load averages of the queue at time `now`.
    pub(super) fn avg_at(&self, now: u64) -> Avg {
        self.avg.at(self.pelt_clock(now), self.rate())
    }

    /// Returns the CPU's utilisation: the larger of average and estimate, at most the CPU's capacity (`cpu_util_cfs`).
    pub(super) fn util(&self, now: u64) -> f64 {
        self.avg_at(now)
            .util
            .max(self.util_est)
            .min(f64::from(self.capacity))
    }
}
