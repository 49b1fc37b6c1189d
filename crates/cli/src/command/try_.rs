//! `steer try`: records programs, simulates them on this machine under every applicable policy, and recommends a policy.

mod recording;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use countersteer_lab::error::{Kind, failure};
use countersteer_lab::{Finished, LoadedMachine, SimOptions, Sweep, experiment, probe};
use countersteer_model::units::Nanos;
use countersteer_policies::reach;
use countersteer_profiler::quoted;
use countersteer_report::html::{Axis, ReportInput};
use countersteer_report::judge::{Facts, Ranking, Verdict, judge};
use countersteer_report::record::Detail;
use countersteer_report::table::{self, CompareRun};

use self::recording::{Recorded, record, workload};
use super::{print, print_json};
use crate::interrupt::{self, Temporary};
use crate::values::time;
use crate::{library, output, progress};

const LINUX: &str = "linux";

/// Arguments of `steer try`, which recommends a policy for programs on this machine, with the expected gain.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Machine to simulate, instead of this one: name or file
    #[arg(short = 'M', short_alias = 'm', long, value_name = "MACHINE")]
    machine: Option<String>,
    /// Policies to try, separated by commas; default: all applicable policies
    #[arg(
        short = 'P',
        long = "policy",
        alias = "policies",
        value_name = "POLICY,...",
        value_delimiter = ','
    )]
    policies: Vec<String>,
    /// Maximum recording time of each program; recording slows a program about 15 times
    #[arg(long, alias = "record", value_name = "TIME", value_parser = time, default_value = "20s")]
    duration: Nanos,
    /// Simulate with seeds 1 to N
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: u64,
    /// Include programs that exit with an error
    #[arg(long)]
    ignore_failure: bool,
    /// Confirm the recommendation with real runs, which alternate between Linux and the best policy
    #[arg(long, conflicts_with = "machine")]
    live: bool,
    /// Write a self-contained HTML report
    #[arg(long, value_name = "OUT.html")]
    report: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Programs with their arguments, separated by `--`
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    commands: Vec<String>,
}

/// Runs `steer try`.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    interrupt::listen()?;
    let commands = split(&args.commands)?;
    let machine = machine(args.machine.as_deref())?;
    let policies = policies(args, &machine);
    if policies.len() == 1 {
        return nothing_to_do(args, &machine);
    }
    let scratch = Temporary::folder("try")?;
    let tried = attempt(args, &commands, machine, policies, scratch.path())?;
    if let Some(path) = &args.report {
        let machine = &tried.machine.machine.name;
        let input = ReportInput {
            title: format!("{} programs on {machine}", tried.recorded.len()),
            runs: &tried.runs,
            records: (tried.finished.iter())
                .filter_map(|f| f.record.as_ref())
                .collect(),
            axis: Axis::default(),
            facts: tried.facts.clone(),
        };
        output::report(path, &input)?;
    }
    let Tried {
        rankings,
        recorded,
        machine,
        ..
    } = &tried;
    tell(args, &commands, rankings, recorded, machine)?;
    let promises = |r: &&Ranking| {
        !matches!(
            r.verdict,
            Verdict::LeaveToLinux | Verdict::TooShort | Verdict::NoBaseline
        )
    };
    let promising = rankings.first().filter(promises);
    match promising.and_then(Ranking::best).filter(|_| args.live) {
        Some(best) => confirm(&best.policy, &commands),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Ranks the default policies for one program on a machine. Returns `None` if no policy can act there.
///
/// # Errors
/// The program cannot be recorded, or fails.
pub fn ranking(
    command: &[String],
    machine: &Arc<LoadedMachine>,
    duration: Nanos,
    seeds: u64,
) -> anyhow::Result<Option<Ranking>> {
    interrupt::listen()?;
    let args = Args {
        machine: None,
        policies: Vec::new(),
        duration,
        seeds,
        ignore_failure: false,
        live: false,
        report: None,
        json: false,
        commands: Vec::new(),
    };
    let policies = policies(&args, machine);
    if policies.len() == 1 {
        return Ok(None);
    }
    let scratch = Temporary::folder("try")?;
    let commands = [command.to_vec()];
    let tried = attempt(
        &args,
        &commands,
        Arc::clone(machine),
        policies,
        scratch.path(),
    )?;
    Ok(tried.rankings.into_iter().next())
}

/// Recorded programs, with their simulations and the ranking of the policies.
struct Tried {
    machine: Arc<LoadedMachine>,
    recorded: Vec<Recorded>,
    finished: Vec<Finished>,
    runs: Vec<CompareRun>,
    facts: Facts,
    rankings: Vec<Ranking>,
}

/// Records the programs and simulates them together under all policies.
fn attempt(
    args: &Args,
    commands: &[Vec<String>],
    machine: Arc<LoadedMachine>,
    policies: Vec<String>,
    scratch: &Path,
) -> anyhow::Result<Tried> {
    let recorded = record(args, commands, scratch)?;
    let workload = Arc::new(workload(scratch, &recorded)?);
    let sweep = Sweep {
        machines: vec![Arc::clone(&machine)],
        workloads: vec![workload],
        policies,
        seeds: args.seeds,
        options: SimOptions::default(),
    };
    sweep.check()?;
    let experiments = sweep
        .experiments(|seed| (args.report.is_some() && seed == 1).then_some(Detail::Everything));
    let bar = progress::bar(experiments.len() as u64, "simulating");
    let finished = experiment::run_all(&experiments, &|| bar.inc(1));
    bar.finish_and_clear();
    let finished = finished?;
    let scored = experiments.iter().zip(&finished);
    let runs: Vec<CompareRun> = scored.map(|(e, f)| e.scored(f)).collect();
    let facts = probe::facts(&sweep, &runs)?;
    let rankings = judge(&runs, &facts);
    Ok(Tried {
        machine,
        recorded,
        finished,
        runs,
        facts,
        rankings,
    })
}

/// Loads a machine by name or file, or detects this machine if `name` is `None`. Adds the trained models.
///
/// # Errors
/// The machine does not exist, or this machine cannot be detected.
pub fn machine(name: Option<&str>) -> anyhow::Result<Arc<LoadedMachine>> {
    name.map_or_else(here, library::loaded)
}

/// Detects this machine and adds its trained models.
fn here() -> anyhow::Result<Arc<LoadedMachine>> {
    let machine = countersteer_sysfs::topology::detect(Path::new("/"))?;
    library::with_models(machine, None)
}

/// Splits the command line into commands at `--`; returns an error if a command is empty or its program does not exist.
fn split(words: &[String]) -> anyhow::Result<Vec<Vec<String>>> {
    let commands: Vec<Vec<String>> = words.split(|w| w == "--").map(<[String]>::to_vec).collect();
    if commands.iter().any(Vec::is_empty) {
        return Err(failure(
            Kind::Usage,
            "a program is missing next to `--`: steer try -- ./a -- ./b",
        ));
    }
    for command in &commands {
        countersteer_sysfs::launch::find_program(command)?;
    }
    Ok(commands)
}

/// Returns `linux` and the policies that can act on this machine: the requested ones, or by default those applicable to the
/// machine.
fn policies(args: &Args, machine: &LoadedMachine) -> Vec<String> {
    let useful = |p: &String| p != LINUX && reach::idle_on(p, &machine.topology).is_none();
    let mut found: Vec<String> = match args.policies.as_slice() {
        [] if reach::is_uniform(&machine.topology) => Vec::new(),
        [] => reach::shelf(&machine.topology).policies,
        asked => asked.to_vec(),
    };
    found.retain(useful);
    // Policies that only a simulator can run show gains that no machine can reach, so they are not simulated without others.
    if found.iter().all(|p| reach::simulator_only(p)) {
        found.clear();
    }
    found.insert(0, LINUX.into());
    found
}

fn nothing_to_do(args: &Args, machine: &LoadedMachine) -> anyhow::Result<ExitCode> {
    let name = &machine.machine.name;
    let said = format!(
        "Leave these to Linux: on {name} all cores are alike and share one last-level cache, so no policy has anything to do. \
         Nothing was recorded; `-P POLICY` simulates a policy anyway."
    );
    if args.json {
        let json = serde_json::json!({ "rankings": [], "verdict": said });
        return print_json(&json).map(|()| ExitCode::SUCCESS);
    }
    print(&table::prose(&said))?;
    Ok(ExitCode::SUCCESS)
}

fn tell(
    args: &Args,
    commands: &[Vec<String>],
    rankings: &[Ranking],
    recorded: &[Recorded],
    machine: &LoadedMachine,
) -> anyhow::Result<()> {
    if args.json {
        let verdict: Vec<String> = rankings.iter().map(Ranking::sentence).collect();
        return print_json(
            &serde_json::json!({ "rankings": rankings, "verdict": verdict.join(" ") }),
        );
    }
    let mut text = String::new();
    let partial: Vec<&str> = recorded
        .iter()
        .filter(|r| r.partial)
        .map(|r| r.name.as_str())
        .collect();
    if !partial.is_empty() {
        text += &table::prose(&format!(
            "Judged by their first seconds, as if they went on like that: {}. --duration records more of them.\n",
            partial.join(", ")
        ));
    }
    if args.policies.is_empty() {
        text += &table::prose(&(left_out(machine) + "\n"));
    }
    text += &table::ranking(rankings);
    if let Some(next) = next_step(args, commands, rankings, machine) {
        text += &next;
    }
    print(&text)
}

/// Returns a sentence with the policies that were not simulated, and the reasons.
fn left_out(machine: &LoadedMachine) -> String {
    let mut by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (policy, why) in reach::shelf(&machine.topology).left_out {
        by_reason.entry(why).or_default().push(policy);
    }
    let reasons = by_reason
        .iter()
        .map(|(why, policies)| format!("{} ({why})", policies.join(", ")));
    let reasons: Vec<String> = reasons.collect();
    format!("Left out: {}.", reasons.join("; "))
}

/// Returns the recommended commands, one per line; `None` if there is no recommendation.
fn next_step(
    args: &Args,
    commands: &[Vec<String>],
    rankings: &[Ranking],
    machine: &LoadedMachine,
) -> Option<String> {
    let best = rankings
        .first()
        .filter(|r| r.verdict == Verdict::Use)?
        .best()?;
    let file = args.machine.as_ref();
    let is_here = file.is_none() || is_this_one(machine);
    is_here.then(|| to_type(&best.policy, file, commands))
}

/// Returns command lines that run the programs under a policy, or that confirm the policy's gain.
fn to_type(policy: &str, file: Option<&String>, commands: &[Vec<String>]) -> String {
    let programs = commands.iter().map(|command| quoted(command));
    let programs = programs.collect::<Vec<_>>().join(" -- ");
    let mut text = String::new();
    if commands.len() == 1 {
        let machine = file.map(|file| format!("--machine {} ", quoted(std::slice::from_ref(file))));
        let machine = machine.unwrap_or_default();
        text += &format!("Run it with:\n    steer run {machine}-P {policy} -- {programs}\n");
    }
    if file.is_none() {
        text += &format!("Confirm it:\n    steer try --live -- {programs}\n");
    }
    text
}

/// Returns true if a machine has the same CPUs as the local machine.
fn is_this_one(machine: &LoadedMachine) -> bool {
    let online = countersteer_sysfs::files::online(Path::new("/"));
    online.is_some_and(|online| {
        machine
            .machine
            .os_cpu_numbers()
            .into_iter()
            .eq(online.iter())
    })
}

/// Compares the policy with Linux in real runs, and returns the exit code.
fn confirm(policy: &str, commands: &[Vec<String>]) -> anyhow::Result<ExitCode> {
    eprintln!("steer: running the programs for real, alternately under linux and {policy}");
    super::trial::whole_runs(policy, commands)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_and_this_program_understand_what_is_to_be_typed() {
        let program = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect();
        let odd: Vec<String> = program(&["sh", "-c", "echo \"it's\" $x; exit 3", "", "-P"]);
        let file = "my machine.toml".to_owned();
        let texts = [
            to_type("hsf:sf=steps", None, std::slice::from_ref(&odd)),
            to_type("joint", None, &[odd.clone(), program(&["true"])]),
            to_type("aarr", Some(&file), std::slice::from_ref(&odd)),
        ];
        let mut typed = 0;
        for line in texts.iter().flat_map(|text| text.lines()) {
            let Some(line) = line.strip_prefix("    ") else {
                continue;
            };
            let script = format!("steer() {{ printf '%s\\0' steer \"$@\"; }}; {line}");
            let mut shell = std::process::Command::new("sh");
            let words = shell.args(["-c", &script]).output().unwrap().stdout;
            let words = words.strip_suffix(b"\0").unwrap();
            let words = words
                .split(|byte| *byte == 0)
                .map(|w| String::from_utf8(w.to_vec()).unwrap());
            let words: Vec<std::ffi::OsString> = words.map(Into::into).collect();
            assert!(
                odd.iter().all(|word| words.contains(&word.into())),
                "{line}"
            );
            assert!(crate::command::parse(&words).is_ok(), "{line}");
            typed += 1;
        }
        assert_eq!(typed, 4);
    }

    #[test]
    fn programs_are_apart_by_dashes_and_distinguished_by_numbers() {
        let words = ["true", "-x", "--", "true", "--", "sh", "-c", "exit"].map(str::to_owned);
        let commands = split(&words).unwrap();
        assert_eq!(commands.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1, 3]);
        let names: Vec<String> = (0..3)
            .map(|nth| recording::name_of(&commands, nth))
            .collect();
        assert_eq!(names, ["true", "true-2", "sh"]);
        assert!(split(&["true".to_owned(), "--".to_owned()]).is_err());
    }
}
