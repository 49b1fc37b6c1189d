//! Command-line arguments that the simulating commands share.

use std::collections::BTreeSet;

use countersteer_lab::experiment::Fidelity;
use countersteer_lab::{Finished, LoadedMachine, SimOptions};
use countersteer_model::events::Event;
use countersteer_model::machine::Governor;
use countersteer_model::units::Nanos;
use countersteer_sim::linux::{DEFAULT_KERNEL, KERNELS, SWITCHES, kernel_config};

use crate::error::{FaultKind, failure};
use crate::values::{number, specs};

/// Simulation options that `sim` and `compare` share.
#[derive(Clone, Debug, clap::Args)]
pub struct SimArgs {
    /// Time between decisions and samples
    #[arg(short, long, value_name = "TIME", value_parser = crate::values::time, default_value = "100ms")]
    interval: Nanos,
    /// Former spelling of --interval: a number of milliseconds.
    #[arg(long, hide = true, conflicts_with = "interval", value_name = "MS", value_parser = positive)]
    period_ms: Option<f64>,
    /// End the experiment once the slowest program has completed N runs
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// End the experiment after S simulated seconds, even if the programs have not completed their runs
    #[arg(long, default_value_t = 1e6, value_name = "S", value_parser = positive)]
    max_seconds: f64,
    /// Wall-clock limit after which a simulation fails
    #[arg(long, default_value = "30m", value_name = "TIME", value_parser = crate::values::time)]
    max_wall: Nanos,
    /// Release of the simulated kernel; `compare` accepts several, separated by commas
    #[arg(long, default_value = DEFAULT_KERNEL, value_name = "RELEASE", value_parser = kernel, long_help = kernel_help())]
    kernel: String,
    /// Relative noise of counter values (standard deviation)
    #[arg(long, default_value_t = 0.01, value_name = "SHARE", value_parser = share)]
    counter_noise: f64,
    /// Disable shared-cache contention, bandwidth limits and SMT sharing
    #[arg(long)]
    no_contention: bool,
    /// Make context switches, migrations, cold caches and sampling free of cost
    #[arg(long)]
    no_costs: bool,
    /// Source of cache misses: `analytic` (profiles), `traced` (all accesses through simulated caches; each `profile` names a
    /// trace, or the program is a `command`), `sampled` (as traced, samples only)
    #[arg(long, default_value = "analytic", value_name = "HOW", value_parser = fidelity)]
    fidelity: Fidelity,
    /// Frequency governor: `performance` or `schedutil` (applies uclamp); default: the governor in the machine file
    #[arg(long, value_name = "NAME", value_parser = governor)]
    governor: Option<Governor>,
    /// Stop the policy after TIME; the simulated Linux scheduler continues from the current placement
    #[arg(long, value_name = "TIME", value_parser = crate::values::time)]
    steer_for: Option<Nanos>,
    /// Machine file that the policy is given instead of the simulated machine's: the policy then decides with other sizes,
    /// speeds or latencies than those that hold
    #[arg(long, value_name = "FILE")]
    belief: Option<String>,
    /// Ignore `launch_on` in the workload, so that Linux chooses the CPU on which a program starts
    #[arg(long)]
    ignore_launch: bool,
    /// Additional events to count, if the model has them (names from `steer events`)
    #[arg(long, value_name = "EVENT,...", value_delimiter = ',', value_parser = event)]
    count: Vec<String>,
}

impl SimArgs {
    /// Names of the kernel releases to simulate; only `compare` accepts several.
    pub fn kernels(&self) -> Vec<String> {
        specs(&self.kernel)
    }

    /// Returns an error if `--kernel` names several releases.
    pub fn one_kernel(&self) -> anyhow::Result<()> {
        if self.kernels().len() > 1 {
            let why = "--kernel takes several kernels in `steer compare` only: name one";
            return Err(failure(FaultKind::Usage, why));
        }
        Ok(())
    }

    /// Returns the options, with the text of the believed machine.
    pub fn options(&self) -> anyhow::Result<SimOptions> {
        let belief = self.belief.as_deref().map(crate::library::machine);
        Ok(SimOptions {
            period_ms: self.period_ms.unwrap_or(self.interval.0 as f64 * 1e-6),
            rounds: self.rounds,
            max_seconds: self.max_seconds,
            max_wall: self.max_wall,
            kernel: self.kernel.clone(),
            counter_noise: self.counter_noise,
            no_contention: self.no_contention,
            no_costs: self.no_costs,
            fidelity: self.fidelity,
            governor: self.governor,
            count: self.count.clone(),
            steer_ms: self.steer_for.map(|time| time.0 as f64 * 1e-6),
            belief: belief.transpose()?.map(|(_, text)| text.text),
            ignore_launch: self.ignore_launch,
        })
    }
}

fn event(text: &str) -> Result<String, String> {
    let known = Event::by_name(text).map(|event| event.def().name.to_owned());
    known.ok_or_else(|| "there is no such event; `steer events` lists them".into())
}

/// Prints the requirements of a policy that the machine or the simulator does not meet.
pub fn warn_of_unmet(policy: &str, machine: &LoadedMachine) -> anyhow::Result<()> {
    for why in machine.unmet(policy)? {
        let name = &machine.machine.name;
        stderr_line!("steer: {policy} is not made for {name}: {why}");
    }
    Ok(())
}

/// Prints a warning with the programs that completed no run. Their completion time is the length of the simulation.
pub fn warn_of_cut<'a>(finished: impl IntoIterator<Item = &'a Finished>) {
    let programs = finished.into_iter().flat_map(|f| &f.score.programs);
    let cut = programs.filter(|program| program.runs == 0);
    let names: BTreeSet<&str> = cut.map(|program| program.name.as_str()).collect();
    if !names.is_empty() {
        let names: Vec<&str> = names.into_iter().collect();
        stderr_line!(
            "steer: no run of {} ended before the simulation, whose length is used as their completion time; increase --max-seconds",
            names.join(", ")
        );
    }
}

pub fn fidelity(text: &str) -> Result<Fidelity, String> {
    let known = Fidelity::ALL.iter().find(|(name, _)| *name == text);
    known
        .map(|(_, value)| *value)
        .ok_or_else(|| "it is one of analytic, traced, sampled".into())
}

fn governor(text: &str) -> Result<Governor, String> {
    Governor::named(text).ok_or_else(|| "it is one of performance, schedutil".into())
}

fn kernel(text: &str) -> Result<String, String> {
    let all = specs(text);
    if all.is_empty() {
        return Err("it names no kernel".into());
    }
    for kernel in all {
        kernel_config(&kernel)?;
    }
    Ok(text.to_owned())
}

fn kernel_help() -> String {
    let releases = KERNELS.iter().map(|k| format!("{}: {}", k.name, k.prose));
    let switches = SWITCHES.iter().map(|s| format!("{}: {}", s.name, s.prose));
    let list = |rows: Vec<String>| rows.join("\n  ");
    format!(
        "Release of the simulated kernel, with switches as in {DEFAULT_KERNEL}:llc_balancing=off; `compare` accepts several, separated by commas\n\nReleases:\n  {}\nSwitches, on or off:\n  {}",
        list(releases.collect()),
        list(switches.collect())
    )
}

fn positive(text: &str) -> Result<f64, String> {
    let value = number(text)?;
    if value > 0.0 && value <= 1e9 {
        Ok(value)
    } else {
        Err("it must be above 0 and at most 1e9".into())
    }
}

fn share(text: &str) -> Result<f64, String> {
    let value = number(text)?;
    if (0.0..=1.0).contains(&value) {
        Ok(value)
    } else {
        Err("it must be 0 to 1".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        sim: SimArgs,
    }

    #[test]
    fn arguments_left_out_are_the_defaults_of_experiments() {
        let line = Line::parse_from(["steer"]);
        assert_eq!(line.sim.options().unwrap(), SimOptions::default());
    }
}
