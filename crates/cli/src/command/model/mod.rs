//! `steer model`: lists, shows, trains and evaluates models of speed-up and energy factors.

mod eval;
mod passes;
mod rules;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use countersteer_files::name as raw;
use countersteer_lab::{experiment, models};
use countersteer_model::models::{Judged, ModelFile, Target, shipped};
use countersteer_model::profile::Profile;
use countersteer_model::suggestion::suggestion;
use countersteer_model::topology::Topology;
use countersteer_report::table::{divided, plain};
use countersteer_report::write_atomically;
use countersteer_train::data::missing;
use countersteer_train::model;
use countersteer_train::moves::moves;
use countersteer_train::records::{Paired, pair};
use countersteer_train::rows::{TrainingRow, crossed, rows};
use serde::Serialize;

use super::{print, print_json};
use crate::error::{Kind, failure};
use crate::library;
use crate::output::make_folder;

/// Subcommands of `steer model`.
#[derive(Debug, clap::Subcommand)]
pub enum Args {
    /// List your own models, then the shipped models; for the same machine, your own models take precedence
    List {
        /// Print JSON: an array of objects with `path`, `target`, `machine`, `core_type` and `judged`
        #[arg(long)]
        json: bool,
    },
    /// Show a model: its inputs, and the contribution of each event ratio
    Show {
        /// Path as `steer model list` prints it, or a file
        model: String,
        /// Print the file as JSON
        #[arg(long)]
        json: bool,
    },
    /// Train models on recorded programs simulated on each core type, or on records of programs that ran alone
    Train {
        /// Machines, by name or file; default: every shipped machine with several core types
        #[arg(conflicts_with = "from")]
        machines: Vec<String>,
        /// Train on these records: of programs that ran alone, once on each core type (`steer stat -o`), or of runs in which
        /// threads moved between core types (`steer run -o`, `steer sim -o`)
        #[arg(long, value_name = "RECORD", num_args = 1..)]
        from: Vec<PathBuf>,
        /// Output folder, with a subfolder per core type; default: ~/.local/share/countersteer/models, where policies find
        /// models
        #[arg(short, long, value_name = "DIR")]
        output: Option<PathBuf>,
    },
    /// Induce rules for thread swaps (policy `prim`) from recorded programs
    Rules {
        /// Machines, by name or file; default: every shipped machine with several core types
        machines: Vec<String>,
        /// Output folder, with a file `MACHINE.swaps.toml` per machine
        #[arg(short, long, default_value = "models", value_name = "DIR")]
        output: PathBuf,
    },
    /// Evaluate models by leave-one-family-out cross-validation, next to reference models
    Eval {
        /// Machines, by name or file; default: every shipped machine with several core types
        #[arg(conflicts_with = "from")]
        machines: Vec<String>,
        /// Evaluate models trained on these records, as for `steer model train --from`
        #[arg(long, value_name = "RECORD", num_args = 1..)]
        from: Vec<PathBuf>,
        /// Leave out each machine too: judge the models of the other machines that compare the same core types, and the
        /// untrained model
        #[arg(long, conflicts_with = "from")]
        unseen_machine: bool,
        /// Print JSON: an array of objects with `machine`, `core_type`, `target`, `models` (`name`, `r` and `error` of each),
        /// `judged` and `beats_constant`; with `--unseen-machine`, with `machine`, `core_type`, `target`, `models_of` and `judged`
        #[arg(long)]
        json: bool,
    },
}

/// Runs `steer model`.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args {
        Args::List { json } => list(json),
        Args::Show { model, json } => show(&model, json),
        Args::Train {
            machines,
            from,
            output,
        } => {
            let output = output.map_or_else(models::own_folder, Ok)?;
            materials(&machines, &from)?.try_for_each(|material| {
                let material = material?;
                material.train(&output, material.targets())
            })
        }
        Args::Rules { machines, output } => {
            rules::run(&self::machines(&machines), &programs()?, &output)
        }
        Args::Eval {
            machines,
            from,
            unseen_machine,
            json,
        } => {
            let materials = materials(&machines, &from)?;
            if unseen_machine {
                eval::unseen_machines(materials, json)
            } else {
                eval::run(materials, json)
            }
        }
    }
}

#[derive(Serialize)]
struct Row<'a> {
    path: String,
    target: Target,
    machine: &'a str,
    core_type: &'a str,
    judged: Judged,
}

fn list(json: bool) -> anyhow::Result<()> {
    let models = known()?;
    let rows: Vec<Row<'_>> = models
        .iter()
        .map(|(path, file)| Row {
            path: path.clone(),
            target: file.target,
            machine: &file.machine,
            core_type: &file.core_type,
            judged: file.judged,
        })
        .collect();
    if json {
        return print_json(&rows);
    }
    let cells = rows.iter().map(|row| {
        let judged = &row.judged;
        vec![
            row.path.clone(),
            row.target.name().to_owned(),
            format!("{:.2}", judged.r),
            percent(judged.mape),
            percent(judged.constant_mape),
            percent(judged.coverage),
            percent(judged.abstains),
        ]
    });
    let heads = [
        "model",
        "target",
        "r",
        "error",
        "constant's",
        "in interval",
        "abstains",
    ];
    print(&divided(&heads, &cells.collect::<Vec<_>>(), 1))
}

/// Returns all models with their paths: the user's own models first, then the shipped ones, each sorted by path.
fn known() -> anyhow::Result<Vec<(String, ModelFile)>> {
    let own = models::all()?.into_iter();
    let own = own.map(|found| (found.path.display().to_string(), found.file));
    Ok(own.chain(shipped()).collect())
}

fn show(name: &str, json: bool) -> anyhow::Result<()> {
    let known = shipped();
    let file = match known.iter().find(|(path, _)| *path == name) {
        Some((_, file)) => file.clone(),
        None if raw::path(name.as_ref()).exists() => models::read(Path::new(name))?,
        None => {
            let known = known.iter().map(|(path, _)| path.as_str());
            let near = suggestion(name, known);
            let why =
                format!("there is no model `{name}`{near}; `steer model list` prints all models");
            return Err(failure(Kind::Usage, why));
        }
    };
    if json {
        return print_json(&file);
    }
    let ratios = file.factor.features.iter().map(|f| {
        let adds = f.steps.iter().map(|s| s.1);
        let least = adds.clone().fold(f64::INFINITY, f64::min);
        let most = adds.fold(f64::NEG_INFINITY, f64::max);
        let from = f.steps.get(1).map_or(0.0, |s| s.0);
        let to = f.steps.last().map_or(0.0, |s| s.0);
        vec![
            f.ratio.clone(),
            format!("{from:.3e} to {to:.3e}"),
            format!("{least:+.2} to {most:+.2}"),
        ]
    });
    let table = plain(&["ratio", "values seen", "adds"], ratios);
    print(&format!(
        "{} on {} of {}: {} against {}\ntrained on {}\nbase {:.3}; constant {:.3}, 9 of 10 within {}\n\n{table}",
        file.target.name(),
        file.core_type,
        file.machine,
        file.fast,
        file.slow,
        file.trained_on,
        file.factor.base,
        file.constant.factor,
        percent(file.constant.width),
    ))
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Number of crossed training samples per phase; each combines the computation of one program with memory accesses of another.
const CROSSED: usize = 4;
const SEED: u64 = 1;

/// Training and test data for the models of one machine.
struct Material {
    topology: Arc<Topology>,
    samples: Vec<TrainingRow>,
    trained_on: String,
}

impl Material {
    fn new(machine: &str) -> anyhow::Result<Option<Self>> {
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
        }))
    }
}

/// Returns the shipped recorded programs, each with the name of its family.
fn programs() -> anyhow::Result<Vec<(String, Arc<Profile>)>> {
    let families = library::families();
    let of = |text: library::Text| {
        let profile = Profile::parse(&text.path, &text.text)?;
        let family = families.get(profile.name());
        let family = family.cloned().unwrap_or_else(|| profile.name().into());
        Ok((family, Arc::new(profile)))
    };
    library::recorded().into_iter().map(of).collect()
}

fn machines(named: &[String]) -> Vec<String> {
    if named.is_empty() {
        library::machine_names()
    } else {
        named.to_vec()
    }
}

/// Returns the training data of each named machine, or of the machine of the records if there are any.
fn materials(
    named: &[String],
    records: &[PathBuf],
) -> anyhow::Result<Box<dyn Iterator<Item = anyhow::Result<Material>>>> {
    if !records.is_empty() {
        return Ok(Box::new(std::iter::once(from_records(records))));
    }
    let of = |machine: String| Material::new(&machine).transpose();
    Ok(Box::new(machines(named).into_iter().filter_map(of)))
}

/// Minimum number of program families for training, because the prediction intervals are computed from held-out families.
const LEAST_FAMILIES: usize = 4;

/// Minimum number of moves for training on moves alone.
const LEAST_MOVES: usize = 30;

fn from_records(records: &[PathBuf]) -> anyhow::Result<Material> {
    let read = passes::read(records)?;
    let moves = moves(&read.topology, &read.lives);
    let paired = pair(&read.topology, &read.passes);
    let lists = [Ok(&read.left_out), paired.as_ref().map(|p| &p.left_out)];
    for why in lists.into_iter().flat_map(Result::into_iter).flatten() {
        eprintln!("steer: omitted: {why}");
    }
    let paired = match paired {
        Err(_) if !moves.rows.is_empty() => Paired::default(),
        paired => paired.map_err(|lack| {
            let why = format!(
                "{lack}\nrecord each program once on each core type: taskset -c CPUS steer stat -e instructions,cycles,... -i 10ms -o DIR -- PROGRAM"
            );
            failure(Kind::BadInput, why)
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
        return Err(failure(Kind::BadInput, why));
    }
    let mut samples = paired.samples;
    samples.extend(moves.rows);
    let families: BTreeSet<&String> = samples.iter().flat_map(|s| &s.families).collect();
    if families.len() < LEAST_FAMILIES {
        let why = format!(
            "programs of {} families are too few for a model and its intervals: it takes {LEAST_FAMILIES}",
            families.len()
        );
        return Err(failure(Kind::BadInput, why));
    }
    let trained_on = format!(
        "{} of programs in {} families, out of {} records",
        parts.join("; "),
        families.len(),
        records.len(),
    );
    let material = Material {
        topology: read.topology,
        trained_on,
        samples,
    };
    material.say_missing();
    Ok(material)
}

impl Material {
    /// Prints the events that too few samples contain, and reports if there can be no models of energy factors.
    fn say_missing(&self) {
        for (row, core_type) in self.topology.core_types.iter().enumerate() {
            let missing = missing(&self.samples, row, core_type);
            if !missing.is_empty() {
                let names: Vec<&str> = missing.iter().map(|event| event.def().name).collect();
                eprintln!(
                    "steer: {}: no ratios of {}: fewer than half of the phases have them",
                    core_type.name,
                    names.join(", ")
                );
            }
        }
        if !self.targets().contains(&Target::Ef) {
            eprintln!(
                "steer: no models of ef: `energy_nj` was not counted on both the fastest and the slowest core type"
            );
        }
    }

    /// Returns the targets (speed-up and energy factor) for which the samples suffice.
    fn targets(&self) -> &'static [Target] {
        if self.samples.iter().any(|s| s.energy_factor().is_finite()) {
            &Target::ALL
        } else {
            &[Target::Sf]
        }
    }

    /// Trains a model for each core type and target, and writes each to a file below `output`.
    fn train(&self, output: &Path, targets: &[Target]) -> anyhow::Result<()> {
        let topology = &self.topology;
        for (row, core_type) in topology.core_types.iter().enumerate() {
            for target in targets {
                let trained_on = self.trained_on.clone();
                let file = model::model(topology, row, &self.samples, *target, trained_on)
                    .ok_or_else(|| self.too_few(row))?;
                let folder = output.join(&core_type.name);
                make_folder(&folder)?;
                let path = folder.join(format!("{}.{}.toml", topology.name, target.name()));
                write_atomically(&path, file.to_toml()?.as_bytes())?;
                let judged = file.judged;
                let what = if file.judged.beats_constant() {
                    format!("r {:.2}, error {}", judged.r, percent(judged.mape))
                } else {
                    "only the constant, because the model was no better".into()
                };
                let constant = percent(judged.constant_mape);
                eprintln!("steer: {}: {what} (constant {constant})", path.display());
            }
        }
        Ok(())
    }

    fn too_few(&self, core_type: usize) -> anyhow::Error {
        let Topology {
            name, core_types, ..
        } = &*self.topology;
        let why = format!("{name}: too few samples on {}", core_types[core_type].name);
        failure(Kind::BadInput, why)
    }
}
