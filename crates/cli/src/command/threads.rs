//! `steer threads`: number of threads of a program, and cores for them.

use std::process::ExitCode;

use countersteer_model::units::Nanos;
use countersteer_report::table::prose;

use super::{print, print_json};
use crate::args::HereArgs;
use crate::bench::threads::result::ThreadsResult;
use crate::bench::threads::{Searched, ThreadsSearch};
use crate::signals;
use crate::values::{percent, time};

/// Arguments of `steer threads`.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct ThreadsArgs {
    /// CPUs that candidates can use: `all`, the name of a core type or cache, or a list such as 0-3,8; repeatable
    #[arg(long, value_name = "CPUS", default_value = "all")]
    on: Vec<String>,
    /// Set an environment variable of the program; repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Chunking to try, as it replaces `{chunk}` in the command or --env; repeatable. Default: the OpenMP schedules static, dynamic,1,
    /// dynamic,64 and guided
    #[arg(long, value_name = "CHUNKING")]
    chunk: Vec<String>,
    /// Maximum number of candidates that the search runs; default: 8, with `{chunk}` 12
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=1000))]
    trials: Option<u64>,
    /// Number of unmeasured runs with all CPUs before the search
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=1000))]
    warmup: u64,
    /// Shell command that is executed before each run, outside the measured time
    #[arg(short, long, value_name = "COMMAND")]
    prepare: Option<String>,
    /// Number of rounds of the comparison with the default; default: at least 10, until the result is certain
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    repeat: Option<u64>,
    /// Start no new round of the comparison after this time
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "60s", conflicts_with = "repeat")]
    duration: Nanos,
    /// Equivalence margin: differences in speed up to this count as no difference
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "1")]
    margin: f64,
    /// Stop with an error if the program's output differs between runs of the search
    #[arg(long, conflicts_with = "show_output")]
    check_output: bool,
    /// Show the output of the program
    #[arg(long)]
    show_output: bool,
    /// List the candidates with the times that the model predicts, without running the program
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    here: HereArgs,
    /// Program and its arguments; `{threads}`, or the letter n in braces, stands for the number of threads
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Runs the command.
pub fn run(args: &ThreadsArgs) -> anyhow::Result<ExitCode> {
    let search = ThreadsSearch {
        command: args.command.clone(),
        on: args.on.clone(),
        env: args.env.clone(),
        chunk: args.chunk.clone(),
        trials: args.trials,
        warmup: args.warmup,
        prepare: args.prepare.clone(),
        repeat: args.repeat,
        duration: args.duration,
        margin: args.margin,
        check_output: args.check_output,
        show_output: args.show_output,
        machine: args.here.machine.clone(),
        seed: args.here.seed,
    };
    if args.dry_run {
        tell(args, &search.predict()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let Searched { findings, signal } = search.run()?;
    if let Some(findings) = &findings {
        tell(args, findings)?;
    }
    let reported = findings.is_some();
    Ok(signal.map_or(ExitCode::SUCCESS, |s| signals::said(s, reported)))
}

fn tell(args: &ThreadsArgs, findings: &ThreadsResult) -> anyhow::Result<()> {
    if args.json {
        return print_json(findings);
    }
    let mut text = findings.table();
    for sentence in findings.sentences() {
        text += &prose(&format!("{sentence}\n"));
    }
    print(&text)?;
    for warning in &findings.warnings {
        stderr_text!("{}", prose(&format!("steer: {warning}\n")));
    }
    Ok(())
}
