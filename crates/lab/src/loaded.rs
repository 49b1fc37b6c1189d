//! Machines of experiments: the file, its derived topology, and the trained models found for it.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use countersteer_model::machine::Machine;
use countersteer_model::textfile::TextError;
use countersteer_model::topology::Topology;
use countersteer_policies::reach;
use countersteer_sim::engine::not_offered;
use serde::{Deserialize, Serialize};

use crate::library::{self, LibraryText};
use crate::models;

/// Machine with its text and the data derived from it.
///
/// ```
/// let machine = countersteer_lab::experiment::machine("ryzen-7950x3d")?;
/// assert_eq!(machine.topology.cpus.len(), 32);
/// # Ok::<(), anyhow::Error>(())
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(into = "MachineText", try_from = "MachineText")]
pub struct LoadedMachine {
    /// Machine as parsed and checked.
    pub machine: Machine,
    /// Text of the machine's file.
    pub text: LibraryText,
    /// Topology derived from the machine.
    pub topology: Arc<Topology>,
    /// Paths of the trained models found for the machine.
    pub models: Vec<PathBuf>,
}

const NO_TOML: &str = "the machine cannot be written as TOML";

/// Serialized form of a machine: the path and text of its file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineText {
    path: String,
    text: String,
}

impl From<LoadedMachine> for MachineText {
    fn from(loaded: LoadedMachine) -> Self {
        let LibraryText { path, text, .. } = loaded.text;
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
            text: LibraryText {
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
    /// Parses a machine from its file's name and text, as they are stored in a record.
    ///
    /// # Errors
    /// Fails if the text is no machine; the error contains the line.
    pub fn of_text(path: &str, text: &str) -> Result<Self, TextError> {
        Self::try_from(MachineText {
            path: path.to_owned(),
            text: text.to_owned(),
        })
    }

    /// Creates a loaded machine from a machine without a file.
    ///
    /// # Errors
    /// Fails if TOML cannot represent a value.
    pub fn of(machine: Machine) -> anyhow::Result<Self> {
        let text = machine.to_toml().context(NO_TOML)?;
        let path = format!("{}.toml", machine.name);
        Ok(Self::try_from(MachineText { path, text })?)
    }

    /// Adds to a machine the trained models that are not shipped. The text of its file is kept if there are none.
    ///
    /// # Errors
    /// Fails if a file is no model; the error contains the line.
    pub fn with_models(mut machine: Machine, text: Option<LibraryText>) -> anyhow::Result<Self> {
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
    /// Returns the requirements of a policy that this machine does not meet, one sentence each. They include metrics whose events
    /// the simulator does not count.
    ///
    /// # Errors
    /// Fails if the policy does not exist, or if a parameter is invalid.
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

/// Reads a machine from a file, or from the library by name. Adds the trained models that are not shipped.
///
/// # Errors
/// Fails if a file does not exist, or is no machine or model; the error contains the line.
pub fn machine(name: &str) -> anyhow::Result<Arc<LoadedMachine>> {
    let (machine, text) = library::machine(name)?;
    Ok(Arc::new(LoadedMachine::with_models(machine, Some(text))?))
}
