//! The `steer` program; the package's library implements it.

use std::process::ExitCode;

use countersteer_files::memory::Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    countersteer::steer(&[])
}
