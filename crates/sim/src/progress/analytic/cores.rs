//! Cores: contents of private caches after threads leave, and energy of idle time.
//!
//! Input: threads that are switched in and out. Output: lines that a thread finds when it is switched in, and the energy of idle
//! time.

use super::class::NONE;

/// Maximum number of departed threads whose lines a core tracks.
const REMEMBERED: usize = 8;

#[derive(Clone, Copy, Debug)]
struct LeftLines {
    thread: u32,
    lines: f64,
    /// Number of lines inserted into the cache up to the thread's departure.
    at: f64,
}

#[derive(Clone, Debug)]
pub(crate) struct CoreContents {
    /// Size of the outermost private cache in lines.
    lines: f64,
    inserted: f64,
    left: [LeftLines; REMEMBERED],
    next: usize,
    /// Number of the core's CPUs that run a thread.
    pub busy: u32,
    pub idle_since: u64,
    pub idle_nj: f64,
}

impl CoreContents {
    pub fn new(lines: f64) -> Self {
        let nobody = LeftLines {
            thread: NONE,
            lines: 0.0,
            at: 0.0,
        };
        Self {
            lines,
            inserted: 0.0,
            left: [nobody; REMEMBERED],
            next: 0,
            busy: 0,
            idle_since: 0,
            idle_nj: 0.0,
        }
    }

    /// Number of lines of `thread` that later threads have not evicted: each insertion evicts any line with equal probability.
    pub fn remains(&self, thread: u32) -> f64 {
        let of = self.left.iter().filter(|l| l.thread == thread);
        of.map(|l| l.lines * (-(self.inserted - l.at) / self.lines).exp())
            .fold(0.0, f64::max)
    }

    /// Records that a thread stops after it inserted `inserted` lines, and that it holds `lines` lines.
    pub fn leave(&mut self, thread: u32, inserted: f64, lines: f64) {
        self.inserted += inserted;
        let row = self
            .left
            .iter()
            .position(|l| l.thread == thread)
            .unwrap_or_else(|| {
                self.next = (self.next + 1) % REMEMBERED;
                self.next
            });
        self.left[row] = LeftLines {
            thread,
            lines,
            at: self.inserted,
        };
    }

    /// Removes the record of a thread that was removed from the model.
    pub fn forget(&mut self, thread: u32) {
        for left in self.left.iter_mut().filter(|l| l.thread == thread) {
            left.thread = NONE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fade_as_others_insert() {
        let mut core = CoreContents::new(1000.0);
        core.leave(1, 500.0, 800.0);
        assert_eq!(core.remains(1), 800.0);
        core.leave(2, 1000.0, 900.0);
        assert!((core.remains(1) - 800.0 * (-1.0f64).exp()).abs() < 1e-9);
        assert_eq!(core.remains(3), 0.0);
    }
}
