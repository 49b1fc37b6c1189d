//! Charts of comparisons as Vega-Lite specifications for notebooks, with the data of the report's charts embedded.
//!
//! Input: runs. Output: JSON for altair and other tools that draw Vega-Lite. A chart is one row in `SPECS`.

use serde_json::{Value, json};

use super::{bars, slowdowns};
use crate::table::{
    Better, CompareRun, PolicySummary, ScoreMetric, SeedSpread, measured, summarise,
};

const SCHEMA: &str = "https://vega.github.io/schema/vega-lite/v5.json";

/// Name of a chart in the report, and the function that returns its specification.
type Spec = (&'static str, fn(&[PolicySummary<'_>]) -> Value);

/// Charts that are available as specifications.
const SPECS: &[Spec] = &[
    (bars::DEF.key, scores),
    (slowdowns::DEF.key, slowdown_cells),
];

/// Iterates over the names of the available charts.
pub fn names() -> impl Iterator<Item = &'static str> {
    SPECS.iter().map(|(name, _)| *name)
}

/// Returns the specification of a chart for these runs; `None` if there is no chart of this name.
#[must_use]
pub fn spec(name: &str, runs: &[CompareRun]) -> Option<Value> {
    let (_, draw) = SPECS.iter().find(|(known, _)| *known == name)?;
    let mut spec = draw(&summarise(runs));
    spec["$schema"] = SCHEMA.into();
    Some(spec)
}

/// Returns the heading of a panel, which names the experiment if there are several.
fn heading(all: &[PolicySummary<'_>], of: &PolicySummary<'_>, what: &str) -> String {
    if all.iter().all(|other| other.same_experiment(of)) {
        return what.to_owned();
    }
    let experiment = format!("{} on {}", of.workload, of.machine);
    if what.is_empty() {
        experiment
    } else {
        format!("{what}: {experiment}")
    }
}

/// Returns the data of a bar chart: medians with whiskers over seeds, one panel per score.
fn scores(all: &[PolicySummary<'_>]) -> Value {
    let metrics = measured(all);
    let rows: Vec<Value> = all
        .iter()
        .flat_map(|summary| metrics.iter().map(move |metric| (summary, *metric)))
        .map(|(summary, metric)| {
            let SeedSpread { median, min, max } = summary.spread(metric);
            json!({
                "panel": heading(all, summary, metric.label), "policy": summary.policy,
                "median": median, "least": min, "most": max, "seeds": summary.runs.len(),
                "role": role(all, summary, metric),
            })
        })
        .collect();
    let y = json!({"field": "policy", "type": "nominal", "sort": null, "title": null});
    let tooltip: Vec<Value> = ["policy", "median", "least", "most", "seeds"]
        .iter()
        .map(|field| json!({"field": field}))
        .collect();
    json!({
        "title": bars::DEF.title,
        "data": {"values": rows},
        "facet": {"field": "panel", "type": "nominal", "title": null, "sort": null},
        "columns": 3,
        "resolve": {"scale": {"x": "independent"}},
        "spec": {"layer": [
            {"mark": "bar", "encoding": {
                "y": y, "x": {"field": "median", "type": "quantitative", "title": null}, "tooltip": tooltip,
                "color": {"field": "role", "type": "nominal", "title": null,
                    "scale": {"domain": ["best", "linux", "other"], "range": ["#2a6fbb", "#9a9a9a", "#a9c6e6"]}},
            }},
            {"mark": "rule", "encoding": {
                "y": y, "x": {"field": "least", "type": "quantitative"}, "x2": {"field": "most"},
            }},
        ]},
    })
}

/// Returns the colour role of a policy's bar: the best policy, `linux`, or another one.
fn role(all: &[PolicySummary<'_>], of: &PolicySummary<'_>, metric: &ScoreMetric) -> &'static str {
    let own = of.spread(metric).median;
    let rivals: Vec<&PolicySummary<'_>> = all.iter().filter(|s| s.same_experiment(of)).collect();
    let is_best = metric.better != Better::Neither
        && rivals.len() > 1
        && rivals
            .iter()
            .all(|rival| !metric.beats(rival.spread(metric).median, own));
    match of.policy {
        _ if is_best => "best",
        "linux" => "linux",
        _ => "other",
    }
}

/// Returns the data of a cell chart: one cell per program and policy.
fn slowdown_cells(all: &[PolicySummary<'_>]) -> Value {
    let mut rows = Vec::new();
    for summary in all {
        let Some(first) = summary.runs.first() else {
            continue;
        };
        for program in &first.programs {
            if let Some(spread) = slowdowns::spread(summary, &program.name, |p| p.slowdown) {
                rows.push(json!({
                    "panel": heading(all, summary, ""), "policy": summary.policy, "program": program.name,
                    "slowdown": spread.median, "least": spread.min, "most": spread.max,
                }));
            }
        }
    }
    let x = json!({"field": "policy", "type": "nominal", "sort": null, "title": null});
    let y = json!({"field": "program", "type": "nominal", "sort": null, "title": null});
    json!({
        "title": slowdowns::DEF.title,
        "data": {"values": rows},
        "facet": {"field": "panel", "type": "nominal", "title": null, "sort": null},
        "columns": 2,
        "spec": {"layer": [
            {"mark": "rect", "encoding": {
                "x": x, "y": y, "color": {"field": "slowdown", "type": "quantitative", "scale": {"domainMin": 1}},
                "tooltip": [{"field": "program"}, {"field": "policy"}, {"field": "slowdown"}, {"field": "least"}, {"field": "most"}],
            }},
            {"mark": "text", "encoding": {"x": x, "y": y, "text": {"field": "slowdown", "format": ".2f"}}},
        ]},
    })
}
