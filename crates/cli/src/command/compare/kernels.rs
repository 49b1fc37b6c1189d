//! Comparison of policies under several kernel releases: the tables for each kernel, and the change of each policy's gain.
//!
//! Input: the arguments of `steer compare`, and the kernel releases. Output: the tables of `compare` for each kernel, then each
//! policy's gain over `linux` by kernel. The better a later kernel places threads, the smaller is a policy's gain.

use countersteer_report::judge::{Ranked, Ranking};
use countersteer_report::table::{self, JudgedComparison};
use serde::Serialize;

use super::{CompareArgs, check, print, print_json, simulate, sweep, tables};
use crate::error::{FaultKind, failure};

/// Results of the comparison under one kernel release.
#[derive(Serialize)]
struct Under<'a> {
    kernel: &'a str,
    #[serde(flatten)]
    judged: JudgedComparison<'a>,
}

#[derive(Serialize)]
struct Output<'a> {
    kernels: Vec<Under<'a>>,
}

/// Compares the policies under each kernel release, and prints the results.
pub fn compare(args: &CompareArgs, kernels: &[String]) -> anyhow::Result<()> {
    if args.csv || args.report.is_some() || args.output.is_some() {
        let why = "--csv, --report and --output are for one kernel: name one with --kernel, or use --json";
        return Err(failure(FaultKind::Usage, why));
    }
    let mut sweep = sweep(args)?;
    check(&sweep)?;
    let mut compared = Vec::new();
    for kernel in kernels {
        sweep.options.kernel.clone_from(kernel);
        compared.push(simulate(args, &sweep)?);
    }
    if args.json {
        let under = kernels.iter().zip(&compared).map(|(kernel, done)| Under {
            kernel,
            judged: JudgedComparison::new(done.runs.clone(), &done.rankings),
        });
        return print_json(&Output {
            kernels: under.collect(),
        });
    }
    let mut text = String::new();
    for (kernel, done) in kernels.iter().zip(&compared) {
        text += &format!("Kernel {kernel}\n\n");
        text += &tables(&done.runs, &done.rankings, args.verbose);
        text.push('\n');
    }
    let rankings: Vec<&[Ranking]> = compared.iter().map(|d| &d.rankings[..]).collect();
    text += "Gain over linux of the same kernel, %\n\n";
    text += &gains(kernels, &rankings);
    print(&text)
}

/// Formats the gains as a table with a row per machine, workload and policy, and a column per kernel. Gains are in percent.
fn gains(kernels: &[String], rankings: &[&[Ranking]]) -> String {
    let mut head = vec!["machine", "workload", "policy"];
    head.extend(kernels.iter().map(String::as_str));
    let first = rankings.first().copied().unwrap_or_default();
    let ranked = |r: &Ranking| -> Vec<Ranked> {
        let all = r.deployable.iter().chain(&r.simulator_only);
        all.cloned().collect()
    };
    let gain = |all: &[Ranking], row: &Ranking, policy: &str| {
        let same = all
            .iter()
            .find(|r| (&r.machine, &r.workload) == (&row.machine, &row.workload))?;
        let policy = ranked(same).into_iter().find(|p| p.policy == policy)?;
        Some(format!("{:+.1}", 100.0 * policy.throughput.mean))
    };
    let mut rows = Vec::new();
    for ranking in first {
        for policy in ranked(ranking) {
            let mut row = vec![
                ranking.machine.clone(),
                ranking.workload.clone(),
                policy.policy.clone(),
            ];
            let by_kernel = rankings
                .iter()
                .map(|all| gain(all, ranking, &policy.policy).unwrap_or_else(|| "-".into()));
            row.extend(by_kernel);
            rows.push(row);
        }
    }
    table::plain(&head, rows)
}
