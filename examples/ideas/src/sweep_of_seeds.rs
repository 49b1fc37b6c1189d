//! Several seeds in parallel: a figure without its spread says little.

use countersteer::lab::experiment::run_all;
use countersteer::lab::{Experiment, Sweep};

pub fn main() -> anyhow::Result<()> {
    let Experiment {
        machine,
        workload,
        mut options,
        ..
    } = Experiment::named("core2-quad", "shared-caches", "linux")?;
    options.rounds = 1;
    let sweep = Sweep {
        machines: vec![machine],
        workloads: vec![workload],
        policies: vec!["linux".to_owned(), "contention".to_owned()],
        seeds: 6,
        options,
    };
    sweep.check()?;
    let experiments = sweep.experiments(|_| None);
    let finished = run_all(&experiments, &|| ())?;
    for policy in &sweep.policies {
        let rows = experiments.iter().zip(&finished);
        let of = rows.filter(|(experiment, _)| experiment.policy == *policy);
        let mut stp: Vec<f64> = of.map(|(_, finished)| finished.score.stp).collect();
        stp.sort_by(f64::total_cmp);
        println!("{policy:<10} STP {:.2} to {:.2} over {} seeds", stp[0], stp[stp.len() - 1], stp.len());
    }
    Ok(())
}
