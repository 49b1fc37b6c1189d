//! Loop that runs a traced program and handles its stops.

use std::collections::HashMap;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::watch::{OF_SAMPLER, OF_WATCH_POINT, SampledThread};
use super::{Reuses, SampledEvent};
use crate::CounterError;
use crate::region::refused;

/// `si_code` of signals that counters send.
const TRAP_PERF: i32 = 6;

pub(super) fn run(command: &[String], sampled: &SampledEvent<'_>) -> Result<Reuses, CounterError> {
    let main = start(command).map_err(CounterError::system("starting the program"))?;
    let mut tracer = ReuseTracer {
        sampled,
        main,
        threads: HashMap::new(),
        found: Reuses::default(),
    };
    let ended = tracer.follow();
    if ended.is_err() {
        let _ = nix::sys::signal::kill(Pid::from_raw(main), Signal::SIGKILL);
        // Each thread is reaped here, the first one last: until then, the program has not ended.
        while wait().is_ok_and(|stop| stop.is_some()) {}
    }
    ended.map(|()| tracer.found)
}

/// Starts the program, which stops when it has been loaded.
fn start(command: &[String]) -> io::Result<i32> {
    let [program, arguments @ ..] = command else {
        return Err(io::Error::other("no program is named"));
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // SAFETY: between fork and exec, only one system call is made.
    unsafe { command.pre_exec(|| ptrace::traceme().map_err(Into::into)) };
    Ok(command.spawn()?.id() as i32)
}

/// Change of a traced thread.
struct TracedChange {
    tid: i32,
    status: i32,
}

/// Waits for a thread of the traced program; `None` if there is none left. Signals above 31 have no name in the library, so this uses
/// their numbers.
fn wait() -> io::Result<Option<TracedChange>> {
    let mut status = 0;
    loop {
        // SAFETY: the kernel writes one integer to `status`, which outlives the call.
        let tid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
        if tid > 0 {
            return Ok(Some(TracedChange { tid, status }));
        }
        match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ECHILD) => return Ok(None),
            error if error.kind() == io::ErrorKind::Interrupted => {}
            error => return Err(error),
        }
    }
}

/// Lets a stopped thread run on, with a signal if it is not 0.
fn resume(tid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: this request passes two numbers, and no pointer is used.
    let result = unsafe { libc::ptrace(libc::PTRACE_CONT, tid, 0_usize, signal as usize) };
    if result == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

/// True if the thread was killed while it was stopped.
fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

struct ReuseTracer<'a> {
    sampled: &'a SampledEvent<'a>,
    main: i32,
    threads: HashMap<i32, SampledThread>,
    found: Reuses,
}

impl ReuseTracer<'_> {
    /// Handles stops until the program has ended.
    fn follow(&mut self) -> Result<(), CounterError> {
        let failed = CounterError::system("tracing the program");
        while let Some(TracedChange { tid, status }) = wait().map_err(&failed)? {
            if libc::WIFEXITED(status) {
                self.ended(tid, libc::WEXITSTATUS(status));
                continue;
            }
            if libc::WIFSIGNALED(status) {
                self.ended(tid, 128 + libc::WTERMSIG(status));
                continue;
            }
            let signal = self.stopped(tid, libc::WSTOPSIG(status), status >> 16)?;
            match resume(tid, signal) {
                Err(error) if !is_gone(&error) => return Err(failed(error)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Handles a stop. Returns the signal that the thread gets; 0 for none.
    fn stopped(&mut self, tid: i32, signal: i32, event: i32) -> Result<i32, CounterError> {
        if event == libc::PTRACE_EVENT_EXEC {
            self.loaded(tid)?;
            return Ok(0);
        }
        if event != 0 {
            return Ok(0);
        }
        if !self.threads.contains_key(&tid) {
            self.begin(tid)?;
            return Ok(0);
        }
        let trap = (signal == libc::SIGTRAP).then(|| trap(tid)).flatten();
        let Some(trap) = trap else {
            return Ok(signal);
        };
        match self.trapped(tid, &trap) {
            Err(error) if !is_gone(&error) => Err(CounterError::system("watching a line")(error)),
            _ => Ok(0),
        }
    }

    /// Samples a thread from its first stop on.
    fn begin(&mut self, tid: i32) -> Result<(), CounterError> {
        if tid == self.main {
            let options = Options::PTRACE_O_TRACECLONE
                | Options::PTRACE_O_TRACEEXEC
                | Options::PTRACE_O_EXITKILL;
            match ptrace::setoptions(Pid::from_raw(tid), options) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(error) => {
                    return Err(CounterError::system("tracing the program")(error.into()));
                }
            }
        }
        match SampledThread::open(tid as u32, self.sampled) {
            Ok(thread) => drop(self.threads.insert(tid, thread)),
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(refused(self.sampled.name(), error)),
        }
        Ok(())
    }

    /// Samples the thread that has loaded another program, which closed all samplers and ended all other threads.
    fn loaded(&mut self, tid: i32) -> Result<(), CounterError> {
        for (_, thread) in self.threads.drain() {
            self.found.watched.extend(thread.end());
        }
        self.begin(tid)
    }

    fn trapped(&mut self, tid: i32, trap: &Trap) -> io::Result<()> {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return Ok(());
        };
        if trap.value == OF_WATCH_POINT {
            return thread.again(trap.address);
        }
        self.found.samples += 1;
        if trap.address == 0 {
            return Ok(());
        }
        self.found.addresses += 1;
        thread.sampled(trap.address)
    }

    fn ended(&mut self, tid: i32, code: i32) {
        if let Some(thread) = self.threads.remove(&tid) {
            self.found.watched.extend(thread.end());
        }
        if tid == self.main {
            self.found.exit_code = code;
        }
    }
}

/// Signal of a sampler or of a watch point.
struct Trap {
    value: u64,
    address: u64,
}

/// Reads the signal at which a thread stopped; `None` if no counter of this program sent it.
fn trap(tid: i32) -> Option<Trap> {
    let signal = ptrace::getsiginfo(Pid::from_raw(tid)).ok()?;
    if signal.si_code != TRAP_PERF {
        return None;
    }
    // The library has no accessor for the value that follows the address. SAFETY: the value is larger than this, and every bit
    // pattern is valid for integers.
    let words: [u64; 4] = unsafe { std::mem::transmute_copy(&signal) };
    let [_, _, address, value] = words;
    [OF_SAMPLER, OF_WATCH_POINT]
        .contains(&value)
        .then_some(Trap { value, address })
}
