//! Introduction of an experiment, computed from its data.
//!
//! Input: an [`ChartRuns`]. Output: the best policy, its gain, the certainty given the number of seeds, and the program
//! with the largest gain.

use countersteer_policies::reach;
use maud::{Markup, html};

use crate::chart::{ChartRuns, Residence};
use crate::format::{count, number};
use crate::judge::{Ranking, change, lead, meaning, percent};
use crate::record::Record;
use crate::table::{Better, COMPLETION, METRICS, PolicySummary, ScoreMetric, SeedSpread};

/// Returns the introduction of one experiment. The ranking determines the best policy.
pub(super) fn verdict(e: &ChartRuns<'_>, ranking: &Ranking) -> Markup {
    let lead = lead(&e.summaries);
    if lead.key == COMPLETION.key {
        return html! { div.verdict { p { (completions(e)) } } };
    }
    let judged = match (e.linux(), ranking.best()) {
        (Some(linux), Some(first)) if first.throughput.mean > 0.0 => (e.summaries.iter())
            .find(|s| s.policy == first.policy)
            .or(Some(linux)),
        (Some(linux), _) => Some(linux),
        (None, _) => best(e, lead),
    };
    let Some(best) = judged else {
        return html! {};
    };
    if e.summaries.len() == 1 {
        return html! { div.verdict { p { (alone(best, lead)) } } };
    }
    let reference = e
        .linux()
        .filter(|l| l.policy != best.policy)
        .or_else(|| runner_up(e, best, lead));
    html! {
        div.verdict {
            p { (gain(e, best, lead)) }
            @if let Some(text) = reference.and_then(|r| reason(e, best, r)) { p { (text) } }
            p { (others(e)) }
        }
    }
}

/// Returns the definition of the score with a key.
fn metric(key: &str) -> &'static ScoreMetric {
    METRICS.iter().find(|m| m.key == key).unwrap_or(&METRICS[0])
}

/// Returns the policy with the best median of a score; `None` if there is no usable policy.
fn best<'a, 'b>(e: &'b ChartRuns<'a>, metric: &ScoreMetric) -> Option<&'b PolicySummary<'a>> {
    let mut best: Option<&PolicySummary<'_>> = None;
    // Policies that read simulator-only values cannot run on a real machine, so they are excluded.
    for s in e
        .summaries
        .iter()
        .filter(|s| !reach::simulator_only(s.policy))
    {
        // Of equal policies, the first in the user's order is kept.
        if best.is_none_or(|b| metric.beats(s.spread(metric).median, b.spread(metric).median)) {
            best = Some(s);
        }
    }
    best
}

fn runner_up<'a, 'b>(
    e: &'b ChartRuns<'a>,
    best: &PolicySummary<'_>,
    lead: &ScoreMetric,
) -> Option<&'b PolicySummary<'a>> {
    let others = e.summaries.iter().filter(|s| s.policy != best.policy);
    others.max_by(|a, b| a.spread(lead).median.total_cmp(&b.spread(lead).median))
}

fn alone(s: &PolicySummary<'_>, lead: &ScoreMetric) -> Markup {
    let of = |key| number(s.spread(metric(key)).median, 3);
    html! {
        b { (s.policy) } " reached an " (words(lead)) " of " (of(lead.key)) ", with a mean slowdown (ANTT) of "
        (of("antt")) " and an unfairness of " (of("unfairness")) ". " (meaning(lead)) " With a second policy this page would compare them."
    }
}

/// Returns sentences about the policy with the shortest completion times, used if the speeds of programs alone are unknown.
fn completions(e: &ChartRuns<'_>) -> Markup {
    let Some(best) = best(e, &COMPLETION) else {
        return html! {};
    };
    let time = |s: &PolicySummary<'_>| s.spread(&COMPLETION).median;
    let other = e.linux().filter(|l| l.policy != best.policy).or_else(|| {
        let others = e.summaries.iter().filter(|s| s.policy != best.policy);
        others.min_by(|a, b| time(a).total_cmp(&time(b)))
    });
    html! {
        "Under " b { (best.policy) } " programs took " (number(time(best), 3)) " s in their geometric mean"
        @if let Some(other) = other { ", " (gap(best, other, &COMPLETION)) " against " b { (other.policy) } " (" (number(time(other), 3)) " s)" }
        @else { "; with a second policy this page would compare them" }
        ". "
        @if best.runs.len() == 1 && other.is_some() { "These are single runs on a real machine, where chance has its part; " code { "steer trial" } " tells how large." }
    }
}

/// Returns the name of a leading score with its abbreviation.
fn words(metric: &ScoreMetric) -> String {
    match metric.key {
        "asp" => "aggregate speed-up (ASP)".into(),
        "stp" => "overall throughput (STP)".into(),
        _ => metric.label.into(),
    }
}

/// Returns sentences about the gain of the best policy over Linux, and about the meaning of the score.
fn gain(e: &ChartRuns<'_>, best: &PolicySummary<'_>, lead: &ScoreMetric) -> Markup {
    let mine = best.spread(lead);
    let second = runner_up(e, best, lead);
    let median = |s: &PolicySummary<'_>| s.spread(lead).median;
    let head = html! { b { (best.policy) } " served best: " (words(lead)) " " (number(mine.median, 3)) " in the median over " (seeds(best)) };
    let Some(linux) = e.linux() else {
        return html! { (head) @if let Some(s) = second { ", " (gap(best, s, lead)) " against the next, " b { (s.policy) } } ". " (meaning(lead)) };
    };
    let theirs = linux.spread(lead);
    if linux.policy == best.policy {
        return html! {
            "No policy beat plain " b { "linux" } ": its " (words(lead)) " is " (number(mine.median, 3)) " in the median over " (seeds(best))
            @if let Some(s) = second { "; the next is " b { (s.policy) } " with " (number(median(s), 3)) } ". " (meaning(lead))
        };
    }
    html! {
        (head) ", " (gap(best, linux, lead)) " against " b { "linux" } " (" (number(theirs.median, 3)) (range(&theirs)) "). "
        @if mine.min > theirs.max { "Its worst seed is better than linux's best. " }
        @else if theirs.max > mine.median { "Linux's best seed does better than its median, so the gain depends on luck. " }
        (meaning(lead))
    }
}

fn seeds(s: &PolicySummary<'_>) -> String {
    let n = s.runs.len();
    if n == 1 {
        "one seed".into()
    } else {
        format!("{n} seeds")
    }
}

/// Returns the change between two policies in percent, or the difference of medians if a ratio is meaningless.
fn gap(s: &PolicySummary<'_>, base: &PolicySummary<'_>, metric: &ScoreMetric) -> String {
    change(s, base, metric).map_or_else(
        || {
            format!(
                "{:+.2}",
                s.spread(metric).median - base.spread(metric).median
            )
        },
        |f| percent(f.median),
    )
}

fn range(s: &SeedSpread) -> String {
    if s.max > s.min {
        format!(
            ", from {} to {} over its seeds",
            number(s.min, 3),
            number(s.max, 3)
        )
    } else {
        String::new()
    }
}

/// Returns sentences about the best policies by the other scores.
fn others(e: &ChartRuns<'_>) -> Markup {
    let said = |key: &'static str, words: &'static str| {
        let m = metric(key);
        let b = best(e, m).filter(|b| {
            let mine = b.spread(m).median;
            m.better != Better::Neither
                && e.summaries
                    .iter()
                    .any(|s| m.beats(mine, s.spread(m).median))
        })?;
        Some((words, b.policy, b.spread(m).median))
    };
    let list = [
        (said("unfairness", "Fairest"), "unfairness ", ""),
        (
            said("energy_per_instruction_nj", "Least energy per instruction"),
            "",
            " nJ",
        ),
        (said("energy_per_run_j", "Least energy per run"), "", " J"),
        (said("edp_js", "Best energy-delay product"), "", " Js"),
    ];
    html! {
        @for (best, before, after) in list {
            @if let Some((words, policy, value)) = best {
                (words) ": " b { (policy) } " (" (before) (number(value, 3)) (after) "). "
            }
        }
    }
}

/// Returns sentences about the program with the largest gain, and the change of its time on core types. `None` if no program
/// gains.
fn reason(
    e: &ChartRuns<'_>,
    best: &PolicySummary<'_>,
    reference: &PolicySummary<'_>,
) -> Option<Markup> {
    let (name, now, then) = largest_gain(best, reference)?;
    let places = (e.record(best.policy).zip(e.record(reference.policy)))
        .and_then(|(a, b)| places(e, a, b, &name));
    let moves =
        |s: &PolicySummary<'_>| s.spread(metric("migrations")).median.max(0.0).round() as u64;
    Some(html! {
        "The largest gain is " b { (name) } ": its slowdown fell from " (number(then, 3)) " under " (reference.policy) " to " (number(now, 3)) "."
        @if let Some((group, mine, theirs)) = places {
            " It ran on " (group) " " (format!("{:.0} %", mine * 100.0)) " of its time, against " (format!("{:.0} %", theirs * 100.0)) "."
        }
        " Threads moved " (count(moves(best))) " times in the whole experiment, against " (count(moves(reference))) "; the lengths of experiments differ."
    })
}

/// Returns the program with the largest gain: its name, its slowdown under the best policy, and that under the reference.
/// `None` if no program gains.
fn largest_gain(
    best: &PolicySummary<'_>,
    reference: &PolicySummary<'_>,
) -> Option<(String, f64, f64)> {
    let median = |s: &PolicySummary<'_>, name: &str| {
        let of = |r: &&crate::table::CompareRun| {
            r.programs
                .iter()
                .find(|p| p.name == name)
                .map(|p| p.slowdown)
        };
        SeedSpread::of(s.runs.iter().filter_map(of)).median
    };
    let names = best.runs.first()?.programs.iter().map(|p| p.name.clone());
    let gains = names
        .map(|n| (median(best, &n), median(reference, &n), n))
        .filter(|(now, then, _)| *now > 0.0 && then > now);
    // Of equal gains, the first program in order is kept.
    let mut largest: Option<(f64, f64, String)> = None;
    for gain in gains {
        if largest.as_ref().is_none_or(|l| gain.1 / gain.0 > l.1 / l.0) {
            largest = Some(gain);
        }
    }
    largest.map(|(now, then, name)| (name, now, then))
}

/// Returns the core type with the largest difference in a program's time: its name, the fraction under the best policy, and
/// that under the reference. `None` if the difference is negligible.
fn places(
    e: &ChartRuns<'_>,
    best: &Record,
    reference: &Record,
    program: &str,
) -> Option<(String, f64, f64)> {
    let topology = e.topology.as_deref()?;
    let types = &topology.core_types;
    let shares = |record: &Record| -> Option<Vec<f64>> {
        let residence = Residence::of(record);
        let index = residence.programs.iter().position(|p| &**p == program)?;
        let mut time = vec![0.0; types.len()];
        for stay in residence.stays.iter().filter(|s| s.program == index) {
            let row = topology.cpus.get(stay.cpu as usize)?;
            time[row.core_type.index()] +=
                stay.end_ns.saturating_sub(stay.start_ns) as f64 * stay.share;
        }
        let sum: f64 = time.iter().sum();
        (sum > 0.0).then(|| time.into_iter().map(|t| t / sum).collect())
    };
    let mine = shares(best)?;
    let theirs = shares(reference)?;
    let more = |i: &usize| mine[*i] - theirs[*i];
    let most = (0..types.len())
        .rev()
        .max_by(|a, b| more(a).total_cmp(&more(b)))?;
    // A fraction that hardly differs does not explain the gain.
    (more(&most) > 0.05).then(|| (types[most].name.clone(), mine[most], theirs[most]))
}
