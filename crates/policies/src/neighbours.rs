//! Neighbours of a mapping: the mappings that are one change away.
//!
//! Input: a number of threads, and the places that can take another thread. Output: moves of a thread, swaps of two threads,
//! and swaps of all threads of two places. The searches of `best-static`, `joint` and `contention` take their changes from
//! here. Each search decides which of them its machine allows, and what they are worth.

use rand::RngExt;

use countersteer_model::policy::PolicyRng;

/// Change of a mapping, with threads as indices in the mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change<P> {
    /// The thread takes the place.
    Move(usize, P),
    /// Two threads take each other's place.
    Swap(usize, usize),
}

impl<P: Copy> Change<P> {
    /// Returns the threads that a change moves, each with its new place.
    pub fn moves(self, mapping: &[P]) -> Vec<(usize, P)> {
        match self {
            Self::Move(thread, to) => vec![(thread, to)],
            Self::Swap(a, b) => vec![(a, mapping[b]), (b, mapping[a])],
        }
    }
}

/// Returns the moves by which the threads of two places change sides.
pub(crate) fn swap_of_places<P: Copy + PartialEq>(mapping: &[P], a: P, b: P) -> Vec<(usize, P)> {
    let of = |from: P, to: P| {
        let all = mapping.iter().enumerate();
        all.filter(move |(_, place)| **place == from)
            .map(move |(thread, _)| (thread, to))
    };
    of(a, b).chain(of(b, a)).collect()
}

/// Returns the mapping after these moves.
pub(crate) fn moved<P: Copy>(mapping: &[P], moves: &[(usize, P)]) -> Vec<P> {
    let mut other = mapping.to_vec();
    for (thread, to) in moves {
        other[*thread] = *to;
    }
    other
}

/// Moves and swaps of a number of threads.
pub(crate) struct Neighbourhood<'a, P> {
    pub threads: usize,
    /// Places to which threads may move.
    pub rooms: &'a [P],
}

impl<P: Copy> Neighbourhood<'_, P> {
    /// Number of moves and swaps.
    pub fn len(&self) -> usize {
        self.threads * self.threads.saturating_sub(1) / 2 + self.threads * self.rooms.len()
    }

    /// Returns the moves of a thread.
    pub fn moves_of(&self, thread: usize) -> impl Iterator<Item = Change<P>> {
        self.rooms.iter().map(move |to| Change::Move(thread, *to))
    }

    /// Returns the swaps of a thread with later threads.
    pub fn swaps_of(&self, thread: usize) -> impl Iterator<Item = Change<P>> {
        (thread + 1..self.threads).map(move |other| Change::Swap(thread, other))
    }

    /// Returns a random change. Moves and swaps are about as likely as they are frequent. A swap of a thread with itself is
    /// possible and changes nothing.
    pub fn random(&self, rng: &mut PolicyRng) -> Change<P> {
        let thread = rng.random_range(0..self.threads);
        let others = self.threads / 2;
        match rng
            .random_range(0..others + self.rooms.len())
            .checked_sub(others)
        {
            Some(room) => Change::Move(thread, self.rooms[room]),
            None => Change::Swap(thread, rng.random_range(0..self.threads)),
        }
    }
}

/// Returns the swaps of a thread of one list with a thread of the other, each once.
pub(crate) fn swaps_between<P>(some: &[usize], others: &[usize]) -> Vec<Change<P>> {
    let mut pairs: Vec<(usize, usize)> = some
        .iter()
        .flat_map(|a| others.iter().map(|b| (*a.min(b), *a.max(b))))
        .filter(|(a, b)| a != b)
        .collect();
    pairs.sort_unstable();
    pairs.dedup();
    pairs.into_iter().map(|(a, b)| Change::Swap(a, b)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::SeedableRng;

    use super::*;

    const MAPPING: [u32; 4] = [7, 7, 8, 9];

    fn applied(change: Change<u32>) -> Vec<u32> {
        moved(&MAPPING, &change.moves(&MAPPING))
    }

    fn mappings(changes: impl IntoIterator<Item = Change<u32>>) -> BTreeSet<Vec<u32>> {
        changes.into_iter().map(applied).collect()
    }

    #[test]
    fn each_change_gives_the_mapping_that_its_name_says() {
        assert_eq!(applied(Change::Move(1, 5)), [7, 5, 8, 9]);
        assert_eq!(applied(Change::Swap(0, 3)), [9, 7, 8, 7]);
        assert_eq!(applied(Change::Swap(2, 2)), MAPPING);
        let places = |a, b| moved(&MAPPING, &swap_of_places(&MAPPING, a, b));
        assert_eq!(places(7, 8), [8, 8, 7, 9]);
        assert_eq!(places(7, 5), [5, 5, 8, 9]);
    }

    #[test]
    fn all_neighbours_are_met_once_and_are_those_that_are_drawn() {
        let around = Neighbourhood {
            threads: MAPPING.len(),
            rooms: &[5, 8],
        };
        let of = |thread| around.moves_of(thread).chain(around.swaps_of(thread));
        let all: Vec<Change<u32>> = (0..around.threads).flat_map(of).collect();
        assert_eq!(all.len(), around.len());
        assert!((1..all.len()).all(|at| !all[..at].contains(&all[at])));
        // Brute force: mappings that differ in one thread that moved, or in two that have each other's place.
        let places = [5, 7, 8, 9];
        let every = (0..256).map(|n| [n, n / 4, n / 16, n / 64].map(|at| places[at % 4]).to_vec());
        let is_neighbour = |other: &Vec<u32>| {
            let differ: Vec<usize> = (0..4).filter(|t| other[*t] != MAPPING[*t]).collect();
            match differ[..] {
                [] => true,
                [a] => [5, 8].contains(&other[a]),
                [a, b] => (other[a], other[b]) == (MAPPING[b], MAPPING[a]),
                _ => false,
            }
        };
        let wanted: BTreeSet<Vec<u32>> = every.filter(is_neighbour).collect();
        assert_eq!(mappings(all), wanted);
        let mut rng = PolicyRng::seed_from_u64(1);
        assert_eq!(mappings((0..1000).map(|_| around.random(&mut rng))), wanted);
    }

    #[test]
    fn swaps_of_two_lists_are_met_once() {
        let swaps: Vec<Change<u32>> = swaps_between(&[2, 0], &[0, 2, 3]);
        let pairs = [(0, 2), (0, 3), (2, 3)].map(|(a, b)| Change::Swap(a, b));
        assert_eq!(swaps, pairs);
    }
}
