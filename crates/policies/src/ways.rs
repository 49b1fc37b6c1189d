//! Ways of last-level caches, and their division among programs by lookahead.
//!
//! Input: for each share, a cost by number of ways. Output: a number of ways for each share.
//!
//! Source: the lookahead algorithm of utility-based cache partitioning (Qureshi and Patt, MICRO 2006, section 3.4), with any cost
//! instead of misses. LFOC (Garcia-Garcia et al., ICPP 2019) uses slowdowns.

use countersteer_model::topology::{GroupBy, Topology};
use countersteer_model::units::GroupId;

/// Minimum number of ways of a cache that can be divided.
pub(crate) const FEWEST: u32 = 3;

/// Returns the number of ways of a group's last-level cache; 0 if it is unknown.
#[must_use]
pub fn of_group(topology: &Topology, group: GroupId) -> u32 {
    let cpu = topology.group(group).cpus.lowest();
    let cache = cpu.and_then(|cpu| topology.caches.get(topology.llc_of(cpu).index()));
    cache.map_or(0, |cache| cache.ways)
}

/// Returns the core group and the number of ways of the last-level cache that all CPUs share. `None` if there are several such
/// caches, or the cache has too few ways.
#[must_use]
pub fn only_cache(topology: &Topology) -> Option<(GroupId, u32)> {
    let [group] = topology.groups_by(GroupBy::Llc) else {
        return None;
    };
    let ways = of_group(topology, group.id);
    (ways >= FEWEST && group.cores > 1).then_some((group.id, ways))
}

/// Divides `ways` among shares so that costs fall most per way. `costs[share][ways - 1]` is the cost of a share; beyond the end
/// of a row, the last cost applies. Each share gets at least one way; the result is empty if there are fewer ways than shares.
/// Ways that reduce no cost are divided evenly.
#[must_use]
pub fn lookahead(costs: &[Vec<f64>], ways: u32) -> Vec<u32> {
    let shares = costs.len() as u32;
    let Some(mut left) = ways.checked_sub(shares) else {
        return Vec::new();
    };
    let mut counts = vec![1; costs.len()];
    while let Some((share, more)) = most_useful(costs, &counts, left) {
        counts[share] += more;
        left -= more;
    }
    let evenly = (0..costs.len()).cycle().take(left as usize);
    evenly.for_each(|share| counts[share] += 1);
    counts
}

/// Returns the cost of a share with a number of ways, at least one.
fn cost(row: &[f64], ways: u32) -> f64 {
    let row_of = (ways as usize).min(row.len()).saturating_sub(1);
    row.get(row_of).copied().unwrap_or(0.0)
}

/// Returns the share and the number of further ways with the largest decrease of cost per way. `None` if no cost decreases.
fn most_useful(costs: &[Vec<f64>], counts: &[u32], left: u32) -> Option<(usize, u32)> {
    let mut best = None;
    let mut most = 0.0;
    for (share, row) in costs.iter().enumerate() {
        for more in 1..=left {
            let fall = cost(row, counts[share]) - cost(row, counts[share] + more);
            let each = fall / f64::from(more);
            if each > most {
                (most, best) = (each, Some((share, more)));
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cliff_is_seen_from_afar() {
        // The first share gains nothing before its fifth way; one way at a time, the second would get all.
        let cliff = vec![9.0, 9.0, 9.0, 9.0, 1.0];
        let slope = vec![2.0, 1.9, 1.8, 1.7, 1.6, 1.5];
        assert_eq!(lookahead(&[cliff, slope], 8), [5, 3]);
    }

    #[test]
    fn each_share_has_a_way_and_ways_without_use_are_dealt_evenly() {
        let flat = vec![1.0];
        assert_eq!(lookahead(&[flat.clone(), flat.clone()], 5), [3, 2]);
        assert_eq!(lookahead(&[flat.clone(), flat.clone()], 2), [1, 1]);
        assert!(lookahead(&[flat.clone(), flat], 1).is_empty());
        assert!(lookahead(&[], 4).is_empty());
    }
}
