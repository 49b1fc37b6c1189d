//! Thread of a program that is simulated while it runs: its events are sent, and nothing is measured.
//!
//! Input: executed blocks, data accesses, system calls. Output: the thread's event stream. Mispredictions are those of the
//! reference predictor, as in a recording.

use std::io;
use std::os::unix::net::SocketAddr;

use crate::block::{NO_BLOCK, TranslatedBlock};
use crate::branches::Branches;
use crate::stream::WireStream;

/// Predictor and stream of a thread.
pub struct LiveThread {
    previous: &'static TranslatedBlock,
    branches: Branches,
    /// Receiver of data accesses and system calls, which need no model.
    pub stream: WireStream,
}

impl LiveThread {
    /// Connects a new thread to the receiver.
    pub fn connect(address: &SocketAddr, filter_sets: u32) -> io::Result<Self> {
        Ok(Self {
            previous: &NO_BLOCK,
            branches: Branches::new(),
            // The receiver numbers threads in the order in which they connect.
            stream: WireStream::connect_to(address, 0, filter_sets)?,
        })
    }

    /// Reconnects after a fork: the thread is the only one of the child process, and a new thread for the receiver. It keeps the
    /// state of the parent's branch predictor.
    ///
    /// # Errors
    /// Fails if the receiver is gone.
    pub fn reconnect(&mut self, address: &SocketAddr, filter_sets: u32) -> io::Result<()> {
        self.stream = WireStream::connect_to(address, 0, filter_sets)?;
        Ok(())
    }

    /// Records the execution of a block.
    ///
    /// # Errors
    /// Fails if the receiver is gone.
    #[inline]
    pub fn block(&mut self, block: &'static TranslatedBlock) -> io::Result<()> {
        let previous = std::mem::replace(&mut self.previous, block);
        let again = block.continues(previous);
        let wrong = self.branches.wrong;
        if !again {
            self.branches.resolve(previous, block.pc);
        }
        let mispredicted = self.branches.wrong > wrong;
        self.stream.block(block, mispredicted, again, || 0)
    }
}

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::UnixListener;

    use countersteer_cache::private::AccessKind;
    use countersteer_cache::wire::{BlockHead, Decoder, ENDS, ENTERS_KERNEL, WireKind};

    use super::*;
    use crate::block::WRITE_SHIFT;
    use crate::stream::testing::{Sent, received};

    /// Returns a repeated instruction, as one element.
    fn repeat() -> &'static TranslatedBlock {
        Box::leak(Box::new(TranslatedBlock {
            pc: 0x1000,
            after: 0x1002,
            count: 1,
            starts_repeat: true,
            ends_repeat: 0x1000,
            ..TranslatedBlock::default()
        }))
    }

    fn listener(name: &str) -> (SocketAddr, UnixListener) {
        let name = format!("countersteer-test-{name}-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        (address, listener)
    }

    /// Returns the heads and words received.
    fn blocks(listener: &UnixListener) -> Vec<Sent> {
        received(listener.accept().unwrap().0)
    }

    #[test]
    fn what_a_thread_executes_arrives_and_a_repeated_instruction_is_one() {
        let (address, listener) = listener("repeat");
        let mut thread = LiveThread::connect(&address, 8).unwrap();
        let repeat = repeat();
        for n in 0..256 {
            thread.block(repeat).unwrap();
            thread.stream.data(1 << WRITE_SHIFT, 0x2000 + n);
        }
        thread.stream.enter_kernel(true, 0).unwrap();
        drop(thread);
        let found = blocks(&listener);
        let (head, words) = &found[0];
        assert_eq!((head.instructions, head.stores), (1, 256));
        assert_eq!(head.flags, ENTERS_KERNEL | ENDS);
        let mut decoder = Decoder::new(words);
        let events = std::iter::from_fn(|| decoder.next_event().unwrap());
        let lines: Vec<(WireKind, u64)> = events.map(|event| (event.what, event.line)).collect();
        let stores = (0x80..0x84).map(|line| (WireKind::Access(AccessKind::Store), line));
        let fetch = (WireKind::Access(AccessKind::Fetch), 0x40);
        assert_eq!(lines, [fetch].into_iter().chain(stores).collect::<Vec<_>>());
    }

    #[test]
    fn a_long_repeated_instruction_is_sent_in_blocks() {
        let (address, listener) = listener("long");
        let mut thread = LiveThread::connect(&address, 8).unwrap();
        let receiver = std::thread::spawn(move || blocks(&listener));
        let repeat = repeat();
        let times = (1 << 22) + 10;
        for n in 0..times {
            thread.block(repeat).unwrap();
            thread.stream.data(1 << WRITE_SHIFT, n << 6);
        }
        thread.stream.enter_kernel(true, 0).unwrap();
        drop(thread);
        let heads: Vec<BlockHead> = receiver.join().unwrap().iter().map(|of| of.0).collect();
        assert!(heads.iter().all(|head| head.words <= 1 << 18));
        let sum = |of: fn(&BlockHead) -> u32| heads.iter().map(|head| u64::from(of(head))).sum();
        let executed: (u64, u64) = (sum(|head| head.instructions), sum(|head| head.stores));
        assert_eq!(executed, (1, times));
    }
}
