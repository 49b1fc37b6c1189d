//! A bound that no policy exceeds, beside what policies reach.

use countersteer::lab::{Experiment, bound};

pub fn main() -> anyhow::Result<()> {
    let mut experiment = Experiment::named("i9-12900k-8p8e", "unequal-cores", "linux")?;
    experiment.options.rounds = 1;
    let most = bound::sustained_stp(&experiment)?;
    for policy in ["linux", "hsf", "joint"] {
        policy.clone_into(&mut experiment.policy);
        let reached = experiment.run()?.score.sustained_stp;
        if let (Some(reached), Some(most)) = (reached, most) {
            println!("{policy:<6} {:.0} % of the bound", 100.0 * reached / most);
        }
    }
    Ok(())
}
