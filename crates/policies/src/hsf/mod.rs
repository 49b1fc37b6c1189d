//! `hsf`: the threads with the highest speed-up factors run on the fastest cores.
//!
//! Idea: aggregate speed-up is the sum over threads on big cores of SF - 1, so it is greatest if the big cores go to the
//! highest SFs. Threads are ranked by SF and placed by core type, fastest first. Threads of one application are ranked by the
//! value of big cores to the application (`tlp`), so that a serial phase comes before a parallel one.
//!
//! Source: "HSP" in PMCTrack, section 4.1.1; "HSF" in PMCSched, section 4 (after Koufaty et al., EuroSys 2010, and Saez et al.,
//! TOCS 2012). PMCSched's variants: HSF/BS is `hsf`, HSF/B is `hsf:sf=history`, HSF/TD is `hsf:sf=history,history=td`.
//!
//! Assumes: one thread's speed does not depend on the places of the others. Loses: when shared caches or bandwidth decide; when
//! fairness matters (the slowest threads never run on a big core); with threads of a parallel program that wait for each other.
//! `sf=td` is close to chance, since Thread Director's factors do not correlate with the true ones. `sf=history` loses time to
//! moves if phases are many and short.
//!
//! The papers leave some questions open; decided here:
//!
//! - Hysteresis: a thread on a faster type keeps its core slot against a challenger that is ahead by less than `margin`. It
//!   loses the slot once its own SF has ranked it lower for `patience` consecutive decisions. Real differences thus win however
//!   small, and noise rarely does. Each recent move of a thread doubles its margin and patience. This ends the ping-pong of a
//!   model that disagrees with itself across core types.
//! - Threads without SF count as average. `sf=sampled` and `sf=work`, and `sf=model` for threads on which the model abstains,
//!   need a run on the fastest and on the slowest type. Threads without an SF are sent to the type that lacks a measurement.
//!   Every `refresh_ms` the thread with the oldest measurement is sent again. With `phases=on`, threads that have begun another
//!   phase since their measurement go first, and wait only a quarter of `refresh_ms`.
//! - With `sf=history` a thread on a slow core is sent to a big core for three decisions if its phase was in no table at two
//!   samples. The thread that gains least there is exchanged for it. The visitor is then ranked again without a claim to that
//!   core slot. Only one thread is sent at a time. The same thread waits at least 2 s, and twice as long after each visit that
//!   changed nothing (at most 32 s). PMCSched names such a throttle, but no numbers. These moves have a reason of their own in
//!   the record.
//! - The formulas of applications take the SF of each thread instead of the mean of all; both are equal if threads are alike.
//!   Threads whose SF is within `margin` of the mean alternate on the big cores that they got, every `turn_ms`. This makes no
//!   difference to the application's value.
//! - Hints of programs about their threads: a priority weighs the thread's SF, against those of its own program's threads only.
//!   A thread that spins or is blocked is ranked last. Just before it come threads for which, by their hint, the slowest type
//!   is fast enough (`qos_permille`). Neither is sent to be measured.
//! - With `sf=model` a thread's first second of CPU time is left to Linux (`young_ms`): moves of threads that may end soon do
//!   not pay back. Only an idle core of a faster type is used at once, by one move. Young threads are never sent to be measured, and other threads come before them.
//! - With `sf=model` threads that sleep much of the time are left to Linux, which chooses a core at each wakeup. They would
//!   otherwise be confined to slow cores while fast ones are idle. As long as there are such threads, there is no admission
//!   table, since an engine in the kernel would send each of them to the fast cores at each wakeup.
//! - With `clamp=on` the frequency follows the core slot. A thread that comes to a fast core gets its full frequency at once,
//!   instead of when its load has grown there. A thread on a slow core does not keep up clocks from which it gains little.

mod admission;
mod candidate;
mod explore;
mod rank;
mod source;
mod speeds;

use std::sync::Arc;

use countersteer_model::engine::ThreadInfo;
use countersteer_model::placement::{
    AdmissionTable, Clamp, Placement, Reason, Target, ThreadPlacement,
};
use countersteer_model::policy::{
    CoreSlots, HintClass, Needs, ParamDef, Params, Policy, PolicyDef, PolicyError, PolicyRng, View,
};
use countersteer_model::topology::Topology;
use countersteer_model::units::{GroupId, Nanos, ThreadId};

use crate::life::{Lives, YOUNG};
use crate::order::free;
use candidate::{HsfCandidate, ThreadMemory, Trip};
use explore::Visit;
use source::{Learns, SpeedupSource};

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
                    either type), td (Thread Director's classes on big cores, 2.5 elsewhere; simulator only), history (estimates on big cores, \
                    kept by phase for use on small ones), work (the same by the work that programs say they do, sleep included, where nothing \
                    counts instructions or they tell little), oracle (the truth; simulator only)",
        },
        ParamDef {
            key: "history",
            default: "model",
            prose: "with sf=history: where estimates on big cores come from, model (counters) or td (Thread Director; simulator only)",
        },
        ParamDef {
            key: "tlp",
            default: "speedup",
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
            prose: "a challenger must be ahead by this fraction to take a core slot at once",
        },
        ParamDef {
            key: "patience",
            default: "10",
            prose: "decisions in a row after which a thread that is ranked lower loses its core slot to any challenger",
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
            key: "young_ms",
            default: "auto",
            prose: "expected CPU time in ms below which a thread is left to Linux. Expected is what the thread has had, or the mean of \
                    its program's earlier threads. auto: 1000 with sf=model, 0 with others; 0: no thread is left to Linux",
        },
        ParamDef {
            key: "clamp",
            default: "off",
            prose: "on: threads on the fastest cores are taken to ask for all of them, those on slower ones for no more than \
                    a slower core can give, so that frequencies follow the core slots (uclamp and energy preferences of \
                    real machines; in the simulator with the governor `schedutil`)",
        },
    ],
    make: |params, topology| Ok(Box::new(Hsf::new(params, topology)?)),
};

/// Quantity by which threads are ranked: the thread's own factor, or the benefit to its application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tlp {
    Thread,
    Speedup,
    Camp,
    PerCore,
}

struct Hsf {
    needs: Needs,
    source: SpeedupSource,
    tlp: Tlp,
    turn: Nanos,
    /// Time at which the threads of applications last alternated on the big cores.
    turned: Nanos,
    margin: f64,
    patience: f64,
    refresh: Nanos,
    slots: CoreSlots,
    memory: Vec<ThreadMemory>,
    last_refresh: Nanos,
    /// Visit of a thread to a big core that is under way; `None` if there is none.
    visit: Option<Visit>,
    /// True if a thread was sent for a measurement at the last decision. Moves back then do not count as changes of rank.
    exploring: bool,
    table: Option<AdmissionTable>,
    /// Frequency hint of each rank; empty with `clamp=off` or with only one core type.
    clamps: Vec<Clamp>,
    /// Relative speed of each rank, from 0 (slowest type) to 1 (fastest type), for predictions on types in between.
    between: Vec<f64>,
    lives: Lives,
    /// Identifier of the core group with all CPUs.
    everywhere: GroupId,
}

/// Default of `young_ms` with `sf=model`: CPU time in ms below which a thread is young.
const YOUNG_MS: f64 = 1_000.0;

impl Hsf {
    fn new(params: &Params, topology: &Arc<Topology>) -> Result<Self, PolicyError> {
        let source = SpeedupSource::new(params)?;
        let kinds = [
            ("thread", Tlp::Thread),
            ("speedup", Tlp::Speedup),
            ("camp", Tlp::Camp),
            ("per-core", Tlp::PerCore),
        ];
        let phases = params.choice("phases", &[("off", false), ("on", true)])?;
        let phases = phases && source.metric == "sf_sampled";
        let young_ms = match params.text(YOUNG) {
            "auto" if source.metric == "sf" => YOUNG_MS,
            "auto" => 0.0,
            _ => params.number(YOUNG, 0.0)?,
        };
        let mut metrics: Vec<&'static str> =
            [source.metric].into_iter().chain(source.beside).collect();
        if phases {
            // Phase changes are derived from the events of this metric.
            metrics.push("sf_steps");
        }
        Ok(Self {
            needs: Needs {
                metrics,
                phases,
                ..Needs::NOTHING
            },
            source,
            tlp: params.choice("tlp", &kinds)?,
            turn: Nanos::from_secs_f64(params.number("turn_ms", 1.0)? * 1e-3),
            turned: Nanos::ZERO,
            margin: params.number("margin", 0.0)?,
            patience: params.number("patience", 1.0)?,
            refresh: Nanos::from_secs_f64(params.number("refresh_ms", 1.0)? * 1e-3),
            clamps: if params.choice("clamp", &[("off", false), ("on", true)])? {
                speeds::clamps(topology)
            } else {
                Vec::new()
            },
            between: speeds::between(topology),
            lives: Lives::new(young_ms * 1e-3),
            everywhere: topology.groups[0].id,
            slots: CoreSlots::new(topology),
            memory: Vec::new(),
            last_refresh: Nanos::ZERO,
            visit: None,
            exploring: false,
            table: None,
        })
    }

    /// Stores the state of active threads for the next decision, and keeps that of sleeping ones. Moves of alternating threads
    /// do not count as changes of rank.
    fn remember(
        &mut self,
        view: &View<'_>,
        all: &[HsfCandidate<'_>],
        ranks: &[usize],
        turned: bool,
    ) {
        let sent = turned || all.iter().any(|c| c.sent.is_some() || c.visits);
        let explored = std::mem::replace(&mut self.exploring, sent) || sent;
        let memories = all.iter().zip(ranks).map(|(c, rank)| {
            // With the factor 0.97 per decision, half of the count decays in about 23 decisions.
            let moved = c.assigned.is_some_and(|assigned| assigned != *rank) && !explored;
            let mut memory = ThreadMemory {
                restless: c.memory.restless * 0.97 + f64::from(u8::from(moved)),
                ..c.memory
            };
            if c.sent == Some(Trip::Measure) {
                self.note_place(&mut memory, *rank, view.now);
            }
            memory
        });
        let memories: Vec<ThreadMemory> = memories.collect();
        self.memory.retain(|m| {
            let active = all.binary_search_by_key(&m.thread, |c| c.info.id);
            active.is_err() && view.lives(m.thread)
        });
        self.memory.extend(memories);
        self.memory.sort_by_key(|m| m.thread);
    }

    /// Returns the young threads and the sleepers, in ascending order of ids.
    fn left<'a>(&self, view: &View<'a>, young: &[&'a ThreadInfo]) -> Vec<&'a ThreadInfo> {
        let is_left = |t: &&ThreadInfo| {
            self.is_sleeper(t.id) || young.binary_search_by_key(&t.id, |y| y.id).is_ok()
        };
        view.threads.iter().filter(is_left).collect()
    }

    /// True if a thread is left to Linux since it sleeps much of the time.
    fn is_sleeper(&self, thread: ThreadId) -> bool {
        !self.lives.is_off() && self.lives.sleeps(thread)
    }

    fn reason(&self, c: &HsfCandidate<'_>, rank: usize) -> Reason {
        let ranks = self.slots.ranks().iter().zip(&self.between);
        let predicted =
            c.sf.map(|sf| ranks.map(move |(r, x)| (r.group, 1.0 + (sf - 1.0) * x)));
        let hint = c.info.hint.filter(|t| t.priority != 0);
        Reason::rule(rule(c, rank))
            .saw(self.source.metric, c.sf)
            .saw("priority", hint.map(|t| t.priority.into()))
            .against(
                "times the speed on the slowest type",
                predicted.into_iter().flatten(),
            )
    }
}

/// Returns the rule for a thread's rank, as the reason of its placement.
fn rule(c: &HsfCandidate<'_>, rank: usize) -> &'static str {
    match (c.sent, c.sf, c.assigned) {
        (Some(Trip::Measure), ..) => "sent to be measured on this core type",
        (Some(Trip::Refresh), ..) => {
            "sent to a big core since its phase is not in its history table"
        }
        _ if rank > 0 && c.class != HintClass::Full => c.class.rule().unwrap_or_default(),
        (_, None, _) => "no speed-up factor yet: taken as the average of the others",
        (.., Some(assigned)) if assigned == rank => "keeps its core type",
        (.., Some(assigned)) if assigned < rank && c.visits => {
            "was on a big core for its history table, and others gain more there"
        }
        (.., Some(assigned)) if assigned < rank => "others gain more from its faster core",
        (.., Some(_)) => "gains more from a faster core than who had it",
        _ => "ranked by speed-up factor",
    }
}

impl Policy for Hsf {
    fn needs(&self) -> &Needs {
        &self.needs
    }

    fn tune(&mut self, params: &Params, topology: &Arc<Topology>) -> Result<(), PolicyError> {
        let new = Self::new(params, topology)?;
        // Without clamps in the new parameters, nothing would remove the hints in effect.
        if new.clamps.is_empty() != self.clamps.is_empty() {
            return Err(PolicyError::Fixed);
        }
        *self = Self {
            turned: self.turned,
            memory: std::mem::take(&mut self.memory),
            last_refresh: self.last_refresh,
            exploring: self.exploring,
            table: self.table.take(),
            lives: self.lives.tuned(new.lives),
            ..new
        };
        Ok(())
    }

    fn decide(&mut self, view: &mut View<'_>, _: &mut PolicyRng) -> Placement {
        self.lives.note(view);
        let (mut all, programs) = self.candidates(view);
        let quota = free(self.slots.quota(all.len()), all.iter().map(|c| c.stuck));
        if quota.is_empty() {
            return Placement::default();
        }
        match self.source.learns {
            Learns::Nothing => {}
            Learns::ByMeasuring => self.explore(&mut all, view.now, &quota),
            Learns::OnBigCores => self.refresh_history(&mut all, view.now, &quota),
        }
        self.doubt(&mut all, &quota);
        let mut ranks = self.rank(&all, &quota);
        self.end_visit(&mut all, &ranks);
        let sleepers = view.threads.iter().any(|t| self.is_sleeper(t.id));
        let admission = self.admission(&all, &ranks, sleepers);
        let turned = self.take_turns(view, &all, &programs, &mut ranks);
        let (young, old): (Vec<usize>, Vec<usize>) =
            (0..all.len()).partition(|row| all[*row].young);
        let wanted: Vec<(&ThreadInfo, usize)> = old
            .iter()
            .map(|row| (all[*row].info, ranks[*row]))
            .collect();
        let moves = self.slots.assign(&wanted, true);
        let place = |(nth, group): (usize, GroupId)| {
            let row = old[nth];
            let c = &all[row];
            let rank = ranks[row];
            let placed =
                ThreadPlacement::new(c.info.id, Target::Group(group), self.reason(c, rank));
            ThreadPlacement {
                clamp: self.clamps.get(rank).copied(),
                ..placed
            }
        };
        let mut threads: Vec<ThreadPlacement> = moves.into_iter().map(place).collect();
        let young: Vec<&ThreadInfo> = young.iter().map(|row| all[*row].info).collect();
        let left = self.left(view, &young);
        threads.extend(self.lives.leave(view, &left));
        threads.sort_by_key(|t| t.thread);
        self.remember(view, &all, &ranks, turned);
        Placement {
            threads,
            admission,
            ..Placement::default()
        }
    }
}
