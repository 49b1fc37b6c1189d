//! State of each thread at a decision: its factor, its benefit from big cores, and its history.

use std::collections::BTreeSet;

use countersteer_model::by_id::ById;
use countersteer_model::engine::{ThreadEventKind, ThreadInfo};
use countersteer_model::policy::{HintClass, PresentRank, View, active, weights};
use countersteer_model::units::{Nanos, ProgramId, ThreadId};

use super::{Hsf, Tlp};
use crate::speedup::{self, Active, WorkDivision};

/// State of a thread that is kept between decisions.
#[derive(Clone, Copy, Default)]
pub(super) struct ThreadMemory {
    pub thread: ThreadId,
    /// Number of consecutive decisions that ranked the thread below its assigned rank.
    pub doubt: u32,
    /// Number of moves of the thread, with exponential decay.
    pub restless: f64,
    /// Time at which the thread was last placed on the fastest and on the slowest type; `None` if it never was.
    pub been: [Option<Nanos>; 2],
    /// True if the thread's phase changed since its last measurement.
    pub changed: bool,
    /// Number of repeated measurements that gave no factor.
    pub fruitless: u32,
    /// Time of the last visit to a big core for a phase without a table entry.
    pub forced: Option<Nanos>,
    /// Minimum time until the next such visit.
    pub gap: Nanos,
}

impl ThreadMemory {
    /// Returns the factor on the thread's hysteresis, at least 1; it doubles per recent move.
    pub fn strength(&self) -> f64 {
        if self.restless > 0.01 {
            self.restless.min(5.0).exp2()
        } else {
            1.0
        }
    }
}

/// Reason for which a thread is sent to a core type apart from its rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trip {
    /// The thread is sent to a core type on which its speed was not measured.
    Measure,
    /// The thread is sent to a big core to add its phase to its history table.
    Refresh,
}

/// Thread that competes for core slots in this decision.
pub(super) struct HsfCandidate<'a> {
    pub info: &'a ThreadInfo,
    pub sf: Option<f64>,
    /// Class of the thread by its application hint.
    pub class: HintClass,
    /// Key by which the thread is ranked: its SF or the average of others, weighted by priority. Infinite if it is sent for a
    /// measurement.
    pub key: f64,
    /// Rank (core type) that the thread was last assigned; `None` if it has none.
    pub assigned: Option<usize>,
    /// Rank of the thread's current core if the thread cannot be moved off it; otherwise `None`.
    pub stuck: Option<usize>,
    /// State kept from the last decision.
    pub memory: ThreadMemory,
    /// Reason for which the thread is sent to a core type apart from its rank; `None` if it is ranked.
    pub sent: Option<Trip>,
    /// True if the thread is on its core only for a visit, and so has no claim to that core slot.
    pub visits: bool,
    /// True if the thread is ranked by its own factor: it is the only active thread of its program, or `tlp=thread`.
    pub alone: bool,
    /// True if the thread's factor must be measured on both core types.
    pub measured: bool,
    /// Number of consecutive samples whose phase is not in the history table.
    pub misses: f64,
    /// True if the thread is young, so that the kernel places it.
    pub young: bool,
}

impl HsfCandidate<'_> {
    pub fn send(&mut self, trip: Trip, key: f64) {
        self.key = key;
        self.sent = Some(trip);
    }
}

/// Programs with active threads, by id.
pub(super) type ActivePrograms = ById<ProgramId, Active>;

/// Marks the threads whose phase changed since the last decision.
fn note_phases(view: &View<'_>, all: &mut [HsfCandidate<'_>]) {
    let events = view.events.iter();
    let phases = events.filter(|e| e.kind == ThreadEventKind::Phase);
    let changed: BTreeSet<ThreadId> = phases.map(|e| e.thread).collect();
    for c in all {
        c.memory.changed |= changed.contains(&c.info.id);
    }
}

impl Hsf {
    /// Returns the active threads in ascending order of ids, and their programs unless `tlp=thread`.
    pub(super) fn candidates<'a>(
        &self,
        view: &View<'a>,
    ) -> (Vec<HsfCandidate<'a>>, ActivePrograms) {
        let mut active = active(view);
        active.retain(|t| !self.is_sleeper(t.id));
        let mut all = self.known(view, &active);
        if self.needs.phases {
            note_phases(view, &mut all);
        }
        let average = average(&all);
        let programs = match self.tlp {
            Tlp::Thread => ActivePrograms::default(),
            _ => {
                let factors: Vec<Option<f64>> = all.iter().map(|c| c.sf).collect();
                // As in `average`, the factor is 1 if none is known.
                speedup::programs(&active, &factors, 1.0)
            }
        };
        let mut of_program = programs.reader();
        for (c, weight) in all.iter_mut().zip(weights(&active)) {
            let program = of_program.get(c.info.program);
            c.alone = program.is_none_or(|p| p.threads <= 1);
            let worth = match program {
                Some(program) if !c.alone => self.worth(program, c.sf),
                _ => c.sf.unwrap_or(average),
            };
            c.key = if c.young {
                0.0
            } else {
                worth * weight * c.class.factor()
            };
        }
        (all, programs)
    }

    fn known<'a>(&self, view: &View<'a>, active: &[&'a ThreadInfo]) -> Vec<HsfCandidate<'a>> {
        let slowest = self.slots.ranks().len().saturating_sub(1);
        let mut factors = view.column(self.source.metric);
        let mut beside = view.column(self.source.beside.unwrap_or_default());
        let mut memories = self.memory.iter().peekable();
        let present = self.slots.present_of(active);
        let candidate = |(info, present): (&'a ThreadInfo, PresentRank)| {
            while memories.next_if(|m| m.thread < info.id).is_some() {}
            let memory = memories.next_if(|m| m.thread == info.id).copied();
            let memory = memory.unwrap_or(ThreadMemory {
                thread: info.id,
                ..ThreadMemory::default()
            });
            let sf = factors.get(info.id);
            let sf = sf.filter(|sf| sf.is_finite() && *sf > 0.0);
            let beside = beside.get(info.id);
            let slack = self.margin * memory.strength();
            HsfCandidate {
                info,
                sf,
                class: HintClass::of(info, sf, present.rank == slowest, slack),
                key: 0.0,
                assigned: present.given.then_some(present.rank),
                stuck: present.stuck,
                memory,
                sent: None,
                visits: false,
                alone: true,
                measured: self.source.is_measured(beside),
                misses: beside.unwrap_or(0.0),
                young: self.lives.is_young(info.id),
            }
        };
        active.iter().copied().zip(present).map(candidate).collect()
    }

    /// Returns the benefit of big cores to a program whose threads all have this factor, by the formula of `tlp`.
    fn worth(&self, program: &Active, sf: Option<f64>) -> f64 {
        let big = self.slots.ranks().first().map_or(0, |r| r.cores.len());
        let sf = sf.unwrap_or(program.sf);
        let threads = program.threads;
        match self.tlp {
            Tlp::Thread => sf,
            Tlp::Speedup => speedup::application(WorkDivision::Dynamic, sf, threads, big),
            Tlp::Camp => speedup::utility(sf, threads, big),
            Tlp::PerCore => 1.0 + (sf - 1.0) / threads as f64,
        }
    }
}

/// Returns the mean factor of the threads that do not spin or block; 1 if no factor is known.
fn average(all: &[HsfCandidate<'_>]) -> f64 {
    let known = all
        .iter()
        .filter(|c| c.class != HintClass::Waiting)
        .filter_map(|c| c.sf);
    let (sum, count) = known.fold((0.0, 0u32), |(sum, count), sf| (sum + sf, count + 1));
    if count > 0 {
        sum / f64::from(count)
    } else {
        1.0
    }
}
