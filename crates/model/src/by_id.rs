//! Table with one row per thread or program, for the state of metric sources and policies.
//!
//! Samples and threads arrive in the order of their ids in every period. Rows are kept in this order, and each look-up tries the
//! row after the last one first. A pass over all threads therefore costs one comparison each; any other order costs a binary
//! search. Ids need not be dense: the id of a real thread is the kernel's TID.

use crate::units::ThreadId;

/// Table with one row per thread, sorted by thread id.
pub type ByThread<T> = ById<ThreadId, T>;

/// Table with one row per id, sorted by id.
#[derive(Clone, Debug)]
pub struct ById<I, T> {
    ids: Vec<I>,
    /// Rows, parallel to `ids`; a row is `None` from the removal of its id until the table is compacted.
    rows: Vec<Option<T>>,
    gone: usize,
    next: usize,
}

impl<I, T> Default for ById<I, T> {
    fn default() -> Self {
        Self {
            ids: Vec::new(),
            rows: Vec::new(),
            gone: 0,
            next: 0,
        }
    }
}

/// Minimum number of removed rows at which the table is compacted; they must also exceed a quarter of all rows.
const GONE: usize = 64;

impl<I: Copy + Ord, T> ById<I, T> {
    /// Returns the row of an id; `None` if the table has none.
    #[must_use]
    pub fn get(&self, id: I) -> Option<&T> {
        self.rows[self.find(id, 0).ok()?].as_ref()
    }

    /// Returns the row of an id; creates the row by `make` if the table has none.
    pub fn entry(&mut self, id: I, make: impl FnOnce() -> T) -> &mut T {
        let row = match self.find(id, self.next) {
            Ok(row) => row,
            Err(_) => self.insert(id),
        };
        self.next = row + 1;
        let slot = &mut self.rows[row];
        if slot.is_none() {
            self.gone -= 1;
        }
        slot.get_or_insert_with(make)
    }

    /// Inserts an empty row for an id and returns its index. The row counts as removed until it is filled.
    fn insert(&mut self, id: I) -> usize {
        if self.gone > GONE && self.gone * 4 > self.rows.len() {
            self.take_out();
        }
        let row = self.ids.partition_point(|known| *known < id);
        self.ids.insert(row, id);
        self.rows.insert(row, None);
        self.gone += 1;
        row
    }

    fn take_out(&mut self) {
        let mut rows = self.rows.iter();
        self.ids
            .retain(|_| rows.next().is_some_and(Option::is_some));
        self.rows.retain(Option::is_some);
        self.gone = 0;
    }

    /// Removes the row of an id.
    pub fn remove(&mut self, id: I) {
        if let Ok(row) = self.find(id, self.next)
            && self.rows[row].take().is_some()
        {
            self.gone += 1;
        }
    }

    /// Removes the rows for which `keep` returns false.
    pub fn retain(&mut self, mut keep: impl FnMut(I, &mut T) -> bool) {
        for (id, slot) in self.ids.iter().zip(&mut self.rows) {
            if slot.as_mut().is_some_and(|row| !keep(*id, row)) {
                *slot = None;
                self.gone += 1;
            }
        }
    }

    /// Iterates over all rows, in ascending order of ids.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.rows.iter_mut().flatten()
    }

    /// Returns a reader for successive look-ups, which are cheapest in ascending order of ids.
    #[must_use]
    pub const fn reader(&self) -> ByIdReader<'_, I, T> {
        ByIdReader {
            table: self,
            next: 0,
        }
    }

    /// Returns the index of an id's row, or the index at which to insert the row. Tries `next` and the row before `next` first.
    fn find(&self, id: I, next: usize) -> Result<usize, usize> {
        let is = |row: &usize| self.ids.get(*row) == Some(&id);
        let near = [Some(next), next.checked_sub(1)];
        match near.into_iter().flatten().find(is) {
            Some(row) => Ok(row),
            None => self.ids.binary_search(&id),
        }
    }
}

/// Reader for successive look-ups in a [`ById`].
#[derive(Debug)]
pub struct ByIdReader<'a, I, T> {
    table: &'a ById<I, T>,
    next: usize,
}

impl<'a, I: Copy + Ord, T> ByIdReader<'a, I, T> {
    /// Returns the row of an id; `None` if the table has none.
    pub fn get(&mut self, id: I) -> Option<&'a T> {
        let row = match self.table.find(id, self.next) {
            Ok(row) => row,
            Err(row) => {
                self.next = row;
                return None;
            }
        };
        self.next = row + 1;
        self.table.rows[row].as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn it_holds_what_a_map_holds_whatever_the_order() {
        let mut table = ByThread::<u32>::default();
        let mut map = BTreeMap::new();
        // A full cycle modulo a prime: every id occurs repeatedly, in a scrambled order.
        let mut id = 1u32;
        for step in 0..20_000u32 {
            id = id * 5 % 1009;
            let thread = ThreadId(id);
            if step % 3 == 0 {
                table.remove(thread);
                map.remove(&thread);
            } else {
                *table.entry(thread, || 0) += step;
                *map.entry(thread).or_insert(0) += step;
            }
            if step % 4096 == 0 {
                table.retain(|id, row| (id.0 + *row) % 7 != 0);
                map.retain(|id, row| (id.0 + *row) % 7 != 0);
            }
        }
        assert!(map.len() > 300, "{}", map.len());
        let mut reader = table.reader();
        for id in 0..1100 {
            let thread = ThreadId(id);
            assert_eq!(table.get(thread), map.get(&thread));
            assert_eq!(reader.get(thread), map.get(&thread));
        }
        assert!(table.values_mut().map(|v| *v).eq(map.into_values()));
    }

    #[test]
    fn rows_of_threads_that_are_gone_do_not_pile_up() {
        let mut table = ByThread::<u32>::default();
        for id in 0..10_000 {
            table.entry(ThreadId(id), || id);
            if id >= 10 {
                table.remove(ThreadId(id - 10));
            }
        }
        assert!(table.ids.len() < 200, "{}", table.ids.len());
        assert_eq!(table.values_mut().count(), 10);
    }
}
