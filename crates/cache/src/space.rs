//! Address spaces of a stream: equal line numbers of two processes are different memory.
//!
//! Input: block heads, in order. Output: a number for each process, from 0. A simulation of a single process sees its lines
//! unchanged.

use std::collections::HashMap;

use crate::wire::Head;

/// Processes seen so far.
#[derive(Clone, Debug, Default)]
pub struct Spaces {
    /// Processes by thread number. Another execution of a program has new processes, but the same thread numbers.
    of_threads: HashMap<u32, u32>,
    of_pids: HashMap<u32, u32>,
    found: u32,
}

impl Spaces {
    /// Returns the process of a block.
    pub fn of(&mut self, head: &Head) -> u32 {
        let known = self.of_threads.get(&head.thread);
        let known = known.or_else(|| self.of_pids.get(&head.pid)).copied();
        let space = known.unwrap_or(self.found);
        self.found = self.found.max(space + 1);
        self.of_threads.insert(head.thread, space);
        self.of_pids.insert(head.pid, space);
        space
    }

    /// Returns a mark that separates the lines of the block's process from those of others. The caller combines it by exclusive
    /// or with line numbers below 2^`bits`. The mark uses the top bits, which are zero in a program's own line numbers.
    pub fn mark(&mut self, head: &Head, bits: u32) -> u64 {
        u64::from(self.of(head)).reverse_bits() >> (u64::BITS - bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(thread: u32, pid: u32) -> Head {
        Head {
            thread,
            pid,
            ..Head::default()
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
