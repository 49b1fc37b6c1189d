//! `steer` as it comes: see the library of this package.

use std::process::ExitCode;

use countersteer_files::memory::Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    countersteer::steer(&[])
}
