//! `steer`: profile programs, simulate machines, compare schedulers, show why.
//!
//! stdout is data, stderr is log. Exit codes: see [`error::Kind`].

mod command;
mod counted;
mod error;
mod experiment;
mod library;
mod live_table;
mod online;
mod output;
mod plan;
mod progress;
mod remote;
mod session;
mod steering;
mod top;
mod virtuals;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    if command::internal::guarded() {
        return ExitCode::SUCCESS;
    }
    // A reader that stops reading (`steer ... | head`) ends the program quietly, as it does every other filter.
    countersteer_host::signals::default_sigpipe();
    let cli = command::Cli::parse();
    match command::dispatch(cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("steer: {}", error::paragraph(&error));
            ExitCode::from(error::Kind::of(&error) as u8)
        }
    }
}
