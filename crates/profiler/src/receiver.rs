//! Receiver of the events that an instrumented program's threads send.
//!
//! Input: connections on a local socket. Output: blocks of events to an [`EventSink`], in order for each thread. A slow sink blocks
//! the program. Memory holds at most one block per thread and the contents of the sink.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use countersteer_cache::source::Block;
use countersteer_cache::wire::BlockHead;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::getuid;

use super::connections::{self, Connections};

/// Callback for the blocks of all threads; it returns false to end the program.
pub type BlockSink = Arc<Mutex<dyn FnMut(BlockHead, &[u32]) -> bool + Send>>;

/// Destination of the events of a program.
pub trait EventSink: Send + Sync + 'static {
    /// Adds a thread that has connected. Returns its number.
    fn connect(&self) -> usize {
        0
    }

    /// Takes a block of a thread. Returns false to end the connection.
    fn take(&self, thread: usize, block: Block) -> bool;

    /// Records the end of a thread's connection.
    fn disconnect(&self, _thread: usize) {}

    /// Records that the started program has ended. All connections that it made before are known.
    fn end(&self) {}
}

impl EventSink for BlockSink {
    fn take(&self, _thread: usize, block: Block) -> bool {
        let mut sink = self.lock().unwrap_or_else(PoisonError::into_inner);
        sink(block.head, &block.words)
    }
}

/// Listening socket with its reader threads.
pub struct Receiver<S> {
    pub sink: S,
    address: SocketAddr,
    connections: Connections,
    /// True once no more connections are accepted after those that are queued.
    stops: AtomicBool,
    listener: Mutex<Option<JoinHandle<Vec<JoinHandle<()>>>>>,
}

impl<S: EventSink> Receiver<S> {
    /// Listens at an address. Connections to `lifelines` are held until the receiver stops.
    pub fn new(
        address: SocketAddr,
        lifelines: Option<&SocketAddr>,
        sink: S,
    ) -> io::Result<Arc<Self>> {
        let streams = UnixListener::bind_addr(&address)?;
        let lifelines = lifelines.map(UnixListener::bind_addr).transpose()?;
        let receiver = Arc::new(Self::at(address, sink));
        receiver.listen(streams, lifelines);
        Ok(receiver)
    }

    fn at(address: SocketAddr, sink: S) -> Self {
        Self {
            sink,
            address,
            connections: Connections::default(),
            stops: AtomicBool::new(false),
            listener: Mutex::default(),
        }
    }

    fn listen(self: &Arc<Self>, streams: UnixListener, lifelines: Option<UnixListener>) {
        let receiver = Arc::clone(self);
        let accept = move || receiver.accept(&streams, lifelines.as_ref());
        let listener = std::thread::spawn(accept);
        *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(listener);
    }

    /// Reports the end of the started program to the sink, after the connections that its threads have made.
    pub fn mark_end(&self) {
        if UnixStream::connect_addr(&self.address).is_err() {
            // The listener is gone, and so are its queued connections.
            self.sink.end();
        }
    }

    /// Stops listening after the connections that are queued, and ends all connections after a grace period for pending events.
    pub fn stop(&self, grace: Duration) {
        self.stops.store(true, Relaxed);
        self.mark_end();
        let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        let readers = listener.take().map(JoinHandle::join);
        let readers = readers.and_then(Result::ok).unwrap_or_default();
        let since = Instant::now();
        while readers.iter().any(|r| !r.is_finished()) && since.elapsed() < grace {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.connections.close();
        readers.into_iter().for_each(|reader| drop(reader.join()));
    }

    /// Accepts connections until the receiver stops. Returns the threads that read from them.
    fn accept(
        self: &Arc<Self>,
        streams: &UnixListener,
        lifelines: Option<&UnixListener>,
    ) -> Vec<JoinHandle<()>> {
        let held = Connections::default();
        let mut readers: Vec<JoinHandle<()>> = Vec::new();
        loop {
            let mut watched: Vec<PollFd<'_>> = [Some(streams), lifelines]
                .into_iter()
                .flatten()
                .map(|of| PollFd::new(of.as_fd(), PollFlags::POLLIN))
                .collect();
            if poll(&mut watched, PollTimeout::NONE).is_err() {
                continue;
            }
            let ready: Vec<bool> = watched.iter().map(|of| of.any().unwrap_or(false)).collect();
            if let (Some(lifelines), Some(true)) = (lifelines, ready.get(1)) {
                accept(lifelines).into_iter().for_each(|of| held.add(of));
            }
            let accepted = if ready[0] { accept(streams) } else { None };
            match accepted {
                Some(stream) if is_own(&stream) => {
                    self.sink.end();
                    if self.stops.load(Relaxed) {
                        return readers;
                    }
                }
                Some(stream) => {
                    readers.retain(|reader| !reader.is_finished());
                    readers.extend(self.receive(stream));
                }
                None => {}
            }
        }
    }

    /// Passes on the blocks of a connection. `None` if no descriptor is free to end it by.
    fn receive(self: &Arc<Self>, stream: UnixStream) -> Option<JoinHandle<()>> {
        self.connections.add_copy(&stream).then_some(())?;
        let thread = self.sink.connect();
        let receiver = Arc::clone(self);
        Some(std::thread::spawn(move || {
            connections::read(&stream, |block| receiver.sink.take(thread, block));
            receiver.sink.disconnect(thread);
        }))
    }
}

/// Accepts a connection if it is from this user.
fn accept(listener: &UnixListener) -> Option<UnixStream> {
    let (stream, _) = listener.accept().ok()?;
    let peer = getsockopt(&stream, PeerCredentials).ok()?;
    (peer.uid() == getuid().as_raw()).then_some(stream)
}

/// True if this process made a connection itself. Such a connection is queued after all of the program's, and marks its end.
fn is_own(stream: &UnixStream) -> bool {
    getsockopt(stream, PeerCredentials)
        .is_ok_and(|peer| peer.pid().cast_unsigned() == std::process::id())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::Path;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::live::Queues;

    /// Environment variable with the socket, for a copy of this test that connects to it.
    const SOCKET: &str = "COUNTERSTEER_TEST_SOCKET";

    /// Helper process rather than a test: sends a block of 7 instructions without events.
    #[test]
    fn client() {
        let Some(socket) = std::env::var_os(SOCKET) else {
            return;
        };
        let head = BlockHead {
            instructions: 7,
            ..BlockHead::default()
        };
        let bytes: Vec<u8> = head.pack().iter().flat_map(|w| w.to_ne_bytes()).collect();
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.write_all(&bytes).unwrap();
    }

    /// Returns a receiver that does not listen yet. The connection of another process that has sent a block and ended is
    /// queued.
    fn with_queued<S: EventSink>(folder: &Path, sink: S) -> (Arc<Receiver<S>>, UnixListener) {
        let socket = folder.join("streams");
        let address = SocketAddr::from_pathname(&socket).unwrap();
        let streams = UnixListener::bind_addr(&address).unwrap();
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "receiver::tests::client"])
            .env(SOCKET, &socket)
            .stdout(Stdio::null())
            .status();
        assert!(status.unwrap().success());
        (Arc::new(Receiver::at(address, sink)), streams)
    }

    #[test]
    fn threads_whose_connections_are_queued_at_the_end_are_received() {
        let folder = tempfile::tempdir().unwrap();
        let received = Arc::new(Mutex::new(0));
        let into = received.clone();
        let sink: BlockSink = Arc::new(Mutex::new(move |head: BlockHead, _: &[u32]| {
            *into.lock().unwrap() += head.instructions;
            true
        }));
        let (receiver, streams) = with_queued(folder.path(), sink);
        receiver.listen(streams, None);
        receiver.stop(Duration::from_secs(60));
        assert_eq!(*received.lock().unwrap(), 7);
    }

    #[test]
    fn a_thread_whose_connection_is_queued_at_the_end_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let (receiver, streams) = with_queued(folder.path(), Queues::new(Duration::from_secs(60)));
        receiver.mark_end();
        let asked = Arc::clone(&receiver);
        let asker = std::thread::spawn(move || [0, 0, 1].map(|n| asked.sink.next_block(n)));
        // The request comes before any block exists.
        std::thread::sleep(Duration::from_millis(50));
        receiver.listen(streams, None);
        let [first, none, other] = asker.join().unwrap();
        assert_eq!(first.unwrap().unwrap().head.instructions, 7);
        assert!(none.unwrap().is_none() && other.unwrap().is_none());
        receiver.stop(Duration::ZERO);
    }
}
