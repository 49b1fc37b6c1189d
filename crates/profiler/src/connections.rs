//! Connections of an instrumented program's threads.
//!
//! Input: connected sockets. Output: the blocks of events that arrive on each.

use std::io::{self, Read};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

use countersteer_cache::source::Block;
use countersteer_cache::wire::{BlockHead, HEAD_WORDS, words};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Smallest number of connections between two searches for ended ones.
const FEW: usize = 64;

/// Open connections, and some that have ended.
#[derive(Default)]
pub struct Connections(Mutex<Vec<UnixStream>>);

impl Connections {
    pub fn add(&self, stream: UnixStream) {
        let mut streams = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if streams.len() == streams.capacity() {
            streams.retain(is_open);
            let more = streams.len().max(FEW);
            streams.reserve(more);
        }
        streams.push(stream);
    }

    /// Adds a connection that another thread reads from. Returns false if no descriptor is free.
    pub fn add_copy(&self, stream: &UnixStream) -> bool {
        stream.try_clone().map(|copy| self.add(copy)).is_ok()
    }

    /// Ends all connections.
    pub fn close(&self) {
        let streams = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for stream in &*streams {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn is_open(stream: &UnixStream) -> bool {
    let mut watched = [PollFd::new(stream.as_fd(), PollFlags::empty())];
    let _ = poll(&mut watched, PollTimeout::ZERO);
    !watched[0].any().unwrap_or(false)
}

/// Passes on the blocks of a connection until it ends or `take` returns false, and closes it.
pub fn read(stream: &UnixStream, take: impl FnMut(Block) -> bool) {
    // A killed thread leaves an incomplete block; the blocks before it are complete.
    let _ = read_blocks(stream, take);
    let _ = stream.shutdown(Shutdown::Both);
}

fn read_blocks(mut stream: &UnixStream, mut take: impl FnMut(Block) -> bool) -> io::Result<()> {
    let mut bytes = Vec::new();
    loop {
        let mut head = [0; HEAD_WORDS * 4];
        stream.read_exact(&mut head)?;
        let head = head.as_chunks::<4>().0;
        let head = BlockHead::unpack(&std::array::from_fn(|at| u32::from_ne_bytes(head[at])));
        let head = head.ok_or(io::ErrorKind::InvalidData)?;
        bytes.resize(head.words as usize * 4, 0);
        stream.read_exact(&mut bytes)?;
        let words = words(&bytes);
        if !take(Block { head, words }) {
            return Ok(());
        }
    }
}
