//! Event stream of a thread that is also counted.
//!
//! Input: blocks and accesses, as for counting. Output: the events of the stream; the end of the program if its reader is gone.

use std::io;
use std::path::Path;

use super::Vcpu;
use crate::action::CallerAction;
use crate::block::TranslatedBlock;
use crate::stream::WireStream;

impl Vcpu {
    /// Connects the thread's stream: its events are sent from now on.
    pub fn connect(&mut self, directory: &Path, filter_sets: u32) -> io::Result<()> {
        let stream = WireStream::connect(directory, self.file.ordinal() as u32, filter_sets)?;
        self.stream = Some(Box::new(stream));
        Ok(())
    }

    /// Counts a block like [`Self::block`], and sends it.
    pub fn streamed_block(&mut self, block: &'static TranslatedBlock) -> CallerAction {
        let again = block.continues(self.previous);
        let wrong = self.branches.wrong;
        let verdict = self.block(block);
        let mispredicted = self.branches.wrong > wrong;
        let control = self.control;
        let Some(stream) = &mut self.stream else {
            return verdict;
        };
        let sent = stream.block(block, mispredicted, again, || control.instructions());
        if verdict == CallerAction::Stop {
            self.send_last(false);
        }
        self.sent(sent, verdict)
    }

    pub fn stream_memory(&mut self, info: u32, address: u64) {
        if let Some(stream) = &mut self.stream {
            stream.data(info, address);
        }
    }

    /// Ends the program if the reader is gone.
    pub(super) fn sent(&self, result: io::Result<()>, verdict: CallerAction) -> CallerAction {
        match CallerAction::after(&result) {
            CallerAction::Go => verdict,
            CallerAction::Stop => {
                self.control.stop();
                CallerAction::Stop
            }
        }
    }

    /// Sends the pending events if the verdict ends the process.
    pub(super) fn sent_before(&mut self, verdict: CallerAction) -> CallerAction {
        if verdict == CallerAction::Stop {
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
            let _ = self.sent(sent, CallerAction::Go);
        }
    }
}
