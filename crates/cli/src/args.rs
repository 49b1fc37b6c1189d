//! Command-line arguments that several commands share. Each flag has one spelling, defined here.
//!
//! A renamed flag keeps its former name as a hidden alias, unless the command uses that name otherwise.

use std::path::PathBuf;

use countersteer_model::units::Nanos;

use crate::bpf::Bpf;
use crate::live::Targets;
use crate::steering::engine::EngineName;
use crate::steering::here::SteeredMachine;
use crate::values::{pid, time};

/// Flags that select the events and metrics to count; `stat` and `top` have them.
#[derive(Debug, clap::Args)]
pub struct EventArgs {
    /// Event set: events that are counted together; several -e are multiplexed, one set per interval
    #[arg(short, long = "event", value_name = "EVENTS")]
    pub events: Vec<String>,
    /// Metrics by name or formula, e.g. ipc,llc_mpki,page_faults/seconds; the events of one -m form an event set
    #[arg(short, long = "metric", value_name = "METRICS")]
    pub metrics: Vec<String>,
    /// File of additional metrics, in the format of `metrics/`
    #[arg(long, value_name = "FILE")]
    pub metric_file: Vec<PathBuf>,
    /// Folder of vendors' event lists (JSON in Intel's perfmon format); default: ~/.local/share/countersteer/events
    #[arg(long, value_name = "DIR")]
    pub event_lists: Option<PathBuf>,
    /// Virtual counters, read at the end of each interval: energy_j, llc_occupancy_bytes, temperature_c, sf, ... (`steer
    /// events` lists them); formulas of -m can contain them too
    #[arg(short, long = "virtual", value_name = "NAMES", value_delimiter = ',')]
    pub virtuals: Vec<String>,
    /// Monitoring module: a program that computes virtual counters from the counts of each interval; a path, or a name in
    /// ~/.local/share/countersteer/modules
    #[arg(long = "module", value_name = "PROGRAM")]
    pub modules: Vec<PathBuf>,
    /// Root folder below which the files of virtual counters are read
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    pub root: PathBuf,
    /// Counting method: BPF programs (less overhead; as root, or with CAP_BPF and CAP_PERFMON), or counters that new threads
    /// and processes inherit
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub bpf: Bpf,
}

/// Flags for the interval and the duration of a policy's decisions; `run` and `trial` have them.
#[derive(Debug, clap::Args)]
pub struct DecisionArgs {
    /// Time between decisions
    #[arg(short, long, alias = "period", value_name = "TIME", value_parser = time, default_value = "100ms")]
    pub interval: Nanos,
    /// Stop steering after TIME; started programs continue unsteered
    #[arg(long, alias = "for", value_name = "TIME", value_parser = time)]
    pub duration: Option<Nanos>,
    /// Measure percentiles of run-queue latency with BPF programs (root); without this option, only means from the kernel's
    /// sums are reported
    #[arg(long)]
    pub latency: bool,
}

impl DecisionArgs {
    /// Time from the start of the run to the end of steering; [`Nanos::NEVER`] if there is no limit.
    pub fn until(&self) -> Nanos {
        self.duration.unwrap_or(Nanos::NEVER)
    }
}

/// Flags for the engine that places threads; `run` and `daemon` have them.
#[derive(Debug, clap::Args)]
pub struct PlacingArgs {
    /// Engine that places threads
    #[arg(long, value_enum, default_value_t = EngineName::Auto)]
    pub engine: EngineName,
    /// Threshold of work stealing: an idle CPU takes a thread from a queue with more than N waiting threads; sched_ext
    /// scheduler only
    #[arg(long, value_name = "N")]
    pub steal_above: Option<u32>,
}

/// Flags for the machine and the random seed; `run`, `trial` and `daemon` have them.
#[derive(Debug, clap::Args)]
pub struct HereArgs {
    /// Use a machine file instead of the detected machine
    #[arg(short = 'M', long, value_name = "MACHINE")]
    pub machine: Option<String>,
    /// Random seed
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl HereArgs {
    /// Returns the detected machine, or the machine of the file that `--machine` names.
    pub fn look(&self) -> anyhow::Result<SteeredMachine> {
        SteeredMachine::look(self.machine.as_deref())
    }
}

/// Flags that select the programs to steer; exactly one of them is required.
#[derive(Debug, clap::Args)]
#[group(id = "whom", multiple = false, required = true)]
pub struct Whom {
    /// Workload file whose programs are commands
    #[arg(short, long, value_name = "WORKLOAD")]
    workload: Option<String>,
    /// PIDs of running processes to steer, with all their threads and child processes
    #[arg(
        short,
        long,
        alias = "attach",
        value_name = "PID",
        value_parser = pid,
        value_delimiter = ','
    )]
    pid: Vec<u32>,
    /// Path of a control group to steer, with all its current and future processes
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
    /// Program and its arguments
    #[arg(trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<String>,
}

impl Whom {
    /// Returns the selected programs or processes.
    pub fn targets(&self) -> Targets {
        match (&self.workload, &self.cgroup) {
            (Some(name), _) => Targets::Workload(name.clone()),
            (None, Some(folder)) => Targets::Cgroup(folder.clone()),
            (None, None) if !self.pid.is_empty() => Targets::Processes(self.pid.clone()),
            (None, None) => Targets::Command(self.command.clone()),
        }
    }

    /// Returns the command to start; `None` if a workload, processes or a cgroup were selected instead.
    pub fn command(&self) -> Option<&[String]> {
        (!self.command.is_empty()).then_some(&self.command)
    }
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command};

    use crate::command::command;

    /// Value names and the flag that takes each in every command.
    const VALUES: &[(&str, &str)] = &[
        ("EVENTS", "event"),
        ("MACHINE", "machine"),
        ("METRICS", "metric"),
        ("PID", "pid"),
        ("TID", "tid"),
        ("WORKLOAD", "workload"),
    ];

    /// Flags with one meaning in all commands, and their letters.
    const FLAGS: &[(&str, Option<char>)] = &[
        ("duration", None),
        ("event", Some('e')),
        ("interval", Some('i')),
        ("machine", Some('M')),
        ("metric", Some('m')),
        ("output", Some('o')),
        ("pid", Some('p')),
        ("policy", Some('P')),
        ("workload", Some('w')),
    ];

    /// Former names of flags; help shows none of them.
    const FORMER: &[&str] = &[
        "attach",
        "for",
        "period",
        "period-ms",
        "policies",
        "record",
        "records",
    ];

    /// Command lines with former names, which remain valid.
    const UNDERSTOOD: &[&str] = &[
        "run -P hsf --attach 1 --period 10ms --for 1s",
        "trial -P hsf --attach 1 --period 10ms --for 1s",
        "stat --for 1s -- true",
        "top --record run.rec --to printed -- true",
        "sim -m core2-quad -w mix.toml -p hsf --period-ms 10",
        "blame -m core2-quad -w mix.toml -p hsf",
        "compare -m core2-quad -w mix.toml -p hsf --records runs -v",
        "replay -p hsf run.rec",
        "try -m core2-quad --policies hsf --record 1s -- true",
        "mrc -m core2-quad a.json b.json",
        "daemon -r rules.toml",
    ];

    /// Every flag in help, with its command.
    fn flags(command: &Command, path: &str) -> Vec<(String, Arg)> {
        let mut found: Vec<_> = command
            .get_arguments()
            .filter(|flag| !flag.is_hide_set() && flag.get_long().is_some())
            .map(|flag| (path.to_owned(), flag.clone()))
            .collect();
        for inner in command.get_subcommands().filter(|c| !c.is_hide_set()) {
            found.extend(flags(inner, &format!("{path} {}", inner.get_name())));
        }
        found
    }

    fn all_flags() -> Vec<(String, Arg)> {
        let found = flags(&command(), "steer");
        assert!(found.len() > 150, "{}", found.len());
        found
    }

    /// Value name of a flag in help, without the suffix of lists.
    fn value(flag: &Arg) -> Option<String> {
        let name = flag.get_value_names()?.first()?;
        let takes_value = flag.get_action().takes_values();
        takes_value.then(|| name.trim_end_matches(",...").to_owned())
    }

    /// Commands whose letters are those of another tool that users know: hyperfine.
    const HABITS: &[&str] = &["steer bench", "steer threads"];

    #[test]
    fn a_flag_has_the_same_letter_in_every_command() {
        for (path, flag) in all_flags() {
            let long = flag.get_long().unwrap_or_default();
            assert!(!FORMER.contains(&long), "{path} --{long} is a former name");
            if let Some((_, letter)) = FLAGS.iter().find(|(name, _)| *name == long) {
                assert_eq!(flag.get_short(), *letter, "{path} --{long}");
            }
        }
    }

    #[test]
    fn a_letter_stands_for_the_same_flag_in_every_command() {
        let mut known = std::collections::BTreeMap::new();
        let own = |(path, _): &(String, Arg)| !HABITS.contains(&path.as_str());
        for (path, flag) in all_flags().into_iter().filter(own) {
            let (Some(letter), Some(long)) = (flag.get_short(), flag.get_long()) else {
                continue;
            };
            let (first, place) = known
                .entry(letter)
                .or_insert_with(|| (long.to_owned(), path.clone()));
            assert_eq!(*first, long, "-{letter} of {path} and of {place}");
        }
    }

    #[test]
    fn a_value_is_given_by_the_same_flag_in_every_command() {
        for (path, flag) in all_flags() {
            let Some(value) = value(&flag) else {
                continue;
            };
            if let Some((_, long)) = VALUES.iter().find(|(name, _)| *name == value) {
                assert_eq!(flag.get_long(), Some(*long), "{path} takes {value}");
            }
        }
    }

    #[test]
    fn a_flag_takes_the_same_value_in_every_command() {
        for (path, flag) in all_flags() {
            let long = flag.get_long().unwrap_or_default();
            if let Some((expected, _)) = VALUES.iter().find(|(_, name)| *name == long) {
                assert_eq!(value(&flag).as_deref(), Some(*expected), "{path} --{long}");
            }
        }
    }

    #[test]
    fn former_names_are_understood() {
        for line in UNDERSTOOD {
            let words = ["steer"].into_iter().chain(line.split(' '));
            if let Err(error) = command().try_get_matches_from(words) {
                panic!("steer {line}: {error}");
            }
        }
    }
}
