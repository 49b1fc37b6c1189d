//! Page sections other than charts: the machine, the table of scores, decisions, commands to repeat the runs, and
//! a glossary.

use countersteer_model::machine::SfSpread;
use countersteer_model::topology::{GroupBy, Topology};
use maud::{Markup, html};

use crate::chart::ChartRuns;
use crate::error::ReportError;
use crate::format::{bytes, number, seconds};
use crate::record::{DecisionRow, Manifest, Record};
use crate::table::{Better, PolicySummary, ScoreMetric, SeedSpread, measured};
use crate::why::{self, Explanation};

/// Returns a description of a machine in one sentence.
pub(super) fn machine(topology: &Topology) -> String {
    let types = topology.groups_by(GroupBy::CoreType).iter().map(|g| {
        let ghz = g
            .core_type
            .map_or(0.0, |t| topology.core_types[t.index()].freq_ghz);
        format!("{} {} at {ghz} GHz", g.cores, g.name)
    });
    let llcs = topology.groups_by(GroupBy::Llc);
    let sizes: std::collections::BTreeSet<u64> = (llcs.iter().filter_map(|g| g.cpus.lowest()))
        .map(|c| (topology.caches[topology.llc_of(c).index()].lines * 64.0) as u64)
        .collect();
    let sizes: Vec<String> = sizes.into_iter().rev().map(|b| bytes(b as f64)).collect();
    let caches = if llcs.len() == 1 {
        "one last-level cache".into()
    } else {
        format!("{} last-level caches", llcs.len())
    };
    let types: Vec<String> = types.collect();
    format!(
        "{} cores, {} CPUs; {caches} of {}.",
        types.join(" and "),
        topology.cpus.len(),
        sizes.join(" and ")
    )
}

/// Returns the table with the values of the bar chart.
pub(super) fn scores(e: &ChartRuns<'_>) -> Markup {
    let several = e.summaries.iter().any(|s| s.runs.len() > 1);
    let metrics = measured(&e.summaries);
    html! {
        details {
            summary { "The same as a table" }
            div.scroll tabindex="0" role="region" aria-label="Scores by policy" {
                table {
                    thead { tr {
                        th scope="col" { "policy" } th scope="col" { "seeds" }
                        @for m in &metrics { th scope="col" title=(m.prose) { (m.label) (arrow(m)) } }
                    } }
                    tbody { @for s in &e.summaries { tr {
                        th scope="row" { (s.policy) } td { (s.runs.len()) }
                        @for m in &metrics { (cell(e, s, m)) }
                    } } }
                }
            }
            p.note { "Arrows show the better direction; bold is best." @if several { " Median over seeds, below it the least and the most." } }
        }
    }
}

const fn arrow(metric: &ScoreMetric) -> &'static str {
    match metric.better {
        Better::Higher => " ↑",
        Better::Lower => " ↓",
        Better::Neither => "",
    }
}

fn cell(e: &ChartRuns<'_>, s: &PolicySummary<'_>, m: &ScoreMetric) -> Markup {
    let SeedSpread { median, min, max } = s.spread(m);
    let figure = |v: f64| {
        if m.key == "migrations" {
            crate::format::count(v.max(0.0).round() as u64)
        } else {
            number(v, 4)
        }
    };
    let medians: Vec<f64> = e.summaries.iter().map(|o| o.spread(m).median).collect();
    let best =
        medians.iter().all(|o| !m.beats(*o, median)) && medians.iter().any(|o| m.beats(median, *o));
    html! { td class=[best.then_some("best")] { (figure(median)) @if max > min { small { (figure(min)) "–" (figure(max)) } } } }
}

/// Limit on the number of decisions shown per experiment.
pub(crate) const DECISIONS: usize = 4;

/// Returns a few decisions with their reasons, from different policies and near the middle of the run. `None` if
/// no record has decisions.
pub(super) fn decisions(e: &ChartRuns<'_>) -> Result<Option<Markup>, ReportError> {
    let mut shown: Vec<(&Record, Explanation)> = Vec::new();
    let with: Vec<&Record> = e
        .records
        .iter()
        .copied()
        .filter(|r| !r.decisions.is_empty())
        .collect();
    let each = (DECISIONS / with.len().max(1)).max(1);
    for record in with.iter().take(DECISIONS) {
        for decision in telling(record, each) {
            let name = format!("thread{}", decision.thread);
            shown.push((
                record,
                why::why(record, &name, decision.at_ns as f64 * 1e-9)?,
            ));
        }
    }
    if shown.is_empty() {
        return Ok(None);
    }
    Ok(Some(html! {
        section {
            h3 { "Why threads were where they were" }
            p.prose { "Some decisions as the policies gave them. Any other: " code { "steer why RECORD --program NAME --at SECONDS" } "." }
            @for (record, a) in &shown { (answer(record, a)) }
        }
    }))
}

/// Returns up to `most` decisions with different rules and threads, near the middle of the run. Decisions whose
/// reasons contain numbers come first.
pub(crate) fn telling(record: &Record, most: usize) -> Vec<&DecisionRow> {
    let middle = record.end().0 / 2;
    let mut rows: Vec<&DecisionRow> = record.decisions.iter().collect();
    rows.sort_by_key(|row| order(row, middle));
    let mut chosen: Vec<&DecisionRow> = Vec::new();
    for row in rows {
        if chosen.len() < most
            && chosen
                .iter()
                .all(|c| c.rule != row.rule && c.thread != row.thread)
        {
            chosen.push(row);
        }
    }
    chosen
}

/// Returns the key by which decisions are sorted for display, given the time of the middle of the run in ns.
pub(crate) fn order(d: &DecisionRow, middle: u64) -> (bool, bool, u64, u32) {
    (
        d.alternatives.is_empty(),
        d.seen.is_empty(),
        d.at_ns.abs_diff(middle),
        d.thread,
    )
}

fn answer(record: &Record, a: &Explanation) -> Markup {
    let figures = |list: &[why::WhyFigure]| {
        list.iter()
            .map(|f| format!("{} {}", f.name, why::figure(&f.name, f.value)))
            .collect::<Vec<_>>()
            .join(", ")
    };
    html! {
        div.why {
            p { b { (a.program) } " at " (seconds(a.at_s)) " under " b { (record.manifest.policy) } ": on CPU " (a.cpu) " (" (a.core_type) ", " (a.llc) ")." }
            @if let Some(d) = &a.decision {
                p { "Sent to " b { (d.target) } ": " (d.rule) "." @if !d.seen.is_empty() { " Saw " (figures(&d.seen)) "." } }
                @if !d.alternatives.is_empty() {
                    p { "Alternatives" @if !d.unit.is_empty() { " (" (d.unit) ")" } ": "
                        @for (i, alternative) in d.alternatives.iter().enumerate() {
                            @if i > 0 { ", " } (alternative.group) " "
                            @if alternative.chosen { b { (number(alternative.value, 3)) " ← chosen" } } @else { (number(alternative.value, 3)) }
                        } "." }
                }
            }
            @if !a.after.is_empty() { p.note { "Then: " (figures(&a.after)) "." } }
        }
    }
}

/// Limit on the number of records that are listed with all their inputs.
const REPEATED: usize = 40;

/// Returns the commands that repeat the run of each record.
pub(super) fn repeat(records: &[&Record]) -> Markup {
    html! {
        section {
            h2 { "How to repeat this" }
            p.prose {
                @if records.iter().any(|r| is_simulated(r)) { "The same inputs give the same bytes. " }
                @if !records.iter().all(|r| is_simulated(r)) { "What ran on a real machine runs differently each time; " code { "steer replay RECORD" } " repeats its decisions. " }
                "Records hold machine, workload and profiles as they were used."
            }
            @for record in records.iter().take(REPEATED) {
                @let m = &record.manifest;
                details {
                    summary { (m.workload.name) " on " (m.machine.name) " under " (m.policy) ", seed " (m.seed) }
                    dl {
                        dt { "command" } dd { code { (command(record)) } }
                        dt { "version" } dd { "countersteer " (m.version) ", engine " (m.engine) }
                        dt { "period" } dd { (seconds(m.period_ns as f64 * 1e-9)) }
                        dt { "lasted" } dd { (seconds(m.outcome.elapsed_s)) ", " (crate::format::count(m.outcome.switches)) " context switches" }
                        @let options = options(m);
                        @if !options.is_empty() { dt { "options" } dd { (options) } }
                        @if !m.profiles.is_empty() {
                            dt { "profiles" } dd { (m.profiles.keys().cloned().collect::<Vec<_>>().join(", ")) }
                        }
                    }
                    pre { (m.workload.text.trim_end()) }
                }
            }
            @if records.len() > REPEATED { p.note { (records.len() - REPEATED) " more records not listed" } }
        }
    }
}

/// Returns the options of a run as on the command line, without the results that are stored among them.
fn options(m: &Manifest) -> String {
    let asked = m.options.iter();
    let asked = asked.filter(|(k, v)| !v.is_empty() && !["trial", "waits"].contains(&k.as_str()));
    let words: Vec<String> = asked.map(|(k, v)| format!("{k}={v}")).collect();
    words.join(", ")
}

fn is_simulated(record: &Record) -> bool {
    record.manifest.engine == "sim"
}

fn command(record: &Record) -> String {
    let m = &record.manifest;
    let quoted = |s: &str| {
        let plain = s
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_./:=,".contains(c));
        if plain {
            s.to_owned()
        } else {
            format!("'{}'", s.replace('\'', "'\\''"))
        }
    };
    let [machine, workload, policy] =
        [&m.machine.name, &m.workload.name, &m.policy].map(|s| quoted(s));
    if !is_simulated(record) {
        let period_ms = m.period_ns as f64 * 1e-6;
        let engine = quoted(m.engine.split(',').next().unwrap_or_default());
        return format!(
            "steer run --workload {workload} --policy {policy} --engine {engine} -i {period_ms}ms --output run.rec"
        );
    }
    format!(
        "steer sim --machine {machine} --workload {workload} --policy {policy} --seed {} --output run.rec",
        m.seed
    )
}

pub(super) fn words() -> Markup {
    let sf = SfSpread::KNOWN;
    let sf = format!(
        "how many times as fast a program is on the fastest core type as on the slowest; simulated ones are to be multiplied by {} to {} (nine programs in ten, {})",
        sf.low, sf.high, sf.on
    );
    let words: [(&str, &str); 9] = [
        ("speed-up factor", &sf),
        (
            "slowdown",
            "completion time over the time alone on the fastest cores; 1 is undisturbed",
        ),
        (
            "ASP",
            "aggregate speed-up: sum over programs of (time alone on the slowest cores / completion time − 1)",
        ),
        (
            "STP",
            "system throughput: sum of 1 / slowdown (Eyerman and Eeckhout 2008)",
        ),
        ("ANTT", "average normalised turnaround time: mean slowdown"),
        (
            "unfairness",
            "largest slowdown over the smallest; 1 is fair",
        ),
        (
            "nJ/instruction",
            "energy of the whole machine over the instructions of all programs",
        ),
        (
            "J/run",
            "energy of the whole machine over completed runs (number of programs times the geometric mean of their runs)",
        ),
        (
            "EDP",
            "energy per 10⁹ instructions times time per 10⁹ instructions",
        ),
    ];
    html! {
        section {
            h2 { "Words" }
            dl { @for (word, meaning) in words { dt { (word) } dd { (meaning) } } }
        }
    }
}
