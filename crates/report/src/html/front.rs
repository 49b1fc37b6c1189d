//! First screen of the report: the best policy, its gain, the programs that lose, and the certainty of the result.
//!
//! Input: rankings of experiments, and records. Output: for each experiment, a sentence, and the usable policies in
//! percent relative to `linux`. Policies that only a simulator can run follow, then explanations of terms.

use std::collections::BTreeSet;

use countersteer_model::trial::Gain;
use maud::{Markup, html};
use serde_json::Value;

use crate::format::{count, seconds};
use crate::judge::{self, Ranked, Ranking, RelativeChange, Remark, Verdict};
use crate::record::Record;

fn unbroken(text: &str) -> String {
    text.replace(" %", "\u{a0}%")
}

/// True if an experiment has the baseline and at least one other policy.
pub(super) fn is_ranked(ranking: &Ranking) -> bool {
    ranking.verdict != Verdict::NoBaseline
        && !(ranking.deployable.is_empty() && ranking.simulator_only.is_empty())
}

/// Returns the result of one experiment as HTML.
pub(super) fn answer(r: &Ranking, nth: usize, several: bool) -> Markup {
    let seeds = match r.seeds {
        1 => "one seed".to_owned(),
        n => format!("the median of {n} seeds, each against the same seed of linux"),
    };
    let same = r.deployable.iter().filter(|p| is_linux(p));
    let same: Vec<&str> = same.map(|p| p.policy.as_str()).collect();
    html! {
        section.answer {
            @if several { h2.small { a href={ "#e" (nth) } { (r.workload) " on " (r.machine) } } }
            div.verdict { p { (unbroken(&r.sentence())) } }
            @for remark in r.remarks.iter().map(Remark::words) { p.note { (unbroken(&remark)) } }
            div.scroll tabindex="0" role="region" aria-label={ "Policies for " (r.workload) " on " (r.machine) } {
                table.ranks {
                    thead { tr {
                        th.text scope="col" { "policy" } th scope="col" { "throughput" } th scope="col" { "mean slowdown" }
                        th scope="col" { "worst loser" } th.rest scope="col" { "seeds better" } th.rest scope="col" { "energy per instruction" } th.rest scope="col" { "per run" }
                    } }
                    tbody {
                        @for (i, p) in r.deployable.iter().enumerate().filter(|(_, p)| !is_linux(p)) { (row(p, "", i == 0 && r.verdict == Verdict::Use)) }
                        @for p in &r.simulator_only { (row(p, " (simulator only)", false)) }
                        tr.zero { th scope="row" { "linux" } td { "0 %" } td { "0 %" } td { "" } td.rest { "" } td.rest { "0 %" } td.rest { "0 %" } }
                    }
                }
            }
            p.note {
                "Change against plain linux: " (seeds) ". Below each figure, the interval of nine runs in ten."
                @if !same.is_empty() { " Exactly as linux here, having nothing to choose: " (same.join(", ")) "." }
                @if let Some(bound) = &r.bound { " " (unbroken(&bound.sentence())) }
            }
        }
    }
}

/// True if a policy left everything to Linux, so that no value of any seed differs.
fn is_linux(p: &Ranked) -> bool {
    let zero = |value: Option<RelativeChange>| value.is_none_or(|v| v.median == 0.0);
    let throughput = (p.throughput.min, p.throughput.max) == (0.0, 0.0);
    throughput
        && zero(p.slowdown)
        && zero(p.energy_per_run)
        && p.loser.as_ref().is_none_or(|l| l.speed.median == 0.0)
}

fn row(p: &Ranked, note: &str, best: bool) -> Markup {
    let (better, of) = p.better_seeds;
    let change = |f: &RelativeChange| html! { (unbroken(&judge::percent(f.median))) small { (unbroken(&f.ends())) } };
    let known = |f: &Option<RelativeChange>| f.as_ref().map_or_else(|| html! { "–" }, change);
    html! { tr {
        th scope="row" { (p.policy) (note) }
        td class=[best.then_some("best")] { (change(&p.throughput)) }
        td { (known(&p.slowdown)) } td { @if let Some(loser) = p.lost() { (loser.name) " " (change(&loser.speed)) } @else { "none" } }
        td.rest { (better) " of " (of) } td.rest { (known(&p.energy_per_instruction)) } td.rest { (known(&p.energy_per_run)) }
    } }
}

/// Returns explanations of the terms and policies of the first screen.
pub(super) fn meanings(rankings: &[Ranking]) -> Markup {
    let policies: BTreeSet<&str> = rankings
        .iter()
        .flat_map(|r| r.deployable.iter().chain(&r.simulator_only))
        .map(|p| p.policy.split(':').next().unwrap_or(&p.policy))
        .collect();
    let summary = |name: &str| countersteer_policies::by_name(name).map(|d| d.summary);
    html! {
        dl.meanings {
            dt { "throughput" } dd { "work done per second, each program weighed by its speed alone (STP); more is better" }
            dt { "mean slowdown" } dd { "how many times as long programs take as alone (ANTT); less is better" }
            dt { "energy per instruction, per run" } dd { "energy of the whole machine over the work done; the total is no measure, since runs of different policies hold different work; less is better" }
            dt { "worst loser" } dd { "the program whose speed falls most" }
            @for name in policies { @if let Some(words) = summary(name) { dt { (name) } dd { (words) } } }
        }
    }
}

/// Returns the result of an A/B trial as HTML, from its record; `None` for other records.
pub(super) fn trial(record: &Record) -> Option<Markup> {
    let text = record.manifest.options.get("trial")?;
    let gains: Vec<Gain> = serde_json::from_str(text).ok()?;
    let (all, programs) = gains.split_last()?;
    let of = |g: &Gain| {
        judge::trial::interval(g).unwrap_or_else(|| "too few pairs for an interval".into())
    };
    let percent = |change| unbroken(&judge::percent(change));
    Some(html! {
        section.answer {
            div.verdict { p { "Trial: " (record.manifest.policy) ". All programs together: " b { (percent(all.gain)) } " (" (of(all)) ", " (all.pairs) " pairs of blocks)." } }
            div.scroll tabindex="0" role="region" aria-label="Gains by program" { table.ranks {
                thead { tr { th.text scope="col" { "program" } th scope="col" { "gain" } th scope="col" { "interval" } th.rest scope="col" { "pairs" } } }
                tbody { @for g in programs { tr { th scope="row" { (g.program) } td { (percent(g.gain)) } td { (of(g)) } td.rest { (g.pairs) } } } }
            } }
        }
    })
}

/// Limit on the number of rows of run-queue latencies on the first screen.
const WAITS: usize = 8;

/// Returns the run-queue latencies of threads as HTML, from the record of a live run. `None` if the record has none.
pub(super) fn waits(record: &Record) -> Option<Markup> {
    let found: Value = serde_json::from_str(record.manifest.options.get("waits")?).ok()?;
    let rows = found["rows"].as_array().filter(|rows| !rows.is_empty())?;
    let measured = rows.iter().any(|r| r["p99_ms"].is_number());
    let sides = rows
        .iter()
        .any(|r| r["side"].as_str().is_some_and(|s| !s.is_empty()));
    let ms = |value: &Value| {
        value
            .as_f64()
            .map_or_else(|| "–".into(), |ms| seconds(ms * 1e-3))
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let row = |r: &Value| {
        html! { tr {
            th scope="row" { (text(&r["program"])) }
            @if sides { td.text { (text(&r["side"])) } }
            td { (ms(&r["mean_ms"])) }
            @if measured {
                td { (ms(&r["p50_ms"])) } td { (ms(&r["p99_ms"])) } td.rest { (ms(&r["longest_ms"])) }
                td.rest { (ms(&r["wakeups"]["p99_ms"])) }
            }
            td.rest { (count(r["times"].as_u64().unwrap_or(0))) }
        } }
    };
    Some(html! {
        section.answer {
            h2.small { "Run-queue latency" }
            p.note { "Time in which a thread was runnable and had no CPU: " (text(&found["remark"])) "."
                @if measured { " A wakeup latency is such a wait after a wake-up." } }
            div.scroll tabindex="0" role="region" aria-label="Run-queue latency" { table.ranks {
                thead { tr {
                    th.text scope="col" { "program" } @if sides { th.text scope="col" { "under" } } th scope="col" { "mean" }
                    @if measured { th scope="col" { "half within" } th scope="col" { "99 % within" } th.rest scope="col" { "longest" }
                        th.rest scope="col" { "99 % of wakeup latencies within" } }
                    th.rest scope="col" { "times" }
                } }
                tbody { @for r in rows.iter().take(WAITS) { (row(r)) } }
            } }
            @if rows.len() > WAITS { details { summary { (rows.len() - WAITS) " more" } div.scroll { table.ranks { tbody {
                @for r in &rows[WAITS..] { (row(r)) } } } } } }
        }
    })
}
