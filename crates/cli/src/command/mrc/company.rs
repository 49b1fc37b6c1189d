//! `steer mrc -M MACHINE`: shares of co-running programs in a shared cache.

use std::path::PathBuf;

use countersteer_lab::company::{self, CacheCompany, ProgramPart};
use countersteer_lab::experiment;
use countersteer_report::number;
use countersteer_report::table::plain;

use super::{MrcArgs, in_units};
use crate::command::{print, print_json};

pub(super) fn run(args: &MrcArgs, machine: &str) -> anyhow::Result<()> {
    let machine = experiment::machine(machine)?;
    let programs = args.inputs.iter().map(PathBuf::as_path);
    let programs = programs
        .map(company::profile)
        .collect::<Result<Vec<_>, _>>()?;
    let own = company::own_size(&machine);
    let sizes = if args.sizes.is_empty() {
        vec![own / 4, own / 2, own, 2 * own]
    } else {
        args.sizes.clone()
    };
    let found = company::company(&machine, &programs, &sizes)?;
    if args.json {
        return print_json(&found);
    }
    print(&text(&found))
}

fn text(found: &CacheCompany) -> String {
    let head = [
        "cache", "program", "holds", "part", "MPKI", "alone", "IPC", "alone",
    ];
    let row = |bytes: u64, name: &str, part: &ProgramPart| -> Vec<String> {
        vec![
            in_units(bytes),
            name.to_owned(),
            in_units(part.bytes as u64),
            format!("{:.0} %", part.bytes / bytes as f64 * 100.0),
            number(part.mpki, 4),
            number(part.mpki_alone, 4),
            number(part.ipc, 3),
            number(part.ipc_alone, 3),
        ]
    };
    let rows = found.sizes.iter().flat_map(|shared| {
        let parts = found.programs.iter().zip(&shared.parts);
        parts.map(move |(name, part)| row(shared.bytes, name, part))
    });
    format!(
        "{} cores of {} ({}) behind one last-level cache\n\n{}",
        found.programs.len(),
        found.machine,
        found.core_type,
        plain(&head, rows)
    )
}
