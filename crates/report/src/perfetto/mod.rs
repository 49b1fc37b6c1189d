//! Perfetto traces.

use crate::record::Record;

/// The timeline of a record as a trace for <https://ui.perfetto.dev>.
#[must_use]
pub fn export(_record: &Record) -> Vec<u8> {
    Vec::new()
}
