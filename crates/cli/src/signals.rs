//! Handling of SIGINT and SIGTERM: ends child processes, deletes temporary files, prints a message, and ends this process.
//!
//! Input: a signal. Output: the end of this process, with the signal's exit code. This applies only if the process is `steer`; a
//! program that embeds `steer` handles its own signals. Commands that steer or count handle signals themselves.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use anyhow::Context;
use countersteer_session::say;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::signal_name;

use crate::interrupt;

static OWN_PROCESS: AtomicBool = AtomicBool::new(false);
static LISTENS: Once = Once::new();

/// Function that prints the partial result of an interrupted command; returns `false` if there is no result.
type Partial = Box<dyn FnOnce() -> bool + Send>;

static PARTIAL: Mutex<Option<Partial>> = Mutex::new(None);

/// Registers a function that prints a partial result if the command is interrupted.
pub fn keep_partial(report: impl FnOnce() -> bool + Send + 'static) {
    *partial() = Some(Box::new(report));
}

/// Declares that the result is complete, so a later interrupt prints no partial result.
pub fn complete() {
    *partial() = None;
}

fn partial() -> MutexGuard<'static, Option<Partial>> {
    // A panic of another thread leaves the data valid, so a poisoned lock is used like any other.
    PARTIAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Declares that this process is `steer` itself, so it may install signal handlers.
pub fn own_process() {
    OWN_PROCESS.store(true, Ordering::Relaxed);
}

/// Installs a handler that cleans up and ends this process on SIGINT (Ctrl-C) and SIGTERM. Only the first call has an effect. A
/// process other than `steer` gets no handler.
///
/// # Errors
/// The handler cannot be installed.
pub fn listen() -> anyhow::Result<()> {
    if !OWN_PROCESS.load(Ordering::Relaxed) {
        return Ok(());
    }
    let mut result = Ok(());
    LISTENS.call_once(|| result = start());
    result.context("cannot listen for signals")
}

fn start() -> io::Result<()> {
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, interrupt::interrupted())?;
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
    // Held until the process exits, so no further helper can start.
    let _released = interrupt::release();
    // Clears the line, because a progress bar may be visible.
    let clear = if io::stderr().is_terminal() {
        "\r\x1b[2K"
    } else {
        ""
    };
    eprint!("{clear}");
    // Also held until the process exits, so the command does not print its result as well.
    let mut partial = partial();
    let reported = partial.take().is_some_and(|report| report());
    said(signal, reported);
    std::process::exit(128 + signal);
}

/// Reports that a signal ended the command, and if the result is partial or missing. Returns the exit code.
pub fn said(signal: i32, reported: bool) -> ExitCode {
    let name = signal_name(signal).unwrap_or("a signal");
    let result = if reported {
        "the result is partial"
    } else {
        "there is no result"
    };
    say!("interrupted by {name}: {result}");
    ExitCode::from((128 + signal) as u8)
}
