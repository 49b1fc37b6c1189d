//! What is known of each thread at a decision: its factor, what big cores are worth to it, and what is remembered of it.

use std::collections::BTreeSet;

use countersteer_model::by_id::ById;
use countersteer_model::engine::{ThreadEventKind, ThreadInfo};
use countersteer_model::policy::{HintClass, Present, View, active, weights};
use countersteer_model::units::{Nanos, ProgramId, ThreadId};

use super::{Hsf, Tlp};
use crate::speedup::{self, Active, Kind};

/// What is remembered about a thread.
#[derive(Clone, Copy, Default)]
pub(super) struct Memory {
    pub thread: ThreadId,
    /// Decisions in a row that ranked it below the one it was assigned.
    pub doubt: u32,
    /// Moves, fading.
    pub restless: f64,
    /// When it last had a whole interval on the fastest and on the slowest type, or was sent there.
    pub been: [Option<Nanos>; 2],
    /// It has begun another phase since.
    pub changed: bool,
    /// How often it was sent to be measured again although nothing had come of that.
    pub fruitless: u32,
    /// When it was last sent to a big core because its phase was in no table, and how long it then has to wait.
    pub forced: Option<Nanos>,
    pub gap: Nanos,
}

impl Memory {
    /// How much firmer the thread is held to where it is, for having been moved lately.
    pub fn strength(&self) -> f64 {
        if self.restless > 0.01 {
            self.restless.min(5.0).exp2()
        } else {
            1.0
        }
    }
}

/// Why a thread is sent somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trip {
    /// To be measured on the type where it was not.
    Measure,
    /// To have its phase put into its history table.
    Refresh,
}

/// A thread in this decision.
pub(super) struct Candidate<'a> {
    pub info: &'a ThreadInfo,
    pub sf: Option<f64>,
    /// What its program's word makes of it.
    pub class: HintClass,
    /// What it is ranked by: its SF or the average, weighed, or infinite when it is sent somewhere to be measured.
    pub key: f64,
    /// The rank it was assigned, if any.
    pub assigned: Option<usize>,
    /// The rank where it is, if it refuses to leave that.
    pub stuck: Option<usize>,
    pub memory: Memory,
    pub sent: Option<Trip>,
    /// It was sent where it is: it has no claim to that core slot.
    pub visits: bool,
    /// It is ranked by its own factor: it is the only active thread of its program, or each counts for itself.
    pub alone: bool,
    /// Its factor is one that it has to be measured for.
    pub measured: bool,
    /// Samples in a row whose phase is in no table.
    pub misses: f64,
    /// It is left to the kernel.
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

/// Notes which threads are in another phase than before.
fn note_phases(view: &View<'_>, all: &mut [Candidate<'_>]) {
    let events = view.events.iter();
    let phases = events.filter(|e| e.kind == ThreadEventKind::Phase);
    let changed: BTreeSet<ThreadId> = phases.map(|e| e.thread).collect();
    for c in all {
        c.memory.changed |= changed.contains(&c.info.id);
    }
}

impl Hsf {
    /// The active threads, by id, and their programs where these count.
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
                // As `average` is.
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

    /// What big cores are worth to an application whose threads are like this one.
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

/// The mean factor of the threads that make use of what they get; 1 where none is known.
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
