//! What is kept of a run, and everything that is made of it: tables, answers, charts, HTML, Perfetto traces.
//!
//! Input: what a driver tells a [`record::Collector`]. Output: a [`record::Record`] on disk; from records, texts and files
//! for people. Same record, same bytes: nothing here reads a clock or draws a random number.

pub mod chart;
pub mod counted;
pub mod html;
pub mod judge;
pub mod perfetto;
pub mod profile_view;
pub mod readings;
pub mod record;
pub mod table;
pub mod tabulate;
pub mod why;

mod atomic;
mod error;
mod format;
mod svg;

pub use atomic::write_atomically;
pub use error::ReportError;
pub use format::number;
pub use record::write_table;
