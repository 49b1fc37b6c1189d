//! Speed-up factors: the time of a program alone on the slowest cores over that on the fastest.

use countersteer::lab::Experiment;

pub fn main() -> anyhow::Result<()> {
    for machine in ["quickia-2b-2s", "juno-2-4"] {
        let mut experiment = Experiment::named(machine, "unequal-cores", "linux")?;
        experiment.options.rounds = 1;
        println!("{machine}");
        for program in experiment.run()?.score.programs {
            let factor = program.alone_slow_s / program.alone_fast_s;
            println!("  {:<12} {factor:.2}", program.name);
        }
    }
    Ok(())
}
