//! An experiment as one JSON text: it holds its machine, workload and profiles, and gives the same result elsewhere.

use countersteer::lab::Experiment;

pub fn main() -> anyhow::Result<()> {
    let mut experiment = Experiment::named("quickia-2b-2s", "unequal-cores", "aarr")?;
    experiment.options.rounds = 1;
    let kept = serde_json::to_string(&experiment)?;
    let again: Experiment = serde_json::from_str(&kept)?;
    let results = [experiment.run()?, again.run()?].map(|finished| finished.score);
    println!("equal: {}", results[0] == results[1]);
    println!("STP {:.4}", results[0].stp);
    Ok(())
}
