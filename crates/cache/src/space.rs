//! Address spaces of a stream: equal line numbers of two processes refer to different memory.
//!
//! Input: heads of blocks, in order. Output: the index of the process, from 0. The lines of a stream with a single process are
//! unchanged.

use std::collections::HashMap;

use crate::wire::BlockHead;

/// Processes found in a stream so far.
#[derive(Clone, Debug, Default)]
pub struct Spaces {
    /// Process of each thread number. Another run of a program has new PIDs, but the same thread numbers.
    of_threads: HashMap<u32, u32>,
    /// Process of each PID.
    of_pids: HashMap<u32, u32>,
    /// Number of processes found.
    found: u32,
}

impl Spaces {
    /// Returns the index of the process to which a block belongs.
    pub fn of(&mut self, head: &BlockHead) -> u32 {
        let known = self.of_threads.get(&head.thread);
        let known = known.or_else(|| self.of_pids.get(&head.pid)).copied();
        let space = known.unwrap_or(self.found);
        self.found = self.found.max(space + 1);
        self.of_threads.insert(head.thread, space);
        self.of_pids.insert(head.pid, space);
        space
    }

    /// Returns a mark that separates the lines of the block's process from those of others. The caller combines it by exclusive
    /// or with line numbers below 2^`bits`. The mark uses the top bits, which are zero in the line numbers of programs.
    pub fn mark(&mut self, head: &BlockHead, bits: u32) -> u64 {
        u64::from(self.of(head)).reverse_bits() >> (u64::BITS - bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(thread: u32, pid: u32) -> BlockHead {
        BlockHead {
            thread,
            pid,
            ..BlockHead::default()
        }
    }

    #[test]
    fn threads_of_a_process_share_a_space_and_keep_it_when_the_program_runs_again() {
        let mut spaces = Spaces::default();
        for first in [10, 20] {
            let blocks = [(1, first), (2, first), (3, first + 1), (1, first)];
            let found = blocks.map(|(thread, pid)| spaces.of(&head(thread, pid)));
            assert_eq!(found, [0, 0, 1, 0]);
        }
        assert_eq!(spaces.mark(&head(2, 20), 44), 0);
        assert_eq!(spaces.mark(&head(3, 21), 44), 1 << 43);
    }
}
