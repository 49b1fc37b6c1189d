//! `rr`: big cores shared evenly among applications.
//!
//! Idea: every `turn_ms` the big cores are assigned one by one. Each goes to the application with the least big-core time for
//! its weight, and within it to the thread with the least. An application can use no more big cores than it has active threads;
//! the others share the rest.
//!
//! Source: "RR" in PMCTrack, section 4.1.1 (after Becchi and Crowley, 2006, and Li et al., HPCA 2010).
//!
//! Decided here: the length of the interval. A new application starts at the least big-core time of the active ones. An
//! application that slept starts at most one interval below that.
//!
//! Assumes: equal big-core time is fair. Loses: throughput when SFs differ (`hsf`), fairness because equal time is not equal
//! slowdown (`acfs`), and an application with many threads gains little from its share.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use countersteer_model::placement::{Placement, Reason};
use countersteer_model::policy::{
    CoreSlots, ParamDef, Params, Policy, PolicyDef, PolicyError, PolicyRng, View, active,
};
use countersteer_model::topology::Topology;
use countersteer_model::units::{Nanos, ProgramId, ThreadId};

use crate::order::{Contender, Types, entries, place, ranks};
use crate::progress::nice_weight;

pub(crate) const DEF: PolicyDef = PolicyDef {
    name: "rr",
    summary: "round-robin by application: big cores shared evenly among applications",
    source: "PMCTrack, section 4.1.1 (RR)",
    params: &[ParamDef {
        key: "turn_ms",
        default: "200",
        prose: "time between choices, in ms; rounded up to the driver's period",
    }],
    make: |params, topology| Ok(Box::new(RoundRobin::new(params, topology)?)),
};

struct RoundRobin {
    turn: Nanos,
    slots: CoreSlots,
    types: Types,
    turned: Option<Nanos>,
    /// Big-core seconds credited to each application for the time before it started and while it slept.
    head_start_s: BTreeMap<ProgramId, f64>,
    /// Applications that were active at the last choice, with their nice values.
    last_active: BTreeMap<ProgramId, i8>,
    /// Smallest weighted big-core seconds of an active application. It never decreases, so it stays valid while no application
    /// is active.
    floor_s: f64,
    /// Index of each thread in the order of the last choice, from 0.
    order: BTreeMap<ThreadId, usize>,
}

impl RoundRobin {
    fn new(params: &Params, topology: &Arc<Topology>) -> Result<Self, PolicyError> {
        let slots = CoreSlots::new(topology);
        Ok(Self {
            turn: Nanos::from_secs_f64(params.number("turn_ms", 1.0)? * 1e-3),
            types: Types::new(topology, &slots),
            slots,
            turned: None,
            head_start_s: BTreeMap::new(),
            last_active: BTreeMap::new(),
            floor_s: 0.0,
            order: BTreeMap::new(),
        })
    }

    /// Returns the big-core seconds of an application.
    fn own_s(&self, view: &View<'_>, program: ProgramId) -> f64 {
        let fast = self.types.types[0];
        view.program_usage(program).map_or(0.0, |u| u.cpu_s(fast))
    }

    /// Returns the big-core seconds of an application including its credit, divided by its weight.
    fn used_s(&self, view: &View<'_>, program: ProgramId, nice: i8) -> f64 {
        let credited = self.head_start_s.get(&program).copied().unwrap_or(0.0);
        (self.own_s(view, program) + credited) / nice_weight(nice)
    }

    /// Determines the order in which threads get big cores in the next interval (RR in PMCTrack, section 4.1.1).
    fn choose(&mut self, view: &View<'_>, entries: &[Contender<'_>]) {
        let mut queues: BTreeMap<ProgramId, Vec<usize>> = BTreeMap::new();
        for (row, entry) in entries.iter().enumerate() {
            queues.entry(entry.info.program).or_default().push(row);
        }
        self.admit(view, entries, &queues);
        let fast = self.types.types[0];
        let big = |row: usize| {
            let usage = view.usage(entries[row].info.id);
            usage.map_or(0.0, |u| u.cpu_s(fast))
        };
        let on_big = |row: usize| entries[row].held == Some(0);
        for rows in queues.values_mut() {
            // The vector is sorted in reverse order, because `pop()` takes the last element first.
            rows.sort_by(|a, b| {
                big(*b)
                    .total_cmp(&big(*a))
                    .then(on_big(*a).cmp(&on_big(*b)))
                    .then(b.cmp(a))
            });
        }
        let waiting = |program: ProgramId, used_s: f64, rows: &[usize]| {
            let next = *rows.last()?;
            let off_big = !on_big(next);
            Some(Reverse(WaitingApplication {
                used_s,
                off_big,
                program,
            }))
        };
        let used = queues.iter().filter_map(|(program, rows)| {
            let used_s = self.used_s(view, *program, entries[rows[0]].info.nice);
            waiting(*program, used_s, rows)
        });
        let mut applications: BinaryHeap<Reverse<WaitingApplication>> = used.collect();
        self.order.clear();
        while let Some(Reverse(next)) = applications.pop() {
            let Some(rows) = queues.get_mut(&next.program) else {
                continue;
            };
            // The application is charged for its next interval at once. Another application then comes first, unless it has had
            // more big-core time for its weight.
            let step = self.turn.as_secs_f64() / nice_weight(entries[rows[0]].info.nice);
            if let Some(row) = rows.pop() {
                self.order.insert(entries[row].info.id, self.order.len());
            }
            applications.extend(waiting(next.program, next.used_s + step, rows));
        }
    }

    /// Sets the credits of applications that start or wake. A new one starts at the smallest time of the others, one that slept
    /// at most one interval below it. Absence is thus neither an advantage nor a disadvantage.
    fn admit(
        &mut self,
        view: &View<'_>,
        entries: &[Contender<'_>],
        queues: &BTreeMap<ProgramId, Vec<usize>>,
    ) {
        let least_of_last = |who_stayed: bool| {
            let last = self.last_active.iter();
            last.filter(|(program, _)| !who_stayed || queues.contains_key(program))
                .map(|(program, nice)| self.used_s(view, *program, *nice))
                .reduce(f64::min)
        };
        // If none of the applications stayed active, the times of those that just became inactive are used.
        let reached = least_of_last(true).or_else(|| least_of_last(false));
        self.floor_s = self.floor_s.max(reached.unwrap_or(0.0));
        self.last_active.clear();
        for (program, rows) in queues {
            let nice = entries[rows[0]].info.nice;
            let known = self.head_start_s.get(program).copied();
            // Sleep earns at most one interval of big-core time, and a new application none.
            let slack_s = known.map_or(0.0, |_| self.turn.as_secs_f64());
            let least = (self.floor_s - slack_s) * nice_weight(nice);
            let start = least - self.own_s(view, *program);
            self.head_start_s
                .insert(*program, known.unwrap_or(0.0).max(start));
            self.last_active.insert(*program, nice);
        }
        self.head_start_s
            .retain(|program, _| view.may_return(*program));
    }
}

/// Application with threads that have no place in the order yet. The application with the smallest projected big-core time
/// comes first. Among equals, one whose next thread is on a big core comes first.
struct WaitingApplication {
    used_s: f64,
    off_big: bool,
    program: ProgramId,
}

impl Ord for WaitingApplication {
    fn cmp(&self, other: &Self) -> Ordering {
        self.used_s
            .total_cmp(&other.used_s)
            .then(self.off_big.cmp(&other.off_big))
            .then(self.program.cmp(&other.program))
    }
}

impl PartialOrd for WaitingApplication {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for WaitingApplication {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for WaitingApplication {}

impl Policy for RoundRobin {
    fn tune(&mut self, params: &Params, topology: &Arc<Topology>) -> Result<(), PolicyError> {
        *self = Self {
            turned: self.turned,
            head_start_s: std::mem::take(&mut self.head_start_s),
            last_active: std::mem::take(&mut self.last_active),
            floor_s: self.floor_s,
            order: std::mem::take(&mut self.order),
            ..Self::new(params, topology)?
        };
        Ok(())
    }

    fn decide(&mut self, view: &mut View<'_>, _: &mut PolicyRng) -> Placement {
        let present = active(view);
        let mut entries = entries(&present, &self.slots);
        let quota = self.slots.quota(entries.len());
        let due = self
            .turned
            .is_none_or(|turned| view.now.since(turned) >= self.turn);
        if due && !self.types.types.is_empty() {
            self.choose(view, &entries);
            self.turned = Some(view.now);
        }
        for entry in &mut entries {
            let last = self.order.len();
            let nth = self.order.get(&entry.info.id).copied().unwrap_or(last);
            entry.key = -(nth as f64);
        }
        let ranks = ranks(&entries, &quota, |holder, challenger| {
            due && challenger > holder
        });
        place(&mut self.slots, &entries, &ranks, |row| {
            let info = entries[row].info;
            let used = self.types.types.first().map_or(0.0, |fast| {
                view.program_usage(info.program)
                    .map_or(0.0, |u| u.cpu_s(*fast))
            });
            Reason::rule("big cores go to the application that has had them least")
                .saw("its program's seconds on big cores", Some(used))
        })
    }
}
