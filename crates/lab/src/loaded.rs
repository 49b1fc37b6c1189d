//! Machines for experiments: the file, its derived topology, and the trained models found for it.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use countersteer_model::machine::Machine;
use countersteer_model::textfile::TextError;
use countersteer_model::topology::Topology;
use countersteer_policies::reach;
use countersteer_sim::engine::not_offered;
use serde::{Deserialize, Serialize};

use crate::library::{self, Text};
use crate::models;

/// A machine with its derived data.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(into = "MachineText", try_from = "MachineText")]
pub struct LoadedMachine {
    /// The checked machine description.
    pub machine: Machine,
    /// The machine's file.
    pub text: Text,
    /// Topology derived from the machine.
    pub topology: Arc<Topology>,
    /// Files of the models found for it.
    pub models: Vec<PathBuf>,
}

const NO_TOML: &str = "the machine cannot be written as TOML";

/// Serialized form of a machine: its file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineText {
    path: String,
    text: String,
}

impl From<LoadedMachine> for MachineText {
    fn from(loaded: LoadedMachine) -> Self {
        let Text { path, text, .. } = loaded.text;
        Self { path, text }
    }
}

impl TryFrom<MachineText> for LoadedMachine {
    type Error = TextError;

    fn try_from(kept: MachineText) -> Result<Self, TextError> {
        let MachineText { path, text } = kept;
        let machine = Machine::parse(&path, &text)?;
        let topology = Arc::new(Topology::new(&machine));
        let shipped = false;
        Ok(Self {
            machine,
            text: Text {
                path,
                text,
                shipped,
            },
            topology,
            models: Vec::new(),
        })
    }
}

impl LoadedMachine {
    /// Parses a machine from its file's name and text, as a record holds them.
    ///
    /// # Errors
    /// A text that is not a machine, with the line.
    pub fn of_text(path: &str, text: &str) -> Result<Self, TextError> {
        Self::try_from(MachineText {
            path: path.to_owned(),
            text: text.to_owned(),
        })
    }

    /// Wraps a machine that has no file yet.
    ///
    /// # Errors
    /// A value that TOML cannot hold.
    pub fn of(machine: Machine) -> anyhow::Result<Self> {
        let text = machine.to_toml().context(NO_TOML)?;
        let path = format!("{}.toml", machine.name);
        Ok(Self::try_from(MachineText { path, text })?)
    }

    /// Adds to a machine the models that were trained for it and are not shipped. Keeps its file's text if there are no such
    /// models.
    ///
    /// # Errors
    /// A file that is not a model, with the line.
    pub fn with_models(mut machine: Machine, text: Option<Text>) -> anyhow::Result<Self> {
        let models = models::add(&mut machine)?;
        let loaded = match text {
            Some(text) if models.is_empty() => Self {
                topology: Arc::new(Topology::new(&machine)),
                machine,
                text,
                models,
            },
            _ => Self {
                models,
                ..Self::of(machine)?
            },
        };
        Ok(loaded)
    }
}

impl LoadedMachine {
    /// Requirements of a policy that this machine does not meet, as reasons. They include metrics whose events the simulator does
    /// not count.
    ///
    /// # Errors
    /// There is no such policy, or a parameter is wrong.
    pub fn unmet(&self, policy: &str) -> anyhow::Result<Vec<String>> {
        let made = countersteer_policies::parse(policy, &self.topology)?;
        let missing = not_offered(&made.needs().metrics);
        let names: Vec<&str> = missing.iter().map(|event| event.def().name).collect();
        let uncounted = (!names.is_empty()).then(|| {
            format!(
                "it reads events that the simulator does not count ({}); the metrics that need them have no value",
                names.join(", ")
            )
        });
        let unmet = reach::unmet(policy, &self.topology).into_iter();
        Ok(unmet.map(str::to_owned).chain(uncounted).collect())
    }
}

/// Reads a machine by name or from a file. Adds the models that were trained for it and are not shipped.
///
/// # Errors
/// A file that does not exist, or is not a machine or a model, with the line.
pub fn machine(name: &str) -> anyhow::Result<Arc<LoadedMachine>> {
    let (machine, text) = library::machine(name)?;
    Ok(Arc::new(LoadedMachine::with_models(machine, Some(text))?))
}
