//! Event stream of a thread that is also counted.
//!
//! Input: blocks and accesses, as for counting. Output: the events of the stream; the end of the program if its reader is gone.

use std::io;
use std::path::Path;

use super::{SIZE_SHIFT, Vcpu, Verdict, WRITE_SHIFT};
use crate::block::Block;
use crate::stream::Stream;

impl Vcpu {
    /// Connects the thread's stream: its events are sent from now on.
    pub fn connect(&mut self, directory: &Path, filter_sets: u32) -> io::Result<()> {
        let stream = Stream::connect(directory, self.file.ordinal() as u32, filter_sets)?;
        self.stream = Some(Box::new(stream));
        Ok(())
    }

    /// Counts a block like [`Self::block`], and sends it.
    pub fn streamed_block(&mut self, block: &'static Block) -> Verdict {
        let again =
            block.starts_repeat && self.previous.ends_repeat == block.pc && block.ends_repeat != 0;
        let wrong = self.branches.wrong;
        let verdict = self.block(block);
        let mispredicted = self.branches.wrong > wrong;
        let control = self.control;
        let Some(stream) = &mut self.stream else {
            return verdict;
        };
        let sent = stream.block(block, mispredicted, again, || control.instructions());
        if verdict == Verdict::Stop {
            self.send_last(false);
        }
        self.sent(sent, verdict)
    }

    pub fn streamed_memory<const WIDE: bool>(
        &mut self,
        info: u32,
        address: u64,
        datum: usize,
        split: bool,
    ) {
        if let Some(stream) = &mut self.stream {
            let last = address.wrapping_add((1 << (info >> SIZE_SHIFT & 7)) - 1) >> 6;
            stream.data(address >> 6, last, info >> WRITE_SHIFT & 1 != 0);
        }
        if split {
            self.split_memory::<WIDE>(info, address, datum);
        } else {
            self.memory::<WIDE>(info, address, datum);
        }
    }

    /// Ends the program if the reader is gone, but not if the program closed the socket.
    pub(super) fn sent(&mut self, result: io::Result<()>, verdict: Verdict) -> Verdict {
        match result {
            Ok(()) => verdict,
            Err(error) if error.raw_os_error() == Some(libc::EBADF) => {
                self.stream = None;
                verdict
            }
            Err(_) => {
                self.control.stop();
                Verdict::Stop
            }
        }
    }

    /// Sends the pending events if the verdict ends the process.
    pub(super) fn sent_before(&mut self, verdict: Verdict) -> Verdict {
        if verdict == Verdict::Stop {
            self.send_last(false);
        }
        verdict
    }

    /// Sends the last events before the thread enters the kernel or ends.
    pub fn send_last(&mut self, ends: bool) {
        let stamp = self.control.instructions();
        if let Some(stream) = &mut self.stream {
            let sent = if ends {
                stream.enter_kernel(true, stamp)
            } else {
                stream.send(0, stamp)
            };
            let _ = self.sent(sent, Verdict::Go);
        }
    }
}
