//! `hsf`: the threads with the highest speed-up factors run on the fastest cores.
//!
//! Idea: aggregate speed-up is the sum over threads on big cores of SF - 1, so it is greatest when the big cores go to the
//! highest SFs. Threads are ranked by SF and seated by core type, fastest first.
//!
//! Source: "HSP" in PMCTrack, section 4.1.1; "HSF" in PMCSched, section 4 (after Koufaty et al., EuroSys 2010, and Saez et
//! al., TOCS 2012).
//!
//! Hysteresis: who sits on a faster type keeps its seat against a challenger that is ahead by less than `margin`, unless its
//! own SF has ranked it lower for `patience` decisions in a row; so real differences win however small, and noise rarely
//! does. A thread that was moved lately is held to twice the margin and patience for each move, which ends the ping-pong of a
//! model that disagrees with itself across core types.
//!
//! Threads without SF count as average. `sf=sampled` and `sf=work`, and `sf=model` for threads on which the model abstains, need a run
//! on the fastest and on the slowest type: threads without are sent to the type they have not been on, and every `refresh_ms` the one with the oldest measurement is sent again. With
//! `phases=on` those go first that have begun another phase since they were measured, and need not wait for `refresh_ms` to pass but
//! for a quarter of it. Simulated with 16 recorded programs (STP, medians of 15 seeds) that is worth 2 % on a phone, the Apple M1 and
//! QuickIA, 1 % on a hybrid desktop, nothing on Juno, and costs 5 % where two of twelve cores are fast and little faster than the
//! others: being measured takes their seats from those who gain.
//!
//! What programs tell about their threads: a priority weighs the thread's SF, against those of its own program's threads only. A
//! thread that spins or is blocked is ranked last, and before it come those for which the slowest type is fast enough by their
//! own word (`qos_permille`); neither is sent to be measured.
//!
//! With `clamp=on` the frequency follows the seat: a thread that comes to a fast core is asked for in full at once, instead of
//! when its load has grown there, and one that was seated low does not hold up clocks that it gains little from.
//!
//! Assumes: one thread's speed does not depend on where the others are. Loses: when shared caches or bandwidth decide, when
//! fairness matters (the slowest threads never see a big core), and with threads of a parallel program that wait for each
//! other.

use countersteer_core::engine::{ThreadEventKind, ThreadInfo};
use countersteer_core::placement::{
    AdmissionTable, Clamp, Placement, Reason, Target, ThreadPlacement,
};
use countersteer_core::policy::{HintClass, weights};
use countersteer_core::policy::{
    Needs, ParamDef, Params, Policy, PolicyDef, PolicyError, PolicyRng, View,
};
use countersteer_core::policy::{Seats, active};
use countersteer_core::topology::{GroupBy, Topology};
use countersteer_core::units::{CoreTypeId, GroupId, Nanos, ThreadId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::speedup::{self, Kind};

pub(crate) const DEF: PolicyDef = PolicyDef {
    name: "hsf",
    summary: "high speed-up factor first: fastest cores to the threads that gain most",
    source: "PMCTrack, section 4.1.1 (HSP); PMCSched, section 4 (HSF)",
    params: &[
        ParamDef {
            key: "sf",
            default: "model",
            prose: "where speed-up factors come from: model (counters where the thread runs; measured like sampled where the model abstains), steps (the same as the \
                    engine in the kernel computes it), sampled (its own speed on \
                    either type), work (the same by the work that programs say they do, sleep included, where nothing \
                    counts instructions or they tell little), oracle (the truth; simulator only)",
        },
        ParamDef {
            key: "tlp",
            default: "thread",
            prose: "what threads are ranked by: thread (their own SF, as PMCSched), speedup (what big cores are worth to their \
                    application, as PMCTrack: a serial phase comes before parallel ones), camp (CAMP's utility factor), per-core \
                    (what one big core adds to the application)",
        },
        ParamDef {
            key: "turn_ms",
            default: "200",
            prose: "with tlp other than thread: time between turns of an application's threads on its big cores, in ms",
        },
        ParamDef {
            key: "margin",
            default: "0.05",
            prose: "a challenger must be ahead by this fraction to take a seat at once",
        },
        ParamDef {
            key: "patience",
            default: "10",
            prose: "decisions in a row after which a thread that is ranked lower loses its seat to any challenger",
        },
        ParamDef {
            key: "refresh_ms",
            default: "2000",
            prose: "sf=sampled, sf=work and threads on which the model abstains: time between profiling moves once every thread is measured, in ms",
        },
        ParamDef {
            key: "phases",
            default: "off",
            prose: "on, with sf=sampled: threads that begin another phase are measured again first, and up to four times as often",
        },
        ParamDef {
            key: "clamp",
            default: "off",
            prose: "on: threads on the fastest cores are taken to ask for all of them, those on slower ones for no more than \
                    a slower core can give, so that frequencies follow the seats (uclamp and energy preferences of real \
                    machines; the simulator does not heed it)",
        },
    ],
    make: |params, topology| Ok(Box::new(Hsf::new(params, topology)?)),
};

/// How many times as often those may be measured that have begun another phase.
const SOONER: u64 = 4;

/// Doublings, at most, of the time after which such a thread is tried again.
const MOST_PATIENCE: u32 = 6;

/// What is remembered about a thread.
#[derive(Clone, Copy, Default)]
struct Memory {
    thread: ThreadId,
    /// Decisions in a row that ranked it below its seat.
    doubt: u32,
    /// Moves, fading.
    restless: f64,
    /// When it last had a whole interval on the fastest and on the slowest type.
    been: [Option<Nanos>; 2],
    /// It has begun another phase since.
    changed: bool,
    /// How often it was sent to be measured again although nothing had come of that.
    fruitless: u32,
}

/// A thread in this decision.
struct Candidate<'a> {
    info: &'a ThreadInfo,
    sf: Option<f64>,
    /// What its program's word makes of it.
    class: HintClass,
    /// What it is ranked by: its SF or the average, weighed, or infinite when it is sent somewhere to be measured.
    key: f64,
    /// The rank it has, if it was given one.
    seat: Option<usize>,
    memory: Memory,
    profiled: bool,
    /// Its factor is one that it has to be measured for.
    measured: bool,
}

/// What a thread offers for a seat.
struct Bid {
    row: usize,
    key: f64,
    /// Its offer for a rank that it holds already, or for a slower one.
    held: f64,
    /// The rank it holds; beyond all when it has to compete like anybody else.
    holds_from: usize,
    here: usize,
}

/// What threads are ranked by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tlp {
    Thread,
    Speedup,
    Camp,
    PerCore,
}

struct Hsf {
    needs: Needs,
    tlp: Tlp,
    turn: Nanos,
    /// When the threads of applications last took turns.
    turned: Nanos,
    metric: &'static str,
    explores: bool,
    margin: f64,
    patience: f64,
    refresh: Nanos,
    seats: Seats,
    memory: Vec<Memory>,
    last_refresh: Nanos,
    /// Somebody was sent to be measured at the last decision: moves back are no sign of indecision.
    exploring: bool,
    table: Option<AdmissionTable>,
    /// Frequency hint of each rank; none where they are not wanted or there is one core type.
    clamps: Vec<Clamp>,
    /// Speed of each rank between the slowest (0) and the fastest (1), for predictions on types in between.
    between: Vec<f64>,
}

impl Hsf {
    fn new(params: &Params, topology: &Arc<Topology>) -> Result<Self, PolicyError> {
        let choices = [
            ("model", "sf"),
            ("steps", "sf_steps"),
            ("sampled", "sf_sampled"),
            ("work", "sf_work"),
            ("oracle", "sf_oracle"),
        ];
        let metric = params.choice("sf", &choices)?;
        let kinds = [
            ("thread", Tlp::Thread),
            ("speedup", Tlp::Speedup),
            ("camp", Tlp::Camp),
            ("per-core", Tlp::PerCore),
        ];
        let phases =
            params.choice("phases", &[("off", false), ("on", true)])? && metric == "sf_sampled";
        // Phases are derived from the counters of the second one.
        let metrics = match metric {
            "sf" => vec![metric, "sf_doubt"],
            _ if phases => vec![metric, "sf_steps"],
            _ => vec![metric],
        };
        Ok(Self {
            needs: Needs {
                metrics,
                phases,
                ..Needs::NOTHING
            },
            tlp: params.choice("tlp", &kinds)?,
            turn: Nanos::from_secs_f64(params.number("turn_ms", 1.0)? * 1e-3),
            turned: Nanos::ZERO,
            metric,
            explores: ["sf", "sf_sampled", "sf_work"].contains(&metric),
            margin: params.number("margin", 0.0)?,
            patience: params.number("patience", 1.0)?,
            refresh: Nanos::from_secs_f64(params.number("refresh_ms", 1.0)? * 1e-3),
            clamps: if params.choice("clamp", &[("off", false), ("on", true)])? {
                clamps(topology)
            } else {
                Vec::new()
            },
            between: between(topology),
            seats: Seats::new(topology),
            memory: Vec::new(),
            last_refresh: Nanos::ZERO,
            exploring: false,
            table: None,
        })
    }

    fn candidates<'a>(&self, view: &View<'a>) -> Vec<Candidate<'a>> {
        let slowest = self.seats.ranks().len().saturating_sub(1);
        let candidate = |info: &'a ThreadInfo| {
            let memory = self.memory.binary_search_by_key(&info.id, |m| m.thread);
            let memory = memory.map_or(
                Memory {
                    thread: info.id,
                    ..Memory::default()
                },
                |row| self.memory[row],
            );
            let (rank, given) = self.seats.present(info);
            let sf = view
                .metric(info.id, self.metric)
                .filter(|sf| sf.is_finite() && *sf > 0.0);
            Candidate {
                info,
                sf,
                class: HintClass::of(info, sf, rank == slowest, self.margin * strength(&memory)),
                key: 0.0,
                seat: given.then_some(rank),
                memory,
                profiled: false,
                measured: self.metric != "sf"
                    || view.metric(info.id, "sf_doubt").is_some_and(|d| d > 1.0),
            }
        };
        let active = active(view);
        let phases = view
            .events
            .iter()
            .filter(|e| self.needs.phases && e.kind == ThreadEventKind::Phase);
        let changed: BTreeSet<ThreadId> = phases.map(|e| e.thread).collect();
        let mut all: Vec<Candidate<'a>> = active.iter().copied().map(candidate).collect();
        let known = all
            .iter()
            .filter(|c| c.class != HintClass::Waiting)
            .filter_map(|c| c.sf);
        let (sum, count) = known.fold((0.0, 0u32), |(sum, count), sf| (sum + sf, count + 1));
        let average = if count > 0 {
            sum / f64::from(count)
        } else {
            1.0
        };
        let sf: Vec<Option<f64>> = all.iter().map(|c| c.sf).collect();
        let programs = match self.tlp {
            Tlp::Thread => BTreeMap::new(),
            _ => speedup::programs(&active, &sf),
        };
        for (c, weight) in all.iter_mut().zip(weights(&active)) {
            c.memory.changed |= changed.contains(&c.info.id);
            let worth = match programs.get(&c.info.program) {
                Some(program) => self.worth(program),
                None => c.sf.unwrap_or(average),
            };
            c.key = worth * weight * c.class.factor();
        }
        all
    }

    /// What big cores are worth to an application.
    fn worth(&self, program: &speedup::Active) -> f64 {
        let big = self.seats.ranks().first().map_or(0, |r| r.cores.len());
        let speedup::Active { threads, sf } = *program;
        match self.tlp {
            Tlp::Thread => sf,
            Tlp::Speedup => speedup::application(Kind::Dynamic, sf, threads, big),
            Tlp::Camp => speedup::utility(sf, threads, big),
            Tlp::PerCore => 1.0 + (sf - 1.0) / threads as f64,
        }
    }

    /// Has the threads of applications with several take turns on the big cores, those first that have had them least.
    fn rotate(&mut self, view: &View<'_>, all: &mut [Candidate<'_>]) {
        let Some(fast) = view.topology.groups_by(GroupBy::CoreType).first() else {
            return;
        };
        let Some(fast) = fast.core_type else { return };
        if self.tlp == Tlp::Thread || view.now.since(self.turned) < self.turn {
            return;
        }
        self.turned = view.now;
        let big_s = |c: &Candidate<'_>| view.usage(c.info.id).map_or(0.0, |u| u.cpu_s(fast));
        let mut rows: Vec<usize> = (0..all.len()).collect();
        rows.sort_by(|a, b| {
            let (a, b) = (&all[*a], &all[*b]);
            (a.info.program.cmp(&b.info.program)).then(big_s(a).total_cmp(&big_s(b)))
        });
        let same = |a: &usize, b: &usize| all[*a].info.program == all[*b].info.program;
        let teams: Vec<Vec<usize>> = rows.chunk_by(same).map(<[usize]>::to_vec).collect();
        for team in teams.iter().filter(|team| team.len() > 1) {
            for (nth, row) in team.iter().enumerate() {
                let c = &mut all[*row];
                c.memory.doubt = u32::MAX;
                // Enough to order the threads of one application, too little to change places with others.
                c.key *= 1.0 + 1e-6 * (1.0 - nth as f64 / team.len() as f64);
            }
            self.exploring = true;
        }
    }

    /// Sends threads that have to be measured to the type they were not on.
    fn explore(&mut self, all: &mut [Candidate<'_>], now: Nanos, quota: &[usize]) {
        let last = quota.len() - 1;
        for c in all.iter_mut() {
            if let Some(end) = c
                .seat
                .and_then(|seat| [0, last].iter().position(|r| *r == seat))
            {
                c.memory.been[end] = Some(now);
            }
        }
        if quota[0] == 0 || quota[last] == 0 {
            return;
        }
        for c in all
            .iter_mut()
            .filter(|c| c.measured && c.sf.is_none() && c.class == HintClass::Full)
        {
            match c.memory.been {
                [None, _] => c.send(f64::INFINITY),
                [Some(_), None] => c.send(f64::NEG_INFINITY),
                _ => {}
            }
        }
        if all.iter().any(|c| c.profiled) {
            return;
        }
        let since = now.since(self.last_refresh).0;
        if since < self.refresh.0 / SOONER {
            return;
        }
        let due = since >= self.refresh.0;
        let oldest = |c: &Candidate<'_>| c.memory.been.iter().copied().min().flatten();
        // Who has been on both types without a measure slept there, or has none to give: it is tried again less and less often.
        let patient = |c: &Candidate<'_>| {
            let tried = oldest(c).unwrap_or_default();
            now.since(tried).0 >= self.refresh.0 << c.memory.fruitless.min(MOST_PATIENCE)
        };
        let wanted = |c: &&mut Candidate<'_>| match c.sf {
            Some(_) => due || c.memory.changed,
            None => due && patient(c),
        };
        let stale = all
            .iter_mut()
            .filter(|c| c.measured && c.class == HintClass::Full)
            .filter(wanted);
        if let Some(c) = stale.min_by_key(|c| (!c.memory.changed, oldest(c), c.info.id)) {
            c.memory.changed = false;
            c.memory.fruitless = if c.sf.is_some() {
                0
            } else {
                c.memory.fruitless + 1
            };
            self.last_refresh = now;
            let [fast, slow] = c.memory.been;
            c.send(if fast <= slow {
                f64::INFINITY
            } else {
                f64::NEG_INFINITY
            });
        }
    }

    /// Brings doubts up to date: who would sit lower if SFs alone decided?
    fn doubt(&self, all: &mut [Candidate<'_>], quota: &[usize]) {
        let mut order: Vec<usize> = (0..all.len()).collect();
        if quota.len() < 2 {
            return;
        }
        order.sort_unstable_by(|a, b| {
            let a = &all[*a];
            let b = &all[*b];
            b.key
                .total_cmp(&a.key)
                .then(a.seat.cmp(&b.seat))
                .then(a.info.id.cmp(&b.info.id))
        });
        for (row, rank) in order.into_iter().zip(ranks_of(quota)) {
            let c = &mut all[row];
            let below = c.seat.is_some_and(|seat| rank > seat);
            c.memory.doubt = if below {
                c.memory.doubt.saturating_add(1)
            } else {
                0
            };
        }
    }

    /// The rank of every thread.
    fn rank(&self, all: &[Candidate<'_>], quota: &[usize]) -> Vec<usize> {
        let mut ranks = vec![quota.len() - 1; all.len()];
        let mut rest: Vec<Bid> = all
            .iter()
            .enumerate()
            .map(|(row, c)| self.bid(row, c))
            .collect();
        // Whoever is left over after the other types gets the slowest.
        for (rank, seats) in quota.iter().enumerate().take(quota.len() - 1) {
            let worth = |b: &Bid| if b.holds_from <= rank { b.held } else { b.key };
            rest.sort_unstable_by(|a, b| {
                worth(b)
                    .total_cmp(&worth(a))
                    .then((a.here, a.row).cmp(&(b.here, b.row)))
            });
            for bid in rest.drain(..(*seats).min(rest.len())) {
                ranks[bid.row] = rank;
            }
        }
        ranks
    }

    fn bid(&self, row: usize, c: &Candidate<'_>) -> Bid {
        let strength = strength(&c.memory);
        let doubted = f64::from(c.memory.doubt) >= self.patience * strength;
        Bid {
            row,
            key: c.key,
            held: c.key * (1.0 + self.margin * strength),
            holds_from: c.seat.filter(|_| !doubted).unwrap_or(usize::MAX),
            // Without a seat of its own, a thread is best left where it happens to be.
            here: c.seat.unwrap_or_else(|| self.seats.rank_of(c.info.cpu)),
        }
    }

    fn remember(&mut self, all: &[Candidate<'_>], ranks: &[usize]) {
        let explored = std::mem::replace(&mut self.exploring, all.iter().any(|c| c.profiled))
            || self.exploring;
        self.memory = all
            .iter()
            .zip(ranks)
            .map(|(c, rank)| {
                // Half is forgotten in about 23 decisions.
                let moved = c.seat.is_some_and(|seat| seat != *rank) && !explored;
                Memory {
                    restless: c.memory.restless * 0.97 + f64::from(u8::from(moved)),
                    ..c.memory
                }
            })
            .collect();
    }

    fn reason(&self, c: &Candidate<'_>, rank: usize) -> Reason {
        let rule = match (c.profiled, c.sf, c.seat) {
            (true, ..) => "sent to be measured on this core type",
            _ if rank > 0 && c.class != HintClass::Full => c.class.rule().unwrap_or_default(),
            (_, None, _) => "no speed-up factor yet: taken as the average of the others",
            (.., Some(seat)) if seat == rank => "keeps its core type",
            (.., Some(seat)) if seat < rank => "others gain more from its faster core",
            (.., Some(_)) => "gains more from a faster core than who had it",
            _ => "ranked by speed-up factor",
        };
        let ranks = self.seats.ranks().iter().zip(&self.between);
        let predicted =
            c.sf.map(|sf| ranks.map(move |(r, x)| (r.group, 1.0 + (sf - 1.0) * x)));
        Reason::rule(rule)
            .saw(self.metric, c.sf)
            .saw(
                "priority",
                c.info
                    .told
                    .filter(|t| t.priority != 0)
                    .map(|t| t.priority.into()),
            )
            .against(
                "times the speed on the slowest type",
                predicted.into_iter().flatten(),
            )
    }

    /// The table for threads that come between decisions, if it changed.
    fn admission(
        &mut self,
        all: &[Candidate<'_>],
        ranks: &[usize],
        quota: &[usize],
    ) -> Option<AdmissionTable> {
        if all.iter().any(|c| c.profiled) {
            return None;
        }
        let rows = self.rows(all, ranks, quota);
        let table = AdmissionTable {
            metric: self.metric.into(),
            rows,
        };
        let close = |a: &(f64, GroupId), b: &(f64, GroupId)| {
            a.1 == b.1 && (a.0 - b.0).abs() <= self.margin.max(0.01) * b.0
        };
        let same = self.table.as_ref().is_some_and(|old| {
            old.rows.len() == table.rows.len()
                && old.rows.iter().zip(&table.rows).all(|(a, b)| close(a, b))
        });
        if same {
            return None;
        }
        self.table = Some(table.clone());
        Some(table)
    }

    fn rows(&self, all: &[Candidate<'_>], ranks: &[usize], quota: &[usize]) -> Vec<(f64, GroupId)> {
        let seats = self.seats.ranks();
        // As long as a core is free, whoever comes takes the fastest free one.
        let free = seats
            .iter()
            .zip(quota)
            .position(|(r, q)| *q < r.cores.len());
        let last = free.unwrap_or(seats.len() - 1);
        let mut rows: Vec<(f64, GroupId)> = Vec::with_capacity(last + 1);
        for (rank, seat) in seats.iter().enumerate().take(last) {
            let of = |wanted: fn(usize, usize) -> bool| {
                let counts = move |c: &Candidate<'_>| c.sf.is_some() && c.class == HintClass::Full;
                all.iter()
                    .zip(ranks)
                    .filter(move |(c, r)| counts(c) && wanted(**r, rank))
                    .map(|(c, _)| c.key)
            };
            let inside = of(|r, rank| r == rank).fold(f64::INFINITY, f64::min);
            let outside = of(|r, rank| r > rank).fold(0.0, f64::max);
            if inside.is_finite() {
                // Halfway between the last one in and the first one out, so that noise on either side changes nothing.
                let least = if inside > outside {
                    (inside + outside) / 2.0
                } else {
                    inside * (1.0 - self.margin)
                };
                let least = rows.last().map_or(least, |above| least.min(above.0));
                rows.push((least.max(0.0), seat.group));
            }
        }
        rows.push((0.0, seats[last].group));
        rows
    }
}

impl Candidate<'_> {
    fn send(&mut self, key: f64) {
        self.key = key;
        self.profiled = true;
    }
}

impl Policy for Hsf {
    fn needs(&self) -> &Needs {
        &self.needs
    }

    fn tune(&mut self, params: &Params, topology: &Arc<Topology>) -> Result<(), PolicyError> {
        let new = Self::new(params, topology)?;
        // Hints that were given would stay.
        if new.clamps.is_empty() != self.clamps.is_empty() {
            return Err(PolicyError::Fixed);
        }
        *self = Self {
            turned: self.turned,
            memory: std::mem::take(&mut self.memory),
            last_refresh: self.last_refresh,
            exploring: self.exploring,
            table: self.table.take(),
            ..new
        };
        Ok(())
    }

    fn decide(&mut self, view: &mut View<'_>, _: &mut PolicyRng) -> Placement {
        let mut all = self.candidates(view);
        let quota = self.seats.quota(all.len());
        if quota.is_empty() {
            return Placement::default();
        }
        if self.explores {
            self.explore(&mut all, view.now, &quota);
        }
        self.doubt(&mut all, &quota);
        self.rotate(view, &mut all);
        let ranks = self.rank(&all, &quota);
        let wanted: Vec<(&ThreadInfo, usize)> =
            all.iter().zip(&ranks).map(|(c, r)| (c.info, *r)).collect();
        let told = self.seats.seat(&wanted, true);
        let place = |(row, group): (usize, GroupId)| {
            let c = &all[row];
            let rank = ranks[row];
            let placed =
                ThreadPlacement::new(c.info.id, Target::Group(group), self.reason(c, rank));
            ThreadPlacement {
                clamp: self.clamps.get(rank).copied(),
                ..placed
            }
        };
        let threads = told.into_iter().map(place).collect();
        let admission = self.admission(&all, &ranks, &quota);
        self.remember(&all, &ranks);
        Placement {
            threads,
            admission,
            caches: None,
        }
    }
}

/// How much firmer a thread is held to where it is, for having been moved lately.
fn strength(memory: &Memory) -> f64 {
    if memory.restless > 0.01 {
        memory.restless.min(5.0).exp2()
    } else {
        1.0
    }
}

/// The rank of each seat, fastest first.
fn ranks_of(quota: &[usize]) -> impl Iterator<Item = usize> + '_ {
    quota
        .iter()
        .enumerate()
        .flat_map(|(rank, seats)| std::iter::repeat_n(rank, *seats))
}

/// The fastest type is asked for all that it has, a slower one for what it can give: a thread that was throttled by what it
/// asked for before is not throttled on the fast core, and one that is seated low does not drive up clocks that others share.
fn clamps(topology: &Topology) -> Vec<Clamp> {
    let types: Vec<_> = topology
        .groups_by(countersteer_core::topology::GroupBy::CoreType)
        .iter()
        .filter_map(|g| g.core_type)
        .collect();
    if types.len() < 2 {
        return Vec::new();
    }
    let clamp = |(rank, t): (usize, &CoreTypeId)| match rank {
        0 => Clamp::FULL,
        _ => Clamp::at_most(topology.core_types[t.index()].capacity),
    };
    types.iter().enumerate().map(clamp).collect()
}

/// Where each type's nominal speed lies between the slowest (0) and the fastest (1).
fn between(topology: &Topology) -> Vec<f64> {
    let types = topology
        .groups_by(countersteer_core::topology::GroupBy::CoreType)
        .iter()
        .filter_map(|g| g.core_type);
    let speeds: Vec<f64> = types
        .map(|t| &topology.core_types[t.index()])
        .map(|t| f64::from(t.capacity) * t.freq_ghz * t.dispatch_width)
        .collect();
    let fast = speeds.first().copied().unwrap_or(1.0);
    let slow = speeds.last().copied().unwrap_or(1.0);
    let last = speeds.len().saturating_sub(1);
    let place = |(row, speed): (usize, &f64)| match row {
        0 => 1.0,
        _ if row == last => 0.0,
        _ if fast > slow => ((speed - slow) / (fast - slow)).clamp(0.0, 1.0),
        _ => 0.5,
    };
    speeds.iter().enumerate().map(place).collect()
}
