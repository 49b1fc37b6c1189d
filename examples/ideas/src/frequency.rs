//! Two frequency governors: the same program at full clock, and at a clock that follows the load.

use std::sync::Arc;

use countersteer::lab::{Experiment, plan};
use countersteer::model::machine::Governor;

/// A program that works for some milliseconds and sleeps for twenty.
const WORKLOAD: &str = r#"
[[program]]
profile = "gzip"
threads = 1
burst_mi = 20
sleep_ms = 20
"#;

pub fn main() -> anyhow::Result<()> {
    for (name, governor) in Governor::ALL {
        let mut experiment = Experiment::named("juno-2-4", "unequal-cores", "linux")?;
        experiment.workload = Arc::new(plan::of_text("bursts", WORKLOAD.to_owned())?);
        experiment.options.rounds = 1;
        experiment.options.governor = Some(governor);
        let score = experiment.run()?.score;
        println!(
            "{name:<12} run in {:.2} s, {:.3} nJ per instruction",
            score.programs[0].completion_s, score.energy_per_instruction_nj
        );
    }
    Ok(())
}
