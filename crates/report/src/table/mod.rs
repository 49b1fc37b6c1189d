//! Tables of scores: for terminals, Markdown, CSV, and the JSON of `steer compare`.
//!
//! Input: [`CompareRun`]s, one per machine, workload, policy and seed. Output: text, with a row for each machine, workload and
//! policy: the median over seeds and their range.

mod columns;
mod compare;
mod prose;
mod render;
mod summary;

pub use columns::{program_columns, score_columns};
pub use compare::{COMPARE_SCHEMA, CompareProgram, CompareRun, Comparison, Judged};
pub use prose::{labelled, prose};
pub use render::{comparison, csv, csv_summary, markdown, plain, programs, ranking};
pub use summary::{Better, COMPLETION, METRICS, Metric, Spread, Summary, measured, summarise};
