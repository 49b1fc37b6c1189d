//! Receiver of the events that an instrumented program's threads send.
//!
//! Input: connections on a socket in the scratch directory. Output: blocks of events to a [`Sink`], in order for each thread. A
//! slow sink blocks the program. Memory holds at most one block per thread and the contents of the sink.

use std::io::{self, Read};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use countersteer_cache::wire::{HEAD_WORDS, Head};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

use super::ProfileError;
use super::layout::STREAM_SOCKET;

/// Time for threads of processes that outlive the program to send their last events.
const GRACE: Duration = Duration::from_millis(1500);

/// Callback for the blocks of all threads; it returns false to end the program.
pub type Sink = Arc<Mutex<dyn FnMut(Head, &[u32]) -> bool + Send>>;

/// Listening socket with its reader threads.
pub struct Receiver {
    listener: JoinHandle<Vec<JoinHandle<()>>>,
    streams: Arc<Mutex<Vec<UnixStream>>>,
    directory: std::path::PathBuf,
}

impl Receiver {
    /// Listens in a scratch directory.
    pub fn new(directory: &Path, sink: Sink) -> Result<Self, ProfileError> {
        let path = directory.join(STREAM_SOCKET);
        let listener = UnixListener::bind(&path);
        let listener = listener.map_err(|source| ProfileError::Scratch { path, source })?;
        let streams = Arc::new(Mutex::new(Vec::new()));
        let known = streams.clone();
        let listener = std::thread::spawn(move || accept(&listener, &known, &sink));
        Ok(Self {
            listener,
            streams,
            directory: directory.to_owned(),
        })
    }

    /// Waits for pending events after the program has ended.
    pub fn finish(self) {
        // Ends the listener, after the connections that are queued.
        drop(UnixStream::connect(self.directory.join(STREAM_SOCKET)));
        let readers = self.listener.join().unwrap_or_default();
        let since = Instant::now();
        while readers.iter().any(|r| !r.is_finished()) && since.elapsed() < GRACE {
            std::thread::sleep(Duration::from_millis(1));
        }
        for stream in self
            .streams
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
        {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        readers.into_iter().for_each(|reader| drop(reader.join()));
    }
}

/// True if this process made a connection itself. Such a connection is queued after all of the program's, and marks its end.
pub fn is_own(stream: &UnixStream) -> bool {
    getsockopt(stream, PeerCredentials)
        .is_ok_and(|peer| peer.pid().cast_unsigned() == std::process::id())
}

fn accept(
    listener: &UnixListener,
    streams: &Mutex<Vec<UnixStream>>,
    sink: &Sink,
) -> Vec<JoinHandle<()>> {
    let mut readers = Vec::new();
    while let Ok((stream, _)) = listener.accept() {
        if is_own(&stream) {
            break;
        }
        if let Ok(copy) = stream.try_clone() {
            streams
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(copy);
        }
        let sink = sink.clone();
        readers.push(std::thread::spawn(move || {
            // A killed thread leaves an incomplete block; the blocks before it are complete.
            let _ = receive(stream, &sink);
        }));
    }
    readers
}

fn receive(mut stream: UnixStream, sink: &Sink) -> io::Result<()> {
    let mut bytes = Vec::new();
    let mut words = Vec::new();
    loop {
        let mut head = [0; HEAD_WORDS * 4];
        stream.read_exact(&mut head)?;
        let head = head.as_chunks::<4>().0;
        let head = Head::unpack(&std::array::from_fn(|at| u32::from_ne_bytes(head[at])));
        let head = head.ok_or(io::ErrorKind::InvalidData)?;
        bytes.resize(head.words as usize * 4, 0);
        stream.read_exact(&mut bytes)?;
        words.clear();
        words.extend(
            bytes
                .as_chunks::<4>()
                .0
                .iter()
                .map(|b| u32::from_ne_bytes(*b)),
        );
        let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
        if !sink(head, &words) {
            return stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

#[cfg(test)]
pub mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    /// Environment variable with the socket, for a copy of this test that connects to it.
    const SOCKET: &str = "COUNTERSTEER_TEST_SOCKET";

    /// Makes another process connect to a socket, send a block of 7 instructions without events, and exit.
    pub fn another_process_sends(socket: &Path) {
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "stream::tests::client"])
            .env(SOCKET, socket)
            .stdout(Stdio::null())
            .status();
        assert!(status.unwrap().success());
    }

    /// Helper process rather than a test: sends a block.
    #[test]
    fn client() {
        let Some(socket) = std::env::var_os(SOCKET) else {
            return;
        };
        let head = Head {
            instructions: 7,
            ..Head::default()
        };
        let bytes: Vec<u8> = head.pack().iter().flat_map(|w| w.to_ne_bytes()).collect();
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.write_all(&bytes).unwrap();
    }

    #[test]
    fn threads_whose_connections_are_queued_at_the_end_are_received() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join(STREAM_SOCKET);
        let listener = UnixListener::bind(&socket).unwrap();
        another_process_sends(&socket);
        drop(UnixStream::connect(&socket));
        let received = Arc::new(Mutex::new(0));
        let into = received.clone();
        let sink: Sink = Arc::new(Mutex::new(move |head: Head, _: &[u32]| {
            *into.lock().unwrap() += head.instructions;
            true
        }));
        for reader in accept(&listener, &Mutex::default(), &sink) {
            reader.join().unwrap();
        }
        assert_eq!(*received.lock().unwrap(), 7);
    }
}
