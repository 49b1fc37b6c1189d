//! Neighbours of a mapping: the mappings that one change away.
//!
//! Input: a number of threads, and the places that can take another thread. Output: moves of a thread, swaps of two threads,
//! and swaps of all threads of two places. All searches over mappings take their changes from here. Each search decides
//! which of them its machine allows, and what they are worth.

use rand::RngExt;

use countersteer_model::policy::PolicyRng;

/// Change of a mapping, with threads as indices in the mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change<P> {
    /// The thread takes the place.
    Move(usize, P),
    /// Two threads take each other's place.
    Swap(usize, usize),
    /// The threads of two places change sides.
    SwapPlaces(P, P),
}

impl<P: Copy + PartialEq> Change<P> {
    /// Returns the threads that a change moves, each with its new place.
    pub fn moves(self, mapping: &[P]) -> Vec<(usize, P)> {
        let of = |from: P, to: P| {
            let all = mapping.iter().enumerate();
            all.filter(move |(_, place)| **place == from)
                .map(move |(thread, _)| (thread, to))
        };
        match self {
            Self::Move(thread, to) => vec![(thread, to)],
            Self::Swap(a, b) => vec![(a, mapping[b]), (b, mapping[a])],
            Self::SwapPlaces(a, b) => of(a, b).chain(of(b, a)).collect(),
        }
    }

    /// Returns the mapping after a change.
    pub fn applied(self, mapping: &[P]) -> Vec<P> {
        let mut other = mapping.to_vec();
        for (thread, to) in self.moves(mapping) {
            other[thread] = to;
        }
        other
    }
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

/// Returns the swaps of all threads of two places.
pub(crate) fn swaps_of_places<P: Copy>(places: &[P]) -> impl Iterator<Item = Change<P>> {
    let later = |(at, a): (usize, &P)| {
        let a = *a;
        places[at + 1..]
            .iter()
            .map(move |b| Change::SwapPlaces(a, *b))
    };
    places.iter().enumerate().flat_map(later)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::SeedableRng;

    use super::*;

    const MAPPING: [u32; 4] = [7, 7, 8, 9];

    fn mappings(changes: impl IntoIterator<Item = Change<u32>>) -> BTreeSet<Vec<u32>> {
        changes.into_iter().map(|c| c.applied(&MAPPING)).collect()
    }

    #[test]
    fn each_change_gives_the_mapping_that_its_name_says() {
        assert_eq!(Change::Move(1, 5).applied(&MAPPING), [7, 5, 8, 9]);
        assert_eq!(Change::Swap(0, 3).applied(&MAPPING), [9, 7, 8, 7]);
        assert_eq!(Change::SwapPlaces(7, 8).applied(&MAPPING), [8, 8, 7, 9]);
        assert_eq!(Change::SwapPlaces(7, 5).applied(&MAPPING), [5, 5, 8, 9]);
        assert_eq!(Change::Swap(2, 2).applied(&MAPPING), MAPPING);
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
    fn swaps_of_lists_and_of_places_are_pairs() {
        let swaps: Vec<Change<u32>> = swaps_between(&[2, 0], &[0, 2, 3]);
        let pairs = [(0, 2), (0, 3), (2, 3)].map(|(a, b)| Change::Swap(a, b));
        assert_eq!(swaps, pairs);
        let places: Vec<Change<u32>> = swaps_of_places(&[7, 8, 9]).collect();
        let pairs = [(7, 8), (7, 9), (8, 9)].map(|(a, b)| Change::SwapPlaces(a, b));
        assert_eq!(places, pairs);
    }
}
