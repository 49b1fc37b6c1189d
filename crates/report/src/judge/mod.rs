//! Verdicts: conclusions about policies from runs, and their text.
//!
//! Input: [`CompareRun`](crate::table::CompareRun)s and [`Facts`], or the gains of an A/B trial. Output: changes relative to
//! `linux`, a verdict and remarks, as data and as sentences. `try`, `compare`, `trial`, the report and notebooks all print
//! these.

mod bounded;
mod figure;
mod headline;
mod median;
mod ranked;
mod ranking;
mod remark;
pub mod trial;
mod words;

pub use bounded::Bounded;
pub use figure::{Noise, RelativeChange, percent};
pub use headline::{lead, meaning};
pub use median::Median;
pub use ranked::{Most, Ranked, RankedProgram, change};
pub use ranking::{Facts, LEAST_RUN_S, Probed, ProbingGap, Ranking, Verdict, WORTH, judge};
pub use remark::{Fair, Remark};
