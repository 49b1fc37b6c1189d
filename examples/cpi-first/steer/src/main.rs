//! `steer` with one more policy.

use std::process::ExitCode;

fn main() -> ExitCode {
    countersteer_cli::steer(cpi_first::POLICIES)
}
