//! The policy: measures, explores, searches, places threads, and checks the results.

mod trial;

use std::collections::BTreeMap;
use std::sync::Arc;

use countersteer_model::engine::ThreadInfo;
use countersteer_model::placement::{Placement, Reason, Target, ThreadPlacement};
use countersteer_model::policy::{
    Needs, ParamDef, Params, Policy, PolicyDef, PolicyError, PolicyRng, View,
};
use countersteer_model::topology::Topology;
use countersteer_model::units::{GroupId, Nanos, ProgramId, ThreadId};
use rand::RngExt;

use crate::life::{Lives, SLEEPER, YOUNG};

use self::trial::{ChangeTrial, PredictedChange};
use super::estimate::{PredictedThread, ThreadEstimate};
use super::places::MachinePlaces;
use super::predict::{Elsewhere, Predictor};
use super::search::{JointObjective, ObjectiveValue, SubjectMove, Terms, improve, rearrange};
use super::ways::WayDivisions;

pub(crate) const DEF: PolicyDef = PolicyDef {
    name: "joint",
    summary: "unequal cores and shared caches at once: exchanges of threads that counters predict to pay",
    source: "this project; parts from PMCTrack, sections 4.1 and 4.3.1, and HOTL (Xiang et al., ASPLOS 2013)",
    params: &[
        ParamDef {
            key: "objective",
            default: "throughput",
            prose: "what changes have to improve: throughput (sum of speeds relative to alone on the fastest cores), fairness (the \
                    same, weighed by lag in progress), energy (per instruction) or edp",
        },
        ParamDef {
            key: "floor",
            default: "off",
            prose: "no change may slow a thread down to more than this many times its time alone on the fastest cores, as predicted \
                    (1.2, say); off: any",
        },
        ParamDef {
            key: "every_ms",
            default: "800",
            prose: "time between searches, in ms",
        },
        ParamDef {
            key: "margin",
            default: "0.004",
            prose: "relative gain of the whole below which no change is made",
        },
        ParamDef {
            key: "horizon_ms",
            default: "3000",
            prose: "time within which a gain must pay for the moves, in ms",
        },
        ParamDef {
            key: "young_ms",
            default: "1000",
            prose: "expected CPU time in ms below which a thread is left to Linux. Expected is what the thread has had, or the mean of \
                    its program's earlier threads. 0: no thread is left to Linux",
        },
        ParamDef {
            key: "explore",
            default: "on",
            prose: "on: threads are measured on each kind of core when they start together; off: predicted speed-up factors",
        },
        ParamDef {
            key: "ways",
            default: "off",
            prose: "on: the ways of last-level caches are divided among clusters of threads, too (resctrl)",
        },
    ],
    make: |params, topology| Ok(Box::new(Joint::new(params, topology)?)),
};

pub(super) const METRICS: [&str; 7] = [
    "ips",
    "llc_mpki",
    "llc_occupancy",
    "l2_mpki",
    "sf",
    "energy_per_instruction",
    "llc_apki",
];
/// Rows solved per search.
const EFFORT: usize = 30_000;
/// Exchanges and moves evaluated per step of a search.
const CANDIDATES: usize = 1_500;
/// Threads in a search: if there are more, those of a few last-level caches, and never more than the second limit.
const WINDOW: usize = 96;
const MOST_IN_WINDOW: usize = 256;
/// Number of placements of a thread in the same group without effect.
const MOST_TRIES: u8 = 3;
/// Rearrangements tried per search that finds no single change.
const KICKS: usize = 2;
/// Weight of lag in progress under `objective=fairness`.
const LAG: f64 = 4.0;

pub(super) struct Joint {
    needs: Needs,
    objective: JointObjective,
    floor: f64,
    margin: f64,
    every: Nanos,
    horizon: Nanos,
    pub(super) explore: bool,
    pub(super) places: MachinePlaces,
    pub(super) threads: BTreeMap<ThreadId, ThreadEstimate>,
    /// Core of each placed thread, and the time of its placement.
    pub(super) placed: BTreeMap<ThreadId, (usize, Nanos)>,
    /// Threads left to the kernel.
    pub(super) light: BTreeMap<ThreadId, Nanos>,
    /// Last changes, until their result is known.
    trial: Option<ChangeTrial>,
    /// End time of a ban of a thread from a kind of core under a cache, and its length.
    pub(super) bans: BTreeMap<(ThreadId, (usize, usize)), (Nanos, u64)>,
    divisions: WayDivisions,
    searched: Nanos,
    pub(super) last: Nanos,
    /// Length of the last interval.
    pub(super) interval: Nanos,
    pub(super) lives: Lives,
    pub(super) visits: usize,
    pub(super) visiting: u32,
    /// Predicted lines of threads in the shared cache before the last one.
    pub(super) inner: BTreeMap<ThreadId, f64>,
    /// Factor on memory latency, by domain, in the last interval.
    pub(super) factor: Vec<f64>,
    /// Lines per ns, by domain, in the last interval.
    pub(super) traffic: Vec<f64>,
}

impl Joint {
    fn new(params: &Params, topology: &Arc<Topology>) -> Result<Self, PolicyError> {
        let objectives = [
            ("throughput", JointObjective::Throughput),
            ("fairness", JointObjective::Fairness),
            ("energy", JointObjective::Energy),
            ("edp", JointObjective::Edp),
        ];
        let places = MachinePlaces::new(topology);
        let ms = |key| {
            params
                .number(key, 1.0)
                .map(|ms| Nanos::from_secs_f64(ms * 1e-3))
        };
        let kinds = places.kinds.len();
        Ok(Self {
            needs: Needs::metrics(&METRICS),
            objective: params.choice("objective", &objectives)?,
            floor: if params.text("floor") == "off" {
                f64::INFINITY
            } else {
                params.number("floor", 1.0)?
            },
            margin: params.number("margin", 0.0)?,
            every: ms("every_ms")?,
            horizon: ms("horizon_ms")?,
            explore: params.choice("explore", &[("on", true), ("off", false)])? && kinds > 1,
            factor: vec![1.0; places.memory.len()],
            traffic: vec![0.0; places.memory.len()],
            places,
            threads: BTreeMap::new(),
            inner: BTreeMap::new(),
            placed: BTreeMap::new(),
            light: BTreeMap::new(),
            trial: None,
            bans: BTreeMap::new(),
            divisions: WayDivisions::new(
                topology,
                params.choice("ways", &[("off", false), ("on", true)])?,
            ),
            searched: Nanos::ZERO,
            last: Nanos::ZERO,
            interval: Nanos::ZERO,
            lives: Lives::new(params.number(YOUNG, 0.0)? * 1e-3),
            visits: 0,
            visiting: 0,
        })
    }

    /// Stores the cores on which the kernel runs young threads. They are measured there, and begin there when they are no
    /// longer young.
    fn follow(&mut self, young: &[&ThreadInfo], now: Nanos) {
        for info in young {
            let spots = &self.places.spots;
            let spot = spots.iter().position(|s| s.cpus.contains(info.cpu));
            let here = self.placed.get(&info.id).map(|placed| placed.0);
            if let Some(spot) = spot.filter(|spot| here != Some(*spot)) {
                self.placed.insert(info.id, (spot, now));
            }
        }
    }

    /// Gives threads without a core the best core that is left.
    fn assign(&mut self, heavy: &[&ThreadInfo], now: Nanos) {
        let mut load = vec![0usize; self.places.spots.len()];
        let mut behind = vec![0usize; self.places.caches.len()];
        let keeps: Vec<ThreadId> = heavy.iter().map(|t| t.id).collect();
        self.placed.retain(|id, _| keeps.binary_search(id).is_ok());
        for (spot, _) in self.placed.values() {
            load[*spot] += 1;
            behind[self.places.llc(*spot)] += 1;
        }
        for info in heavy {
            if self.placed.contains_key(&info.id) {
                continue;
            }
            let cost = |spot: &usize| {
                let place = &self.places.spots[*spot];
                let rounds = load[*spot] / place.ways;
                let elsewhere = !place.cpus.contains(info.cpu);
                (
                    rounds,
                    load[*spot] % place.ways,
                    place.kind,
                    behind[self.places.llc(*spot)],
                    elsewhere,
                )
            };
            if let Some(spot) = (0..self.places.spots.len()).min_by_key(cost) {
                load[spot] += 1;
                behind[self.places.llc(spot)] += 1;
                self.placed.insert(info.id, (spot, now));
            }
        }
    }

    /// Threads as input of predictions; `None` while a thread is unknown.
    fn subjects(&mut self, heavy: &[&ThreadInfo]) -> Option<Vec<PredictedThread>> {
        let mut threads: BTreeMap<ProgramId, usize> = BTreeMap::new();
        for info in heavy {
            *threads.entry(info.program).or_default() += 1;
        }
        let known = heavy.iter().filter_map(|t| self.threads.get(&t.id));
        let mean = known.map(|e| e.progress).sum::<f64>() / heavy.len().max(1) as f64;
        let subject = |info: &&ThreadInfo| {
            let estimate = self.threads.get_mut(&info.id)?;
            let mut weight = 1.0 / threads.get(&info.program).copied().unwrap_or(1) as f64;
            if self.objective == JointObjective::Fairness {
                weight *= ((mean + 1.0) / (estimate.progress + 1.0)).powf(LAG);
            }
            estimate.subject(&self.places, weight)
        };
        heavy.iter().map(subject).collect()
    }

    /// Threads in a search: all, or those behind a few last-level caches if there are many.
    fn window<'a>(&self, heavy: &[&'a ThreadInfo], rng: &mut PolicyRng) -> Vec<&'a ThreadInfo> {
        if heavy.len() <= WINDOW {
            return heavy.to_vec();
        }
        let mut behind: BTreeMap<usize, Vec<&ThreadInfo>> = BTreeMap::new();
        for info in heavy {
            if let Some((spot, _)) = self.placed.get(&info.id) {
                behind.entry(self.places.llc(*spot)).or_default().push(info);
            }
        }
        let mut caches: Vec<Vec<&ThreadInfo>> = behind.into_values().collect();
        let mut window = Vec::new();
        while window.len() < WINDOW && !caches.is_empty() {
            window.extend(caches.swap_remove(rng.random_range(0..caches.len())));
        }
        window.truncate(MOST_IN_WINDOW);
        window.sort_by_key(|t| t.id);
        window
    }

    /// Threads on each core, and lines per ns from each memory domain, of the threads outside a search.
    fn elsewhere(&self, window: &[&ThreadInfo]) -> Elsewhere {
        let mut elsewhere = Elsewhere {
            load: vec![0; self.places.spots.len()],
            traffic: self.traffic.clone(),
        };
        for (id, (spot, _)) in &self.placed {
            if window.binary_search_by_key(id, |t| t.id).is_err() {
                elsewhere.load[*spot] += 1;
            } else if let Some(estimate) = self.threads.get(id) {
                elsewhere.traffic[self.places.spots[*spot].memory] -= estimate.traffic;
            }
        }
        elsewhere
    }

    /// Threads behind each last-level cache, in ascending order.
    fn behind(&self, heavy: &[&ThreadInfo]) -> BTreeMap<usize, Vec<ThreadId>> {
        let mut behind: BTreeMap<usize, Vec<ThreadId>> = BTreeMap::new();
        for info in heavy {
            if let Some((spot, _)) = self.placed.get(&info.id) {
                let cache = self.places.llc(*spot);
                behind.entry(cache).or_default().push(info.id);
            }
        }
        behind
    }

    /// Identity of a core for bans: its kind and its innermost cache outside the core.
    fn site(&self, spot: usize) -> (usize, usize) {
        let place = &self.places.spots[spot];
        (place.kind, place.chain.first().copied().unwrap_or(0))
    }

    /// Searches for better places, and takes the best that it finds.
    fn search(
        &mut self,
        heavy: &[&ThreadInfo],
        now: Nanos,
        reached: &BTreeMap<ThreadId, f64>,
        rng: &mut PolicyRng,
    ) {
        let heavy = &self.window(heavy, rng);
        if heavy.is_empty() {
            return;
        }
        let Some(subjects) = self.subjects(heavy) else {
            return;
        };
        let elsewhere = self.elsewhere(heavy);
        let before = heavy.iter().filter_map(|t| Some(self.placed.get(&t.id)?.0));
        let before: Vec<usize> = before.collect();
        let mut predictor = Predictor::new(&self.places, &subjects, before.clone(), elsewhere);
        self.divisions.tell(&mut predictor, heavy);
        if !predictor.parts.is_empty() {
            predictor.settle();
        }
        let (value, speeds) = (ObjectiveValue::of(&predictor), predictor.speeds.clone());
        self.improve(&mut predictor, heavy, now, rng);
        if predictor.mapping == before {
            self.divisions.divide(&mut predictor, heavy, reached, now);
        }
        let inner = |row: usize| predictor.held[row].iter().rev().nth(1).copied();
        self.inner = (0..heavy.len())
            .filter_map(|row| Some((heavy[row].id, inner(row)?)))
            .collect();
        let promised = value.gain(ObjectiveValue::of(&predictor), self.objective);
        let found = (0..heavy.len()).map(|row| PredictedChange {
            id: heavy[row].id,
            cores: (before[row], predictor.mapping[row]),
            speeds: (speeds[row], predictor.speeds[row]),
            worth: subjects[row].weight / subjects[row].alone,
        });
        let found: Vec<PredictedChange> = found.collect();
        self.adopt(&found, promised, now, reached);
    }

    /// Improves the mapping of a predictor: by single changes, or else by rearrangements.
    fn improve(
        &self,
        predictor: &mut Predictor<'_>,
        heavy: &[&ThreadInfo],
        now: Nanos,
        rng: &mut PolicyRng,
    ) {
        let restless = |t: &&ThreadInfo| self.threads.get(&t.id).map_or(0.0, |e| e.restless);
        let reluctance: Vec<f64> = heavy.iter().map(|t| 1.0 + restless(t)).collect();
        let is_banned = |(row, to): &SubjectMove| {
            let ban = self.bans.get(&(heavy[*row].id, self.site(*to)));
            ban.is_some_and(|ban| ban.0 > now)
        };
        let terms = Terms {
            objective: self.objective,
            floor: self.floor,
            margin: self.margin,
            horizon_ns: self.horizon.as_secs_f64() * 1e9,
            effort: EFFORT,
            candidates: CANDIDATES,
            reluctance: &reluctance,
            banned: &|changes| changes.iter().any(is_banned),
        };
        let before = predictor.mapping.clone();
        improve(predictor, &terms, rng);
        if predictor.mapping == before {
            for _ in 0..KICKS {
                rearrange(predictor, &terms, rng);
            }
        }
    }

    /// Placements of threads that are not at their assigned places. A thread that stays elsewhere is placed a few times and
    /// then left alone.
    fn tell(&mut self, heavy: &[&ThreadInfo], topology: &Topology) -> Vec<ThreadPlacement> {
        let mut placements = Vec::new();
        for info in heavy {
            let (Some((spot, _)), Some(estimate)) =
                (self.placed.get(&info.id), self.threads.get_mut(&info.id))
            else {
                continue;
            };
            let place = &self.places.spots[*spot];
            let group = place.group;
            let stays = estimate.placed == GroupId(0) && place.cpus.contains(info.cpu);
            if estimate.placed != group {
                (estimate.placed, estimate.tries) = (group, 0);
            }
            if info.allowed.is_subset(&topology.group(group).cpus) {
                estimate.tries = 0;
                continue;
            }
            estimate.tries += 1;
            if estimate.tries > MOST_TRIES {
                estimate.tries = MOST_TRIES;
                continue;
            }
            let reason = reason(estimate, stays, self.visiting > 0);
            placements.push(ThreadPlacement::new(info.id, Target::Group(group), reason));
        }
        placements
    }
}

fn reason(estimate: &ThreadEstimate, stays: bool, visits: bool) -> Reason {
    let rule = match estimate.seen {
        0 => "nothing is known of it: the best core that is free",
        _ if visits => "to be measured on each kind of core",
        _ if stays => "stays where Linux placed it",
        _ => "part of the exchange that is predicted to gain most",
    };
    let seen = estimate.why().into_iter();
    seen.fold(Reason::rule(rule), |reason, (name, value)| {
        reason.saw(name, Some(value))
    })
}

impl Policy for Joint {
    fn needs(&self) -> &Needs {
        &self.needs
    }

    fn decide(&mut self, view: &mut View<'_>, rng: &mut PolicyRng) -> Placement {
        self.lives.note(view);
        self.note(view);
        let is_heavy = |t: &&ThreadInfo| !self.lives.sleeps(t.id);
        let heavy: Vec<&ThreadInfo> = view.threads.iter().filter(is_heavy).collect();
        let (young, old): (Vec<&ThreadInfo>, Vec<&ThreadInfo>) =
            heavy.iter().partition(|t| self.lives.is_young(t.id));
        self.follow(&young, view.now);
        self.assign(&heavy, view.now);
        let heavy = old;
        // Threads are measured when they start together.
        let visits = young.is_empty() && self.visit(&heavy, view.now);
        if !visits && view.now.since(self.searched) >= self.every {
            self.searched = view.now;
            let reached = self.reached();
            self.divisions.check(&reached, view.now);
            if !self.check(&reached, view.now) {
                self.search(&heavy, view.now, &reached, rng);
            }
        }
        if self.divisions.is_on() {
            let behind = self.behind(&heavy);
            self.divisions.end(&behind, view.now);
        }
        let mut threads = self.tell(&heavy, view.topology);
        threads.extend(self.lives.leave(view, &young));
        for info in view.threads {
            if self.placed.contains_key(&info.id) {
                self.light.remove(&info.id);
            } else if self.light.insert(info.id, view.now).is_none() {
                let reason = Reason::rule(SLEEPER);
                threads.push(ThreadPlacement::new(info.id, Target::Anywhere, reason));
            }
        }
        threads.sort_by_key(|t| t.thread);
        Placement {
            threads,
            caches: self.divisions.classes(),
            ..Placement::default()
        }
    }
}
