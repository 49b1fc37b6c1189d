//! One run of an instrumented program that sends its events.
//!
//! Input: a command. Output: blocks of events of each of its threads, and of the threads of processes that it forks
//! ([`Queues`]). No file system names are used: threads connect to an abstract socket address. All of its processes hold a
//! lifeline connection; when it closes, the kernel kills them. They therefore end with this value, and in any case with this
//! process.

use std::io;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use countersteer_cache::source::Block;
use countersteer_cache::wire::ENDS;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::getuid;

use super::super::connections::{self, Connections, is_own};
use super::super::layout::LIFELINE_SUFFIX;
use super::super::{ProfileError, ProfileOptions, launch, program};
use super::queue::Queues;

/// Time without an executed instruction after which the program counts as hung.
const HANG: Duration = Duration::from_secs(60);

/// Running program.
pub struct RunningProgram {
    receiver: Arc<LiveReceiver>,
    address: SocketAddr,
    listener: Option<JoinHandle<()>>,
    child: Arc<Mutex<Child>>,
    waiter: Option<JoinHandle<()>>,
    pub pid: u32,
}

/// Returns an address that no other process has, and the address of the lifeline.
fn addresses() -> io::Result<(String, SocketAddr, SocketAddr)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let random = std::hash::BuildHasher::hash_one(
        &std::collections::hash_map::RandomState::new(),
        COUNT.fetch_add(1, Relaxed),
    );
    let name = format!("countersteer-{}-{random:016x}", std::process::id());
    let stream = SocketAddr::from_abstract_name(&name)?;
    let lifeline = SocketAddr::from_abstract_name(format!("{name}{LIFELINE_SUFFIX}"))?;
    Ok((name, stream, lifeline))
}

impl RunningProgram {
    /// Starts a program with empty standard streams.
    ///
    /// # Errors
    /// Fails if the program or a tool of the recorder is missing or cannot be started.
    pub fn start(options: &ProfileOptions) -> Result<Self, ProfileError> {
        let name = options.command.first().ok_or(ProfileError::EmptyCommand)?;
        let here = std::path::PathBuf::from(".");
        let program = program::program(name, options.workdir.as_ref().unwrap_or(&here))?;
        let tools = super::super::tools_for(program.architecture)?;
        let qemu = tools.engine.file;
        let failed = |source| ProfileError::Launch {
            qemu: qemu.clone(),
            source,
        };
        let (name, address, lifeline) = addresses().map_err(failed)?;
        let listeners = [&address, &lifeline].map(UnixListener::bind_addr);
        let [streams, lifelines] = listeners;
        let (streams, lifelines) = (streams.map_err(failed)?, lifelines.map_err(failed)?);
        let wrapper = launch::wrapper(
            &qemu,
            &tools.plugin,
            &program,
            options,
            format!("live={name}").as_ref(),
        );
        let mut command = launch::command(&wrapper, &program, options);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = launch::spawn(command).map_err(failed)?;
        let pid = child.id();
        let receiver = Arc::new(LiveReceiver::new());
        let accepting = Arc::clone(&receiver);
        let listener = std::thread::spawn(move || accepting.accept(&streams, &lifelines));
        let child = Arc::new(Mutex::new(child));
        let (waited, ended, to) = (Arc::clone(&child), Arc::clone(&receiver), address.clone());
        let waiter = std::thread::spawn(move || {
            wait(pid, &waited);
            announce_end(&to, &ended.queues);
        });
        Ok(Self {
            receiver,
            address,
            listener: Some(listener),
            child,
            waiter: Some(waiter),
            pid,
        })
    }

    /// Returns the next block of the thread with this number, from 0; `None` after its last block.
    ///
    /// # Errors
    /// Returns the reason if no block can be delivered although the thread continues.
    pub fn next_block(&self, thread: u32) -> Result<Option<Block>, String> {
        self.receiver.queues.take(thread as usize)
    }

    /// Returns the number of threads that have executed an instruction so far.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.receiver.queues.threads()
    }

    /// Returns the ending of the program, if it has ended.
    #[must_use]
    pub fn ending(&self) -> Option<String> {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let status = child.try_wait().ok()??;
        Some(status.to_string())
    }
}

/// Waits for a child without blocking other callers; the last caller reaps it.
fn wait(pid: u32, child: &Mutex<Child>) {
    use nix::sys::wait::{Id, WaitPidFlag, waitid};
    let pid = nix::unistd::Pid::from_raw(pid.cast_signed());
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    while waitid(Id::Pid(pid), flags) == Err(nix::Error::EINTR) {}
    let _ = child
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .try_wait();
}

/// Signals the end of the program, after the connections that its threads have made.
fn announce_end(address: &SocketAddr, queues: &Queues) {
    if UnixStream::connect_addr(address).is_err() {
        // The listener is gone, and so are its queued connections.
        queues.set_over();
    }
}

impl Drop for RunningProgram {
    /// Ends all processes of the program.
    fn drop(&mut self) {
        self.receiver.queues.close();
        self.receiver.over.store(true, Relaxed);
        let _ = self
            .child
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .kill();
        // Wakes the listener, which closes the lifelines when it ends.
        drop(UnixStream::connect_addr(&self.address));
        self.receiver.connections.close();
        let threads = [self.listener.take(), self.waiter.take()];
        threads
            .into_iter()
            .flatten()
            .for_each(|thread| drop(thread.join()));
    }
}

struct LiveReceiver {
    queues: Queues,
    over: AtomicBool,
    /// Connections of threads.
    connections: Connections,
}

impl LiveReceiver {
    fn new() -> Self {
        Self {
            queues: Queues::new(HANG),
            over: AtomicBool::new(false),
            connections: Connections::default(),
        }
    }

    fn accept(self: &Arc<Self>, streams: &UnixListener, lifelines: &UnixListener) {
        let held = Connections::default();
        while !self.over.load(Relaxed) {
            let mut watched =
                [streams, lifelines].map(|of| PollFd::new(of.as_fd(), PollFlags::POLLIN));
            if poll(&mut watched, PollTimeout::NONE).is_err() {
                continue;
            }
            let ready = watched.map(|of| of.any().unwrap_or(false));
            if ready[1] {
                accept(lifelines).into_iter().for_each(|of| held.add(of));
            }
            if ready[0] && !self.over.load(Relaxed) {
                match accept(streams) {
                    Some(stream) if is_own(&stream) => self.queues.set_over(),
                    Some(stream) => self.receive(stream),
                    None => {}
                }
            }
        }
    }

    fn receive(self: &Arc<Self>, stream: UnixStream) {
        if !self.connections.add_copy(&stream) {
            return;
        }
        let thread = self.queues.connect();
        let receiver = Arc::clone(self);
        std::thread::spawn(move || {
            connections::read(&stream, |block| {
                let ends = block.head.flags & ENDS != 0;
                receiver.queues.push(thread, block) && !ends
            });
            receiver.queues.disconnect(thread);
        });
    }
}

/// Accepts a connection if it is from this user.
fn accept(listener: &UnixListener) -> Option<UnixStream> {
    let (stream, _) = listener.accept().ok()?;
    let peer = getsockopt(&stream, PeerCredentials).ok()?;
    (peer.uid() == getuid().as_raw()).then_some(stream)
}

#[cfg(test)]
mod tests {
    use super::super::super::stream::tests::another_process_sends;
    use super::*;

    #[test]
    fn a_thread_whose_connection_is_queued_at_the_end_is_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("streams");
        let address = SocketAddr::from_pathname(&path).unwrap();
        let streams = UnixListener::bind_addr(&address).unwrap();
        let lifelines = UnixListener::bind(directory.path().join("lifelines")).unwrap();
        let receiver = Arc::new(LiveReceiver::new());
        another_process_sends(&path);
        announce_end(&address, &receiver.queues);
        let [asked, accepting] = [&receiver; 2].map(Arc::clone);
        let asker = std::thread::spawn(move || [0, 0, 1].map(|thread| asked.queues.take(thread)));
        // The request comes before any block exists.
        std::thread::sleep(Duration::from_millis(50));
        let listener = std::thread::spawn(move || accepting.accept(&streams, &lifelines));
        let [first, none, other] = asker.join().unwrap();
        assert_eq!(first.unwrap().unwrap().head.instructions, 7);
        assert!(none.unwrap().is_none() && other.unwrap().is_none());
        receiver.over.store(true, Relaxed);
        announce_end(&address, &receiver.queues);
        listener.join().unwrap();
    }
}
