//! Sources of program events: a trace, or the program itself while it runs.
//!
//! Input: a copy of a program and a thread of it. Output: blocks of the thread's events, in order, without end.

use std::sync::Arc;

use crate::wire::Head;

/// Decoded block of events.
#[derive(Clone, Debug)]
pub struct Block {
    pub head: Head,
    pub words: Arc<[u32]>,
}

/// Program that can be executed repeatedly.
pub trait TraceSource: Send + Sync {
    /// Creates another copy of the program.
    fn copy(&self) -> Arc<dyn ProgramCopy>;

    /// Returns the reason if a program failed. Streams of a failed program yield empty blocks.
    fn failure(&self) -> Option<String> {
        None
    }
}

/// Copy of a program; its threads belong together.
pub trait ProgramCopy: Send + Sync {
    /// Returns the event stream of a thread, numbered from 0.
    fn stream(&self, thread: u32) -> Box<dyn Stream>;
}

/// Event stream of a thread.
pub trait Stream: Send {
    /// Returns the next block; after the thread's last block, the first block of the next run.
    fn next_block(&mut self) -> Block;

    /// Skips about `instructions` instructions, in whole blocks, to the nearest block boundary. Returns the number of
    /// instructions skipped.
    fn pass(&mut self, instructions: f64) -> f64 {
        let mut gone = 0.0;
        let mut last = 0.0;
        while gone + last * 0.5 < instructions {
            last = f64::from(self.next_block().head.instructions.max(1));
            gone += last;
        }
        gone
    }

    /// Begins a piece of work at this share of the run; the reader is `behind` instructions into the last block. Returns true if
    /// the stream moves elsewhere: the caller then skips the rest of its block.
    fn begin(&mut self, share: f64, behind: u32) -> bool;
}
