//! Search by exchanges and moves of threads, the best first, as long as their gain exceeds their cost.
//!
//! Input: a [`Predictor`] of the present mapping. Output: the changes to make. Effort is bounded: once a number of rows was
//! solved, the best change so far is the last.

use countersteer_model::policy::PolicyRng;
use rand::RngExt;

use super::places::MachinePlaces;
use super::predict::{Outcome, Predictor};
use crate::neighbours::{Change, Neighbourhood};

/// Subject, and the core to which it moves.
pub(super) type SubjectMove = (usize, usize);

/// Objective of the optimisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JointObjective {
    Throughput,
    Fairness,
    Energy,
    Edp,
}

/// Constraints on changes.
pub(super) struct Terms<'a> {
    pub objective: JointObjective,
    /// Limit on the slowdown of a thread by a change, against its run alone on the fastest cores.
    pub floor: f64,
    /// Relative gain below which no change is made.
    pub margin: f64,
    /// Time over which a gain must pay for the moves, in ns.
    pub horizon_ns: f64,
    /// Limits on the rows solved, and on the changes evaluated per step.
    pub effort: usize,
    pub candidates: usize,
    /// By subject: factor on the margin of recently moved threads.
    pub reluctance: &'a [f64],
    /// True for changes that were tried and lost, or that threads do not allow.
    pub banned: &'a dyn Fn(&[SubjectMove]) -> bool,
}

/// State of an objective.
#[derive(Clone, Copy, Debug)]
pub(super) struct ObjectiveValue {
    /// Weighted relative speed.
    pub work: f64,
    /// Instructions per ns of all threads.
    pub instructions: f64,
    /// Power of the machine, in W.
    pub watts: f64,
}

impl ObjectiveValue {
    /// Value of the whole mapping.
    pub fn of(p: &Predictor<'_>) -> Self {
        let mut value = Self {
            work: 0.0,
            instructions: 0.0,
            watts: p.places.static_w,
        };
        for (row, spot) in p.mapping.iter().enumerate() {
            value.add(p, row, *spot, p.speeds[row], 1.0);
        }
        let spots = 0..p.places.spots.len();
        value.watts += spots
            .map(|s| p.places.core_w(s, p.load(s) > 0))
            .sum::<f64>();
        value
    }

    /// Adds a thread on a core at a predicted speed (`sign` 1), or removes it (`sign` -1).
    fn add(&mut self, p: &Predictor<'_>, row: usize, spot: usize, speed: f64, sign: f64) {
        let subject = &p.subjects[row];
        let kind = kind(p.places, spot);
        let speed = p.believed(row, spot, speed);
        self.work += sign * subject.weight * speed / subject.alone;
        self.instructions += sign * speed;
        self.watts += sign * speed * subject.nj[kind];
    }

    /// Removes a thread's work in a part of the time.
    fn lose(&mut self, p: &Predictor<'_>, row: usize, part: f64) {
        self.work -= part * p.subjects[row].weight;
        self.instructions -= part * p.speeds[row];
    }

    /// Relative gain of another value over this one.
    pub fn gain(self, other: Self, objective: JointObjective) -> f64 {
        let cost = |v: Self| match objective {
            JointObjective::Throughput | JointObjective::Fairness => 1.0 / v.work.max(1e-9),
            JointObjective::Energy => v.watts / v.instructions.max(1e-9),
            JointObjective::Edp => v.watts / v.instructions.max(1e-9).powi(2),
        };
        cost(self) / cost(other) - 1.0
    }
}

fn kind(places: &MachinePlaces, spot: usize) -> usize {
    places.spots[spot].kind
}

/// Chosen change, with the relative gain predicted.
struct Chosen {
    changes: Vec<SubjectMove>,
    gain: f64,
}

/// Improves the mapping of a predictor.
pub(super) fn improve(p: &mut Predictor<'_>, terms: &Terms<'_>, rng: &mut PolicyRng) {
    let limit = p.effort + terms.effort;
    for _ in 0..p.subjects.len().max(1) {
        let now = ObjectiveValue::of(p);
        let mut best: Option<Chosen> = None;
        for changes in candidates(p, terms, rng) {
            if p.effort > limit {
                break;
            }
            let outcome = p.attempt(&changes);
            let Some(gain) = worth(p, &changes, &outcome, now, terms) else {
                continue;
            };
            if gain > 0.0 && best.as_ref().is_none_or(|b| gain > b.gain) {
                best = Some(Chosen { changes, gain });
            }
        }
        let Some(best) = best else { break };
        p.change(&best.changes);
        if p.effort > limit {
            break;
        }
    }
}

/// Improves the mapping beyond single changes. Threads behind equal caches are sorted by their evictions of others, one that
/// suffers joins the quietest, and the search continues from there. The mapping stays if that does not pay.
pub(super) fn rearrange(p: &mut Predictor<'_>, terms: &Terms<'_>, rng: &mut PolicyRng) {
    let before = ObjectiveValue::of(p);
    let start = p.mapping.clone();
    let n = p.subjects.len();
    let chosen = rng.random_range(0..n);
    let level = rng.random_range(0..p.held[chosen].len());
    let spot = p.mapping[chosen];
    let home = p.places.spots[spot].chain[level];
    let alike = |row: &usize| {
        let place = &p.places.spots[p.mapping[*row]];
        let lines = |chain: &[usize]| chain.get(level).map(|c| p.places.caches[*c]);
        place.kind == p.places.spots[spot].kind
            && lines(&place.chain) == lines(&p.places.spots[spot].chain)
    };
    let mut rows: Vec<usize> = (0..n).filter(alike).collect();
    let mut cores: Vec<usize> = rows.iter().map(|row| p.mapping[*row]).collect();
    // The home cache first, then the others.
    cores.sort_by_key(|core| {
        (
            p.places.spots[*core].chain[level] != home,
            p.places.spots[*core].chain[level],
            *core,
        )
    });
    let push = |row: usize| p.pushed(row);
    rows.sort_by(|a, b| {
        let key = |row: usize| if row == chosen { -1.0 } else { push(row) };
        key(*a).total_cmp(&key(*b)).then(a.cmp(b))
    });
    let changes: Vec<SubjectMove> = settled(p, &rows, &cores, level)
        .into_iter()
        .filter(|(row, to)| p.mapping[*row] != *to)
        .collect();
    if changes.is_empty() || (terms.banned)(&changes) {
        return;
    }
    p.change(&changes);
    improve(p, terms, rng);
    let after = ObjectiveValue::of(p);
    let moved: Vec<usize> = (0..n)
        .filter(|row| p.mapping[*row] != start[*row])
        .collect();
    let reluctance: f64 = moved
        .iter()
        .map(|row| terms.reluctance[*row])
        .fold(1.0, f64::max);
    let mut then = after;
    for row in &moved {
        let refill = refill_ns(p, *row, start[*row]) / terms.horizon_ns;
        then.lose(p, *row, refill);
    }
    let gain = before.gain(then, terms.objective);
    if moved.is_empty()
        || gain < terms.margin * reluctance * (1.0 + 0.1 * moved.len() as f64)
        || slowed(p, terms)
    {
        p.assume(&start);
    }
}

/// True if a thread is slower than the floor allows.
fn slowed(p: &Predictor<'_>, terms: &Terms<'_>) -> bool {
    p.subjects
        .iter()
        .zip(&p.speeds)
        .any(|(subject, speed)| subject.alone > terms.floor * speed)
}

/// Assigns the cores to the rows in order. A row that is behind the right cache already keeps its core.
fn settled(p: &Predictor<'_>, rows: &[usize], cores: &[usize], level: usize) -> Vec<SubjectMove> {
    let cache = |core: usize| p.places.spots[core].chain[level];
    let mut free: Vec<usize> = cores.to_vec();
    let mut given = Vec::with_capacity(rows.len());
    let mut waiting = Vec::new();
    for (row, core) in rows.iter().zip(cores) {
        let own = p.mapping[*row];
        let stays = free
            .iter()
            .position(|c| *c == own)
            .filter(|_| cache(own) == cache(*core));
        match stays {
            Some(at) => given.push((*row, free.swap_remove(at))),
            None => waiting.push((*row, cache(*core))),
        }
    }
    for (row, wanted) in waiting {
        let at = free.iter().position(|c| cache(*c) == wanted).unwrap_or(0);
        given.push((row, free.swap_remove(at)));
    }
    given
}

/// Relative gain of a change less its costs; `None` if the change is not allowed.
fn worth(
    p: &Predictor<'_>,
    changes: &[SubjectMove],
    outcome: &Outcome,
    now: ObjectiveValue,
    terms: &Terms<'_>,
) -> Option<f64> {
    let mut then = now;
    then.work += outcome.others;
    then.instructions *= 1.0 + outcome.others / now.work.max(1e-9);
    for &(row, speed) in &outcome.speeds {
        let subject = &p.subjects[row];
        let to = changes
            .iter()
            .find(|(r, _)| *r == row)
            .map_or(p.mapping[row], |(_, spot)| *spot);
        let from = p.mapping[row];
        then.add(p, row, from, p.speeds[row], -1.0);
        then.add(p, row, to, speed, 1.0);
        let slow = subject.alone > terms.floor * speed && speed < 0.999 * p.speeds[row];
        if slow {
            return None;
        }
    }
    let mut watts = 0.0;
    let mut margin = 0.0f64;
    for &(row, to) in changes {
        let from = p.mapping[row];
        let vacates = p.load(from) == 1 && !changes.iter().any(|(_, spot)| *spot == from);
        let wakes = |spot| p.places.core_w(spot, true) - p.places.core_w(spot, false);
        watts +=
            if p.load(to) == 0 { wakes(to) } else { 0.0 } - if vacates { wakes(from) } else { 0.0 };
        let refill = refill_ns(p, row, to) / terms.horizon_ns;
        then.lose(p, row, refill);
        margin = margin.max(terms.margin * terms.reluctance[row]);
    }
    then.watts += watts;
    let gain = now.gain(then, terms.objective);
    (gain > margin).then_some(gain)
}

/// Time that a thread loses while caches fill at its new place, in ns.
fn refill_ns(p: &Predictor<'_>, row: usize, to: usize) -> f64 {
    let subject = &p.subjects[row];
    let kind = &p.places.kinds[kind(p.places, to)];
    let memory = kind.latency_ns.last().copied().unwrap_or(0.0);
    let near = kind.latency_ns.first().copied().unwrap_or(0.0);
    let same = p.places.llc(p.mapping[row]) == p.places.llc(to);
    let lines = if same {
        0.0
    } else {
        subject
            .curve
            .lines_after(1e12)
            .min(p.places.caches[p.places.llc(to)])
    };
    subject.exposed * (lines * memory + kind.private_lines * near)
}

/// Swaps of two threads, and moves to cores with fewer threads; a random subset if there are many.
fn candidates(p: &Predictor<'_>, terms: &Terms<'_>, rng: &mut PolicyRng) -> Vec<Vec<SubjectMove>> {
    let around = Neighbourhood {
        threads: p.subjects.len(),
        rooms: &rooms(p),
    };
    let moves = |change: Change<usize>| {
        let matters = match change {
            Change::Move(row, to) => transfers(p, row, to),
            Change::Swap(a, b) => swaps(p, p.mapping[a], p.mapping[b]),
        };
        let moves = matters.then(|| change.moves(&p.mapping));
        moves.filter(|moves| !(terms.banned)(moves))
    };
    if around.len() <= terms.candidates {
        let of = |row: usize| around.swaps_of(row).chain(around.moves_of(row));
        return (0..around.threads).flat_map(of).filter_map(moves).collect();
    }
    let draw = |_| moves(around.random(rng));
    (0..terms.candidates).filter_map(draw).collect()
}

/// True if threads of two cores make a difference by changing sides.
fn swaps(p: &Predictor<'_>, here: usize, there: usize) -> bool {
    let lonely = p.load(here) == 1 && p.load(there) == 1;
    here != there && !(lonely && twins(p.places, here, there))
}

/// True if a core has room for a thread, and the move makes a difference.
fn transfers(p: &Predictor<'_>, row: usize, to: usize) -> bool {
    let from = p.mapping[row];
    let ways = |spot: usize| p.places.spots[spot].ways;
    // A core gets more threads than hardware threads only if the thread's present core is more crowded.
    let fuller = (p.load(to) + 1) * ways(from) > p.load(from) * ways(to);
    let crowds = p.load(to) + 1 > ways(to) && fuller;
    let alike = p.load(from) == 1 && p.load(to) == 0 && twins(p.places, from, to);
    to != from && !crowds && !alike
}

/// True for cores of one kind behind the same caches.
fn twins(places: &MachinePlaces, a: usize, b: usize) -> bool {
    let (a, b) = (&places.spots[a], &places.spots[b]);
    a.kind == b.kind && a.chain == b.chain
}

/// One core of each load per set of twins, behind caches that are known or empty. The other cores have the same value.
fn rooms(p: &Predictor<'_>) -> Vec<usize> {
    let mut seen = std::collections::BTreeSet::new();
    let key = |spot: usize| {
        let place = &p.places.spots[spot];
        (
            place.kind,
            place.chain.clone(),
            p.load(spot),
            if p.load(spot) == 0 { 0 } else { spot },
        )
    };
    let known = |spot: &usize| p.is_known(p.places.llc(*spot));
    (0..p.places.spots.len())
        .filter(known)
        .filter(|spot| seen.insert(key(*spot)))
        .collect()
}
