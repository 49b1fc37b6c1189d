//! Division of the ways of last-level caches by program: programs that gain from the cache are separated from those that
//! stream through it.
//!
//! Input: for each thread its program, cache, demand, and true if it is poison. Output: cache classes with their ways of each
//! cache; the ways of the classes follow each other.
//!
//! Programs that are poison share an eighth of the ways. More ways would not save them misses, and in these ways they evict no
//! other program's lines. The others divide the rest in proportion to their occupancy, or to their misses if occupancy is
//! unknown. Hardware supports few classes, so programs with the least demand share one. A division whose ways differ by at
//! most one from the current one is not applied.

use std::collections::BTreeMap;

use super::mapping::Caches;
use crate::ways::of_group;
use countersteer_model::placement::{CacheShare, Members, WayClass, Ways};
use countersteer_model::policy::{Params, PolicyError};
use countersteer_model::topology::{GroupBy, Topology};
use countersteer_model::units::{GroupId, ProgramId};

/// Divisor: all poison programs together get this fraction, one eighth, of the ways.
const POISON: u32 = 8;
/// Limit on the number of programs that have a class of their own.
const MOST_ALONE: usize = 6;
/// Tolerance: maximum change in ways of any class at which the current division is kept.
const SAME: u32 = 1;

/// Demand of one thread for its cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub program: ProgramId,
    /// Index of the thread's last-level cache.
    pub cache: usize,
    /// Occupancy in bytes, or misses per kilo-instruction if occupancy is unknown.
    pub appetite: f64,
    /// True if the thread's class is poison.
    pub poison: bool,
}

/// Demand of the threads of one program.
#[derive(Clone, Debug, Default)]
struct ProgramDemand {
    /// Sum of the demands by cache.
    by_cache: Vec<f64>,
    /// Sum of the demands of the threads that are poison.
    poison: f64,
    /// Sum of the demands of all threads.
    all: f64,
}

/// Current division of the ways by program.
pub(super) struct Split {
    /// Core group and number of ways of each last-level cache.
    caches: Vec<(GroupId, u32)>,
    /// Classes of the current division.
    last: Vec<WayClass>,
}

impl Split {
    /// Returns the state for a policy with `ways=split`; `None` for other policies.
    pub fn of(
        params: &Params,
        caches: &Caches,
        topology: &Topology,
    ) -> Result<Option<Self>, PolicyError> {
        if !params.choice("ways", &[("off", false), ("split", true)])? {
            return Ok(None);
        }
        debug_assert_eq!(caches.rows.len(), topology.groups_by(GroupBy::Llc).len());
        let caches = caches
            .rows
            .iter()
            .map(|row| (row.group, of_group(topology, row.group)))
            .collect();
        Ok(Some(Self {
            caches,
            last: Vec::new(),
        }))
    }

    /// Divides the ways by these demands. `None` if the current division is close enough.
    pub fn divide(&mut self, claims: &[Claim]) -> Option<Vec<WayClass>> {
        let classes = self.classes(claims);
        let new: Vec<WayClass> = if classes.len() < 2 {
            Vec::new()
        } else {
            self.shares(classes)
        };
        if alike(&self.last, &new) {
            return None;
        }
        self.last.clone_from(&new);
        Some(new)
    }

    /// Returns the name, members, and demand by cache of each class: first poison, then the other programs.
    fn classes(&self, claims: &[Claim]) -> Vec<(String, Vec<ProgramId>, Vec<f64>)> {
        let none = || ProgramDemand {
            by_cache: vec![0.0; self.caches.len()],
            ..ProgramDemand::default()
        };
        let mut programs: BTreeMap<ProgramId, ProgramDemand> = BTreeMap::new();
        for claim in claims {
            let program = programs.entry(claim.program).or_insert_with(none);
            // A program without demand still gets ways, because it has to run.
            let appetite = claim.appetite.max(f64::MIN_POSITIVE);
            program.by_cache[claim.cache] += appetite;
            program.all += appetite;
            program.poison += if claim.poison { appetite } else { 0.0 };
        }
        let (poison, mut others): (Vec<_>, Vec<_>) = programs
            .into_iter()
            .partition(|(_, p)| p.poison > p.all / 2.0);
        others.sort_by(|a, b| b.1.all.total_cmp(&a.1.all).then(a.0.cmp(&b.0)));
        let least = self.caches.iter().map(|c| c.1 as usize).min().unwrap_or(0);
        let alone = MOST_ALONE.min((least / 2).saturating_sub(1));
        let rest = others.split_off(alone.min(others.len()));
        others.sort_by_key(|(id, _)| *id);
        let mut classes = Vec::with_capacity(others.len() + 2);
        let mut add = |name: String, members: Vec<(ProgramId, ProgramDemand)>| {
            let Some((_, first)) = members.first() else {
                return;
            };
            let mut sums = vec![0.0; first.by_cache.len()];
            members.iter().for_each(|(_, p)| {
                sums.iter_mut()
                    .zip(&p.by_cache)
                    .for_each(|(sum, a)| *sum += a)
            });
            let mut ids: Vec<ProgramId> = members.into_iter().map(|(id, _)| id).collect();
            ids.sort_unstable();
            classes.push((name, ids, sums));
        };
        add("poison".into(), poison);
        others
            .into_iter()
            .for_each(|program| add(format!("program{}", program.0.0), vec![program]));
        add("small".into(), rest);
        classes
    }

    fn shares(&self, classes: Vec<(String, Vec<ProgramId>, Vec<f64>)>) -> Vec<WayClass> {
        let mut shares: Vec<Vec<CacheShare>> = vec![Vec::new(); classes.len()];
        for (row, (llc, ways)) in self.caches.iter().enumerate() {
            // If only one class uses a cache, it may use all of its ways.
            let here: Vec<usize> = (0..classes.len())
                .filter(|class| classes[*class].2[row] > 0.0)
                .collect();
            if here.len() < 2 || (*ways as usize) < here.len() {
                continue;
            }
            let poison = here.iter().any(|class| classes[*class].0 == "poison");
            let kept = if poison { (ways / POISON).max(1) } else { 0 };
            let fed: Vec<f64> = here
                .iter()
                .skip(usize::from(poison))
                .map(|class| classes[*class].2[row])
                .collect();
            let counts = poison
                .then_some(kept)
                .into_iter()
                .chain(in_proportion(ways - kept, &fed));
            let mut first = 0;
            for (class, count) in here.iter().zip(counts) {
                let ways = Some(Ways {
                    first: Some(first),
                    count,
                });
                shares[*class].push(CacheShare {
                    llc: *llc,
                    ways,
                    bandwidth: None,
                });
                first += count;
            }
        }
        let class =
            |((name, members, _), shares): ((String, Vec<ProgramId>, _), Vec<CacheShare>)| {
                WayClass {
                    name: name.into(),
                    members: Members::Programs(members),
                    shares,
                }
            };
        classes
            .into_iter()
            .zip(shares)
            .filter(|(_, shares)| !shares.is_empty())
            .map(class)
            .collect()
    }
}

/// Divides `ways` into integers in proportion to `parts`, at least one each.
fn in_proportion(ways: u32, parts: &[f64]) -> Vec<u32> {
    let spare = f64::from(ways.saturating_sub(parts.len() as u32));
    let sum: f64 = parts.iter().sum();
    let exact: Vec<f64> = parts
        .iter()
        .map(|p| if sum > 0.0 { spare * p / sum } else { 0.0 })
        .collect();
    let mut counts: Vec<u32> = exact.iter().map(|e| 1 + e.floor() as u32).collect();
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by(|a, b| {
        exact[*b]
            .fract()
            .total_cmp(&exact[*a].fract())
            .then(a.cmp(b))
    });
    let left = ways.saturating_sub(counts.iter().sum());
    order
        .iter()
        .cycle()
        .take(left as usize)
        .for_each(|row| counts[*row] += 1);
    counts
}

/// True if two divisions have the same classes, and their ways differ by at most the tolerance.
fn alike(old: &[WayClass], new: &[WayClass]) -> bool {
    let close = |(a, b): (&CacheShare, &CacheShare)| match (a.ways, b.ways) {
        (Some(x), Some(y)) => a.llc == b.llc && x.count.abs_diff(y.count) <= SAME,
        _ => a == b,
    };
    let same = |(a, b): (&WayClass, &WayClass)| {
        (&a.name, &a.members, a.shares.len()) == (&b.name, &b.members, b.shares.len())
            && a.shares.iter().zip(&b.shares).all(close)
    };
    old.len() == new.len() && old.iter().zip(new).all(same)
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersteer_model::testing::{TWO_LLCS, topology};

    fn split() -> Split {
        let topology = topology(TWO_LLCS);
        let caches = Caches::new(&topology);
        let caches = caches.rows.iter().map(|row| (row.group, 16)).collect();
        Split {
            caches,
            last: Vec::new(),
        }
    }

    fn claim(program: u32, cache: usize, appetite: f64, poison: bool) -> Claim {
        Claim {
            program: ProgramId(program),
            cache,
            appetite,
            poison,
        }
    }

    fn ways(classes: &[WayClass]) -> Vec<(&str, Vec<(u32, u32)>)> {
        let of = |c: &CacheShare| c.ways.map(|w| (w.first.unwrap(), w.count)).unwrap();
        classes
            .iter()
            .map(|c| (&*c.name, c.shares.iter().map(of).collect()))
            .collect()
    }

    #[test]
    fn poison_has_an_eighth_and_the_others_what_they_ask_for() {
        let mut split = split();
        let claims = [
            claim(1, 0, 3e6, false),
            claim(2, 0, 1e6, false),
            claim(3, 0, 9e6, true),
            claim(4, 1, 1e6, false),
        ];
        let classes = split.divide(&claims).unwrap();
        assert_eq!(
            ways(&classes),
            [
                ("poison", vec![(0, 2)]),
                ("program1", vec![(2, 10)]),
                ("program2", vec![(12, 4)])
            ],
            "the second cache is all of program 4's"
        );
        assert_eq!(classes[0].members, Members::Programs(vec![ProgramId(3)]));
        let little = [claim(1, 0, 2.8e6, false), claims[1], claims[2], claims[3]];
        assert_eq!(
            split.divide(&little),
            None,
            "a way more or less is not worth it"
        );
        assert_eq!(
            split.divide(&claims[..1]),
            Some(Vec::new()),
            "who is alone has everything"
        );
        assert_eq!(split.divide(&[]), None);
    }

    #[test]
    fn those_that_ask_for_least_share_a_class_and_nobody_goes_without() {
        let claims: Vec<Claim> = (0..20).map(|n| claim(n, 0, f64::from(n), false)).collect();
        let classes = split().divide(&claims).unwrap();
        assert_eq!(classes.len(), MOST_ALONE + 1);
        assert_eq!(
            classes.last().unwrap().members,
            Members::Programs((0..14).map(ProgramId).collect())
        );
        let all: u32 = ways(&classes).iter().map(|(_, ways)| ways[0].1).sum();
        assert_eq!(all, 16);
        assert!(
            ways(&classes).iter().all(|(_, ways)| ways[0].1 >= 1),
            "{classes:?}"
        );
        assert_eq!(in_proportion(5, &[0.0, 0.0, 1.0]), [1, 1, 3]);
    }
}
