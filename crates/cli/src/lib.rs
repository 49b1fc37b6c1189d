//! `steer`: profile programs, simulate machines, compare schedulers, show why; and what authors of policies need.
//!
//! stdout is data, stderr is log. Exit codes: see `error::Kind`.
//!
//! A program that calls [`steer`] with policies is `steer` with these policies added to its own:
//! `examples/big_cache.rs` is one. The modules below are what a policy works with; [`lab`] runs experiments without a command line.

mod args;
mod bpf;
mod command;
mod counted;
mod derivable;
mod doctor;
mod error;
mod interrupt;
mod library;
mod live_table;
mod online;
mod output;
mod progress;
mod remote;
mod session;
mod sim_args;
mod steering;
mod top;
mod values;
mod verdicts;
mod virtuals;
mod waits;

/// What the guide shows compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/writing-policies.md")]
mod guide {}

use std::ffi::OsString;
use std::process::ExitCode;

use countersteer_files::name::original;
use countersteer_model::printable::printable_lines;

pub use countersteer_lab as lab;
pub use countersteer_model::{
    counters, cpuset, engine, hint, metric, placement, policy, sample, topology, units, usage,
};
pub use countersteer_profiler::this_program;

use error::{kind_of, paragraph};

/// Does what the command line asks for, with these policies besides those that are there anyway.
///
/// To be called first of all by `main`: what a run leaves behind when it is killed is restored by processes that it starts with
/// the same program, and that begin here.
pub fn steer(policies: &'static [policy::PolicyDef]) -> ExitCode {
    steer_with(policies, &[])
}

/// The same, with these metrics besides: policies read them by name, and so do `stat -v`, `top` and records.
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

/// The same for a command line in words, the first of which is this program's name: for programs that have this one inside.
/// [`this_program::give`] says before how this one is started.
pub fn steer_words(words: &[OsString]) -> ExitCode {
    if command::internal::guarded(words) {
        return ExitCode::SUCCESS;
    }
    interrupt::own_process();
    // A reader that stops reading (`steer ... | head`) ends the program quietly, as it does every other filter.
    countersteer_sysfs::signals::default_sigpipe();
    let cli = command::parse(words).unwrap_or_else(|error| error.exit());
    command::dispatch(cli).unwrap_or_else(|error| complain(&error))
}

/// Does what a command line in words asks for, within a process that goes on afterwards.
///
/// # Errors
/// Those of the command, and words that are none.
pub fn call(words: &[OsString]) -> anyhow::Result<ExitCode> {
    command::dispatch(command::parse(words)?)
}

fn complain(error: &anyhow::Error) -> ExitCode {
    let text = original(&paragraph(error));
    eprintln!("steer: {}", printable_lines(&text.to_string_lossy()));
    ExitCode::from(kind_of(error) as u8)
}
