//! `steer` as it comes: see the library of this package.

use std::process::ExitCode;

fn main() -> ExitCode {
    countersteer::steer(&[])
}
