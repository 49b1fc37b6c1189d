//! Recording of the programs for which a policy is sought.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use countersteer_files::name::{escaped, original};
use countersteer_lab::error::{FaultKind, failure};
use countersteer_lab::{Loaded, plan};
use countersteer_model::bounds;
use countersteer_model::profile::Profile;
use countersteer_profiler::this_program;

use super::Advice;
use crate::interrupt::{Helper, unusable};
use crate::notice;
use crate::recorded::WRAPPER;

/// Maximum number of lines of a failed program's output in the error message.
const LINES: usize = 3;

/// Instructions to simulate of a program whose recording was cut off, about ten seconds. The program is expected to continue
/// for a similar time. Since recording slows a program 15 times, the recorded part alone is too short for any policy to act.
const CUT_INSTRUCTIONS: f64 = 3e10;

/// Recorded program.
pub struct RecordedProgram {
    pub name: String,
    /// True if the recording ended before the program exited.
    pub partial: bool,
}

/// Records all programs, concurrently on all CPUs.
pub(super) fn record(advice: &Advice, dir: &Path) -> anyhow::Result<Vec<RecordedProgram>> {
    let commands = &advice.commands;
    let most = Duration::from_nanos(advice.duration.0);
    let at_once = std::thread::available_parallelism().map_or(1, |n| n.get());
    let bar = notice::bar("recording", commands.len() as u64);
    let mut recorded = Vec::new();
    for (batch, group) in commands.chunks(at_once).enumerate() {
        let mut running = Vec::new();
        for (place, command) in group.iter().enumerate() {
            let name = name_of(commands, batch * at_once + place);
            let file = dir.join(original(&profile_of(&name)));
            running.push((recorder(command, &name, &file)?, name, file));
        }
        let deadline = Instant::now() + most;
        for (child, name, file) in running {
            let ended = bounded(&child, deadline)?;
            bar.step();
            if let Some(why) = refused(advice, &name, &file, ended) {
                return Err(why);
            }
            say_wrapper(&file);
            let partial = ended.is_none();
            recorded.push(RecordedProgram { name, partial });
        }
    }
    Ok(recorded)
}

/// Returns the file name of a program, with a suffix if an earlier command has the same program name.
#[must_use]
pub fn name_of(commands: &[Vec<String>], nth: usize) -> String {
    let stem = |command: &Vec<String>| {
        let name = Path::new(&command[0])
            .file_name()
            .map(|n| n.to_string_lossy().into_owned());
        name.unwrap_or_else(|| "program".into())
    };
    let name = stem(&commands[nth]);
    let before = commands[..nth].iter().filter(|c| stem(c) == name).count();
    if before == 0 {
        name
    } else {
        format!("{name}-{}", before + 1)
    }
}

/// Returns the name of a program's profile.
fn profile_of(name: &str) -> String {
    format!("{name}.json")
}

/// Starts a recorder as a separate process, so that the program's output does not mix with this process's output.
fn recorder(command: &[String], name: &str, file: &Path) -> anyhow::Result<Helper> {
    let log = log_of(file);
    let log = std::fs::File::create(&log).map_err(|why| unusable(&log, &why))?;
    let mut recorder = this_program::command()?;
    recorder
        .args(["profile", "--name"])
        .arg(original(name))
        .arg("--output")
        .arg(file)
        .arg("--")
        .args(command.iter().map(|word| original(word)));
    recorder
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    Helper::start(&mut recorder).context("cannot start the recorder")
}

/// Returns the file of a recorder's messages and of its program's.
fn log_of(file: &Path) -> PathBuf {
    file.with_extension("log")
}

/// Returns what a recorder and its program printed.
fn messages(file: &Path) -> String {
    let bytes = std::fs::read(log_of(file)).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Prints the recorder's message for a script that only starts another program, if there is one.
fn say_wrapper(file: &Path) {
    let log = messages(file);
    for line in log.lines().filter(|line| line.contains(WRAPPER)) {
        say!("{}", line.trim_start_matches("steer: "));
    }
}

/// Returns an error if there can be no recommendation: the program could not be recorded, or it failed. Otherwise returns
/// `None`.
fn refused(
    advice: &Advice,
    name: &str,
    file: &Path,
    ended: Option<ExitStatus>,
) -> Option<anyhow::Error> {
    let log = messages(file);
    let code = ended.and_then(|status| status.code()).unwrap_or(0);
    if !file.is_file() {
        return Some(unrecorded(name, file, ended, &log));
    }
    if code == 0 || advice.ignore_failure {
        return None;
    }
    let own: Vec<&str> = log
        .lines()
        .filter(|line| !line.starts_with("steer: "))
        .collect();
    let last = own[own.len().saturating_sub(LINES)..].join("\n  ");
    let said = if last.is_empty() {
        "it printed no error".to_owned()
    } else {
        format!("it printed:\n  {last}")
    };
    let why = format!(
        "no advice: `{name}` failed with exit code {code}, so its work was not done; {said}\nfix the command, or judge it anyway with --ignore-failure"
    );
    Some(failure(FaultKind::BadInput, why))
}

/// Returns the error about a recorder that left no profile.
fn unrecorded(name: &str, file: &Path, ended: Option<ExitStatus>, log: &str) -> anyhow::Error {
    let code = ended.and_then(|status| status.code());
    let kind = code.map_or(FaultKind::BadInput, FaultKind::of_exit);
    let why = match (log.trim(), ended) {
        ("", Some(status)) if code.is_none() => format!("the recorder ended ({status})"),
        // A recorder says why it fails, so there was no room for its words.
        ("", Some(_)) => {
            let why = format!("the messages of the recording of `{name}` do not fit in");
            return unusable(&log_of(file), &why);
        }
        ("", None) => "the recorder did not end in time".to_owned(),
        (said, _) => said.to_owned(),
    };
    failure(kind, format!("`{name}` could not be recorded: {why}"))
}

/// Waits until a recorder exits, and sends SIGINT at the deadline. Returns the exit status, or `None` if SIGINT was sent.
fn bounded(recorder: &Helper, deadline: Instant) -> anyhow::Result<Option<ExitStatus>> {
    const GRACE: Duration = Duration::from_secs(15);
    let mut asked = None;
    loop {
        if let Some(status) = recorder.ended()? {
            return Ok(asked.is_none().then_some(status));
        }
        let now = Instant::now();
        match asked {
            None if now >= deadline => {
                recorder.interrupt();
                asked = Some(now);
            }
            Some(at) if now > at + GRACE => {
                recorder.kill()?;
                return Ok(None);
            }
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Creates a workload that contains each program once. If a recording was cut off, the recorded part is repeated up to
/// [`CUT_INSTRUCTIONS`].
pub(super) fn workload(dir: &Path, recorded: &[RecordedProgram]) -> anyhow::Result<Loaded> {
    let path = dir.join("these-programs.toml");
    let of = |scales: &[f64]| {
        let mut text = String::new();
        for (r, scale) in recorded.iter().zip(scales) {
            let [file, name] = [profile_of(&r.name), r.name.clone()].map(toml::Value::String);
            text += &format!("[[program]]\nprofile = {file}\nname = {name}\nscale = {scale:?}\n\n");
        }
        std::fs::write(&path, text).map_err(|why| unusable(&path, &why))?;
        plan::load_recorded(&escaped(path.as_os_str()))
    };
    let as_recorded = of(&vec![1.0; recorded.len()])?;
    if recorded.iter().all(|r| !r.partial) {
        return Ok(as_recorded);
    }
    let scale = |(r, (_, profile)): (&RecordedProgram, &(_, Arc<Profile>))| {
        let runs = CUT_INSTRUCTIONS / profile.instructions().max(1) as f64;
        if r.partial {
            runs.clamp(1.0, bounds::SCALE.most).ceil()
        } else {
            1.0
        }
    };
    let scales: Vec<f64> = recorded
        .iter()
        .zip(&as_recorded.programs)
        .map(scale)
        .collect();
    of(&scales)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_that_was_cut_is_repeated_and_a_whole_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../profiles/recorded");
        let recorded = |name: &str, partial: bool| {
            let file = profile_of(name);
            std::fs::copy(shipped.join(&file), dir.path().join(&file)).unwrap();
            let name = name.to_owned();
            RecordedProgram { name, partial }
        };
        let programs = [recorded("gzip", true), recorded("sort", false)];
        let loaded = workload(dir.path(), &programs).unwrap();
        let [(cut, profile), (whole, _)] = &loaded.programs[..] else {
            panic!("two programs");
        };
        let instructions = profile.instructions() as f64 * cut.scale;
        assert!((3e10..3e10 + profile.instructions() as f64).contains(&instructions));
        assert_eq!(whole.scale, 1.0);
    }
}
