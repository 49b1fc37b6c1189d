//! Estimates of a thread's behaviour from its counters.
//!
//! Input: per interval, time per instruction, misses and occupancy, with the place where the thread ran. Output: a [`PredictedThread`],
//! the input of predictions. Time per instruction has a core part and a part that waits for caches and memory:
//! `time = base(kind of core) + exposed * waiting`. `waiting` is the latency of the misses, at memory's load. `exposed` comes from
//! the dependence of time on waiting on one kind of core (ridge regression around a typical value).
//!
//! Bases of different kinds of core rise and fall together when the thread's phase changes. Each is a level of the thread times
//! a ratio of the kind; ratios are learnt just after moves. A kind without measurements takes its ratio from the speed-up
//! factor that counters predict.

use countersteer_model::units::GroupId;

use super::curve::{CurveSums, ThreadCurve};
use super::places::{CoreKind, MachinePlaces};

/// Part of the misses in a window that are independent of each other, for a typical thread.
const INDEPENDENT: f64 = 0.5;
/// Upper bound on the exposed part of latencies without measurements.
const MOST_EXPOSED: f64 = 0.8;
/// Part of latencies on the chip that counts.
const ON_CHIP: f64 = 0.5;
/// Weight of the plausible value, as the square of the waiting (relative to the time) that it counts for.
const FIRM: f64 = 0.1;
/// Factor on the reluctance to move again per interval: half in 14 s at 100 ms.
const CALM: f64 = 0.995;
/// Intervals after which a kind is known.
const KNOWN: f64 = 5.0;
/// Limit on the distance of measurements from the counters' prediction (natural logarithm); phases fall between measurements.
const TRUST: f64 = 0.4;
/// Lower bound on the part of a thread's energy that is proportional to its instructions.
const LEAST_NJ: f64 = 0.1;
/// Value of [`TRUST`] if counters predict nothing: factors are at most 7.
const NO_FACTOR: f64 = 1.95;
/// Factor on the sums of the regression per interval.
const KEPT: f64 = 0.98;
/// Intervals after a move whose deviation counts for the kind of core, not for the thread.
const FRESH: u32 = 4;
/// Part of a deviation that the level follows per interval.
const FOLLOW: f64 = 0.25;
/// Lower bound on the core part of the time.
const CORE_PART: f64 = 0.25;
/// Change of the level (natural logarithm) that means another phase: old points of the curve decay.
const PHASE: f64 = 0.25;
/// Factor on their weights.
const AFTER_PHASE: f64 = 0.3;

/// Measurements of a thread in an interval that it spent in one place.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlacedInterval {
    pub kind: usize,
    /// Instructions per ns of running.
    pub ips: f64,
    /// Misses and references of the last-level cache, and misses of the private ones, per instruction.
    pub llc_misses: f64,
    pub llc_references: f64,
    pub near_misses: Option<f64>,
    /// Lines in the last-level cache.
    pub lines: Option<f64>,
    /// Predicted lines in the cache before that, if it is shared too.
    pub inner_lines: Option<f64>,
    /// True if the last-level cache had room to spare.
    pub roomy: bool,
    /// CPU time, in s.
    pub ran_s: f64,
    /// Factor on memory latency by load.
    pub factor: f64,
    /// Factor on the core part by SMT siblings.
    pub crowding: f64,
    /// Speed-up factor that counters predict, fastest over slowest kind.
    pub sf: Option<f64>,
    pub nj_per_instruction: Option<f64>,
    /// Threads that share the core at a time, itself included.
    pub sharers: f64,
}

/// Measurements of a thread on a kind of core.
#[derive(Clone, Copy, Debug, Default)]
struct KindMeasurements {
    /// Number of intervals, decaying.
    count: f64,
    /// Logarithm of the base over the thread's level.
    ratio: f64,
    /// Intervals since the last move to this kind.
    fresh: u32,
    /// Decaying sums of the regression: weight, waiting, time, their products.
    sums: [f64; 5],
    /// Energy per instruction in nJ, without the core's constant power.
    nj: Option<f64>,
}

/// Estimate of a thread.
#[derive(Clone, Debug)]
pub(super) struct ThreadEstimate {
    pub seen: u32,
    /// Group of the last placement, and number of placements without effect.
    pub placed: GroupId,
    pub tries: u8,
    kinds: Vec<KindMeasurements>,
    level: f64,
    here: usize,
    points: CurveSums,
    sf: Option<f64>,
    exposed: f64,
    /// Exponential mean of the plausible exposed part.
    plausible: f64,
    /// Number of moves, decaying.
    pub restless: f64,
    /// Instructions per ns while running, exponential mean.
    pub speed: f64,
    /// Lines per ns to and from memory in the last interval.
    pub traffic: f64,
    /// Sum and number of speeds since the last search.
    window: (f64, f64),
    /// Instructions per ns alone on the fastest kind, as last predicted.
    alone: Option<f64>,
    /// Work done, in seconds alone on the fastest kind.
    pub progress: f64,
}

/// Thread as input of predictions.
#[derive(Clone, Debug)]
pub(super) struct PredictedThread {
    /// Core part of the time per instruction, in ns, by kind.
    pub base: Vec<f64>,
    pub exposed: f64,
    pub curve: ThreadCurve,
    /// Instructions per ns alone on the fastest kind.
    pub alone: f64,
    /// Instructions per ns of running, measured at its present place.
    pub seen: f64,
    /// Weight in the objective.
    pub weight: f64,
    /// Energy per instruction, in nJ, by kind, without the core's constant power.
    pub nj: Vec<f64>,
}

impl ThreadEstimate {
    pub fn new(kinds: usize) -> Self {
        Self {
            seen: 0,
            placed: GroupId(0),
            tries: 0,
            kinds: vec![KindMeasurements::default(); kinds],
            level: 0.0,
            here: usize::MAX,
            points: CurveSums::default(),
            sf: None,
            exposed: MOST_EXPOSED,
            plausible: MOST_EXPOSED,
            restless: 0.0,
            speed: 0.0,
            traffic: 0.0,
            window: (0.0, 0.0),
            alone: None,
            progress: 0.0,
        }
    }

    /// True if it ran on this kind long enough to be known there.
    pub fn knows(&self, kind: usize) -> bool {
        self.kinds[kind].count >= KNOWN
    }

    /// Lets its reluctance to move decay.
    pub fn calm(&mut self) {
        self.restless *= CALM;
    }

    /// Adds an interval.
    pub fn note(&mut self, seen: &PlacedInterval, places: &MachinePlaces) {
        let kind = &places.kinds[seen.kind];
        let time = 1.0 / seen.ips;
        if !(time.is_finite() && time > 0.0) {
            return;
        }
        self.seen += 1;
        self.sf = seen.sf.or(self.sf);
        self.speed = if self.seen == 1 {
            seen.ips
        } else {
            self.speed + 0.2 * (seen.ips - self.speed)
        };
        self.progress += seen.ran_s * seen.ips / self.alone.unwrap_or(seen.ips);
        self.window = (self.window.0 + seen.ips, self.window.1 + 1.0);
        self.points.age();
        if let Some(lines) = seen.lines {
            self.points.note(lines, seen.llc_misses, 1.0);
            if seen.roomy {
                self.points.room_to_spare(lines);
            } else {
                self.points.squeezed(lines);
            }
        }
        if let Some(near) = seen.near_misses {
            self.points
                .note(kind.private_lines, near.max(seen.llc_misses), 0.5);
        }
        if let Some(lines) = seen.inner_lines {
            self.points
                .note(lines, seen.llc_references.max(seen.llc_misses), 0.5);
        }
        let waiting = waiting(kind, seen);
        let plausible = plausible(kind, seen, waiting, time);
        self.plausible += if self.seen == 1 { 1.0 } else { 0.1 } * (plausible - self.plausible);
        self.learn(seen.kind, waiting, time);
        self.exposed = self
            .exposed
            .min(time * (1.0 - CORE_PART) / waiting.max(1e-9));
        let stalled = (self.exposed * waiting).min(time * (1.0 - CORE_PART));
        self.settle(seen.kind, ((time - stalled) / seen.crowding).ln(), kind);
        if let Some(nj) = seen.nj_per_instruction {
            let active = kind.active_w / (seen.ips * seen.sharers);
            let nj = (nj - active).max(LEAST_NJ * nj);
            let known = &mut self.kinds[seen.kind].nj;
            *known = Some(known.map_or(nj, |old| old + 0.2 * (nj - old)));
        }
    }

    /// Learns the dependence of time on waiting, from deviations on each kind of core, over all kinds.
    fn learn(&mut self, kind: usize, waiting: f64, time: f64) {
        // Relative to the first time, so that fast and slow threads have equal weight.
        let known = &mut self.kinds[kind];
        let add = [1.0, waiting, time, waiting * waiting, waiting * time];
        for (sum, add) in known.sums.iter_mut().zip(add) {
            *sum = *sum * KEPT + add;
        }
        let (mut covariance, mut variance, mut scale) = (0.0, 0.0, 0.0);
        for known in &self.kinds {
            let [w, x, y, xx, xy] = known.sums;
            if w > 0.0 {
                covariance += xy - x * y / w;
                variance += xx - x * x / w;
                scale += y * y / w;
            }
        }
        let firm = FIRM * scale;
        self.exposed = ((covariance + self.plausible * firm) / (variance + firm)).clamp(0.005, 1.2);
    }

    /// Splits a deviation of the core part between the thread's level and the kind's ratio.
    fn settle(&mut self, kind: usize, base: f64, place: &CoreKind) {
        if self.here != kind {
            self.here = kind;
            self.kinds[kind].fresh = 0;
        }
        let first = self.seen == 1;
        let guess = self.guess(place.between);
        let trust = self.sf.map_or(NO_FACTOR, |_| TRUST);
        let known = &mut self.kinds[kind];
        known.fresh += 1;
        let (fresh, count) = (known.fresh, known.count);
        known.count = known.count * 0.99 + 1.0;
        if first {
            (self.level, known.ratio) = (base - guess, guess);
            return;
        }
        let deviation = base - self.level - known.ratio;
        if fresh <= FRESH {
            let gain = if count < 0.5 {
                1.0
            } else {
                (1.0 / (1.0 + count)).max(0.15)
            };
            known.ratio = (known.ratio + gain * deviation).clamp(guess - trust, guess + trust);
        } else {
            self.level += FOLLOW * deviation;
            if deviation.abs() > PHASE {
                self.points.fade(AFTER_PHASE);
            }
        }
    }

    /// Logarithm of the base on a kind over that on the slowest, from the speed-up factor.
    fn guess(&self, between: f64) -> f64 {
        -between * self.sf.unwrap_or(1.0).clamp(0.5, 7.0).ln()
    }

    fn base(&self, kind: usize, places: &MachinePlaces) -> f64 {
        let ratio = if self.kinds[kind].count > 0.0 {
            self.kinds[kind].ratio
        } else {
            // Relative to the best known kind.
            let best = (0..self.kinds.len())
                .max_by(|a, b| self.kinds[*a].count.total_cmp(&self.kinds[*b].count));
            let best = best.unwrap_or(0);
            let [there, from] = [kind, best].map(|row| self.guess(places.kinds[row].between));
            self.kinds[best].ratio + there - from
        };
        (self.level + ratio).exp()
    }

    /// Mean speed since the last call; `None` without samples.
    pub fn lately(&mut self) -> Option<f64> {
        let (sum, count) = std::mem::take(&mut self.window);
        (count > 0.0).then_some(sum / count)
    }

    /// Thread as input of predictions. `None` without measurements, or if it lacks a kind of core and counters predict no
    /// speed-up factor.
    pub fn subject(&mut self, places: &MachinePlaces, weight: f64) -> Option<PredictedThread> {
        let is_known = self.sf.is_some() || self.kinds.iter().all(|k| k.count > 0.0);
        (self.seen > 0 && is_known).then_some(())?;
        let base: Vec<f64> = (0..places.kinds.len())
            .map(|kind| self.base(kind, places))
            .collect();
        let curve = self.points.curve();
        let fastest = places.kinds.first()?;
        let mut alone = base[0];
        let sizes = std::iter::once(&fastest.private_lines).chain(&fastest.lines);
        for (level, lines) in sizes.enumerate() {
            alone += self.exposed * curve.at(*lines) * fastest.step(level);
        }
        self.alone = Some(1.0 / alone);
        Some(PredictedThread {
            exposed: self.exposed,
            curve,
            alone: 1.0 / alone,
            seen: self.speed,
            weight,
            nj: self.energies(places),
            base,
        })
    }

    /// Measured energy per instruction on a kind, in nJ.
    pub fn nj(&self, kind: usize) -> Option<f64> {
        self.kinds[kind].nj
    }

    /// Energy per instruction by kind, in nJ: measured, or scaled from another kind by the machine file's figures.
    fn energies(&self, places: &MachinePlaces) -> Vec<f64> {
        let figure = |kind: usize| places.kinds[kind].instruction_nj;
        let from = (0..self.kinds.len())
            .find_map(|k| self.kinds[k].nj.map(|nj| nj / figure(k).max(1e-12)));
        let scaled = |kind: usize| figure(kind) * from.unwrap_or(1.0);
        (0..self.kinds.len())
            .map(|k| self.kinds[k].nj.unwrap_or_else(|| scaled(k)))
            .collect()
    }

    /// Values on which decisions are based.
    pub fn why(&self) -> [(&'static str, f64); 2] {
        [
            ("exposed part of latencies", self.exposed),
            ("intervals seen", f64::from(self.seen)),
        ]
    }
}

impl CoreKind {
    /// Additional time, in ns, of a request that goes on to this level of the chain, memory last. Most of the latency on the
    /// chip is hidden.
    pub fn step(&self, level: usize) -> f64 {
        let before = level.checked_sub(1).map_or(0.0, |l| self.latency_ns[l]);
        let more = (self.latency_ns[level] - before).max(0.0);
        if level + 1 == self.latency_ns.len() {
            more
        } else {
            ON_CHIP * more
        }
    }
}

/// Time per instruction, in ns, that the requests would take without overlap, memory's load included.
fn waiting(kind: &CoreKind, seen: &PlacedInterval) -> f64 {
    let memory = kind.lines.len();
    let near = seen
        .near_misses
        .unwrap_or(seen.llc_references)
        .max(seen.llc_references);
    let mut waiting = seen.llc_misses * kind.step(memory) * seen.factor;
    for level in 0..memory {
        waiting += kind.step(level)
            * if level == 0 {
                near
            } else {
                seen.llc_references
            };
    }
    waiting
}

/// Plausible exposed part for a thread with this time per instruction. Misses in one window overlap, unless the time is too
/// long for a typical core part.
fn plausible(kind: &CoreKind, seen: &PlacedInterval, waiting: f64, time: f64) -> f64 {
    let overlapping =
        1.0 / (1.0 + INDEPENDENT * seen.llc_misses.max(0.1 * seen.llc_references) * kind.window);
    let typical = 1.0 / (kind.ghz * kind.width.sqrt());
    ((time - typical) / waiting.max(1e-9)).clamp(overlapping, MOST_EXPOSED.max(overlapping))
}
