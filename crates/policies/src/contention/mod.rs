//! `contention`: separates poison from vulnerable threads, as `capacity+mpi`, by evidence, and keeps mappings that help.
//!
//! Idea: of the half of the threads that hold most of the shared caches, those with many misses are poison, the others
//! vulnerable. Poison is packed into as few caches as hold it (two of them on one core, where they never run at the same time).
//! Vulnerable threads get the other caches together with the threads that hold least. The threads in between share caches with
//! poison.
//!
//! Source: `capacity+mpi` of CMPSched$im, section 4.3. Additions, and their reasons:
//! - Squeezed programs miss as much as poison, and hold little. So the intervals with the least and the most occupancy are kept
//!   per thread. If misses did not fall with occupancy, the thread is poison; if they fell, it is not, whatever the threshold.
//! - Equal caches and cores are exchanged instead of threads moved. The paper's figures show threads that bounce between
//!   caches.
//! - Classes give the first mapping. Then single exchanges are tried, of threads or of all threads of two cores (`exchange`).
//!   The exchange for which a simple model predicts most comes first. A trial lasts two intervals and is undone unless threads
//!   became faster by 3 % on average. After a failed trial, the next one waits eight times as long (`settle`). A start or exit
//!   of a thread restarts this.
//! - With `ways=split`, poison that shares a cache with other threads has few ways, and cannot evict their lines.
//!
//! Assumes: occupancy, misses and IPC can be read per thread; cores are alike; caches fill within three eighths of an interval.
//! Loses: with phases of minutes, since a mapping is held for long; if threads start and end all the time. It does not see unequal
//! cores, and leaves threads on them to Linux unless `unequal=act`. With one last-level cache it leaves threads on their initial
//! cores.

mod evidence;
mod exchange;
mod mapping;
mod settle;
mod split;

use std::sync::Arc;

use self::evidence::{CacheEvidence, CacheUseClass};
use self::exchange::Habits;
use self::mapping::Caches;
use self::settle::{MappingVerdict, Settle};
use self::split::{Claim, Split};
use crate::abstain::Abstention;
use crate::interval::DecisionInterval;
use crate::relabel::Spot;
use countersteer_model::engine::ThreadInfo;
use countersteer_model::placement::{Placement, Reason, Target, ThreadPlacement, WayClass};
use countersteer_model::policy::{
    Needs, ParamDef, Params, Policy, PolicyDef, PolicyError, PolicyRng, View, active,
};
use countersteer_model::topology::Topology;
use countersteer_model::units::{GroupId, Nanos, ThreadId};

/// Fraction of an interval after moves in which nothing is measured, because private and shared caches have to fill.
const FILLING: f64 = 0.375;
/// Threshold: minimum ratio of occupancies at which a thread of the lower half replaces one of the upper half.
const STICKY: f64 = 1.25;

/// Rule of placements that undo a failed trial.
const BACK: &str = "back: threads were not faster with the mapping that was tried";
/// Rule of placements that try an exchange.
const EXCHANGED: &str = "tried: promises least loss to neighbours";

pub(crate) const DEF: PolicyDef = PolicyDef {
    name: "contention",
    summary: "cache poison apart from the threads it would hurt, by evidence and a few trials",
    source: "CMPSched$im, section 4.3",
    params: &[
        ParamDef {
            key: "every_ms",
            default: "800",
            prose: "shortest time between mappings, in ms; measurements in between are averaged",
        },
        ParamDef {
            key: "ways",
            default: "off",
            prose: "split: programs have ways of the last-level caches of their own, poison an eighth together, the others the \
                    rest in proportion to what they hold",
        },
        ParamDef {
            key: "mpki",
            default: "10",
            prose: "last-level cache misses per kilo-instruction above which a thread that holds much is poison; 8 is the \
                    paper's more aggressive choice",
        },
        ParamDef {
            key: "unequal",
            default: "abstain",
            prose: "where cores are not alike: abstain (threads are left to Linux, since a better cache may be on a slower core) or act",
        },
    ],
    make: |params, topology| Ok(Box::new(Contention::new(params, topology)?)),
};

/// State of the `contention` policy.
struct Contention {
    needs: Needs,
    mpki: f64,
    interval: DecisionInterval,
    topology: Arc<Topology>,
    caches: Caches,
    /// Evidence about each thread's use of the cache, in ascending order of thread ids.
    evidence: Vec<CacheEvidence>,
    /// Last placement of each thread: its place and core group.
    placed: Vec<(ThreadId, Spot, GroupId)>,
    /// Time from which metrics are added to the evidence.
    counted: Nanos,
    settle: Settle,
    /// Abstention on unequal cores, whose differences the policy cannot compare with those of caches. `None` if cores are alike
    /// or with `unequal=act`.
    abstention: Option<Abstention>,
    /// Division of cache ways by program; `None` without `ways=split`.
    split: Option<Split>,
}

/// Thread that ran recently and takes part in the mapping.
struct Running<'a> {
    info: &'a ThreadInfo,
    evidence: usize,
}

/// Threads by class, as indices in the caller's list, highest demand first.
#[derive(Default)]
struct ClassedThreads {
    poison: Vec<usize>,
    vulnerable: Vec<usize>,
    rest: Vec<usize>,
}

impl Contention {
    fn new(params: &Params, topology: &Arc<Topology>) -> Result<Self, PolicyError> {
        let caches = Caches::new(topology);
        let abstains = params.choice("unequal", &[("abstain", true), ("act", false)])?;
        Ok(Self {
            abstention: abstains
                .then(|| Abstention::of(DEF.name, topology))
                .flatten(),
            needs: Needs::metrics(&["llc_occupancy", "llc_mpki", "ipc"]),
            mpki: params.number("mpki", 0.0)?,
            interval: DecisionInterval::of(params, "every_ms")?.from(Nanos::ZERO),
            topology: Arc::clone(topology),
            split: Split::of(params, &caches, topology)?,
            caches,
            evidence: Vec::new(),
            placed: Vec::new(),
            counted: Nanos::ZERO,
            settle: Settle::default(),
        })
    }

    /// Adds the metrics since the last call to the evidence of each thread.
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
                .unwrap_or(CacheEvidence::new(thread.id));
            let row = view.metrics.row(thread.id);
            let [occupancy, mpki, ipc] =
                columns.map(|c| row.and_then(|r| r.get(c?).copied().flatten()));
            if stirred.next_if_eq(&thread.id).is_some() {
                evidence.stirred = Some(view.now);
                if view.now > self.counted {
                    evidence.note(occupancy, mpki, ipc);
                }
            }
            self.evidence.push(evidence);
        }
    }

    fn last(&self, running: &Running<'_>) -> evidence::IntervalUse {
        self.evidence[running.evidence].last.unwrap_or_default()
    }

    /// Marks the half of the threads with the larger occupancies. A marked thread keeps the mark unless another thread has
    /// clearly more occupancy.
    fn find_large(&mut self, running: &[Running<'_>], demand: &[f64]) {
        let held = |t: usize| {
            demand[t]
                * if self.evidence[running[t].evidence].large {
                    STICKY
                } else {
                    1.0
                }
        };
        let mut order: Vec<usize> = (0..running.len()).collect();
        order.sort_by(|a, b| held(*b).total_cmp(&held(*a)).then(a.cmp(b)));
        for (nth, t) in order.into_iter().enumerate() {
            self.evidence[running[t].evidence].large = nth < running.len() / 2;
        }
    }

    /// Returns the threads by class, highest demand first, and the misses per kilo-instruction that each can lose.
    fn classify(&mut self, running: &[Running<'_>], demand: &[f64]) -> (ClassedThreads, Vec<f64>) {
        self.find_large(running, demand);
        let mut groups = ClassedThreads::default();
        let mut stake = Vec::with_capacity(running.len());
        for (t, who) in running.iter().enumerate() {
            let evidence = &mut self.evidence[who.evidence];
            evidence.classify(self.mpki);
            stake.push(evidence.at_stake(self.mpki));
            match evidence.class {
                CacheUseClass::Poison => groups.poison.push(t),
                CacheUseClass::Vulnerable => groups.vulnerable.push(t),
                CacheUseClass::Neutral => groups.rest.push(t),
            }
        }
        let by_demand = |a: &usize, b: &usize| demand[*b].total_cmp(&demand[*a]).then(a.cmp(b));
        groups.poison.sort_by(by_demand);
        groups.vulnerable.sort_by(|a, b| {
            stake[*b]
                .total_cmp(&stake[*a])
                .then_with(|| by_demand(a, b))
        });
        groups.rest.sort_by(by_demand);
        (groups, stake)
    }

    /// Returns the mapping by classes. Among equivalent mappings, the one nearest to `near` is taken.
    fn proposal(&mut self, running: &[Running<'_>], demand: &[f64], near: &[Spot]) -> Vec<Spot> {
        let (groups, stake) = self.classify(running, demand);
        let mapping = if groups.poison.is_empty() {
            let mut order: Vec<usize> = (0..demand.len()).collect();
            order.sort_by(|a, b| demand[*b].total_cmp(&demand[*a]).then(a.cmp(b)));
            self.caches.even(&order, demand)
        } else {
            self.caches
                .apart(&groups.poison, &groups.vulnerable, &groups.rest, &stake)
        };
        self.caches.nearest(&mapping, near)
    }

    /// Returns the threads that ran or were runnable within the last interval.
    fn running<'a>(&self, view: &View<'a>) -> Vec<Running<'a>> {
        let lately = |row: &usize| {
            let stirred = self.evidence[*row].stirred;
            stirred.is_some_and(|then| view.now.since(then) < self.interval.every)
        };
        let rows = (0..view.threads.len()).filter(lately);
        let entry = |row| Running {
            info: &view.threads[row],
            evidence: row,
        };
        rows.map(entry).collect()
    }

    /// Decides about the mapping at the end of an interval. Returns the placements that change, which may be none.
    fn map(&mut self, view: &View<'_>) -> Vec<ThreadPlacement> {
        let running = self.running(view);
        let ids: Vec<ThreadId> = running.iter().map(|s| s.info.id).collect();
        let alive: Vec<ThreadId> = view.threads.iter().map(|t| t.id).collect();
        if !self.settle.due(&alive, &ids) {
            return Vec::new();
        }
        self.evidence.iter_mut().for_each(CacheEvidence::close);
        let demand: Vec<f64> = running.iter().map(|s| self.last(s).occupancy).collect();
        let ipc: Vec<Option<f64>> = running
            .iter()
            .map(|s| self.evidence[s.evidence].ipc)
            .collect();
        if ipc.iter().all(Option::is_none) {
            // Without any metric, threads stay on their initial cores.
            return Vec::new();
        }
        // A thread that was never placed has the place of its current CPU.
        let near: Vec<Spot> = running
            .iter()
            .map(|s| {
                let placed = self.spot(s.info.id);
                placed.unwrap_or_else(|| self.caches.spot(s.info.cpu))
            })
            .collect();
        match self.settle.judge(&near, &ipc) {
            MappingVerdict::Kept => Vec::new(),
            MappingVerdict::Back(spots) => self.tell(&running, &spots, &demand, Some(BACK)),
            MappingVerdict::Nothing => {
                let first = self.settle.is_new();
                let next = if first {
                    Some(self.proposal(&running, &demand, &near))
                } else {
                    self.exchanged(&running, &near)
                };
                self.settle.attempt(&near, &ipc, next.as_deref());
                let rule = (!first).then_some(EXCHANGED);
                next.map_or_else(Vec::new, |spots| self.tell(&running, &spots, &demand, rule))
            }
        }
    }

    /// Returns the mapping after the exchange that saves most by the model; `None` if no exchange saves enough.
    fn exchanged(&self, running: &[Running<'_>], spots: &[Spot]) -> Option<Vec<Spot>> {
        let habits = |s: &Running<'_>| Habits {
            stake: self.evidence[s.evidence].ipc_at_stake(),
            pressure: self.evidence[s.evidence].pressure(),
        };
        let habits: Vec<Habits> = running.iter().map(habits).collect();
        exchange::best(&habits, spots, &self.caches, self.settle.refused())
    }

    fn spot(&self, thread: ThreadId) -> Option<Spot> {
        let row = self.placed.binary_search_by_key(&thread, |t| t.0);
        row.ok().map(|row| self.placed[row].1)
    }

    /// Returns placements of the threads whose core group changed. Their reason is `rule`; if `None`, the class of each thread.
    fn tell(
        &mut self,
        running: &[Running<'_>],
        spots: &[Spot],
        demand: &[f64],
        rule: Option<&'static str>,
    ) -> Vec<ThreadPlacement> {
        let crowded = self.caches.crowded(running.len());
        let mut loads = vec![0.0; self.caches.rows.len()];
        let each = spots.iter().zip(demand);
        each.for_each(|((row, _), d)| loads[*row] += d);
        let mut placed = Vec::with_capacity(running.len());
        let mut placements = Vec::new();
        for ((who, &(row, slot)), demand) in running.iter().zip(spots).zip(demand) {
            let thread = who.info.id;
            let cache = &self.caches.rows[row];
            let group = if crowded {
                cache.slots[slot]
            } else {
                cache.group
            };
            placed.push((thread, (row, slot), group));
            let known = self.placed.binary_search_by_key(&thread, |t| t.0);
            let same = known.is_ok_and(|r| self.placed[r].2 == group);
            if !same || !who.info.allowed.is_subset(&self.topology.group(group).cpus) {
                let reason = self.reason(who, row, *demand, &loads, rule);
                placements.push(ThreadPlacement::new(thread, Target::Group(group), reason));
            }
        }
        // Sleeping threads keep their last placement.
        let asleep = |old: &&(ThreadId, Spot, GroupId)| {
            let known = self.evidence.binary_search_by_key(&old.0, |e| e.thread);
            known.is_ok() && placed.binary_search_by_key(&old.0, |t| t.0).is_err()
        };
        let kept: Vec<_> = self.placed.iter().filter(asleep).copied().collect();
        placed.extend(kept);
        placed.sort_unstable_by_key(|t| t.0);
        self.placed = placed;
        placements
    }

    fn reason(
        &self,
        who: &Running<'_>,
        row: usize,
        demand: f64,
        loads: &[f64],
        rule: Option<&'static str>,
    ) -> Reason {
        let evidence = &self.evidence[who.evidence];
        let rule = rule.unwrap_or_else(|| evidence.why(self.mpki));
        let others = |(at, load): (usize, &f64)| {
            let own = if at == row { demand } else { 0.0 };
            (self.caches.rows[at].group, (load - own).max(0.0))
        };
        Reason::rule(rule)
            .saw("llc_occupancy", evidence.last.map(|l| l.occupancy))
            .saw("llc_mpki", evidence.last.map(|l| l.mpki))
            .against("bytes held by others", loads.iter().enumerate().map(others))
    }

    /// Divides the ways of the caches by program. `None` without `ways=split`, or if the division changes little.
    fn divide(&mut self, view: &View<'_>) -> Option<Vec<WayClass>> {
        let mut split = self.split.take()?;
        let running = self.running(view);
        let known = running.iter().any(|s| self.last(s).occupancy > 0.0);
        let claim = |s: &Running<'_>| Claim {
            program: s.info.program,
            cache: self.spot(s.info.id).map_or(0, |spot| spot.0),
            appetite: if known {
                self.last(s).occupancy
            } else {
                self.last(s).mpki
            },
            poison: self.evidence[s.evidence].class == CacheUseClass::Poison,
        };
        let claims: Vec<Claim> = running.iter().map(claim).collect();
        let classes = split.divide(&claims);
        self.split = Some(split);
        classes
    }
}

impl Policy for Contention {
    fn needs(&self) -> &Needs {
        &self.needs
    }

    fn decide(&mut self, view: &mut View<'_>, _: &mut PolicyRng) -> Placement {
        if self.caches.rows.len() == 1 && self.split.is_none() {
            // All cores are equal and no metric is known, so that the initial cores are kept.
            return Placement::default();
        }
        self.note(view);
        if !self.interval.is_over(view.now) {
            return Placement::default();
        }
        self.interval.begin(view.now);
        let threads = match &mut self.abstention {
            Some(abstention) => abstention.leave(view),
            None => self.map(view),
        };
        if !threads.is_empty() {
            let filling = self.interval.every.as_secs_f64() * FILLING;
            self.counted = view.now + Nanos::from_secs_f64(filling);
        }
        Placement {
            threads,
            caches: self.divide(view),
            ..Placement::default()
        }
    }
}
