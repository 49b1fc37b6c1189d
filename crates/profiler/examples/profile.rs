//! Profiles one program: a minimal user of this crate.
//!
//! `cargo run --release -p countersteer-profiler --example profile -- gzip -c FILE > /dev/null` writes `profile.json`.

use std::path::Path;
use std::process::ExitCode;

use countersteer_profiler::{Measure, ProfileOptions, profile, write};

fn main() -> ExitCode {
    let mut options = ProfileOptions::new(std::env::args().skip(1).collect());
    if std::env::var_os("EXACT").is_some() {
        options.measure = Measure::Reference;
    }
    let out = std::env::var("OUT").unwrap_or_else(|_| "profile.json".into());
    let done = profile(&options)
        .and_then(|recording| write(&recording.profile, Path::new(&out)).map(|()| recording));
    match done {
        Ok(recording) => {
            let mips = recording.instructions as f64 / 1e6 / recording.cpu_seconds;
            eprintln!(
                "{} instructions, {mips:.0} MIPS per CPU-second, {:?}",
                recording.instructions, recording.ending
            );
            ExitCode::from(recording.ending.code() as u8)
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
