//! Tables of scores for terminals, Markdown, CSV, and the JSON of `steer compare`.
//!
//! Input: [`CompareRun`]s, one per machine, workload, policy and seed. Output: text with one row per machine, workload and
//! policy, which contains medians over seeds and ranges.

mod columns;
mod compare;
mod divided;
mod prose;
mod render;
mod summary;

pub use columns::{program_columns, score_columns};
pub use compare::{COMPARE_SCHEMA, CompareProgram, CompareRun, Comparison, JudgedComparison};
pub use divided::divided;
pub use prose::{labelled, prose};
pub use render::{aligned, comparison, csv, csv_summary, markdown, plain, programs, ranking};
pub use summary::{
    Better, COMPLETION, METRICS, PolicySummary, ScoreMetric, SeedSpread, measured, summarise,
};
