//! Tables with rows from the manifest: programs and profiles. They are written at the end of a run.

use std::ops::Range;

use arrow_array::RecordBatch;
use countersteer_model::score::{ProgramOutcome, ProgramScore};
use countersteer_model::topology::Topology;

use super::Batch;
use crate::record::Record;
use crate::record::columns::{BatchBuilder, ColumnStorage};
use crate::record::kinds::{ColumnKind, F64, SharedText, U32};
use crate::record::words::Words;

/// Encodes programs with their scores, which are computed from the manifest. The table is only for
/// queries and never read back.
pub(super) fn encode_programs(record: &Record, _: &Topology, range: Range<usize>) -> Batch {
    let scores = &record.score().programs[range.clone()];
    let outcomes = &record.manifest.outcome.programs[range];
    let score = |of: fn(&ProgramScore) -> f64| scores.iter().map(of);
    let outcome = |of: fn(&ProgramOutcome) -> f64| outcomes.iter().map(of);
    let mut batch = BatchBuilder::default();
    SharedText.write("name", scores.iter().map(|p| p.name.as_ref()), &mut batch);
    U32.write("runs", scores.iter().map(|p| p.runs as u32), &mut batch);
    F64.write("completion_s", score(|p| p.completion_s), &mut batch);
    F64.write("alone_fast_s", score(|p| p.alone_fast_s), &mut batch);
    F64.write("alone_slow_s", score(|p| p.alone_slow_s), &mut batch);
    F64.write("slowdown", score(|p| p.slowdown), &mut batch);
    F64.write("ipc", score(|p| p.ipc), &mut batch);
    F64.write("instructions", outcome(|p| p.instructions), &mut batch);
    F64.write("cycles", outcome(|p| p.cycles), &mut batch);
    batch.build(scores.len())
}

pub(super) fn encode_profiles(record: &Record, _: &Topology, range: Range<usize>) -> Batch {
    let profiles = record.manifest.profiles.iter();
    let rows = profiles.skip(range.start).take(range.len());
    let mut batch = BatchBuilder::default();
    SharedText.write("file", rows.clone().map(|r| r.0.as_str()), &mut batch);
    SharedText.write("text", rows.map(|r| r.1.as_str()), &mut batch);
    batch.build(range.len())
}

pub(super) fn decode_profiles(
    record: &mut Record,
    _: &mut Words,
    batch: &RecordBatch,
) -> Result<(), String> {
    let file = SharedText.find("file", batch)?;
    let text = SharedText.find("text", batch)?;
    let rows = (0..batch.num_rows()).map(|i| (file.value(i).to_owned(), text.value(i).to_owned()));
    record.manifest.profiles.extend(rows);
    Ok(())
}
