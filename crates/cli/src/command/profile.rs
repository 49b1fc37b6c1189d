//! `steer profile`: records a program, measures a running one (`--online`), or shows a profile (`show`).

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use countersteer_live::online::counted::EVENTS;
use countersteer_model::profile::published::SCHEMA;
use countersteer_model::profile::{Caveat, Profile, Published};
use countersteer_model::units::Nanos;
use countersteer_profiler::{Measure, ProfileError, ProfileOptions, Profiled, ProgramEnding};
use countersteer_report::record::Record;
use countersteer_report::tabulate::tabulate;
use countersteer_report::{profile_view, write_atomically};
use countersteer_session::native::{Addresses, Native};

use super::{check, counters, online, print, print_json};
use crate::error::{FaultKind, failure};
use crate::library;
use crate::online::{Online, SqueezeMethod};
use crate::output;
use crate::progress;
use crate::recorded::{WRAPPER, file_name};
use crate::values::{pid, time};

/// Arguments of `steer profile`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ProfileArgs {
    #[command(subcommand)]
    show: Option<ProfileCommand>,
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
    /// With --from or --counters: name of the program in the record
    #[arg(long, value_name = "NAME")]
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
    by: Option<SqueezeMethod>,
    /// With --online: number of measurements per cache size
    #[arg(long, value_name = "N", default_value = "3", requires = "online", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// With --online: duration of a measurement, and of the wait before it
    #[arg(long, value_name = "TIME", default_value = "300ms", requires = "online", value_parser = time)]
    dwell: Nanos,
    /// With --online: events for instructions, cycles and misses
    #[arg(long, value_name = "EVENTS", default_value = EVENTS, hide = true)]
    counting: String,
    /// With --online: root folder that contains the machine's `sys`, for example a tree that imitates resctrl
    #[arg(long, value_name = "DIR", default_value = "/", requires = "online")]
    root: PathBuf,
    /// Profile the whole run at native speed: counters of a native run order the behaviours that the recorder finds in the first
    /// instructions. The program runs twice
    #[arg(long, conflicts_with_all = ["online", "from", "max_instructions", "sampled", "sysroot"])]
    native: bool,
    /// With --native: number of instructions to record (suffixes K, M, G)
    #[arg(long, value_name = "N", value_parser = count, default_value = "1G", requires = "native")]
    window: u64,
    /// With --native: record with the counts of an earlier run (`steer stat -o`); --program names the program in it
    #[arg(long, value_name = "RECORD", requires = "native")]
    counters: Option<PathBuf>,
    /// With --native: run the program once more and sample its data addresses, for reuse beyond the recorded instructions. Needs PEBS
    /// (Intel) or IBS (AMD)
    #[arg(long, requires = "native")]
    addresses: bool,
    /// With --addresses: event whose samples have data addresses, and number of events per sample
    #[arg(long, value_name = "EVENT[:N]", requires = "addresses", value_parser = sampled_event)]
    address_event: Option<Addresses>,
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
enum ProfileCommand {
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
    Check(check::CheckArgs),
    /// List the shipped profiles
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Make profiles of SPEC CPU programs from published tables of counters
    ImportCounters(counters::CountersArgs),
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
pub fn run(args: ProfileArgs) -> anyhow::Result<ExitCode> {
    if args.program.is_some() && args.from.is_none() && args.counters.is_none() {
        let why = "--program names a program in a record: give the record with --from, or with --native --counters";
        return Err(failure(FaultKind::Usage, why));
    }
    match args.show {
        Some(ProfileCommand::Show { file, json, plot }) => {
            show(&file, json, plot.as_deref()).map(|()| ExitCode::SUCCESS)
        }
        Some(ProfileCommand::Check(args)) => check::run(&args).map(|()| ExitCode::SUCCESS),
        Some(ProfileCommand::List { json }) => counters::list(json).map(|()| ExitCode::SUCCESS),
        Some(ProfileCommand::ImportCounters(args)) => {
            counters::import(args).map(|()| ExitCode::SUCCESS)
        }
        None if args.online => {
            let online = Online {
                pids: &args.pid,
                command: &args.command,
                by: args.by,
                rounds: args.rounds,
                dwell: args.dwell,
                name: args.name.as_deref(),
                events: &args.counting,
                root: &args.root,
            };
            online::run(&online, args.output.as_deref(), args.json)
        }
        None if args.from.is_some() => tabulate_to_file(&args).map(|()| ExitCode::SUCCESS),
        None if args.command.is_empty() => Err(failure(
            FaultKind::Usage,
            "name a program after `--`: steer profile -o FILE -- PROGRAM ARGS",
        )),
        None if args.native => native_to_file(&args).map(|()| ExitCode::SUCCESS),
        None => record_to_file(args),
    }
}

/// Parses an event to sample, with an optional number of events per sample.
fn sampled_event(text: &str) -> Result<Addresses, String> {
    let (event, period) = text.rsplit_once(':').unwrap_or((text, ""));
    let period = match period {
        "" => Addresses::default().period,
        number => count(number)?,
    };
    let event = Some(event.to_owned());
    Ok(Addresses { event, period })
}

/// Writes the profile of a whole native run.
fn native_to_file(args: &ProfileArgs) -> anyhow::Result<()> {
    let name = (args.name.clone()).unwrap_or_else(|| file_name(&args.command[0]));
    let output =
        (args.output.clone()).unwrap_or_else(|| PathBuf::from(format!("{name}.profile.json")));
    output::check_writable(&output)?;
    let counters = args.counters.clone();
    let native = Native {
        name: args.name.clone(),
        window: args.window,
        counters: counters.map(|record| (record, args.program.clone())),
        addresses: (args.addresses).then(|| args.address_event.clone().unwrap_or_default()),
        ..Native::new(args.command.clone())
    };
    let found = native.run()?;
    if let Some((sampled, octaves)) = &found.addresses {
        stderr_line!(
            "steer: {} of {} samples have an address, {} lines were watched; {octaves} octaves of stack distances are corrected",
            sampled.addresses,
            sampled.samples,
            sampled.watched.len()
        );
    }
    let found = found.extended;
    countersteer_profiler::write(&found.profile, &output)?;
    say_caveats(&found.profile.caveats);
    stderr_line!(
        "steer: {} instructions, {} behaviours in {} segments; {:.1} % of the instructions are unlike all that were recorded; profile in {}",
        found.profile.instructions,
        found.profile.behaviours.len(),
        found.profile.timeline.len(),
        100.0 * found.unlike,
        output.display()
    );
    Ok(())
}

fn record_to_file(args: ProfileArgs) -> anyhow::Result<ExitCode> {
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
        ProgramEnding::Exited(_) if args.ignore_failure => ExitCode::SUCCESS,
        ending => ExitCode::from(ending.code() as u8),
    };
    if let (true, Some(why)) = (args.whole, &p.partial) {
        stderr_line!("steer: the profile of `{}` is discarded: {why}", p.name);
        return Ok(code);
    }
    countersteer_profiler::write(p, &output)?;
    if recording.wrapper_instructions > 0 {
        stderr_line!(
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
    stderr_line!(
        "steer: {} instructions, {} behaviours in {} segments{note}; profile in {}",
        p.instructions,
        p.behaviours.len(),
        p.timeline.len(),
        output.display()
    );
    Ok(code)
}

/// Prints one line for each caveat about a profile.
pub(super) fn say_caveats(caveats: &[Caveat]) {
    for caveat in caveats {
        stderr_line!("steer: {}", caveat.text());
    }
}

/// Returns the exit code if a signal ended the recording before an instruction was recorded; `None` for other errors.
fn interrupted(error: &anyhow::Error) -> Option<ExitCode> {
    match error.downcast_ref()? {
        ProfileError::Interrupted { signal, .. } => {
            stderr_line!("steer: {error}");
            Some(ExitCode::from(128 + *signal as u8))
        }
        _ => None,
    }
}

/// Writes a tabulated profile of a program, computed from the counters in a record.
fn tabulate_to_file(args: &ProfileArgs) -> anyhow::Result<()> {
    let (Some(from), Some(program)) = (&args.from, &args.program) else {
        return Err(failure(
            FaultKind::Usage,
            "name the record with --from and the program in it with --program",
        ));
    };
    let mut profile = tabulate(&library::record_by(Record::load_samples, from)?, program)?;
    profile.name = args.name.clone().unwrap_or(profile.name);
    let output = args
        .output
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("{}.profile.toml", profile.name)));
    output::profile(&output, &profile)?;
    let types: Vec<&str> = profile.core.iter().map(|c| c.core_type.as_str()).collect();
    stderr_line!(
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
        stderr_line!("steer: miss curve in {}", path.display());
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
}
