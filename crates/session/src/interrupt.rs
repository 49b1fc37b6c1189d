//! Child processes and temporary folders of this process, which a program ends and deletes when a signal interrupts it.
//!
//! Input: [`Helper`] processes and [`TemporaryFolder`] folders. Output: their end, by a drop or by [`release`]. Handlers of signals
//! are the program's. Sessions that steer or count listen for signals while they run, and long waits then end by them too.

use std::fmt::Display;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use countersteer_files::scratch::Scratch;
use countersteer_lab::error::{FaultKind, failure};
use countersteer_profiler::this_program;
use countersteer_sysfs::signals::{ENDING, Listener, are_caught};
use signal_hook::SigId;
use signal_hook::consts::{SIGPIPE, SIGXFSZ};

/// Time limit for a child process to exit after SIGINT, before it is killed.
const GRACE: Duration = Duration::from_secs(5);

const CANNOT_LISTEN: &str = "cannot listen for signals";

static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
static LEFT: Mutex<Leftovers> = Mutex::new(Leftovers {
    helpers: Vec::new(),
    folders: Vec::new(),
});

/// Child processes and temporary folders to release when a command is interrupted.
struct Leftovers {
    helpers: Vec<Arc<Mutex<Child>>>,
    folders: Vec<PathBuf>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic of another thread leaves the data valid, so a poisoned lock is used like any other.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Flag that becomes true on SIGINT (Ctrl-C), SIGTERM or SIGHUP. These signals do not end this process while this value exists.
pub struct SignalFlag {
    flag: Arc<AtomicBool>,
    actions: Vec<SigId>,
    _listener: Listener,
}

impl Deref for SignalFlag {
    type Target = AtomicBool;

    fn deref(&self) -> &AtomicBool {
        &self.flag
    }
}

impl Drop for SignalFlag {
    fn drop(&mut self) {
        for action in self.actions.drain(..) {
            signal_hook::low_level::unregister(action);
        }
    }
}

/// Returns a flag that a signal sets.
///
/// # Errors
/// The signal handlers cannot be installed.
pub fn flag() -> anyhow::Result<SignalFlag> {
    let mut flag = SignalFlag {
        flag: Arc::default(),
        actions: Vec::new(),
        _listener: Listener::begin().context(CANNOT_LISTEN)?,
    };
    for signal in ENDING {
        let action = signal_hook::flag::register(signal, Arc::clone(&flag.flag));
        flag.actions.push(action.context(CANNOT_LISTEN)?);
    }
    Ok(flag)
}

/// Handles SIGXFSZ, so that a write beyond the file size limit returns an error and the process continues.
///
/// # Errors
/// The signal handler cannot be installed.
pub fn survive_limits() -> anyhow::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::default()).context(CANNOT_LISTEN)?;
    Ok(())
}

/// Handles SIGPIPE, so that a write to a closed pipe returns an error and the process continues.
///
/// # Errors
/// The signal handler cannot be installed.
pub fn survive_closed_pipes() -> anyhow::Result<()> {
    signal_hook::flag::register(SIGPIPE, Arc::default()).context(CANNOT_LISTEN)?;
    Ok(())
}

/// Returns a flag that a program's signal handler sets before it calls [`release`]. A thread that then sees the end of a helper
/// process waits for this process's end: the helper has ended by the same signal, and its end is no error to report.
#[must_use]
pub fn interrupted() -> Arc<AtomicBool> {
    Arc::clone(&INTERRUPTED)
}

/// Right to start helper processes and to create folders, which others lack while this value exists.
pub struct StoppedHelpers {
    _left: MutexGuard<'static, Leftovers>,
}

/// Ends all helper processes and deletes all temporary folders of this process, which is about to exit.
#[must_use = "other threads may start helpers again"]
pub fn release() -> StoppedHelpers {
    let mut left = locked(&LEFT);
    for helper in left.helpers.drain(..) {
        finish(&mut locked(&helper));
    }
    for folder in left.folders.drain(..) {
        // If a folder cannot be deleted, the system's cleanup of temporary files deletes it.
        let _ = std::fs::remove_dir_all(&folder);
    }
    StoppedHelpers { _left: left }
}

/// Sends SIGINT to a process and waits for its exit; kills the process after the time limit.
fn finish(child: &mut Child) {
    if matches!(child.try_wait(), Ok(Some(_))) {
        return;
    }
    countersteer_sysfs::signals::interrupt(child.id());
    let asked = Instant::now();
    while matches!(child.try_wait(), Ok(None)) && asked.elapsed() < GRACE {
        std::thread::sleep(Duration::from_millis(10));
    }
    // Killing fails if the process has exited already.
    let _ = child.kill();
    let _ = child.wait();
}

/// Child process that is ended when this process is interrupted or ends.
pub struct Helper(Arc<Mutex<Child>>);

impl Helper {
    /// Starts a command as a helper process.
    ///
    /// # Errors
    /// The command cannot be started.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        this_program::end_with_this_thread(command);
        let mut left = locked(&LEFT);
        let child = Arc::new(Mutex::new(command.spawn()?));
        left.helpers.push(Arc::clone(&child));
        Ok(Self(child))
    }

    /// Returns the exit status of the helper process; `None` while it runs.
    ///
    /// # Errors
    /// The status cannot be read.
    pub fn ended(&self) -> io::Result<Option<ExitStatus>> {
        let ended = locked(&self.0).try_wait()?;
        // Ctrl-C ends both processes. This thread stops here, so it reports no error about the helper before the process exits.
        while ended.is_some() && INTERRUPTED.load(Ordering::Relaxed) {
            std::thread::park();
        }
        Ok(ended)
    }

    /// Waits until the helper process exits, and returns its exit status. A signal to this process interrupts the helper if
    /// something listens, which keeps this process alive.
    ///
    /// # Errors
    /// The status cannot be read, or the signal handlers cannot be installed.
    pub fn wait(&self) -> anyhow::Result<ExitStatus> {
        let mut signalled = are_caught().then(flag).transpose()?;
        loop {
            // The lock is not held during the sleep, because the signal handler needs it.
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            if signalled
                .take_if(|flag| flag.load(Ordering::Relaxed))
                .is_some()
            {
                self.interrupt();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends SIGINT to the helper process if it is still running.
    pub fn interrupt(&self) {
        let mut child = locked(&self.0);
        // If the process has exited, its PID may belong to another process.
        if matches!(child.try_wait(), Ok(None)) {
            countersteer_sysfs::signals::interrupt(child.id());
        }
    }

    /// Kills the helper process with the processes that it started, and waits for its exit. It must lead a process group.
    pub fn kill_group(&self) {
        let mut child = locked(&self.0);
        // If the process has exited, its PID may belong to another process.
        if matches!(child.try_wait(), Ok(None)) {
            countersteer_sysfs::signals::kill_group(child.id());
            let _ = child.wait();
        }
    }

    /// Kills the helper process, and waits for its exit.
    ///
    /// # Errors
    /// The process cannot be killed.
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

/// Returns the error about a file of a temporary folder.
pub fn unusable(path: &Path, why: &dyn Display) -> anyhow::Error {
    let shown = path.display();
    let why = format!("cannot use {shown}: {why}; set TMPDIR to a directory with room");
    failure(FaultKind::Io, why)
}

/// Temporary folder that is deleted when this value is dropped or the process ends, in any way.
pub struct TemporaryFolder(Scratch);

impl TemporaryFolder {
    /// Creates a folder named `steer-{of}-...` in the system's temporary directory.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn folder(of: &str) -> anyhow::Result<Self> {
        let prefix = format!("steer-{of}-");
        let mut left = locked(&LEFT);
        let made = Scratch::new(&prefix).with_context(|| {
            let parent = std::env::temp_dir();
            format!("cannot make a folder in {}", parent.display())
        })?;
        left.folders.push(made.path().to_owned());
        Ok(Self(made))
    }

    /// Returns the folder's path.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        locked(&LEFT).folders.retain(|other| other != self.0.path());
    }
}
