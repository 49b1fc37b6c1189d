//! Examples at the end of every `--help`: two valid command lines for each command.

use clap::{Command, CommandFactory};

use super::Cli;

/// Two examples for each command and subcommand, without the leading `steer`.
pub const EXAMPLES: &[(&str, [&str; 2])] = &[
    ("try", ["try -- ./a", "try --live -- ./a --fast -- ./b"]),
    ("auto", ["auto -- ./program", "auto list"]),
    ("auto list", ["auto list", "auto list --json"]),
    ("auto forget", ["auto forget xz", "auto forget --all"]),
    (
        "auto export",
        [
            "auto export verdicts.json",
            "auto export /tmp/verdicts.json",
        ],
    ),
    (
        "auto import",
        [
            "auto import verdicts.json",
            "auto import /tmp/verdicts.json",
        ],
    ),
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
    (
        "mrc",
        [
            "mrc xz.trace",
            "mrc -M core2-quad --sizes 1M,4M xz.json gcc.json",
        ],
    ),
    (
        "stat",
        ["stat ls", "stat -i 100ms -m ipc,llc_mpki -- ./program"],
    ),
    ("top", ["top", "top -p 4711 -i 200ms"]),
    (
        "run",
        [
            "run -P hsf -- ./program",
            "run -P aarr -p 4711 --duration 10s",
        ],
    ),
    (
        "trial",
        [
            "trial -P hsf -p 4711 --until-decided",
            "trial -P 'nice -n 5' --by wall -- ./program",
        ],
    ),
    (
        "bench",
        [
            "bench --on each -- ./program",
            "bench --compare './a --fast' './b'",
        ],
    ),
    (
        "threads",
        [
            "threads -- ./program -t {threads}",
            "threads --env OMP_NUM_THREADS={threads} -- ./program",
        ],
    ),
    (
        "daemon",
        [
            "daemon --rules rules.toml",
            "daemon --rules rules.toml --list",
        ],
    ),
    ("help", ["help stat", "help scores"]),
    (
        "manual",
        ["manual --completions bash", "manual --into manual"],
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
    (
        "workload",
        ["workload list", "workload import perf.data -o desktop.toml"],
    ),
    (
        "sim",
        [
            "sim -M i9-12900k-8p8e -w unequal-cores -P hsf",
            "sim -M here.toml -w mix.toml -o run.rec",
        ],
    ),
    (
        "blame",
        [
            "blame -M ryzen-7950x3d -w shared-caches",
            "blame run.rec --instead mpi,joint --json",
        ],
    ),
    (
        "partition",
        [
            "partition -M xeon-gold-6138 -w mix.toml",
            "partition -M ryzen-7950x3d -w shared-caches --json",
        ],
    ),
    (
        "compare",
        [
            "compare -M ryzen-7950x3d -w shared-caches -P linux,contention",
            "compare -M here.toml -w mix.toml -P linux,hsf,best-static --seeds 5 --report out.html",
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
            "why run.rec --program mcf-2006 --at 0.5 --json",
        ],
    ),
    ("model", ["model list", "model eval quickia-2b-2s"]),
    ("model list", ["model list", "model list --json"]),
    (
        "model show",
        ["model show model.toml", "model show model.toml --json"],
    ),
    (
        "model train",
        [
            "model train quickia-2b-2s -o models",
            "model train --from fast.rec slow.rec -o models",
        ],
    ),
    (
        "model rules",
        ["model rules", "model rules quickia-2b-2s -o models"],
    ),
    ("model eval", ["model eval", "model eval quickia-2b-2s"]),
    (
        "signature",
        [
            "signature make xz.trace -o xz.signature.json",
            "signature read /usr/bin/xz",
        ],
    ),
    (
        "signature make",
        [
            "signature make xz.trace -o xz.signature.json",
            "signature make small.json large.json --name xz",
        ],
    ),
    (
        "signature show",
        [
            "signature show xz.signature.json",
            "signature show xz.signature.json --json",
        ],
    ),
    (
        "signature compare",
        [
            "signature compare small.signature.json large.signature.json",
            "signature compare old.signature.json new.signature.json",
        ],
    ),
    (
        "signature embed",
        [
            "signature embed ./xz xz.signature.json",
            "signature embed ./xz xz.signature.json --inside -o xz-signed",
        ],
    ),
    (
        "signature read",
        ["signature read 4711", "signature read ./xz --json"],
    ),
    (
        "trace record",
        [
            "trace record -- xz -c file",
            "trace record --max-instructions 1G -o xz.trace -- xz -c file",
        ],
    ),
    (
        "trace info",
        ["trace info xz.trace", "trace info xz.trace --json"],
    ),
    (
        "trace import",
        [
            "trace import --format champsim mcf.champsim",
            "trace import --format champsim --name mcf -o mcf.trace -",
        ],
    ),
    (
        "profile show",
        ["profile show xz.json", "profile show mcf-2006"],
    ),
    (
        "profile check",
        [
            "profile check xz.json --cachegrind cachegrind.out",
            "profile check xz.json --cachegrind cachegrind.out --json",
        ],
    ),
    ("profile list", ["profile list", "profile list --json"]),
    (
        "profile import-counters",
        [
            "profile import-counters --ways metrics.csv --sizes XEON_SKL --events intfile.xls fpfile.xls -o profiles/published",
            "profile import-counters --ways metrics.csv --sizes XEON_SKL --events intfile.xls -o out --json",
        ],
    ),
    ("machine list", ["machine list", "machine list --json"]),
    (
        "machine show",
        [
            "machine show ryzen-7950x3d",
            "machine show --toml ryzen-7950x3d",
        ],
    ),
    (
        "machine import",
        [
            "machine import topology.xml",
            "machine import lscpu.json -o there.toml",
        ],
    ),
    (
        "machine detect",
        ["machine detect", "machine detect -o here.toml"],
    ),
    ("policy list", ["policy list", "policy list --json"]),
    (
        "policy show",
        ["policy show hsf", "policy show joint --json"],
    ),
    ("policy manual", ["policy manual", "policy show hsf"]),
    ("workload list", ["workload list", "workload list --json"]),
    (
        "workload show",
        [
            "workload show unequal-cores",
            "workload show mix.toml --json",
        ],
    ),
    (
        "workload import",
        [
            "workload import perf.data -o desktop.toml",
            "workload import game.json --profile stockfish --profile-of audio=lame",
        ],
    ),
    ("ctl list", ["ctl list", "ctl list --json"]),
    ("ctl status", ["ctl status", "ctl status --json"]),
    ("ctl get", ["ctl get", "ctl get --json"]),
    (
        "ctl set",
        ["ctl set policy=hsf:margin=0.1", "ctl set period=50ms"],
    ),
    ("ctl why", ["ctl why 4711", "ctl why 4711 --json"]),
];

/// Returns the definition of the command line, with the examples.
pub fn command() -> Command {
    EXAMPLES
        .iter()
        .fold(Cli::command(), |cli, (name, [first, second])| {
            let text = format!("Examples:\n  steer {first}\n  steer {second}");
            with_help(cli, name, text)
        })
}

/// Appends text to the help of a command. `path` is a command, or a command and subcommand separated by a blank.
fn with_help(cli: Command, path: &str, text: String) -> Command {
    match path.split_once(' ') {
        Some((first, rest)) => cli.mut_subcommand(first, |c| with_help(c, rest, text)),
        None => cli.mut_subcommand(path, |c| c.after_help(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Splits a line into words as a shell does.
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

    /// Paths of all visible commands, as typed after `steer`.
    fn all(of: &Command, before: &str) -> Vec<String> {
        let seen = of.get_subcommands().filter(|c| !c.is_hide_set());
        seen.flat_map(|c| {
            let path = format!("{before}{}", c.get_name());
            let below = all(c, &format!("{path} "));
            std::iter::once(path).chain(below).collect::<Vec<_>>()
        })
        .collect()
    }

    #[test]
    fn what_is_alike_has_one_name_in_all_commands() {
        for line in [
            "run -P hsf --pid 4711 --output a",
            "trial -P hsf --pid 4711 --output a",
            "stat --pid 4711 --output a",
            "top --pid 4711 --output a",
        ] {
            let all = std::iter::once("steer".to_owned()).chain(words(line));
            let parsed = command().try_get_matches_from(all);
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
    }

    #[test]
    fn no_command_lacks_examples() {
        let missing: Vec<String> = all(&command(), "")
            .into_iter()
            .filter(|path| EXAMPLES.iter().all(|(name, _)| name != path))
            .collect();
        assert!(missing.is_empty(), "without examples: {missing:?}");
    }

    #[test]
    fn helps_end_with_two_examples_that_are_understood() {
        for (name, lines) in EXAMPLES {
            let cli = command();
            let sub = name
                .split(' ')
                .fold(&cli, |c, part| c.find_subcommand(part).unwrap());
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
