//! Hierarchical clusters of programs, by the misses that sharing of ways costs.
//!
//! Input: speed and misses of each program by its number of ways. Output: clusters, each with members and ways.
//!
//! Source: KPart (El-Sayed et al., HPCA 2018): the distance of two clusters is the area between the miss curve of both when they
//! share, and that of both under the best partition; the nearest are joined first, and the number of clusters is the one whose
//! estimate is best. The curve of programs that share is that of Whirlpool (Mukkara et al., ASPLOS 2016): a cache that grows
//! is filled in proportion to misses.

use std::collections::BTreeMap;

use countersteer_model::units::ProgramId;

use super::classes::{Cluster, MOST, WayCurve, misses, slowdown};
use crate::ways::lookahead;

/// Steps per way in which a shared cache grows.
const STEPS: u32 = 8;

/// Cluster under construction.
#[derive(Clone)]
struct OpenCluster<'a> {
    members: Vec<(ProgramId, &'a WayCurve)>,
    /// Misses per 1,000 cycles of all members, and sizes of the members' shares in ways, by number of ways from one.
    shared: Vec<(f64, Vec<f64>)>,
}

impl<'a> OpenCluster<'a> {
    fn new(members: Vec<(ProgramId, &'a WayCurve)>, ways: u32) -> Self {
        let shared = shares(&members, ways);
        Self { members, shared }
    }

    fn joined(&self, other: &Self) -> Self {
        let members = self.members.iter().chain(&other.members);
        Self::new(members.copied().collect(), self.shared.len() as u32)
    }

    fn misses(&self, ways: usize) -> f64 {
        self.shared[ways - 1].0
    }

    /// Slowdowns of the members if the group has this many ways.
    fn slowdowns(&self, ways: u32) -> impl Iterator<Item = f64> {
        let sizes = &self.shared[ways as usize - 1].1;
        let members = self.members.iter().zip(sizes);
        members.map(|((_, curve), size)| slowdown(curve, *size))
    }
}

/// Returns misses of all members, and each member's size in ways, for one to `ways` shared ways.
fn shares(members: &[(ProgramId, &WayCurve)], ways: u32) -> Vec<(f64, Vec<f64>)> {
    let mut sizes = vec![0.0; members.len()];
    let of = |sizes: &[f64]| -> Vec<f64> {
        let each = members.iter().zip(sizes);
        each.map(|((_, curve), size)| misses(curve, *size))
            .collect()
    };
    let mut rows = Vec::new();
    for _ in 0..ways {
        for _ in 0..STEPS {
            let flows = of(&sizes);
            let sum: f64 = flows.iter().sum();
            for (size, flow) in sizes.iter_mut().zip(&flows) {
                let part = if sum > 0.0 {
                    flow / sum
                } else {
                    1.0 / members.len() as f64
                };
                *size += part / f64::from(STEPS);
            }
        }
        rows.push((of(&sizes).iter().sum(), sizes.clone()));
    }
    rows
}

/// Returns the area between the misses of both groups when they share ways, and under the best partition of the same ways.
fn distance(a: &OpenCluster<'_>, b: &OpenCluster<'_>) -> f64 {
    let both = a.joined(b);
    let most = both.shared.len();
    let divided = |ways: usize| {
        let splits = (1..ways).map(|own| a.misses(own) + b.misses(ways - own));
        splits.fold(f64::INFINITY, f64::min)
    };
    (2..=most)
        .map(|ways| (both.misses(ways) - divided(ways)).max(0.0))
        .sum()
}

/// Returns the clusters with the lowest estimated cost of all slowdowns. Empty if no division is estimated to be better than the
/// shared cache.
pub(super) fn clusters(
    programs: &BTreeMap<ProgramId, &WayCurve>,
    ways: u32,
    cost: impl Fn(&mut dyn Iterator<Item = f64>) -> f64,
) -> Vec<Cluster> {
    let alone = programs.iter().map(|(id, curve)| (*id, *curve));
    let mut groups: Vec<OpenCluster<'_>> = alone
        .map(|member| OpenCluster::new(vec![member], ways))
        .collect();
    let mut best = (f64::INFINITY, Vec::new());
    while !groups.is_empty() {
        if groups.len() <= MOST.min(ways as usize) {
            let counts = divide(&groups, ways);
            let mut slowdowns = groups
                .iter()
                .zip(&counts)
                .flat_map(|(g, w)| g.slowdowns(*w));
            let estimate = cost(&mut slowdowns);
            // Fewer clusters win a tie: they need fewer classes of service.
            if estimate <= best.0 {
                best = (estimate, named(&groups, &counts));
            }
        }
        let Some((a, b)) = nearest(&groups) else {
            break;
        };
        let joined = groups[a].joined(&groups[b]);
        groups.remove(b);
        groups[a] = joined;
    }
    if best.1.len() < 2 { Vec::new() } else { best.1 }
}

fn divide(groups: &[OpenCluster<'_>], ways: u32) -> Vec<u32> {
    let rows = groups.iter().map(|group| {
        let misses = group.shared.iter().map(|(misses, _)| *misses);
        misses.collect::<Vec<f64>>()
    });
    lookahead(&rows.collect::<Vec<_>>(), ways)
}

fn named(groups: &[OpenCluster<'_>], counts: &[u32]) -> Vec<Cluster> {
    let each = groups.iter().zip(counts);
    each.map(|(group, ways)| Cluster {
        members: group.members.iter().map(|(id, _)| *id).collect(),
        ways: *ways,
    })
    .collect()
}

/// Returns the rows of the two nearest groups, in order; `None` if there is one group.
fn nearest(groups: &[OpenCluster<'_>]) -> Option<(usize, usize)> {
    let pairs = (0..groups.len()).flat_map(|a| (a + 1..groups.len()).map(move |b| (a, b)));
    let distances = pairs.map(|(a, b)| (distance(&groups[a], &groups[b]), (a, b)));
    let nearest = distances.min_by(|x, y| x.0.total_cmp(&y.0));
    nearest.map(|(_, pair)| pair)
}

#[cfg(test)]
mod tests {
    use super::super::classes::WayPoint;
    use super::*;

    /// Curve whose speed falls with misses, at 1 to 11 ways: `misses` per 1,000 cycles with N ways.
    fn curve(misses: impl Fn(u32) -> f64) -> WayCurve {
        let points = (1..12).map(|ways| {
            let mpkc = misses(ways);
            let ipc = 1.0 / (1.0 + mpkc / 20.0);
            (ways, WayPoint { ipc, mpkc })
        });
        points.collect()
    }

    fn mean(slowdowns: &mut dyn Iterator<Item = f64>) -> f64 {
        slowdowns.sum()
    }

    fn ids(members: &[u32]) -> Vec<ProgramId> {
        members.iter().copied().map(ProgramId).collect()
    }

    #[test]
    fn streams_share_and_a_program_that_reuses_its_lines_is_alone() {
        let stream = curve(|_| 30.0);
        let reuse = curve(|ways| if ways < 6 { 20.0 } else { 0.5 });
        let programs: BTreeMap<ProgramId, &WayCurve> = ids(&[0, 1, 2])
            .into_iter()
            .zip([&stream, &reuse, &stream])
            .collect();
        let clusters = clusters(&programs, 11, mean);
        let of = |id: u32| {
            clusters
                .iter()
                .find(|c| c.members.contains(&ProgramId(id)))
                .unwrap()
        };
        assert_eq!(of(0).members, ids(&[0, 2]), "{clusters:?}");
        assert!(of(1).ways >= 6, "{clusters:?}");
        assert_eq!(clusters.iter().map(|c| c.ways).sum::<u32>(), 11);
    }

    #[test]
    fn the_shared_curve_of_equal_programs_is_that_of_equal_parts() {
        let reuse = curve(|ways| 24.0 / f64::from(ways));
        let rows = shares(&[(ProgramId(0), &reuse), (ProgramId(1), &reuse)], 8);
        for (row, (misses, sizes)) in rows.iter().enumerate() {
            let half = (row + 1) as f64 / 2.0;
            assert_eq!(sizes, &[half, half]);
            assert!((misses - 2.0 * super::misses(&reuse, half)).abs() < 1e-9);
        }
    }

    #[test]
    fn programs_that_lose_nothing_by_sharing_are_not_divided() {
        let stream = curve(|_| 30.0);
        let idle = curve(|_| 0.0);
        let programs: BTreeMap<ProgramId, &WayCurve> = ids(&[0, 1, 2])
            .into_iter()
            .zip([&stream, &idle, &stream])
            .collect();
        assert!(clusters(&programs, 11, mean).is_empty());
        assert!(clusters(&BTreeMap::new(), 11, mean).is_empty());
    }

    /// Held to a brute force: every partition into clusters with every division of the ways.
    #[test]
    fn estimates_are_near_those_of_the_best_of_all_clusterings() {
        let kinds = [
            curve(|_| 30.0),
            curve(|ways| if ways < 6 { 20.0 } else { 0.5 }),
            curve(|ways| 12.0 / f64::from(ways)),
            curve(|_| 0.2),
            curve(|ways| if ways < 3 { 9.0 } else { 1.0 }),
        ];
        for rotation in 0..kinds.len() {
            let members: Vec<(ProgramId, &WayCurve)> = (0..4)
                .map(|n| (ProgramId(n), &kinds[(rotation + n as usize) % kinds.len()]))
                .collect();
            let found = clusters(&members.iter().copied().collect(), 8, mean);
            let estimate = |clusters: &[(Vec<usize>, u32)]| -> f64 {
                let each = clusters.iter().map(|(rows, ways)| {
                    let group = OpenCluster::new(rows.iter().map(|r| members[*r]).collect(), 8);
                    group.slowdowns(*ways).sum::<f64>()
                });
                each.sum()
            };
            let whole = [((0..4).collect::<Vec<usize>>(), 8)];
            let own: Vec<(Vec<usize>, u32)> = match found.as_slice() {
                [] => whole.to_vec(),
                found => found
                    .iter()
                    .map(|c| (c.members.iter().map(|id| id.0 as usize).collect(), c.ways))
                    .collect(),
            };
            // Assignments of four programs to clusters as strings of cluster numbers, and divisions of eight ways.
            let mut best = f64::INFINITY;
            for code in 0..4_u32.pow(4) {
                let label: Vec<usize> =
                    (0..4).map(|n| (code / 4_u32.pow(n) % 4) as usize).collect();
                let used = label.iter().max().unwrap() + 1;
                let rows: Vec<Vec<usize>> = (0..used)
                    .map(|l| (0..4).filter(|n| label[*n] == l).collect())
                    .collect();
                if rows.iter().any(Vec::is_empty) {
                    continue;
                }
                let divisions = (0..8_u32.pow(used as u32)).map(|code| -> Vec<u32> {
                    (0..used as u32)
                        .map(|n| code / 8_u32.pow(n) % 8 + 1)
                        .collect()
                });
                for division in divisions.filter(|d| d.iter().sum::<u32>() == 8) {
                    let clusters: Vec<_> = rows.iter().cloned().zip(division).collect();
                    best = best.min(estimate(&clusters));
                }
            }
            let own = estimate(&own);
            assert!(own <= best * 1.05, "rotation {rotation}: {own} for {best}");
        }
    }
}
