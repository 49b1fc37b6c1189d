//! Labels of a mapping: equal caches, and equal core slots of one cache, are exchanged so that as few threads as possible move.

/// Place of a thread: index of the last-level cache, and index of the core slot under it.
pub(crate) type Spot = (usize, usize);

/// Threads by cache and core slot, as indices in the caller's list.
pub(crate) type Mapping = Vec<Vec<Vec<usize>>>;

/// Preference of caches and core slots that keep no thread, or equally many.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Ties {
    /// They keep their label if they can.
    Own,
    /// They get the first label that is left.
    First,
}

/// Returns the place of each thread under a mapping. Caches for which `equal` is true may be exchanged. `present` holds the last
/// place of each thread; `None` for a new one.
pub(crate) fn nearest(
    mapping: &[Vec<Vec<usize>>],
    present: &[Option<Spot>],
    equal: impl Fn(usize, usize) -> bool,
    ties: Ties,
) -> Vec<Spot> {
    let count = mapping.len();
    let mut stay = vec![vec![0usize; count]; count];
    for (from, slots) in mapping.iter().enumerate() {
        for thread in slots.iter().flatten() {
            if let Some((cache, _)) = present[*thread] {
                stay[from][cache] += 1;
            }
        }
    }
    let keeps = |from: usize, to: usize| ties == Ties::Own && from == to;
    let caches = matched(count, count, |from, to| {
        equal(from, to).then(|| (stay[from][to], keeps(from, to)))
    });
    let mut spots = vec![(0, 0); present.len()];
    for (from, (slots, cache)) in mapping.iter().zip(caches).enumerate() {
        let cache = cache.unwrap_or(from);
        let onto = matched(slots.len(), slots.len(), |slot, to| {
            let stays = |thread: &&usize| present[**thread] == Some((cache, to));
            Some((slots[slot].iter().filter(stays).count(), keeps(slot, to)))
        });
        for (slot, (threads, to)) in slots.iter().zip(onto).enumerate() {
            let spot = (cache, to.unwrap_or(slot));
            threads.iter().for_each(|thread| spots[*thread] = spot);
        }
    }
    spots
}

/// Returns the target of each item, chosen greedily by the greatest value, each target at most once. `None` as a value forbids a
/// pair.
pub(crate) fn matched<V: Ord + Default>(
    items: usize,
    targets: usize,
    value: impl Fn(usize, usize) -> Option<V>,
) -> Vec<Option<usize>> {
    let all = (0..items).flat_map(|item| (0..targets).map(move |target| (item, target)));
    // Most pairs have no thread in common and do not have to be sorted.
    let (mut pairs, strangers): (Vec<_>, Vec<_>) = all
        .filter_map(|(item, target)| Some((value(item, target)?, item, target)))
        .partition(|pair| pair.0 > V::default());
    pairs.sort_by(|a, b| b.0.cmp(&a.0));
    let mut onto = vec![None; items];
    let mut taken = vec![false; targets];
    for (_, item, target) in pairs.into_iter().chain(strangers) {
        if onto[item].is_none() && !taken[target] {
            (onto[item], taken[target]) = (Some(target), true);
        }
    }
    onto
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_things_keep_their_labels_where_most_stays() {
        let common = [[0, 2], [3, 1]];
        let found = matched(2, 2, |from, to| Some(common[from][to]));
        assert_eq!(found, [Some(1), Some(0)]);
        let own = matched(2, 2, |from, to| (from == to).then_some(0));
        assert_eq!(own, [Some(0), Some(1)]);
    }

    #[test]
    fn without_threads_that_stay_labels_are_kept_or_dealt_in_order() {
        // The third thread keeps the first core slot.
        let mapping = vec![vec![vec![0], vec![1], vec![2]]];
        let present = [None, None, Some((0, 0))];
        let spots = |ties| nearest(&mapping, &present, |a, b| a == b, ties);
        assert_eq!(spots(Ties::Own), [(0, 2), (0, 1), (0, 0)]);
        assert_eq!(spots(Ties::First), [(0, 1), (0, 2), (0, 0)]);
    }
}
