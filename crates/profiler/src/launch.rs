//! Runs the program under QEMU and waits for it.
//!
//! Input: the command, the scratch directory. Output: the exit status of the program. Standard streams are the caller's. For
//! repeatable runs, the program gets a small fixed environment and no address randomisation. SIGINT, SIGTERM and SIGHUP end the
//! program, not the caller, which then writes a profile.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use countersteer_files::name::original;
use countersteer_files::scratch::Scratch;
use nix::sys::personality::{self, Persona};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;

use super::engine;
use super::layout::{ARENAS, COMMAND_FILE, ENDED_PROCESS, ENDED_SELF, ONE_ARENA};
use super::lost::Lost;
use super::program::PreparedProgram;
use super::raw::{self, ControlState};
use super::{ProfileError, ProfileOptions};
use crate::this_program;

/// Longest sleep between two checks of the program.
const PATIENCE: Duration = Duration::from_millis(20);
/// Time between two reports of progress.
const REPORT: Duration = Duration::from_millis(100);
/// Time in which processes must react to the limit.
const GRACE: Duration = Duration::from_millis(1500);
/// Environment variables that are copied from the caller.
const PASSED: [&str; 3] = ["PATH", "HOME", "TMPDIR"];
/// Environment variables with fixed values.
const FIXED: [(&str, &str); 2] = [("LANG", "C"), ("PYTHONHASHSEED", "0")];
/// Start of the recorded program's addresses in QEMU's own. Without randomisation QEMU itself lies where the kernel puts
/// position-independent programs. QEMU from version 8 on would then put the program elsewhere, without room for its heap.
const GUEST_BASE: &str = "0x1000000000";

/// Start of the plugin's argument that names the scratch directory.
const DIRECTORY: &str = "dir=";

pub struct Setup {
    pub qemu: PathBuf,
    pub plugin: PathBuf,
    pub program: PreparedProgram,
    pub directory: PathBuf,
    pub control: PathBuf,
}

pub(crate) struct LaunchOutcome {
    pub status: ExitStatus,
    /// Signal that the caller received during the run.
    pub interrupted: Option<i32>,
    pub control: ControlState,
}

/// Runs the program until it ends.
pub fn launch(setup: &Setup, options: &ProfileOptions) -> Result<LaunchOutcome, ProfileError> {
    let wrapper = recording_wrapper(setup, options);
    let file = setup.directory.join(COMMAND_FILE);
    let bytes = wrapper
        .iter()
        .map(|a| a.as_encoded_bytes())
        .collect::<Vec<_>>()
        .join(&0);
    std::fs::write(&file, bytes).map_err(|source| ProfileError::Scratch { path: file, source })?;
    let failed = |source| ProfileError::Launch {
        qemu: setup.qemu.clone(),
        source,
    };
    let mut signals = SignalsInfo::<WithOrigin>::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
    let mut command = command(&wrapper, &setup.program, options);
    this_program::end_with_this_thread(&mut command);
    let mut child = spawn(command).map_err(failed)?;
    let (status, interrupted) = wait(&mut child, &mut signals, setup, options).map_err(failed)?;
    let control = raw::read_control(&setup.control)?;
    if control.stopped {
        kill_rest(setup);
    }
    Ok(LaunchOutcome {
        status,
        interrupted,
        control,
    })
}

/// Returns QEMU's command with its options, up to the program, for a recording.
fn recording_wrapper(setup: &Setup, options: &ProfileOptions) -> Vec<OsString> {
    let measure = options.measure.word();
    let stream = options
        .stream
        .as_ref()
        .map(|(sets, _)| format!(",stream={sets}"));
    let stream = stream.unwrap_or_default();
    let mut arguments = OsString::from(DIRECTORY);
    arguments.push(escaped(&setup.directory));
    arguments.push(format!(",measure={measure}{stream}"));
    wrapper(
        &setup.qemu,
        &setup.plugin,
        &setup.program,
        options,
        &arguments,
    )
}

/// Makes the scratch directory of a recording. The processes of the recording have its name in their command lines.
pub fn scratch() -> Result<Scratch, ProfileError> {
    let made = Scratch::of_processes("steer-profile-");
    made.map_err(|source| ProfileError::Scratch {
        path: std::env::temp_dir(),
        source,
    })
}

/// Doubles commas in a path, of any bytes: a single comma would end the file name of a plugin.
fn escaped(path: &Path) -> OsString {
    let mut escaped = Vec::new();
    for &byte in path.as_os_str().as_bytes() {
        escaped.push(byte);
        if byte == b',' {
            escaped.push(byte);
        }
    }
    OsString::from_vec(escaped)
}

/// Returns QEMU's command with its options, up to the program.
pub fn wrapper(
    qemu: &Path,
    plugin: &Path,
    program: &PreparedProgram,
    options: &ProfileOptions,
    arguments: &OsStr,
) -> Vec<OsString> {
    let mut words = OsString::from("file=");
    words.push(escaped(plugin));
    words.push(",");
    words.push(arguments);
    let plugin = words;
    let usual = program.architecture.processor();
    let cpu = options.cpu.as_deref().unwrap_or(usual);
    let mut words = engine::start(qemu);
    words.extend(["-cpu", cpu, "-seed", "1", "-B", GUEST_BASE].map(Into::into));
    // The variable is QEMU's alone.
    words.extend(["-U", ARENAS].map(Into::into));
    words.extend(["-plugin".into(), plugin]);
    if let Some(sysroot) = &options.sysroot {
        // Programs may be executed from another working directory.
        let absolute = sysroot.canonicalize().unwrap_or_else(|_| sysroot.clone());
        words.extend(["-L".into(), absolute.into()]);
    }
    words
}

/// Returns the command of a program with its arguments, under QEMU.
pub fn command(
    wrapper: &[OsString],
    program: &PreparedProgram,
    options: &ProfileOptions,
) -> Command {
    let mut command = Command::new(&wrapper[0]);
    command.args(&wrapper[1..]);
    if let Some((name, value)) = options.env.iter().find(|(name, _)| name == ARENAS) {
        command.arg("-E").arg(format!("{name}={value}"));
    }
    command.arg("-0").arg(&program.zeroth).arg(&program.file);
    command
        .args(&program.before)
        .args(options.command.iter().skip(1).map(|word| original(word)));
    command.env_clear().envs(FIXED);
    command.envs(
        PASSED
            .iter()
            .filter_map(|name| std::env::var_os(name).map(|value| (name, value))),
    );
    command.envs(options.env.iter().map(|(name, value)| (name, value)));
    command.env(ARENAS, ONE_ARENA);
    if options.stdout_null {
        command.stdout(Stdio::null());
    }
    if options.stdin_null {
        command.stdin(Stdio::null());
    }
    if let Some(directory) = &options.workdir {
        command.current_dir(directory);
    }
    command
}

/// Starts the program without address randomisation. The setting applies to the calling thread and its children. Some containers
/// forbid it; QEMU's own layout still makes addresses repeatable in practice.
pub fn spawn(mut command: Command) -> std::io::Result<Child> {
    let before = personality::get().ok();
    if let Some(before) = before {
        let _ = personality::set(before | Persona::ADDR_NO_RANDOMIZE);
    }
    let child = command.spawn();
    if let Some(before) = before {
        let _ = personality::set(before);
    }
    child
}

fn wait(
    child: &mut Child,
    signals: &mut SignalsInfo<WithOrigin>,
    setup: &Setup,
    options: &ProfileOptions,
) -> std::io::Result<(ExitStatus, Option<i32>)> {
    let mut interrupted = None;
    let mut lost = Lost::new(&setup.directory, &setup.control)?;
    let mut pause = Duration::from_millis(1);
    let mut reported = Instant::now();
    let mut stopped: Option<Instant> = None;
    loop {
        if let Some(status) = child.try_wait()? {
            interrupted =
                interrupted.or_else(|| signals.pending().last().map(|origin| origin.signal));
            return Ok((status, interrupted));
        }
        for origin in signals.pending() {
            // A terminal signals the whole foreground group, but `kill` signals only this process.
            if origin.process.is_some() || interrupted.is_some() {
                pass_on(child, origin.signal, interrupted.is_some());
            }
            interrupted = Some(origin.signal);
        }
        if reported.elapsed() >= REPORT {
            reported = Instant::now();
            let state = raw::read_control(&setup.control).ok();
            if let Some(state) = &state {
                lost.look(state.threads);
                options.progress.iter().for_each(|p| p(state.instructions));
            }
            stopped = stopped.or_else(|| state.filter(|s| s.stopped).map(|_| Instant::now()));
        }
        if stopped.is_some_and(|since| since.elapsed() > GRACE) {
            kill_rest(setup);
            let _ = child.kill();
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(PATIENCE);
    }
}

/// Passes a signal on; the second time, SIGKILL is sent.
fn pass_on(child: &Child, signal: i32, again: bool) {
    let signal = if again {
        Ok(Signal::SIGKILL)
    } else {
        Signal::try_from(signal)
    };
    if let Ok(signal) = signal {
        let _ = kill(Pid::from_raw(child.id() as i32), signal);
    }
}

/// Kills the remaining processes of the recording, which slept through its end.
fn kill_rest(setup: &Setup) {
    let Ok(threads) = raw::read_threads(&setup.directory) else {
        return;
    };
    let own = PathBuf::from(engine::start(&setup.qemu).swap_remove(0)).canonicalize();
    let remains = |t: &&raw::ThreadLog| ![ENDED_SELF, ENDED_PROCESS].contains(&t.ended);
    for thread in threads.iter().filter(remains) {
        // The PID may have been reused by another process. No other code of this crate needs a reader of /proc.
        let executable = std::fs::read_link(format!("/proc/{}/exe", thread.pid));
        if executable.is_ok_and(|e| own.as_ref().is_ok_and(|own| *own == e)) {
            let _ = kill(Pid::from_raw(thread.pid as i32), Signal::SIGKILL);
        }
    }
}

/// Returns the signal that ended a process, and its description.
pub(crate) fn killed_by(status: ExitStatus) -> Option<(i32, String)> {
    let number = status.signal()?;
    Some((number, signal_name(number)))
}

pub fn signal_name(number: i32) -> String {
    Signal::try_from(number).map_or_else(|_| format!("signal {number}"), |s| s.as_str().to_owned())
}
