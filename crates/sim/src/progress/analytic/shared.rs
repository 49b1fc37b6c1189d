//! Occupancy of a shared cache.
//!
//! Input: how fast each thread runs and inserts. Output: the lines each holds.
//!
//! An LRU cache holds the lines touched within its eviction age T, the same for all sharers. A thread's part is therefore
//! its footprint over the run time it had within T, and T is where the footprints fill the cache: footprint composition
//! (Xiang, Ding, Luo and Bao: HOTL, ASPLOS 2013). That gives the occupancies everything tends to, threads that are not
//! running included: nothing of what they touched is younger than the time since they stopped.
//!
//! How fast: a thread below its target gains what it inserts, since its lines are the youngest; in a full cache, those
//! above their targets pay for it in proportion to their excess, since only they hold lines older than T. So a cold start
//! after a migration, survival over a context switch and decay while others run need no rule of their own.

use super::table::Table;

/// Eviction ages beyond this count as no pressure at all (ns).
const AGE_MAX: f64 = 1e12;
const AGE_MIN: f64 = 1e3;
/// Footprints that miss the capacity by less than this part are corrected along their slopes: in steps, where the next one
/// refines the answer, and in forecasts.
const NEAR_STEP: f64 = 0.25;
const NEAR_FORECAST: f64 = 1e-3;
/// Part by which an occupancy may differ from its target and count as settled, and part by which a speed may change
/// without a new target.
const SETTLED: f64 = 1e-3;
const SPEED_SETTLED: f64 = 0.005;
/// A thread that lacks more than this part of its target is cold, if that is at least this part of the cache.
const COLD: f64 = 0.2;
const WORTH: f64 = 0.01;
/// Residents that stopped and hold less than this part of the cache are forgotten.
const NEGLIGIBLE: f64 = 1.0 / 4096.0;

/// A thread's part of a cache.
#[derive(Clone, Copy, Debug)]
pub struct Resident {
    /// The thread; [`super::class::NONE`] once it is gone and only its lines remain.
    pub thread: u32,
    pub table: u32,
    /// Which of the table's levels this cache is.
    pub level: u8,
    /// Whether it runs on one of the cache's CPUs.
    pub running: bool,
    pub lines: f64,
    /// Lines it tends to hold.
    pub target: f64,
    /// Mean of what it holds until the next step, as far as can be foreseen: what its rates are taken at.
    pub mean: f64,
    /// Lines inserted since the last step, up to `marked`.
    pub inserted: f64,
    /// Instructions and inserted lines per ns while running.
    pub speed: f64,
    pub inserting: f64,
    /// Up to when `inserted` counts (ns).
    pub marked: f64,
    /// When it started or stopped running here (ns).
    pub since: f64,
    /// Length of its last run interval (ns).
    pub burst: f64,
    /// Part of the time it used to run before that.
    pub duty: f64,
    /// Part of the time that this row stands for; forecasts have two rows for a thread that takes turns.
    pub weight: f64,
    /// Speed at which the target was set.
    aimed: f64,
    /// Lines of target per ns of eviction age.
    slope: f64,
    hint: u32,
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
            hint: 0,
        }
    }

    /// A thread that runs for the part `duty` of the time in turns of `turn` ns: as it is seen half-way through a turn, and
    /// half-way between two. For use at time 0.
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

    /// Counts insertions up to `now`.
    #[inline]
    pub fn insert(&mut self, now: f64) {
        self.inserted += self.inserting * (now - self.marked);
        self.marked = now;
    }

    /// The thread is switched in; it has inserted nothing yet.
    pub fn start(&mut self, now: f64) {
        self.running = true;
        (self.since, self.marked, self.inserting) = (now, now, 0.0);
        self.mean = self.lines;
    }

    /// Whether it fills up so fast that one mean for the `ahead` ns up to the next step would hide the cold part.
    #[inline]
    pub fn refills(&self, ahead: f64, capacity: f64) -> bool {
        let gap = self.target - self.lines;
        gap > COLD * self.target && gap > WORTH * capacity && self.inserting * ahead > 0.5 * gap
    }

    /// Forgets insertions of a step in which nothing moved.
    fn restart(&mut self, now: f64) {
        (self.inserted, self.marked) = (0.0, now);
    }

    /// Whether its speed is no longer that of its target.
    fn sped(&self) -> bool {
        (self.speed - self.aimed).abs() > SPEED_SETTLED * self.aimed
    }

    /// Run time within the last `age` ns, and its derivative.
    #[inline]
    fn ran_within(&self, age: f64, now: f64) -> (f64, f64) {
        let past = now - self.since;
        let (whole, interval) = if self.running {
            (age, past)
        } else {
            (age - past, self.burst)
        };
        if whole <= 0.0 {
            (0.0, 0.0)
        } else if whole < interval {
            (whole, 1.0)
        } else {
            (interval + self.duty * (whole - interval), self.duty)
        }
    }
}

#[derive(Clone, Debug)]
pub struct SharedCache {
    pub lines: f64,
    /// Occupancies; a thread has at most one row.
    pub residents: Vec<Resident>,
    /// Eviction age (ns) of the last solution.
    age: f64,
    /// Whether anything but speeds changed since the targets were set, or occupancies are on their way.
    moving: bool,
}

impl SharedCache {
    pub fn new(lines: f64) -> Self {
        Self {
            lines,
            residents: Vec::new(),
            age: AGE_MAX,
            moving: true,
        }
    }

    /// Takes what does not fit from all in proportion, and looks at everything anew.
    pub fn fit(&mut self) {
        let used: f64 = self.residents.iter().map(|r| r.lines).sum();
        let kept = (self.lines / used.max(1e-9)).min(1.0);
        self.residents.iter_mut().for_each(|r| r.lines *= kept);
        (self.moving, self.age) = (true, AGE_MAX);
    }

    /// The row of a thread, looked for at `hint` first.
    #[inline]
    pub fn find(&self, thread: u32, hint: u32) -> Option<usize> {
        match self.residents.get(hint as usize) {
            Some(r) if r.thread == thread => Some(hint as usize),
            _ => self.residents.iter().position(|r| r.thread == thread),
        }
    }

    /// The row of a thread, made if there is none.
    pub fn enter(&mut self, thread: u32, hint: u32) -> usize {
        self.moving = true;
        self.find(thread, hint).unwrap_or_else(|| {
            self.residents.push(Resident::new(thread));
            self.residents.len() - 1
        })
    }

    /// A running thread came or changed its behaviour: foresees its occupancy for the `ahead` ns up to the next step at the
    /// eviction age in force; only then its effect on the others is looked at. Returns the part of the cache that its target
    /// moved by, and the lines it is to gain before its rates are looked at again if that is sooner.
    pub fn turn(
        &mut self,
        tables: &[Table],
        row: usize,
        now: f64,
        ahead: f64,
    ) -> (f64, Option<f64>) {
        self.moving = true;
        let r = &mut self.residents[row];
        let (ran, _) = r.ran_within(self.age, now);
        let before = r.target;
        r.target = tables[r.table as usize].levels[r.level as usize]
            .filled(ran * r.speed, &mut r.hint)
            .0;
        r.insert(now);
        let gain = r.inserted.min((r.target - r.lines).max(0.0));
        r.lines += gain;
        r.inserted -= gain;
        if gain > 0.0 {
            self.make_room(row);
        }
        let r = &mut self.residents[row];
        let gap = (r.target - r.lines).max(0.0);
        let part = r.refills(ahead, self.lines).then_some(0.5 * gap);
        r.mean = r.lines + part.map_or_else(|| rise(gap, r.inserting * ahead), |p| 0.5 * p);
        ((r.target - before).abs() / self.lines, part)
    }

    /// Evicts what a thread that filled up between steps has displaced: lines of threads that stopped, which are the oldest,
    /// then what others hold above their targets; the rest has to wait for the step.
    fn make_room(&mut self, except: usize) {
        let mut used = 0.0;
        let mut stopped = 0.0;
        let mut excess = 0.0;
        for (row, r) in self.residents.iter().enumerate() {
            used += r.lines;
            if !r.running {
                stopped += r.lines;
            } else if row != except {
                excess += (r.lines - r.target).max(0.0);
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

    /// The thread of a row stops running.
    pub fn stop(&mut self, row: usize, now: f64) {
        self.moving = true;
        let r = &mut self.residents[row];
        r.insert(now);
        (r.running, r.burst, r.since) = (false, now - r.since, now);
    }

    /// Moves lines to where insertions since the last step and the current speeds drive them, and foresees how the next
    /// `ahead` ns will go.
    pub fn step(&mut self, tables: &[Table], now: f64, ahead: f64) {
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

    /// Sets the targets by footprint composition.
    pub fn aim(&mut self, tables: &[Table], now: f64) {
        self.approach(tables, now, NEAR_FORECAST);
    }

    fn approach(&mut self, tables: &[Table], now: f64, near: f64) {
        let mut low = AGE_MIN;
        let mut high = AGE_MAX;
        let mut age = self.age;
        for _ in 0..64 {
            let (sum, slope) = self.footprints(tables, age, now);
            let over = sum - self.lines;
            if over < 0.0 && age >= AGE_MAX {
                break;
            }
            if over > 0.0 {
                high = age
            } else {
                low = age
            }
            let newton = age - over / slope;
            let inside = newton > low && newton < high;
            if over.abs() <= near * self.lines && (inside || slope <= 0.0) || high - low < 1.0 {
                age = self.correct(age, if inside { newton } else { age });
                break;
            }
            // Where Newton's step points beyond the far end, the end is worth a try at once.
            let beyond = over < 0.0 && high >= AGE_MAX && (newton >= AGE_MAX || slope <= 0.0);
            age = if inside {
                newton
            } else if beyond {
                AGE_MAX
            } else {
                (low * high).sqrt()
            };
        }
        self.age = age;
    }

    /// Sets the targets for an eviction age; their sum and its derivative.
    fn footprints(&mut self, tables: &[Table], age: f64, now: f64) -> (f64, f64) {
        let mut sum = 0.0;
        let mut slope = 0.0;
        for r in &mut self.residents {
            let (ran, part) = r.ran_within(age, now);
            let level = &tables[r.table as usize].levels[r.level as usize];
            let (lines, per_instruction) = level.filled(ran * r.speed, &mut r.hint);
            (r.target, r.aimed) = (lines, r.speed);
            r.slope = per_instruction * r.speed * part;
            sum += r.weight * lines;
            slope += r.weight * r.slope;
        }
        (sum, slope)
    }

    /// Moves the targets along their slopes to another age, and makes them fit; returns that age.
    fn correct(&mut self, from: f64, to: f64) -> f64 {
        let mut sum = 0.0;
        for r in &mut self.residents {
            r.target = (r.target + r.slope * (to - from)).max(0.0);
            sum += r.weight * r.target;
        }
        // Footprints are concave, so what is left is an excess of second order.
        if sum > self.lines {
            let scale = self.lines / sum;
            self.residents.iter_mut().for_each(|r| r.target *= scale);
        }
        to
    }

    /// Lets those below their targets gain what they inserted, at the cost of those above.
    fn flow(&mut self, now: f64) {
        let mut used = 0.0;
        let mut growth = 0.0;
        let mut excess = 0.0;
        for r in &mut self.residents {
            if r.running {
                r.insert(now);
            }
            used += r.lines;
            let gap = r.target - r.lines;
            growth += r.inserted.min(gap.max(0.0));
            excess += (-gap).max(0.0);
        }
        let part = self.evicted(used, growth, excess);
        for r in &mut self.residents {
            let gap = r.target - r.lines;
            r.lines += if gap > 0.0 {
                r.inserted.min(gap)
            } else {
                part * gap
            };
            r.inserted = 0.0;
        }
    }

    /// Sets the mean occupancies of the next `ahead` ns if speeds and targets hold.
    fn foresee(&mut self, ahead: f64) {
        let mut used = 0.0;
        let mut growth = 0.0;
        let mut excess = 0.0;
        let least = NEGLIGIBLE * SETTLED * self.lines;
        self.moving = false;
        for r in &mut self.residents {
            let gap = r.target - r.lines;
            // Those that stopped go on losing what the window passes.
            self.moving |= gap.abs() > SETTLED * r.lines + least || !r.running;
            used += r.lines;
            excess += (-gap).max(0.0);
            r.mean = r.lines;
            if gap > 0.0 && r.running {
                let mean = rise(gap, r.inserting * ahead);
                r.mean += mean;
                growth += mean;
            }
        }
        let part = self.evicted(used, growth, excess);
        for r in &mut self.residents {
            r.mean += part * (r.target - r.lines).min(0.0);
        }
    }

    /// The part of `excess` that `growth` takes when `used` lines are taken already.
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

/// Mean over an interval of what grows evenly by `growth`, but no further than `gap`.
fn rise(gap: f64, growth: f64) -> f64 {
    if growth <= gap {
        0.5 * growth
    } else {
        gap * (1.0 - 0.5 * gap / growth)
    }
}
