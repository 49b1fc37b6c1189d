//! Results in `docs/benchmarks.md`: `cargo run --release -p countersteer-sim --example bench -- [NAME...] [MIXES]`.
//!
//! Each module prints one Markdown section; without names all run. A number is passed to benchmarks that take one. Times are CPU
//! times of this process.

mod auto;
mod brute_force;
mod closed_forms;
mod contention;
mod evidence;
mod forecast;
mod joint;
mod kernel;
mod mixes;
mod namesakes;
mod objectives;
mod runner;
mod short;
mod signatures;
mod silicon;
mod sleepers;
mod spec;
mod speed;
mod yardstick;

use std::error::Error;

/// A benchmark: its name, and the function that prints its section.
type Bench = (&'static str, fn() -> Result<(), Box<dyn Error>>);

/// Every benchmark.
const BENCHES: [Bench; 19] = [
    ("closed-forms", closed_forms::run),
    ("mixes", mixes::run),
    ("cmpschedsim-mix", contention::the_mix),
    ("contention", contention::run),
    ("joint", joint::run),
    ("forecast", forecast::run),
    ("brute-force", brute_force::run),
    ("auto", auto::run),
    ("objectives", objectives::run),
    ("short", short::run),
    ("signatures", signatures::run),
    ("silicon", silicon::run),
    ("namesakes", namesakes::run),
    ("sleepers", sleepers::run),
    ("spec", spec::run),
    ("yardstick", yardstick::run),
    ("evidence", evidence::run),
    ("kernel", kernel::run),
    ("speed", speed::run),
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut wanted: Vec<String> = std::env::args().skip(1).collect();
    wanted.retain(|w| w.parse::<u64>().is_err());
    if let Some(unknown) = wanted
        .iter()
        .find(|w| BENCHES.iter().all(|(name, _)| name != w))
    {
        return Err(format!("there is no benchmark `{unknown}`").into());
    }
    for (name, bench) in BENCHES {
        if wanted.is_empty() || wanted.iter().any(|w| w == name) {
            bench()?;
        }
    }
    Ok(())
}
