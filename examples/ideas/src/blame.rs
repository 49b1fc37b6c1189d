//! Slowdowns of programs by the program that causes them.

use countersteer::lab::blame::blame;
use countersteer::lab::{Experiment, plan};
use std::sync::Arc;

const WORKLOAD: &str = r#"
[[program]]
profile = "matmul"
threads = 1
[[program]]
profile = "stream"
threads = 1
[[program]]
profile = "gzip"
threads = 1
"#;

pub fn main() -> anyhow::Result<()> {
    let mut experiment = Experiment::named("core2-quad", "shared-caches", "linux")?;
    experiment.workload = Arc::new(plan::of_text("three", WORKLOAD.to_owned())?);
    experiment.options.rounds = 1;
    let found = blame(&experiment, 2, &[])?;
    for (victim, name) in found.programs.iter().enumerate() {
        print!("{name:<7} slowdown {:.2};", found.slowdown[victim]);
        for (cause, other) in found.programs.iter().enumerate() {
            if cause != victim {
                print!(" {:+.0} % by {other}", 100.0 * found.caused[victim][cause]);
            }
        }
        println!();
    }
    Ok(())
}
