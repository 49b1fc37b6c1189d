//! `steer daemon`: steers the whole host with a policy, by rules.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use countersteer_model::printable::printable;
use countersteer_model::rules::Rules;

use crate::args::{HereArgs, PlacingArgs};
use crate::daemon::Daemon;
use crate::library;
use crate::steering::host::SteeringHost;

/// Steer the processes of this host that match a rules file, until stopped.
#[derive(Debug, clap::Args)]
pub struct DaemonArgs {
    /// Rules file: processes to steer, processes to exclude, and the policy
    #[arg(
        long,
        short_alias = 'r',
        value_name = "FILE",
        default_value = "/etc/countersteer/rules.toml"
    )]
    rules: PathBuf,
    /// Serve Prometheus metrics on this loopback address, e.g. 127.0.0.1:9190
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
    #[command(flatten)]
    placing: PlacingArgs,
    /// List the running processes that match the rules, and exit
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    here: HereArgs,
}

/// Runs the command.
pub fn run(args: &DaemonArgs) -> anyhow::Result<ExitCode> {
    let text = library::read(&args.rules).with_context(|| {
        let path = args.rules.display();
        format!(
            "{path} should list the processes to steer; share/countersteer/rules.toml is an example"
        )
    })?;
    let mut daemon = Daemon::new(&text.path, &text.text)?;
    if args.list {
        return list(daemon.rules);
    }
    daemon.engine = args.placing.engine;
    daemon.steal_above = args.placing.steal_above;
    daemon.metrics = args.metrics;
    daemon.machine.clone_from(&args.here.machine);
    daemon.seed = args.here.seed;
    // Without a service manager nothing listens; that is not a failure.
    daemon.ready = || {
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    };
    let code = daemon.run()?;
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    Ok(ExitCode::from(code))
}

/// Prints the processes that the rules cover now.
fn list(rules: Rules) -> anyhow::Result<ExitCode> {
    let found = SteeringHost::new(rules).find();
    let lines: Vec<_> = found.iter().map(|r| printable(&r.name)).collect();
    super::print(&lines.join("\n"))?;
    Ok(ExitCode::SUCCESS)
}
