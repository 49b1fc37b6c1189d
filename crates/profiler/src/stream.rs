//! Receiver of the events that an instrumented program's threads send.
//!
//! Input: connections on a socket in the scratch directory. Output: blocks of events to a [`BlockSink`], in order for each thread. A
//! slow sink blocks the program. Memory holds at most one block per thread and the contents of the sink.

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use countersteer_cache::wire::BlockHead;

use super::ProfileError;
use super::connections::{self, Connections, is_own};
use super::layout::STREAM_SOCKET;

/// Time for threads of processes that outlive the program to send their last events.
const GRACE: Duration = Duration::from_millis(1500);

/// Callback for the blocks of all threads; it returns false to end the program.
pub type BlockSink = Arc<Mutex<dyn FnMut(BlockHead, &[u32]) -> bool + Send>>;

/// Listening socket with its reader threads.
pub struct StreamReceiver {
    listener: JoinHandle<Vec<JoinHandle<()>>>,
    connections: Arc<Connections>,
    directory: std::path::PathBuf,
}

impl StreamReceiver {
    /// Listens in a scratch directory.
    pub fn new(directory: &Path, sink: BlockSink) -> Result<Self, ProfileError> {
        let path = directory.join(STREAM_SOCKET);
        let listener = UnixListener::bind(&path);
        let listener = listener.map_err(|source| ProfileError::Scratch { path, source })?;
        let connections = Arc::<Connections>::default();
        let known = Arc::clone(&connections);
        let listener = std::thread::spawn(move || accept(&listener, &known, &sink));
        Ok(Self {
            listener,
            connections,
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
        self.connections.close();
        readers.into_iter().for_each(|reader| drop(reader.join()));
    }
}

fn accept(
    listener: &UnixListener,
    connections: &Connections,
    sink: &BlockSink,
) -> Vec<JoinHandle<()>> {
    let mut readers = Vec::new();
    while let Ok((stream, _)) = listener.accept() {
        if is_own(&stream) {
            break;
        }
        connections.add_copy(&stream);
        let sink = Arc::clone(sink);
        readers.push(std::thread::spawn(move || {
            connections::read(&stream, |block| {
                let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
                sink(block.head, &block.words)
            });
        }));
    }
    readers
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
        let head = BlockHead {
            instructions: 7,
            ..BlockHead::default()
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
        let sink: BlockSink = Arc::new(Mutex::new(move |head: BlockHead, _: &[u32]| {
            *into.lock().unwrap() += head.instructions;
            true
        }));
        for reader in accept(&listener, &Connections::default(), &sink) {
            reader.join().unwrap();
        }
        assert_eq!(*received.lock().unwrap(), 7);
    }
}
