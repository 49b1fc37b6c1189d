//! `steer manual`: shell completions and manual pages, from the same definitions as the commands.

use clap_complete::Shell;

use super::print_raw;

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Completions for this shell; the manual page when absent
    #[arg(long)]
    completions: Option<Shell>,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut command = super::command();
    let mut out = Vec::new();
    match args.completions {
        Some(shell) => clap_complete::generate(shell, &mut command, "steer", &mut out),
        None => clap_mangen::Man::new(command).render(&mut out)?,
    }
    print_raw(&String::from_utf8_lossy(&out))
}
