//! How commands end that a signal interrupts: the processes that they have started end first, what they keep for a while is
//! deleted, and a line says so.
//!
//! Input: [`Helper`]s and [`Temporary`] folders while they are there. Output: the end of this process, with the exit code of the
//! signal. Only where this process is `steer`: within another, signals are that one's. Commands that steer or count heed
//! signals themselves.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use countersteer_profiler::this_program;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use signal_hook::low_level::signal_name;

/// Time in which a process that was asked to end has to.
const GRACE: Duration = Duration::from_secs(5);

const CANNOT_LISTEN: &str = "cannot listen for signals";

static OWN_PROCESS: AtomicBool = AtomicBool::new(false);
static LISTENS: Once = Once::new();
static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
static LEFT: Mutex<Left> = Mutex::new(Left {
    helpers: Vec::new(),
    folders: Vec::new(),
});

/// Prints what an interrupted command has found out by then; `false` where that is nothing.
type Partial = Box<dyn FnOnce() -> bool + Send>;

static PARTIAL: Mutex<Option<Partial>> = Mutex::new(None);

/// From now on an interrupt prints this instead of that there is no result.
pub fn keep_partial(report: impl FnOnce() -> bool + Send + 'static) {
    *locked(&PARTIAL) = Some(Box::new(report));
}

/// The result is complete: an interrupt that comes now finds none that would be partial.
pub fn complete() {
    *locked(&PARTIAL) = None;
}

/// What an interrupted command would leave behind.
struct Left {
    helpers: Vec<Arc<Mutex<Child>>>,
    folders: Vec<PathBuf>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Lists and children stay whole where a thread has panicked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This process is `steer`, and its signals may be listened to.
pub fn own_process() {
    OWN_PROCESS.store(true, Ordering::Relaxed);
}

/// From now on Ctrl-C and SIGTERM end this process in order; the first call counts.
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

/// What Ctrl-C, SIGTERM and SIGHUP set from now on, instead of ending this process.
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

/// A limit on the size of files is an error of writing, not the end of counting or steering.
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
    // Held to the end: nothing new is started.
    let mut left = locked(&LEFT);
    for helper in left.helpers.drain(..) {
        finish(&mut locked(&helper));
    }
    for folder in left.folders.drain(..) {
        // What cannot be deleted is the system's to delete.
        let _ = std::fs::remove_dir_all(&folder);
    }
    // A bar of progress may be there.
    let clear = if io::stderr().is_terminal() {
        "\r\x1b[2K"
    } else {
        ""
    };
    let name = signal_name(signal).unwrap_or("a signal");
    eprint!("{clear}");
    let reported = locked(&PARTIAL).take().is_some_and(|report| report());
    let result = if reported {
        "the result is of what was done by then"
    } else {
        "there is no result"
    };
    eprintln!("steer: interrupted by {name}: {result}");
    std::process::exit(128 + signal);
}

/// Asks a process to end, as Ctrl-C would, and waits; one that does not is killed.
fn finish(child: &mut Child) {
    if matches!(child.try_wait(), Ok(Some(_))) {
        return;
    }
    countersteer_sysfs::signals::interrupt(child.id());
    let asked = Instant::now();
    while matches!(child.try_wait(), Ok(None)) && asked.elapsed() < GRACE {
        std::thread::sleep(Duration::from_millis(10));
    }
    // It may have ended.
    let _ = child.kill();
    let _ = child.wait();
}

/// A process that ends with this one.
pub struct Helper(Arc<Mutex<Child>>);

impl Helper {
    /// Starts it.
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

    /// How it has ended, if it has.
    ///
    /// # Errors
    /// The system refuses.
    pub fn ended(&self) -> io::Result<Option<ExitStatus>> {
        let ended = locked(&self.0).try_wait()?;
        // Ctrl-C ends both: nothing is to be said of the helper, and this process is about to end.
        while ended.is_some() && INTERRUPTED.load(Ordering::Relaxed) {
            std::thread::park();
        }
        Ok(ended)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// The system refuses.
    pub fn wait(&self) -> io::Result<ExitStatus> {
        loop {
            // Not under the lock, which the end of this process needs.
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Asks it to end, as Ctrl-C would.
    pub fn interrupt(&self) {
        let mut child = locked(&self.0);
        // The number of one that has ended may be somebody else's.
        if matches!(child.try_wait(), Ok(None)) {
            countersteer_sysfs::signals::interrupt(child.id());
        }
    }

    /// Kills it, if it has not ended.
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

/// A folder that goes with its owner, or with this process.
pub struct Temporary(PathBuf);

impl Temporary {
    /// A new folder among the system's temporary ones.
    ///
    /// # Errors
    /// It cannot be made.
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

    /// Where it is.
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
