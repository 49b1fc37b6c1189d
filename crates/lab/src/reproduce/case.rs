//! Cases: one figure or table of a paper, as data.
//!
//! Input: `reproduce/*.toml`. Output: checked [`Case`]s. A case says on which machine which programs run under which
//! arms (policies, core groups, cache sizes), and what the paper found there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Repetitions of a case: seeds, and figures of published profiles drawn within their errors.
pub const DRAWS: u64 = 10;

/// A file of cases: those of one paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseFile {
    /// Title of the paper.
    pub paper: String,
    /// Authors' venue and year.
    pub venue: String,
    /// What a reader should conclude about the paper and about the simulator.
    #[serde(default)]
    pub conclusion: String,
    pub case: Vec<Case>,
}

/// One figure or table. Unknown fields are caught by [`Method`], which the rest of the table belongs to.
#[derive(Clone, Debug, Deserialize)]
pub struct Case {
    /// Unique name, `paper-item`.
    pub name: String,
    /// What it is in the paper: `figure 8`.
    pub item: String,
    pub title: String,
    /// Name of a shipped machine.
    pub machine: String,
    /// How the case differs from the paper's set-up.
    #[serde(default)]
    pub note: String,
    /// Why statements are not reproduced although the programs are the paper's.
    #[serde(default)]
    pub cause: Option<Cause>,
    #[serde(flatten)]
    pub method: Method,
    /// What the paper says; those of [`Self::cells`] follow once a case is read.
    #[serde(default)]
    pub finding: Vec<Finding>,
    /// Tables of numbers.
    #[serde(default)]
    pub cells: Vec<Cells>,
}

/// Numbers of a table in a paper: by row, one for each measure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cells {
    pub says: String,
    pub arm: String,
    pub measures: Vec<String>,
    pub rows: BTreeMap<String, Vec<f64>>,
}

/// Why a statement is not reproduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Others stand in for the paper's.
    Programs,
    /// What the paper or vendors say of the machine leaves open what decides.
    Machine,
    /// The paper leaves open what the policy does.
    Algorithm,
    /// Another kernel, of another time.
    Linux,
    /// The paper does not define what it states.
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
    /// The same with a finding for each cell.
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

/// How the values of a case come about.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "method", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Method {
    /// Mixes of programs, each under each policy. Rows are mixes, and `mix/program`; arms are policies.
    Mixes {
        mixes: Vec<String>,
        /// Copies of every program.
        #[serde(default = "one")]
        copies: u32,
        /// Policies by the paper's name for them.
        arms: BTreeMap<String, String>,
        /// Arms that no policy can run yet; findings about them are not attempted.
        #[serde(default)]
        unavailable: Vec<String>,
        /// Core group or CPU list where each member starts, in the mix's order.
        #[serde(default)]
        launch_on: Vec<String>,
        #[serde(default = "draws")]
        seeds: u64,
        #[serde(default = "period_ms")]
        period_ms: f64,
        /// Programs run once and end, instead of beginning anew until the slowest has run `rounds` times.
        #[serde(default)]
        once: bool,
        /// Completions of the slowest program after which a mix ends.
        #[serde(default = "rounds")]
        rounds: u32,
        /// Events that are counted for what is measured of slices of `period_ms`; such measures are there if any is named.
        #[serde(default)]
        slices_of: Vec<String>,
    },
    /// Each program alone on one CPU of each of two core groups, window by window of the same instructions. Rows are programs; the
    /// arm is `ratio`.
    Windows {
        programs: Vec<String>,
        /// The fast group first.
        groups: [String; 2],
        /// Of a window.
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
    /// What signatures of one program, made from several inputs, say about a fast and a slow core. Rows are programs; arms are
    /// profiles and `inputs`.
    Inputs {
        /// Names of shipped recorded profiles by program.
        profiles: BTreeMap<String, Vec<String>>,
        /// The fast group first.
        groups: [String; 2],
    },
    /// Each program alone on the first of some CPUs, by several readers of its counters. Rows are programs; arms are the readers.
    Readers { programs: Vec<String>, cpus: String },
    /// Each program alone on one CPU of each of two core groups, while event sets are multiplexed. Rows are programs; arms say whether
    /// changes of phase are looked for.
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
    /// Mixes on some CPUs, whose share of the last-level cache is read. Rows are `mix/program`; arms are readers: of every period,
    /// and of each tenth.
    Occupancy {
        mixes: Vec<String>,
        cpus: String,
        period_ms: f64,
    },
    /// The signature of a program: misses by size and ways. Rows are `KiB/ways`; the arm is the program's name.
    Signature { program: String },
    /// How fast the simulator itself is, with one program of a mix and with all. Rows are `one` and `mix`; the arm is `host`.
    Speed { mix: String },
    /// Nothing is run.
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

/// What a paper states about a case.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// The statement, in a sentence.
    pub says: String,
    pub measure: String,
    /// The arm it is about.
    pub arm: String,
    /// Arms it is compared with.
    #[serde(default)]
    pub against: Vec<String>,
    /// Rows that count; the case's mixes or programs when empty.
    #[serde(default)]
    pub rows: Vec<String>,
    pub expect: Expect,
    /// How many rows the expectation must hold in.
    #[serde(default)]
    pub quantifier: Quantifier,
    /// The paper's figure, in the unit of the measure, or per cent for changes.
    pub value: Option<f64>,
    /// The paper's range, where it gives one.
    pub range: Option<[f64; 2]>,
    /// Another measure, for correlations; rows that must come after, for orders.
    pub with: Option<String>,
    #[serde(default)]
    pub then: Vec<String>,
    /// Why it is not reproduced, where that differs from the case's.
    #[serde(default)]
    pub cause: Option<Cause>,
}

/// What is expected of the arm.
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
    /// Change against the one arm of `against`, in per cent of it; the mean over rows, or the largest with [`Quantifier::Some`].
    Rise,
    Fall,
    /// The mean over rows.
    Value,
    /// Every row within the range.
    Within,
    /// Every row at least `value`. Only whether it is goes into documents: for what differs from host to host.
    AtLeast,
    /// The largest row.
    Maximum,
    /// Share of rows within the range, in per cent.
    Share,
    /// Sign of the rank correlation with the measure `with` over rows: `value` is -1, 0 or 1.
    Correlation,
    /// Every row of `rows` above every row of `then`.
    Order,
    /// Every row of `rows` more than 2 % away from every row of `then`.
    Apart,
    /// Of this arm and those of `against`, the same is lowest by `measure` and by `with`.
    SameLowest,
    /// This arm and those of `against` have another order by `measure` than by `with`.
    OtherOrder,
}

/// In how many rows an expectation must hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantifier {
    #[default]
    Every,
    Most,
    Some,
    /// The mean over rows is compared instead.
    Mean,
}
