//! Ways of the last-level caches, with `ways=on`.
//!
//! Input: a mapping that the search leaves as it is, with its predictions. Output: for each last-level cache whose threads are
//! predicted to gain by it, clusters of threads with ways of their own.
//!
//! Clusters are those of LFOC (`clusters`), from predicted instead of measured slowdowns. A division is kept only if its threads are
//! then faster than before, as measured; otherwise it is undone, and not tried again for a time that doubles. It ends when a thread
//! comes or leaves, or after [`AGAIN`].

use std::collections::BTreeMap;

use countersteer_model::engine::ThreadInfo;
use countersteer_model::placement::{CacheShare, Members, WayClass, Ways};
use countersteer_model::topology::{GroupBy, Topology};
use countersteer_model::units::{GroupId, Nanos, ProgramId, ThreadId};

use super::places::MachinePlaces;
use super::predict::Predictor;
use crate::clusters::classes::{Cluster, WayCurve, WayPoint, clusters};
use crate::ways::{FEWEST, of_group};

/// Relative gain, summed over the threads of a cache, below which no division is tried.
const WORTH: f64 = 0.01;
/// Time after which a division is thought over.
const AGAIN: Nanos = Nanos::from_millis(20_000);
/// Time for which an undone division is not tried again, in ms: initial (half of it) and maximal.
const HOLD: u64 = 8_000;
const MOST_HOLD: u64 = 128_000;

/// Last-level cache that can be divided.
struct Llc {
    group: GroupId,
    ways: u32,
}

/// Division of a cache: threads, in ascending order, and ways of each cluster.
struct WayDivision {
    clusters: Vec<(Vec<ThreadId>, u32)>,
    since: Nanos,
    /// Speeds before, with their weights, until the result is checked.
    before: Vec<(ThreadId, f64, f64)>,
}

impl WayDivision {
    fn members(&self) -> Vec<ThreadId> {
        let mut all: Vec<ThreadId> = self.clusters.iter().flat_map(|c| c.0.clone()).collect();
        all.sort_unstable();
        all
    }
}

/// Divisions of all caches.
pub(super) struct WayDivisions {
    llcs: BTreeMap<usize, Llc>,
    present: BTreeMap<usize, WayDivision>,
    /// End time of a ban of a cache's division, and its length.
    bans: BTreeMap<usize, (Nanos, u64)>,
    changed: bool,
}

impl WayDivisions {
    /// Caches of a machine; none with `on` false.
    pub fn new(topology: &Topology, on: bool) -> Self {
        let groups = topology.groups_by(GroupBy::Llc).iter();
        let llc = |group: &countersteer_model::topology::Group| {
            let cache = topology.llc_of(group.cpus.lowest()?).index();
            let ways = of_group(topology, group.id);
            let group = group.id;
            (ways >= FEWEST).then_some((cache, Llc { group, ways }))
        };
        Self {
            llcs: groups.filter(|_| on).filter_map(llc).collect(),
            present: BTreeMap::new(),
            bans: BTreeMap::new(),
            changed: false,
        }
    }

    /// True if caches may be divided.
    pub fn is_on(&self) -> bool {
        !self.llcs.is_empty()
    }

    /// Ends the divisions of caches whose threads changed, and old ones.
    pub fn end(&mut self, behind: &BTreeMap<usize, Vec<ThreadId>>, now: Nanos) {
        let before = self.present.len();
        self.present.retain(|cache, division| {
            behind.get(cache) == Some(&division.members()) && now.since(division.since) < AGAIN
        });
        self.changed |= self.present.len() != before;
    }

    /// Checks new divisions by the speeds reached since, and undoes those that lost.
    pub fn check(&mut self, reached: &BTreeMap<ThreadId, f64>, now: Nanos) {
        let bans = &mut self.bans;
        let before = self.present.len();
        self.present.retain(|cache, division| {
            let gains = std::mem::take(&mut division.before).into_iter();
            let gained: f64 = gains
                .map(|(id, speed, worth)| worth * (reached.get(&id).map_or(0.0, |now| now - speed)))
                .sum();
            if gained >= 0.0 {
                return true;
            }
            let ban = bans.entry(*cache).or_insert((now, HOLD / 2));
            ban.1 = (ban.1 * 2).min(MOST_HOLD);
            ban.0 = now + Nanos::from_millis(ban.1);
            false
        });
        self.changed |= self.present.len() != before;
    }

    /// Tells a predictor of the present divisions.
    pub fn tell(&self, predictor: &mut Predictor<'_>, window: &[&ThreadInfo]) {
        let row = |id: &ThreadId| window.binary_search_by_key(id, |t| t.id).ok();
        for (cache, division) in &self.present {
            let way = predictor.places.caches[*cache] / f64::from(self.llcs[cache].ways);
            let parts = division.clusters.iter().map(|(members, ways)| {
                let rows = members.iter().filter_map(row).collect();
                (rows, way * f64::from(*ways))
            });
            predictor.parts.insert(*cache, parts.collect());
        }
    }

    /// Divides caches that are not divided yet, where that is predicted to pay.
    pub fn divide(
        &mut self,
        predictor: &mut Predictor<'_>,
        window: &[&ThreadInfo],
        reached: &BTreeMap<ThreadId, f64>,
        now: Nanos,
    ) {
        for (cache, llc) in &self.llcs {
            let is_banned = self.bans.get(cache).is_some_and(|ban| ban.0 > now);
            if is_banned || self.present.contains_key(cache) || !predictor.is_known(*cache) {
                continue;
            }
            let Some(found) = found(predictor, *cache, llc.ways) else {
                continue;
            };
            let worth = |row: usize| {
                let subject = &predictor.subjects[row];
                let id = window[row].id;
                Some((id, *reached.get(&id)?, subject.weight / subject.alone))
            };
            let rows = found.iter().flat_map(rows_of);
            let before = rows.filter_map(worth).collect();
            let named = |cluster: &Cluster| {
                let mut members: Vec<ThreadId> = rows_of(cluster).map(|r| window[r].id).collect();
                members.sort_unstable();
                (members, cluster.ways)
            };
            let division = WayDivision {
                clusters: found.iter().map(named).collect(),
                since: now,
                before,
            };
            self.present.insert(*cache, division);
            self.changed = true;
        }
    }

    /// Classes of all divisions, if they changed since the last call. The clusters of different caches share classes, of which
    /// processors have few.
    pub fn classes(&mut self) -> Option<Vec<WayClass>> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        let most = self.present.values().map(|d| d.clusters.len()).max();
        let class = |nth: usize| {
            let mut members = Vec::new();
            let mut shares = Vec::new();
            for (cache, division) in &self.present {
                let Some((threads, ways)) = division.clusters.get(nth) else {
                    continue;
                };
                members.extend_from_slice(threads);
                let first = division.clusters[..nth].iter().map(|c| c.1).sum();
                shares.push(CacheShare {
                    llc: self.llcs[cache].group,
                    ways: Some(Ways {
                        first: Some(first),
                        count: *ways,
                    }),
                    bandwidth: None,
                });
            }
            members.sort_unstable();
            WayClass {
                name: format!("joint{nth}").into(),
                members: Members::Threads(members),
                shares,
            }
        };
        Some((0..most.unwrap_or(0)).map(class).collect())
    }
}

fn rows_of(cluster: &Cluster) -> impl Iterator<Item = usize> + '_ {
    cluster.members.iter().map(|id| id.index())
}

/// Clusters of the threads behind a cache, if they are predicted to gain; then the predictor knows of them.
fn found(predictor: &mut Predictor<'_>, cache: usize, ways: u32) -> Option<Vec<Cluster>> {
    let rows = predictor.rows_behind(cache).to_vec();
    if rows.len() < 2 || rows.iter().any(|row| predictor.shares_core(*row)) {
        return None;
    }
    let curves: Vec<(ProgramId, WayCurve)> = (rows.iter())
        .map(|row| (ProgramId::from_index(*row), curve(predictor, *row, ways)))
        .collect();
    let named = curves.iter().map(|(id, curve)| (*id, curve)).collect();
    let found = clusters(&named, ways);
    if found.is_empty() {
        return None;
    }
    let way = predictor.places.caches[cache] / f64::from(ways);
    let before = worth(predictor, &rows);
    let part = |cluster: &Cluster| (rows_of(cluster).collect(), way * f64::from(cluster.ways));
    let parts = found.iter().map(part).collect();
    predictor.parts.insert(cache, parts);
    predictor.solve();
    if worth(predictor, &rows) > before * (1.0 + WORTH) {
        return Some(found);
    }
    predictor.parts.remove(&cache);
    predictor.solve();
    None
}

/// Sum of the relative speeds of threads, as predicted.
fn worth(predictor: &Predictor<'_>, rows: &[usize]) -> f64 {
    let each = rows.iter().map(|row| {
        let subject = &predictor.subjects[*row];
        let speed = predictor.believed(*row, predictor.mapping[*row], predictor.speeds[*row]);
        subject.weight / subject.alone * speed
    });
    each.sum()
}

/// Predicted speed and misses of a thread by its number of ways of the last-level cache.
fn curve(predictor: &Predictor<'_>, row: usize, ways: u32) -> WayCurve {
    let MachinePlaces { spots, kinds, .. } = predictor.places;
    let spot = &spots[predictor.mapping[row]];
    let kind = &kinds[spot.kind];
    let subject = &predictor.subjects[row];
    let last = kind.lines.len() - 1;
    let factor = predictor.factor[spot.memory];
    let point = |count: u32| {
        let lines = kind.lines[last] * f64::from(count) / f64::from(ways);
        let misses = subject.curve.at(lines);
        let ns = subject.base[spot.kind] + near_ns(predictor, row);
        let ns = ns + subject.exposed * misses * kind.step(last + 1) * factor;
        let point = WayPoint {
            ipc: 1.0 / (ns * kind.ghz),
            mpkc: 1000.0 * misses / (ns * kind.ghz),
        };
        (count, point)
    };
    (1..=ways).map(point).collect()
}

/// Time per instruction, in ns, that a thread waits for the caches before and including the last level.
fn near_ns(predictor: &Predictor<'_>, row: usize) -> f64 {
    let kind = &predictor.places.kinds[predictor.places.spots[predictor.mapping[row]].kind];
    let subject = &predictor.subjects[row];
    let mut lines = kind.private_lines;
    let mut ns = 0.0;
    for (level, held) in predictor.held[row].iter().enumerate() {
        ns += subject.exposed * subject.curve.at(lines) * kind.step(level);
        lines = lines.max(*held);
    }
    ns
}
