//! Queues of the blocks that a running program has sent and its simulation has not taken yet.
//!
//! Input: blocks as they arrive. Output: blocks on request, in order for each thread. A thread that is [`MOST_BLOCKS`] ahead
//! waits. If the requested thread sends nothing, it may itself wait for one of these threads, for example for a lock. In this
//! case they continue, and an unnamed file holds their blocks until they are requested.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use countersteer_cache::source::Block;
use countersteer_cache::wire::{BlockHead, ENDS, words};

use super::super::receiver::EventSink;

/// Largest number of blocks of a thread in memory: 2 MiB.
const MOST_BLOCKS: usize = 4;
/// Time without a block from a requested thread after which the others continue.
const PATIENCE: Duration = Duration::from_millis(20);
/// Largest size of the file, in bytes.
const MOST_BYTES: u64 = 8 << 30;
enum QueueSlot {
    Memory(Block),
    /// Offset of the block in the file.
    File(BlockHead, u64),
}

#[derive(Default)]
struct Queue {
    slots: VecDeque<QueueSlot>,
    ended: bool,
}

#[derive(Default)]
struct QueueCursor {
    threads: Vec<Queue>,
    /// Number of open connections.
    open: usize,
    /// True once the started program has ended.
    over: bool,
    /// True once the simulation takes no more blocks.
    closed: bool,
    /// Time since which a requested thread has sent nothing.
    hungry: Option<Instant>,
    last: Option<Instant>,
    file: Option<File>,
    /// Blocks in the file that are still to be taken. At zero, the file is overwritten from its start.
    filed: usize,
    length: u64,
    failed: Option<String>,
}

/// Queues of all threads of a program.
pub(crate) struct Queues {
    state: Mutex<QueueCursor>,
    changed: Condvar,
    hang: Duration,
}

impl Queues {
    /// Creates queues of a program that counts as hung if no thread sends anything for `hang`.
    pub fn new(hang: Duration) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            hang,
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueCursor> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the delivery of blocks.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Adds a block as soon as there is room. Returns false once no more blocks are taken.
    fn push(&self, thread: usize, block: Block) -> bool {
        let mut state = self.lock();
        while !state.closed && state.threads[thread].slots.len() >= MOST_BLOCKS {
            if state.hungry.is_some_and(|since| since.elapsed() > PATIENCE) {
                break;
            }
            let waited = self.changed.wait_timeout(state, PATIENCE);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.closed {
            return false;
        }
        state.last = Some(Instant::now());
        let slot = if state.threads[thread].slots.len() < MOST_BLOCKS {
            QueueSlot::Memory(block)
        } else {
            match state.put_away(&block) {
                Ok(slot) => slot,
                Err(why) => {
                    state.failed = Some(why);
                    state.closed = true;
                    self.changed.notify_all();
                    return false;
                }
            }
        };
        state.threads[thread].slots.push_back(slot);
        self.changed.notify_all();
        true
    }

    /// Returns the next block of a thread; `None` after its last block.
    ///
    /// # Errors
    /// Returns the reason if no block can be delivered although the thread continues.
    pub fn next_block(&self, thread: usize) -> Result<Option<Block>, String> {
        let mut state = self.lock();
        let asked = Instant::now();
        loop {
            if let Some(why) = &state.failed {
                return Err(why.clone());
            }
            let queue = state.threads.get_mut(thread);
            if let Some(slot) = queue.and_then(|queue| queue.slots.pop_front()) {
                state.hungry = None;
                self.changed.notify_all();
                return state.fetch(slot).map(Some);
            }
            let ended = match state.threads.get(thread) {
                Some(queue) => queue.ended,
                None => state.over && state.open == 0,
            };
            if ended {
                state.hungry = None;
                return Ok(None);
            }
            if asked.max(state.last.unwrap_or(asked)).elapsed() > self.hang {
                let seconds = self.hang.as_secs_f64();
                return Err(format!(
                    "it has executed nothing for {seconds} s (it gets no input, no terminal and no arguments but its own)"
                ));
            }
            state.hungry.get_or_insert_with(Instant::now);
            let waited = self.changed.wait_timeout(state, PATIENCE);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns the number of threads that have connected so far.
    pub fn threads(&self) -> usize {
        self.lock().threads.len()
    }
}

impl EventSink for Queues {
    fn connect(&self) -> usize {
        let mut state = self.lock();
        state.threads.push(Queue::default());
        state.open += 1;
        self.changed.notify_all();
        state.threads.len() - 1
    }

    fn take(&self, thread: usize, block: Block) -> bool {
        let ends = block.head.flags & ENDS != 0;
        self.push(thread, block) && !ends
    }

    fn disconnect(&self, thread: usize) {
        let mut state = self.lock();
        state.open -= 1;
        state.threads[thread].ended = true;
        self.changed.notify_all();
    }

    fn end(&self) {
        self.lock().over = true;
        self.changed.notify_all();
    }
}

impl QueueCursor {
    /// Writes a block to the file.
    fn put_away(&mut self, block: &Block) -> Result<QueueSlot, String> {
        let failed = |error| format!("what its threads sent cannot be kept in a file: {error}");
        if self.length > MOST_BYTES {
            return Err(format!(
                "its threads wait for each other more than {} GiB of events apart; record it with `steer trace record` and name \
                 the trace as `profile`",
                MOST_BYTES >> 30
            ));
        }
        if self.file.is_none() {
            self.file = Some(tempfile::tempfile().map_err(failed)?);
        }
        let at = self.length;
        let bytes: Vec<u8> = block.words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        if let Some(file) = &self.file {
            file.write_all_at(&bytes, at).map_err(failed)?;
        }
        self.length += bytes.len() as u64;
        self.filed += 1;
        Ok(QueueSlot::File(block.head, at))
    }

    fn fetch(&mut self, slot: QueueSlot) -> Result<Block, String> {
        let (head, at) = match slot {
            QueueSlot::Memory(block) => return Ok(block),
            QueueSlot::File(head, at) => (head, at),
        };
        let mut bytes = vec![0; head.words as usize * 4];
        if let Some(file) = &self.file {
            let read = file.read_exact_at(&mut bytes, at);
            read.map_err(|error| format!("what its threads sent cannot be read again: {error}"))?;
        }
        self.filed -= 1;
        if self.filed == 0 {
            self.length = 0;
        }
        let words = words(&bytes);
        Ok(Block { head, words })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn block(n: u32) -> Block {
        let head = BlockHead {
            words: 1,
            instructions: n,
            ..BlockHead::default()
        };
        Block {
            head,
            words: [n].into(),
        }
    }

    #[test]
    fn a_thread_that_is_ahead_waits_unless_another_waits_for_it() {
        let queues = Arc::new(Queues::new(Duration::from_secs(60)));
        for round in 0..2 {
            let (ahead, asked) = (queues.connect(), queues.connect());
            assert_eq!((ahead, asked), (2 * round, 2 * round + 1));
            let sender = queues.clone();
            let sent = std::thread::spawn(move || {
                // The second thread sends only after twenty blocks of the first.
                (0..20).for_each(|n| assert!(sender.push(ahead, block(n))));
                assert!(sender.push(asked, block(99)));
                sender.disconnect(ahead);
                sender.disconnect(asked);
            });
            while queues.lock().threads[ahead].slots.len() < MOST_BLOCKS {
                std::thread::yield_now();
            }
            // Without a bound, the sender would have passed it by then.
            std::thread::sleep(PATIENCE * 2);
            assert_eq!(queues.lock().threads[ahead].slots.len(), MOST_BLOCKS);
            assert_eq!(queues.next_block(asked).unwrap().unwrap().words[..], [99]);
            assert!(queues.next_block(asked).unwrap().is_none());
            assert_eq!(queues.lock().length, 16 * 4, "what did not fit into memory");
            for n in 0..20 {
                assert_eq!(queues.next_block(ahead).unwrap().unwrap().words[..], [n]);
            }
            assert!(queues.next_block(ahead).unwrap().is_none());
            sent.join().unwrap();
            let state = queues.lock();
            let bytes = state.file.as_ref().unwrap().metadata().unwrap().len();
            assert_eq!((state.length, bytes), (0, 16 * 4), "round {round}");
        }
    }

    #[test]
    fn a_program_that_hangs_is_an_error() {
        let queues = Queues::new(PATIENCE * 3);
        queues.connect();
        assert!(queues.push(0, block(1)));
        assert!(queues.next_block(0).unwrap().is_some());
        assert!(queues.next_block(0).unwrap_err().contains("0.06 s"));
    }

    #[test]
    fn a_thread_that_never_comes_is_over_with_the_program() {
        let queues = Queues::new(Duration::from_millis(200));
        queues.connect();
        queues.end();
        queues.disconnect(0);
        assert!(queues.next_block(3).unwrap().is_none());
        queues.close();
        queues.connect();
        assert!(!queues.push(1, block(1)));
    }
}
