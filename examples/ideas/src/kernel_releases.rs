//! Linux 6.12 and 7.2 on a machine with two last-level caches: the later one gathers the threads of a process by itself.

use std::sync::Arc;

use countersteer::lab::{Experiment, plan};

/// Two processes, each with a thread for every core behind one of the caches.
const WORKLOAD: &str = r#"
[[program]]
profile = "chase"
threads = 8
serial_share = 0.0
scale = 4000
[[program]]
profile = "matmul"
threads = 8
serial_share = 0.0
scale = 400
"#;

pub fn main() -> anyhow::Result<()> {
    for kernel in ["6.12", "7.2"] {
        let mut experiment = Experiment::named("ryzen-7950x3d", "shared-caches", "linux")?;
        experiment.workload = Arc::new(plan::of_text("two", WORKLOAD.to_owned())?);
        kernel.clone_into(&mut experiment.options.kernel);
        let score = experiment.run()?.score;
        println!("{kernel:<5} STP {:.3}", score.stp);
        for program in score.programs {
            println!("      {:<7} slowdown {:.2}", program.name, program.slowdown);
        }
    }
    Ok(())
}
