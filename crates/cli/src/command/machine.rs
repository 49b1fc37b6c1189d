//! `steer machine`: lists, shows, imports and detects machines.

use std::path::{Path, PathBuf};

use anyhow::Context;
use countersteer_files::read;
use countersteer_model::cpunumbers::CpuNumbers;
use countersteer_model::cpuset::CpuSet;
use countersteer_model::machine::SfSpread;
use countersteer_model::topology::{GroupBy, Topology};
use countersteer_report::table::prose;
use countersteer_report::write_atomically;
use countersteer_sysfs::described;
use countersteer_sysfs::topology::Survey;
use serde::Serialize;

use super::picture::picture;
use super::{print, print_json, print_raw};
use crate::library;

/// Subcommands of `steer machine`.
#[derive(Debug, clap::Subcommand)]
pub enum MachineArgs {
    /// List the shipped machines
    List {
        /// Print JSON: an array of objects with `name`
        #[arg(long)]
        json: bool,
    },
    /// Show a machine: cores, caches and core groups
    Show {
        /// Machine: name or file
        machine: String,
        /// Print the checked file as JSON
        #[arg(long)]
        json: bool,
        /// Print the machine's TOML file, as a template
        #[arg(long, conflicts_with = "json")]
        toml: bool,
    },
    /// Write a machine file from another tool's description: `lstopo --of xml` or `lscpu -J`
    Import {
        /// Input file, or - for standard input
        file: PathBuf,
        /// Output file; default: stdout
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Write JSON instead of TOML
        #[arg(long, conflicts_with = "output")]
        json: bool,
    },
    /// Write a machine file for this host, from the kernel's description
    Detect {
        /// Output file; default: stdout
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Root folder that contains the kernel's folders sys and proc
        #[arg(long, default_value = "/", value_name = "DIR")]
        root: PathBuf,
        /// Write JSON instead of TOML
        #[arg(long, conflicts_with = "output")]
        json: bool,
    },
}

#[derive(Serialize)]
struct MachineRow {
    name: String,
    title: String,
    cpus: usize,
    core_types: Vec<String>,
    llcs: usize,
}

/// Runs `steer machine`.
pub fn run(args: MachineArgs) -> anyhow::Result<()> {
    match args {
        MachineArgs::List { json } => list(json),
        MachineArgs::Show {
            machine,
            json,
            toml,
        } => show(&machine, json, toml),
        MachineArgs::Import { file, output, json } => import(&file, output, json),
        MachineArgs::Detect { output, root, json } => {
            let survey = countersteer_sysfs::topology::survey(&root)?;
            write(survey, output, json)
        }
    }
}

fn list(json: bool) -> anyhow::Result<()> {
    let rows: Vec<MachineRow> = library::machine_names()
        .iter()
        .map(|name| row(name))
        .collect::<Result<_, _>>()?;
    if json {
        return print_json(&rows);
    }
    let cells = rows.iter().map(|r| {
        vec![
            r.name.clone(),
            r.cpus.to_string(),
            r.llcs.to_string(),
            format!("{}; {}", r.core_types.join(" + "), r.title),
        ]
    });
    print(&countersteer_report::table::plain(
        &["machine", "CPUs", "LLCs", "core types and what it is"],
        cells,
    ))
}

fn row(name: &str) -> anyhow::Result<MachineRow> {
    let (machine, _) = library::machine(name)?;
    let topology = Topology::new(&machine);
    let types = topology.groups_by(GroupBy::CoreType).iter();
    Ok(MachineRow {
        name: machine.name,
        title: machine.title,
        cpus: topology.cpus.len(),
        core_types: types.map(|g| format!("{} {}", g.cores, g.name)).collect(),
        llcs: topology.groups_by(GroupBy::Llc).len(),
    })
}

fn show(name: &str, json: bool, toml: bool) -> anyhow::Result<()> {
    let (machine, text) = library::machine(name)?;
    if json {
        return print_json(&machine);
    }
    if toml {
        return print_raw(&text.text);
    }
    let topology = Topology::new(&machine);
    let numbers = CpuNumbers::new(machine.os_cpu_numbers());
    print(&format!(
        "{}\n{}\n\n{}\n{}",
        prose(&format!("{}: {}", machine.name, machine.title)),
        prose(machine.source.trim()),
        picture(&topology, &numbers),
        drawing(&topology, &numbers)
    ))
}

/// Describes core groups, caches and memory as text. CPUs have the kernel's numbers.
fn drawing(topology: &Topology, numbers: &CpuNumbers) -> String {
    let cpus = |own: &CpuSet| format!("CPUs {}", numbers.os_set(own));
    let groups = topology
        .groups
        .iter()
        .filter(|g| g.by < GroupBy::Core && g.by != GroupBy::Machine);
    let groups = groups.map(|g| vec![g.name.clone(), format!("{} cores", g.cores), cpus(&g.cpus)]);
    let types = topology.core_types.iter().map(|t| {
        vec![
            t.name.clone(),
            format!("{} GHz", t.freq_ghz),
            format!("{}-wide", t.dispatch_width),
            format!(
                "window {}{}",
                t.window,
                if t.in_order { ", in order" } else { "" }
            ),
            format!("L1d {} KiB", t.l1d.size_kib),
            t.l2.map_or_else(
                || "no private L2".into(),
                |l2| format!("L2 {} KiB", l2.size_kib),
            ),
            t.why.clone().unwrap_or_default(),
        ]
    });
    let caches = topology.caches.iter().filter(|c| !c.private).map(|c| {
        let size = c.lines / 16.0 / 1024.0;
        vec![
            format!("L{}", c.level),
            format!("{size} MiB"),
            format!("{} ways", c.ways),
            cpus(&c.cpus),
        ]
    });
    let memory = topology.memory.iter().enumerate().map(|(i, m)| {
        let latency = format!("{} ns", m.latency_ns);
        let bandwidth = format!("{} GB/s", m.bandwidth_gb_s);
        vec![format!("node{i}"), latency, bandwidth, cpus(&m.cpus)]
    });
    let spread = spread(topology);
    let plain = |rows: Vec<Vec<String>>| countersteer_report::table::plain(&[], rows);
    let parts = [
        ("core types", plain(types.collect())),
        ("shared caches", plain(caches.collect())),
        ("memory", plain(memory.collect())),
        ("core groups", plain(groups.collect())),
    ];
    let parts = parts.iter().filter(|(_, t)| !t.trim().is_empty());
    let text: String = parts.map(|(head, t)| format!("{head}\n{t}\n")).collect();
    text + &spread
}

/// Describes the reliability of simulated speed-up factors between the fastest and the slowest core type; empty if all cores
/// are equal.
fn spread(topology: &Topology) -> String {
    let (fast, slow) = topology.extremes();
    let [fast, slow] = [fast, slow].map(|t| &topology.core_types[t.index()]);
    if fast.name == slow.name {
        return String::new();
    }
    let (
        SfSpread {
            low,
            high,
            programs,
            on,
        },
        here,
    ) = SfSpread::of(fast, slow);
    let of = if here {
        ""
    } else {
        "; no program was measured on these core types"
    };
    let measured = prose(&format!(
        "measured ones are {low} to {high} times as large in nine cases of ten ({programs} programs, {on}{of})\n"
    ));
    format!(
        "simulated speed-up factors, {} over {}\n{measured}",
        fast.name, slow.name,
    )
}

fn import(file: &Path, output: Option<PathBuf>, json: bool) -> anyhow::Result<()> {
    let cannot = || library::cannot_read(file);
    let mut bytes = Vec::new();
    read::append(library::stream(file)?, &mut bytes, read::MOST_MANIFEST).with_context(cannot)?;
    let text = read::text_of(bytes).with_context(cannot)?;
    let name = match file.as_os_str() == "-" {
        true => "standard input".into(),
        false => file.display().to_string(),
    };
    write(described::machine(&name, &text)?, output, json)
}

/// Writes a machine file, and prints the assumptions.
fn write(survey: Survey, output: Option<PathBuf>, json: bool) -> anyhow::Result<()> {
    let Survey { machine, remedies } = survey;
    for remedy in remedies {
        stderr_text!("{}", prose(&format!("steer: {remedy}\n")));
    }
    if json {
        return print_json(&machine);
    }
    let text = machine
        .to_toml()
        .context("the detected machine cannot be written as TOML")?;
    match output {
        Some(path) => {
            write_atomically(&path, text.as_bytes())?;
            stderr_line!(
                "steer: wrote {}; check it, then pass it to --machine",
                path.display()
            );
            Ok(())
        }
        None => print(&text),
    }
}
