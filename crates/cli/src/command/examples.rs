//! Examples at the end of every `--help`: two valid command lines for each command, from `examples.txt`.

use clap::{Command, CommandFactory};

use super::Cli;

/// Returns each command or subcommand with the lines of its examples.
fn examples() -> impl Iterator<Item = (&'static str, &'static str)> {
    let blocks = include_str!("examples.txt").split("\n\n");
    blocks.filter_map(|block| block.trim_end().split_once('\n'))
}

/// Returns the definition of the command line, with the examples.
pub fn command() -> Command {
    examples().fold(Cli::command(), |cli, (path, lines)| {
        with_help(cli, path, format!("Examples:\n{lines}"))
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
            .filter(|path| examples().all(|(name, _)| name != path))
            .collect();
        assert!(missing.is_empty(), "without examples: {missing:?}");
    }

    #[test]
    fn helps_end_with_two_examples_that_are_understood() {
        for (path, lines) in examples() {
            let cli = command();
            let sub = path
                .split(' ')
                .fold(&cli, |c, part| c.find_subcommand(part).unwrap());
            let help = sub.get_after_help().unwrap().to_string();
            assert_eq!(help, format!("Examples:\n{lines}"));
            assert_eq!(lines.lines().count(), 2, "{path}");
            for line in lines.lines() {
                assert!(line.starts_with("  steer "), "{line}");
                let parsed = command().try_get_matches_from(words(line));
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            }
        }
    }
}
