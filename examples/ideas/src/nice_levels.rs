//! Fairness with weights: two copies of a program on each CPU, one of them with nice 5.

use std::sync::Arc;

use countersteer::lab::{Experiment, plan};

const WORKLOAD: &str = r#"
[[program]]
name = "first"
profile = "gzip"
threads = 1
copies = 4
[[program]]
name = "second"
profile = "gzip"
threads = 1
copies = 4
nice = 5
"#;

pub fn main() -> anyhow::Result<()> {
    let mut experiment = Experiment::named("core2-quad", "shared-caches", "linux")?;
    experiment.workload = Arc::new(plan::of_text("nice", WORKLOAD.to_owned())?);
    let score = experiment.run()?.score;
    for program in score.programs {
        println!("{:<9} slowdown {:.2}", program.name, program.slowdown);
    }
    println!("unfairness {:.2}, with weights {:.2}", score.unfairness, score.weighted_unfairness);
    Ok(())
}
