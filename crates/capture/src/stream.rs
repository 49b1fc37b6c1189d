//! Event stream from a thread to the process that records or simulates it (`steer trace record`, traced simulation).
//!
//! Input: the thread's execution. Output: blocks of events ([`countersteer_cache::wire`]) over a local socket in the scratch
//! directory. A slow reader blocks the program; if the reader is gone, the program ends.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;

use countersteer_cache::tracer::ThreadTracer;
use countersteer_cache::wire::{ENDS, ENTERS_KERNEL};

use crate::block::{SIZE_SHIFT, TranslatedBlock, WRITE_SHIFT};
use crate::layout::STREAM_SOCKET;

/// Lowest descriptor that the plugin uses; the program uses those below.
const FIRST_DESCRIPTOR: libc::c_int = 900;
/// Instructions below which a block is not sent at a system call.
const SHORT: u32 = 1 << 14;

pub struct WireStream {
    tracer: ThreadTracer,
    /// `None` if the program closed the descriptor: it runs on without sending.
    socket: Option<OwnedFd>,
}

impl WireStream {
    /// Connects the thread with this number to the socket in a scratch directory.
    pub fn connect(directory: &Path, thread: u32, filter_sets: u32) -> io::Result<Self> {
        let address = SocketAddr::from_pathname(directory.join(STREAM_SOCKET))?;
        Self::connect_to(&address, thread, filter_sets)
    }

    /// Connects the thread with this number.
    pub fn connect_to(address: &SocketAddr, thread: u32, filter_sets: u32) -> io::Result<Self> {
        let socket = out_of_the_way(UnixStream::connect_addr(address)?);
        Ok(Self {
            tracer: ThreadTracer::new(thread, std::process::id(), filter_sets),
            socket: Some(socket),
        })
    }

    /// Records the execution of a block; `again` is true if it continues a repeated string instruction.
    #[inline]
    pub fn block(
        &mut self,
        block: &TranslatedBlock,
        mispredicted: bool,
        again: bool,
        stamp: impl FnOnce() -> u64,
    ) -> io::Result<()> {
        if mispredicted {
            self.tracer.mispredicted();
        }
        if self.tracer.is_complete() {
            self.send(0, stamp())?;
        }
        if !again {
            self.tracer.instructions(block.count);
            self.tracer.fetch(
                block.pc >> 6,
                block.after.wrapping_sub(1).max(block.pc) >> 6,
            );
        }
        Ok(())
    }

    /// Records a data access.
    #[inline]
    pub fn data(&mut self, info: u32, address: u64) {
        let last = address.wrapping_add((1 << (info >> SIZE_SHIFT & 7)) - 1) >> 6;
        let store = info >> WRITE_SHIFT & 1 != 0;
        self.tracer.data(address >> 6, last, store);
    }

    /// Records that the thread enters the kernel; if it `ends`, for the last time.
    pub fn enter_kernel(&mut self, ends: bool, stamp: u64) -> io::Result<()> {
        let flags = ENTERS_KERNEL | if ends { ENDS } else { 0 };
        if ends || self.tracer.pending() >= SHORT {
            self.send(flags, stamp)?;
        }
        Ok(())
    }

    /// Closes the socket without touching other state, which another thread may have left incomplete at a fork.
    pub fn abandon(&self) {
        if let Some(socket) = &self.socket {
            // SAFETY: the descriptor is open, and the stream is not used again.
            unsafe { libc::close(socket.as_raw_fd()) };
        }
    }

    /// Sends the pending events.
    ///
    /// # Errors
    /// Fails if the reader is gone.
    pub fn send(&mut self, flags: u32, stamp: u64) -> io::Result<()> {
        let socket = self.socket.as_ref();
        let mut result = Ok(());
        self.tracer.hand_on(flags, stamp, |head, words| {
            if let Some(socket) = socket {
                result = send_all(socket, &head.pack()).and_then(|()| send_all(socket, words));
            }
        });
        match result {
            Err(error) if error.raw_os_error() == Some(libc::EBADF) => {
                // The program may use the number for another file by now.
                std::mem::forget(self.socket.take());
                Ok(())
            }
            result => result,
        }
    }
}

/// Moves the socket to a descriptor that the program does not use.
pub fn out_of_the_way(socket: UnixStream) -> OwnedFd {
    // SAFETY: the descriptor is open; the result is checked below.
    let high = unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR) };
    if high < 0 {
        return socket.into();
    }
    // SAFETY: fcntl just made the descriptor, and no other code has it.
    unsafe { OwnedFd::from_raw_fd(high) }
}

fn send_all(socket: &OwnedFd, words: &[u32]) -> io::Result<()> {
    let mut at = words.as_ptr().cast::<u8>();
    let mut left = std::mem::size_of_val(words);
    while left > 0 {
        // SAFETY: `at` points to `left` bytes of `words`.
        let sent = unsafe { libc::send(socket.as_raw_fd(), at.cast(), left, libc::MSG_NOSIGNAL) };
        if sent < 0 {
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Err(error);
        }
        // SAFETY: no more than `left` bytes were sent.
        at = unsafe { at.add(sent as usize) };
        left -= sent as usize;
    }
    Ok(())
}

/// Reader of sent blocks.
#[cfg(test)]
pub(crate) mod testing {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use countersteer_cache::wire::{BlockHead, HEAD_WORDS, words};

    /// Head and words of a block that was sent.
    pub type Sent = (BlockHead, Vec<u32>);

    /// Returns all blocks that arrive until the other end closes.
    pub fn received(mut stream: UnixStream) -> Vec<Sent> {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let all = words(&bytes);
        let mut rest = &all[..];
        let mut found = Vec::new();
        while let Some((head, behind)) = rest.split_first_chunk::<HEAD_WORDS>() {
            let head = BlockHead::unpack(head).unwrap();
            let (block, behind) = behind.split_at(head.words as usize);
            found.push((head, block.to_vec()));
            rest = behind;
        }
        found
    }
}
