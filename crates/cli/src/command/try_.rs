//! `steer try`: records programs, simulates them on this machine under every applicable policy, and recommends a policy.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use countersteer_lab::LoadedMachine;
use countersteer_lab::error::{FaultKind, failure};
use countersteer_model::units::Nanos;
use countersteer_policies::reach;
use countersteer_profiler::quoted;
use countersteer_report::html::{Axis, ReportInput};
use countersteer_report::judge::{Ranking, Verdict};
use countersteer_report::table;
use countersteer_session::advice::{Advice, Advised};

use super::{print, print_json};
use crate::output;
use crate::signals;
use crate::values::time;

/// Arguments of `steer try`, which recommends a policy for programs on this machine, with the expected gain.
#[derive(Debug, clap::Args)]
pub struct TryArgs {
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
pub fn run(args: &TryArgs) -> anyhow::Result<ExitCode> {
    signals::listen()?;
    let commands = split(&args.commands)?;
    let advice = Advice {
        machine: args.machine.clone(),
        policies: args.policies.clone(),
        duration: args.duration,
        seeds: args.seeds,
        ignore_failure: args.ignore_failure,
        records: args.report.is_some(),
        ..Advice::new(commands.clone())
    };
    let prepared = advice.prepare()?;
    let machine = Arc::clone(&prepared.machine);
    let Some(advised) = prepared.run()? else {
        return nothing_to_do(args, &machine);
    };
    if let Some(path) = &args.report {
        let machine = &machine.machine.name;
        let input = ReportInput {
            title: format!("{} programs on {machine}", advised.recorded.len()),
            runs: &advised.runs,
            records: (advised.finished.iter())
                .filter_map(|f| f.record.as_ref())
                .collect(),
            axis: Axis::default(),
            facts: advised.facts.clone(),
        };
        output::report(path, &input)?;
    }
    tell(args, &commands, &advised)?;
    match advised.promising().filter(|_| args.live) {
        Some(best) => confirm(best, &commands),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Splits the command line into commands at `--`; returns an error if a command is empty or its program does not exist.
fn split(words: &[String]) -> anyhow::Result<Vec<Vec<String>>> {
    let commands: Vec<Vec<String>> = words.split(|w| w == "--").map(<[String]>::to_vec).collect();
    if commands.iter().any(Vec::is_empty) {
        return Err(failure(
            FaultKind::Usage,
            "a program is missing next to `--`: steer try -- ./a -- ./b",
        ));
    }
    for command in &commands {
        countersteer_sysfs::launch::find_program(command)?;
    }
    Ok(commands)
}

fn nothing_to_do(args: &TryArgs, machine: &LoadedMachine) -> anyhow::Result<ExitCode> {
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

fn tell(args: &TryArgs, commands: &[Vec<String>], advised: &Advised) -> anyhow::Result<()> {
    let Advised {
        rankings,
        recorded,
        machine,
        ..
    } = advised;
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
    args: &TryArgs,
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
    stderr_line!("steer: running the programs for real, alternately under linux and {policy}");
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
            .map(|nth| countersteer_session::advice::name_of(&commands, nth))
            .collect();
        assert_eq!(names, ["true", "true-2", "sh"]);
        assert!(split(&["true".to_owned(), "--".to_owned()]).is_err());
    }
}
