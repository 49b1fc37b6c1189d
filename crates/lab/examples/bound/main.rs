//! Comparison of runs with the upper bound of sustained throughput.
//!
//! `cargo run --release -p countersteer-lab --example bound -- 500` draws 500 mixes. `-- shipped` takes every shipped machine and
//! workload with policies of all kinds. Prints each run above the bound, and the distance of the best policies below it.

mod draw;

use std::time::Instant;

use countersteer_lab::{Experiment, SimOptions, Sweep, bound, experiment, library, plan};
use countersteer_report::table::CompareRun;
use std::sync::Arc;

/// Policies to run on the shipped machines and workloads.
const SHELF: [&str; 8] = [
    "linux",
    "aarr",
    "hsf",
    "hsf:sf=oracle",
    "acfs",
    "contention",
    "joint",
    "best-static",
];

/// Results so far.
#[derive(Default)]
struct Found {
    runs: usize,
    without: usize,
    above: usize,
    /// Runs whose STP by geometric means exceeds the bound on sustained STP.
    geometric_above: usize,
    /// Fraction of the bound that the best policy and Linux reach, by comparison.
    best: Vec<f64>,
    linux: Vec<f64>,
    bounding_s: Vec<f64>,
}

fn main() -> anyhow::Result<()> {
    let wanted = std::env::args().nth(1).unwrap_or_else(|| "500".into());
    let start = Instant::now();
    let mut found = Found::default();
    if wanted == "shipped" {
        for sweep in shipped()? {
            found.add(&sweep.experiments(|_| None))?;
        }
    } else {
        for mix in 1..=wanted.parse()? {
            found.add(&draw::experiments(mix)?)?;
        }
    }
    found.print();
    println!("{:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Every shipped machine with every shipped workload that runs there.
fn shipped() -> anyhow::Result<Vec<Sweep>> {
    let mut sweeps = Vec::new();
    for machine in library::machine_names() {
        let machine = experiment::machine(&machine)?;
        for workload in library::workload_names() {
            let workload = Arc::new(plan::load_recorded(&workload)?);
            let sweep = Sweep {
                machines: vec![Arc::clone(&machine)],
                workloads: vec![workload],
                policies: SHELF.map(str::to_owned).into(),
                seeds: 1,
                options: SimOptions {
                    rounds: 1,
                    ..SimOptions::default()
                },
            };
            // Tabulated programs run only on the machines of their measurements.
            if sweep.check().is_ok()
                && bound::sustained_stp(&sweep.experiments(|_| None)[0]).is_ok()
            {
                sweeps.push(sweep);
            }
        }
    }
    Ok(sweeps)
}

impl Found {
    fn add(&mut self, experiments: &[Experiment]) -> anyhow::Result<()> {
        let finished = experiment::run_all(experiments, &|| ())?;
        let score = |(e, f): (&Experiment, _)| e.scored(f);
        let mut runs: Vec<CompareRun> = experiments.iter().zip(&finished).map(score).collect();
        let start = Instant::now();
        bound::attach(experiments, &finished, &mut runs)?;
        self.bounding_s.push(start.elapsed().as_secs_f64());
        let mut parts = Vec::new();
        for run in &runs {
            self.runs += 1;
            let (Some(stp), Some(bound)) = (run.sustained_stp, run.bound_stp) else {
                self.without += 1;
                continue;
            };
            self.geometric_above += usize::from(run.stp > bound);
            if stp > bound {
                self.above += 1;
                let CompareRun {
                    machine,
                    workload,
                    policy,
                    ..
                } = run;
                println!("above: {policy} on {machine} with {workload}: {stp:.4} of {bound:.4}");
            }
            parts.push(stp / bound);
        }
        let best = parts.iter().copied().reduce(f64::max);
        if let (Some(linux), Some(best)) = (parts.first(), best) {
            self.linux.push(*linux);
            self.best.push(best);
            let run = &runs[0];
            println!(
                "{} with {}: linux {:.1} %, best {:.1} % of {:.3}",
                run.machine,
                run.workload,
                100.0 * linux,
                100.0 * best,
                run.bound_stp.unwrap_or(f64::NAN)
            );
        }
        Ok(())
    }

    fn print(&mut self) {
        let Self {
            runs,
            without,
            above,
            geometric_above,
            ..
        } = self;
        println!(
            "{runs} runs, {without} without a bound, {above} above it; STP of {geometric_above} (geometric means) above it"
        );
        let medians = [&mut self.best, &mut self.linux, &mut self.bounding_s];
        let [best, linux, seconds] = medians.map(|values| {
            values.sort_by(f64::total_cmp);
            let at = |part: f64| values.get((part * values.len() as f64) as usize).copied();
            [at(0.1), at(0.5), at(0.9)].map(|v| v.unwrap_or(f64::NAN))
        });
        let parts = |[low, median, high]: [f64; 3]| {
            format!(
                "{:.1} % ({:.1} to {:.1})",
                100.0 * median,
                100.0 * low,
                100.0 * high
            )
        };
        println!(
            "best policy: {} of the bound, linux: {}",
            parts(best),
            parts(linux)
        );
        println!(
            "seconds for a bound: {:.3} ({:.3} to {:.3})",
            seconds[1], seconds[0], seconds[2]
        );
    }
}
