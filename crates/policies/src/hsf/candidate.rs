//! State of each thread at a decision: its factor, the value of big cores to it, and its history.

use std::collections::BTreeSet;

use countersteer_model::by_id::ById;
use countersteer_model::engine::{ThreadEventKind, ThreadInfo};
use countersteer_model::policy::{HintClass, Present, View, active, weights};
use countersteer_model::units::{Nanos, ProgramId, ThreadId};

use super::{Hsf, Tlp};
use crate::speedup::{self, Active, Kind};

/// State of a thread between decisions.
#[derive(Clone, Copy, Default)]
pub(super) struct Memory {
    pub thread: ThreadId,
    /// Consecutive decisions that ranked it below its assigned rank.
    pub doubt: u32,
    /// Number of moves, decaying.
    pub restless: f64,
    /// Times of the last whole interval on the fastest and on the slowest type, or of the last trip there.
    pub been: [Option<Nanos>; 2],
    /// True if it has begun another phase since.
    pub changed: bool,
    /// Number of repeated measurements without a result.
    pub fruitless: u32,
    /// Time of the last trip to a big core because its phase was in no table, and the least time until the next.
    pub forced: Option<Nanos>,
    pub gap: Nanos,
}

impl Memory {
    /// Factor on the thread's hysteresis, at least 1; it doubles for each recent move.
    pub fn strength(&self) -> f64 {
        if self.restless > 0.01 {
            self.restless.min(5.0).exp2()
        } else {
            1.0
        }
    }
}

/// Reason for sending a thread to a core type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trip {
    /// Measure it on a type that lacks a measurement.
    Measure,
    /// Add its phase to its history table.
    Refresh,
}

/// Thread in this decision.
pub(super) struct Candidate<'a> {
    pub info: &'a ThreadInfo,
    pub sf: Option<f64>,
    /// Class from its program's hint.
    pub class: HintClass,
    /// Key for the rank: its SF or the average, weighted; infinite if it is sent to be measured.
    pub key: f64,
    /// Rank assigned to it, if any.
    pub assigned: Option<usize>,
    /// Rank of its present core if it refuses to leave; else `None`.
    pub stuck: Option<usize>,
    pub memory: Memory,
    pub sent: Option<Trip>,
    /// True if it was sent to its present core, and so has no claim to that core slot.
    pub visits: bool,
    /// True if it is ranked by its own factor: it is the only active thread of its program, or each thread counts for itself.
    pub alone: bool,
    /// True if its factor has to be measured.
    pub measured: bool,
    /// Consecutive samples whose phase is in no table.
    pub misses: f64,
    /// True if it is left to the kernel.
    pub young: bool,
}

impl Candidate<'_> {
    pub fn send(&mut self, trip: Trip, key: f64) {
        self.key = key;
        self.sent = Some(trip);
    }
}

/// Programs with active threads.
pub(super) type Programs = ById<ProgramId, Active>;

/// Marks the threads that have begun another phase.
fn note_phases(view: &View<'_>, all: &mut [Candidate<'_>]) {
    let events = view.events.iter();
    let phases = events.filter(|e| e.kind == ThreadEventKind::Phase);
    let changed: BTreeSet<ThreadId> = phases.map(|e| e.thread).collect();
    for c in all {
        c.memory.changed |= changed.contains(&c.info.id);
    }
}

impl Hsf {
    /// Active threads by id, and their programs if these count.
    pub(super) fn candidates<'a>(&self, view: &View<'a>) -> (Vec<Candidate<'a>>, Programs) {
        let active = active(view);
        let mut all = self.known(view, &active);
        if self.needs.phases {
            note_phases(view, &mut all);
        }
        let average = average(&all);
        let programs = match self.tlp {
            Tlp::Thread => Programs::default(),
            _ => {
                let factors: Vec<Option<f64>> = all.iter().map(|c| c.sf).collect();
                // As in `average`, 1 if no factor is known.
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

    fn known<'a>(&self, view: &View<'a>, active: &[&'a ThreadInfo]) -> Vec<Candidate<'a>> {
        let slowest = self.slots.ranks().len().saturating_sub(1);
        let mut factors = view.column(self.source.metric);
        let mut beside = view.column(self.source.beside.unwrap_or_default());
        let mut memories = self.memory.iter().peekable();
        let present = self.slots.present_of(active);
        let candidate = |(info, present): (&'a ThreadInfo, Present)| {
            while memories.next_if(|m| m.thread < info.id).is_some() {}
            let memory = memories.next_if(|m| m.thread == info.id).copied();
            let memory = memory.unwrap_or(Memory {
                thread: info.id,
                ..Memory::default()
            });
            let sf = factors.get(info.id);
            let sf = sf.filter(|sf| sf.is_finite() && *sf > 0.0);
            let beside = beside.get(info.id);
            let slack = self.margin * memory.strength();
            Candidate {
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

    /// Value of big cores to an application whose threads are like this one.
    fn worth(&self, program: &Active, sf: Option<f64>) -> f64 {
        let big = self.slots.ranks().first().map_or(0, |r| r.cores.len());
        let sf = sf.unwrap_or(program.sf);
        let threads = program.threads;
        match self.tlp {
            Tlp::Thread => sf,
            Tlp::Speedup => speedup::application(Kind::Dynamic, sf, threads, big),
            Tlp::Camp => speedup::utility(sf, threads, big),
            Tlp::PerCore => 1.0 + (sf - 1.0) / threads as f64,
        }
    }
}

/// Mean factor of the threads that do not wait; 1 if none is known.
fn average(all: &[Candidate<'_>]) -> f64 {
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
