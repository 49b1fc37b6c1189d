//! Sources of program events: a trace, or the program itself while it runs.
//!
//! Input: a copy of a program, and a thread of it. Output: blocks of the thread's events, in order and without end.

use std::sync::Arc;

use crate::wire::BlockHead;

/// Block of events.
#[derive(Clone, Debug)]
pub struct Block {
    pub head: BlockHead,
    pub words: Arc<[u32]>,
}

/// Program whose events can be produced repeatedly.
pub trait TraceSource: Send + Sync {
    /// Creates another copy of the program, which starts from the beginning.
    fn copy(&self) -> Arc<dyn ProgramCopy>;

    /// Returns the reason for which a program failed; `None` if none did. Streams of a failed program return empty blocks.
    fn failure(&self) -> Option<String> {
        None
    }
}

/// Copy of a program, whose threads run together.
pub trait ProgramCopy: Send + Sync {
    /// Returns the event stream of a thread, numbered from 0.
    fn stream(&self, thread: u32) -> Box<dyn EventStream>;
}

/// Event stream of one thread, without end.
pub trait EventStream: Send {
    /// Returns the next block. The thread's last block is followed by the first block of the next run.
    fn next_block(&mut self) -> Block;

    /// Skips about `instructions` instructions, up to the nearest block boundary. Returns the number of instructions skipped.
    fn pass(&mut self, instructions: f64) -> f64 {
        let mut gone = 0.0;
        let mut last = 0.0;
        while gone + last * 0.5 < instructions {
            last = f64::from(self.next_block().head.instructions.max(1));
            gone += last;
        }
        gone
    }

    /// Moves the stream to the section of the program's work that begins at this fraction of the run. `behind` is the number of
    /// instructions that the reader has used of the last block. Returns true if the stream moves: the caller must then skip the
    /// rest of its block.
    fn begin(&mut self, share: f64, behind: u32) -> bool;
}
