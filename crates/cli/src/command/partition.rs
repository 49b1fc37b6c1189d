//! `steer partition`: computes the best partition of a last-level cache's ways among programs.

use countersteer_lab::partition::{self, ProgramDivision, ProgramDivisions};
use countersteer_report::number;
use countersteer_report::table::{divided, prose};

use super::{print, print_json};
use crate::library;
use crate::recorded::load_workload;

/// Arguments of `steer partition`.
#[derive(Debug, clap::Args)]
pub struct PartitionArgs {
    /// Machine: name or file
    #[arg(short = 'M', short_alias = 'm', long)]
    machine: String,
    /// Workload of up to eight programs: name or file
    #[arg(short, long)]
    workload: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs `steer partition`.
pub fn run(args: &PartitionArgs) -> anyhow::Result<()> {
    let machine = library::loaded(&args.machine)?;
    let found = partition::divisions(&machine, &load_workload(&args.workload)?)?;
    if args.json {
        return print_json(&found);
    }
    print(&text(&found))
}

/// Note on the limits of the computed slowdowns, printed below the table.
const ASIDE: &str = "Slowdowns are from misses alone: each program has a core and memory to itself. No division into ways of each \
    program's own is better; clusters that share ways can be.";

fn text(found: &ProgramDivisions) -> String {
    let mut head = vec!["division"];
    head.extend(found.programs.iter().map(String::as_str));
    head.extend(["STP", "unfairness"]);
    let row = |(name, division): (&str, &ProgramDivision)| {
        let each = division.ways.iter().zip(&division.slowdown);
        let mut row = vec![name.to_owned()];
        row.extend(each.map(|(ways, slowdown)| format!("{ways} ({})", number(*slowdown, 3))));
        row.push(number(division.stp, 4));
        row.push(number(division.unfairness, 4));
        row
    };
    let rows = [
        ("best STP", &found.best_stp),
        ("least unfairness", &found.best_unfairness),
        ("lookahead", &found.lookahead),
        ("equal", &found.equal),
    ];
    let title = format!(
        "{} on {}: ways of {} for each program, and its slowdown",
        found.workload, found.machine, found.of_ways
    );
    format!(
        "{}\n{}\n\n{}",
        prose(&title),
        divided(&head, &rows.map(row), 1),
        prose(ASIDE)
    )
}
