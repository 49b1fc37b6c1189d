//! Accuracy of profiles of native runs: `cargo run --release -p countersteer-lab --example native -- [PERCENT...]`.
//!
//! Each shipped recording with several behaviours is cut to its first PERCENT (default: 10 and 25) of the instructions. Its run on the
//! fast cores of a machine is simulated, with noisy counters, and the cut recording is extended by these counts. The reference is the
//! whole recording. Errors are those of the cycles per instruction, and of last-level misses, alone on core types and machines that the
//! counts are not from. The simulator is the same on both sides, so the errors are those of the assignment alone.

use std::sync::Arc;

use countersteer_lab::experiment::LoadedMachine;
use countersteer_lab::native::{Extended, cut, extend, intervals};
use countersteer_lab::{Experiment, experiment, library, plan};
use countersteer_model::profile::{Profile, Recorded};
use countersteer_model::units::CpuId;
use countersteer_report::record::Detail;
use countersteer_sim::progress::{Analytic, ProgressConfig, ProgressModel, SteadyRates};

/// Machine of the counts, and the CPUs on which profiles are compared: machine and CPU.
const COUNTED: &str = "i9-12900k-8p8e";
const COMPARED: [(&str, u32); 4] = [
    ("i9-12900k-8p8e", 8),
    ("core2-quad", 0),
    ("juno-2-4", 0),
    ("ryzen-7950x3d", 0),
];

/// Errors of one kind of profile, in all comparisons.
#[derive(Default)]
struct Errors {
    cpi: Vec<f64>,
    misses: Vec<f64>,
}

impl Errors {
    fn add(&mut self, of: &SteadyRates, truth: &SteadyRates) {
        self.cpi.push((truth.ipc / of.ipc - 1.0).abs());
        if truth.llc_mpki > 0.1 {
            self.misses.push((of.llc_mpki / truth.llc_mpki - 1.0).abs());
        }
    }

    fn words(errors: &mut [f64]) -> String {
        errors.sort_by(f64::total_cmp);
        let mean = errors.iter().sum::<f64>() / errors.len().max(1) as f64;
        let at = errors.len() * 95 / 100;
        let high = errors.get(at).copied().unwrap_or(0.0);
        format!("{:.1} % | {:.1} %", 100.0 * mean, 100.0 * high)
    }
}

fn main() -> anyhow::Result<()> {
    let mut percents: Vec<f64> = Vec::new();
    for text in std::env::args().skip(1) {
        percents.push(text.parse()?);
    }
    if percents.is_empty() {
        percents = vec![10.0, 25.0];
    }
    println!(
        "| window | profile | programs | cycles per instruction: mean | 95 % below | misses: mean | 95 % below |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|");
    for percent in percents {
        // Windows and extended profiles: of all programs, then of those whose profiles are not marked as partial.
        let mut errors: [[Errors; 2]; 2] = Default::default();
        let (mut programs, mut refused) = ([0, 0], 0);
        for text in library::recorded() {
            let profile = Profile::parse(&text.path, &text.text)?;
            let Profile::Recorded(truth) = profile else {
                continue;
            };
            if truth.behaviours.len() < 2 || truth.shape.threads > 1 {
                continue;
            }
            let window = cut(&truth, percent / 100.0);
            match extended(&truth, &window) {
                Ok(found) => {
                    let kinds = if found.profile.partial.is_some() {
                        1
                    } else {
                        2
                    };
                    for kind in 0..kinds {
                        programs[kind] += 1;
                        compare(&truth, &window, &found.profile, &mut errors[kind])?;
                    }
                }
                Err(why) => {
                    refused += 1;
                    eprintln!("{}: {why:#}", truth.name);
                }
            }
        }
        for (kind, of) in ["", ", not marked"].into_iter().enumerate() {
            for (what, errors) in ["window alone", "with counts"]
                .into_iter()
                .zip(&mut errors[kind])
            {
                println!(
                    "| {percent} % | {what}{of} | {} ({refused} refused) | {} | {} |",
                    programs[kind],
                    Errors::words(&mut errors.cpi),
                    Errors::words(&mut errors.misses)
                );
            }
        }
    }
    Ok(())
}

/// Extends a window by the counts of the simulated run.
fn extended(truth: &Recorded, window: &Recorded) -> anyhow::Result<Extended> {
    let text = format!(
        "[[program]]\nprofile = {:?}\nlaunch_on = \"0\"\n",
        truth.name
    );
    let mut experiment = Experiment::named(COUNTED, "unequal-cores", "linux")?;
    experiment.workload = Arc::new(plan::of_text("alone", text)?);
    experiment.options.period_ms = 10.0;
    experiment.options.rounds = 1;
    experiment.options.count = ["llc_misses", "branch_misses", "branches", "loads", "stores"]
        .map(String::from)
        .to_vec();
    experiment.detail = Some(Detail::NoSpans);
    let Some(record) = experiment.run()?.record else {
        anyhow::bail!("no record was kept");
    };
    let (core_type, intervals) = intervals(&record, Some(&truth.name))?;
    let topology = &experiment.machine.topology;
    extend(window, topology, core_type, &intervals)
}

fn compare(
    truth: &Recorded,
    window: &Recorded,
    whole: &Recorded,
    [bare, extended]: &mut [Errors; 2],
) -> anyhow::Result<()> {
    for (machine, cpu) in COMPARED {
        let machine = experiment::machine(machine)?;
        let truth = rates(&machine, truth, cpu)?;
        bare.add(&rates(&machine, window, cpu)?, &truth);
        extended.add(&rates(&machine, whole, cpu)?, &truth);
    }
    Ok(())
}

fn rates(machine: &LoadedMachine, profile: &Recorded, cpu: u32) -> anyhow::Result<SteadyRates> {
    let mut model = Analytic::new(Arc::clone(&machine.topology), ProgressConfig::default());
    let id = model.add_program(Arc::new(Profile::Recorded(profile.clone())))?;
    let mut rates = model.steady_state(&[(id, CpuId(cpu), 1.0)]);
    rates.pop().ok_or_else(|| anyhow::anyhow!("no rates"))
}
