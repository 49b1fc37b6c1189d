//! Remarks on a verdict, as data and as text.

use serde::Serialize;

use super::figure::{RelativeChange, percent};
use super::ranked::Most;
use crate::format::seconds;

/// Remark on a verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "remark", rename_all = "kebab-case")]
pub enum Remark {
    /// Some or all programs end before a policy can act on them.
    Short {
        /// Names of the programs and completion times under `linux`, in seconds.
        programs: Vec<(String, f64)>,
        /// True if all programs are too short.
        all: bool,
        /// Minimum run time in seconds of a program on which a policy can act.
        least_s: f64,
    },
    /// One program contributes more than half of the gain.
    Most { policy: String, most: Most },
    /// Gain that remains if the policy decides in the first period only, and Linux from then on.
    Start {
        policy: String,
        gain: RelativeChange,
        /// Gain of the policy if it decides throughout.
        of: RelativeChange,
    },
    /// The workload fixes the start CPUs of its programs.
    Launch {
        /// Changes if Linux chooses the start CPUs; `None` if this was not simulated.
        fair: Option<Fair>,
    },
    /// An assumption of a policy does not hold on the machine.
    Unmet { policy: String, why: String },
    /// Policies that placed no thread in any run, so that their scores equal those of `linux`.
    Abstained { policies: Vec<String> },
    /// Policies that are applicable to the machine, but were not compared.
    NotCompared { policies: Vec<String> },
}

/// Changes relative to `linux` if Linux chooses the start CPUs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fair {
    pub policy: String,
    pub throughput: RelativeChange,
    pub slowdown: Option<RelativeChange>,
    pub energy_per_instruction: Option<RelativeChange>,
}

/// Limit on the number of names in a remark; further names are only counted.
const NAMED: usize = 4;

impl Remark {
    /// Returns the remark as one or two sentences.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Short {
                programs,
                all,
                least_s,
            } => {
                let named = |(name, s): &(String, f64)| format!("{name} ({})", seconds(*s));
                let which = listed(&programs.iter().map(named).collect::<Vec<_>>());
                let whole = format!(
                    "a policy decides every 100 ms, and a program must run for at least {least_s} s to be steered"
                );
                if *all {
                    format!("Too short for a policy to act: {which}; {whole}.")
                } else {
                    format!("Too short for a policy to act, so that only their start is judged: {which}; {whole}.")
                }
            }
            Self::Most { policy, most } => format!(
                "Most of what {policy} gains is {}: without it {}.",
                most.program,
                most.without.words()
            ),
            Self::Start { policy, gain, of } => start(policy, gain, of),
            Self::Launch { fair: None } => {
                "The workload pins where its programs start (launch_on), which a policy that moves them can only improve on: a fair start would gain less.".into()
            }
            Self::Launch { fair: Some(fair) } => {
                let other = |name: &str, figure: &Option<RelativeChange>| {
                    figure.map_or_else(String::new, |f| format!(", {name} {}", f.words()))
                };
                format!(
                    "The workload pins where its programs start (launch_on). Where Linux chooses, {} gains {}{}{}.",
                    fair.policy,
                    fair.throughput.words_of("throughput"),
                    other("mean slowdown", &fair.slowdown),
                    other("energy per instruction", &fair.energy_per_instruction)
                )
            }
            Self::Unmet { policy, why } => {
                format!("{policy} is not made for this: {why}.")
            }
            Self::Abstained { policies } => format!(
                "All threads were left to Linux by {}: nothing to tell apart, or programs too short for a move to pay back.",
                listed(policies)
            ),
            Self::NotCompared { policies } => format!(
                "Not compared, though they have something to do here: {}. Without -P all are.",
                listed(policies)
            ),
        }
    }
}

/// Returns a sentence on the part of the gain, in percentage points, that comes from the start
/// CPUs.
fn start(policy: &str, gain: &RelativeChange, of: &RelativeChange) -> String {
    let points = |f: &RelativeChange| percent(f.median).trim_end_matches(" %").to_owned();
    format!(
        "Of the {} points, {} (90 %: {}) come from where programs start: so much is left of the gain if {policy} decides for 100 ms, and Linux from then on.",
        points(of),
        points(gain),
        gain.ends()
    )
}

fn listed(names: &[String]) -> String {
    let shown = names[..names.len().min(NAMED)].join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
