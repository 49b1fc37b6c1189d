//! Choice of a thread's partition, and of its partner in a swap (HASS, section 4).
//!
//! Input: the threads of each partition with their ratings. Output: the partition that promises most, and a thread with which
//! a swap pays. With `shared-cache=on`, the ratings of all threads under the caches concerned count.

use countersteer_model::policy::PolicyRng;
use countersteer_model::units::ThreadId;
use rand::RngExt as _;

use super::company::{self, Sharer};
use super::policy::{Hass, RatedThread};

/// Sums of ratings, or their change by a move: over all threads concerned, of the refreshing thread, and of its partner.
#[derive(Clone, Copy, Default)]
struct RatingSums {
    all: f64,
    own: f64,
    partner: f64,
}

impl Hass {
    /// Returns the fraction of a core that a thread gets on a partition; `room` holds the threads there, including this one.
    fn load(&self, partition: usize, member: &RatedThread, room: &[(&RatedThread, usize)]) -> f64 {
        let all = room.iter().filter(|(_, p)| *p == partition);
        let sum: f64 = all.map(|(m, _)| m.weight).sum();
        (self.partitions[partition].cores * member.weight / sum.max(member.weight)).min(1.0)
    }

    /// Returns the rating of each thread times its fraction of a core. The threads run in the same partition, or under the
    /// same last-level cache.
    fn ratings(&self, room: &[(&RatedThread, usize)]) -> Vec<f64> {
        let loads: Vec<f64> = room.iter().map(|(m, p)| self.load(*p, m, room)).collect();
        let alone = |((m, p), load): (&(&RatedThread, usize), &f64)| m.ratings[*p] * load;
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
        let rated = |(row, seconds): (&(&RatedThread, usize), (Option<f64>, f64))| match seconds {
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
    fn worth(&self, cache: usize, moves: &[(ThreadId, usize)], who: [ThreadId; 2]) -> RatingSums {
        let (ids, homes) = self.room(cache, moves);
        let rows = ids.iter().zip(&homes);
        let room: Vec<(&RatedThread, usize)> = rows
            .filter_map(|(id, home)| Some((self.members.get(id)?, *home)))
            .collect();
        let mut worth = RatingSums::default();
        for ((id, (member, _)), rating) in ids.iter().zip(&room).zip(self.ratings(&room)) {
            worth.all += rating * member.weight;
            worth.own += if *id == who[0] { rating } else { 0.0 };
            worth.partner += if *id == who[1] { rating } else { 0.0 };
        }
        worth
    }

    /// Returns the change of ratings that moves cause, under all caches concerned. The first move is that of the refreshing
    /// thread, the second that of its partner.
    fn change(&self, moves: &[(ThreadId, usize)]) -> RatingSums {
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
        let mut change = RatingSums::default();
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
    pub(super) fn expected(&self, member: &RatedThread, partition: usize) -> f64 {
        let there = member.active && member.home == partition;
        let more = if there { 0.0 } else { member.weight };
        let sum = self.weights[partition] + more;
        let share = self.partitions[partition].cores * member.weight / sum;
        member.ratings[partition] * share.min(1.0)
    }

    /// Returns the minimum that another partition must promise for a move; negative infinity for a new thread.
    fn least_promise(&self, member: &RatedThread) -> f64 {
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
    pub(super) fn assigned(&self, id: ThreadId, refresh: bool) -> usize {
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
    fn targets(&self, id: ThreadId, member: &RatedThread) -> Vec<usize> {
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
    pub(super) fn partner(&self, id: ThreadId, rng: &mut PolicyRng) -> Option<ThreadId> {
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
    pub(super) fn agree(&self, id: ThreadId, member: &RatedThread, other: ThreadId) -> bool {
        let Some(theirs) = self.members.get(&other) else {
            return false;
        };
        let (from, to) = (member.home, theirs.home);
        let present = member.ratings[from] + theirs.ratings[to];
        // Threads on other cores do not notice a swap, unless they share a cache with one of the two.
        let gain = if self.shared {
            self.change(&[(id, to), (other, from)])
        } else {
            RatingSums {
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
}
