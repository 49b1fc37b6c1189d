//! Thread of a program that is simulated while it runs: its events are sent, and nothing is measured.
//!
//! Input: executed blocks, data accesses, system calls. Output: the thread's event stream. Mispredictions are those of the
//! reference predictor, as in a recording.

use std::io;
use std::os::unix::net::SocketAddr;

use crate::block::Block;
use crate::branches::Branches;
use crate::stream::Stream;

/// Position, in QEMU's memory information, of the size (log2) and of the write bit.
const SIZE_SHIFT: u32 = 4;
const WRITE_SHIFT: u32 = 17;

/// Block before the first.
static NO_BLOCK: std::sync::LazyLock<Block> = std::sync::LazyLock::new(Block::default);

/// Predictor and stream of a thread.
pub struct LiveThread {
    previous: &'static Block,
    branches: Branches,
    stream: Stream,
    /// True if the program closed the stream's descriptor: the thread runs on without sending.
    unseen: bool,
}

impl LiveThread {
    /// Connects a new thread to the receiver.
    pub fn connect(address: &SocketAddr, filter_sets: u32) -> io::Result<Self> {
        Ok(Self {
            previous: &NO_BLOCK,
            branches: Branches::new(),
            // The receiver numbers threads in the order in which they connect.
            stream: Stream::connect_to(address, 0, filter_sets)?,
            unseen: false,
        })
    }

    /// Reconnects after a fork: the thread is the only one of the child process, and a new thread for the receiver. It keeps the
    /// state of the parent's branch predictor.
    ///
    /// # Errors
    /// Fails if the receiver is gone.
    pub fn reconnect(&mut self, address: &SocketAddr, filter_sets: u32) -> io::Result<()> {
        self.stream = Stream::connect_to(address, 0, filter_sets)?;
        self.unseen = false;
        Ok(())
    }

    /// Records the execution of a block.
    ///
    /// # Errors
    /// Fails if the receiver is gone.
    #[inline]
    pub fn block(&mut self, block: &'static Block) -> io::Result<()> {
        let previous = std::mem::replace(&mut self.previous, block);
        // QEMU executes each element of a repeated string instruction as a block; it counts as one instruction.
        let again =
            block.ends_repeat != 0 && block.starts_repeat && previous.ends_repeat == block.pc;
        let wrong = self.branches.wrong;
        if !again {
            self.branches.resolve(previous, block.pc);
        }
        let mispredicted = self.branches.wrong > wrong;
        let sent = self.stream.block(block, mispredicted, again, || 0);
        self.seen(sent)
    }

    /// Records a data access.
    #[inline]
    pub fn memory(&mut self, info: u32, address: u64) {
        let last = address.wrapping_add((1 << (info >> SIZE_SHIFT & 7)) - 1) >> 6;
        self.stream
            .data(address >> 6, last, info >> WRITE_SHIFT & 1 != 0);
    }

    /// Records that the thread enters the kernel; if it `ends`, for the last time.
    ///
    /// # Errors
    /// Fails if the receiver is gone.
    pub fn enter_kernel(&mut self, ends: bool) -> io::Result<()> {
        let sent = self.stream.enter_kernel(ends, 0);
        self.seen(sent)
    }

    /// Sends the pending events before the process executes another program.
    ///
    /// # Errors
    /// Fails if the receiver is gone.
    pub fn flush(&mut self) -> io::Result<()> {
        let sent = self.stream.send(0, 0);
        self.seen(sent)
    }

    /// Closes the connection in a forked process, where it belongs to a thread of the parent.
    pub fn abandon(&self) {
        self.stream.abandon();
    }

    fn seen(&mut self, sent: io::Result<()>) -> io::Result<()> {
        match sent {
            Err(error) if self.unseen || error.raw_os_error() == Some(libc::EBADF) => {
                self.unseen = true;
                Ok(())
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::UnixListener;

    use countersteer_cache::private::Access;
    use countersteer_cache::wire::{Decoder, ENDS, ENTERS_KERNEL, Head, What};

    use super::*;
    use crate::stream::testing::{Sent, received};

    /// Returns a repeated instruction, as one element.
    fn repeat() -> &'static Block {
        Box::leak(Box::new(Block {
            pc: 0x1000,
            after: 0x1002,
            count: 1,
            starts_repeat: true,
            ends_repeat: 0x1000,
            ..Block::default()
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
            thread.memory(1 << WRITE_SHIFT, 0x2000 + n);
        }
        thread.enter_kernel(true).unwrap();
        drop(thread);
        let found = blocks(&listener);
        let (head, words) = &found[0];
        assert_eq!((head.instructions, head.stores), (1, 256));
        assert_eq!(head.flags, ENTERS_KERNEL | ENDS);
        let mut decoder = Decoder::new(words);
        let events = std::iter::from_fn(|| decoder.next_event().unwrap());
        let lines: Vec<(What, u64)> = events.map(|event| (event.what, event.line)).collect();
        let stores = (0x80..0x84).map(|line| (What::Access(Access::Store), line));
        let fetch = (What::Access(Access::Fetch), 0x40);
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
            thread.memory(1 << WRITE_SHIFT, n << 6);
        }
        thread.enter_kernel(true).unwrap();
        drop(thread);
        let heads: Vec<Head> = receiver.join().unwrap().iter().map(|of| of.0).collect();
        assert!(heads.iter().all(|head| head.words <= 1 << 18));
        let sum = |of: fn(&Head) -> u32| heads.iter().map(|head| u64::from(of(head))).sum();
        let executed: (u64, u64) = (sum(|head| head.instructions), sum(|head| head.stores));
        assert_eq!(executed, (1, times));
    }
}
