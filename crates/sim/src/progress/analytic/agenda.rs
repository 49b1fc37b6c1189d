//! Tournament tree for the earliest of many times, each of which changes often.
//!
//! Input: a time per row. Output: the earliest time and its row; ties go to the lower row. A change costs log2(rows).

#[derive(Clone, Debug)]
pub(crate) struct Agenda {
    /// Tournament tree: leaves start at `base`, and every inner node holds the earlier of its two children.
    times: Vec<u64>,
    base: usize,
}

impl Agenda {
    /// Creates an agenda of `rows` rows, none of which is due.
    pub fn new(rows: usize) -> Self {
        let base = rows.next_power_of_two().max(1);
        Self {
            times: vec![u64::MAX; 2 * base],
            base,
        }
    }

    #[inline]
    pub fn set(&mut self, row: usize, time: u64) {
        let mut node = self.base + row;
        if self.times[node] == time {
            return;
        }
        self.times[node] = time;
        while node > 1 {
            node /= 2;
            let earlier = self.times[2 * node].min(self.times[2 * node + 1]);
            if self.times[node] == earlier {
                break;
            }
            self.times[node] = earlier;
        }
    }

    #[inline]
    pub fn earliest(&self) -> u64 {
        self.times[1]
    }

    /// Returns the lowest row that has the earliest time.
    pub fn first(&self) -> usize {
        let mut node = 1;
        while node < self.base {
            node *= 2;
            if self.times[node] > self.times[node + 1] {
                node += 1;
            }
        }
        node - self.base
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_row_wins_and_ties_go_to_the_lower() {
        let mut agenda = Agenda::new(5);
        assert_eq!(agenda.earliest(), u64::MAX);
        agenda.set(4, 70);
        agenda.set(2, 50);
        agenda.set(3, 50);
        assert_eq!((agenda.earliest(), agenda.first()), (50, 2));
        agenda.set(2, 90);
        assert_eq!((agenda.earliest(), agenda.first()), (50, 3));
        agenda.set(3, u64::MAX);
        assert_eq!((agenda.earliest(), agenda.first()), (70, 4));
    }
}
