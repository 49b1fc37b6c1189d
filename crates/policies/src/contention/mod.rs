//! `contention`: shared caches kept from being fought over.
//!
//! Input: per thread, occupancy of the last-level cache and its misses. Output: threads by last-level cache, and by core
//! where cores are shared in time. The policies' own files say what each does with it.

mod evidence;
mod exchange;
mod mapping;
mod paired;
mod policy;
mod split;
mod trial;

use std::sync::Arc;

pub(crate) use self::policy::DEF;

use self::evidence::{Class, Evidence};
use self::exchange::Threads;
use self::mapping::{Caches, Mapping, Spot};
use self::split::{Claim, Split};
use self::trial::{Groups, Step, Trials, Why};
use countersteer_core::engine::ThreadInfo;
use countersteer_core::placement::{CacheClass, Placement, Reason, Target, ThreadPlacement};
use countersteer_core::policy::active;
use countersteer_core::policy::{Needs, ParamDef, Params, Policy, PolicyError, PolicyRng, View};
use countersteer_core::topology::{GroupBy, Topology};
use countersteer_core::units::{GroupId, Nanos, ThreadId};

/// An uneven mapping is kept as long as a new one would be better by less than this.
const TOLERANCE: f64 = 0.1;
/// Part of an interval after threads were moved that does not count: private and shared caches have to fill.
const FILLING: f64 = 0.375;
/// Length of a step while mappings are compared, and its part that does not count: caches fill within milliseconds, and
/// the shorter a comparison, the fewer threads change their phase in it.
const COMPARING: f64 = 0.375;
const COMPARING_FILLING: f64 = 0.125;
/// By how much a thread of the lower half must hold more than one of the upper to change places.
const STICKY: f64 = 1.25;

/// Misses that room must save, as a fraction of the poison threshold, for a thread to be vulnerable beyond doubt.
const PROVEN: f64 = 0.2;

pub(super) const EVERY: ParamDef = ParamDef {
    key: "every_ms",
    default: "800",
    prose: "time between mappings, in ms; measurements in between are averaged",
};

pub(super) const WAYS: ParamDef = ParamDef {
    key: "ways",
    default: "off",
    prose: "split: programs have ways of the last-level caches of their own, poison an eighth together, the others the rest in \
            proportion to what they hold (resctrl of real machines; the simulator does not heed it)",
};

/// Which of the three policies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mode {
    /// Misses per instruction.
    Mpi,
    /// Occupancy.
    Capacity,
    /// Both: above so many misses per kilo-instruction, a thread that holds much is poison.
    Both {
        /// The threshold.
        mpki: f64,
        /// Part of all work that trials of other mappings may cost.
        trials: f64,
    },
}

/// The policy.
pub(super) struct Contention {
    needs: Needs,
    mode: Mode,
    every: Nanos,
    topology: Arc<Topology>,
    caches: Caches,
    /// By thread.
    evidence: Vec<Evidence>,
    /// By thread: the spot it was told, and the group.
    told: Vec<(ThreadId, Spot, GroupId)>,
    mapped: Nanos,
    /// Measurements count from here on.
    settled: Nanos,
    trials: Trials,
    /// Ways by program, where that was asked for.
    split: Option<Split>,
}

/// A thread in this mapping.
struct Seated<'a> {
    info: &'a ThreadInfo,
    evidence: usize,
}

impl Contention {
    pub fn boxed(
        mode: Mode,
        params: &Params,
        topology: &Arc<Topology>,
    ) -> Result<Box<dyn Policy>, PolicyError> {
        let caches = Caches::new(topology);
        let split = Split::of(params, &caches, topology)?;
        let metrics: &[&str] = match mode {
            Mode::Mpi => &["llc_mpki"],
            Mode::Capacity if split.is_some() => &["llc_occupancy", "llc_mpki"],
            Mode::Capacity => &["llc_occupancy"],
            Mode::Both { .. } => &["llc_occupancy", "llc_mpki", "ipc"],
        };
        Ok(Box::new(Self {
            needs: Needs::metrics(metrics),
            mode,
            every: Nanos::from_secs_f64(params.number("every_ms", 1.0)? * 1e-3),
            topology: Arc::clone(topology),
            split,
            caches,
            evidence: Vec::new(),
            told: Vec::new(),
            mapped: Nanos::ZERO,
            settled: Nanos::ZERO,
            trials: Trials::new(if let Mode::Both { trials, .. } = mode {
                trials
            } else {
                0.0
            }),
        }))
    }

    /// Takes in what was measured since the last call.
    fn note(&mut self, view: &View<'_>) {
        let mut before = std::mem::take(&mut self.evidence).into_iter().peekable();
        let column = |name| view.metrics.names().iter().position(|n| *n == name);
        let columns = ["llc_occupancy", "llc_mpki", "ipc"].map(column);
        let mut stirred = active(view).into_iter().map(|t| t.id).peekable();
        self.evidence.reserve(view.threads.len());
        for thread in view.threads {
            while before.next_if(|e| e.thread < thread.id).is_some() {}
            let mut evidence = before
                .next_if(|e| e.thread == thread.id)
                .unwrap_or(Evidence::new(thread.id));
            let row = view.metrics.row(thread.id);
            let [occupancy, mpki, ipc] =
                columns.map(|c| row.and_then(|r| r.get(c?).copied().flatten()));
            if stirred.next_if_eq(&thread.id).is_some() {
                evidence.stirred = Some(view.now);
                if view.now > self.settled {
                    evidence.note(occupancy, mpki, ipc);
                }
            }
            self.evidence.push(evidence);
        }
    }

    /// What a thread asks of a cache: what the policy sorts by.
    fn demand(&self, row: usize) -> f64 {
        let last = self.evidence[row].last.unwrap_or_default();
        if self.mode == Mode::Mpi {
            last.mpki
        } else {
            last.occupancy
        }
    }

    /// Marks the half that holds most; who is in it stays unless another holds clearly more.
    fn find_large(&mut self, seated: &[Seated<'_>], demand: &[f64]) {
        let held = |t: usize| {
            demand[t]
                * if self.evidence[seated[t].evidence].large {
                    STICKY
                } else {
                    1.0
                }
        };
        let mut order: Vec<usize> = (0..seated.len()).collect();
        order.sort_by(|a, b| held(*b).total_cmp(&held(*a)).then(a.cmp(b)));
        for (nth, t) in order.into_iter().enumerate() {
            self.evidence[seated[t].evidence].large = nth < seated.len() / 2;
        }
    }

    fn classify(&mut self, seated: &[Seated<'_>], mpki: f64) -> Groups {
        // One suspect at a time, or they would keep spoiling each other's room.
        let mut may_try = true;
        let mut groups = Groups::default();
        for (t, who) in seated.iter().enumerate() {
            let evidence = &mut self.evidence[who.evidence];
            may_try &= !evidence.classify(mpki, may_try);
            match evidence.class {
                Class::Poison => groups.poison.push(t),
                Class::Vulnerable => groups.vulnerable.push(t),
                Class::Neutral => groups.rest.push(t),
            }
        }
        groups
    }

    /// The mapping by demand alone, unless the present one is about as even.
    fn even(&self, demand: &[f64], present: &[Option<Spot>]) -> Option<Mapping> {
        let mut order: Vec<usize> = (0..demand.len()).collect();
        order.sort_by(|a, b| demand[*b].total_cmp(&demand[*a]).then(a.cmp(b)));
        let mapping = self.caches.even(&order, demand);
        let most = |loads: Vec<f64>| loads.into_iter().fold(0.0, f64::max);
        let new = most(
            mapping
                .iter()
                .map(|seats| seats.iter().flatten().map(|t| demand[*t]).sum())
                .collect(),
        );
        let mut now = vec![0.0; self.caches.rows.len()];
        let settled = present
            .iter()
            .zip(demand)
            .all(|(spot, d)| spot.map(|(row, _)| now[row] += d).is_some());
        let even_enough = self.caches.rows.len() > 1 && most(now) <= new * (1.0 + TOLERANCE);
        (!(settled && even_enough)).then_some(mapping)
    }

    /// Threads by class, the most demanding first, and the misses that each has at stake.
    fn grouped(&mut self, seated: &[Seated<'_>], demand: &[f64], mpki: f64) -> (Groups, Vec<f64>) {
        self.find_large(seated, demand);
        let mut groups = self.classify(seated, mpki);
        let stake: Vec<f64> = seated
            .iter()
            .map(|s| self.evidence[s.evidence].at_stake(mpki))
            .collect();
        let by_demand = |a: &usize, b: &usize| demand[*b].total_cmp(&demand[*a]).then(a.cmp(b));
        groups.poison.sort_by(by_demand);
        groups.vulnerable.sort_by(|a, b| {
            stake[*b]
                .total_cmp(&stake[*a])
                .then_with(|| by_demand(a, b))
        });
        groups.rest.sort_by(by_demand);
        if !groups.poison.is_empty() && self.caches.rows.len() > 1 {
            groups.limit_vulnerable(&stake, PROVEN * mpki);
        }
        (groups, stake)
    }

    /// The mapping by class, as it was found better by trial, or `None` to stay.
    fn apart(
        &mut self,
        seated: &[Seated<'_>],
        demand: &[f64],
        mpki: f64,
        (near, length): (&[Spot], f64),
        rng: &mut PolicyRng,
    ) -> Option<(Vec<Spot>, Why)> {
        let (groups, stake) = self.grouped(seated, demand, mpki);
        let mut classes = vec![0; seated.len()];
        for (class, rows) in [(1, &groups.poison), (2, &groups.vulnerable)] {
            rows.iter().for_each(|t| classes[*t] = class);
        }
        let caches = &self.caches;
        let propose = |swapped: bool| {
            let Groups {
                poison,
                vulnerable,
                rest,
            } = &groups;
            let mapping = if poison.is_empty() {
                let mut order: Vec<usize> = (0..demand.len()).collect();
                order.sort_by(|a, b| demand[*b].total_cmp(&demand[*a]).then(a.cmp(b)));
                caches.even(&order, demand)
            } else {
                caches.apart(poison, vulnerable, rest, &stake, swapped)
            };
            caches.nearest(mapping, near)
        };
        let members: Vec<ThreadId> = seated.iter().map(|s| s.info.id).collect();
        let evidence = |s: &Seated<'_>| &self.evidence[s.evidence];
        let stake: Vec<f64> = seated.iter().map(|s| evidence(s).ipc_at_stake()).collect();
        let pressure: Vec<f64> = seated.iter().map(|s| evidence(s).pressure()).collect();
        let now = Step {
            threads: Threads {
                ids: &members,
                stake: &stake,
                pressure: &pressure,
            },
            spots: near,
            classes,
            ipc: seated.iter().map(|s| evidence(s).ipc).collect(),
            length,
            caches,
            crowded: caches.crowded(seated.len()),
            propose: &propose,
        };
        self.trials.step(now, rng)
    }

    /// Divides the caches anew, where that is wanted and worth it.
    fn divide(&mut self, view: &View<'_>) -> Option<Vec<CacheClass>> {
        let mut split = self.split.take()?;
        let seated: Vec<Seated<'_>> = self
            .told
            .iter()
            .filter_map(|told| seated(&self.evidence, view.threads, told.0))
            .collect();
        let last = |s: &Seated<'_>| self.evidence[s.evidence].last.unwrap_or_default();
        let known = seated.iter().any(|s| last(s).occupancy > 0.0);
        let appetite: Vec<f64> = seated
            .iter()
            .map(|s| {
                if known {
                    last(s).occupancy
                } else {
                    last(s).mpki
                }
            })
            .collect();
        if !matches!(self.mode, Mode::Both { .. }) {
            // The others have no use for classes.
            self.find_large(&seated, &appetite);
            self.classify(&seated, split.mpki);
        }
        let claim = |(s, appetite): (&Seated<'_>, &f64)| Claim {
            program: s.info.program,
            cache: self.spot(s.info.id).map_or(0, |spot| spot.0),
            appetite: *appetite,
            poison: self.evidence[s.evidence].class == Class::Poison,
        };
        let claims: Vec<Claim> = seated.iter().zip(&appetite).map(claim).collect();
        let classes = split.divide(&claims);
        self.split = Some(split);
        classes
    }

    /// Maps everybody who stirred since the last time or within an interval.
    fn map(&mut self, view: &View<'_>, passed: Nanos, rng: &mut PolicyRng) -> Vec<ThreadPlacement> {
        let lately = passed.max(self.every);
        let length = passed.as_secs_f64() / self.every.as_secs_f64();
        let seated: Vec<Seated<'_>> = view
            .threads
            .iter()
            .enumerate()
            .filter(|(row, _)| {
                self.evidence[*row]
                    .stirred
                    .is_some_and(|then| view.now.since(then) < lately)
            })
            .map(|(evidence, info)| Seated { info, evidence })
            .collect();
        self.evidence.iter_mut().for_each(Evidence::close);
        let crowded = self.caches.crowded(seated.len());
        if self.caches.rows.len() == 1 && !crowded {
            return self.nothing_to_do(&seated);
        }
        let demand: Vec<f64> = seated.iter().map(|s| self.demand(s.evidence)).collect();
        let present: Vec<Option<Spot>> = seated.iter().map(|s| self.spot(s.info.id)).collect();
        // For whoever was never told anything, the place it runs at counts.
        let place = |(s, p): (&Seated<'_>, &Option<Spot>)| {
            p.unwrap_or_else(|| self.caches.spot(s.info.cpu))
        };
        let near: Vec<Spot> = seated.iter().zip(&present).map(place).collect();
        let chosen = match self.mode {
            Mode::Both { mpki, .. } => self.apart(&seated, &demand, mpki, (&near, length), rng),
            Mode::Mpi | Mode::Capacity => self
                .even(&demand, &present)
                .map(|m| (self.caches.nearest(m, &near), Why::Classes)),
        };
        chosen.map_or_else(Vec::new, |(spots, why)| {
            self.tell(&seated, &spots, &demand, crowded, why)
        })
    }

    fn spot(&self, thread: ThreadId) -> Option<Spot> {
        self.told
            .binary_search_by_key(&thread, |t| t.0)
            .ok()
            .map(|row| self.told[row].1)
    }

    /// Placements of those whose group changed.
    fn tell(
        &mut self,
        seated: &[Seated<'_>],
        spots: &[Spot],
        demand: &[f64],
        crowded: bool,
        why: Why,
    ) -> Vec<ThreadPlacement> {
        let mut loads = vec![0.0; self.caches.rows.len()];
        spots
            .iter()
            .zip(demand)
            .for_each(|((row, _), d)| loads[*row] += d);
        let mut told = Vec::with_capacity(seated.len());
        let mut placements = Vec::new();
        for ((who, &(row, seat)), demand) in seated.iter().zip(spots).zip(demand) {
            let thread = who.info.id;
            let cache = &self.caches.rows[row];
            let group = if crowded {
                cache.seats[seat]
            } else {
                cache.group
            };
            told.push((thread, (row, seat), group));
            let same = self
                .told
                .binary_search_by_key(&thread, |t| t.0)
                .is_ok_and(|r| self.told[r].2 == group);
            if !same || !who.info.allowed.is_subset(&self.topology.group(group).cpus) {
                let reason = self.reason(who, row, *demand, &loads, why);
                placements.push(ThreadPlacement::new(thread, Target::Group(group), reason));
            }
        }
        self.told = told;
        placements
    }

    fn reason(&self, who: &Seated<'_>, row: usize, demand: f64, loads: &[f64], why: Why) -> Reason {
        let evidence = &self.evidence[who.evidence];
        let (rule, unit) = match self.mode {
            _ if loads.len() == 1 => (
                "one last-level cache: the highest share a core and never meet",
                "bytes held by others",
            ),
            Mode::Mpi => (
                "most misses apart: same core or another cache",
                "misses/kilo-instruction of others there",
            ),
            Mode::Capacity => (
                "most capacity apart: same core or another cache",
                "bytes held by others",
            ),
            Mode::Both { .. } if why == Why::Trial => {
                ("on trial: the sum of IPC will tell", "bytes held by others")
            }
            Mode::Both { .. } if why == Why::Best => (
                "best sum of IPC of the mappings tried",
                "bytes held by others",
            ),
            Mode::Both { mpki, .. } => (evidence.why(mpki), "bytes held by others"),
        };
        let others = |(at, load): (usize, &f64)| {
            let own = if at == row { demand } else { 0.0 };
            (self.caches.rows[at].group, (load - own).max(0.0))
        };
        Reason::rule(rule)
            .saw(
                "llc_occupancy",
                evidence
                    .last
                    .map(|l| l.occupancy)
                    .filter(|_| self.mode != Mode::Mpi),
            )
            .saw(
                "llc_mpki",
                evidence
                    .last
                    .map(|l| l.mpki)
                    .filter(|_| self.mode != Mode::Capacity),
            )
            .against(unit, loads.iter().enumerate().map(others))
    }

    /// Says once per thread that there is no choice.
    fn nothing_to_do(&mut self, seated: &[Seated<'_>]) -> Vec<ThreadPlacement> {
        let machine = self
            .topology
            .groups_by(GroupBy::Machine)
            .first()
            .map_or(GroupId(0), |g| g.id);
        let new = seated
            .iter()
            .filter(|s| !self.told.iter().any(|t| t.0 == s.info.id && t.2 == machine));
        let reason = || {
            Reason::rule("one last-level cache and a CPU for every thread: nothing to keep apart")
        };
        let place = |s: &Seated<'_>| ThreadPlacement::new(s.info.id, Target::Anywhere, reason());
        let placements = new.map(place).collect();
        self.told = seated
            .iter()
            .map(|s| (s.info.id, (0, 0), machine))
            .collect();
        placements
    }
}

/// A thread with what is known about it.
fn seated<'a>(
    evidence: &[Evidence],
    threads: &'a [ThreadInfo],
    id: ThreadId,
) -> Option<Seated<'a>> {
    let info = threads.binary_search_by_key(&id, |t| t.id).ok()?;
    let evidence = evidence.binary_search_by_key(&id, |e| e.thread).ok()?;
    Some(Seated {
        info: &threads[info],
        evidence,
    })
}

impl Policy for Contention {
    fn needs(&self) -> &Needs {
        &self.needs
    }

    fn decide(&mut self, view: &mut View<'_>, rng: &mut PolicyRng) -> Placement {
        self.note(view);
        let part = |part: f64| Nanos::from_secs_f64(self.every.as_secs_f64() * part);
        let step = if self.trials.comparing() {
            part(COMPARING)
        } else {
            self.every
        };
        let passed = view.now.since(self.mapped);
        if passed < step {
            return Placement::default();
        }
        self.mapped = view.now;
        let threads = self.map(view, passed, rng);
        if !threads.is_empty() {
            let filling = if self.trials.comparing() {
                COMPARING_FILLING
            } else {
                FILLING
            };
            self.settled = view.now + Nanos::from_secs_f64(self.every.as_secs_f64() * filling);
        }
        Placement {
            threads,
            admission: None,
            caches: self.divide(view),
        }
    }
}
