//! Programs whose accesses can be had: from a trace, or from the program itself while it runs.
//!
//! Input: which thread of which copy of a program. Output: blocks of its events, in order, for as long as they are asked for.

use std::sync::Arc;

use crate::wire::Head;

/// A block of events, ready to be read.
#[derive(Clone, Debug)]
pub struct Block {
    pub head: Head,
    pub words: Arc<[u32]>,
}

/// A program that can be executed again and again.
pub trait TraceSource: Send + Sync {
    /// One more copy of it.
    fn copy(&self) -> Arc<dyn ProgramCopy>;

    /// Why a program could not go on, where one could not: what its streams gave since is empty.
    fn failure(&self) -> Option<String> {
        None
    }
}

/// A copy of a program; its threads belong together.
pub trait ProgramCopy: Send + Sync {
    /// What its thread with this number, from 0, executes.
    fn stream(&self, thread: u32) -> Box<dyn Stream>;
}

/// What a thread executes.
pub trait Stream: Send {
    /// The next block; after the thread's last one, the first of the next run.
    fn next_block(&mut self) -> Block;

    /// Leaves out whole blocks from the next one on, of so many instructions up to half a block; of how many they were.
    fn pass(&mut self, instructions: f64) -> f64 {
        let mut gone = 0.0;
        let mut last = 0.0;
        while gone + last * 0.5 < instructions {
            last = f64::from(self.next_block().head.instructions.max(1));
            gone += last;
        }
        gone
    }

    /// A piece of work begins at this share of the run; the reader is `behind` instructions into the last block. Whether that
    /// is somewhere else, so that the rest of the block is left out.
    fn begin(&mut self, share: f64, behind: u32) -> bool;
}
