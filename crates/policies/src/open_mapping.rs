//! Mapping under construction: threads are dealt to last-level caches and their core slots.

use crate::relabel::Mapping;

/// Mapping under construction, with the remaining capacity of each core slot.
pub(crate) struct OpenMapping {
    /// Number of threads that each core slot of each cache takes.
    rooms: Vec<Vec<usize>>,
    pub mapping: Mapping,
    /// Sum of the demands of the threads assigned to each cache.
    pub demand: Vec<f64>,
}

impl OpenMapping {
    pub fn new(rooms: Vec<Vec<usize>>) -> Self {
        let mapping = rooms
            .iter()
            .map(|slots| vec![Vec::new(); slots.len()])
            .collect();
        Self {
            demand: vec![0.0; rooms.len()],
            mapping,
            rooms,
        }
    }

    /// Returns the number of threads that a cache can still take.
    pub fn room(&self, cache: usize) -> usize {
        self.rooms[cache].iter().sum::<usize>()
            - self.mapping[cache].iter().map(Vec::len).sum::<usize>()
    }

    /// Returns the first core slot of a cache that can take another thread, so that core slots are filled one after the other.
    /// `None` if the cache is full.
    fn open_slot(&self, cache: usize) -> Option<usize> {
        (0..self.rooms[cache].len()).find(|s| self.mapping[cache][*s].len() < self.rooms[cache][*s])
    }

    /// Assigns threads in groups, one core slot each, to the cache in `among` with the least demand so far. Returns the
    /// threads for which no core slot was free.
    pub fn deal(&mut self, order: &[usize], demand: &[f64], among: &[usize]) -> Vec<usize> {
        let mut waiting = order.iter().copied().peekable();
        while waiting.peek().is_some() {
            let open = among
                .iter()
                .copied()
                .filter(|c| self.open_slot(*c).is_some());
            let next =
                open.min_by(|a, b| self.demand[*a].total_cmp(&self.demand[*b]).then(a.cmp(b)));
            let Some((cache, slot)) = next.and_then(|c| Some((c, self.open_slot(c)?))) else {
                break;
            };
            while self.mapping[cache][slot].len() < self.rooms[cache][slot] {
                let Some(thread) = waiting.next() else { break };
                self.mapping[cache][slot].push(thread);
                self.demand[cache] += demand[thread];
            }
        }
        waiting.collect()
    }

    /// Assigns threads to the caches in order, filling each before the next. Returns the threads for which no core slot was
    /// free.
    pub fn fill(&mut self, threads: &[usize], caches: &[usize]) -> Vec<usize> {
        let mut waiting = threads.iter().copied();
        for &cache in caches {
            for (slot, room) in self.mapping[cache].iter_mut().zip(&self.rooms[cache]) {
                let more = room - slot.len();
                slot.extend(waiting.by_ref().take(more));
            }
        }
        waiting.collect()
    }
}
