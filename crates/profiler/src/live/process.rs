//! One run of an instrumented program that sends its events.
//!
//! Input: a command. Output: blocks of events of each of its threads, and of the threads of processes that it forks
//! ([`Queues`]). No file system names are used: threads connect to an abstract socket address. All of its processes hold a
//! lifeline connection; when it closes, the kernel kills them. They therefore end with this value, and in any case with this
//! process.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use countersteer_cache::source::Block;

use super::super::layout::LIFELINE_SUFFIX;
use super::super::receiver::Receiver;
use super::super::{ProfileError, ProfileOptions, launch, program};
use super::queue::Queues;

/// Time without an executed instruction after which the program counts as hung.
const HANG: Duration = Duration::from_secs(60);

/// Running program.
pub struct RunningProgram {
    receiver: Arc<Receiver<Queues>>,
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
        let receiver =
            Receiver::new(&address, Some(&lifeline), Queues::new(HANG)).map_err(failed)?;
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
        let child = launch::spawn(command).map_err(failed);
        let child = child.inspect_err(|_| drop(receiver.stop(Duration::ZERO)))?;
        let pid = child.id();
        let child = Arc::new(Mutex::new(child));
        let waited = Arc::clone(&child);
        let ended = Arc::clone(&receiver);
        let waiter = std::thread::spawn(move || {
            wait(pid, &waited);
            ended.mark_end();
        });
        Ok(Self {
            receiver,
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
        self.receiver.sink.next_block(thread as usize)
    }

    /// Returns the number of threads that have executed an instruction so far.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.receiver.sink.threads()
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

impl Drop for RunningProgram {
    /// Ends all processes of the program.
    fn drop(&mut self) {
        self.receiver.sink.close();
        let _ = self
            .child
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .kill();
        // Closes the lifelines, too. A thread that could not connect was reported by its queue.
        drop(self.receiver.stop(Duration::ZERO));
        drop(self.waiter.take().map(JoinHandle::join));
    }
}
