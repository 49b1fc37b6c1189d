//! Manifest of a record: the inputs and the outcome of a run, sufficient to repeat the run.

use std::collections::BTreeMap;

use countersteer_model::score::Outcome;
use countersteer_model::units::Nanos;
use serde::{Deserialize, Serialize};

/// Schema identifier in every manifest.
pub const SCHEMA: &str = "countersteer.record/1";

/// Name of an input file, with the file's text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedText {
    pub name: String,
    pub text: String,
}

/// Level of detail of a record, which determines its tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Detail {
    /// Only the manifest with the outcome; no tables.
    Scores,
    /// All tables except run intervals, which are by far the largest table.
    NoSpans,
    #[default]
    Everything,
}

/// Inputs and outcome of a run, stored as `manifest.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Schema identifier, `countersteer.record/1`.
    pub schema: String,
    pub version: String,
    pub engine: String,
    pub machine: NamedText,
    pub workload: NamedText,
    /// Policy with its parameters, as on the command line.
    pub policy: String,
    pub seed: u64,
    pub period_ns: u64,
    pub detail: Detail,
    /// Other options of the run, as on the command line.
    pub options: BTreeMap<String, String>,
    /// Measured outcome of the programs, from which scores are computed.
    pub outcome: Outcome,
    /// Texts of the profiles by file name. On disk they are a separate table.
    #[serde(skip)]
    pub profiles: BTreeMap<String, String>,
    /// Number of rows of each table, for detecting truncated copies; set when the record is saved.
    #[serde(default)]
    pub tables: BTreeMap<String, u64>,
    /// Executable of each thread that differs from its program's name, such as the children of a shell script.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub executables: BTreeMap<u32, String>,
    /// True if the run is still in progress or was killed. The tables are then in parts, up to the last write.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unfinished: bool,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde asks for"
)]
const fn is_false(value: &bool) -> bool {
    !*value
}

impl Detail {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scores => "scores",
            Self::NoSpans => "no-spans",
            Self::Everything => "everything",
        }
    }
}

impl Manifest {
    /// Creates the manifest of a simulated run; `machine` and `workload` are pairs (name, text of the file).
    #[must_use]
    pub fn new(
        machine: (&str, &str),
        workload: (&str, &str),
        policy: &str,
        seed: u64,
        period: Nanos,
        options: impl IntoIterator<Item = (String, String)>,
        profiles: BTreeMap<String, String>,
    ) -> Self {
        let named = |(name, text): (&str, &str)| NamedText {
            name: name.into(),
            text: text.into(),
        };
        Self {
            schema: SCHEMA.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            engine: "sim".into(),
            machine: named(machine),
            workload: named(workload),
            policy: policy.into(),
            seed,
            period_ns: period.0,
            detail: Detail::default(),
            options: options.into_iter().collect(),
            outcome: Outcome::default(),
            profiles,
            tables: BTreeMap::new(),
            executables: BTreeMap::new(),
            unfinished: false,
        }
    }
}
