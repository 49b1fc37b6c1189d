//! `steer reproduce`: repeats experiments of published papers, and compares the results.

use std::path::PathBuf;

use countersteer_lab::experiment::Fidelity;
use countersteer_lab::reproduce::{self, Catalogue, JudgedStatement, Reproduced, StatementVerdict};
use countersteer_report::table::plain;
use countersteer_report::write_atomically;

use super::{print, print_json};
use crate::progress;

/// Arguments of `steer reproduce`.
#[derive(Debug, clap::Args)]
pub struct ReproduceArgs {
    /// Experiments to run: names or prefixes of names (`hass`, `pmctrack-fig8`), or `all`; `list` prints the names
    #[arg(required = true, value_name = "NAME|all|list")]
    names: Vec<String>,
    /// Write the verdicts as a Markdown document
    #[arg(long, value_name = "OUT.md")]
    markdown: Option<PathBuf>,
    /// Write the verdicts as a self-contained HTML page
    #[arg(long, value_name = "OUT.html")]
    report: Option<PathBuf>,
    /// Source of cache misses: `analytic` (profiles); `traced` or `sampled` (traces of stand-in programs in simulated caches).
    /// With traces, the analytic values are also shown, and programs are 400 times shorter and run one round with one seed
    #[arg(long, default_value = "analytic", value_name = "HOW", value_parser = crate::sim_args::fidelity)]
    fidelity: Fidelity,
    /// Folder of the stand-in programs' traces, e.g. `chase.trace` for `chase` of demo/programs.tsv. Pairs with a program that has
    /// no trace are omitted; mixes fail without one
    #[arg(long, value_name = "FOLDER", required_if_eq_any([("fidelity", "traced"), ("fidelity", "sampled")]))]
    traces: Option<PathBuf>,
    /// Print JSON: an array of experiments
    #[arg(long)]
    json: bool,
}

/// Runs `steer reproduce`.
pub fn run(args: &ReproduceArgs) -> anyhow::Result<()> {
    let catalogue = Catalogue::shipped()?;
    if args.names == ["list"] {
        return list(&catalogue, args.json);
    }
    for path in args.markdown.iter().chain(&args.report) {
        crate::output::check_writable(path)?;
    }
    let traced = match &args.traces {
        Some(folder) if args.fidelity != Fidelity::Analytic => {
            Some(Catalogue::shipped()?.traced(args.fidelity, folder.clone()))
        }
        _ => None,
    };
    let cases = catalogue.named(&args.names)?;
    let bar = progress::bar(cases.len() as u64, "reproducing");
    let mut done = Vec::new();
    for (paper, case) in cases {
        bar.set_message(case.name.clone());
        done.push(catalogue.run(paper, case)?);
        if let Some(traced) = &traced {
            done.push(traced.run(paper, case)?);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if let Some(path) = &args.markdown {
        write_atomically(path, reproduce::markdown(&catalogue, &done).as_bytes())?;
    }
    if let Some(path) = &args.report {
        write_atomically(path, reproduce::html(&catalogue, &done).as_bytes())?;
    }
    if args.json {
        return print_json(&done);
    }
    print(&summary(&done))
}

fn list(catalogue: &Catalogue, json: bool) -> anyhow::Result<()> {
    let listed = catalogue.list();
    if json {
        return print_json(&listed);
    }
    let rows = listed.iter().map(|l| {
        let what = format!("{}, {}: {}", l.paper, l.item, l.title);
        vec![l.name.to_string(), what]
    });
    print(&plain(&["case", "what"], rows))
}

fn summary(cases: &[Reproduced]) -> String {
    if cases.len() > 3 {
        return plain(&[], cases.iter().map(counted));
    }
    let mut text = String::new();
    for case in cases {
        reproduce::section(&mut text, case);
        for line in &case.on_this_host {
            text.push_str(&format!("\nOn this host: {line}.\n"));
        }
    }
    text
}

/// Returns the name of a case, its verdict, and the number of statements that hold.
fn counted(case: &Reproduced) -> Vec<String> {
    let holds = |f: &&JudgedStatement| f.verdict == StatementVerdict::Reproduced;
    let held = case.findings.iter().filter(holds).count();
    let words = case.verdict.words().to_string();
    let of_all = format!("{held} of {} statements", case.findings.len());
    vec![case.name.to_string(), words, of_all]
}
