//! Simulated seconds per CPU-second, and their dependence on the size of the machine.

use std::error::Error;
use std::fmt::Write as _;
use std::sync::Arc;

use countersteer_model::machine::Machine;
use countersteer_model::topology::Topology;
use countersteer_model::units::Nanos;
use countersteer_sim::engine::Plan;

use super::runner::{self, Setup, machine, profiles, program};

/// Folders of programs, and factors on their lengths.
///
/// Recorded runs last a second with up to two hundred phases, while common benchmarks last minutes. Published profiles have one
/// phase per program.
const PUBLISHED: (&str, f64) = ("spec2017", 1.0);
const RECORDED: (&str, f64) = ("recorded", 40.0);

/// Prints the section.
pub fn run() -> Result<(), Box<dyn Error>> {
    println!(
        "\n### Speed: simulated seconds per CPU-second, one thread per CPU, decisions every 100 ms\n"
    );
    println!(
        "| machine | CPUs | programs | policy | simulated s | CPU s | simulated s per CPU s | peak memory so far |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let sixteen = machine("i9-12900k-8p8e")?;
    for (programs, seconds) in [(PUBLISHED, 5_000.0), (RECORDED, 1_000.0)] {
        for policy in ["linux", "aarr", "hsf", "contention"] {
            measure(&sixteen, programs, policy, seconds)?;
        }
    }
    for llcs in [2, 4, 8, 16, 32, 64, 128] {
        let machine = Machine::parse("made", &many_llcs(llcs)?)?;
        measure(
            &Arc::new(Topology::new(&machine)),
            RECORDED,
            "hsf",
            2_000.0 / f64::from(llcs),
        )?;
    }
    Ok(())
}

fn measure(
    topology: &Arc<Topology>,
    (folder, scale): (&str, f64),
    policy: &str,
    seconds: f64,
) -> Result<(), Box<dyn Error>> {
    let known = profiles(folder)?;
    let mut plan = Plan::default();
    for i in 0..topology.cpus.len() {
        let mut p = program(&format!("p{i}"), &known[i * 7 % known.len()]);
        p.scale = scale;
        plan.programs.push(p);
    }
    let setup = Setup {
        rounds: u32::MAX,
        until: Nanos::from_secs_f64(seconds),
        ..Setup::default()
    };
    let before = runner::usage()?.0;
    let (outcome, _) = runner::run(topology, &plan, policy, setup)?;
    let (after, peak) = runner::usage()?;
    let (cpus, cpu_s) = (topology.cpus.len(), after - before);
    let speed = outcome.elapsed_s / cpu_s;
    println!(
        "| {} | {cpus} | {folder} | `{policy}` | {:.1} | {cpu_s:.2} | {speed:.0} | {peak:.0} MiB |",
        topology.name, outcome.elapsed_s
    );
    Ok(())
}

/// A server of `llcs` last-level caches with four big and four small cores each.
fn many_llcs(llcs: u32) -> Result<String, Box<dyn Error>> {
    let base = std::fs::read_to_string(runner::root().join("machines/i9-12900k-8p8e.toml"))?;
    let mut table: toml::Table = base.parse()?;
    for key in ["cores", "cache", "memory"] {
        table.remove(key);
    }
    table.insert("name".into(), format!("made-{llcs}-llcs").into());
    let mut text = toml::to_string(&table)?;
    for llc in 0..llcs {
        let first = llc * 8;
        write!(
            text,
            "\n[[cores]]\ntype = \"golden-cove\"\ncpus = \"{}-{}\"\n[[cores]]\ntype = \"gracemont\"\ncpus = \"{}-{}\"\n\
             [[cache]]\nlevel = 3\ncpus = \"{first}-{}\"\nsize_kib = 16384\nways = 16\nlatency_ns = 15\n",
            first,
            first + 3,
            first + 4,
            first + 7,
            first + 7
        )?;
    }
    let nodes = (llcs / 16).max(1);
    for node in 0..nodes {
        let each = llcs * 8 / nodes;
        let (low, high) = (node * each, (node + 1) * each - 1);
        let bandwidth = 25 * llcs / nodes;
        write!(
            text,
            "\n[[memory]]\ncpus = \"{low}-{high}\"\nlatency_ns = 90\nbandwidth_gb_s = {bandwidth}\n"
        )?;
    }
    Ok(text)
}
