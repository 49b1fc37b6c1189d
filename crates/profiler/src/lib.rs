//! Profiles of programs, measured by instrumentation (`steer profile`).
//!
//! Stage: before all others. Input: a command. Output: a machine-independent [`Recorded`] profile, and the ending of the
//! command. The program runs under qemu-user with the plugin of `crates/capture`. The plugin counts and models while the program
//! runs, and writes raw windows to a scratch directory (`layout`, `raw`). This crate clusters and sums them up (`cluster`,
//! `assemble`).
//!
//! Recorded: all threads, forked processes, and programs that they execute, static or dynamic. These must be scripts or ELF
//! files for x86-64, or for AArch64 if the first program is. Not recorded: 32-bit programs and programs for other machines,
//! which run natively. Setuid programs are recorded, but run without their privileges. The profile's caveats list such cases.
//! Memory accesses of the kernel on the program's behalf are invisible.

mod assemble;
mod branches;
mod cluster;
mod connections;
mod engine;
mod error;
mod figures;
mod launch;
#[allow(dead_code)]
pub mod live;
mod lost;
mod pipeline;
mod program;
mod raw;
mod reach;
mod receiver;
mod sampling;
mod sharing;
pub mod this_program;
mod wrapper;

use std::os::unix::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use countersteer_cache::layout;
use countersteer_model::profile::{Recorded, Source};
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeValLike;

pub use engine::{Emulator, Origin, engines};
pub use error::ProfileError;
pub use layout::Measure;
pub use program::Architecture;
pub use receiver::BlockSink;

/// Time for threads of processes that outlive the program to send their last events.
const STREAM_GRACE: Duration = Duration::from_millis(1500);
/// Schema name of recorded profiles.
const SCHEMA: &str = "countersteer.profile/1";
/// Description of the measurement, for [`Source::method`].
const METHOD: &str = "qemu-user plugin; all threads and child processes; LRU stack distances per thread to within 64 lines, \
below 128 lines resolved in samples; branches: TAGE, 16 Ki bimodal + 6 x 4 Ki tagged entries, histories 5-190, biased branches \
filtered, 3 x 2 Ki indirect targets, 32 returns; ilp, mlp and pipeline: 4,096 instructions of every million or so, register \
and store-to-load dependencies; windows of 1 M instructions, doubled when a thread fills 1,024";

/// Addition to [`METHOD`] for sampled recordings.
const SAMPLED: &str = "; sampled: stack distances of one line in 8 and one page in 4; branches, prefetch streams and conflicts in an eighth of \
the run, after 4 M instructions of each thread";

/// Program to profile, and options.
pub struct ProfileOptions {
    /// Name of the profile; default: the program's file name.
    pub name: Option<String>,
    /// Number of instructions of all threads together after which the program is ended.
    pub max_instructions: Option<u64>,
    /// Takes an exit code other than 0 for success: the profile is not marked partial.
    pub ignore_failure: bool,
    pub command: Vec<String>,
    /// Gives the program an empty standard input instead of the caller's.
    pub stdin_null: bool,
    /// Discards what the program prints to its standard output.
    pub stdout_null: bool,
    /// Working directory of the program; default: the current directory.
    pub workdir: Option<PathBuf>,
    /// Further environment variables for the program.
    pub env: Vec<(String, String)>,
    /// CPU model that QEMU presents to the program, instead of the default.
    pub cpu: Option<String>,
    /// Root folder of the libraries that a program for another machine needs.
    pub sysroot: Option<PathBuf>,
    /// Engine and plugin to use, instead of those found.
    pub tools: Option<Tools>,
    /// Depth of the recording. [`Measure::Reference`] takes twice the time.
    pub measure: Measure,
    /// Receiver of the threads' events, with the number of sets of the filter; see `countersteer_cache::wire`.
    pub stream: Option<(u32, BlockSink)>,
    /// Callback with the instructions executed so far, called periodically.
    pub progress: Option<Box<dyn Fn(u64)>>,
}

impl ProfileOptions {
    /// Returns options that profile the whole of `command`.
    #[must_use]
    pub fn new(command: Vec<String>) -> Self {
        Self {
            name: None,
            max_instructions: None,
            ignore_failure: false,
            command,
            stdin_null: false,
            stdout_null: false,
            workdir: None,
            env: Vec::new(),
            cpu: None,
            sysroot: None,
            tools: None,
            measure: Measure::default(),
            stream: None,
            progress: None,
        }
    }
}

/// Ending of the recorded program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramEnding {
    /// Exited by itself, with this code.
    Exited(i32),
    Signaled(i32),
    /// Ended at the limit of `max_instructions`.
    Limit,
}

impl ProgramEnding {
    /// Returns the exit code that a shell would report: the program's, 128 plus the signal, or 0 at the limit.
    #[must_use]
    pub const fn code(self) -> i32 {
        match self {
            Self::Exited(code) => code,
            Self::Signaled(signal) => 128 + signal,
            Self::Limit => 0,
        }
    }
}

/// Profile and ending of a program.
#[derive(Clone, Debug)]
pub struct Profiled {
    pub profile: Recorded,
    pub ending: ProgramEnding,
    /// Instructions of all threads and processes.
    pub instructions: u64,
    /// Instructions that are not among them: of a script before it became the program that it starts.
    pub wrapper_instructions: u64,
    /// CPU time that the instrumented run took, of all processes.
    pub cpu_seconds: f64,
}

/// Tools of the recording: the engine and the plugin that it loads.
#[derive(Clone, Debug)]
pub struct Tools {
    pub engine: Emulator,
    pub plugin: PathBuf,
}

/// Finds the tools for programs of this machine's architecture.
///
/// # Errors
/// Fails if one of them is missing.
pub fn tools() -> Result<Tools, ProfileError> {
    let here = Architecture::here();
    tools_for(here.unwrap_or(Architecture::X86_64))
}

/// Listens for the events of the program in its scratch directory.
fn receive(
    directory: &Path,
    sink: BlockSink,
) -> Result<Arc<receiver::Receiver<BlockSink>>, ProfileError> {
    let path = directory.join(layout::STREAM_SOCKET);
    let address = SocketAddr::from_pathname(&path);
    let receiver = address.and_then(|address| receiver::Receiver::new(&address, None, sink));
    receiver.map_err(|source| ProfileError::Scratch { path, source })
}

/// Finds the tools for programs of an architecture.
///
/// # Errors
/// Fails if one of them is missing.
pub fn tools_for(architecture: Architecture) -> Result<Tools, ProfileError> {
    Ok(Tools {
        engine: engine::engine(architecture)?,
        plugin: engine::plugin()?,
    })
}

/// Runs a program and measures its profile.
///
/// # Errors
/// Fails if the program cannot be run under instrumentation, or if nothing was recorded. A program that fails, crashes or is
/// interrupted is no error: its profile is marked partial.
pub fn profile(options: &ProfileOptions) -> Result<Profiled, ProfileError> {
    let name = options.command.first().ok_or(ProfileError::EmptyCommand)?;
    let here = options
        .workdir
        .clone()
        .unwrap_or_else(|| PathBuf::from("."));
    let program = program::program(name, &here.canonicalize().unwrap_or(here))?;
    let tools = options.tools.clone();
    let tools = tools.map_or_else(|| tools_for(program.architecture), Ok)?;
    let scratch = launch::scratch()?;
    let directory = scratch.path().to_owned();
    let control = raw::create_control(&directory, options.max_instructions)?;
    let setup = launch::Setup {
        qemu: tools.engine.file,
        plugin: tools.plugin,
        program,
        directory,
        control,
    };
    let before = children_seconds();
    let sink = options.stream.as_ref().map(|(_, sink)| sink.clone());
    let receiver = sink.map(|sink| receive(&setup.directory, sink));
    let receiver = receiver.transpose()?;
    let outcome = launch::launch(&setup, options);
    let received = receiver.map_or(Ok(()), |of| of.stop(STREAM_GRACE));
    let outcome = outcome?;
    received.map_err(|source| ProfileError::Receive { source })?;
    let cpu_seconds = children_seconds() - before;
    let interrupted = |signal| ProfileError::Interrupted {
        program: name.clone(),
        signal,
    };
    let nothing = || ProfileError::Nothing {
        program: name.clone(),
    };
    let mut threads = match check_loaded(&setup, &outcome.control) {
        Ok(()) => raw::read_threads(&setup.directory)?,
        Err(why) => return Err(outcome.interrupted.map_or(why, interrupted)),
    };
    let is_script = !setup.program.before.is_empty();
    let wrapper_instructions = match is_script {
        true => wrapper::leave_out(&mut threads),
        false => 0,
    };
    let assembled = assemble::assemble(&threads)
        .ok_or_else(|| outcome.interrupted.map_or_else(nothing, interrupted))?;
    let instructions = assembled.instructions;
    let profile = Recorded {
        schema: SCHEMA.into(),
        name: options.name.clone().unwrap_or_else(|| file_name(name)),
        source: Source {
            kind: "instrumentation".into(),
            detail: detail(options),
            method: method(options.measure),
        },
        partial: partial(&outcome, options),
        caveats: outcome.control.caveats.clone(),
        sampling: assembled.sampling,
        instructions,
        shape: assembled.shape,
        behaviours: assembled.behaviours,
        timeline: assembled.timeline,
    };
    Ok(Profiled {
        profile,
        ending: ending(&outcome),
        instructions,
        wrapper_instructions,
        cpu_seconds,
    })
}

/// Writes a profile atomically.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn write(profile: &Recorded, path: &Path) -> Result<(), ProfileError> {
    let unwritable = |source| ProfileError::Unwritable {
        path: path.to_owned(),
        source,
    };
    let mut text = serde_json::to_string(profile).map_err(|e| unwritable(e.into()))?;
    text.push('\n');
    countersteer_files::write::write(path, text.as_bytes()).map_err(unwritable)
}

/// Returns the description of a measurement.
fn method(measure: Measure) -> String {
    match measure {
        Measure::Sampled => format!("{METHOD}{SAMPLED}"),
        Measure::Exact | Measure::Reference => METHOD.into(),
    }
}

fn check_loaded(setup: &launch::Setup, control: &raw::ControlState) -> Result<(), ProfileError> {
    if control.refused_version != 0 {
        let plugin = setup.plugin.clone();
        let found = control.refused_version;
        return Err(ProfileError::PluginVersion {
            plugin,
            found,
            expected: layout::VERSION,
        });
    }
    if control.loaded == 0 {
        return Err(ProfileError::PluginRefused {
            qemu: setup.qemu.clone(),
            plugin: setup.plugin.clone(),
        });
    }
    Ok(())
}

fn children_seconds() -> f64 {
    let seconds = |u: Usage| {
        (u.user_time().num_microseconds() + u.system_time().num_microseconds()) as f64 * 1e-6
    };
    getrusage(UsageWho::RUSAGE_CHILDREN).map_or(0.0, seconds)
}

fn file_name(program: &str) -> String {
    Path::new(program)
        .file_name()
        .map_or_else(|| program.to_owned(), |n| n.to_string_lossy().into_owned())
}

/// Returns the command that records the profile again.
fn detail(options: &ProfileOptions) -> String {
    let limit = options
        .max_instructions
        .map_or_else(String::new, |n| format!("--max-instructions {n} "));
    let sysroot = options.sysroot.as_ref().map_or_else(String::new, |path| {
        format!("--sysroot {} ", quote(&path.display().to_string()))
    });
    let sampled = match options.measure {
        Measure::Sampled => "--sampled ",
        Measure::Exact | Measure::Reference => "",
    };
    format!(
        "steer profile {sampled}{limit}{sysroot}-- {}",
        quoted(&options.command)
    )
}

/// Quotes a command for a shell.
#[must_use]
pub fn quoted(command: &[String]) -> String {
    let words: Vec<String> = command.iter().map(|word| quote(word)).collect();
    words.join(" ")
}

/// Quotes an argument for a shell.
fn quote(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        return argument.to_owned();
    }
    format!("'{}'", argument.replace('\'', "'\\''"))
}

fn partial(outcome: &launch::LaunchOutcome, options: &ProfileOptions) -> Option<String> {
    if outcome.control.stopped {
        return options
            .max_instructions
            .map(|n| format!("stopped after {n} instructions, as asked"));
    }
    if let Some(signal) = outcome.interrupted {
        return Some(format!("interrupted by {}", launch::signal_name(signal)));
    }
    if let Some(code) = outcome
        .status
        .code()
        .filter(|code| *code != 0 && !options.ignore_failure)
    {
        return Some(format!("the program failed: exit code {code}"));
    }
    launch::killed_by(outcome.status).map(|(_, name)| format!("killed by {name}"))
}

fn ending(outcome: &launch::LaunchOutcome) -> ProgramEnding {
    if outcome.control.stopped {
        return ProgramEnding::Limit;
    }
    match outcome.status.signal() {
        Some(signal) => ProgramEnding::Signaled(signal),
        None => ProgramEnding::Exited(outcome.status.code().unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_detail_is_a_command_that_a_shell_understands() {
        let mut options =
            ProfileOptions::new(["sh", "-c", "echo 'a' | cat", ""].map(String::from).into());
        options.max_instructions = Some(7);
        assert_eq!(
            detail(&options),
            r"steer profile --max-instructions 7 -- sh -c 'echo '\''a'\'' | cat' ''"
        );
    }

    #[test]
    fn endings_map_to_what_shells_report() {
        assert_eq!(ProgramEnding::Exited(3).code(), 3);
        assert_eq!(ProgramEnding::Signaled(11).code(), 139);
        assert_eq!(ProgramEnding::Limit.code(), 0);
    }

    #[test]
    fn an_unwritable_place_is_an_error_that_says_so() {
        let threads = [];
        assert!(assemble::assemble(&threads).is_none());
        let error =
            write(&example(), Path::new("/nonexistent-directory/profile.json")).unwrap_err();
        assert!(error.to_string().contains("-o FILE"), "{error}");
    }

    fn example() -> Recorded {
        Recorded {
            schema: SCHEMA.into(),
            name: "x".into(),
            source: Source::default(),
            partial: None,
            caveats: Vec::new(),
            sampling: Vec::new(),
            instructions: 0,
            shape: countersteer_model::profile::ThreadShape {
                threads: 1,
                serial_share: 1.0,
                ..Default::default()
            },
            behaviours: Vec::new(),
            timeline: Vec::new(),
        }
    }
}
