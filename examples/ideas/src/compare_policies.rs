//! Two policies on one machine with one workload: throughput, fairness, energy.

use countersteer::lab::Experiment;

pub fn main() -> anyhow::Result<()> {
    println!("policy  STP    unfairness  nJ per instruction");
    for policy in ["linux", "hsf"] {
        let mut experiment = Experiment::named("quickia-2b-2s", "unequal-cores", policy)?;
        experiment.options.rounds = 1;
        let score = experiment.run()?.score;
        println!(
            "{policy:<7} {:.3}  {:<10.2}  {:.2}",
            score.stp, score.unfairness, score.energy_per_instruction_nj
        );
    }
    Ok(())
}
