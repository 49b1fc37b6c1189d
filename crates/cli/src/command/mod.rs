//! Subcommands of `steer`: one file and one variant of [`Command`] each.

pub mod auto;
pub mod bench;
pub mod blame;
mod check;
pub mod compare;
mod counters;
pub mod ctl;
pub mod daemon;
pub mod doctor;
#[cfg(test)]
mod documents;
pub mod events;
mod examples;
pub mod help;
pub mod internal;
pub mod machine;
pub mod manual;
pub mod model;
pub mod mrc;
mod online;
pub mod partition;
mod picture;
pub mod policy;
pub mod profile;
pub mod replay;
pub mod report;
pub mod reproduce;
pub mod restore;
pub mod run;
pub mod signature;
pub mod sim;
pub mod stat;
pub mod sweep;
pub mod threads;
pub mod top;
pub mod trace;
pub mod trial;
pub mod try_;
pub mod why;
pub mod workload;

use std::any::TypeId;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{FromArgMatches, Parser, Subcommand};
use countersteer_files::name;

/// Steers threads to the right cores, based on hardware counters.
///
/// Profile real programs, simulate machines, compare scheduling policies, and explain their decisions.
#[derive(Debug, Parser)]
#[command(
    name = "steer",
    version,
    max_term_width = 100,
    disable_help_subcommand = true
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Recommend a policy for programs on this machine
    ///
    /// Each program is run and recorded for its first seconds; its output is discarded. Then all programs together are simulated on
    /// this machine under every applicable policy. A program must run for at least one second, because a shorter one ends before a
    /// policy can act.
    Try(try_::TryArgs),
    /// Run a program under the best policy for this machine, determined once and stored
    ///
    /// A new program is recorded for its first seconds and simulated on this machine under every applicable policy, which takes
    /// about 20 s. It therefore starts twice, and its output appears twice. If no policy is recommended, the program runs without
    /// steering. Otherwise it runs in blocks of time that alternate between the policy and Linux. If the policy certainly makes
    /// the program slower, or no faster, Linux replaces the policy, and this verdict is stored.
    Auto(auto::AutoArgs),
    /// Profile a program, or show a profile
    Profile(profile::ProfileArgs),
    /// Trace a program's instructions and memory accesses; import and show traces
    #[command(subcommand)]
    Trace(trace::TraceArgs),
    /// Show the miss curve of a profile, a trace or a list of addresses
    Mrc(mrc::MrcArgs),
    /// Make, show and compare cache signatures of programs; attach them to binaries and read them from binaries
    #[command(subcommand)]
    Signature(signature::SignatureArgs),
    /// Count events of programs, processes, threads, CPUs or control groups
    Stat(Box<stat::StatArgs>),
    /// Show hardware metrics of threads, interval by interval
    ///
    /// On a terminal: q quits, h shows the other keys, c shows all columns and the reason for each empty one. With stdout in a file
    /// or pipe, a table is printed per interval. A started program has no input, its output goes to /dev/null unless --stdout names
    /// a file, and quitting ends it.
    Top(top::TopArgs),
    /// Run programs under a policy, or steer running processes
    Run(Box<run::RunArgs>),
    /// Compare a policy with Linux's own scheduler, or another policy, on live programs
    ///
    /// The policy and the baseline alternate in randomized blocks of time. The report gives each program's gain under the policy.
    Trial(Box<trial::TrialArgs>),
    /// Measure the run times of commands on chosen cores: medians, confidence intervals, and disturbances of the runs
    ///
    /// An arm is a command on a set of CPUs. Each round runs every arm once, in random order. The measured time is the elapsed time
    /// from the program's start to its exit. The output is discarded. If this machine can count instructions and cycles, each arm has
    /// one additional run, which is counted but not timed. Options that hyperfine also has work as in hyperfine. If the command is one
    /// word that contains blanks, `sh -c` runs it.
    Bench(Box<bench::BenchArgs>),
    /// Find how many threads a program should run with, and on which cores
    ///
    /// `{threads}` in the command, or in the value of an --env variable, stands for the number of threads; so does the letter n in
    /// braces. A candidate is a set of CPUs with one thread per CPU. The candidates differ in their fast and slow cores, SMT siblings
    /// and last-level caches. After each run, a model predicts the times of all candidates and selects the next one. At the end, the
    /// best candidates are compared with the default, all CPUs, in rounds of runs.
    Threads(Box<threads::ThreadsArgs>),
    /// Steer the processes of this host that match a rules file, until stopped
    Daemon(daemon::DaemonArgs),
    /// Query or reconfigure a running `run`, `trial` or `daemon`
    Ctl(ctl::CtlArgs),
    /// Undo changes to settings that a killed run left behind
    Restore(restore::RestoreArgs),
    /// List the events and metrics of this machine
    Events(events::EventsArgs),
    /// Report capabilities and limits of this machine, with remedies
    Doctor(doctor::DoctorArgs),
    /// List, show, import or detect machines
    #[command(subcommand)]
    Machine(machine::MachineArgs),
    /// List or show policies
    #[command(subcommand)]
    Policy(policy::PolicyArgs),
    /// List, show, train or evaluate models of speed-up and energy factors
    #[command(subcommand)]
    Model(model::ModelArgs),
    /// List or show workloads
    #[command(subcommand)]
    Workload(workload::WorkloadArgs),
    /// Simulate one workload on one machine under one policy, and write a record with -o
    Sim(sim::SimulateArgs),
    /// Compare policies over machines, workloads and seeds
    Compare(compare::CompareArgs),
    /// Run a grid of experiments of any size, in chunks; after a kill, continue with the unfinished chunks
    Sweep(sweep::SweepArgs),
    /// Show which program slows down which other program, by how much, and a placement or partition that prevents it
    Blame(blame::BlameArgs),
    /// Compute the best partition of a last-level cache among programs
    Partition(partition::PartitionArgs),
    /// Repeat the experiments of published papers, and compare the results
    Reproduce(reproduce::ReproduceArgs),
    /// Make an HTML report or a timeline from records
    Report(report::ReportArgs),
    /// Feed a record's observations to a policy and compare its decisions
    Replay(replay::ReplayArgs),
    /// Explain a thread's placement in a record
    Why(why::WhyArgs),
    /// Show the help of a command, or a page of the manual
    Help(help::HelpArgs),
    /// Print shell completions or the manual page
    Manual(manual::ManualArgs),
    /// Print shell completions, as `steer manual --completions SHELL` does
    #[command(hide = true)]
    Completions(manual::CompletionsArgs),
    /// Helper processes that `steer` starts itself
    #[command(subcommand, hide = true)]
    Internal(internal::InternalArgs),
}

pub use crate::output::{print, print_json, print_raw};
pub use examples::command;

/// Parses a command line whose first word is the program's name. The error may be a help text to print.
pub fn parse(words: &[OsString]) -> Result<Cli, clap::Error> {
    let words = words.iter().map(|word| name::escaped(word));
    Cli::from_arg_matches(&with_any_path(command()).try_get_matches_from(words)?)
}

/// Changes path arguments so that they accept any bytes, not only UTF-8. All words have been escaped before, because programs'
/// arguments and machine names are parsed as text but may be paths.
fn with_any_path(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| {
        if arg.get_value_parser().type_id() != TypeId::of::<PathBuf>() {
            return arg;
        }
        arg.value_parser(PathBufValueParser::new().map(|path| name::path(&path).into_owned()))
    });
    command.mut_subcommands(with_any_path)
}

/// Runs a command; returns the exit code of a program that the command started, otherwise success.
pub fn dispatch(cli: Cli) -> anyhow::Result<ExitCode> {
    let done = |result: anyhow::Result<()>| result.map(|()| ExitCode::SUCCESS);
    match cli.command {
        Command::Try(args) => try_::run(&args),
        Command::Auto(args) => auto::run(&args),
        Command::Profile(args) => profile::run(args),
        Command::Trace(args) => trace::run(args),
        Command::Mrc(args) => done(mrc::run(&args)),
        Command::Signature(args) => done(signature::run(&args)),
        Command::Stat(args) => stat::run(*args),
        Command::Top(args) => top::run(args),
        Command::Run(args) => run::run(&args),
        Command::Trial(args) => trial::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Threads(args) => threads::run(&args),
        Command::Daemon(args) => daemon::run(&args),
        Command::Ctl(args) => done(ctl::run(&args)),
        Command::Restore(args) => done(restore::run(&args)),
        Command::Events(args) => done(events::run(&args)),
        Command::Doctor(args) => done(doctor::run(&args)),
        Command::Machine(args) => done(machine::run(args)),
        Command::Policy(args) => done(policy::run(args)),
        Command::Model(args) => done(model::run(args)),
        Command::Workload(args) => done(workload::run(args)),
        Command::Sim(args) => done(sim::run(&args)),
        Command::Compare(args) => done(compare::run(&args)),
        Command::Sweep(args) => done(sweep::run(&args)),
        Command::Blame(args) => done(blame::run(&args)),
        Command::Partition(args) => done(partition::run(&args)),
        Command::Reproduce(args) => done(reproduce::run(&args)),
        Command::Report(args) => done(report::run(&args)),
        Command::Replay(args) => replay::run(&args),
        Command::Why(args) => done(why::run(&args)),
        Command::Help(args) => done(help::run(&args)),
        Command::Manual(args) => done(manual::run(&args)),
        Command::Completions(args) => done(manual::run(&args.into())),
        Command::Internal(args) => {
            internal::run(&args);
            Ok(ExitCode::SUCCESS)
        }
    }
}
