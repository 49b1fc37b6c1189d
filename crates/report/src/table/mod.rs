//! Tables of scores: for terminals, Markdown, CSV, and the JSON of `steer compare`.
//!
//! Input: [`CompareRun`]s, one per machine, workload, policy and seed. Output: text, with a row for each machine, workload
//! and policy: the median over seeds and the range they span.

mod bounded;
mod columns;
mod compare;
mod headline;
mod prose;
mod ranking;
mod render;
mod summary;

pub use bounded::Bounded;
pub use columns::{program_columns, score_columns};
pub use compare::{COMPARE_SCHEMA, CompareProgram, CompareRun, Comparison};
pub use headline::{lead, mean_speedup, meaning};
pub use prose::{labelled, prose};
pub use ranking::{Ranked, Ranking, Verdict, WORTH, percent};
pub use render::{comparison, csv, csv_summary, markdown, plain, programs, ranking};
pub use summary::{Better, COMPLETION, METRICS, Metric, Spread, Summary, measured, summarise};
