//! `steer top --web`: a page with charts of the last intervals, on a loopback address.
//!
//! Input: lines of `steer top --json`, from a child process for each host, or recorded sessions. Output: the page, whose address
//! contains a random word, until Ctrl-C. `history` keeps the last intervals of a host, `source` starts the child processes, and
//! `service` answers the browser.

mod history;
mod service;
mod source;

use std::ffi::OsString;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use countersteer_model::units::Nanos;
use countersteer_report::html::live::Recorded;
use mio::net::TcpListener;

use crate::error::{Kind, failure};
use crate::serving::{Door, Listener, Server};
use crate::{interrupt, library};
use history::History;
use service::{Page, Shown};
use source::Source;

/// Name of this machine among the hosts.
const HERE: &str = ".";
/// Time between two looks for a signal.
const BEAT: Duration = Duration::from_millis(50);
/// Least time between two requests of the page.
const LEAST_PERIOD: Duration = Duration::from_millis(200);

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
    let (listener, address) = listen(args.port)?;
    let signalled = interrupt::flag()?;
    if !args.replay.is_empty() {
        let records: Vec<(String, Recorded)> = (args.replay.iter())
            .map(|path| recorded(path))
            .collect::<anyhow::Result<_>>()?;
        let _server = serve(listener, address, Shown::Recorded(records), LEAST_PERIOD)?;
        wait(&signalled);
        return Ok(ExitCode::SUCCESS);
    }
    let here = [HERE.to_owned()];
    let hosts = if args.host.is_empty() {
        here.as_slice()
    } else {
        args.host.as_slice()
    };
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words = words_of_child(&words, program);
    let mut sources = Vec::new();
    let mut histories = Vec::new();
    for host in hosts {
        let name = if host == HERE {
            this_host()
        } else {
            host.clone()
        };
        let history = Arc::new(Mutex::new(History::new(name, interval.as_secs_f64())));
        sources.push(Source::start(host, &words, Arc::clone(&history))?);
        histories.push(history);
    }
    let period = Duration::from_nanos(interval.0).max(LEAST_PERIOD);
    let _server = serve(listener, address, Shown::Live(histories), period)?;
    wait(&signalled);
    // All end at the same time.
    sources.iter().for_each(Source::interrupt);
    Ok(ExitCode::SUCCESS)
}

fn this_host() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/hostname");
    read.map_or_else(|_| "this machine".into(), |name| name.trim().to_owned())
}

fn recorded(path: &std::path::Path) -> anyhow::Result<(String, Recorded)> {
    let recorded = Recorded::of(&library::record(path)?);
    let shown = path.display();
    if recorded.measures.is_empty() {
        let why = format!(
            "{shown} has no counts; records of `steer stat` and `steer top` have, and `steer report` draws others"
        );
        return Err(failure(Kind::Usage, why));
    }
    Ok((shown.to_string(), recorded))
}

fn listen(port: u16) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let wanted = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let listener = TcpListener::bind(wanted).map_err(|why| match why.kind() {
        ErrorKind::AddrInUse => failure(
            Kind::Usage,
            format!("another program listens on {wanted}: name another --port, or none for any free port"),
        ),
        ErrorKind::PermissionDenied => failure(
            Kind::Missing,
            format!("you may not listen on {wanted}: name a --port of 1024 or more, or none for any free port"),
        ),
        _ => failure(Kind::Io, format!("cannot listen on {wanted}: {why}")),
    })?;
    let address = listener
        .local_addr()
        .context("cannot read the address of the page")?;
    Ok((listener, address))
}

/// Starts to serve the page, and prints its address to stderr.
fn serve(
    listener: TcpListener,
    address: SocketAddr,
    shown: Shown,
    period: Duration,
) -> anyhow::Result<Server> {
    let page = Page::new(address, shown, period)?;
    let url = page.url();
    let server = Server::start(vec![Door::new(Listener::Tcp(listener), Box::new(page))])?;
    eprintln!("steer: open {url} in a browser of this machine; Ctrl-C ends it");
    Ok(server)
}

fn wait(signalled: &std::sync::atomic::AtomicBool) {
    while !signalled.load(Ordering::Relaxed) {
        std::thread::sleep(BEAT);
    }
}

fn locked(history: &Mutex<History>) -> MutexGuard<'_, History> {
    // A panic of another thread leaves whole points, so the values are used like any others.
    history.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the arguments of the child process: those of this process without the options of the page, and with `--json`.
fn words_of_child(words: &[OsString], program: usize) -> Vec<OsString> {
    let (own, program) = words.split_at(words.len().saturating_sub(program));
    let (own, end): (&[OsString], &[OsString]) = match own {
        [own @ .., last] if last == "--" => (own, std::slice::from_ref(last)),
        _ => (own, &[]),
    };
    let mut kept = crate::remote::without(own, &OPTIONS);
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
