//! `steer profile`: records a program, measures a running one (`--online`), or shows a profile (`show`).

use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::Arc;

use countersteer_lab::{Loaded, plan};
use countersteer_live::online::counted::EVENTS;
use countersteer_model::profile::published::SCHEMA;
use countersteer_model::profile::{Caveat, Profile, Published};
use countersteer_model::units::Nanos;
use countersteer_profiler::live::Live;
use countersteer_profiler::this_program;
use countersteer_profiler::{Ending, Measure, ProfileError, ProfileOptions, Profiled};
use countersteer_report::tabulate::tabulate;
use countersteer_report::{profile_view, write_atomically};
use sha2::{Digest, Sha256};

use super::{check, counters, online, print, print_json};
use crate::error::{Kind, failure};
use crate::interrupt::Helper;
use crate::library::{self, Text};
use crate::online::{By, Online};
use crate::output::{self, make_folder};
use crate::progress;
use crate::values::{pid, time};

/// Arguments of `steer profile`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    show: Option<Action>,
    /// Output file; default: PROGRAM.profile.json
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Name of the profile; default: the program's file name
    #[arg(long)]
    name: Option<String>,
    /// Discard the profile of an interrupted run
    #[arg(long, hide = true)]
    whole: bool,
    /// Make the profile from the counters of a record (`steer stat -o`, `steer sim -o`)
    #[arg(long, value_name = "RECORD", conflicts_with_all = ["max_instructions", "command"], requires = "program")]
    from: Option<PathBuf>,
    /// With --from: name of the program in the record
    #[arg(long, value_name = "NAME", requires = "from")]
    program: Option<String>,
    /// Measure the miss curve of PROGRAM, or of the processes of -p, with hardware counters, while the program runs at full
    /// speed
    #[arg(long, conflicts_with_all = ["max_instructions", "from"])]
    online: bool,
    /// With --online: PID of a running process; repeatable. Processes that share a cache are measured one after the other, while
    /// the other processes are slowed down in steps
    #[arg(
        short,
        long,
        value_name = "PID",
        value_parser = pid,
        requires = "online",
        conflicts_with = "command"
    )]
    pid: Vec<u32>,
    /// With --online and -p: print a summary of each miss curve as JSON
    #[arg(long, requires = "online")]
    json: bool,
    /// With --online: method of limiting the program's cache; default: ways if resctrl allows it, otherwise co-runners
    #[arg(long, value_name = "HOW", requires = "online")]
    by: Option<By>,
    /// With --online: number of measurements per cache size
    #[arg(long, value_name = "N", default_value = "3", requires = "online", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// With --online: duration of a measurement, and of the wait before it
    #[arg(long, value_name = "TIME", default_value = "300ms", requires = "online", value_parser = time)]
    dwell: Nanos,
    /// With --online: events for instructions, cycles and misses
    #[arg(long, value_name = "EVENTS", default_value = EVENTS, hide = true)]
    counting: String,
    /// Stop after this many instructions (suffixes K, M, G); the profile is then marked partial
    #[arg(long, value_name = "N", value_parser = count)]
    max_instructions: Option<u64>,
    /// Take an exit code other than 0 for success (minisat ends with 10 when it finds a solution)
    #[arg(long, conflicts_with_all = ["online", "from"])]
    ignore_failure: bool,
    /// Run the costly models on a sample of the run only: faster, and the profile contains the error of each figure
    #[arg(long, conflicts_with_all = ["online", "from"])]
    sampled: bool,
    /// Run all models on the whole run; this is the default
    #[arg(long, conflicts_with_all = ["online", "from"], overrides_with = "sampled")]
    exact: bool,
    /// Folder that contains the libraries of a program for another processor architecture, e.g. /usr/aarch64-linux-gnu on Debian
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["online", "from"])]
    sysroot: Option<PathBuf>,
    /// Program and its arguments
    #[arg(trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<String>,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Show phases, miss curve and class of a profile
    Show {
        /// Profile: file or name of a shipped profile
        file: PathBuf,
        /// Print the checked profile as JSON
        #[arg(long)]
        json: bool,
        /// Also draw the miss curve into this SVG file
        #[arg(long, value_name = "FILE.svg")]
        plot: Option<PathBuf>,
    },
    /// Compare a profile with cachegrind's counts of the same command
    Check(check::Args),
    /// List the shipped profiles
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Make profiles of SPEC CPU programs from published tables of counters
    ImportCounters(counters::Args),
}

pub(super) fn count(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.trim_end_matches(|c: char| c.is_ascii_alphabetic()) {
        digits if digits.len() == text.len() => (digits, 1),
        digits => match &text[digits.len()..] {
            "K" | "k" => (digits, 1_000),
            "M" | "m" => (digits, 1_000_000),
            "G" | "g" => (digits, 1_000_000_000),
            other => return Err(format!("`{other}` is not a suffix; K, M and G are")),
        },
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| format!("`{text}` is not a number"))?;
    number
        .checked_mul(factor)
        .filter(|n| *n > 0)
        .ok_or_else(|| "it must be 1 to 18 quintillion".into())
}

/// Runs `steer profile`; returns the exit code of the recorded program.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.show {
        Some(Action::Show { file, json, plot }) => {
            show(&file, json, plot.as_deref()).map(|()| ExitCode::SUCCESS)
        }
        Some(Action::Check(args)) => check::run(&args).map(|()| ExitCode::SUCCESS),
        Some(Action::List { json }) => counters::list(json).map(|()| ExitCode::SUCCESS),
        Some(Action::ImportCounters(args)) => counters::import(args).map(|()| ExitCode::SUCCESS),
        None if args.online => {
            let online = Online {
                pids: &args.pid,
                command: &args.command,
                by: args.by,
                rounds: args.rounds,
                dwell: args.dwell,
                name: args.name.as_deref(),
                events: &args.counting,
            };
            online::run(&online, args.output.as_deref(), args.json)
        }
        None if args.from.is_some() => tabulate_to_file(&args).map(|()| ExitCode::SUCCESS),
        None if args.command.is_empty() => Err(failure(
            Kind::Usage,
            "name a program after `--`: steer profile -o FILE -- PROGRAM ARGS",
        )),
        None => record_to_file(args),
    }
}

fn record_to_file(args: Args) -> anyhow::Result<ExitCode> {
    let stem = args
        .name
        .clone()
        .unwrap_or_else(|| file_name(&args.command[0]));
    let output = args
        .output
        .unwrap_or_else(|| PathBuf::from(format!("{stem}.profile.json")));
    // The output file is checked first, because the recording may take minutes.
    crate::output::check_writable(&output)?;
    let mut options = ProfileOptions::new(args.command);
    options.name = args.name;
    options.max_instructions = args.max_instructions;
    options.sysroot = args.sysroot;
    options.ignore_failure = args.ignore_failure;
    if args.sampled && !args.exact {
        options.measure = Measure::Sampled;
    }
    let recording = match watched(options) {
        Err(error) => return interrupted(&error).ok_or(error),
        Ok(recording) => recording,
    };
    let p = &recording.profile;
    let code = match recording.ending {
        Ending::Exited(_) if args.ignore_failure => ExitCode::SUCCESS,
        ending => ExitCode::from(ending.code() as u8),
    };
    if let (true, Some(why)) = (args.whole, &p.partial) {
        eprintln!("steer: the profile of `{}` is discarded: {why}", p.name);
        return Ok(code);
    }
    countersteer_profiler::write(p, &output)?;
    if recording.wrapper_instructions > 0 {
        eprintln!(
            "steer: {} {WRAPPER}: {} M instructions of its own are omitted",
            p.name,
            recording.wrapper_instructions.div_ceil(1_000_000)
        );
    }
    say_caveats(&p.caveats);
    let note = p
        .partial
        .as_ref()
        .map(|why| format!(" (partial: {why})"))
        .unwrap_or_default();
    eprintln!(
        "steer: {} instructions, {} behaviours in {} segments{note}; profile in {}",
        p.instructions,
        p.behaviours.len(),
        p.timeline.len(),
        output.display()
    );
    Ok(code)
}

/// Part of the message for a script whose profile covers only the programs that the script starts.
pub(super) const WRAPPER: &str = "is a script that becomes another program";

/// Prints one line for each caveat about a profile.
pub(super) fn say_caveats(caveats: &[Caveat]) {
    for caveat in caveats {
        eprintln!("steer: {}", caveat.text());
    }
}

/// Returns the exit code if a signal ended the recording before an instruction was recorded; `None` for other errors.
fn interrupted(error: &anyhow::Error) -> Option<ExitCode> {
    match error.downcast_ref()? {
        ProfileError::Interrupted { signal, .. } => {
            eprintln!("steer: {error}");
            Some(ExitCode::from(128 + *signal as u8))
        }
        _ => None,
    }
}

/// Writes a tabulated profile of a program, computed from the counters in a record.
fn tabulate_to_file(args: &Args) -> anyhow::Result<()> {
    let (Some(from), Some(program)) = (&args.from, &args.program) else {
        return Err(failure(
            Kind::Usage,
            "name the record with --from and the program in it with --program",
        ));
    };
    let mut profile = tabulate(&library::record(from)?, program)?;
    profile.name = args.name.clone().unwrap_or(profile.name);
    let output = args
        .output
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("{}.profile.toml", profile.name)));
    output::profile(&output, &profile)?;
    let types: Vec<&str> = profile.core.iter().map(|c| c.core_type.as_str()).collect();
    eprintln!(
        "steer: figures for {}; profile in {}",
        types.join(", "),
        output.display()
    );
    Ok(())
}

/// Records a program, and shows the number of recorded instructions next to a spinner.
pub(super) fn watched(mut options: ProfileOptions) -> anyhow::Result<Profiled> {
    let spinner = progress::spinner(&format!("recording {}", options.command[0]));
    let shown = spinner.clone();
    let what = options.command[0].clone();
    options.progress = Some(Box::new(move |instructions| {
        shown.set_message(format!(
            "recording {what}: {} M instructions",
            instructions / 1_000_000
        ));
        shown.tick();
    }));
    let recording = countersteer_profiler::profile(&options);
    spinner.finish_and_clear();
    Ok(recording?)
}

fn show(file: &Path, json: bool, plot: Option<&Path>) -> anyhow::Result<()> {
    let text = library::profile_text(file)?;
    let profile = library::profile(file)?;
    if let Some(path) = plot {
        write_atomically(path, profile_view::svg(&profile)?.as_bytes())?;
        eprintln!("steer: miss curve in {}", path.display());
    }
    match (&profile, json) {
        (Profile::Recorded(p), true) => print_json(p),
        (Profile::Tabulated(p), true) => print_json(p),
        (_, false) => {
            let mut shown = profile_view::text(&profile);
            if text.text.contains(SCHEMA) {
                shown += &counters::provenance(&Published::parse(&text.path, &text.text)?);
            }
            print(&shown)
        }
    }
}

/// Loads a workload with the profiles of its programs; prints warnings, e.g. about profiles of incomplete runs.
pub fn load_workload(name: &str) -> anyhow::Result<Loaded> {
    let mut loaded = plan::load(name, &record_cached)?;
    // A traced simulation executes the commands itself, so it needs them.
    for (program, profile) in &loaded.programs {
        if let (Some(command), Profile::Recorded(recorded)) = (&program.command, &**profile) {
            let live = Live::new(command.clone(), recorded.shape.threads);
            loaded.traces.0.push((Arc::clone(profile), Arc::new(live)));
        }
    }
    for warning in loaded.warnings() {
        eprintln!("steer: {warning}");
    }
    Ok(loaded)
}

/// Returns the profile of a command from the cache; records the command if there is none.
fn record_cached(name: Option<&str>, command: &[String]) -> anyhow::Result<Text> {
    let path = cache_path(name, command)?;
    if path.is_file() {
        return library::read(&path);
    }
    eprintln!("steer: recording `{}` at first use", command.join(" "));
    if let Some(dir) = path.parent() {
        make_folder(dir)?;
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
        return Err(failure(Kind::BadInput, why));
    }
    library::read(&path)
}

pub(super) fn file_name(program: &str) -> String {
    Path::new(program)
        .file_name()
        .map_or_else(|| "program".into(), |f| f.to_string_lossy().into_owned())
}

/// Returns the path of a command's cached profile. The file name depends on the command, the current folder, the size and time
/// of the program's file, and this program's version.
fn cache_path(name: Option<&str>, command: &[String]) -> anyhow::Result<PathBuf> {
    let cache = this_program::cache_folder().ok_or_else(|| {
        failure(
            Kind::Missing,
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
    fn counts_take_factors_and_refuse_nonsense() {
        assert_eq!(count("15"), Ok(15));
        assert_eq!(count("2G"), Ok(2_000_000_000));
        for bad in [
            "",
            "0",
            "M",
            "5X",
            "-1",
            "99999999999999999999",
            "18446744073709551615K",
        ] {
            assert!(count(bad).is_err(), "{bad}");
        }
    }

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
