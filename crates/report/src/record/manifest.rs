//! Manifest: the inputs and the outcome of a run, sufficient to repeat it.

use std::collections::BTreeMap;

use countersteer_model::score::Outcome;
use countersteer_model::units::Nanos;
use serde::{Deserialize, Serialize};

/// Schema name in every manifest.
pub const SCHEMA: &str = "countersteer.record/1";

/// Name, with the text of the file behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedText {
    pub name: String,
    pub text: String,
}

/// Detail level of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Detail {
    /// Manifest with the outcome; no tables.
    Scores,
    /// All tables except run intervals, which are by far the largest.
    NoSpans,
    #[default]
    Everything,
}

/// Inputs and outcome of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// `countersteer.record/1`.
    pub schema: String,
    pub version: String,
    pub engine: String,
    pub machine: NamedText,
    pub workload: NamedText,
    /// Policy with its parameters.
    pub policy: String,
    pub seed: u64,
    pub period_ns: u64,
    pub detail: Detail,
    /// Other options, in command-line form.
    pub options: BTreeMap<String, String>,
    /// Outcome of the programs.
    pub outcome: Outcome,
    /// Profile texts by file name; on disk they are a separate table.
    #[serde(skip)]
    pub profiles: BTreeMap<String, String>,
    /// Number of rows by table, which detects a truncated copy; filled in when the record is saved.
    #[serde(default)]
    pub tables: BTreeMap<String, u64>,
    /// Executables of threads that are not named as their program, by thread: children of a shell script, for example.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub executables: BTreeMap<u32, String>,
    /// True if the run continues or was killed: the tables are in parts, up to the last write.
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
    /// Creates the manifest of a simulated run; `machine` and `workload` are (name, file text).
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
