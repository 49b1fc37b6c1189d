//! The CMPSched$im mix on the Core 2 Quad: two poison, two vulnerable, two mildly vulnerable, two neutral programs.

use std::error::Error;
use std::sync::Arc;

use countersteer_core::cpuset::CpuSet;
use countersteer_core::profile::Profile;
use countersteer_core::units::CpuId;
use countersteer_sim::engine::Plan;

use super::runner::{self, Setup, machine, profiles, program};

/// Programs by what their miss curves say, and the worst launch: both vulnerable ones beside both poison ones (section 4,
/// figure 7a), as in `workloads/shared-caches.toml`.
const MIX: [(&str, u32); 8] =
    [("chase", 0), ("matmul", 0), ("stream", 1), ("sieve", 1), ("bzip2", 2), ("xz", 2), ("gzip", 3), ("perl", 3)];

/// Recorded runs last a second; scheduling policies that look every 800 ms are meant for minutes.
const SCALE: f64 = 40.0;

/// Prints the section.
pub fn run() -> Result<(), Box<dyn Error>> {
    let topology = machine("core2-quad")?;
    let recorded = profiles("recorded")?;
    let named = |name: &str| -> Result<&Arc<Profile>, String> {
        recorded.iter().find(|p| p.name() == name).ok_or_else(|| format!("there is no recorded profile `{name}`"))
    };
    let mut plan = Plan::default();
    for (name, cpu) in MIX {
        let mut p = program(name, named(name)?);
        p.scale = SCALE;
        p.launch_on = Some(Arc::new([CpuId(cpu)].into_iter().collect::<CpuSet>()));
        plan.programs.push(p);
    }
    let ipc = |policy: &str, seed: u64| -> Result<f64, Box<dyn Error>> {
        Ok(runner::run(&topology, &plan, policy, Setup { seed, ..Setup::default() })?.1.ipc)
    };
    println!(
        "\n### The CMPSched$im mix on the Core 2 Quad: mean IPC\n\n| policy | worst | median | best |\n|---|---|---|---|"
    );
    for policy in ["linux", "mpi", "capacity", "capacity+mpi", "best-static:objective=ipc"] {
        let mut values: Vec<f64> = (1..=10).map(|seed| ipc(policy, seed)).collect::<Result<_, _>>()?;
        values.sort_by(f64::total_cmp);
        let at = |share| runner::quantile(&values, share);
        println!("| `{policy}` | {:.4} | {:.4} | {:.4} |", at(0.0), at(0.5), at(1.0));
    }
    Ok(())
}
