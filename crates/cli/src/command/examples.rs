//! The end of every `--help`: two examples, each of which is a command line that this program understands.

use clap::{Command, CommandFactory};

use super::Cli;

/// By subcommand, as they are typed after `steer`.
pub const EXAMPLES: &[(&str, [&str; 2])] = &[
    ("try", ["try -- ./a", "try --live -- ./a --fast -- ./b"]),
    (
        "profile",
        ["profile -o xz.json -- xz -c file", "profile show xz.json"],
    ),
    (
        "trace",
        [
            "trace record -o xz.trace -- xz -c file",
            "trace info xz.trace",
        ],
    ),
    ("mrc", ["mrc xz.json", "mrc xz.trace --json"]),
    (
        "stat",
        ["stat ls", "stat -i 100ms -m ipc,llc_mpki -- ./program"],
    ),
    ("top", ["top", "top -p 4711 -i 200ms"]),
    (
        "run",
        ["run -P hsf -- ./program", "run -P aarr -p 4711 --for 10s"],
    ),
    (
        "trial",
        [
            "trial -P hsf -p 4711 --until-decided",
            "trial -P 'nice -n 5' --by wall -- ./program",
        ],
    ),
    (
        "daemon",
        [
            "daemon --rules rules.toml",
            "daemon --rules rules.toml --list",
        ],
    ),
    ("ctl", ["ctl status", "ctl set policy=aarr"]),
    ("restore", ["restore", "restore --json"]),
    ("events", ["events", "events cache"]),
    ("doctor", ["doctor", "doctor --json"]),
    (
        "machine",
        ["machine show ryzen-7950x3d", "machine detect -o here.toml"],
    ),
    ("policy", ["policy list", "policy show hsf"]),
    ("workload", ["workload list", "workload show unequal-cores"]),
    (
        "sim",
        [
            "sim -m i9-12900k-8p8e -w unequal-cores -P hsf",
            "sim -m here.toml -w mix.toml -o run.rec",
        ],
    ),
    (
        "blame",
        [
            "blame -m core2-quad -w unequal-cores",
            "blame run.rec --instead mpi,joint --json",
        ],
    ),
    (
        "compare",
        [
            "compare -m ryzen-7950x3d -w shared-caches -P linux,contention",
            "compare -m here.toml -w mix.toml -P linux,hsf,best-static --seeds 5 --report out.html",
        ],
    ),
    (
        "sweep",
        [
            "sweep grid.toml -o results",
            "sweep grid.toml -o results --shard 0/8",
        ],
    ),
    ("reproduce", ["reproduce list", "reproduce pmctrack-fig8"]),
    (
        "report",
        [
            "report run.rec -o run.html",
            "report run.rec --perfetto -o run.pftrace",
        ],
    ),
    ("replay", ["replay run.rec", "replay run.rec --policy aarr"]),
    (
        "why",
        [
            "why run.rec --program xz --at 12",
            "why run.rec --program thread7 --at 0.5 --json",
        ],
    ),
];

/// The command line's definition, with examples.
pub fn command() -> Command {
    EXAMPLES
        .iter()
        .fold(Cli::command(), |cli, (name, [first, second])| {
            let text = format!("Examples:\n  steer {first}\n  steer {second}");
            cli.mut_subcommand(name, |c| c.after_help(text))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words as a shell takes them apart.
    fn words(line: &str) -> Vec<String> {
        let part = |(i, text): (usize, &str)| -> Vec<String> {
            if i % 2 == 1 {
                vec![text.to_owned()]
            } else {
                text.split_whitespace().map(str::to_owned).collect()
            }
        };
        line.split('\'').enumerate().flat_map(part).collect()
    }

    #[test]
    fn helps_end_with_two_examples_that_are_understood() {
        for (name, lines) in EXAMPLES {
            let cli = command();
            let sub = cli.find_subcommand(name).unwrap();
            let help = sub.get_after_help().unwrap().to_string();
            assert!(lines.iter().all(|line| help.contains(line)), "{help}");
        }
        for line in EXAMPLES.iter().flat_map(|(_, lines)| lines) {
            let all = std::iter::once("steer".to_owned()).chain(words(line));
            let parsed = command().try_get_matches_from(all);
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
    }
}
