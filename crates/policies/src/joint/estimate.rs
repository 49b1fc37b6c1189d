//! Estimates: what is known of a thread from its counters.
//!
//! Input: per interval, time per instruction, misses and occupancy, with where the thread ran. Output: a [`Subject`], of which
//! predictions are made. Time per instruction is a part that the core decides and a part that waits for caches and memory:
//! `time = base(kind of core) + exposed * waiting`, where `waiting` is the latency of what was missed, at the load that memory
//! had. `exposed` comes from how time followed waiting on one kind of core (ridge regression around a typical value).
//!
//! Bases of different kinds of core go up and down together when the thread's phase changes: each is a level of the thread
//! times a ratio of the kind, and ratios are learnt just after moves. A kind that the thread was never on takes its ratio from
//! the speed-up factor that counters predict.

use countersteer_model::engine::ThreadInfo;
use countersteer_model::units::GroupId;

use super::curve::{Curve, Points};
use super::places::{Kind, Places};

/// Part of the misses in a window that do not depend on each other, for a typical thread.
const INDEPENDENT: f64 = 0.5;
/// Part of latencies that is exposed at most where nothing was learnt.
const MOST_EXPOSED: f64 = 0.8;
/// Part of latencies on the chip that counts.
const ON_CHIP: f64 = 0.5;
/// Weight of what is plausible, as the square of the waiting (relative to the time) that it is worth.
const FIRM: f64 = 0.1;
/// Share of the reluctance to move again that is left after an interval: half in 14 s at 100 ms.
const CALM: f64 = 0.995;
/// Intervals after which a kind is known.
const KNOWN: f64 = 5.0;
/// How far what was measured may be from what counters predict (natural logarithm): phases fall between measurements.
const TRUST: f64 = 0.4;
/// Least part of a thread's energy that goes with its instructions.
const LEAST_NJ: f64 = 0.1;
/// The same where counters predict nothing: factors are taken to be at most 7.
const NO_FACTOR: f64 = 1.95;
/// Share of what was learnt that is left after an interval.
const KEPT: f64 = 0.98;
/// Intervals after a move whose deviation is put down to the kind of core, not to the thread.
const FRESH: u32 = 4;
/// Part of a deviation that the level follows per interval.
const FOLLOW: f64 = 0.25;
/// Least part of the time that is the core's own.
const CORE_PART: f64 = 0.25;
/// A level that moves by this (natural logarithm) has begun another phase: old points of the curve fade.
const PHASE: f64 = 0.25;
/// What is left of them.
const AFTER_PHASE: f64 = 0.3;

/// What was seen of a thread in an interval that it spent in one place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub kind: usize,
    /// Instructions per ns of running.
    pub ips: f64,
    /// Misses of and references to the last-level cache, and misses of the private ones, per instruction.
    pub llc_misses: f64,
    pub llc_references: f64,
    pub near_misses: Option<f64>,
    /// Lines in the last-level cache.
    pub lines: Option<f64>,
    /// Lines in the cache before that, if it is shared too, as predicted.
    pub inner_lines: Option<f64>,
    /// The last-level cache had room to spare.
    pub roomy: bool,
    /// CPU time, in s.
    pub ran_s: f64,
    /// Factor on memory latency by load.
    pub factor: f64,
    /// Factor on the core's part by SMT siblings.
    pub crowding: f64,
    /// Speed-up factor that counters predict, fastest over slowest kind.
    pub sf: Option<f64>,
    pub nj_per_instruction: Option<f64>,
    /// Threads that share the core at a time, itself included.
    pub sharers: f64,
}

/// What is known of a thread on a kind of core.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Intervals seen, fading.
    count: f64,
    /// Logarithm of the base over the thread's level.
    ratio: f64,
    /// Intervals since the last move here.
    fresh: u32,
    /// Fading sums for the regression: weight, waiting, time, their products.
    sums: [f64; 5],
    /// Energy per instruction, without what the core draws whatever it runs.
    nj: Option<f64>,
}

/// A thread.
#[derive(Clone, Debug)]
pub(super) struct Estimate {
    pub seen: u32,
    /// Where it was last placed, and how often without effect.
    pub placed: GroupId,
    pub tries: u8,
    kinds: Vec<Known>,
    level: f64,
    here: usize,
    points: Points,
    sf: Option<f64>,
    exposed: f64,
    /// What is plausible, mean of late.
    plausible: f64,
    /// Part of the time it is runnable.
    pub duty: f64,
    /// Moves, fading.
    pub restless: f64,
    /// Instructions per ns while running: mean of late.
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

/// A thread as predictions take it.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    /// Core part of the time per instruction, in ns, by kind.
    pub base: Vec<f64>,
    pub exposed: f64,
    pub curve: Curve,
    /// Instructions per ns alone on the fastest kind.
    pub alone: f64,
    /// Instructions per ns of running, seen where it is.
    pub seen: f64,
    /// Weight in the objective.
    pub weight: f64,
    /// Energy per instruction, in nJ, by kind, without what a core draws whatever it runs.
    pub nj: Vec<f64>,
}

impl Estimate {
    pub fn new(kinds: usize) -> Self {
        Self {
            seen: 0,
            placed: GroupId(0),
            tries: 0,
            kinds: vec![Known::default(); kinds],
            level: 0.0,
            here: usize::MAX,
            points: Points::default(),
            sf: None,
            exposed: MOST_EXPOSED,
            plausible: MOST_EXPOSED,
            duty: 1.0,
            restless: 0.0,
            speed: 0.0,
            traffic: 0.0,
            window: (0.0, 0.0),
            alone: None,
            progress: 0.0,
        }
    }

    /// Whether it was on this kind long enough to be known there.
    pub fn knows(&self, kind: usize) -> bool {
        self.kinds[kind].count >= KNOWN
    }

    /// Counts whether it wanted a CPU.
    pub fn stirred(&mut self, info: &ThreadInfo, active: bool) {
        let wants = f64::from(u8::from(info.runnable || active));
        self.duty += 0.1 * (wants - self.duty);
        self.restless *= CALM;
    }

    /// Takes in an interval.
    pub fn note(&mut self, seen: &Seen, places: &Places) {
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

    /// How time follows waiting on one kind of core, over all kinds.
    fn learn(&mut self, kind: usize, waiting: f64, time: f64) {
        // Relative to the time seen first, so that fast and slow threads weigh alike.
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

    /// Splits a deviation of the core's part between the thread's level and the kind's ratio.
    fn settle(&mut self, kind: usize, base: f64, place: &Kind) {
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

    /// Logarithm of the base on a kind over that on the slowest, as the speed-up factor has it.
    fn guess(&self, between: f64) -> f64 {
        -between * self.sf.unwrap_or(1.0).clamp(0.5, 7.0).ln()
    }

    fn base(&self, kind: usize, places: &Places) -> f64 {
        let ratio = if self.kinds[kind].count > 0.0 {
            self.kinds[kind].ratio
        } else {
            // Relative to what is known best.
            let best = (0..self.kinds.len())
                .max_by(|a, b| self.kinds[*a].count.total_cmp(&self.kinds[*b].count));
            let best = best.unwrap_or(0);
            let [there, from] = [kind, best].map(|row| self.guess(places.kinds[row].between));
            self.kinds[best].ratio + there - from
        };
        (self.level + ratio).exp()
    }

    /// Mean speed since this was last called.
    pub fn lately(&mut self) -> Option<f64> {
        let (sum, count) = std::mem::take(&mut self.window);
        (count > 0.0).then_some(sum / count)
    }

    /// The thread for predictions; none before anything was seen, and none where it was not on each kind of core and counters
    /// predict no speed-up factor.
    pub fn subject(&mut self, places: &Places, weight: f64) -> Option<Subject> {
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
        Some(Subject {
            exposed: self.exposed,
            curve,
            alone: 1.0 / alone,
            seen: self.speed,
            weight,
            nj: self.energies(places),
            base,
        })
    }

    /// Energy per instruction on a kind, as seen there.
    pub fn nj(&self, kind: usize) -> Option<f64> {
        self.kinds[kind].nj
    }

    /// Energy per instruction by kind: as seen, or as seen elsewhere and the machine's figures say.
    fn energies(&self, places: &Places) -> Vec<f64> {
        let figure = |kind: usize| places.kinds[kind].instruction_nj;
        let from = (0..self.kinds.len())
            .find_map(|k| self.kinds[k].nj.map(|nj| nj / figure(k).max(1e-12)));
        let scaled = |kind: usize| figure(kind) * from.unwrap_or(1.0);
        (0..self.kinds.len())
            .map(|k| self.kinds[k].nj.unwrap_or_else(|| scaled(k)))
            .collect()
    }

    /// What decisions went by.
    pub fn why(&self) -> [(&'static str, f64); 2] {
        [
            ("exposed part of latencies", self.exposed),
            ("intervals seen", f64::from(self.seen)),
        ]
    }
}

impl Kind {
    /// Time, in ns, that a request takes longer when it goes on to this level of the chain, memory last. What stays on the chip
    /// is hidden for the most part.
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

/// Time per instruction, in ns, that the requests seen would take if nothing overlapped, memory's load included.
fn waiting(kind: &Kind, seen: &Seen) -> f64 {
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

/// The exposed part that is plausible for a thread that takes so long per instruction: misses in one window overlap, unless the
/// time is longer than a typical core part leaves room for.
fn plausible(kind: &Kind, seen: &Seen, waiting: f64, time: f64) -> f64 {
    let overlapping =
        1.0 / (1.0 + INDEPENDENT * seen.llc_misses.max(0.1 * seen.llc_references) * kind.window);
    let typical = 1.0 / (kind.ghz * kind.width.sqrt());
    ((time - typical) / waiting.max(1e-9)).clamp(overlapping, MOST_EXPOSED.max(overlapping))
}
