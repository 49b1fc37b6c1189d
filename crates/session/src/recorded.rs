//! Workloads whose programs are recorded at first use.
//!
//! Input: the name of a workload, whose programs may be commands. Output: the workload with profiles. The profile of a command is
//! kept in the user's cache folder.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use anyhow::Context;
use countersteer_lab::error::{FaultKind, failure};
use countersteer_lab::{Loaded, plan};
use countersteer_model::profile::Profile;
use countersteer_profiler::live::LiveSimulation;
use countersteer_profiler::this_program;
use sha2::{Digest, Sha256};

use crate::interrupt::Helper;
use crate::library::{self, LibraryText};

/// Part of the message for a script whose profile covers only the programs that the script starts.
pub const WRAPPER: &str = "is a script that becomes another program";

/// Loads a workload with the profiles of its programs; prints warnings, e.g. about profiles of incomplete runs.
pub fn load_workload(name: &str) -> anyhow::Result<Loaded> {
    let mut loaded = plan::load(name, &record_cached)?;
    // A traced simulation executes the commands itself, so it needs them.
    for (program, profile) in &loaded.programs {
        if let (Some(command), Profile::Recorded(recorded)) = (&program.command, &**profile) {
            let live = LiveSimulation::new(command.clone(), recorded.shape.threads);
            loaded.traces.0.push((Arc::clone(profile), Arc::new(live)));
        }
    }
    for warning in loaded.warnings() {
        say!("{warning}");
    }
    Ok(loaded)
}

/// Returns the profile of a command from the cache; records the command if there is none.
fn record_cached(name: Option<&str>, command: &[String]) -> anyhow::Result<LibraryText> {
    let path = cache_path(name, command)?;
    if path.is_file() {
        return library::read(&path);
    }
    say!("recording `{}` at first use", command.join(" "));
    if let Some(dir) = path.parent() {
        let cannot = || format!("cannot make {}", dir.display());
        std::fs::create_dir_all(dir).with_context(cannot)?;
    }
    // Records in a separate process, so that the program's output does not mix with this process's output.
    let mut recorder = this_program::command()?;
    recorder
        .args(["profile", "--whole", "--name"])
        .arg(name.unwrap_or(&file_name(&command[0])))
        .arg("--output")
        .arg(&path)
        .arg("--")
        .args(command)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let status = Helper::start(&mut recorder)?.wait()?;
    if !status.success() || !path.is_file() {
        // Deletes the file, so that later runs do not use the profile of a failed recording.
        let _ = std::fs::remove_file(&path);
        let command = command.join(" ");
        let why = format!("recording `{command}` failed ({status}); see what it printed above");
        return Err(failure(FaultKind::BadInput, why));
    }
    library::read(&path)
}

#[must_use]
pub fn file_name(program: &str) -> String {
    Path::new(program)
        .file_name()
        .map_or_else(|| "program".into(), |f| f.to_string_lossy().into_owned())
}

/// Returns the path of a command's cached profile. The file name depends on the command, the current folder, the size and time
/// of the program's file, and this program's version.
fn cache_path(name: Option<&str>, command: &[String]) -> anyhow::Result<PathBuf> {
    let cache = this_program::cache_folder().ok_or_else(|| {
        failure(
            FaultKind::Missing,
            "neither XDG_CACHE_HOME nor HOME is set: there is nowhere to cache profiles",
        )
    })?;
    cache_path_below(&cache, name, command)
}

/// Returns size and modification time of a command's program, as text; `None` if there is no such program.
fn stamp_of(command: &[String]) -> Option<String> {
    let program = countersteer_sysfs::launch::find_program(command).ok()?;
    let file = program.metadata().ok()?;
    Some(format!("{:?} {}", file.modified().ok(), file.len()))
}

fn cache_path_below(
    cache: &Path,
    name: Option<&str>,
    command: &[String],
) -> anyhow::Result<PathBuf> {
    let mut hash = Sha256::new();
    let workdir = std::env::current_dir()?;
    for part in command
        .iter()
        .map(String::as_bytes)
        .chain([env!("CARGO_PKG_VERSION").as_bytes()])
    {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.update(workdir.as_os_str().as_encoded_bytes());
    if let Some(stamp) = stamp_of(command) {
        hash.update(stamp);
    }
    let digest: String = hash
        .finalize()
        .iter()
        .take(8)
        .map(|b| format!("{b:02x}"))
        .collect();
    let stem = name.map_or_else(|| file_name(&command[0]), str::to_owned);
    Ok(cache
        .join("countersteer/profiles")
        .join(format!("{stem}-{digest}.json")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rebuilt_program_has_another_cached_profile_and_an_unknown_one_has_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let command = [path.display().to_string()];
        let of = |command: &[String]| cache_path_below(Path::new("/cache"), None, command).unwrap();
        let missing = of(&command);
        std::fs::write(&path, "one").unwrap();
        let first = of(&command);
        std::fs::write(&path, "another").unwrap();
        assert!(first != missing && of(&command) != first);
        // A program is found in PATH as the shell finds it.
        let listed = of(&["true".to_owned()]);
        let file = countersteer_sysfs::launch::find_program(&["true".to_owned()]).unwrap();
        let metadata = file.metadata().unwrap();
        let stamp = format!("{:?} {}", metadata.modified().ok(), metadata.len());
        assert!(stamp_of(&["true".to_owned()]) == Some(stamp) && listed.starts_with("/cache"));
    }
}
