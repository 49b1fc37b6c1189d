//! Mapping that `mpi`, `capacity` and `capacity+mpi` share, as published.
//!
//! At every interval, threads are ordered by a metric and divided into groups of as many threads as share a core. "Local": the
//! worst threads never run at the same time. "Global": groups are assigned to the last-level caches round-robin. Source:
//! CMPSched$im, section 4 and figure 10. The drawing of the figure is lost; the round-robin order is inferred from the mappings
//! that the text reports.
//!
//! Decided here: equal caches, and equal cores under one cache, are relabelled so that as few threads as possible move.
//! Classified threads (`capacity+mpi`) stay as long as the sets of poison and vulnerable threads are unchanged. The paper's
//! figure 13 shows a mapping that stays, although the order of the threads with the least occupancy changes with every sample.
//! `labels=fixed` does neither, as published: every mapping takes the cores of the order. With one last-level cache and a CPU
//! for each thread, threads stay on their initial cores.

use std::collections::BTreeMap;
use std::sync::Arc;

use countersteer_model::engine::ThreadInfo;
use countersteer_model::placement::{Placement, Reason, Target, ThreadPlacement};
use countersteer_model::policy::{
    Needs, ParamDef, Params, Policy, PolicyError, PolicyRng, View, active,
};
use countersteer_model::topology::{GroupBy, Topology};
use countersteer_model::units::{GroupId, ThreadId};

use crate::interval::{DecisionInterval, Mean};
use crate::open_mapping::OpenMapping;
use crate::relabel::{self, Mapping, Spot, Ties};

pub(crate) const EVERY: ParamDef = ParamDef {
    key: "every_ms",
    default: "800",
    prose: "time between mappings, in ms; metrics are those of this time",
};

pub(crate) const LABELS: ParamDef = ParamDef {
    key: "labels",
    default: "free",
    prose: "free: those of equal caches and cores to which fewest threads move; fixed: the cores of the order at every mapping, as published",
};

/// Metric by which threads are ordered (CMPSched$im, sections 4.1 to 4.3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ThreadOrder {
    Misses,
    Occupancy,
    /// Threads are ordered by occupancy. Threads in the upper half with more than `mpki` misses per 1,000 instructions are
    /// poison.
    Poison {
        mpki: f64,
    },
}

/// Last-level caches of the machine, each with the groups of its cores.
struct MachineCaches {
    caches: Vec<Vec<GroupId>>,
    cpus: usize,
}

impl MachineCaches {
    fn new(topology: &Topology) -> Self {
        let cores = topology.groups_by(GroupBy::Core);
        let under = |llc: &countersteer_model::topology::Group| {
            let inside = cores.iter().filter(|core| core.cpus.is_subset(&llc.cpus));
            inside.map(|core| core.id).collect()
        };
        Self {
            caches: topology.groups_by(GroupBy::Llc).iter().map(under).collect(),
            cpus: topology.cpus.len(),
        }
    }

    fn cores(&self) -> usize {
        self.caches.iter().map(Vec::len).sum()
    }
}

pub(crate) struct PublishedPolicy {
    needs: Needs,
    interval: DecisionInterval,
    order: ThreadOrder,
    /// True if equal caches and cores may be exchanged in a mapping to avoid moves.
    relabels: bool,
    machine: MachineCaches,
    /// Mean occupancy and misses of each thread, kept while a thread does not run.
    seen: BTreeMap<ThreadId, (Mean, Mean)>,
    /// Place of each thread in the last mapping.
    spots: BTreeMap<ThreadId, Spot>,
    /// Threads of the last mapping by class: poison, then vulnerable. `None` if they were not classified.
    classes: Option<[Vec<ThreadId>; 2]>,
}

impl PublishedPolicy {
    pub(crate) fn boxed(
        order: ThreadOrder,
        params: &Params,
        topology: &Arc<Topology>,
    ) -> Result<Box<dyn Policy>, PolicyError> {
        let metrics = match order {
            ThreadOrder::Misses => vec!["llc_mpki"],
            ThreadOrder::Occupancy => vec!["llc_occupancy"],
            ThreadOrder::Poison { .. } => vec!["llc_occupancy", "llc_mpki"],
        };
        let interval = DecisionInterval::of(params, EVERY.key)?;
        Ok(Box::new(Self {
            needs: Needs {
                metrics,
                period: Some(interval.every),
                ..Needs::NOTHING
            },
            interval,
            order,
            relabels: params.choice(LABELS.key, &[("free", true), ("fixed", false)])?,
            machine: MachineCaches::new(topology),
            seen: BTreeMap::new(),
            spots: BTreeMap::new(),
            classes: None,
        }))
    }

    /// Adds the metrics since the last call to the means of each thread.
    fn note(&mut self, view: &View<'_>, threads: &[&ThreadInfo]) {
        let alive = |id: &ThreadId| view.lives(*id);
        self.seen.retain(|id, _| alive(id));
        self.spots.retain(|id, _| alive(id));
        let mut occupancy = view.column("llc_occupancy");
        let mut misses = view.column("llc_mpki");
        for info in threads {
            let (held, missed) = self.seen.entry(info.id).or_default();
            held.note(occupancy.get(info.id));
            missed.note(misses.get(info.id));
        }
    }

    /// Ends the interval. Returns the mean occupancy and misses of each thread; zero if they were never measured.
    fn close(&mut self, threads: &[&ThreadInfo]) -> Vec<(f64, f64)> {
        for (held, missed) in self.seen.values_mut() {
            held.close();
            missed.close();
        }
        let of = |info: &&ThreadInfo| {
            let known = self.seen.get(&info.id);
            known.map_or((0.0, 0.0), |(held, missed)| (held.last, missed.last))
        };
        threads.iter().map(of).collect()
    }

    /// Returns the indices of the threads in order of the metric, highest value first.
    fn order(&self, measured: &[(f64, f64)]) -> Vec<usize> {
        let by = |row: &usize| match self.order {
            ThreadOrder::Misses => measured[*row].1,
            _ => measured[*row].0,
        };
        let mut order: Vec<usize> = (0..measured.len()).collect();
        order.sort_by(|a, b| by(b).total_cmp(&by(a)).then(a.cmp(b)));
        order
    }

    /// Returns the indices of poison and of vulnerable threads (CMPSched$im, section 4.3). `None` if threads are not classified
    /// or one class is empty.
    fn classify(&self, order: &[usize], measured: &[(f64, f64)]) -> Option<[Vec<usize>; 2]> {
        let ThreadOrder::Poison { mpki } = self.order else {
            return None;
        };
        // CMPSched$im, section 4.3: of the half of the threads with the most occupancy, those with many misses are poison.
        let top = &order[..order.len().div_ceil(2)];
        let (poison, vulnerable): (Vec<usize>, Vec<usize>) =
            top.iter().partition(|row| measured[**row].1 > mpki);
        let both = !poison.is_empty() && !vulnerable.is_empty() && self.machine.caches.len() > 1;
        both.then_some([poison, vulnerable])
    }

    /// True if the classes are those of the last mapping. Stores the new classes.
    fn settled(&mut self, classes: Option<&[Vec<usize>; 2]>, threads: &[&ThreadInfo]) -> bool {
        let named = classes.map(|c| {
            c.each_ref().map(|rows| {
                let mut ids: Vec<ThreadId> = rows.iter().map(|row| threads[*row].id).collect();
                ids.sort_unstable();
                ids
            })
        });
        let known = threads.iter().all(|t| self.spots.contains_key(&t.id));
        let same = named.is_some() && known && named == self.classes;
        self.classes = named;
        same && self.spots.len() == threads.len()
    }

    /// Returns a mapping without threads, whose cores take `per_core` each.
    fn empty(&self, per_core: usize) -> OpenMapping {
        let cores = |cores: &Vec<GroupId>| vec![per_core; cores.len()];
        OpenMapping::new(self.machine.caches.iter().map(cores).collect())
    }

    /// Assigns groups of threads to the caches round-robin; each group gets the next core of its cache.
    fn round(&self, order: &[usize], per_core: usize) -> Mapping {
        let mut dealt = self.empty(per_core);
        let caches = self.machine.caches.len();
        let mut next = 0;
        for group in order.chunks(per_core) {
            let mut turns = (0..caches).map(|turn| (next + turn) % caches);
            let Some(cache) = turns.find(|cache| dealt.room(*cache) > 0) else {
                break;
            };
            dealt.fill(group, &[cache]);
            next = (cache + 1) % caches;
        }
        dealt.mapping
    }

    /// Assigns poison to as few caches as possible. Vulnerable threads get the other caches, with the threads of the least
    /// occupancy as co-runners (CMPSched$im, section 4.3).
    fn apart(
        &self,
        [poison, vulnerable]: [Vec<usize>; 2],
        order: &[usize],
        per_core: usize,
    ) -> Mapping {
        let low = &order[order.len().div_ceil(2)..];
        let mut dealt = self.empty(per_core);
        let caches: Vec<usize> = (0..self.machine.caches.len()).collect();
        let mut held = 0;
        let mut poisoned = 0;
        while held < poison.len() && poisoned + 1 < caches.len() {
            held += dealt.room(poisoned);
            poisoned += 1;
        }
        let (dirty, clean) = caches.split_at(poisoned);
        // The threads with the least occupancy harm vulnerable threads least; the others share caches with poison.
        let least_first: Vec<usize> = low.iter().rev().copied().collect();
        let mut left = dealt.fill(&poison, dirty);
        left.extend(dealt.fill(&vulnerable, clean));
        left.extend(dealt.fill(&least_first, clean));
        for row in left {
            let cores = dealt.mapping.iter_mut().flatten();
            if let Some(core) = cores.min_by_key(|core| core.len()) {
                core.push(row);
            }
        }
        dealt.mapping
    }

    /// Returns the place of each thread. Equal caches and cores are relabelled so that as few threads as possible move, unless
    /// labels are fixed.
    fn spots(&self, threads: &[&ThreadInfo], dealt: &[Vec<Vec<usize>>]) -> Vec<Spot> {
        let mut spots = vec![(0, 0); threads.len()];
        if !self.relabels {
            for (cache, cores) in dealt.iter().enumerate() {
                for (core, rows) in cores.iter().enumerate() {
                    rows.iter().for_each(|row| spots[*row] = (cache, core));
                }
            }
            return spots;
        }
        let was: Vec<Option<Spot>> = threads
            .iter()
            .map(|t| self.spots.get(&t.id).copied())
            .collect();
        let equal = |a: usize, b: usize| dealt[a].len() == dealt[b].len();
        relabel::nearest(dealt, &was, equal, Ties::First)
    }
}

impl Policy for PublishedPolicy {
    fn needs(&self) -> &Needs {
        &self.needs
    }

    fn decide(&mut self, view: &mut View<'_>, _: &mut PolicyRng) -> Placement {
        let threads = active(view);
        if self.machine.caches.len() < 2 && threads.len() <= self.machine.cpus {
            // All threads share one cache and run at the same time, so that the initial cores are kept.
            return Placement::default();
        }
        self.note(view, &threads);
        if !self.interval.is_over(view.now) {
            return Placement::default();
        }
        let measured = self.close(&threads);
        if measured.iter().all(|(held, missed)| held + missed == 0.0) {
            // Without any metric, threads stay on their initial cores.
            return Placement::default();
        }
        self.interval.begin(view.now);
        let order = self.order(&measured);
        let classes = self.classify(&order, &measured);
        if self.relabels && self.settled(classes.as_ref(), &threads) {
            return Placement::default();
        }
        let per_core = threads.len().div_ceil(self.machine.cores().max(1)).max(1);
        let dealt = match classes {
            Some(classes) => self.apart(classes, &order, per_core),
            None => self.round(&order, per_core),
        };
        let spots = self.spots(&threads, &dealt);
        let mut placement = Placement::default();
        for ((info, spot), (held, missed)) in threads.iter().zip(spots).zip(measured) {
            if self.spots.insert(info.id, spot) == Some(spot) {
                continue;
            }
            let core = self.machine.caches[spot.0][spot.1];
            let reason = Reason::rule("dealt to a core by its place in the order")
                .saw("llc_occupancy", Some(held))
                .saw("llc_mpki", Some(missed));
            let placed = ThreadPlacement::new(info.id, Target::Group(core), reason);
            placement.threads.push(placed);
        }
        placement
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test helper that fails has failed its test
mod tests {
    use super::*;
    use countersteer_model::engine::Observation;
    use countersteer_model::machine::Machine as MachineFile;
    use countersteer_model::metric::MetricBank;
    use countersteer_model::sample::{Event, Sample, Samples};
    use countersteer_model::units::{CoreTypeId, CpuId, Nanos, ProgramId};
    use rand::SeedableRng;

    fn published(order: ThreadOrder) -> PublishedPolicy {
        let cores = |first: u32| vec![GroupId(first), GroupId(first + 1)];
        PublishedPolicy {
            needs: Needs::NOTHING,
            interval: DecisionInterval::new(Nanos::ZERO),
            order,
            relabels: true,
            machine: MachineCaches {
                caches: vec![cores(0), cores(2)],
                cpus: 4,
            },
            seen: BTreeMap::new(),
            spots: BTreeMap::new(),
            classes: None,
        }
    }

    #[test]
    fn groups_of_two_go_round_the_caches() {
        let misses: Vec<(f64, f64)> = (0..8).map(|row| (0.0, 8.0 - f64::from(row))).collect();
        let policy = published(ThreadOrder::Misses);
        let dealt = policy.round(&policy.order(&misses), 2);
        assert_eq!(dealt, [[vec![0, 1], vec![4, 5]], [vec![2, 3], vec![6, 7]]]);
    }

    #[test]
    fn poison_and_vulnerable_share_no_cache() {
        // Two threads that hold much and miss much, two that hold much and miss little, four that hold little.
        let measured = [
            (9.0, 30.0),
            (8.0, 1.0),
            (7.0, 20.0),
            (6.0, 2.0),
            (4.0, 0.1),
            (3.0, 0.1),
            (2.0, 0.1),
            (1.0, 0.1),
        ];
        let policy = published(ThreadOrder::Poison { mpki: 10.0 });
        let order = policy.order(&measured);
        let classes = policy.classify(&order, &measured).unwrap();
        let dealt = policy.apart(classes, &order, 2);
        let cache = |row: usize| dealt.iter().position(|c| c.concat().contains(&row));
        assert_eq!(cache(0), cache(2));
        assert_eq!(cache(1), cache(3));
        assert_ne!(cache(0), cache(1));
        // The threads that hold least are co-runners of the vulnerable ones.
        assert_eq!(cache(7), cache(1));
        assert_eq!(cache(6), cache(1));
        let sizes: Vec<usize> = dealt.iter().flatten().map(Vec::len).collect();
        assert_eq!(sizes, [2, 2, 2, 2]);
    }

    #[test]
    fn fixed_labels_move_threads_that_free_ones_leave() {
        let thread = |id: u32| ThreadInfo {
            id: ThreadId(id),
            program: ProgramId(id),
            name: "p".into(),
            cpu: CpuId(id),
            runnable: true,
            nice: 0,
            allowed: Arc::default(),
            hint: None,
        };
        let threads: Vec<ThreadInfo> = (0..4).map(thread).collect();
        let threads: Vec<&ThreadInfo> = threads.iter().collect();
        let mut policy = published(ThreadOrder::Misses);
        let was = [(1, 0), (1, 0), (0, 0), (0, 0)];
        policy.spots = threads.iter().map(|t| t.id).zip(was).collect();
        // The first two are the first group now: under which of two equal caches makes no difference.
        let dealt = [[vec![0, 1], vec![]], [vec![2, 3], vec![]]].map(Vec::from);
        assert_eq!(policy.spots(&threads, &dealt), was);
        policy.relabels = false;
        let fixed = [(0, 0), (0, 0), (1, 0), (1, 0)];
        assert_eq!(policy.spots(&threads, &dealt), fixed);
    }

    /// Times of placements in ms, if decisions come every 100 ms and the order of misses changes all the time.
    fn placed_at_ms(params: &str) -> Vec<u64> {
        let text = include_str!("../tests/toy/two-caches.toml");
        let topology = Arc::new(Topology::new(&MachineFile::parse("m", text).unwrap()));
        let params = Params::parse(&crate::mpi::DEF, params).unwrap();
        let mut policy = PublishedPolicy::boxed(ThreadOrder::Misses, &params, &topology).unwrap();
        let info = |id: u32| ThreadInfo {
            id: ThreadId(id),
            program: ProgramId(id),
            name: "p".into(),
            cpu: CpuId(id),
            runnable: true,
            nice: 0,
            allowed: Arc::clone(&topology.groups[0].cpus),
            hint: None,
        };
        let threads: Vec<ThreadInfo> = (0..4).map(info).collect();
        let mut metrics = MetricBank::new(&topology, &policy.needs().metrics);
        let mut rng = PolicyRng::seed_from_u64(1);
        let mut placed = Vec::new();
        for step in 0..100 {
            let now = Nanos::from_millis(step * 100);
            // The second and the third thread swap ranks every 300 ms.
            let few = [40.0, 30.0, 20.0, 1.0];
            let many = [40.0, 20.0, 30.0, 1.0];
            let mpki = if step / 3 % 2 == 0 { few } else { many };
            let samples = threads.iter().zip(mpki).map(|(info, mpki)| {
                let time = Nanos::from_millis(100);
                let head = Sample::of_thread(info.id, info.cpu, CoreTypeId(0), now, time);
                let counts = [(Event::Instructions, 1e6), (Event::LlcMisses, mpki * 1e3)];
                Samples::of(head, 1, &counts)
            });
            metrics.update(&Observation {
                samples: samples.collect(),
                ..Observation::default()
            });
            let mut view = View {
                group: None,
                programs: &[],
                now,
                topology: &topology,
                threads: &threads,
                events: &[],
                metrics: &metrics,
                forecast: None,
            };
            if !policy.decide(&mut view, &mut rng).threads.is_empty() {
                placed.push(step * 100);
            }
        }
        placed
    }

    #[test]
    fn threads_are_mapped_no_more_often_than_every_interval() {
        let placed = placed_at_ms("every_ms=800");
        assert!(placed.len() > 2, "{placed:?}");
        let gaps = placed.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(gaps.min() >= Some(800), "{placed:?}");
        assert!(placed_at_ms("every_ms=100").len() > 20);
    }
}
