//! `steer model eval`: accuracy of models on families of programs, and on machines, that were left out.

use countersteer_model::models::{Judged, Target};
use countersteer_report::table::divided;
use countersteer_train::data::{Data, most_events};
use countersteer_train::judge;
use countersteer_train::unseen::{Side, carried, untrained};
use serde::Serialize;

use super::{Material, percent};
use crate::command::{print, print_json};

/// Evaluation of the model of one core type and target, next to reference models.
#[derive(Serialize)]
struct Evaluated {
    machine: String,
    core_type: String,
    target: Target,
    models: Vec<judge::Line>,
    judged: Judged,
    /// False if the model is no better than a constant prediction; `train` then exports the constant.
    beats_constant: bool,
}

/// Prints the accuracy of models on families that were left out.
pub(super) fn run(
    materials: impl Iterator<Item = anyhow::Result<Material>>,
    json: bool,
) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for material in materials {
        rows.extend(material?.evaluate()?);
    }
    if json {
        return print_json(&rows);
    }
    let heads: Vec<&str> = ["machine", "core type", "target"]
        .into_iter()
        .chain(judge::NAMES)
        .chain(["in interval", "abstains", "exported"])
        .collect();
    let cells: Vec<_> = rows.iter().map(Evaluated::cells).collect();
    print(&divided(&heads, &cells, 3))
}

impl Material {
    fn evaluate(&self) -> anyhow::Result<Vec<Evaluated>> {
        let topology = &self.topology;
        let mut rows = Vec::new();
        for target in self.targets() {
            for (row, core_type) in topology.core_types.iter().enumerate() {
                let data = Data::new(&self.samples, row, core_type, *target);
                let most = most_events(core_type);
                let verdict = judge::judge(topology, row, &self.samples, &data, most, true)
                    .ok_or_else(|| self.too_few(row))?;
                rows.push(Evaluated {
                    machine: topology.name.clone(),
                    core_type: core_type.name.clone(),
                    target: *target,
                    beats_constant: verdict.judged.beats_constant(),
                    judged: verdict.judged,
                    models: verdict.lines,
                });
            }
        }
        Ok(rows)
    }
}

impl Evaluated {
    fn cells(&self) -> Vec<String> {
        let models = self.models.iter();
        let models = models.map(|l| format!("{:.2}, {}", l.r, percent(l.error)));
        let exported = if self.beats_constant {
            "model"
        } else {
            "constant"
        };
        [&self.machine, &self.core_type, self.target.name()]
            .into_iter()
            .map(str::to_owned)
            .chain(models)
            .chain([
                percent(self.judged.coverage),
                percent(self.judged.abstains),
                exported.into(),
            ])
            .collect()
    }
}

/// Evaluation of the models that a core type gets if its machine and a family of programs are left out.
#[derive(Serialize)]
struct Unseen {
    machine: String,
    core_type: String,
    target: Target,
    /// Machine of whose models they are; `None` for the untrained model.
    models_of: Option<String>,
    judged: Judged,
}

/// Prints the accuracy of models on machines that were left out.
pub(super) fn unseen_machines(
    materials: impl Iterator<Item = anyhow::Result<Material>>,
    json: bool,
) -> anyhow::Result<()> {
    let materials = materials.collect::<anyhow::Result<Vec<_>>>()?;
    let mut rows = Vec::new();
    for own in &materials {
        for target in own.targets() {
            for core_type in 0..own.topology.core_types.len() {
                rows.extend(own.unseen(core_type, *target, &materials));
            }
        }
    }
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
    let cells: Vec<_> = rows.iter().map(Unseen::cells).collect();
    print(&divided(&heads, &cells, 3))
}

impl Material {
    fn unseen(&self, core_type: usize, target: Target, all: &[Self]) -> Vec<Unseen> {
        let side = Side {
            topology: &self.topology,
            core_type,
            samples: &self.samples,
        };
        let row = |models_of: Option<&str>, judged: Judged| Unseen {
            machine: self.topology.name.clone(),
            core_type: self.topology.core_types[core_type].name.clone(),
            target,
            models_of: models_of.map(str::to_owned),
            judged,
        };
        let others = all.iter().filter(|m| m.topology.name != self.topology.name);
        let carried = others.filter_map(|other| {
            let judged = carried(side, &other.topology, &other.samples, target)?;
            Some(row(Some(&other.topology.name), judged))
        });
        let bare = (target == Target::Sf).then(|| untrained(side)).flatten();
        let bare = bare.map(|judged| row(None, judged));
        carried.chain(bare).collect()
    }
}

impl Unseen {
    fn cells(&self) -> Vec<String> {
        let Judged { r, mape, .. } = self.judged;
        let of_intervals = |share: f64| match self.models_of {
            Some(_) => percent(share),
            None => "-".into(),
        };
        vec![
            self.machine.clone(),
            self.core_type.clone(),
            self.target.name().into(),
            self.models_of
                .clone()
                .unwrap_or_else(|| "none (untrained)".into()),
            format!("{r:.2}, {}", percent(mape)),
            percent(self.judged.constant_mape),
            of_intervals(self.judged.coverage),
            of_intervals(self.judged.abstains),
        ]
    }
}
