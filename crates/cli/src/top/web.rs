//! `steer top --web`: a page with charts of the last intervals.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use countersteer_model::units::Nanos;
use countersteer_session::remote;
use countersteer_session::top::page::Charts;

/// Arguments of the page.
#[derive(Debug, clap::Args)]
pub struct WebArgs {
    /// Show charts on a page, which only this machine's browsers can read, instead of a table
    #[arg(long)]
    pub web: bool,
    /// Port of the page on 127.0.0.1; default: any free port
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 0,
        hide_default_value = true,
        requires = "web"
    )]
    port: u16,
    /// Machine to show over ssh, as often as there are machines; steer must be in the PATH there; `.` is this machine
    #[arg(long, value_name = "USER@MACHINE", requires = "web")]
    host: Vec<String>,
    /// Recorded session to show again, as often as there are records, instead of what runs now
    #[arg(
        long,
        value_name = "RECORD",
        requires = "web",
        conflicts_with_all = ["whom", "host", "output", "samples"]
    )]
    replay: Vec<PathBuf>,
}

/// Options of the page with their values, which a child process does not get. The second is true for an option with a value.
const OPTIONS: [(&str, bool); 4] = [
    ("--web", false),
    ("--port", true),
    ("--host", true),
    ("--json", false),
];

/// Shows the page until Ctrl-C, or until the page cannot be served. `program` is the number of words of the program to start.
pub fn run(args: &WebArgs, interval: Nanos, program: usize) -> anyhow::Result<ExitCode> {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let charts = Charts {
        port: args.port,
        hosts: args.host.clone(),
        replay: args.replay.clone(),
        words: words_of_child(&words, program),
        interval,
    };
    charts.serve().map(|()| ExitCode::SUCCESS)
}

/// Returns the arguments of the child process: those of this process without the options of the page, and with `--json`.
fn words_of_child(words: &[OsString], program: usize) -> Vec<OsString> {
    let (own, program) = words.split_at(words.len().saturating_sub(program));
    let (own, end): (&[OsString], &[OsString]) = match own {
        [own @ .., last] if last == "--" => (own, std::slice::from_ref(last)),
        _ => (own, &[]),
    };
    let mut kept = remote::without(own, &OPTIONS);
    kept.push("--json".into());
    kept.extend(end.iter().chain(program).cloned());
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_gets_all_but_the_options_of_the_page() {
        let child = |words: &[&str], program| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            let child = words_of_child(&words, program);
            child.join(&OsString::from(" ")).into_string().unwrap()
        };
        assert_eq!(
            child(
                &[
                    "top", "--web", "--port", "8", "-i", "1s", "--", "x", "--web"
                ],
                2
            ),
            "top -i 1s --json -- x --web"
        );
        assert_eq!(
            child(
                &[
                    "top", "--host=a", "--json", "--host", "b", "--web", "-p", "7"
                ],
                0
            ),
            "top -p 7 --json"
        );
    }
}
