//! Occupancy of a shared cache.
//!
//! Input: what each thread inserted since the last step, and how fast it runs. Output: the lines each holds.
//!
//! An LRU cache holds the lines touched within its eviction age T, the same for all sharers. A thread's part is therefore
//! its footprint over the run time it had within T, and T is where the footprints fill the cache: footprint composition
//! (Xiang, Ding, Luo and Bao: HOTL, ASPLOS 2013). That gives the occupancies everything tends to, threads that are not
//! running included: nothing of what they touched is younger than the time since they stopped.
//!
//! How fast: a thread below its target gains what it inserts, since its lines are the youngest; in a full cache, those
//! above their targets pay for it in proportion to their excess, since only they hold lines older than T. So a cold start
//! after a migration, survival over a context switch and decay while others run need no rule of their own.

use super::class::NONE;
use super::table::Table;

/// Eviction ages beyond this count as no pressure at all (ns).
const AGE_MAX: f64 = 1e12;
const AGE_MIN: f64 = 1e3;
/// Footprints within this part of the capacity count as filling it.
const FULL: f64 = 2e-3;
/// Residents that stopped and hold less than this part of the cache are forgotten.
const NEGLIGIBLE: f64 = 1.0 / 4096.0;

/// A thread's part of a cache.
#[derive(Clone, Copy, Debug)]
pub struct Resident {
    /// The thread; [`NONE`] once it is gone and only its lines remain.
    pub thread: u32,
    /// Its rate table.
    pub table: u32,
    /// Which of the table's levels this cache is.
    pub level: u8,
    /// Whether it runs on one of the cache's CPUs.
    pub running: bool,
    /// Lines held.
    pub lines: f64,
    /// Lines it tends to hold.
    pub target: f64,
    /// Lines inserted since the last step.
    pub inserted: f64,
    /// Instructions per ns while running.
    pub speed: f64,
    /// When it started or stopped running here (ns).
    pub since: f64,
    /// Length of its last stretch of running (ns).
    pub burst: f64,
    /// Part of the time it used to run before that.
    pub duty: f64,
    hint: u32,
}

impl Resident {
    fn new(thread: u32) -> Self {
        Self {
            thread,
            table: NONE,
            level: 0,
            running: false,
            lines: 0.0,
            target: 0.0,
            inserted: 0.0,
            speed: 0.0,
            since: 0.0,
            burst: 0.0,
            duty: 0.0,
            hint: 0,
        }
    }

    /// A thread that has run for the part `duty` of the time for ever.
    pub fn lasting(thread: u32, table: u32, level: u8, duty: f64) -> Self {
        Self { table, level, duty, running: true, ..Self::new(thread) }
    }

    /// Run time within the last `age` ns, and its derivative.
    #[inline]
    fn ran_within(&self, age: f64, now: f64) -> (f64, f64) {
        let past = now - self.since;
        let (whole, stretch) = if self.running { (age, past) } else { (age - past, self.burst) };
        if whole <= 0.0 {
            (0.0, 0.0)
        } else if whole < stretch {
            (whole, 1.0)
        } else {
            (stretch + self.duty * (whole - stretch), self.duty)
        }
    }
}

/// A shared cache.
#[derive(Clone, Debug)]
pub struct SharedCache {
    /// Capacity.
    pub lines: f64,
    /// Who holds what; a thread has at most one row.
    pub residents: Vec<Resident>,
    /// Eviction age (ns) of the last solution.
    age: f64,
}

impl SharedCache {
    /// An empty cache.
    pub fn new(lines: f64) -> Self {
        Self { lines, residents: Vec::new(), age: AGE_MAX }
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
        self.find(thread, hint).unwrap_or_else(|| {
            self.residents.push(Resident::new(thread));
            self.residents.len() - 1
        })
    }

    /// Moves lines to where insertions since the last step and the current speeds drive them.
    pub fn step(&mut self, tables: &[Table], now: f64) {
        self.aim(tables, now);
        self.flow();
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
        let (mut low, mut high) = (AGE_MIN, AGE_MAX);
        let mut age = self.age;
        for _ in 0..64 {
            let (sum, slope) = self.footprints(tables, age, now);
            let over = sum - self.lines;
            if over.abs() <= FULL * self.lines || (over < 0.0 && age >= AGE_MAX) || high - low < 1.0 {
                break;
            }
            if over > 0.0 { high = age } else { low = age }
            let newton = age - over / slope;
            age = if newton > low && newton < high { newton } else { (low * high).sqrt() };
            // The far end is worth a try once, when Newton's step points beyond it.
            if over < 0.0 && high >= AGE_MAX && (newton >= AGE_MAX || slope <= 0.0) {
                age = AGE_MAX;
            }
        }
        self.age = age;
        let sum: f64 = self.residents.iter().map(|r| r.target).sum();
        if sum > self.lines {
            let scale = self.lines / sum;
            self.residents.iter_mut().for_each(|r| r.target *= scale);
        }
    }

    /// Sets the targets for an eviction age; their sum and its derivative.
    fn footprints(&mut self, tables: &[Table], age: f64, now: f64) -> (f64, f64) {
        let (mut sum, mut slope) = (0.0, 0.0);
        for r in &mut self.residents {
            let (ran, part) = r.ran_within(age, now);
            let Some(level) = tables.get(r.table as usize).and_then(|t| t.levels.get(r.level as usize)) else { continue };
            let (lines, per_instruction) = level.filled(ran * r.speed, &mut r.hint);
            r.target = lines;
            sum += lines;
            slope += per_instruction * r.speed * part;
        }
        (sum, slope)
    }

    fn flow(&mut self) {
        let (mut used, mut growth, mut excess) = (0.0, 0.0, 0.0);
        for r in &self.residents {
            used += r.lines;
            growth += r.inserted.min((r.target - r.lines).max(0.0));
            excess += (r.lines - r.target).max(0.0);
        }
        let evicted = (growth - (self.lines - used).max(0.0)).max(0.0);
        let part = if excess > 0.0 { (evicted / excess).min(1.0) } else { 0.0 };
        for r in &mut self.residents {
            let gap = r.target - r.lines;
            r.lines += if gap > 0.0 { r.inserted.min(gap) } else { part * gap };
            r.inserted = 0.0;
        }
    }
}
