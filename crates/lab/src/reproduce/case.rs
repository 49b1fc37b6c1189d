//! Cases: each is one figure or table of a paper, as data.
//!
//! Input: `reproduce/*.toml`. Output: checked [`Case`]s. A case specifies a machine, programs, arms (policies, core groups, cache
//! sizes), and the paper's results.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Number of repetitions of a case. They differ in the seed, and in the values of published profiles, which are drawn within
/// their errors.
pub(crate) const DRAWS: u64 = 10;

/// File with the cases of one paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CaseFile {
    /// Title of the paper.
    pub paper: String,
    /// Venue and year of publication.
    pub venue: String,
    /// Our conclusion about the paper and the simulator.
    #[serde(default)]
    pub conclusion: String,
    /// Cases of the paper.
    pub case: Vec<Case>,
}

/// Case: one figure or table of a paper. [`Method`] has the remaining fields of the TOML table and rejects unknown ones.
#[derive(Clone, Debug, Deserialize)]
pub struct Case {
    /// Unique name of the case, `paper-item`.
    pub name: String,
    /// Name of the figure or table in the paper, such as `figure 8`.
    pub item: String,
    /// Title of the case.
    pub title: String,
    /// Name of a shipped machine.
    pub machine: String,
    /// Differences from the set-up in the paper.
    #[serde(default)]
    pub note: String,
    /// Reason for which statements are not reproduced even with the paper's programs; `None` if not stated.
    #[serde(default)]
    pub cause: Option<Cause>,
    #[serde(flatten)]
    pub method: Method,
    /// Statements of the paper. [`Self::with_cells`] adds those of [`Self::cells`].
    #[serde(default)]
    pub finding: Vec<PaperFinding>,
    /// Tables of numbers in the paper; each number becomes a statement.
    #[serde(default)]
    pub cells: Vec<Cells>,
}

/// Table of numbers in a paper. Each row has one number per measure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cells {
    pub says: String,
    pub arm: String,
    pub measures: Vec<String>,
    pub rows: BTreeMap<String, Vec<f64>>,
}

/// Reason for which a statement is not reproduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Stand-ins replace the paper's programs.
    Programs,
    /// The paper and the vendors do not state properties of the machine that determine the result.
    Machine,
    /// The paper does not fully describe the behaviour of the policy.
    Algorithm,
    /// The paper used an older kernel.
    Linux,
    /// The paper does not define the quantity of its statement.
    Undefined,
}

impl Cause {
    pub const fn words(self) -> &'static str {
        match self {
            Self::Programs => "programs",
            Self::Machine => "machine",
            Self::Algorithm => "algorithm",
            Self::Linux => "Linux",
            Self::Undefined => "paper undefined",
        }
    }
}

impl Case {
    /// Returns the case with one finding for each cell of its tables.
    #[must_use]
    pub(crate) fn with_cells(mut self) -> Self {
        for cells in std::mem::take(&mut self.cells) {
            for (row, values) in &cells.rows {
                let cells_of = cells.measures.iter().zip(values);
                self.finding
                    .extend(cells_of.map(|(measure, value)| PaperFinding {
                        says: format!("{row}: {} (`{measure}`)", cells.says),
                        measure: measure.clone(),
                        arm: cells.arm.clone(),
                        against: Vec::new(),
                        rows: vec![row.clone()],
                        expect: Expect::Value,
                        quantifier: Quantifier::default(),
                        value: Some(*value),
                        range: None,
                        with: None,
                        then: Vec::new(),
                        cause: None,
                    }));
            }
        }
        self
    }
}

/// Method by which the values of a case are measured.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "method", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Method {
    /// Runs mixes of programs under each policy. Rows are mixes, and `mix/program`; arms are policies.
    Mixes {
        mixes: Vec<String>,
        /// Number of copies of each program.
        #[serde(default = "one")]
        copies: u32,
        /// Policies by the names in the paper.
        arms: BTreeMap<String, String>,
        /// Arms whose policies are not implemented; findings about them are omitted.
        #[serde(default)]
        unavailable: Vec<String>,
        /// Core group or CPU list on which each program starts, in the mix's order.
        #[serde(default)]
        launch_on: Vec<String>,
        #[serde(default = "draws")]
        seeds: u64,
        #[serde(default = "period_ms")]
        period_ms: f64,
        /// True if programs run once and end, instead of restarting until the slowest has run `rounds` times.
        #[serde(default)]
        once: bool,
        /// Number of runs that the slowest program of a mix must finish; the mix then ends.
        #[serde(default = "rounds")]
        rounds: u32,
        /// Events to count in slices of `period_ms`. Measures of slices exist only if this list is not empty.
        #[serde(default)]
        slices_of: Vec<String>,
    },
    /// Runs each program alone on one CPU of each of two core groups, and divides the run into windows of equal instructions.
    /// Rows are programs; the only arm is `ratio`.
    Windows {
        programs: Vec<String>,
        /// Names of the two core groups, the faster one first.
        groups: [String; 2],
        /// Number of instructions per window.
        instructions: f64,
    },
    /// Reads the accuracy of a machine's shipped models. Rows are core types; the arm is the target.
    Models { target: String },
    /// Runs each program alone on one CPU of each of two core groups. Rows are programs; arms are the groups and `ratio`.
    Alone {
        programs: Vec<String>,
        /// Names of the two core groups, the faster one first.
        groups: [String; 2],
    },
    /// Runs pairs of programs, each on its own CPU. Rows are `measured+other`; the only arm is `pair`.
    Pairs { programs: Vec<String>, cpus: String },
    /// Runs each program alone with several sizes of the last-level cache. Rows are programs; arms are sizes in KiB.
    CacheSizes {
        programs: Vec<String>,
        sizes_kib: Vec<f64>,
    },
    /// Compares a fast and a slow core by signatures of a program from several inputs. Rows are programs; arms are profiles and
    /// `inputs`.
    Inputs {
        /// Names of the shipped recorded profiles of each program.
        profiles: BTreeMap<String, Vec<String>>,
        /// Names of the two core groups, the faster one first.
        groups: [String; 2],
    },
    /// Runs each program alone on the first of some CPUs, and measures it by several readers of counters. Rows are programs; arms
    /// are the readers.
    Readers { programs: Vec<String>, cpus: String },
    /// Runs each program alone on one CPU of each of two core groups, while event sets are multiplexed. Rows are programs; arms
    /// are with and without detection of phase changes.
    Turns {
        programs: Vec<String>,
        /// Names of the two core groups, the faster one first.
        groups: [String; 2],
        /// Time between samples, in ms.
        period_ms: f64,
    },
    /// Runs each program alone on one CPU of each of two core groups, and measures every period. Rows are programs; arms are the
    /// groups.
    OverTime {
        programs: Vec<String>,
        /// Names of the two core groups, the faster one first.
        groups: [String; 2],
        /// Time between samples, in ms.
        period_ms: f64,
    },
    /// Runs mixes on some CPUs, and samples the programs' occupancy of the last-level cache. Rows are `mix/program`; arms are
    /// readers of every period, and of every tenth.
    Occupancy {
        mixes: Vec<String>,
        cpus: String,
        period_ms: f64,
    },
    /// Computes the signature of a program: misses by size and ways. Rows are `KiB/ways`; the arm is the program's name.
    Signature { program: String },
    /// Measures the speed of the simulator with one program of a mix, and with all. Rows are `one` and `mix`; the only arm is
    /// `host`.
    Speed { mix: String },
    /// Does not run the case.
    NotAttempted { reason: String },
}

const fn one() -> u32 {
    1
}

const fn draws() -> u64 {
    DRAWS
}

const fn rounds() -> u32 {
    3
}

const fn period_ms() -> f64 {
    100.0
}

/// Statement of a paper about a case, with the expected result.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaperFinding {
    /// Statement as a sentence.
    pub says: String,
    /// Name of the measure.
    pub measure: String,
    /// Arm about which the statement is.
    pub arm: String,
    /// Arms with which it is compared.
    #[serde(default)]
    pub against: Vec<String>,
    /// Rows that are judged; if empty, the mixes or programs of the case.
    #[serde(default)]
    pub rows: Vec<String>,
    /// Expectation about the rows.
    pub expect: Expect,
    /// Number of rows in which the expectation must hold.
    #[serde(default)]
    pub quantifier: Quantifier,
    /// Number in the paper, in the unit of the measure; for changes, in percent. `None` for a statement in words.
    pub value: Option<f64>,
    /// Range in the paper; `None` if it states none.
    pub range: Option<[f64; 2]>,
    /// Second measure for orders by two measures; arm and measure for correlations. For orders of rows, `then` lists the rows
    /// that must come after.
    pub with: Option<String>,
    #[serde(default)]
    pub then: Vec<String>,
    /// Reason for which the statement is not reproduced, if it differs from that of the case.
    #[serde(default)]
    pub cause: Option<Cause>,
}

/// Expectation of a statement about its arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expect {
    /// The arm's value is the highest of all arms in `against`; ties are allowed.
    Highest,
    /// The arm's value is the lowest of all arms in `against`; ties are allowed.
    Lowest,
    /// The arm's value is higher than that of each arm in `against`.
    Higher,
    /// The arm's value is lower than that of each arm in `against`.
    Lower,
    /// The arm's value is within 2 % of that of each arm in `against`.
    Similar,
    /// The arm's value is higher than that of the only arm in `against`, by `value` percent. This is the mean over rows, or the
    /// largest with [`Quantifier::Some`].
    Rise,
    /// The arm's value is lower than that of the only arm in `against`, by `value` percent.
    Fall,
    /// The mean over rows is `value`.
    Value,
    /// The value of every row is within `range`.
    Within,
    /// The value of every row is at least `value`. Documents contain only the result, because the values depend on the host.
    AtLeast,
    /// The largest row has this `value`.
    Maximum,
    /// The percentage of rows within `range` is `value`.
    Share,
    /// The sign of the rank correlation with the measure `with` over rows is `value`: -1, 0 or 1.
    Correlation,
    /// Every row in `rows` is higher than every row in `then`.
    Order,
    /// Every row in `rows` differs by more than 2 % from every row in `then`.
    Apart,
    /// One arm, of this one and those in `against`, is the lowest by both `measure` and `with`.
    SameLowest,
    /// This arm and those in `against` have different orders by `measure` and by `with`.
    OtherOrder,
}

/// Number of rows in which an expectation must hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantifier {
    #[default]
    Every,
    Most,
    Some,
    /// The expectation must hold for the mean over rows.
    Mean,
}
