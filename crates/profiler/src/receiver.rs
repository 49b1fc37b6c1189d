//! Receiver of the events that an instrumented program's threads send.
//!
//! Input: connections on a local socket. Output: blocks of events to an [`EventSink`], in order for each thread. A slow sink blocks
//! the program. Memory holds at most one block per thread and the contents of the sink.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use countersteer_cache::source::Block;
use countersteer_cache::wire::BlockHead;
use nix::poll::PollTimeout;
use nix::sys::socket::{UnixCredentials, getsockopt, sockopt::PeerCredentials};
use nix::unistd::getuid;

use super::connections::{self, HeldConnections, ready, ready_now};

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
        lock(self)(block.head, &block.words)
    }
}

/// Upper bound on the number of queued connections (`net.core.somaxconn` and more), so that a program that goes on forking is
/// no obstacle to the end.
const MOST_QUEUED: usize = 1 << 16;
/// Pause before another attempt while no descriptor is free.
const PAUSE: Duration = Duration::from_millis(1);

/// Listening socket with its reader threads.
pub struct Receiver<S> {
    pub sink: S,
    /// Connections of threads, open or ended.
    connections: Mutex<Vec<Weak<UnixStream>>>,
    /// Wakes the listener. It needs no descriptor then, of which many threads may leave none.
    waker: UnixStream,
    /// True once no more connections are accepted after those that are queued.
    stops: AtomicBool,
    /// Error because of which a connection was not accepted.
    failure: Mutex<Option<io::Error>>,
    listener: Mutex<Option<JoinHandle<Vec<JoinHandle<()>>>>>,
}

/// Sockets that the listener watches.
struct Sockets {
    streams: UnixListener,
    woken: UnixStream,
    /// Connections to this socket are held until the receiver stops.
    lifelines: Option<UnixListener>,
}

impl<S: EventSink> Receiver<S> {
    /// Listens at an address. Connections to `lifelines` are held until the receiver stops.
    pub fn new(
        address: &SocketAddr,
        lifelines: Option<&SocketAddr>,
        sink: S,
    ) -> io::Result<Arc<Self>> {
        let streams = UnixListener::bind_addr(address)?;
        let lifelines = lifelines.map(UnixListener::bind_addr).transpose()?;
        let (receiver, sockets) = Self::at(streams, lifelines, sink)?;
        receiver.listen(sockets);
        Ok(receiver)
    }

    fn at(
        streams: UnixListener,
        lifelines: Option<UnixListener>,
        sink: S,
    ) -> io::Result<(Arc<Self>, Sockets)> {
        let (waker, woken) = UnixStream::pair()?;
        waker.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        let receiver = Arc::new(Self {
            sink,
            connections: Mutex::default(),
            waker,
            stops: AtomicBool::new(false),
            failure: Mutex::default(),
            listener: Mutex::default(),
        });
        let sockets = Sockets {
            streams,
            woken,
            lifelines,
        };
        Ok((receiver, sockets))
    }

    fn listen(self: &Arc<Self>, sockets: Sockets) {
        let receiver = Arc::clone(self);
        let listener = std::thread::spawn(move || receiver.accept_all(&sockets));
        *lock(&self.listener) = Some(listener);
    }

    /// Reports the end of the started program to the sink, after the connections that its threads have made.
    pub(crate) fn mark_end(&self) {
        if (&self.waker).write(&[1]).is_err() {
            // The listener is gone, and so are its queued connections.
            self.sink.end();
        }
    }

    /// Stops listening after the connections that are queued, and ends all connections after a grace period for pending events.
    ///
    /// # Errors
    /// Fails if a connection could not be accepted.
    pub fn stop(&self, grace: Duration) -> io::Result<()> {
        self.stops.store(true, Relaxed);
        self.mark_end();
        let readers = lock(&self.listener).take().map(JoinHandle::join);
        let readers = readers.and_then(Result::ok).unwrap_or_default();
        let since = Instant::now();
        while readers.iter().any(|r| !r.is_finished()) && since.elapsed() < grace {
            std::thread::sleep(PAUSE);
        }
        for stream in lock(&self.connections).iter().filter_map(Weak::upgrade) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        readers.into_iter().for_each(|reader| drop(reader.join()));
        lock(&self.failure).take().map_or(Ok(()), Err)
    }

    /// Accepts connections until the receiver stops. Returns the threads that read from them.
    fn accept_all(self: &Arc<Self>, sockets: &Sockets) -> Vec<JoinHandle<()>> {
        let mut held = HeldConnections::default();
        let mut readers: Vec<JoinHandle<()>> = Vec::new();
        loop {
            let fixed = [sockets.streams.as_fd(), sockets.woken.as_fd()];
            let lifelines = sockets.lifelines.as_ref();
            let watched = fixed.into_iter().chain(lifelines.map(AsFd::as_fd));
            let ready = ready(watched, PollTimeout::NONE);
            if let (Some(lifelines), Some(true)) = (lifelines, ready.get(2)) {
                match accept(lifelines) {
                    Ok(lifeline) => lifeline.into_iter().for_each(|of| held.add(of)),
                    Err(_) => std::thread::sleep(PAUSE),
                }
            }
            if ready[0] && !self.accept_one(&sockets.streams, &mut readers) {
                if lifelines.is_none() {
                    // A recording without all threads is of no use, and the others may wait for them.
                    return readers;
                }
                std::thread::sleep(PAUSE);
            }
            if ready[1] {
                let _ = (&sockets.woken).read(&mut [0; 64]);
                let mut queued = MOST_QUEUED;
                while queued > 0
                    && ready_now(&sockets.streams)
                    && self.accept_one(&sockets.streams, &mut readers)
                {
                    queued -= 1;
                }
                self.sink.end();
                if self.stops.load(Relaxed) {
                    return readers;
                }
            }
        }
    }

    /// Accepts a connection, and passes on its blocks in a thread. Returns false if that is impossible at the moment.
    fn accept_one(
        self: &Arc<Self>,
        streams: &UnixListener,
        readers: &mut Vec<JoinHandle<()>>,
    ) -> bool {
        let accepted = match accept(streams) {
            Ok(accepted) => accepted,
            Err(error) => {
                *lock(&self.failure) = Some(error);
                return false;
            }
        };
        readers.retain(|reader| !reader.is_finished());
        readers.extend(accepted.map(|stream| self.receive(stream)));
        true
    }

    fn receive(self: &Arc<Self>, stream: UnixStream) -> JoinHandle<()> {
        let stream = Arc::new(stream);
        let mut connections = lock(&self.connections);
        if connections.len() == connections.capacity() {
            connections.retain(|of| of.strong_count() > 0);
        }
        connections.push(Arc::downgrade(&stream));
        drop(connections);
        let thread = self.sink.connect();
        let receiver = Arc::clone(self);
        std::thread::spawn(move || {
            connections::read(&stream, |block| receiver.sink.take(thread, block));
            receiver.sink.disconnect(thread);
        })
    }
}

fn lock<T: ?Sized>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Accepts a connection. `None` if it is from another user.
///
/// # Errors
/// Fails if no descriptor is free.
fn accept(listener: &UnixListener) -> io::Result<Option<UnixStream>> {
    let (stream, _) = listener.accept()?;
    let own = |peer: &UnixCredentials| peer.uid() == getuid().as_raw();
    let peer = getsockopt(&stream, PeerCredentials).ok();
    Ok(peer.filter(own).map(|_| stream))
}

#[cfg(test)]
mod tests {
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
    fn with_queued<S: EventSink>(sink: S) -> (Arc<Receiver<S>>, Sockets) {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("streams");
        let streams = UnixListener::bind(&socket).unwrap();
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "receiver::tests::client"])
            .env(SOCKET, &socket)
            .stdout(Stdio::null())
            .status();
        assert!(status.unwrap().success());
        Receiver::at(streams, None, sink).unwrap()
    }

    #[test]
    fn threads_whose_connections_are_queued_at_the_end_are_received() {
        let received = Arc::new(Mutex::new(0));
        let into = received.clone();
        let sink: BlockSink = Arc::new(Mutex::new(move |head: BlockHead, _: &[u32]| {
            *into.lock().unwrap() += head.instructions;
            true
        }));
        let (receiver, sockets) = with_queued(sink);
        receiver.listen(sockets);
        receiver.stop(Duration::from_secs(60)).unwrap();
        assert_eq!(*received.lock().unwrap(), 7);
        // A second stop finds nothing to do.
        receiver.stop(Duration::ZERO).unwrap();
    }

    #[test]
    fn a_thread_whose_connection_is_queued_at_the_end_is_one() {
        let (receiver, sockets) = with_queued(Queues::new(Duration::from_secs(60)));
        receiver.mark_end();
        let asked = Arc::clone(&receiver);
        let asker = std::thread::spawn(move || [0, 0, 1].map(|n| asked.sink.next_block(n)));
        // The request comes before any block exists.
        std::thread::sleep(Duration::from_millis(50));
        receiver.listen(sockets);
        let [first, none, other] = asker.join().unwrap();
        assert_eq!(first.unwrap().unwrap().head.instructions, 7);
        assert!(none.unwrap().is_none() && other.unwrap().is_none());
        receiver.stop(Duration::ZERO).unwrap();
    }
}
