//! Tables of scores as text.
//!
//! Input: runs. Output: aligned columns for terminals, Markdown, CSV.

use std::fmt::Write;

use comfy_table::{
    Attribute, Cell, CellAlignment, ColumnConstraint, ContentArrangement, Table, presets,
};
use countersteer_model::machine::SfSpread;
use countersteer_model::printable::{printable, shortened};

use super::prose::{NARROWEST, USUAL, asked_columns, prose};
use super::summary::{METRICS, PolicySummary, ScoreMetric, SeedSpread, columns, summarise};
use super::{Better, CompareProgram, CompareRun};
use crate::format::number;
use crate::judge::{Ranked, Ranking, RelativeChange, lead};

/// Tolerance: maximum relative difference of a program's times alone at which the cores count as equal.
const EQUAL: f64 = 1e-6;

/// Returns a table without a frame. An empty `head` is omitted.
#[must_use]
pub fn plain(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = filled(head, rows);
    fit(&mut table);
    text_of(&table)
}

/// Returns a table without a frame, whose first `texts` columns are aligned left and the others right.
#[must_use]
pub fn aligned(texts: usize, head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = filled(head, rows);
    for column in table.column_iter_mut().skip(texts) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    fit(&mut table);
    text_of(&table)
}

fn filled(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Table {
    let mut table = bare();
    if !head.is_empty() {
        table.set_header(head.iter().map(bold));
    }
    for row in rows {
        table.add_row(row.iter().map(|cell| without_long_words(&printable(cell))));
    }
    table
}

/// Returns the policies in percent relative to `linux`, by machine and workload. The last line of each table is the
/// recommendation.
#[must_use]
pub fn ranking(rankings: &[Ranking]) -> String {
    let mut text = String::new();
    for r in rankings {
        if !text.is_empty() {
            text.push('\n');
        }
        let seeds = if r.seeds == 1 { "seed" } else { "seeds" };
        text += &format!(
            "{} on {}: change against linux, {} {seeds}; ± holds 90 % of runs\n",
            r.workload, r.machine, r.seeds
        );
        if !r.deployable.is_empty() || !r.simulator_only.is_empty() {
            text += &ranked(r);
        }
        for sentence in r.sentences() {
            text += &(prose(&sentence) + "\n");
        }
    }
    text
}

fn ranked(r: &Ranking) -> String {
    let head = [
        "policy",
        "throughput",
        "mean slowdown",
        "worst loser",
        "energy/instr",
    ];
    let change = |value: Option<RelativeChange>| value.map_or_else(|| "-".into(), |f| f.cell());
    let row = |p: &Ranked, note: &str| {
        let loser = (p.lost()).map_or_else(
            || "none".into(),
            |l| format!("{} {}", l.name, l.speed.cell()),
        );
        vec![
            format!("{}{note}", p.policy),
            p.throughput.cell(),
            change(p.slowdown),
            loser,
            change(p.energy_per_instruction),
        ]
    };
    let deployable = r.deployable.iter().map(|p| row(p, ""));
    let others = r.simulator_only.iter();
    aligned(
        1,
        &head,
        deployable.chain(others.map(|p| row(p, " (simulator only)"))),
    )
}

/// Returns a comparison of policies for a terminal: medians over seeds with ranges, the best of each column in bold. The score
/// that fits the machine is the first column.
#[must_use]
pub fn comparison(runs: &[CompareRun]) -> String {
    let summaries = summarise(runs);
    let mut table = bare();
    let names = names(&summaries);
    let first = lead(&summaries);
    let mut metrics = columns(&summaries);
    metrics.retain(|m| m.key != first.key);
    metrics.insert(0, first);
    let head = names
        .iter()
        .map(|n| n.0)
        .chain(["seeds"])
        .chain(metrics.iter().map(|m| m.label));
    table.set_header(head.map(bold));
    for summary in &summaries {
        let mut row: Vec<Cell> = names
            .iter()
            .map(|n| Cell::new(printable(&(n.1)(summary))))
            .collect();
        row.push(Cell::new(summary.runs.len()).set_alignment(CellAlignment::Right));
        for metric in &metrics {
            let cell = Cell::new(shown(metric, summary)).set_alignment(CellAlignment::Right);
            let best = colour() && is_best(metric, summary, &summaries);
            row.push(if best {
                cell.add_attribute(Attribute::Bold)
            } else {
                cell
            });
        }
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(names.len()) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let several = summaries.iter().any(|s| s.runs.len() > 1);
    let note = if several {
        "median over seeds, (least to most)\n"
    } else {
        ""
    };
    fit(&mut table);
    text_of(&table) + note
}

/// Returns a comparison of policies as a Markdown table, with the best of each column in bold.
#[must_use]
pub fn markdown(runs: &[CompareRun]) -> String {
    let summaries = summarise(runs);
    let names = names(&summaries);
    let metrics = columns(&summaries);
    let head: Vec<&str> = names
        .iter()
        .map(|n| n.0)
        .chain(["seeds"])
        .chain(metrics.iter().map(|m| m.label))
        .collect();
    let rules = head
        .iter()
        .enumerate()
        .map(|(i, _)| if i < names.len() { "---" } else { "---:" });
    let mut text = format!(
        "| {} |\n| {} |\n",
        head.join(" | "),
        rules.collect::<Vec<_>>().join(" | ")
    );
    for summary in &summaries {
        let mut cells: Vec<String> = names
            .iter()
            .map(|n| (n.1)(summary).replace('|', "\\|"))
            .collect();
        cells.push(summary.runs.len().to_string());
        for metric in &metrics {
            let shown = shown(metric, summary);
            cells.push(if is_best(metric, summary, &summaries) {
                format!("**{shown}**")
            } else {
                shown
            });
        }
        text += &format!("| {} |\n", cells.join(" | "));
    }
    text
}

/// Returns all runs as CSV with full precision, one line per run.
#[must_use]
pub fn csv(runs: &[CompareRun]) -> String {
    let mut text = String::from(
        "machine,workload,policy,seed,asp,stp,antt,unfairness,jain,ipc,energy_j,edp_js,migrations,weighted_unfairness,energy_per_instruction_nj,energy_per_run_j\n",
    );
    for r in runs {
        let names = [&r.machine, &r.workload, &r.policy]
            .map(|n| quoted(n))
            .join(",");
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{names},{},{},{},{},{},{},{},{},{},{},{},{},{}",
            r.seed,
            r.asp,
            r.stp,
            r.antt,
            r.unfairness,
            r.jain,
            r.ipc,
            r.energy_j,
            r.edp_js,
            r.migrations,
            r.weighted_unfairness,
            r.energy_per_instruction_nj,
            r.energy_per_run_j
        );
    }
    text
}

/// Returns medians and ranges as CSV, one line per machine, workload and policy.
#[must_use]
pub fn csv_summary(runs: &[CompareRun]) -> String {
    let mut text = String::from("machine,workload,policy,seeds");
    for metric in METRICS {
        let key = metric.key;
        text += &format!(",{key}_median,{key}_min,{key}_max");
    }
    text.push('\n');
    for s in summarise(runs) {
        text += &[s.machine, s.workload, s.policy].map(quoted).join(",");
        text += &format!(",{}", s.runs.len());
        for metric in METRICS {
            let SeedSpread { median, min, max } = s.spread(metric);
            text += &format!(",{median},{min},{max}");
        }
        text.push('\n');
    }
    text
}

/// Returns the scores of the programs of one run, for a terminal.
#[must_use]
pub fn programs(run: &CompareRun) -> String {
    let head = [
        "program",
        "completion (s)",
        "alone fast (s)",
        "alone slow (s)",
        "slowdown",
    ];
    let row = |p: &CompareProgram| {
        let cells = [p.completion_s, p.alone_fast_s, p.alone_slow_s, p.slowdown];
        let cells = cells.map(|value| number(value, 4));
        [p.name.clone()].into_iter().chain(cells).collect()
    };
    let table = aligned(1, &head, run.programs.iter().map(row));
    table + &spread(run) + &swapped(run) + &sampled(run)
}

/// Returns the metrics of a sampled run with their intervals; empty if the run was not sampled.
fn sampled(run: &CompareRun) -> String {
    let between = |value, half| format!("{} ± {}", number(value, 4), number(half, 2));
    let row = |p: &CompareProgram| {
        let s = p.sampled.as_ref()?;
        Some(vec![
            p.name.clone(),
            between(s.ipc, s.ipc_half_width),
            between(s.llc_mpki, s.llc_mpki_half_width),
            format!("{:.1} %", s.detailed * 100.0),
        ])
    };
    let rows: Vec<Vec<String>> = run.programs.iter().filter_map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let head = ["program", "IPC", "LLC MPKI", "in detail"];
    format!("Sampled, with 95 % intervals:\n{}", aligned(1, &head, rows))
}

/// Returns a sentence on the accuracy of simulated speed-up factors; empty if all cores are equal.
fn spread(run: &CompareRun) -> String {
    if run.programs.iter().all(|p| p.sf_interval.is_none()) {
        return String::new();
    }
    let SfSpread {
        low,
        high,
        programs,
        on,
    } = SfSpread::KNOWN;
    prose(&format!(
        "Alone slow over alone fast is a simulated speed-up factor; the measured one is {low} to {high} times as large in nine cases of ten ({programs} programs, {on}).\n"
    ))
}

/// Returns a sentence with the programs that are faster alone on the slow cores; empty if there are none. Such cores may have
/// larger caches, and slowdowns are relative to the fast ones.
fn swapped(run: &CompareRun) -> String {
    let swapped = |p: &&CompareProgram| p.alone_slow_s < p.alone_fast_s * (1.0 - EQUAL);
    let names: Vec<&str> = run
        .programs
        .iter()
        .filter(swapped)
        .map(|p| p.name.as_str())
        .collect();
    if names.is_empty() {
        return String::new();
    }
    prose(&format!(
        "Faster alone on the cores called slow, which have the lower clock but may have more cache: {}. Their slowdown can be below 1.\n",
        names.join(", ")
    ))
}

type Name = (&'static str, fn(&PolicySummary<'_>) -> String);

/// Returns the columns that identify rows: the policy, and machine and workload if there are several.
fn names(summaries: &[PolicySummary<'_>]) -> Vec<Name> {
    let several =
        |f: fn(&PolicySummary<'_>) -> String| summaries.windows(2).any(|w| f(&w[0]) != f(&w[1]));
    let machine: Name = ("machine", |s| s.machine.to_owned());
    let workload: Name = ("workload", |s| s.workload.to_owned());
    let policy: Name = ("policy", |s| s.policy.to_owned());
    [machine, workload]
        .into_iter()
        .filter(|n| several(n.1))
        .chain([policy])
        .collect()
}

/// Minimum width of a last column of text on a terminal.
const WORDS: u16 = 24;
/// Minimum width of a last column of text without a terminal, where all columns are shown.
const FEW_WORDS: u16 = 12;

/// Fits a table to the terminal without breaking words or numbers. Text in the last column is wrapped; if there is no space even
/// for that, the last columns are omitted. Without a terminal, no column is omitted, because a program may read the output.
fn fit(table: &mut Table) {
    if table.width().is_some_and(|width| width < NARROWEST) {
        return;
    }
    // Each cell has a blank on both sides; those at the ends of lines are not printed.
    let widths: Vec<u16> = table
        .column_max_content_widths()
        .iter()
        .map(|w| w.saturating_add(2))
        .collect();
    let sum = |widths: &[u16]| widths.iter().fold(0, |sum: u16, w| sum.saturating_add(*w));
    let is_terminal = table.width().is_some();
    let least = |last: u16| match last > WORDS {
        true if is_terminal => WORDS,
        true => FEW_WORDS,
        false => last,
    };
    let width = table.width().unwrap_or_else(|| match widths.split_last() {
        Some((last, others)) => sum(others).saturating_add(least(*last)).max(USUAL),
        None => USUAL,
    });
    table.set_width(width);
    let mut shown = widths.len();
    while shown > 1 {
        let others = sum(&widths[..shown - 1]);
        let needed = least(widths[shown - 1]);
        if others.saturating_add(needed) <= width.saturating_add(1) {
            break;
        }
        shown -= 1;
    }
    for (i, column) in table.column_iter_mut().enumerate() {
        if i >= shown {
            column.set_constraint(ColumnConstraint::Hidden);
        } else if i + 1 < shown {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
}

/// Largest number of characters of a word in a table. Longer ones are in hostile files, and take long to break.
const LONGEST_WORD: usize = 500;

fn without_long_words(cell: &str) -> String {
    let words = cell.split_inclusive(char::is_whitespace);
    words.map(|word| shortened(word, LONGEST_WORD)).collect()
}

fn bare() -> Table {
    let mut table = Table::new();
    if let Some(columns) = asked_columns() {
        table.set_width(columns);
    }
    let wide = table.width().is_none_or(|columns| columns >= NARROWEST);
    let arrangement = if wide {
        ContentArrangement::Dynamic
    } else {
        ContentArrangement::Disabled
    };
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(arrangement);
    table
}

/// True if heads may be bold: the user did not disable it (<https://no-color.org>).
fn colour() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

fn bold(text: impl ToString) -> Cell {
    let cell = Cell::new(text.to_string());
    if colour() {
        cell.add_attribute(Attribute::Bold)
    } else {
        cell
    }
}

fn text_of(table: &Table) -> String {
    let mut text = String::new();
    for line in table.lines() {
        // Every cell has a blank on both sides; the outer ones are removed.
        text += line.strip_prefix(' ').unwrap_or(&line).trim_end();
        text.push('\n');
    }
    text
}

fn shown(metric: &ScoreMetric, summary: &PolicySummary<'_>) -> String {
    let SeedSpread { median, min, max } = summary.spread(metric);
    let figure = |v: f64| {
        if metric.key == "migrations" {
            crate::format::count(v.round() as u64)
        } else {
            number(v, 4)
        }
    };
    // A range whose ends are equal after rounding is not shown.
    if figure(min) == figure(max) {
        return figure(median);
    }
    format!("{} ({}–{})", figure(median), figure(min), figure(max))
}

/// True if no policy of the same experiment has a better median, and at least one has a worse one.
fn is_best(metric: &ScoreMetric, summary: &PolicySummary<'_>, all: &[PolicySummary<'_>]) -> bool {
    let mine = summary.spread(metric).median;
    let rivals: Vec<f64> = all
        .iter()
        .filter(|s| s.same_experiment(summary))
        .map(|s| s.spread(metric).median)
        .collect();
    metric.better != Better::Neither
        && rivals.iter().all(|r| !metric.beats(*r, mine))
        && rivals.iter().any(|r| metric.beats(mine, *r))
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
