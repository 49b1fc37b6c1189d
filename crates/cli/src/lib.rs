//! `steer`: profiles programs, simulates machines, compares schedulers, gives reasons, and supports policy authors.
//!
//! stdout is data, stderr is log. Exit codes: see [`error::FaultKind`].
//!
//! A program that calls [`steer`] with policies is `steer` plus these policies; `examples/big_cache.rs` is one. The interface for
//! policies is the crate `countersteer-policy`; the crate `countersteer` is the library without a command line.

#![warn(clippy::print_stderr)]

#[macro_use]
mod stderr;

mod args;
mod command;
mod live_table;
mod output;
mod progress;
mod signals;
mod sim_args;
mod top;
mod values;

use countersteer_session::{
    bench, bpf, count, counted, counting_record, daemon, derivable, doctor, error, interrupt,
    library, live, notice, online, recorded, remote, steering, trial, verdicts, virtuals, waits,
};

/// Compiles the code examples of the policy guide as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/writing-policies.md")]
mod guide {}

use std::ffi::OsString;
use std::process::ExitCode;

use countersteer_files::name::original;
use countersteer_model::{metric, policy};
pub use countersteer_profiler::this_program;

use error::{kind_of, paragraph};

/// Runs the command line of this process, with `policies` in addition to the built-in policies. Returns the exit code.
///
/// `main` must call this function first. `steer` starts helper processes from the same program, e.g. to clean up after a killed
/// run, and they also begin here.
pub fn steer(policies: &'static [policy::PolicyDef]) -> ExitCode {
    steer_with(policies, &[])
}

/// Works like [`steer`], with additional metrics, which policies, `stat -v`, `top` and records read by name.
pub fn steer_with(
    policies: &'static [policy::PolicyDef],
    metrics: &'static [metric::MetricDef],
) -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let added = metric::add(metrics).map_err(anyhow::Error::from);
    match added.and_then(|()| Ok(countersteer_policies::add(policies)?)) {
        Ok(()) => steer_words(&words),
        Err(error) => complain(&error),
    }
}

/// Works like [`steer`], for a command line whose first word is this program's name. It serves programs that embed `steer`;
/// they first call [`this_program::give`] to define how `steer` starts again.
pub fn steer_words(words: &[OsString]) -> ExitCode {
    this_program::set_own();
    if command::internal::guarded(words) {
        return ExitCode::SUCCESS;
    }
    signals::own_process();
    notice::show_by(progress::SHOWN);
    if let Err(error) = interrupt::survive_limits() {
        return complain(&error);
    }
    // If the reader of stdout closes the pipe (`steer ... | head`), SIGPIPE ends the program quietly, as for other filters.
    countersteer_sysfs::signals::default_sigpipe();
    let cli = command::parse(words).unwrap_or_else(|error| error.exit());
    command::dispatch(cli).unwrap_or_else(|error| complain(&error))
}

/// Runs a command line within a process that continues after the command, and returns the command's exit code.
///
/// # Errors
/// The command line is invalid, or the command fails.
pub fn call(words: &[OsString]) -> anyhow::Result<ExitCode> {
    command::dispatch(command::parse(words)?)
}

fn complain(error: &anyhow::Error) -> ExitCode {
    progress::log(&original(&paragraph(error)).to_string_lossy());
    ExitCode::from(kind_of(error) as u8)
}
