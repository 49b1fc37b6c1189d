//! `aarr`: asymmetry-aware round-robin, an equal share of every core type for every thread.
//!
//! Idea: threads form a ring of core slots, ordered by core type. Each type has as many core slots as it takes threads. Every
//! `turn_ms` the ring advances by the greatest common divisor of the types' core slot counts. Each thread thus spends the same
//! time on every type per rotation. It changes type as rarely as that allows, and no more threads move than must. A thread that
//! leaves shortens the ring; a new one joins at its end.
//!
//! Source: "RR" in PMCTrack, section 4.1.1, and "AARR" in PMCSched, section 4 (both after Li et al., HPCA 2010).
//!
//! Threads whose hints state that they spin or are blocked keep their places in the ring, but get only the core slots that are
//! left.
//!
//! Assumes: an equal share of core types is fair. Loses: throughput, whenever speed-up factors differ (`hsf`), and fairness
//! too, since equal time on big cores is not equal slowdown; and it moves threads all the time.

use countersteer_model::engine::ThreadInfo;
use countersteer_model::placement::{Placement, Reason, Target, ThreadPlacement};
use countersteer_model::policy::HintClass;
use countersteer_model::policy::{CoreSlots, active};
use countersteer_model::policy::{
    ParamDef, Params, Policy, PolicyDef, PolicyError, PolicyRng, View,
};
use countersteer_model::topology::Topology;
use countersteer_model::units::{Nanos, ThreadId};
use std::sync::Arc;

pub(crate) const DEF: PolicyDef = PolicyDef {
    name: "aarr",
    summary: "asymmetry-aware round-robin: equal shares of every core type for all threads",
    source: "PMCTrack, section 4.1.1 (RR); PMCSched, section 4 (AARR)",
    params: &[ParamDef {
        key: "turn_ms",
        default: "200",
        prose: "time between moves of the ring, in ms; rounded up to the driver's period. Longer turns cost fewer \
                migrations and make shares equal only over longer times",
    }],
    make,
};

/// Policy `ideal-rr`, the ideal round robin of HASS: a rotation interval so long that moves cost nothing. Fractions of time on
/// each core type are still equal over a run.
pub(crate) const IDEAL_RR: PolicyDef = PolicyDef {
    name: "ideal-rr",
    summary: "baseline: equal shares of every core type in turns so long that moves cost nothing",
    source: "HASS, section 5 (ideal round robin)",
    params: &[ParamDef {
        key: "turn_ms",
        default: "1000",
        prose: "time between moves, in ms",
    }],
    make,
};

fn make(params: &Params, topology: &Arc<Topology>) -> Result<Box<dyn Policy>, PolicyError> {
    Ok(Box::new(Aarr {
        turn: turn(params)?,
        slots: CoreSlots::new(topology),
        ring: Vec::new(),
        members: Vec::new(),
        turned: None,
    }))
}

fn turn(params: &Params) -> Result<Nanos, PolicyError> {
    Ok(Nanos::from_secs_f64(params.number("turn_ms", 1.0)? * 1e-3))
}

struct Aarr {
    turn: Nanos,
    slots: CoreSlots,
    /// Threads in the order of their core slots, those on the fastest cores first.
    ring: Vec<ThreadId>,
    /// Threads of the ring, in ascending order of ids.
    members: Vec<ThreadId>,
    /// Time at which the ring last advanced; `None` before the first decision.
    turned: Option<Nanos>,
}

impl Aarr {
    /// Updates the ring: removes threads that are no longer present, and appends new ones.
    fn admit(&mut self, present: &[&ThreadInfo]) {
        if present
            .iter()
            .map(|t| t.id)
            .eq(self.members.iter().copied())
        {
            return;
        }
        self.ring
            .retain(|id| present.binary_search_by_key(id, |t| t.id).is_ok());
        let mut new: Vec<&ThreadInfo> = present
            .iter()
            .filter(|t| self.members.binary_search(&t.id).is_err())
            .copied()
            .collect();
        // New threads that run on a fast core come first, since they may keep that core.
        new.sort_by_key(|t| (self.slots.rank_of(t.cpu), t.id));
        self.ring.extend(new.iter().map(|t| t.id));
        self.members = present.iter().map(|t| t.id).collect();
    }

    /// Advances the ring if at least `turn` has passed since it last advanced.
    fn advance(&mut self, now: Nanos, quota: &[usize]) {
        let turned = *self.turned.get_or_insert(now);
        if now.since(turned) < self.turn {
            return;
        }
        self.turned = Some(now);
        // Each quota is a multiple of this step, so every thread spends time on each type in proportion to the type's quota.
        let step = quota.iter().fold(0, |a, b| gcd(a, *b));
        if !self.ring.is_empty() {
            let len = self.ring.len();
            self.ring.rotate_right(step % len);
        }
    }

    fn reason(&self, quota: &[usize], class: Option<HintClass>) -> Reason {
        let n = self.ring.len().max(1) as f64;
        let shares = self
            .slots
            .ranks()
            .iter()
            .zip(quota)
            .map(|(r, q)| (r.group, *q as f64 / n));
        let turns = match quota {
            [first, rest @ ..] if *first > 0 && rest.iter().all(|q| *q == 0) => {
                "every thread fits on the fastest cores"
            }
            _ => "equal turns on every core type",
        };
        Reason::rule(class.and_then(HintClass::rule).unwrap_or(turns))
            .saw("threads", Some(n))
            .against("share of each thread's time", shares)
    }
}

impl Policy for Aarr {
    fn tune(&mut self, params: &Params, _: &Arc<Topology>) -> Result<(), PolicyError> {
        self.turn = turn(params)?;
        Ok(())
    }

    fn decide(&mut self, view: &mut View<'_>, _: &mut PolicyRng) -> Placement {
        let present = active(view);
        self.admit(&present);
        let quota = self.slots.quota(self.ring.len());
        if self.slots.ranks().len() > 1 {
            self.advance(view.now, &quota);
        }
        let mut rank_of = vec![0; present.len()];
        let mut ranks = quota
            .iter()
            .enumerate()
            .flat_map(|(rank, n)| std::iter::repeat_n(rank, *n));
        let row = |id: &ThreadId| present.binary_search_by_key(id, |t| t.id).ok();
        let waits =
            |row: usize| HintClass::of(present[row], None, false, 0.0) == HintClass::Waiting;
        for last in [false, true] {
            for row in self
                .ring
                .iter()
                .filter_map(row)
                .filter(|row| waits(*row) == last)
            {
                rank_of[row] = ranks.next().unwrap_or_default();
            }
        }
        let wanted: Vec<(&ThreadInfo, usize)> = present.into_iter().zip(rank_of).collect();
        let moves = self.slots.assign(&wanted, false);
        let place = |(row, group): (usize, _)| {
            let class = (wanted[row].1 > 0).then(|| HintClass::of(wanted[row].0, None, false, 0.0));
            ThreadPlacement::new(
                wanted[row].0.id,
                Target::Group(group),
                self.reason(&quota, class),
            )
        };
        let threads = moves.into_iter().map(place);
        Placement {
            threads: threads.collect(),
            ..Placement::default()
        }
    }
}

const fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
