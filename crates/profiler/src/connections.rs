//! Connections of an instrumented program's threads and processes.
//!
//! Input: connected sockets. Output: the blocks of events that arrive on each; sockets that are ready.

use std::io::{self, Read};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use countersteer_cache::source::Block;
use countersteer_cache::wire::{BlockHead, HEAD_WORDS, words};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Smallest number of connections between two searches for ended ones.
const FEW: usize = 64;

/// Connections that stay open until this value is dropped, and some that the other side has ended.
#[derive(Default)]
pub(crate) struct HeldConnections(Vec<UnixStream>);

impl HeldConnections {
    pub fn add(&mut self, stream: UnixStream) {
        if self.0.len() == self.0.capacity() {
            self.0.retain(is_open);
            self.0.reserve(self.0.len().max(FEW));
        }
        self.0.push(stream);
    }
}

fn is_open(stream: &UnixStream) -> bool {
    let mut watched = [PollFd::new(stream.as_fd(), PollFlags::empty())];
    let _ = poll(&mut watched, PollTimeout::ZERO);
    !watched[0].any().unwrap_or(false)
}

/// Waits until one of these sockets can be read or accepted from. Returns true for each that can.
pub fn ready<'a>(sockets: impl Iterator<Item = BorrowedFd<'a>>, timeout: PollTimeout) -> Vec<bool> {
    let mut watched: Vec<PollFd<'_>> = sockets
        .map(|socket| PollFd::new(socket, PollFlags::POLLIN))
        .collect();
    // An interrupted call leaves no socket ready.
    let _ = poll(&mut watched, timeout);
    watched.iter().map(|of| of.any().unwrap_or(false)).collect()
}

/// True if a socket can be read or accepted from at once.
pub(crate) fn ready_now(socket: &impl AsFd) -> bool {
    ready(std::iter::once(socket.as_fd()), PollTimeout::ZERO) == [true]
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
