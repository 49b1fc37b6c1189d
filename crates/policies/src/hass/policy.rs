//! Threads of partitions: they enter, are rated by their signatures, refresh and leave (HASS, section 4).

use std::collections::BTreeMap;
use std::sync::Arc;

use countersteer_model::engine::{ThreadEventKind, ThreadInfo};
use countersteer_model::placement::{Placement, Reason, ThreadPlacement};
use countersteer_model::policy::{Needs, Params, Policy, PolicyError, PolicyRng, View, active};
use countersteer_model::signature::Signature;
use countersteer_model::topology::Topology;
use countersteer_model::units::ThreadId;

use super::partitions::{CorePartition, partitions};
use super::recognized::Recognized;
use crate::progress::nice_weight;

/// Signature by which a thread is placed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SignatureSource {
    /// Signature of the whole run.
    Program,
    /// Signature of the present phase: as the engine marks it, or else as counters tell.
    Phase,
    /// Signature of the present phase, as counters tell.
    Counted,
}

/// Thread with its ratings.
pub(super) struct RatedThread {
    pub home: usize,
    pub signature: Option<Signature>,
    /// Rating of the thread on each partition: its speed alone there, relative to that on the slowest partition.
    pub ratings: Vec<f64>,
    /// Seconds per instruction of the thread alone on the slowest partition.
    pub slowest_s: f64,
    /// Weight of the thread's nice value.
    pub weight: f64,
    /// CPU time of the thread at its last refresh, in seconds.
    looked_s: f64,
    /// True if the thread is runnable.
    pub active: bool,
    /// True if the thread was placed in its partition.
    placed: bool,
}

pub(super) struct Hass {
    refresh_s: f64,
    pub(super) probes: u32,
    pub(super) margin: f64,
    pub(super) shared: bool,
    source: SignatureSource,
    needs: Needs,
    /// Phases of the programs of threads, with `signatures=counted` or where the engine does not mark phases.
    recognized: BTreeMap<ThreadId, Recognized>,
    priorities: bool,
    pub(super) partitions: Vec<CorePartition>,
    pub(super) members: BTreeMap<ThreadId, RatedThread>,
    /// Active threads of each partition, in ascending order of ids.
    pub(super) rooms: Vec<Vec<ThreadId>>,
    /// Sum of the weights of each partition's active threads.
    pub(super) weights: Vec<f64>,
}

impl Hass {
    pub fn new(params: &Params, topology: &Arc<Topology>) -> Result<Self, PolicyError> {
        let switch = |key| params.choice(key, &[("off", false), ("on", true)]);
        let shared = switch("shared-cache")?;
        let partitions = partitions(topology, shared);
        let sources = [
            ("program", SignatureSource::Program),
            ("phase", SignatureSource::Phase),
            ("counted", SignatureSource::Counted),
        ];
        let source = params.choice("signatures", &sources)?;
        Ok(Self {
            refresh_s: params.number("refresh_ms", 1.0)? * 1e-3,
            probes: params.number("probes", 0.0)? as u32,
            margin: params.number("margin", 0.0)?,
            shared,
            needs: if source == SignatureSource::Program {
                Needs::EVENTS
            } else {
                Needs {
                    metrics: vec!["l2_mpki", "llc_mpki"],
                    ..Needs::EVENTS
                }
            },
            source,
            recognized: BTreeMap::new(),
            priorities: switch("priorities")?,
            rooms: vec![Vec::new(); partitions.len()],
            weights: vec![0.0; partitions.len()],
            partitions,
            members: BTreeMap::new(),
        })
    }

    fn signature(&self, view: &mut View<'_>, thread: ThreadId) -> Option<Signature> {
        let forecast = view.forecast.as_mut()?;
        if self.source == SignatureSource::Phase && forecast.marks_phases() {
            return forecast.phase_signature(thread);
        }
        let known = self.recognized.get(&thread).and_then(|r| r.signature());
        known.cloned().or_else(|| forecast.signature(thread))
    }

    /// Recognizes the present phase of each thread by its counters.
    fn recognize(&mut self, view: &mut View<'_>, present: &[&ThreadInfo], replaced: &[ThreadId]) {
        let marked = view.forecast.as_ref().is_none_or(|f| f.marks_phases());
        if self.source == SignatureSource::Program
            || (self.source == SignatureSource::Phase && marked)
        {
            return;
        }
        self.recognized.retain(|id, _| view.lives(*id));
        for info in present {
            if replaced.binary_search(&info.id).is_ok() {
                self.recognized.remove(&info.id);
            }
            let [l2, llc] = ["l2_mpki", "llc_mpki"].map(|name| view.metric(info.id, name));
            let known = self.recognized.entry(info.id).or_insert_with(|| {
                let forecast = view.forecast.as_mut();
                Recognized::new(forecast.map_or(Vec::new(), |f| f.phases(info.id)))
            });
            let here = self.partitions.iter().find(|p| p.cpus.contains(info.cpu));
            if let Some(partition) = here {
                known.note(l2, llc, partition);
            }
        }
    }

    /// True if the signature of a thread may change while it executes one program.
    fn has_phases(&self) -> bool {
        self.source != SignatureSource::Program
    }

    /// Creates the state of a thread that is new or whose signature changed.
    fn member(&self, view: &mut View<'_>, info: &ThreadInfo) -> RatedThread {
        let signature = self.signature(view, info.id);
        let looked_s = used_s(view, info.id);
        let seconds = |p: &CorePartition| match &signature {
            Some(s) if self.shared => s.seconds_with(&p.traits, p.traits.last.bytes, 1.0),
            Some(s) => s.seconds(&p.traits),
            None => 1.0 / p.capacity,
        };
        let alone: Vec<f64> = self.partitions.iter().map(seconds).collect();
        let slowest_s = alone.iter().copied().fold(0.0, f64::max);
        RatedThread {
            home: usize::MAX,
            ratings: alone.iter().map(|s| slowest_s / s).collect(),
            slowest_s,
            signature,
            weight: if self.priorities {
                nice_weight(info.nice)
            } else {
                1.0
            },
            looked_s,
            active: false,
            placed: false,
        }
    }

    fn leave(&mut self, id: ThreadId, home: usize, weight: f64) {
        if let Some(room) = self.rooms.get_mut(home)
            && let Ok(row) = room.binary_search(&id)
        {
            room.remove(row);
            self.weights[home] -= weight;
        }
    }

    fn enter(&mut self, id: ThreadId, home: usize, weight: f64) {
        if let Err(row) = self.rooms[home].binary_search(&id) {
            self.rooms[home].insert(row, id);
            self.weights[home] += weight;
        }
    }

    fn relocate(&mut self, id: ThreadId, to: usize) {
        let Some(member) = self.members.get_mut(&id) else {
            return;
        };
        let from = std::mem::replace(&mut member.home, to);
        member.placed &= from == to;
        let weight = member.weight;
        if from != to {
            self.leave(id, from, weight);
            self.enter(id, to, weight);
        }
    }

    /// Updates the signature of a thread that executes another program or enters another part of its program. In another part,
    /// the thread refreshes at once. With another program, it is removed and then placed like a new thread.
    fn renew(&mut self, view: &mut View<'_>, info: &ThreadInfo, replaced: bool) {
        let new = self.member(view, info);
        let has_phases = self.has_phases();
        let Some(member) = self.members.get_mut(&info.id) else {
            return;
        };
        let differ = |(a, b): (&f64, &f64)| (a / b - 1.0).abs() > self.margin;
        let far = member.ratings.iter().zip(&new.ratings).any(differ);
        member.weight = new.weight;
        if far && replaced && !has_phases {
            self.members.remove(&info.id);
        } else if far {
            member.signature = new.signature;
            (member.ratings, member.slowest_s) = (new.ratings, new.slowest_s);
            member.looked_s = f64::NEG_INFINITY;
        }
    }

    /// Updates the members: removes exited threads, marks sleeping ones, adds new ones, and updates changed signatures.
    fn admit(&mut self, view: &mut View<'_>, present: &[&ThreadInfo]) {
        let alive = |id: &ThreadId| view.lives(*id);
        self.members.retain(|id, _| alive(id));
        self.members.values_mut().for_each(|m| m.active = false);
        self.rooms.iter_mut().for_each(Vec::clear);
        self.weights.fill(0.0);
        let is_exec =
            |e: &&countersteer_model::engine::ThreadEvent| e.kind == ThreadEventKind::Exec;
        let mut replaced: Vec<ThreadId> = view
            .events
            .iter()
            .filter(is_exec)
            .map(|e| e.thread)
            .collect();
        replaced.sort_unstable();
        self.recognize(view, present, &replaced);
        for info in present {
            let replaced = replaced.binary_search(&info.id).is_ok();
            if self.members.contains_key(&info.id) && (self.has_phases() || replaced) {
                self.renew(view, info, replaced);
            }
            if let Some(member) = self.members.get_mut(&info.id) {
                member.active = true;
                self.rooms[member.home].push(info.id);
                self.weights[member.home] += member.weight;
            }
        }
        for info in present {
            if self.members.contains_key(&info.id) {
                continue;
            }
            let member = self.member(view, info);
            self.members.insert(info.id, member);
            let home = self.assigned(info.id, true);
            self.relocate(info.id, home);
            if let Some(member) = self.members.get_mut(&info.id) {
                member.active = true;
            }
        }
    }

    /// Runs the refresh of each thread that is due: the thread moves to a better partition or swaps with a partner.
    fn refresh(&mut self, view: &View<'_>, present: &[&ThreadInfo], rng: &mut PolicyRng) {
        for info in present {
            let used_s = used_s(view, info.id);
            let Some(member) = self.members.get(&info.id) else {
                continue;
            };
            let old = member.home;
            let due = used_s - member.looked_s >= self.refresh_s;
            let mut home = self.assigned(info.id, due);
            if home == old
                && due
                && let Some(other) = self.partner(info.id, rng)
                && let Some(theirs) = self.members.get(&other)
            {
                home = theirs.home;
                self.relocate(other, old);
            }
            self.relocate(info.id, home);
            if let Some(member) = self.members.get_mut(&info.id)
                && (due || home != old)
            {
                member.looked_s = used_s;
            }
        }
    }

    fn placed(&self, id: ThreadId, member: &RatedThread) -> ThreadPlacement {
        let ratings = self.partitions.iter().zip(&member.ratings);
        let rule = if self.shared {
            "signatures promise most with the thread on this partition, its co-runners counted"
        } else if self.recognized.is_empty() {
            "its signature promises most on this partition"
        } else if self
            .recognized
            .get(&id)
            .is_some_and(|r| r.signature().is_some())
        {
            "the signature of its present phase, recognized by its misses, promises most on this partition"
        } else {
            "the signature of its whole run promises most on this partition: its phase is not known"
        };
        let reason = Reason::rule(rule)
            .saw("rating", member.ratings.get(member.home).copied())
            .against(
                "times the speed on the slowest partition, alone",
                ratings.map(|(p, r)| (p.group, *r)),
            );
        ThreadPlacement::new(id, self.partitions[member.home].target.clone(), reason)
    }
}

fn used_s(view: &View<'_>, thread: ThreadId) -> f64 {
    view.usage(thread).map_or(0.0, |u| u.total_cpu_s())
}

impl Policy for Hass {
    fn needs(&self) -> &Needs {
        &self.needs
    }

    fn tune(&mut self, params: &Params, topology: &Arc<Topology>) -> Result<(), PolicyError> {
        let new = Self::new(params, topology)?;
        // The ratings of the members depend on these parameters, so they cannot change during a run.
        let fixed = |h: &Self| (h.shared, h.source, h.priorities);
        if fixed(&new) != fixed(self) {
            return Err(PolicyError::Fixed);
        }
        *self = Self {
            members: std::mem::take(&mut self.members),
            recognized: std::mem::take(&mut self.recognized),
            ..new
        };
        Ok(())
    }

    fn decide(&mut self, view: &mut View<'_>, rng: &mut PolicyRng) -> Placement {
        if self.partitions.is_empty() {
            return Placement::default();
        }
        let present = active(view);
        self.admit(view, &present);
        self.refresh(view, &present, rng);
        let mut placement = Placement::default();
        for info in &present {
            let Some(member) = self.members.get_mut(&info.id) else {
                continue;
            };
            if std::mem::replace(&mut member.placed, true) {
                continue;
            }
            let member = &self.members[&info.id];
            placement.threads.push(self.placed(info.id, member));
        }
        placement
    }
}

#[cfg(test)]
mod tests;
