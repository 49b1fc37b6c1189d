//! Cases: one figure or table of a paper, as data.
//!
//! Input: `reproduce/*.toml`. Output: checked [`Case`]s. A case specifies a machine, programs, their arms (policies, core groups,
//! cache sizes), and the paper's results.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Repetitions of a case: seeds, with figures of published profiles drawn within their errors.
pub const DRAWS: u64 = 10;

/// A file with the cases of one paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseFile {
    /// Title of the paper.
    pub paper: String,
    /// Venue and year of publication.
    pub venue: String,
    /// Conclusion about the paper and the simulator.
    #[serde(default)]
    pub conclusion: String,
    pub case: Vec<Case>,
}

/// One figure or table. [`Method`] holds the rest of the TOML table and rejects unknown fields.
#[derive(Clone, Debug, Deserialize)]
pub struct Case {
    /// Unique name, `paper-item`.
    pub name: String,
    /// Item in the paper: `figure 8`.
    pub item: String,
    pub title: String,
    /// Name of a shipped machine.
    pub machine: String,
    /// Differences from the paper's set-up.
    #[serde(default)]
    pub note: String,
    /// Reason why statements are not reproduced although the programs are the paper's.
    #[serde(default)]
    pub cause: Option<Cause>,
    #[serde(flatten)]
    pub method: Method,
    /// Statements of the paper. [`Self::with_cells`] adds those of [`Self::cells`].
    #[serde(default)]
    pub finding: Vec<Finding>,
    /// Tables of numbers.
    #[serde(default)]
    pub cells: Vec<Cells>,
}

/// Numbers of a table in a paper. Each row has one number for each measure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cells {
    pub says: String,
    pub arm: String,
    pub measures: Vec<String>,
    pub rows: BTreeMap<String, Vec<f64>>,
}

/// Reason why a statement is not reproduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Stand-ins replace the paper's programs.
    Programs,
    /// The paper and the vendors leave decisive properties of the machine open.
    Machine,
    /// The paper leaves the policy's behaviour open.
    Algorithm,
    /// The paper used another kernel, of its time.
    Linux,
    /// The paper does not define its statement.
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
    /// Returns the case with a finding for each cell.
    #[must_use]
    pub fn with_cells(mut self) -> Self {
        for cells in std::mem::take(&mut self.cells) {
            for (row, values) in &cells.rows {
                let cells_of = cells.measures.iter().zip(values);
                self.finding
                    .extend(cells_of.map(|(measure, value)| Finding {
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

/// Method that produces the values of a case.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "method", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Method {
    /// Mixes of programs, each under each policy. Rows are mixes, and `mix/program`; arms are policies.
    Mixes {
        mixes: Vec<String>,
        /// Copies of each program.
        #[serde(default = "one")]
        copies: u32,
        /// Policies by the paper's name.
        arms: BTreeMap<String, String>,
        /// Arms whose policy does not exist yet; findings about them are not attempted.
        #[serde(default)]
        unavailable: Vec<String>,
        /// Core group or CPU list where each member starts, in the mix's order.
        #[serde(default)]
        launch_on: Vec<String>,
        #[serde(default = "draws")]
        seeds: u64,
        #[serde(default = "period_ms")]
        period_ms: f64,
        /// Programs run once and end, instead of restarting until the slowest has run `rounds` times.
        #[serde(default)]
        once: bool,
        /// Number of completions of the slowest program that end a mix.
        #[serde(default = "rounds")]
        rounds: u32,
        /// Events to count in slices of `period_ms`. The case has measures of slices only if this names events.
        #[serde(default)]
        slices_of: Vec<String>,
    },
    /// Each program alone on one CPU of each of two core groups, in windows of equal instructions. Rows are programs; the arm is
    /// `ratio`.
    Windows {
        programs: Vec<String>,
        /// The fast group first.
        groups: [String; 2],
        /// Instructions per window.
        instructions: f64,
    },
    /// Shipped models of a machine. Rows are core types; the arm is the target.
    Models { target: String },
    /// Each program alone on one CPU of each of two core groups. Rows are programs; arms are the groups and `ratio`.
    Alone {
        programs: Vec<String>,
        /// The fast group first.
        groups: [String; 2],
    },
    /// Pairs of programs, each on its own CPU. Rows are `measured+other`; the arm is `pair`.
    Pairs { programs: Vec<String>, cpus: String },
    /// Each program alone under several sizes of the last-level cache. Rows are programs; arms are sizes in KiB.
    CacheSizes {
        programs: Vec<String>,
        sizes_kib: Vec<f64>,
    },
    /// Comparison of a fast and a slow core by signatures of one program, made from several inputs. Rows are programs; arms are
    /// profiles and `inputs`.
    Inputs {
        /// Names of shipped recorded profiles by program.
        profiles: BTreeMap<String, Vec<String>>,
        /// The fast group first.
        groups: [String; 2],
    },
    /// Each program alone on the first of some CPUs, measured by several readers of its counters. Rows are programs; arms are the
    /// readers.
    Readers { programs: Vec<String>, cpus: String },
    /// Each program alone on one CPU of each of two core groups, while event sets are multiplexed. Rows are programs; the arm is
    /// with or without detection of phase changes.
    Turns {
        programs: Vec<String>,
        /// The fast group first.
        groups: [String; 2],
        period_ms: f64,
    },
    /// Each program alone on one CPU of each of two core groups, period by period. Rows are programs; arms are the groups.
    OverTime {
        programs: Vec<String>,
        /// The fast group first.
        groups: [String; 2],
        period_ms: f64,
    },
    /// Mixes on some CPUs, with samples of their share of the last-level cache. Rows are `mix/program`; arms are readers of every
    /// period, and of every tenth.
    Occupancy {
        mixes: Vec<String>,
        cpus: String,
        period_ms: f64,
    },
    /// Signature of a program: misses by size and ways. Rows are `KiB/ways`; the arm is the program's name.
    Signature { program: String },
    /// Speed of the simulator itself, with one program of a mix and with all. Rows are `one` and `mix`; the arm is `host`.
    Speed { mix: String },
    /// The case is not run.
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

/// A statement of a paper about a case.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// The statement as a sentence.
    pub says: String,
    pub measure: String,
    /// Arm that the statement describes.
    pub arm: String,
    /// Arms to compare it with.
    #[serde(default)]
    pub against: Vec<String>,
    /// Rows to judge; if empty, the case's mixes or programs.
    #[serde(default)]
    pub rows: Vec<String>,
    pub expect: Expect,
    /// Number of rows in which the expectation must hold.
    #[serde(default)]
    pub quantifier: Quantifier,
    /// The paper's number in the unit of the measure; in per cent for changes.
    pub value: Option<f64>,
    /// The paper's range, if it gives one.
    pub range: Option<[f64; 2]>,
    /// Another measure, for orders by two measures; arm and measure for correlations. For orders, `then` has the rows that must
    /// come after.
    pub with: Option<String>,
    #[serde(default)]
    pub then: Vec<String>,
    /// Reason why it is not reproduced, if it differs from the case's.
    #[serde(default)]
    pub cause: Option<Cause>,
}

/// Expectation about the arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expect {
    /// Above every arm of `against`, ties allowed.
    Highest,
    Lowest,
    /// Above each arm of `against`.
    Higher,
    Lower,
    /// Within 2 % of each arm of `against`.
    Similar,
    /// Change relative to the only arm of `against`, in per cent: the mean over rows, or the largest with [`Quantifier::Some`].
    Rise,
    Fall,
    /// The mean over rows.
    Value,
    /// Every row within the range.
    Within,
    /// Every row is at least `value`. Documents contain only the result, because the values depend on the host.
    AtLeast,
    /// The largest row.
    Maximum,
    /// Share of rows within the range, in per cent.
    Share,
    /// Sign of the rank correlation with the measure `with` over rows; `value` is -1, 0 or 1.
    Correlation,
    /// Every row of `rows` is above every row of `then`.
    Order,
    /// Every row of `rows` differs by more than 2 % from every row of `then`.
    Apart,
    /// One arm of this and `against` is lowest by both `measure` and `with`.
    SameLowest,
    /// This arm and those of `against` have different orders by `measure` and by `with`.
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
    /// Compares the mean over rows.
    Mean,
}
