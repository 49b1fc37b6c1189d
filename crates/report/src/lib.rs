//! Records of runs, and all outputs derived from them: tables, explanations, charts, HTML, Perfetto traces.
//!
//! Input: the reports of a driver to a [`record::Collector`]. Output: a [`record::Record`] on disk; texts and files from
//! records. Equal records give equal bytes, because this crate reads no clock and draws no random numbers.

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
mod reduced;
mod svg;

pub use atomic::write_atomically;
pub use error::ReportError;
pub use format::{number, seconds};
pub use record::write_table;
