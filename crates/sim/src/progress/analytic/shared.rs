//! Occupancy of a shared cache by threads.
//!
//! Input: the speed and the insertion rate of each thread. Output: the number of lines that each thread holds.
//!
//! An LRU cache holds the lines touched within its eviction age T, which is equal for all threads that share it. A thread
//! therefore holds its footprint over its run time within T. T is the age at which the footprints fill the cache: footprint
//! composition (Xiang, Ding, Luo and Bao: HOTL, ASPLOS 2013). This gives the occupancies in equilibrium, including those of
//! threads that do not run. The youngest line of such a thread is as old as the time since the thread stopped.
//!
//! A thread below its target gains the lines that it inserts, since they are the youngest. In a full cache, threads above their
//! targets lose lines in proportion to their excess, since only they hold lines older than T. Cold starts after a migration,
//! survival of lines over a context switch, and decay while other threads run thus need no separate rules.
//!
//! Threads of a program may share lines. A thread's lines are then all that it finds in the cache, and only a part of them counts for
//! it ([`super::sharing`]).

use countersteer_model::corun::{EvictionAge, ran_within};

use super::class::NONE;
use super::table::RateTable;

/// Maximum eviction age in nanoseconds, which stands for a cache without pressure.
const AGE_MAX: f64 = 1e12;
/// Search for eviction ages in nanoseconds.
const AGE: EvictionAge = EvictionAge {
    range: (1e3, AGE_MAX),
    steps: 64,
    near: NEAR_FORECAST,
    apart: 1.0,
};
/// Threshold in steps: relative difference between the sum of footprints and the cache below which the search for the eviction
/// age ends. The rest is corrected linearly.
const NEAR_STEP: f64 = 0.25;
/// Threshold in forecasts: relative difference between the sum of footprints and the cache below which the search for the
/// eviction age ends. The rest is corrected linearly.
const NEAR_FORECAST: f64 = 1e-3;
/// Threshold: relative distance of an occupancy from its target below which the occupancy counts as settled.
const SETTLED: f64 = 1e-3;
/// Threshold: relative change of a thread's speed below which its target is kept.
const SPEED_SETTLED: f64 = 0.005;
/// Threshold: fraction of its target occupancy that a thread must lack to count as cold (together with `WORTH`).
const COLD: f64 = 0.2;
/// Threshold: fraction of the cache that a thread must lack to count as cold (together with `COLD`).
const WORTH: f64 = 0.01;
/// Threshold: fraction of the cache below which the lines of stopped threads are forgotten.
const NEGLIGIBLE: f64 = 1.0 / 4096.0;

/// Occupancy of a shared cache by one thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resident {
    /// Index of the thread; [`super::class::NONE`] after the thread was removed, when only its lines remain.
    pub thread: u32,
    pub table: u32,
    /// Index of this cache among the levels of the rate table.
    pub level: u8,
    /// True if the thread runs on one of the cache's CPUs.
    pub running: bool,
    pub lines: f64,
    /// Number of lines that the thread holds in equilibrium.
    pub target: f64,
    /// Predicted mean occupancy until the next step, for which the thread's rates are computed.
    pub mean: f64,
    /// Number of lines inserted since the last step, up to time `marked`.
    pub inserted: f64,
    /// Instructions per nanosecond while the thread runs.
    pub speed: f64,
    /// Lines inserted per nanosecond while the thread runs.
    pub inserting: f64,
    /// Time up to which `inserted` was counted, in nanoseconds.
    pub marked: f64,
    /// Time at which the thread started or stopped running here, in nanoseconds.
    pub since: f64,
    /// Length of the thread's last run interval in nanoseconds.
    pub burst: f64,
    /// Average fraction of the time during which the thread ran before its present or last run interval.
    pub duty: f64,
    /// Fraction of the time that this row represents. Forecasts have two rows for a thread that shares its CPU: running and
    /// stopped.
    pub weight: f64,
    /// Speed for which the target was computed.
    aimed: f64,
    /// Derivative of the target with respect to the eviction age, in lines per nanosecond.
    slope: f64,
    /// Index of the thread's copy of its program; [`NONE`] if the thread shares no lines.
    pub copy: u32,
    /// Part of the thread's lines that count for it. The others count for threads with which it shares them.
    pub charge: f64,
    pub(super) hint: u32,
    pub(super) common_hint: u32,
}

impl Resident {
    fn new(thread: u32) -> Self {
        Self {
            thread,
            table: 0,
            level: 0,
            running: false,
            lines: 0.0,
            target: 0.0,
            weight: 1.0,
            aimed: 0.0,
            slope: 0.0,
            mean: 0.0,
            inserted: 0.0,
            speed: 0.0,
            inserting: 0.0,
            marked: 0.0,
            since: 0.0,
            burst: 0.0,
            duty: 0.0,
            copy: NONE,
            charge: 1.0,
            hint: 0,
            common_hint: 0,
        }
    }

    /// Creates the rows of a thread that runs for the fraction `duty` of the time, in slices of `turn` ns.
    ///
    /// The rows describe the middle of a slice and the middle between two slices, at time 0.
    pub fn lasting(thread: u32, level: u8, duty: f64, turn: f64) -> [Self; 2] {
        let on = Self {
            level,
            duty,
            running: true,
            since: -0.5 * turn,
            weight: duty,
            ..Self::new(thread)
        };
        let away = turn * (1.0 / duty - 1.0);
        [
            on,
            Self {
                running: false,
                since: -0.5 * away,
                burst: turn,
                weight: 1.0 - duty,
                ..on
            },
        ]
    }

    /// Number of lines that count for the thread.
    pub fn counted(&self) -> f64 {
        self.charge * self.lines
    }

    /// Counts the lines inserted up to time `now`.
    #[inline]
    pub fn insert(&mut self, now: f64) {
        self.inserted += self.inserting * (now - self.marked);
        self.marked = now;
    }

    /// Starts a run interval in which no lines have been inserted yet.
    pub fn start(&mut self, now: f64) {
        self.running = true;
        (self.since, self.marked, self.inserting) = (now, now, 0.0);
        self.mean = self.lines;
    }

    /// True if the thread fills so fast that one mean occupancy for the `ahead` ns up to the next step would hide its cold start.
    #[inline]
    pub fn refills(&self, ahead: f64, capacity: f64) -> bool {
        let gap = self.target - self.lines;
        gap > COLD * self.target
            && gap > WORTH * capacity
            && self.inserting * ahead > 0.5 * gap * self.charge
    }

    /// Resets the counted insertions after a step in which no occupancy changed.
    fn restart(&mut self, now: f64) {
        (self.inserted, self.marked) = (0.0, now);
    }

    /// True if the thread's speed differs from the speed for which its target was computed.
    fn sped(&self) -> bool {
        (self.speed - self.aimed).abs() > SPEED_SETTLED * self.aimed
    }

    /// Returns the thread's run time within the last `age` ns, and its derivative with respect to `age`.
    #[inline]
    fn ran_within(&self, age: f64, now: f64) -> (f64, f64) {
        let past = now - self.since;
        let (whole, interval) = if self.running {
            (age, past)
        } else {
            (age - past, self.burst)
        };
        ran_within(whole, interval, self.duty)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct AnalyticCache {
    pub lines: f64,
    /// Occupancies by threads; each thread has at most one row.
    pub residents: Vec<Resident>,
    /// Eviction age at which the targets were last computed, in nanoseconds.
    age: f64,
    /// True if the targets must be computed again or occupancies have not settled; a change of speeds alone does not set this
    /// flag.
    moving: bool,
}

impl AnalyticCache {
    pub fn new(lines: f64) -> Self {
        Self {
            lines,
            residents: Vec::new(),
            age: AGE_MAX,
            moving: true,
        }
    }

    /// Scales all occupancies down until they fit the cache, and restarts the search for the eviction age.
    pub fn fit(&mut self) {
        let used: f64 = self.residents.iter().map(Resident::counted).sum();
        let kept = (self.lines / used.max(1e-9)).min(1.0);
        self.residents.iter_mut().for_each(|r| r.lines *= kept);
        (self.moving, self.age) = (true, AGE_MAX);
    }

    /// Returns the row of a thread, and checks row `hint` first; `None` if the thread has no row.
    #[inline]
    pub fn find(&self, thread: u32, hint: u32) -> Option<usize> {
        match self.residents.get(hint as usize) {
            Some(r) if r.thread == thread => Some(hint as usize),
            _ => self.residents.iter().position(|r| r.thread == thread),
        }
    }

    /// Returns the row of a thread, which is created if missing.
    pub fn enter(&mut self, thread: u32, hint: u32) -> usize {
        self.moving = true;
        self.find(thread, hint).unwrap_or_else(|| {
            self.residents.push(Resident::new(thread));
            self.residents.len() - 1
        })
    }

    /// Predicts the occupancy of a running thread that was switched in or changed its behaviour, for the `ahead` ns up to the
    /// next step.
    ///
    /// The prediction uses the present eviction age; the effect on other threads follows at the step. Returns the change of the
    /// thread's target as a fraction of the cache. The second value is the number of lines after which the thread's rates must be
    /// updated; `None` if the step comes first.
    pub fn turn(
        &mut self,
        tables: &[RateTable],
        row: usize,
        now: f64,
        ahead: f64,
    ) -> (f64, Option<f64>) {
        self.moving = true;
        let together = self.together(tables, row, self.age, now);
        let r = &mut self.residents[row];
        let (ran, _) = r.ran_within(self.age, now);
        let before = r.target;
        r.target = r.footprint(tables, ran * r.speed, 0.0, together).lines;
        r.insert(now);
        let gain = (r.inserted / r.charge).min((r.target - r.lines).max(0.0));
        r.lines += gain;
        r.inserted -= gain * r.charge;
        if gain > 0.0 {
            self.make_room(row);
        }
        let r = &mut self.residents[row];
        let gap = (r.target - r.lines).max(0.0);
        let part = r.refills(ahead, self.lines).then_some(0.5 * gap);
        r.mean =
            r.lines + part.map_or_else(|| rise(gap, r.inserting * ahead / r.charge), |p| 0.5 * p);
        ((r.target - before).abs() / self.lines, part)
    }

    /// Evicts the lines that a thread displaced by filling up between steps. Lines of stopped threads are the oldest and are
    /// evicted first, followed by the excess of other threads over their targets. The rest is evicted at the step.
    fn make_room(&mut self, except: usize) {
        let mut used = 0.0;
        let mut stopped = 0.0;
        let mut excess = 0.0;
        for (row, r) in self.residents.iter().enumerate() {
            used += r.counted();
            if !r.running {
                stopped += r.counted();
            } else if row != except {
                excess += r.charge * (r.lines - r.target).max(0.0);
            }
        }
        let over = used - self.lines;
        if over <= 0.0 {
            return;
        }
        let kept = (1.0 - over / f64::max(stopped, 1.0)).max(0.0);
        let part = ((over - stopped).max(0.0) / f64::max(excess, 1.0)).min(1.0);
        for (row, r) in self.residents.iter_mut().enumerate() {
            if !r.running {
                r.lines *= kept;
            } else if row != except {
                r.lines -= part * (r.lines - r.target).max(0.0);
            }
        }
    }

    /// Ends the run interval of the thread in row `row` at time `now`.
    pub fn stop(&mut self, row: usize, now: f64) {
        self.moving = true;
        let r = &mut self.residents[row];
        r.insert(now);
        (r.running, r.burst, r.since) = (false, now - r.since, now);
    }

    /// Moves lines according to the insertions since the last step and the present speeds, and predicts the mean occupancies of
    /// the next `ahead` ns.
    pub fn step(&mut self, tables: &[RateTable], now: f64, ahead: f64) {
        if !self.moving && !self.residents.iter().any(Resident::sped) {
            self.residents.iter_mut().for_each(|r| r.restart(now));
            return;
        }
        self.approach(tables, now, NEAR_STEP);
        self.flow(now);
        self.foresee(ahead);
        self.forget();
    }

    fn forget(&mut self) {
        let least = NEGLIGIBLE * self.lines;
        let mut i = 0;
        while i < self.residents.len() {
            let r = &self.residents[i];
            if !r.running && r.lines < least && r.target < least {
                self.residents.swap_remove(i);
            } else {
                i += 1;
            }
        }
    }

    /// Sets the targets of all threads by footprint composition, with the accuracy of forecasts.
    pub fn aim(&mut self, tables: &[RateTable], now: f64) {
        self.approach(tables, now, NEAR_FORECAST);
    }

    fn approach(&mut self, tables: &[RateTable], now: f64, near: f64) {
        let (lines, start) = (self.lines, self.age);
        let (mut tried, mut sum) = (start, 0.0);
        let search = EvictionAge { near, ..AGE };
        let found = search.of(lines, start, |age| {
            let (lines, slope) = self.footprints(tables, age, now);
            (tried, sum) = (age, lines);
            (lines, Some(slope))
        });
        // In a cache with room there is nothing to correct.
        if found != tried || sum > lines {
            self.correct(tried, found);
        }
        self.age = found;
    }

    /// Sets the targets for the eviction age `age`; returns the sum of all targets and its derivative.
    fn footprints(&mut self, tables: &[RateTable], age: f64, now: f64) -> (f64, f64) {
        let mut sum = 0.0;
        let mut slope = 0.0;
        for row in 0..self.residents.len() {
            let together = self.together(tables, row, age, now);
            let r = &mut self.residents[row];
            let (ran, part) = r.ran_within(age, now);
            let footprint = r.footprint(tables, ran * r.speed, r.speed * part, together);
            (r.target, r.aimed) = (footprint.lines, r.speed);
            r.slope = footprint.slope;
            sum += r.weight * r.charge * r.target;
            slope += r.weight * r.charge * r.slope;
        }
        (sum, slope)
    }

    /// Returns the instructions that all threads of a thread's copy in this cache ran for within `age` ns, and their derivative; `None`
    /// if the thread shares no lines with others.
    fn together(&self, tables: &[RateTable], row: usize, age: f64, now: f64) -> Option<(f64, f64)> {
        let own = &self.residents[row];
        if own.copy == NONE || tables[own.table as usize].sharing.shared == 0.0 {
            return None;
        }
        let of_copy = self.residents.iter().filter(|r| r.copy == own.copy);
        Some(of_copy.fold((0.0, 0.0), |(all, pace), r| {
            let (ran, part) = r.ran_within(age, now);
            (all + ran * r.speed, pace + r.speed * part)
        }))
    }

    /// Moves the targets along their slopes to the eviction age `to`, and scales them to fit the cache.
    fn correct(&mut self, from: f64, to: f64) {
        let mut sum = 0.0;
        for r in &mut self.residents {
            r.target = (r.target + r.slope * (to - from)).max(0.0);
            sum += r.weight * r.charge * r.target;
        }
        // Footprints are concave, so that targets moved along their slopes may exceed the cache slightly.
        if sum > self.lines {
            let scale = self.lines / sum;
            self.residents.iter_mut().for_each(|r| r.target *= scale);
        }
    }

    /// Adds inserted lines to threads below their targets. In a full cache, threads above their targets lose lines for this.
    fn flow(&mut self, now: f64) {
        let mut used = 0.0;
        let mut growth = 0.0;
        let mut excess = 0.0;
        for r in &mut self.residents {
            if r.running {
                r.insert(now);
            }
            used += r.counted();
            let gap = r.charge * (r.target - r.lines);
            growth += r.inserted.min(gap.max(0.0));
            excess += (-gap).max(0.0);
        }
        let part = self.evicted(used, growth, excess);
        for r in &mut self.residents {
            let gap = r.target - r.lines;
            r.lines += if gap > 0.0 {
                (r.inserted / r.charge).min(gap)
            } else {
                part * gap
            };
            r.inserted = 0.0;
        }
    }

    /// Predicts the mean occupancies of the next `ahead` ns for constant speeds and targets.
    fn foresee(&mut self, ahead: f64) {
        let mut used = 0.0;
        let mut growth = 0.0;
        let mut excess = 0.0;
        let least = NEGLIGIBLE * SETTLED * self.lines;
        self.moving = false;
        for r in &mut self.residents {
            let gap = r.target - r.lines;
            // Stopped threads still lose the lines that become older than the eviction age.
            self.moving |= gap.abs() > SETTLED * r.lines + least || !r.running;
            used += r.counted();
            excess += r.charge * (-gap).max(0.0);
            r.mean = r.lines;
            if gap > 0.0 && r.running {
                let mean = rise(gap, r.inserting * ahead / r.charge);
                r.mean += mean;
                growth += mean * r.charge;
            }
        }
        let part = self.evicted(used, growth, excess);
        for r in &mut self.residents {
            r.mean += part * (r.target - r.lines).min(0.0);
        }
    }

    /// Returns the fraction of `excess` lines that must be evicted when `growth` lines are added to `used` lines.
    fn evicted(&self, used: f64, growth: f64, excess: f64) -> f64 {
        // Threads that filled up between steps may have overfilled the cache.
        let evicted = (growth + used - self.lines).max(0.0);
        if excess > 0.0 {
            (evicted / excess).min(1.0)
        } else {
            0.0
        }
    }
}

/// Returns the mean over an interval of a value that grows linearly from 0 to `growth`, but at most to `gap`.
fn rise(gap: f64, growth: f64) -> f64 {
    if growth <= gap {
        0.5 * growth
    } else {
        gap * (1.0 - 0.5 * gap / growth)
    }
}
