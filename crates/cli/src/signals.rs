//! Handling of SIGINT and SIGTERM: ends child processes, deletes temporary files, prints a message, and ends this process.
//!
//! Input: a signal. Output: the end of this process, with the signal's exit code. This applies only if the process is `steer`; a
//! program that embeds `steer` handles its own signals. Commands that steer or count handle signals themselves.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use countersteer_session::say;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::signal_name;

use crate::interrupt;

static OWN_PROCESS: AtomicBool = AtomicBool::new(false);
static HANDLED: AtomicBool = AtomicBool::new(false);
static LISTENS: Once = Once::new();

/// Time during which a session handles signals, although [`listen`] was called before.
pub struct HandledSignals(());

/// Begins a time in which a session handles signals.
pub fn handled() -> HandledSignals {
    HANDLED.store(true, Ordering::Relaxed);
    HandledSignals(())
}

impl Drop for HandledSignals {
    fn drop(&mut self) {
        HANDLED.store(false, Ordering::Relaxed);
    }
}

/// Declares that this process is `steer` itself, so it may install signal handlers.
pub fn own_process() {
    countersteer_sysfs::signals::stay_caught();
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
        for signal in signals.forever() {
            if !HANDLED.load(Ordering::Relaxed) {
                end(signal);
            }
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
    stderr_text!("{clear}");
    said(signal, false);
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
