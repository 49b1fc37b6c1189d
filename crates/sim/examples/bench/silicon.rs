//! Recorded programs on the simulated i9-12900K compared with measurements of similar programs on a 12900KS.
//!
//! The pairs are in `bench/silicon.tsv`; the measurements are those of `profiles/spec2017`, which name their source. Programs and
//! inputs differ, so single rows are not conclusive; rank correlation, medians and the direction of errors are.

use std::error::Error;
use std::sync::Arc;

use countersteer_model::machine::SfSpread;
use countersteer_model::profile::{Profile, Recorded};
use countersteer_model::topology::Topology;
use countersteer_model::units::CoreTypeId;
use countersteer_sim::progress::{Analytic, ProgressConfig, ProgressModel};

use super::runner::{machine, profiles, quantile, root};

/// Core types in the order of the columns.
const CORES: [&str; 2] = ["golden-cove", "gracemont"];

/// A recorded program and a measured one.
struct Row {
    recorded: String,
    like: String,
    integer: bool,
    fit: bool,
    /// Instructions per cycle on each of [`CORES`].
    simulated: [f64; 2],
    measured: [f64; 2],
    /// Mispredictions per kilo-instruction.
    branch_mpki: [f64; 2],
}

impl Row {
    /// Ratio of simulated to measured IPC on a core, minus one.
    fn error(&self, core: usize) -> f64 {
        self.simulated[core] / self.measured[core] - 1.0
    }
}

/// Selects the rows of a summary.
type Filter = fn(&&Row) -> bool;

/// Prints the section.
pub fn run() -> Result<(), Box<dyn Error>> {
    let topology = machine("i9-12900k-8p8e")?;
    let types = CORES.map(|name| topology.core_types.iter().position(|t| t.name == name));
    let [Some(fast), Some(slow)] = types else {
        return Err("the machine lacks a core type".into());
    };
    let clock = topology.core_types[fast].freq_ghz / topology.core_types[slow].freq_ghz;
    let rows = rows(&topology, [fast, slow])?;
    println!("\n### Recorded programs against silicon, i9-12900K, alone\n");
    println!(
        "Measured: SPEC CPU2017 on a 12900KS, the program most like each; SF at {clock:.2} times the clock.\n"
    );
    println!("| recorded ~ measured | IPC P | IPC E | SF | branch MPKI |\n|---|---|---|---|---|");
    for row in &rows {
        let ipc = |core: usize| {
            format!(
                "{:.2}/{:.2} {:+.0} %",
                row.simulated[core],
                row.measured[core],
                row.error(core) * 100.0
            )
        };
        println!(
            "| {} ~ {} | {} | {} | {:.2}/{:.2} | {:.1}/{:.1} |",
            row.recorded,
            row.like,
            ipc(0),
            ipc(1),
            row.simulated[0] / row.simulated[1] * clock,
            row.measured[0] / row.measured[1] * clock,
            row.branch_mpki[0],
            row.branch_mpki[1],
        );
    }
    println!(
        "\n| rows | rank correlation P, E, SF | mean and median error of P | of E | median SF | E above P |\n|---|---|---|---|---|---|"
    );
    let all: [(&str, Filter); 6] = [
        ("all", |_| true),
        ("integer", |r| r.integer),
        ("floating point", |r| !r.integer),
        ("half that constants were fitted on", |r| r.fit),
        ("other half", |r| !r.fit),
        ("other half, integer", |r| !r.fit && r.integer),
    ];
    for (name, filter) in all {
        summary(name, &rows.iter().filter(filter).collect::<Vec<_>>(), clock);
    }
    spread(&rows);
    siblings()
}

/// Prints the distances between measured and simulated speed-up factors, next to the spread that the program states.
fn spread(rows: &[Row]) {
    let ratio = |ipc: [f64; 2]| ipc[0] / ipc[1];
    let mut off: Vec<f64> = rows
        .iter()
        .map(|r| ratio(r.measured) / ratio(r.simulated))
        .collect();
    off.sort_by(f64::total_cmp);
    let stated = SfSpread::KNOWN;
    println!(
        "\nMeasured over simulated SF, nine programs in ten: {:.2} to {:.2}, median {:.2}; `steer` prints {} to {} beside simulated factors.",
        quantile(&off, 0.05),
        quantile(&off, 0.95),
        quantile(&off, 0.5),
        stated.low,
        stated.high,
    );
}

/// Prints the throughput that a second thread adds to a core.
fn siblings() -> Result<(), Box<dyn Error>> {
    let topology = machine("i9-12900k")?;
    let cpu = topology.cpus.first().ok_or("the machine has no CPU")?;
    let beside = topology
        .cpus
        .iter()
        .find(|c| c.core == cpu.core && c.id != cpu.id);
    let sibling = beside.ok_or("the machine has no SMT siblings")?;
    let mut gains = Vec::new();
    for profile in profiles("recorded")? {
        let mut model = Analytic::new(Arc::clone(&topology), ProgressConfig::default());
        let id = model.add_program(Arc::clone(&profile))?;
        let alone = model.steady_state(&[(id, cpu.id, 1.0)])[0].ips;
        let both = model.steady_state(&[(id, cpu.id, 1.0), (id, sibling.id, 1.0)]);
        gains.push((both[0].ips + both[1].ips) / alone);
    }
    gains.sort_by(f64::total_cmp);
    let at = |share| quantile(&gains, share);
    println!(
        "\nTwo copies of each of {} recorded programs on one P core with SMT, over one: quartiles {:.2}, {:.2}, {:.2}, least {:.2}, most {:.2} (published for whole suites: about 1.25).",
        gains.len(),
        at(0.25),
        at(0.5),
        at(0.75),
        at(0.0),
        at(1.0),
    );
    Ok(())
}

fn summary(name: &str, rows: &[&Row], clock: f64) {
    let ranks = |of: &dyn Fn(&Row) -> (f64, f64)| {
        let (a, b): (Vec<f64>, Vec<f64>) = rows.iter().map(|row| of(row)).unzip();
        rank_correlation(&a, &b)
    };
    let ratio = |ipc: [f64; 2]| ipc[0] / ipc[1];
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        quantile(&values, 0.5)
    };
    let errors = |core: usize| {
        let of: Vec<f64> = rows
            .iter()
            .map(|row| row.error(core).abs() * 100.0)
            .collect();
        let mean = of.iter().sum::<f64>() / of.len() as f64;
        format!("{mean:.0} %, {:.0} %", median(of))
    };
    let sf = |of: fn(&Row) -> [f64; 2]| median(rows.iter().map(|r| ratio(of(r)) * clock).collect());
    let above = rows.iter().filter(|r| ratio(r.simulated) < 1.0).count();
    println!(
        "| {name} | {:.2}, {:.2}, {:.2} | {} | {} | {:.2}/{:.2} | {above}/{} |",
        ranks(&|r| (r.simulated[0], r.measured[0])),
        ranks(&|r| (r.simulated[1], r.measured[1])),
        ranks(&|r| (ratio(r.simulated), ratio(r.measured))),
        errors(0),
        errors(1),
        sf(|r| r.simulated),
        sf(|r| r.measured),
        rows.len(),
    );
}

fn rows(topology: &Arc<Topology>, types: [usize; 2]) -> Result<Vec<Row>, Box<dyn Error>> {
    let recorded = profiles("recorded")?;
    let measured = profiles("spec2017")?;
    let find = |all: &[Arc<Profile>], name: &str| {
        let of = all.iter().find(|p| p.name() == name).cloned();
        of.ok_or_else(|| format!("bench/silicon.tsv names a profile `{name}` that does not exist"))
    };
    let text = std::fs::read_to_string(root().join("bench/silicon.tsv"))?;
    let mut rows = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let [name, _family, like, kind, half] = line.split('\t').collect::<Vec<_>>()[..] else {
            return Err(format!("bench/silicon.tsv: five columns expected in `{line}`").into());
        };
        let profile = find(&recorded, name)?;
        let mut model = Analytic::new(Arc::clone(topology), ProgressConfig::default());
        let id = model.add_program(Arc::clone(&profile))?;
        let simulated = types.map(|core_type| {
            let hz = topology.core_types[core_type].freq_ghz * 1e9;
            model.alone_ips(id, CoreTypeId::from_index(core_type)) / hz
        });
        let Profile::Recorded(profile) = &*profile else {
            return Err(format!("profile `{name}` was not recorded").into());
        };
        let (ipc, mpki) = published(&*find(&measured, like)?)?;
        rows.push(Row {
            recorded: name.into(),
            like: like.into(),
            integer: kind == "integer",
            fit: half == "fit",
            simulated,
            measured: ipc,
            branch_mpki: [mispredictions(profile), mpki],
        });
    }
    Ok(rows)
}

/// Measured IPC on each of [`CORES`], and branch mispredictions per kilo-instruction on the first.
fn published(profile: &Profile) -> Result<([f64; 2], f64), String> {
    let Profile::Tabulated(table) = profile else {
        return Err("a measured profile is a table".into());
    };
    let on = |name: &str| table.on(name).ok_or(format!("no figures for {name}"));
    let ipc = |name: &str| -> Result<f64, String> {
        Ok(on(name)?.points.last().map_or(f64::NAN, |p| p.ipc))
    };
    let mpki = on(CORES[0])?.branch_mpki.unwrap_or(f64::NAN);
    Ok(([ipc(CORES[0])?, ipc(CORES[1])?], mpki))
}

fn mispredictions(profile: &Recorded) -> f64 {
    let part = |s: &countersteer_model::profile::Segment| {
        profile.behaviours[s.behaviour as usize].branch_mpki * s.instructions as f64
    };
    profile.timeline.iter().map(part).sum::<f64>() / profile.instructions as f64
}

/// Spearman's rank correlation; equal values share their mean rank.
fn rank_correlation(a: &[f64], b: &[f64]) -> f64 {
    let ranks = |values: &[f64]| -> Vec<f64> {
        let rank = |x: &f64| {
            let below = values.iter().filter(|v| *v < x).count();
            let equal = values.iter().filter(|v| *v == x).count();
            below as f64 + (equal as f64 - 1.0) / 2.0
        };
        values.iter().map(rank).collect()
    };
    let (a, b) = (ranks(a), ranks(b));
    let mean = (a.len() as f64 - 1.0) / 2.0;
    let dot = |x: &[f64], y: &[f64]| -> f64 {
        x.iter().zip(y).map(|(x, y)| (x - mean) * (y - mean)).sum()
    };
    dot(&a, &b) / (dot(&a, &a) * dot(&b, &b)).sqrt()
}
