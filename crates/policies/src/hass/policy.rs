//! Assignment of threads to partitions: regular moves, and optimistic swaps (HASS, section 4).

use std::collections::BTreeMap;
use std::sync::Arc;

use countersteer_model::engine::{ThreadEventKind, ThreadInfo};
use countersteer_model::placement::{Placement, Reason, ThreadPlacement};
use countersteer_model::policy::{Needs, Params, Policy, PolicyError, PolicyRng, View, active};
use countersteer_model::signature::Signature;
use countersteer_model::topology::Topology;
use countersteer_model::units::ThreadId;
use rand::RngExt as _;

use super::company::{self, Sharer};
use super::partitions::{Partition, partitions};
use crate::progress::nice_weight;

struct Member {
    home: usize,
    signature: Option<Signature>,
    /// Rating of the thread on each partition: its speed alone there, relative to that on the slowest partition.
    ratings: Vec<f64>,
    /// Seconds per instruction of the thread alone on the slowest partition.
    slowest_s: f64,
    /// Weight of the thread's nice value.
    weight: f64,
    /// CPU time of the thread at its last refresh, in seconds.
    looked_s: f64,
    /// True if the thread is runnable.
    active: bool,
    /// True if the thread was placed in its partition.
    placed: bool,
}

/// Sums of ratings, or their change by a move: over all threads concerned, of the refreshing thread, and of its partner.
#[derive(Clone, Copy, Default)]
struct Worth {
    all: f64,
    own: f64,
    partner: f64,
}

pub(super) struct Hass {
    refresh_s: f64,
    probes: u32,
    margin: f64,
    shared: bool,
    phases: bool,
    priorities: bool,
    partitions: Vec<Partition>,
    members: BTreeMap<ThreadId, Member>,
    /// Active threads of each partition, in ascending order of ids.
    rooms: Vec<Vec<ThreadId>>,
    /// Sum of the weights of each partition's active threads.
    weights: Vec<f64>,
}

impl Hass {
    pub fn new(params: &Params, topology: &Arc<Topology>) -> Result<Self, PolicyError> {
        let switch = |key| params.choice(key, &[("off", false), ("on", true)]);
        let shared = switch("shared-cache")?;
        let partitions = partitions(topology, shared);
        Ok(Self {
            refresh_s: params.number("refresh_ms", 1.0)? * 1e-3,
            probes: params.number("probes", 0.0)? as u32,
            margin: params.number("margin", 0.0)?,
            shared,
            phases: params.choice("signatures", &[("program", false), ("phase", true)])?,
            priorities: switch("priorities")?,
            rooms: vec![Vec::new(); partitions.len()],
            weights: vec![0.0; partitions.len()],
            partitions,
            members: BTreeMap::new(),
        })
    }

    fn signature(&self, view: &mut View<'_>, thread: ThreadId) -> Option<Signature> {
        let forecast = view.forecast.as_mut()?;
        if self.phases {
            forecast.phase_signature(thread)
        } else {
            forecast.signature(thread)
        }
    }

    /// Creates the state of a thread that is new or whose signature changed.
    fn member(&self, view: &mut View<'_>, info: &ThreadInfo) -> Member {
        let signature = self.signature(view, info.id);
        let looked_s = used_s(view, info.id);
        let seconds = |p: &Partition| match &signature {
            Some(s) if self.shared => s.seconds_with(&p.traits, p.traits.last.bytes, 1.0),
            Some(s) => s.seconds(&p.traits),
            None => 1.0 / p.capacity,
        };
        let alone: Vec<f64> = self.partitions.iter().map(seconds).collect();
        let slowest_s = alone.iter().copied().fold(0.0, f64::max);
        Member {
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

    /// Returns the fraction of a core that a thread gets on a partition; `room` holds the threads there, including this one.
    fn load(&self, partition: usize, member: &Member, room: &[(&Member, usize)]) -> f64 {
        let all = room.iter().filter(|(_, p)| *p == partition);
        let sum: f64 = all.map(|(m, _)| m.weight).sum();
        (self.partitions[partition].cores * member.weight / sum.max(member.weight)).min(1.0)
    }

    /// Returns the rating of each thread times its fraction of a core. The threads run in the same partition, or under the
    /// same last-level cache.
    fn ratings(&self, room: &[(&Member, usize)]) -> Vec<f64> {
        let loads: Vec<f64> = room.iter().map(|(m, p)| self.load(*p, m, room)).collect();
        let alone = |((m, p), load): (&(&Member, usize), &f64)| m.ratings[*p] * load;
        let last = room.first().map(|(_, p)| self.partitions[*p].traits.last);
        let Some(last) = last.filter(|last| self.shared && last.cores > 1) else {
            return room.iter().zip(&loads).map(alone).collect();
        };
        let mut sharers = Vec::with_capacity(room.len());
        for ((member, partition), load) in room.iter().zip(&loads) {
            sharers.push(Sharer {
                signature: member.signature.as_ref(),
                core: &self.partitions[*partition].traits,
                load: *load,
            });
        }
        let seconds = company::seconds(&sharers, last.bytes);
        let rated = |(row, seconds): (&(&Member, usize), (Option<f64>, f64))| match seconds {
            (Some(s), load) => row.0.slowest_s / s * load,
            (None, load) => row.0.ratings[row.1] * load,
        };
        let with_loads = seconds.into_iter().zip(loads);
        room.iter().zip(with_loads).map(rated).collect()
    }

    /// Returns the threads under a last-level cache after these moves, with the partition of each.
    fn room(&self, cache: usize, moves: &[(ThreadId, usize)]) -> (Vec<ThreadId>, Vec<usize>) {
        let under = |p: &usize| self.partitions[*p].cache == cache;
        let moved = |id: &ThreadId| moves.iter().any(|(other, _)| other == id);
        let mut ids = Vec::new();
        let mut homes = Vec::new();
        for partition in (0..self.partitions.len()).filter(under) {
            let stay = self.rooms[partition].iter().filter(|id| !moved(id));
            let come = moves.iter().filter(|(_, to)| *to == partition);
            for id in stay.chain(come.map(|(id, _)| id)) {
                ids.push(*id);
                homes.push(partition);
            }
        }
        (ids, homes)
    }

    /// Returns the ratings under a cache after these moves: their sum over all threads, and those of the two threads in `who`.
    fn worth(&self, cache: usize, moves: &[(ThreadId, usize)], who: [ThreadId; 2]) -> Worth {
        let (ids, homes) = self.room(cache, moves);
        let rows = ids.iter().zip(&homes);
        let room: Vec<(&Member, usize)> = rows
            .filter_map(|(id, home)| Some((self.members.get(id)?, *home)))
            .collect();
        let mut worth = Worth::default();
        for ((id, (member, _)), rating) in ids.iter().zip(&room).zip(self.ratings(&room)) {
            worth.all += rating * member.weight;
            worth.own += if *id == who[0] { rating } else { 0.0 };
            worth.partner += if *id == who[1] { rating } else { 0.0 };
        }
        worth
    }

    /// Returns the change of ratings that moves cause, under all caches concerned. The first move is that of the refreshing
    /// thread, the second that of its partner.
    fn change(&self, moves: &[(ThreadId, usize)]) -> Worth {
        let homes = moves.iter().filter_map(|(id, _)| {
            let home = self.members.get(id)?.home;
            (home < self.partitions.len()).then_some(home)
        });
        let mut caches: Vec<usize> = homes
            .chain(moves.iter().map(|(_, to)| *to))
            .map(|p| self.partitions[p].cache)
            .collect();
        caches.sort_unstable();
        caches.dedup();
        let who = [moves[0].0, moves[moves.len() - 1].0];
        let mut change = Worth::default();
        for cache in caches {
            let before = self.worth(cache, &[], who);
            let after = self.worth(cache, moves, who);
            change.all += after.all - before.all;
            change.own += after.own - before.own;
            change.partner += after.partner - before.partner;
        }
        change
    }

    /// Returns the speed that a thread expects on a partition if it moves there: its rating times the fraction of a core that
    /// it would get (HASS, section 4).
    fn expected(&self, member: &Member, partition: usize) -> f64 {
        let there = member.active && member.home == partition;
        let more = if there { 0.0 } else { member.weight };
        let sum = self.weights[partition] + more;
        let share = self.partitions[partition].cores * member.weight / sum;
        member.ratings[partition] * share.min(1.0)
    }

    /// Returns the minimum that another partition must promise for a move; negative infinity for a new thread.
    fn least_promise(&self, member: &Member) -> f64 {
        if member.home >= self.partitions.len() {
            f64::NEG_INFINITY
        } else if self.shared {
            self.margin * member.ratings[member.home]
        } else {
            self.expected(member, member.home) * (1.0 + self.margin)
        }
    }

    /// Returns the partition of a thread by regular assignment: the one that promises most, or its own. Between refreshes,
    /// only partitions with a free core are considered.
    fn assigned(&self, id: ThreadId, refresh: bool) -> usize {
        let Some(member) = self.members.get(&id) else {
            return 0;
        };
        let at_home = |p: usize| usize::from(member.active && p == member.home);
        let others = |p: usize| (self.rooms[p].len() - at_home(p)) as f64;
        let free = |p: usize| others(p) < self.partitions[p].cores;
        let any_free = !refresh || (0..self.partitions.len()).any(free);
        let mut best = member.home;
        let mut most = self.least_promise(member);
        let open = |p: &usize| *p != member.home && (free(*p) || !any_free);
        for partition in (0..self.partitions.len()).filter(open) {
            let promise = if self.shared {
                self.change(&[(id, partition)]).all
            } else {
                self.expected(member, partition)
            };
            if promise > most {
                (best, most) = (partition, promise);
            }
        }
        if best < self.partitions.len() {
            best
        } else {
            0
        }
    }

    /// Returns the partitions in which a thread looks for a partner. By default, this is the partition that promises most;
    /// with `shared-cache=on`, all others.
    fn targets(&self, id: ThreadId, member: &Member) -> Vec<usize> {
        let others = (0..self.partitions.len()).filter(|p| *p != member.home);
        if self.shared {
            return others.filter(|p| !self.rooms[*p].is_empty()).collect();
        }
        let worth = |p: usize| {
            let threads = self.rooms[p].len().max(1) as f64;
            member.ratings[p] * (self.partitions[p].cores / threads).min(1.0)
        };
        let best = others.max_by(|a, b| worth(*a).total_cmp(&worth(*b)));
        let better = |p: &usize| worth(*p) > worth(member.home) && self.rooms[*p] != [id];
        best.filter(better).into_iter().collect()
    }

    /// Returns a thread to swap with, found by a limited number of random probes. `None` if no probed thread agrees.
    fn partner(&self, id: ThreadId, rng: &mut PolicyRng) -> Option<ThreadId> {
        let member = self.members.get(&id)?;
        let targets = self.targets(id, member);
        if targets.is_empty() {
            return None;
        }
        (0..self.probes).find_map(|_| {
            let room = &self.rooms[targets[rng.random_range(0..targets.len())]];
            let other = *room.get(rng.random_range(0..room.len().max(1)))?;
            self.agree(id, member, other).then_some(other)
        })
    }

    /// True if two threads should swap: the sum of the ratings grows by more than the margin (HASS, section 4). With
    /// `priorities=on`, a thread with more weight than its partner needs only a gain of its own.
    fn agree(&self, id: ThreadId, member: &Member, other: ThreadId) -> bool {
        let Some(theirs) = self.members.get(&other) else {
            return false;
        };
        let (from, to) = (member.home, theirs.home);
        let present = member.ratings[from] + theirs.ratings[to];
        // Threads on other cores do not notice a swap, unless they share a cache with one of the two.
        let gain = if self.shared {
            self.change(&[(id, to), (other, from)])
        } else {
            Worth {
                all: member.weight * (member.ratings[to] - member.ratings[from])
                    + theirs.weight * (theirs.ratings[from] - theirs.ratings[to]),
                own: member.ratings[to] - member.ratings[from],
                partner: theirs.ratings[from] - theirs.ratings[to],
            }
        };
        if member.weight > theirs.weight {
            return gain.own > self.margin * member.ratings[from];
        }
        let heavier = member.weight.max(theirs.weight);
        let spared = member.weight == theirs.weight || gain.partner >= 0.0;
        spared && gain.all > self.margin * present * heavier
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
        let Some(member) = self.members.get_mut(&info.id) else {
            return;
        };
        let differ = |(a, b): (&f64, &f64)| (a / b - 1.0).abs() > self.margin;
        let far = member.ratings.iter().zip(&new.ratings).any(differ);
        member.weight = new.weight;
        if far && replaced && !self.phases {
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
        for info in present {
            let replaced = replaced.binary_search(&info.id).is_ok();
            if self.members.contains_key(&info.id) && (self.phases || replaced) {
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

    fn placed(&self, id: ThreadId, member: &Member) -> ThreadPlacement {
        let ratings = self.partitions.iter().zip(&member.ratings);
        let rule = if self.shared {
            "signatures promise most with the thread on this partition, its co-runners counted"
        } else {
            "its signature promises most on this partition"
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
        const NEEDS: &Needs = &Needs::EVENTS;
        NEEDS
    }

    fn tune(&mut self, params: &Params, topology: &Arc<Topology>) -> Result<(), PolicyError> {
        let new = Self::new(params, topology)?;
        // The ratings of the members depend on these parameters, so they cannot change during a run.
        let fixed = |h: &Self| (h.shared, h.phases, h.priorities);
        if fixed(&new) != fixed(self) {
            return Err(PolicyError::Fixed);
        }
        *self = Self {
            members: std::mem::take(&mut self.members),
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
