//! `hass`: architectural signatures, partitions, local decisions.
//!
//! Idea: a signature carried by the program says how fast it would run on each class of cores. A thread moves by itself to the
//! partition where it expects to run fastest, given how many threads run there. Once in a while it also tries to swap with
//! a random thread of a better partition where both together would gain.
//!
//! Source: HASS (Shelepov et al., 2009), sections 3 and 4. `shared-cache=on` divides the last-level cache by the cores under it,
//! which the authors name as their limit.
//!
//! Decided here: the refresh period, 3 probes, a margin of 2 %, and that a core that falls idle is filled at the next
//! decision.
//!
//! Assumes: the signature holds for the whole run; caches are not shared; hits of the last-level cache cost nothing. Loses:
//! shared caches, phases, programs that live in a slow last-level cache, and homogeneous work, where there is nothing to gain.

use std::collections::BTreeMap;
use std::sync::Arc;

use countersteer_core::engine::{ThreadEventKind, ThreadInfo};
use countersteer_core::placement::{Placement, Reason, Target, ThreadPlacement};
use countersteer_core::policy::{
    Needs, ParamDef, Params, Policy, PolicyDef, PolicyError, PolicyRng, View, active,
};
use countersteer_core::topology::{GroupBy, Topology};
use countersteer_core::units::{GroupId, ThreadId};
use rand::RngExt as _;

pub(crate) const DEF: PolicyDef = PolicyDef {
    name: "hass",
    summary: "signatures: each thread moves to the partition where its signature promises most",
    source: "HASS, sections 3 and 4",
    params: &[
        ParamDef {
            key: "refresh_ms",
            default: "1000",
            prose: "CPU time in a partition after which a thread looks for a better one, in ms",
        },
        ParamDef {
            key: "probes",
            default: "3",
            prose: "random threads of the best partition that it compares itself with at each refresh; 0: none",
        },
        ParamDef {
            key: "margin",
            default: "0.02",
            prose: "a move must promise more by this fraction",
        },
        ParamDef {
            key: "shared-cache",
            default: "off",
            prose: "on: the last-level cache counts, divided by the cores under it; off: the last cache that a core has to itself",
        },
    ],
    make: |params, topology| Ok(Box::new(Hass::new(params, topology)?)),
};

/// Cores of one class.
struct Partition {
    group: GroupId,
    cores: f64,
    /// Speed without regard to programs, for threads without a signature.
    capacity: f64,
}

struct Member {
    home: usize,
    /// Speed on each partition over that on the slowest.
    ratings: Vec<f64>,
    /// CPU time when it last looked.
    looked_s: f64,
    active: bool,
    told: bool,
}

struct Hass {
    refresh_s: f64,
    probes: u32,
    margin: f64,
    shared: bool,
    partitions: Vec<Partition>,
    members: BTreeMap<ThreadId, Member>,
}

impl Hass {
    fn new(params: &Params, topology: &Topology) -> Result<Self, PolicyError> {
        let partition = |group: &countersteer_core::topology::Group| {
            let first = group.cpus.lowest().map(|c| &topology.cpus[c.index()]);
            Partition {
                group: group.id,
                cores: f64::from(group.cores.max(1)),
                capacity: first.map_or(1.0, |c| {
                    let clock = topology.core_types[c.core_type.index()].freq_ghz;
                    f64::from(c.capacity.max(1)) * clock
                }),
            }
        };
        Ok(Self {
            refresh_s: params.number("refresh_ms", 1.0)? * 1e-3,
            probes: params.number("probes", 0.0)? as u32,
            margin: params.number("margin", 0.0)?,
            shared: params.choice("shared-cache", &[("off", false), ("on", true)])?,
            partitions: topology
                .groups_by(GroupBy::CoreType)
                .iter()
                .map(partition)
                .collect(),
            members: BTreeMap::new(),
        })
    }

    /// Speed of a thread on each partition over that on the slowest.
    fn ratings(&self, view: &mut View<'_>, thread: ThreadId) -> Vec<f64> {
        let signature = view.forecast.as_mut().and_then(|f| f.signature(thread));
        let speed = |p: &Partition| {
            let cpu = view.topology.group(p.group).cpus.lowest();
            match (&signature, cpu) {
                (Some(signature), Some(cpu)) => {
                    1.0 / signature.seconds_per_instruction(view.topology, cpu, self.shared)
                }
                _ => p.capacity,
            }
        };
        let speeds: Vec<f64> = self.partitions.iter().map(speed).collect();
        let slowest = speeds.iter().copied().fold(f64::INFINITY, f64::min);
        speeds.iter().map(|s| s / slowest).collect()
    }

    /// Active threads of each partition.
    fn runnable(&self) -> Vec<f64> {
        let mut runnable = vec![0.0; self.partitions.len()];
        for member in self.members.values().filter(|m| m.active) {
            runnable[member.home] += 1.0;
        }
        runnable
    }

    /// The share of a core that each thread of a partition has.
    fn load(&self, runnable: &[f64], partition: usize) -> f64 {
        (self.partitions[partition].cores / runnable[partition].max(1.0)).min(1.0)
    }

    /// Speed that a thread expects on a partition once it is there.
    fn expected(&self, member: &Member, partition: usize, runnable: &[f64]) -> f64 {
        let joins = f64::from(u8::from(member.home != partition || !member.active));
        let threads = runnable[partition] + joins;
        member.ratings[partition] * (self.partitions[partition].cores / threads.max(1.0)).min(1.0)
    }

    /// The partition that a regular assignment gives a thread; between refreshes only one with a free core.
    fn assigned(&self, member: &Member, refresh: bool) -> usize {
        let runnable = self.runnable();
        let free = |p: usize| runnable[p] < self.partitions[p].cores;
        let any_free = !refresh || (0..self.partitions.len()).any(free);
        let mut best = member.home;
        let mut most = self.expected(member, best, &runnable) * (1.0 + self.margin);
        for partition in (0..self.partitions.len()).filter(|p| free(*p) || !any_free) {
            let expected = self.expected(member, partition, &runnable);
            if partition != member.home && expected > most {
                (best, most) = (partition, expected);
            }
        }
        best
    }

    /// A thread of a better partition with which both together would gain, found by probing a few at random.
    fn partner(&self, id: ThreadId, rng: &mut PolicyRng) -> Option<ThreadId> {
        let member = self.members.get(&id)?;
        let runnable = self.runnable();
        let worth = |p: usize| member.ratings[p] * self.load(&runnable, p);
        let others = (0..self.partitions.len()).filter(|p| *p != member.home);
        let target = others.max_by(|a, b| worth(*a).total_cmp(&worth(*b)))?;
        if worth(target) <= worth(member.home) {
            return None;
        }
        let there = self.members.iter();
        let there: Vec<(&ThreadId, &Member)> = there
            .filter(|(_, m)| m.active && m.home == target)
            .collect();
        if there.is_empty() {
            return None;
        }
        (0..self.probes).find_map(|_| {
            let (other, theirs) = there[rng.random_range(0..there.len())];
            let swapped = member.ratings[target] + theirs.ratings[member.home];
            let present = member.ratings[member.home] + theirs.ratings[target];
            (swapped > present * (1.0 + self.margin)).then_some(*other)
        })
    }

    fn admit(&mut self, view: &mut View<'_>, present: &[&ThreadInfo]) {
        let alive = |id: &ThreadId| view.threads.binary_search_by_key(id, |t| t.id).is_ok();
        self.members.retain(|id, _| alive(id));
        // Another program may carry another signature.
        let replaced = view
            .events
            .iter()
            .filter(|e| e.kind == ThreadEventKind::Exec);
        let replaced: Vec<ThreadId> = replaced.map(|e| e.thread).collect();
        for id in replaced {
            let ratings = self.ratings(view, id);
            if let Some(member) = self.members.get_mut(&id)
                && member.ratings != ratings
            {
                // It looks around at once.
                member.ratings = ratings;
                member.looked_s = f64::NEG_INFINITY;
            }
        }
        self.members.values_mut().for_each(|m| m.active = false);
        for info in present {
            if !self.members.contains_key(&info.id) {
                let ratings = self.ratings(view, info.id);
                let slowest = self.partitions.len() - 1;
                let member = Member {
                    home: slowest,
                    ratings,
                    looked_s: 0.0,
                    active: false,
                    told: false,
                };
                let home = self.assigned(&member, true);
                self.members.insert(info.id, Member { home, ..member });
            }
            if let Some(member) = self.members.get_mut(&info.id) {
                member.active = true;
            }
        }
    }

    /// Lets the threads whose time has come look for a better partition.
    fn refresh(&mut self, view: &View<'_>, present: &[&ThreadInfo], rng: &mut PolicyRng) {
        for info in present {
            let used_s = view.usage(info.id).map_or(0.0, |u| u.total_cpu_s());
            let Some(member) = self.members.get(&info.id) else {
                continue;
            };
            let due = used_s - member.looked_s >= self.refresh_s;
            let home = self.assigned(member, due);
            let partner = if home == member.home && due {
                self.partner(info.id, rng)
            } else {
                None
            };
            let old = member.home;
            let new = partner
                .and_then(|other| self.members.get(&other))
                .map_or(home, |other| other.home);
            if let Some(other) = partner.and_then(|other| self.members.get_mut(&other)) {
                (other.home, other.told) = (old, false);
            }
            if let Some(member) = self.members.get_mut(&info.id) {
                member.told &= member.home == new;
                member.home = new;
                if due || member.home != old {
                    member.looked_s = used_s;
                }
            }
        }
    }
}

impl Policy for Hass {
    fn needs(&self) -> &Needs {
        const NEEDS: &Needs = &Needs::EVENTS;
        NEEDS
    }

    fn tune(&mut self, params: &Params, topology: &Arc<Topology>) -> Result<(), PolicyError> {
        let new = Self::new(params, topology)?;
        // What members expect follows from it.
        if new.shared != self.shared {
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
            if std::mem::replace(&mut member.told, true) {
                continue;
            }
            let ratings = self.partitions.iter().zip(&member.ratings);
            let reason = Reason::rule("its signature promises most on this partition")
                .saw("rating", member.ratings.get(member.home).copied())
                .against(
                    "times the speed on the slowest partition",
                    ratings.map(|(p, r)| (p.group, *r)),
                );
            let target = Target::Group(self.partitions[member.home].group);
            let placed = ThreadPlacement::new(info.id, target, reason);
            placement.threads.push(placed);
        }
        placement
    }
}
