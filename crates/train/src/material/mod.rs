//! Training and test data of machines: from recorded programs that are simulated, or from records.
//!
//! Input: names of machines, or folders of records. Output: a [`Material`] for each machine, which trains models
//! ([`Material::train`]), judges them ([`Material::evaluate`]) and induces rules ([`rules`]).

mod passes;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use countersteer_lab::error::{FaultKind, failure};
use countersteer_lab::{experiment, library};
use countersteer_model::models::swaps::SwapFile;
use countersteer_model::models::{Judged, ModelFile, Target};
use countersteer_model::profile::Profile;
use countersteer_model::topology::Topology;
use countersteer_report::write_atomically;
use serde::Serialize;

use crate::data::{Data, missing, most_events};
use crate::moves::moves;
use crate::records::{Paired, pair};
use crate::rows::{TrainingRow, crossed, rows};
use crate::unseen::{MachineSide, carried, untrained};
use crate::{judge, model, prim};

/// Number of crossed training samples per phase; each combines the computation of one program with memory accesses of another.
const CROSSED: usize = 4;
const SEED: u64 = 1;

/// Training and test data for the models of one machine.
pub struct Material {
    pub topology: Arc<Topology>,
    pub samples: Vec<TrainingRow>,
    /// Phrase about the samples, for model files.
    pub trained_on: String,
    /// Sentences about what was left out, and which events are missing.
    pub notes: Vec<String>,
}

/// Trained model, and the path of its file below a folder of models.
pub struct TrainedModel {
    pub path: PathBuf,
    pub file: ModelFile,
}

impl TrainedModel {
    /// Writes the file below a folder of models. Returns its path.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        let path = folder.join(&self.path);
        if let Some(folder) = path.parent() {
            let cannot = || format!("cannot make {}", folder.display());
            std::fs::create_dir_all(folder).with_context(cannot)?;
        }
        write_atomically(&path, self.file.to_toml()?.as_bytes())?;
        Ok(path)
    }
}

/// Evaluation of the model of one core type and target, next to reference models.
#[derive(Clone, Debug, Serialize)]
pub struct ModelEvaluation {
    pub machine: String,
    pub core_type: String,
    pub target: Target,
    pub models: Vec<judge::ModelLine>,
    pub judged: Judged,
    /// False if the model is no better than a constant prediction; its file then predicts the constant.
    pub beats_constant: bool,
}

/// Evaluation of the models that a core type gets if its machine and a family of programs are left out.
#[derive(Clone, Debug, Serialize)]
pub struct Unseen {
    pub machine: String,
    pub core_type: String,
    pub target: Target,
    /// Machine of whose models they are; `None` for the untrained model.
    pub models_of: Option<String>,
    pub judged: Judged,
}

impl Material {
    /// Simulates the shipped recorded programs on each core type of a machine. Returns `None` if it has one core type.
    ///
    /// # Errors
    /// The machine does not exist, or a program cannot be simulated.
    pub fn of_machine(machine: &str) -> anyhow::Result<Option<Self>> {
        let topology = Arc::clone(&experiment::machine(machine)?.topology);
        if topology.core_types.len() < 2 {
            return Ok(None);
        }
        let programs = programs()?;
        let mut all = rows(&topology, &programs)?;
        let own = all.len();
        all.extend(crossed(&topology, &programs, CROSSED, SEED)?);
        let mut families: Vec<&String> = programs.iter().map(|(family, _)| family).collect();
        families.sort();
        families.dedup();
        let trained_on = format!(
            "{own} intervals of {} recorded programs in {} families, and {} crossed of two, simulated alone",
            programs.len(),
            families.len(),
            all.len() - own,
        );
        Ok(Some(Self {
            topology,
            samples: all,
            trained_on,
            notes: Vec::new(),
        }))
    }
}

/// Returns the shipped recorded programs, each with the name of its family.
///
/// # Errors
/// A shipped profile is damaged.
pub fn programs() -> anyhow::Result<Vec<(String, Arc<Profile>)>> {
    let families = library::families();
    let of = |text: library::LibraryText| {
        let profile = Profile::parse(&text.path, &text.text)?;
        let family = families.get(profile.name());
        let family = family.cloned().unwrap_or_else(|| profile.name().into());
        Ok((family, Arc::new(profile)))
    };
    library::recorded().into_iter().map(of).collect()
}

/// Returns the training data of the machine of the records; without records, of each named machine with several core types.
///
/// No name means all shipped machines. Each value is computed when it is asked for.
pub fn materials(
    named: &[String],
    records: &[PathBuf],
) -> Box<dyn Iterator<Item = anyhow::Result<Material>>> {
    if !records.is_empty() {
        return Box::new(std::iter::once(Material::of_records(records)));
    }
    let of = |machine: String| Material::of_machine(&machine).transpose();
    Box::new(named_or_all(named).into_iter().filter_map(of))
}

/// Names of machines; those of all shipped machines if none is named.
fn named_or_all(named: &[String]) -> Vec<String> {
    if named.is_empty() {
        library::machine_names()
    } else {
        named.to_vec()
    }
}

/// Minimum number of program families for training, because the prediction intervals are computed from held-out families.
const LEAST_FAMILIES: usize = 4;

/// Minimum number of moves for training on moves alone.
const LEAST_MOVES: usize = 30;

impl Material {
    /// Reads records of one machine: programs that ran alone, once on each core type, or threads that moved between core types.
    ///
    /// # Errors
    /// A record cannot be read, the records are of several machines, or they do not suffice for a model.
    pub fn of_records(records: &[PathBuf]) -> anyhow::Result<Self> {
        let read = passes::read(records)?;
        let mut notes = read.notes.clone();
        let moves = moves(&read.topology, &read.lives);
        let paired = pair(&read.topology, &read.passes);
        let lists = [Ok(&read.left_out), paired.as_ref().map(|p| &p.left_out)];
        for why in lists.into_iter().flat_map(Result::into_iter).flatten() {
            notes.push(format!("omitted: {why}"));
        }
        let paired = match paired {
        Err(_) if !moves.rows.is_empty() => Paired::default(),
        paired => paired.map_err(|lack| {
            let why = format!(
                "{lack}\nrecord each program once on each core type: taskset -c CPUS steer stat -e instructions,cycles,... -i 10ms -o DIR -- PROGRAM"
            );
            failure(FaultKind::BadInput, why)
        })?,
    };
        let mut parts = Vec::new();
        if !paired.samples.is_empty() {
            parts.push(format!(
                "{} phases in {} windows, {} of which drifted",
                paired.samples.len(),
                paired.windows,
                paired.drifted
            ));
        }
        if !read.lives.is_empty() {
            parts.push(format!(
                "{} moves of threads, {} of which paid ({} others were too short, {} drifted)",
                moves.rows.len(),
                moves.paid,
                moves.short,
                moves.drifted
            ));
        }
        let phases = paired.samples.len();
        if phases == 0 && moves.rows.len() < LEAST_MOVES {
            let why = format!(
                "{}: too few for a model and its intervals, it takes {LEAST_MOVES} moves; record longer runs, or more of them",
                parts.join("; ")
            );
            return Err(failure(FaultKind::BadInput, why));
        }
        let mut samples = paired.samples;
        samples.extend(moves.rows);
        let families: BTreeSet<&String> = samples.iter().flat_map(|s| &s.families).collect();
        if families.len() < LEAST_FAMILIES {
            let why = format!(
                "programs of {} families are too few for a model and its intervals: it takes {LEAST_FAMILIES}",
                families.len()
            );
            return Err(failure(FaultKind::BadInput, why));
        }
        let trained_on = format!(
            "{} of programs in {} families, out of {} records",
            parts.join("; "),
            families.len(),
            records.len(),
        );
        let mut material = Self {
            topology: read.topology,
            trained_on,
            samples,
            notes,
        };
        material.note_missing();
        Ok(material)
    }

    /// Notes the events that too few samples contain, and that there can be no models of energy factors.
    fn note_missing(&mut self) {
        let mut notes = Vec::new();
        for (row, core_type) in self.topology.core_types.iter().enumerate() {
            let missing = missing(&self.samples, row, core_type);
            if !missing.is_empty() {
                let names: Vec<&str> = missing.iter().map(|event| event.def().name).collect();
                notes.push(format!(
                    "{}: no ratios of {}: fewer than half of the phases have them",
                    core_type.name,
                    names.join(", ")
                ));
            }
        }
        if !self.targets().contains(&Target::Ef) {
            let why = "no models of ef: `energy_nj` was not counted on both the fastest and the slowest core type";
            notes.push(why.into());
        }
        self.notes.extend(notes);
    }

    /// Returns the targets (speed-up and energy factor) for which the samples suffice.
    #[must_use]
    pub fn targets(&self) -> &'static [Target] {
        if self.samples.iter().any(|s| s.energy_factor().is_finite()) {
            &Target::ALL
        } else {
            &[Target::Sf]
        }
    }

    /// Trains a model for each core type and target, and calls `keep` with each when it is done.
    ///
    /// # Errors
    /// There are too few samples of a core type, or `keep` failed.
    pub fn train(
        &self,
        mut keep: impl FnMut(&TrainedModel) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let topology = &self.topology;
        for (row, core_type) in topology.core_types.iter().enumerate() {
            for target in self.targets() {
                let trained_on = self.trained_on.clone();
                let file = model::model(topology, row, &self.samples, *target, trained_on)
                    .ok_or_else(|| self.too_few(row))?;
                let name = format!("{}.{}.toml", topology.name, target.name());
                let path = PathBuf::from(&core_type.name).join(name);
                keep(&TrainedModel { path, file })?;
            }
        }
        Ok(())
    }

    fn too_few(&self, core_type: usize) -> anyhow::Error {
        let Topology {
            name, core_types, ..
        } = &*self.topology;
        let why = format!("{name}: too few samples on {}", core_types[core_type].name);
        failure(FaultKind::BadInput, why)
    }

    /// Judges the model of each core type and target on families of programs that were left out.
    ///
    /// # Errors
    /// There are too few samples of a core type.
    pub fn evaluate(&self) -> anyhow::Result<Vec<ModelEvaluation>> {
        let topology = &self.topology;
        let mut rows = Vec::new();
        for target in self.targets() {
            for (row, core_type) in topology.core_types.iter().enumerate() {
                let data = Data::new(&self.samples, row, core_type, *target);
                let most = most_events(core_type);
                let verdict = judge::judge(topology, row, &self.samples, &data, most, true)
                    .ok_or_else(|| self.too_few(row))?;
                rows.push(ModelEvaluation {
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

    fn unseen_on(&self, core_type: usize, target: Target, all: &[Self]) -> Vec<Unseen> {
        let side = MachineSide {
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

/// Judges, on each machine, the models of the other machines that compare the same core types, and the untrained model.
#[must_use]
pub fn unseen(materials: &[Material]) -> Vec<Unseen> {
    let mut rows = Vec::new();
    for own in materials {
        for target in own.targets() {
            for core_type in 0..own.topology.core_types.len() {
                rows.extend(own.unseen_on(core_type, *target, materials));
            }
        }
    }
    rows
}

/// Induces the rules for swaps of threads (policy `prim`) of each machine with several core types.
///
/// # Errors
/// A machine does not exist, or its programs have too few families.
pub fn rules(
    machines: &[String],
    mut keep: impl FnMut(&str, &SwapFile) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let programs = programs()?;
    for machine in named_or_all(machines) {
        let topology = Arc::clone(&experiment::machine(&machine)?.topology);
        if topology.core_types.len() < 2 {
            continue;
        }
        let all = rows(&topology, &programs)?;
        let words = format!(
            "{} intervals of {} recorded programs",
            all.len(),
            programs.len()
        );
        let file = prim::induce(&topology, &all, &words).ok_or_else(|| {
            let why = format!("{machine}: too few families of programs for rules");
            failure(FaultKind::BadInput, why)
        })?;
        keep(&topology.name, &file)?;
    }
    Ok(())
}
