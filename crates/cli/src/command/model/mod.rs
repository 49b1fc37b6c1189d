//! `steer model`: lists, shows, trains and evaluates models of speed-up and energy factors.

mod eval;

use std::path::{Path, PathBuf};

use countersteer_lab::models;
use countersteer_model::models::swaps::SwapFile;
use countersteer_report::table::{divided, plain};
use countersteer_report::write_atomically;
use countersteer_train::material::{Material, TrainedModel, materials, rules};

use super::{print, print_json};
use crate::output::make_folder;

/// Subcommands of `steer model`.
#[derive(Debug, clap::Subcommand)]
pub enum ModelArgs {
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
pub fn run(args: ModelArgs) -> anyhow::Result<()> {
    match args {
        ModelArgs::List { json } => list(json),
        ModelArgs::Show { model, json } => show(&model, json),
        ModelArgs::Train {
            machines,
            from,
            output,
        } => {
            let output = output.map_or_else(models::own_folder, Ok)?;
            materials(&machines, &from)
                .try_for_each(|material| said(material)?.train(|model| write(&output, model)))
        }
        ModelArgs::Rules { machines, output } => {
            make_folder(&output)?;
            rules(&machines, |machine, file| {
                let path = output.join(format!("{machine}.swaps.toml"));
                write_rules(&path, file)
            })
        }
        ModelArgs::Eval {
            machines,
            from,
            unseen_machine,
            json,
        } => {
            let materials = materials(&machines, &from);
            if unseen_machine {
                eval::unseen_machines(materials, json)
            } else {
                eval::run(materials, json)
            }
        }
    }
}

fn list(json: bool) -> anyhow::Result<()> {
    let rows = models::known()?;
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

fn show(name: &str, json: bool) -> anyhow::Result<()> {
    let file = models::by_name(name)?;
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

/// Prints the notes about training data.
fn said(material: anyhow::Result<Material>) -> anyhow::Result<Material> {
    let material = material?;
    for note in &material.notes {
        stderr_line!("steer: {note}");
    }
    Ok(material)
}

/// Writes a model below a folder, and prints its accuracy.
fn write(folder: &Path, model: &TrainedModel) -> anyhow::Result<()> {
    let path = model.write(folder)?;
    let judged = model.file.judged;
    let what = if judged.beats_constant() {
        format!("r {:.2}, error {}", judged.r, percent(judged.mape))
    } else {
        "only the constant, because the model was no better".into()
    };
    let constant = percent(judged.constant_mape);
    stderr_line!("steer: {}: {what} (constant {constant})", path.display());
    Ok(())
}

fn write_rules(path: &Path, file: &SwapFile) -> anyhow::Result<()> {
    write_atomically(path, file.to_toml()?.as_bytes())?;
    let judged = file.judged;
    stderr_line!(
        "steer: {}: {} rules; of held-out pairs {:.0} % are swapped, {:.0} % of them correctly, saving {:.1} %",
        path.display(),
        file.rule.len(),
        100.0 * judged.exchanged,
        100.0 * judged.right,
        100.0 * judged.saving,
    );
    Ok(())
}
