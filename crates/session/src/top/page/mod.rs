//! Page with charts of the last intervals, on a loopback address.
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
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use countersteer_model::units::Nanos;
use countersteer_report::html::live::RecordedSession;
use countersteer_report::record::Record;
use mio::net::TcpListener;

use crate::error::{FaultKind, failure};
use crate::serving::{Door, Listener, Server};
use crate::{interrupt, library};
use history::HostHistory;
use service::{PageContents, PageService};
use source::LineSource;

/// Name of this machine among the hosts.
const HERE: &str = ".";
/// Time between two looks for a signal.
const BEAT: Duration = Duration::from_millis(50);
/// Least time between two requests of the page.
const LEAST_PERIOD: Duration = Duration::from_millis(200);

/// Page to serve.
#[derive(Clone, Debug)]
pub struct Charts {
    /// Port on 127.0.0.1; 0 for any free port.
    pub port: u16,
    /// Machines to show over ssh; `.` is this machine; empty for this machine alone.
    pub hosts: Vec<String>,
    /// Recorded sessions to show instead.
    pub replay: Vec<PathBuf>,
    /// Arguments of the child process that prints the values of a machine, `top --json` and more.
    pub words: Vec<OsString>,
    /// Length of an interval of the child process.
    pub interval: Nanos,
}

impl Charts {
    /// Serves the page until a signal that asks this process to end.
    ///
    /// # Errors
    /// The port cannot be used, a record has no counts, or a child process cannot be started.
    pub fn serve(&self) -> anyhow::Result<()> {
        let (listener, address) = listen(self.port)?;
        let signalled = interrupt::flag()?;
        if !self.replay.is_empty() {
            let records: Vec<(String, RecordedSession)> = (self.replay.iter())
                .map(|path| recorded(path))
                .collect::<anyhow::Result<_>>()?;
            let _server = serve(
                listener,
                address,
                PageContents::Recorded(records),
                LEAST_PERIOD,
            )?;
            wait(&signalled);
            return Ok(());
        }
        let here = [HERE.to_owned()];
        let hosts = if self.hosts.is_empty() {
            here.as_slice()
        } else {
            self.hosts.as_slice()
        };
        let mut sources = Vec::new();
        let mut histories = Vec::new();
        for host in hosts {
            let name = if host == HERE {
                this_host()
            } else {
                host.clone()
            };
            let history = HostHistory::new(name, self.interval.as_secs_f64());
            let history = Arc::new(Mutex::new(history));
            sources.push(LineSource::start(host, &self.words, Arc::clone(&history))?);
            histories.push(history);
        }
        let period = Duration::from_nanos(self.interval.0).max(LEAST_PERIOD);
        let _server = serve(listener, address, PageContents::Live(histories), period)?;
        wait(&signalled);
        // All end at the same time.
        sources.iter().for_each(LineSource::interrupt);
        Ok(())
    }
}

fn this_host() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/hostname");
    read.map_or_else(|_| "this machine".into(), |name| name.trim().to_owned())
}

fn recorded(path: &std::path::Path) -> anyhow::Result<(String, RecordedSession)> {
    let recorded = RecordedSession::of(&library::record_by(Record::load_for_report, path)?);
    let shown = path.display();
    if recorded.measures.is_empty() {
        let why = format!(
            "{shown} has no counts; records of `steer stat` and `steer top` have, and `steer report` draws others"
        );
        return Err(failure(FaultKind::Usage, why));
    }
    Ok((shown.to_string(), recorded))
}

fn listen(port: u16) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let wanted = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let listener = TcpListener::bind(wanted).map_err(|why| match why.kind() {
        ErrorKind::AddrInUse => failure(
            FaultKind::Usage,
            format!("another program listens on {wanted}: name another --port, or none for any free port"),
        ),
        ErrorKind::PermissionDenied => failure(
            FaultKind::Missing,
            format!("you may not listen on {wanted}: name a --port of 1024 or more, or none for any free port"),
        ),
        _ => failure(FaultKind::Io, format!("cannot listen on {wanted}: {why}")),
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
    shown: PageContents,
    period: Duration,
) -> anyhow::Result<Server> {
    let page = PageService::new(address, shown, period)?;
    let url = page.url();
    let server = Server::start(vec![Door::new(Listener::Tcp(listener), Box::new(page))])?;
    say!("open {url} in a browser of this machine; Ctrl-C ends it");
    Ok(server)
}

fn wait(signalled: &std::sync::atomic::AtomicBool) {
    while !signalled.load(Ordering::Relaxed) {
        std::thread::sleep(BEAT);
    }
}

fn locked(history: &Mutex<HostHistory>) -> MutexGuard<'_, HostHistory> {
    // A panic of another thread leaves whole points, so the values are used like any others.
    history.lock().unwrap_or_else(PoisonError::into_inner)
}
