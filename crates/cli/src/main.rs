//! The `steer` program; the package's library implements it.

use std::process::ExitCode;

use countersteer_files::memory::{Allocator, guard};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    guard();
    countersteer_cli::steer(&[])
}
