//! Signal handling: ends child processes, then deletes temporary files and prints a message.
//!
//! Input: [`Helper`]s and [`Temporary`] folders while they exist. Output: the end of this process, with the exit code of the
//! signal. This applies only if the process is `steer`; a host process handles its own signals. Commands that steer or count
//! handle signals themselves.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use countersteer_profiler::this_program;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use signal_hook::low_level::signal_name;

/// Time for a process to end after a request.
const GRACE: Duration = Duration::from_secs(5);

const CANNOT_LISTEN: &str = "cannot listen for signals";

static OWN_PROCESS: AtomicBool = AtomicBool::new(false);
static LISTENS: Once = Once::new();
static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
static LEFT: Mutex<Left> = Mutex::new(Left {
    helpers: Vec::new(),
    folders: Vec::new(),
});

/// Prints the results of an interrupted command so far; returns `false` if there are none.
type Partial = Box<dyn FnOnce() -> bool + Send>;

static PARTIAL: Mutex<Option<Partial>> = Mutex::new(None);

/// Registers a report that an interrupt prints instead of a message that there is no result.
pub fn keep_partial(report: impl FnOnce() -> bool + Send + 'static) {
    *locked(&PARTIAL) = Some(Box::new(report));
}

/// Marks the result as complete: a later interrupt prints no partial result.
pub fn complete() {
    *locked(&PARTIAL) = None;
}

/// Resources to release when a command is interrupted.
struct Left {
    helpers: Vec<Arc<Mutex<Child>>>,
    folders: Vec<PathBuf>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Lists and children remain valid after a thread's panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Declares that this process is `steer`, so it may handle signals.
pub fn own_process() {
    OWN_PROCESS.store(true, Ordering::Relaxed);
}

/// Installs a handler that ends this process cleanly on Ctrl-C and SIGTERM. Only the first call has an effect.
///
/// # Errors
/// The system refuses.
pub fn listen() -> anyhow::Result<()> {
    if !OWN_PROCESS.load(Ordering::Relaxed) {
        return Ok(());
    }
    let mut result = Ok(());
    LISTENS.call_once(|| result = start());
    result.context(CANNOT_LISTEN)
}

/// Returns a flag that Ctrl-C, SIGTERM and SIGHUP set instead of ending this process.
///
/// # Errors
/// The system refuses.
pub fn flag() -> anyhow::Result<Arc<AtomicBool>> {
    let flag = Arc::default();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&flag)).context(CANNOT_LISTEN)?;
    }
    Ok(flag)
}

/// Turns SIGXFSZ into a write error, so that counting and steering continue.
///
/// # Errors
/// The system refuses.
pub fn survive_limits() -> anyhow::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::default()).context(CANNOT_LISTEN)?;
    Ok(())
}

fn start() -> io::Result<()> {
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&INTERRUPTED))?;
    }
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            end(signal);
        }
    });
    Ok(())
}

fn end(signal: i32) {
    // The lock is held to the end, so nothing new starts.
    let mut left = locked(&LEFT);
    for helper in left.helpers.drain(..) {
        finish(&mut locked(&helper));
    }
    for folder in left.folders.drain(..) {
        // The system cleans up files that cannot be deleted here.
        let _ = std::fs::remove_dir_all(&folder);
    }
    // A progress bar may be visible.
    let clear = if io::stderr().is_terminal() {
        "\r\x1b[2K"
    } else {
        ""
    };
    eprint!("{clear}");
    let reported = locked(&PARTIAL).take().is_some_and(|report| report());
    said(signal, reported);
    std::process::exit(128 + signal);
}

/// Says that a signal has ended a command, and of what its result is; returns the exit code.
pub fn said(signal: i32, reported: bool) -> ExitCode {
    let name = signal_name(signal).unwrap_or("a signal");
    let result = if reported {
        "the result is partial"
    } else {
        "there is no result"
    };
    eprintln!("steer: interrupted by {name}: {result}");
    ExitCode::from((128 + signal) as u8)
}

/// Interrupts a process as Ctrl-C would, and waits; kills it if it does not end.
fn finish(child: &mut Child) {
    if matches!(child.try_wait(), Ok(Some(_))) {
        return;
    }
    countersteer_sysfs::signals::interrupt(child.id());
    let asked = Instant::now();
    while matches!(child.try_wait(), Ok(None)) && asked.elapsed() < GRACE {
        std::thread::sleep(Duration::from_millis(10));
    }
    // It may have ended already.
    let _ = child.kill();
    let _ = child.wait();
}

/// A child process that ends with this one.
pub struct Helper(Arc<Mutex<Child>>);

impl Helper {
    /// Starts a helper process.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        this_program::end_with_this_thread(command);
        let mut left = locked(&LEFT);
        let child = Arc::new(Mutex::new(command.spawn()?));
        left.helpers.push(Arc::clone(&child));
        Ok(Self(child))
    }

    /// Exit status of the helper; `None` while it runs.
    ///
    /// # Errors
    /// The system refuses.
    pub fn ended(&self) -> io::Result<Option<ExitStatus>> {
        let ended = locked(&self.0).try_wait()?;
        // Ctrl-C ends both processes: no error about the helper is wanted, and this process is about to end.
        while ended.is_some() && INTERRUPTED.load(Ordering::Relaxed) {
            std::thread::park();
        }
        Ok(ended)
    }

    /// Waits until it exits.
    ///
    /// # Errors
    /// The system refuses.
    pub fn wait(&self) -> io::Result<ExitStatus> {
        loop {
            // Does not hold the lock while sleeping, because the signal handler needs it.
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Interrupts it as Ctrl-C would.
    pub fn interrupt(&self) {
        let mut child = locked(&self.0);
        // After an exit, its PID may belong to another process.
        if matches!(child.try_wait(), Ok(None)) {
            countersteer_sysfs::signals::interrupt(child.id());
        }
    }

    /// Kills it, unless it has exited.
    ///
    /// # Errors
    /// The system refuses.
    pub fn kill(&self) -> io::Result<()> {
        let mut child = locked(&self.0);
        child.kill()?;
        child.wait().map(drop)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let mut left = locked(&LEFT);
        left.helpers.retain(|other| !Arc::ptr_eq(other, &self.0));
        finish(&mut locked(&self.0));
    }
}

/// A folder that is deleted with its owner or with this process.
pub struct Temporary(PathBuf);

impl Temporary {
    /// Creates a folder in the system's temporary directory.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn folder(of: &str) -> anyhow::Result<Self> {
        let prefix = format!("steer-{of}-");
        let mut left = locked(&LEFT);
        let made = tempfile::Builder::new().prefix(&prefix).tempdir();
        let made = made.with_context(|| {
            let parent = std::env::temp_dir();
            format!("cannot make a folder in {}", parent.display())
        })?;
        let dir = made.keep();
        left.folders.push(dir.clone());
        Ok(Self(dir))
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let mut left = locked(&LEFT);
        left.folders.retain(|other| *other != self.0);
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
