//! Per-entity load tracking: load, runnable and utilisation averages with geometric decay.
//!
//! Input: intervals during which an entity (or a run queue) was running, waiting or asleep. Output: its averages. Models
//! `___update_load_sum` (kernel/sched/pelt.c), and `post_init_entity_util_avg` and `util_est_update` (kernel/sched/fair.c). The
//! slower clock of small CPUs models `update_rq_clock_pelt` (kernel/sched/pelt.h). Between two changes the averages follow a
//! closed form, so that no event is needed per period. Left out: the kernel's rounding to whole periods of 1,024 x 1,024 ns.

/// Binary logarithm of the half-life in nanoseconds: the half-life is 32 periods of 2^20 ns.
const HALF_LIFE_SHIFT: u32 = 25;

/// Utilisation of a fully used CPU of the largest capacity.
pub(super) const FULL: f64 = 1024.0;

/// Returns the fraction of a contribution that remains after `delta` ns: `2^-(delta / 2^25)`.
///
/// A fixed polynomial is used instead of the platform's `exp2`, because results must not depend on the C library.
pub(super) fn decay(delta: u64) -> f64 {
    let halvings = delta >> HALF_LIFE_SHIFT;
    if halvings > 63 {
        return 0.0;
    }
    let fraction = (delta & ((1 << HALF_LIFE_SHIFT) - 1)) as f64 / f64::from(1 << HALF_LIFE_SHIFT);
    // exp(-x) for x in 0 .. ln 2: nine terms leave an error below 1e-8.
    let x = -fraction * std::f64::consts::LN_2;
    let x2 = x * x;
    let x4 = x * x * x * x;
    let low = (1.0 + x) + x2 * (0.5 + x * (1.0 / 6.0));
    let high = (1.0 / 24.0 + x * (1.0 / 120.0)) + x2 * (1.0 / 720.0 + x * (1.0 / 5040.0));
    (low + x4 * (high + x4 * (1.0 / 40320.0))) / (1_u64 << halvings) as f64
}

/// Returns the time in nanoseconds until an average that grows from `from` towards `FULL` reaches `to`; zero if it already has.
pub(super) fn time_to_reach(from: f64, to: f64) -> u64 {
    if from >= to {
        return 0;
    }
    if to >= FULL {
        return u64::MAX;
    }
    let halvings = ((FULL - from) / (FULL - to)).log2();
    (halvings * f64::from(1 << HALF_LIFE_SHIFT)).ceil() as u64
}

/// Contribution of an entity or a run queue to its averages in its present state.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PeltRate {
    /// Sum of the weights of the queued entities.
    pub load: f64,
    /// Number of runnable entities times 1,024.
    pub runnable: f64,
    /// 1,024 while a thread runs, otherwise zero.
    pub util: f64,
}

/// Load averages, valid at time `last` of their CPU's PELT clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Avg {
    pub load: f64,
    pub runnable: f64,
    /// Average utilisation; 1,024 is full use of the largest CPU.
    pub util: f64,
    /// PELT time of the last update, in nanoseconds.
    pub last: u64,
}

impl Avg {
    /// Advances the averages to time `clock`, given the constant contribution `rate` since the last update.
    pub(super) fn update(&mut self, clock: u64, rate: PeltRate) {
        let delta = clock.saturating_sub(self.last);
        if delta == 0 {
            return;
        }
        let kept = decay(delta);
        self.load = rate.load + (self.load - rate.load) * kept;
        self.runnable = rate.runnable + (self.runnable - rate.runnable) * kept;
        self.util = rate.util + (self.util - rate.util) * kept;
        self.last = clock;
    }

    /// Returns the averages at time `clock`, given the constant contribution `rate`, without changing `self`.
    pub(super) fn at(&self, clock: u64, rate: PeltRate) -> Self {
        let mut later = *self;
        later.update(clock, rate);
        later
    }

    /// Adds the averages of an entity that joins a run queue (attach).
    pub(super) fn add(&mut self, other: &Self) {
        self.load += other.load;
        self.runnable += other.runnable;
        self.util += other.util;
    }

    /// Subtracts the averages of an entity that leaves a run queue (detach). Rounding cannot make the results negative.
    pub(super) fn sub(&mut self, other: &Self) {
        self.load = (self.load - other.load).max(0.0);
        self.runnable = (self.runnable - other.runnable).max(0.0);
        self.util = (self.util - other.util).max(0.0);
    }
}

/// Returns the initial utilisation of a new thread: its share of the queue's utilisation by weight, at most half of the CPU's
/// spare capacity.
pub(super) fn initial_util(capacity: f64, rq: &Avg, weight: f64) -> f64 {
    // `post_init_entity_util_avg` (kernel/sched/fair.c) limits the utilisation to half of the spare capacity.
    let cap = (capacity - rq.util) / 2.0;
    if cap <= 0.0 {
        0.0
    } else if rq.util > 0.0 {
        (rq.util * weight / (rq.load + 1.0)).min(cap)
    } else {
        cap
    }
}

/// Returns a thread's new utilisation estimate after an activation. The estimate rises to a higher utilisation at once, and falls
/// by a quarter of the difference to a lower one.
pub(super) fn estimate(previous: f64, util: f64, runnable: f64, capacity: f64) -> f64 {
    const MARGIN: f64 = FULL / 100.0;
    if previous <= util {
        return util;
    }
    // The old estimate is kept for small differences, and if waiting or a CPU that is too small distorts the measured
    // utilisation.
    let keep = previous - util < MARGIN || util > capacity || util + MARGIN < runnable;
    if keep {
        previous
    } else {
        previous - (previous - util) / 4.0
    }
}

/// True if `util` is below 80 % of the capacity (`fits_capacity`).
pub(super) fn fits(util: f64, capacity: f64) -> bool {
    util * 1280.0 < capacity * FULL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decay_halves_every_32_periods() {
        for (delta, expected) in [
            (0, 1.0),
            (1 << 25, 0.5),
            (1 << 24, 0.5_f64.sqrt()),
            (3 << 25, 0.125),
            (u64::MAX, 0.0),
        ] {
            assert!((decay(delta) - expected).abs() < 1e-7, "{delta}");
        }
        let exact = |d: u64| (-(d as f64) / f64::from(1 << 25)).exp2();
        assert!((0..1000).all(|i| (decay(i * 99_991) - exact(i * 99_991)).abs() < 1e-7));
    }

    #[test]
    fn two_short_updates_equal_a_long_one() {
        let rate = PeltRate {
            load: 335.0,
            runnable: 1024.0,
            util: 1024.0,
        };
        let mut a = Avg::default();
        let mut b = Avg::default();
        a.update(3_000_000, rate);
        a.update(9_000_000, rate);
        b.update(9_000_000, rate);
        assert!((a.util - b.util).abs() < 1e-6 && (a.load - b.load).abs() < 1e-6);
    }

    #[test]
    fn the_time_to_reach_a_utilisation_is_exact() {
        let running = PeltRate {
            load: 0.0,
            runnable: 0.0,
            util: FULL,
        };
        let at = time_to_reach(100.0, 700.0);
        let avg = Avg {
            util: 100.0,
            ..Avg::default()
        };
        assert!((avg.at(at, running).util - 700.0).abs() < 0.01);
        assert_eq!(time_to_reach(500.0, 400.0), 0);
        assert_eq!(time_to_reach(500.0, 1024.0), u64::MAX);
    }

    #[test]
    fn a_new_thread_on_an_idle_cpu_starts_at_half_its_capacity() {
        assert!((initial_util(446.0, &Avg::default(), 1024.0) - 223.0).abs() < 1e-9);
        let busy = Avg {
            load: 1024.0,
            runnable: 1024.0,
            util: 1000.0,
            last: 0,
        };
        assert!((initial_util(1024.0, &busy, 1024.0) - 12.0).abs() < 1e-9);
    }

    #[test]
    fn estimates_rise_at_once_and_fall_slowly() {
        assert!((estimate(100.0, 300.0, 300.0, 1024.0) - 300.0).abs() < 1e-9);
        assert!((estimate(300.0, 100.0, 100.0, 1024.0) - 250.0).abs() < 1e-9);
        assert!((estimate(300.0, 100.0, 500.0, 1024.0) - 300.0).abs() < 1e-9);
    }
}
