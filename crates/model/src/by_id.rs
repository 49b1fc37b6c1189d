//! Table with a row for each thread or program, for the state of metric sources and policies.
//!
//! Samples and threads arrive in the order of their ids in every period. Rows are kept in this order, and each look-up tries the
//! row after the last one first. A pass over all threads therefore costs one comparison each; any other order costs a binary
//! search. Ids need not be dense: a real thread has the kernel's TID.

use crate::units::ThreadId;

/// Rows by thread.
pub type ByThread<T> = ById<ThreadId, T>;

/// Rows by id.
#[derive(Clone, Debug)]
pub struct ById<I, T> {
    ids: Vec<I>,
    /// `None` if the owner is gone and the row is not yet removed.
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

/// Rows of gone owners are removed if they exceed this number and a quarter of all rows.
const GONE: usize = 64;

impl<I: Copy + Ord, T> ById<I, T> {
    /// Returns the row of an id.
    #[must_use]
    pub fn get(&self, id: I) -> Option<&T> {
        self.rows[self.find(id, 0).ok()?].as_ref()
    }

    /// Returns the row of an id; creates it if it is missing.
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

    /// Inserts an empty row; it counts as gone until it is filled.
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

    /// Forgets an id.
    pub fn remove(&mut self, id: I) {
        if let Ok(row) = self.find(id, self.next)
            && self.rows[row].take().is_some()
        {
            self.gone += 1;
        }
    }

    /// Keeps only the rows for which `keep` returns true.
    pub fn retain(&mut self, mut keep: impl FnMut(I, &mut T) -> bool) {
        for (id, slot) in self.ids.iter().zip(&mut self.rows) {
            if slot.as_mut().is_some_and(|row| !keep(*id, row)) {
                *slot = None;
                self.gone += 1;
            }
        }
    }

    /// Returns every row, in the order of ids.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.rows.iter_mut().flatten()
    }

    /// Returns a reader for successive look-ups; cheapest in the order of ids.
    #[must_use]
    pub const fn reader(&self) -> Reader<'_, I, T> {
        Reader {
            table: self,
            next: 0,
        }
    }

    /// Returns the row of an id, or the position for its insertion. `next` and the row before it are tried first.
    fn find(&self, id: I, next: usize) -> Result<usize, usize> {
        let is = |row: &usize| self.ids.get(*row) == Some(&id);
        let near = [Some(next), next.checked_sub(1)];
        match near.into_iter().flatten().find(is) {
            Some(row) => Ok(row),
            None => self.ids.binary_search(&id),
        }
    }
}

/// Reader of rows of a [`ById`].
#[derive(Debug)]
pub struct Reader<'a, I, T> {
    table: &'a ById<I, T>,
    next: usize,
}

impl<'a, I: Copy + Ord, T> Reader<'a, I, T> {
    /// Returns the row of an id.
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
