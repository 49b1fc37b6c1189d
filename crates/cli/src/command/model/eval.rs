//! `steer model eval`: accuracy of models on families of programs, and on machines, that were left out.

use countersteer_model::models::Judged;
use countersteer_report::table::divided;
use countersteer_train::judge;
use countersteer_train::material::{Material, ModelEvaluation, Unseen, unseen};

use super::{percent, said};
use crate::command::{print, print_json};

/// Prints the accuracy of models on families that were left out.
pub(super) fn run(
    materials: impl Iterator<Item = anyhow::Result<Material>>,
    json: bool,
) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for material in materials {
        rows.extend(said(material)?.evaluate()?);
    }
    if json {
        return print_json(&rows);
    }
    let heads: Vec<&str> = ["machine", "core type", "target"]
        .into_iter()
        .chain(judge::NAMES)
        .chain(["in interval", "abstains", "exported"])
        .collect();
    let cells: Vec<_> = rows.iter().map(evaluated).collect();
    print(&divided(&heads, &cells, 3))
}

fn evaluated(row: &ModelEvaluation) -> Vec<String> {
    let models = row.models.iter();
    let models = models.map(|l| format!("{:.2}, {}", l.r, percent(l.error)));
    let exported = if row.beats_constant {
        "model"
    } else {
        "constant"
    };
    [&row.machine, &row.core_type, row.target.name()]
        .into_iter()
        .map(str::to_owned)
        .chain(models)
        .chain([
            percent(row.judged.coverage),
            percent(row.judged.abstains),
            exported.into(),
        ])
        .collect()
}

/// Prints the accuracy of models on machines that were left out.
pub(super) fn unseen_machines(
    materials: impl Iterator<Item = anyhow::Result<Material>>,
    json: bool,
) -> anyhow::Result<()> {
    let materials = materials.map(said).collect::<anyhow::Result<Vec<_>>>()?;
    let rows = unseen(&materials);
    if json {
        return print_json(&rows);
    }
    let heads = [
        "machine",
        "core type",
        "target",
        "models of",
        "r, error",
        "constant",
        "in interval",
        "abstains",
    ];
    let cells: Vec<_> = rows.iter().map(left_out).collect();
    print(&divided(&heads, &cells, 3))
}

fn left_out(row: &Unseen) -> Vec<String> {
    let Judged { r, mape, .. } = row.judged;
    let of_intervals = |share: f64| match row.models_of {
        Some(_) => percent(share),
        None => "-".into(),
    };
    vec![
        row.machine.clone(),
        row.core_type.clone(),
        row.target.name().into(),
        row.models_of
            .clone()
            .unwrap_or_else(|| "none (untrained)".into()),
        format!("{r:.2}, {}", percent(mape)),
        percent(row.judged.constant_mape),
        of_intervals(row.judged.coverage),
        of_intervals(row.judged.abstains),
    ]
}
