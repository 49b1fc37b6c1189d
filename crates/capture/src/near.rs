//! Lines of the current epoch: those touched since at most [`EPOCH`] distinct lines ago.
//!
//! Input: lines. Output: true if a line was already touched in this epoch. Its distance is then below [`EPOCH`], and only the
//! time of the touch is stored. At least two thirds of all touches end here. The cost: the LRU stack orders lines by their first
//! touch in an epoch instead of their last. A distance is therefore off by less than [`EPOCH`].

/// Distinct lines per epoch.
const EPOCH: usize = 64;
/// Slots; each line has one possible slot. A line that loses its slot to another counts as new, which is harmless.
const SLOTS: usize = 256;
/// A line number that no address has.
pub const NO_LINE: u64 = u64::MAX;

/// Lines of the current epoch.
pub struct Near {
    lines: [u64; SLOTS],
    times: [u64; SLOTS],
    places: [usize; SLOTS],
    /// Slots in the order of insertion. Clearing walks this list instead of all slots, half of which are free.
    taken: [u8; EPOCH],
    count: usize,
    /// Lines of an epoch.
    length: usize,
}

impl Near {
    /// Begins an epoch.
    pub fn new() -> Self {
        Self {
            lines: [NO_LINE; SLOTS],
            times: [0; SLOTS],
            places: [0; SLOTS],
            taken: [0; EPOCH],
            count: 0,
            length: EPOCH,
        }
    }

    /// Shortens epochs to one line in `one_in`: the others are not touched.
    pub fn shorten(&mut self, one_in: u64) {
        self.length = EPOCH / one_in as usize;
    }

    /// Stores the time of a touch. Returns false if the line is not in the epoch.
    #[inline(always)]
    pub fn touch(&mut self, line: u64, time: u64) -> bool {
        let slot = slot(line);
        if self.lines[slot] == line {
            self.times[slot] = time;
            true
        } else {
            false
        }
    }

    /// Adds a line. Returns place and time of the line that loses its slot, and true if the epoch is over.
    #[inline(always)]
    pub fn add(&mut self, line: u64, place: usize, time: u64) -> (Option<(usize, u64)>, bool) {
        let slot = slot(line);
        let lost = (self.lines[slot] != NO_LINE).then_some((self.places[slot], self.times[slot]));
        self.lines[slot] = line;
        self.places[slot] = place;
        self.times[slot] = time;
        self.taken[self.count % EPOCH] = slot as u8;
        self.count += 1;
        (lost, self.count >= self.length)
    }

    /// Begins a new epoch; `leave` receives place and time of each line of the old one.
    #[inline(always)]
    pub fn clear(&mut self, mut leave: impl FnMut(usize, u64)) {
        // A slot inserted twice is passed on twice, with the same values.
        for slot in &self.taken[..self.count] {
            let slot = *slot as usize % SLOTS;
            leave(self.places[slot], self.times[slot]);
            self.lines[slot] = NO_LINE;
        }
        self.count = 0;
    }
}

#[inline(always)]
fn slot(line: u64) -> usize {
    (line ^ line >> 8) as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_ends_after_so_many_lines_and_reports_their_last_touches() {
        let mut near = Near::new();
        for line in 0..EPOCH as u64 {
            assert!(!near.touch(line, line));
            assert_eq!(
                near.add(line, 100 + line as usize, line),
                (None, line as usize == EPOCH - 1)
            );
        }
        assert!(near.touch(3, 77));
        let mut left = Vec::new();
        near.clear(|place, time| left.push((place, time)));
        assert_eq!(left.len(), EPOCH);
        assert!(left.contains(&(103, 77)) && left.contains(&(104, 4)));
        assert!(!near.touch(3, 78));
    }

    #[test]
    fn a_line_that_loses_its_slot_is_reported() {
        let mut near = Near::new();
        assert_eq!(near.add(0, 7, 1), (None, false));
        assert_eq!(
            near.add((SLOTS * SLOTS) as u64, 8, 2),
            (Some((7, 1)), false)
        );
    }
}
