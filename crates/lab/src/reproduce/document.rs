//! Generator of `docs/reproduction.md`: a table of all cases, then one section per case.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::Catalogue;
use super::Reproduced;
use super::bars;
use super::case::Cause;
use super::judge::{JudgedStatement, StatementVerdict};
use super::programs::{INSTRUCTIONS_PER_THREAD, SHORTER};
use super::statements;
use super::values::MEASURES;

/// Returns the whole document as Markdown.
pub fn markdown(catalogue: &Catalogue, cases: &[Reproduced]) -> String {
    document(catalogue, cases, section)
}

fn document(
    catalogue: &Catalogue,
    cases: &[Reproduced],
    section: impl Fn(&mut String, &Reproduced),
) -> String {
    let mut text = format!("{HEAD} {}{RULES}", lengths(cases));
    statements::overview(&mut text, &catalogue.statements, cases);
    conclusions(&mut text, catalogue);
    causes(&mut text, cases);
    overview(&mut text, cases);
    cases.iter().for_each(|case| section(&mut text, case));
    appendix(&mut text, catalogue);
    text
}

/// Writes the conclusion about each paper.
fn conclusions(text: &mut String, catalogue: &Catalogue) {
    text.push_str("\n## What to conclude\n\n");
    for paper in catalogue.papers.iter().filter(|p| !p.conclusion.is_empty()) {
        let _ = writeln!(text, "- **{}**: {}", paper.title, paper.conclusion.trim());
    }
}

/// Writes the number of findings that are not reproduced, by cause and verdict.
fn causes(text: &mut String, cases: &[Reproduced]) {
    let findings = || cases.iter().flat_map(|case| &case.findings);
    let mut counts: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    let verdicts = [
        StatementVerdict::Order,
        StatementVerdict::Direction,
        StatementVerdict::Differs,
    ];
    for finding in findings() {
        let row = verdicts.iter().position(|v| *v == finding.verdict);
        if let (Some(cause), Some(row)) = (finding.cause, row) {
            counts.entry(cause.words()).or_default()[row] += 1;
        }
    }
    let heads = verdicts.map(StatementVerdict::words).join(" | ");
    let _ = writeln!(
        text,
        "\n## Why the rest is not reproduced\n\n| cause | {heads} |\n|---|---|---|---|"
    );
    for (cause, of) in counts {
        let cells = of.map(|n| n.to_string()).join(" | ");
        let _ = writeln!(text, "| {cause} | {cells} |");
    }
    text.push_str("\n## Cases\n\n");
}

/// Writes a table with one row per case.
fn overview(text: &mut String, cases: &[Reproduced]) {
    text.push_str("| paper | item | what | verdict | reproduced | of them numbers | command |\n|---|---|---|---|---|---|---|\n");
    for case in cases {
        let held = |f: &&JudgedStatement| f.verdict == StatementVerdict::Reproduced;
        let is_number = |f: &&JudgedStatement| f.numbers.is_some();
        let numbers = case.findings.iter().filter(is_number);
        let held_numbers = numbers.clone().filter(held).count();
        let _ = writeln!(
            text,
            "| {} | {} | {} | **{}** | {} of {} | {held_numbers} of {} | `steer reproduce {}` |",
            case.paper,
            case.item,
            case.title,
            case.verdict.words(),
            case.findings.iter().filter(held).count(),
            case.findings.len(),
            numbers.count(),
            case.name,
        );
    }
}

/// Returns a sentence on the instructions per thread, of which simulated accesses need fewer.
fn lengths(cases: &[Reproduced]) -> String {
    let expected = cases.iter().filter(|c| c.fidelity == "analytic").count();
    let billions = INSTRUCTIONS_PER_THREAD / 1e9;
    let millions = INSTRUCTIONS_PER_THREAD / SHORTER / 1e6;
    if expected == cases.len() {
        format!("Every thread runs {billions} billion instructions per completion.")
    } else if expected == 0 {
        format!("Every thread runs {millions} million instructions per completion.")
    } else {
        format!(
            "Every thread runs {billions} billion instructions per completion, and {millions} million where\na case names traced or sampled caches."
        )
    }
}

/// Writes the appendix: papers, measures, stand-ins, mixes and omitted statements.
fn appendix(text: &mut String, catalogue: &Catalogue) {
    text.push_str("\n## Papers\n\n");
    for paper in &catalogue.papers {
        let _ = writeln!(text, "- {}: {}", paper.title, paper.venue);
    }
    text.push_str("\n## Measures\n\n| measure | meaning |\n|---|---|\n");
    for measure in MEASURES {
        let _ = writeln!(text, "| `{}` | {} |", measure.name, measure.prose);
    }
    stand_ins(text, catalogue);
    mixes(text, catalogue);
    statements::left_out(text, &catalogue.statements);
}

fn stand_ins(text: &mut String, catalogue: &Catalogue) {
    text.push_str("\n## Programs\n\n| program | kind | like | known from | played by |\n|---|---|---|---|---|\n");
    for (program, by) in catalogue.cast.stand_ins() {
        let serial = by.serial_share;
        let serial = serial.map_or(String::new(), |s| format!(", {:.0} % serial", 100.0 * s));
        let _ = writeln!(
            text,
            "| {program} | {}{serial} | {} | {} | `{}` |",
            by.class, by.like, by.basis, by.profile
        );
    }
}

fn mixes(text: &mut String, catalogue: &Catalogue) {
    text.push_str("\n## Mixes\n\n| mix | from | programs (threads) | left open by the paper |\n|---|---|---|---|\n");
    for (name, mix) in catalogue.cast.mixes() {
        let members = mix.members.iter();
        let members: Vec<String> = members.map(|(p, n)| format!("{p} ({n})")).collect();
        let members = members.join(", ");
        let _ = writeln!(
            text,
            "| {name} | {} | {members} | {} |",
            mix.item, mix.uncertain
        );
    }
}

/// Returns the document as an HTML page.
pub fn html(catalogue: &Catalogue, cases: &[Reproduced]) -> String {
    let drawn = |text: &mut String, case: &Reproduced| {
        section(text, case);
        if let Some(svg) = bars::svg(case) {
            let legend = "Light: the paper. Dark: here, with the interval.";
            let _ = write!(text, "\n{svg}\n\n{legend}\n");
        }
    };
    let text = document(catalogue, cases, drawn);
    let parser = pulldown_cmark::Parser::new_ext(&text, pulldown_cmark::Options::ENABLE_TABLES);
    let mut body = String::new();
    pulldown_cmark::html::push_html(&mut body, parser);
    format!("{PAGE_HEAD}{body}</main>\n</html>\n")
}

const PAGE_HEAD: &str = "<!DOCTYPE html>
<html lang=\"en\">
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width\">
<title>The papers' results beside ours</title>
<style>
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 70rem; margin: 0 auto; padding: 1rem; overflow-x: auto; }
table { border-collapse: collapse; }
td, th { border-bottom: 1px solid #8886; padding: 0.25rem 0.75rem 0.25rem 0; text-align: left; vertical-align: top; }
</style>
<main>
";

/// Writes the section of one case.
pub fn section(text: &mut String, case: &Reproduced) {
    let _ = writeln!(
        text,
        "\n## {}: {} ({}, {})\n",
        case.name, case.title, case.paper, case.item
    );
    if !case.machine.is_empty() {
        let _ = writeln!(
            text,
            "Machine: `{}`{}. Verdict: **{}**.",
            case.machine,
            match case.fidelity {
                "analytic" => String::new(),
                fidelity => format!(", {fidelity} caches"),
            },
            case.verdict.words()
        );
    }
    if !case.note.is_empty() {
        let _ = writeln!(text, "{}", case.note);
    }
    if !case.findings.is_empty() {
        text.push_str(
            "\n| the paper says | paper | here | verdict | cause |\n|---|---|---|---|---|\n",
        );
    }
    for finding in &case.findings {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            finding.says,
            finding.paper,
            finding.ours,
            finding.verdict.words(),
            finding.cause.map_or("", Cause::words),
        );
    }
    if !case.stand_ins.is_empty() {
        let _ = writeln!(text, "\nPrograms: {}.", case.stand_ins.join(", "));
    }
}

const HEAD: &str = "# The papers' results beside ours

Made by `steer reproduce all`; do not edit. Every figure and table of the five papers' evaluations is a case: the paper's
mixes on its machine, under its policies, in the simulator. Programs of SPEC CPU are played by profiles of counters that others
measured of them and published (`steer profile list`); where nothing is published, recorded programs of the same kind stand
in. Every case lists which.";

const RULES: &str = "

A number is *reproduced* when the programs, the baseline and the formula are the paper's and its value lies in the interval of
ours: 1.96 standard deviations over ten repetitions, which differ in seed and, within their errors, in the programs' counters.
An interval wider than the value shows nothing. A statement in words is reproduced when it holds in 19 of 20 repetitions, or in
the one run of a case in which nothing is drawn. It is of the *same order* when it holds on the mean, whatever the programs. A
change has the *same direction* when its sign is the paper's and its interval excludes none, an order when it holds in more than
half of the rows; shares and ratios have none. Everything else *differs*, and a case is what the worst of its statements is.
Nothing is tuned until it agrees.

";

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn case(fidelity: &'static str) -> Reproduced {
        Reproduced {
            name: "case".into(),
            paper: "paper".into(),
            item: "figure".into(),
            title: "title".into(),
            machine: "machine".into(),
            fidelity,
            note: String::new(),
            stand_ins: Vec::new(),
            verdict: StatementVerdict::Reproduced,
            findings: Vec::new(),
            on_this_host: Vec::new(),
        }
    }

    #[test]
    fn the_head_says_how_many_instructions_the_cases_below_run() {
        let catalogue = Catalogue::shipped().unwrap();
        let head = |cases: &[Reproduced]| {
            let text = markdown(&catalogue, cases);
            text.split_once("A number is *reproduced*")
                .unwrap()
                .0
                .to_owned()
        };
        let expected = head(&[case("analytic")]);
        let shipped = include_str!("../../../../docs/reproduction.md");
        assert!(shipped.starts_with(&expected), "{expected}");
        assert!(expected.contains("runs 20 billion instructions per completion.\n"));
        let traced = head(&[case("traced"), case("sampled")]);
        assert!(traced.contains("runs 50 million instructions per completion.\n"));
        let both = head(&[case("analytic"), case("traced")]);
        assert!(
            both.contains("20 billion instructions per completion, and 50 million where\na case")
        );
    }
}
