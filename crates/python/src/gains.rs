//! Gains of programs as tables.
//!
//! Input: gains of a comparison. Output: columns, a row for each gain, and the values of a single one.

use arrow_array::ArrayRef;
use countersteer_model::evidence::GainDecision;
use countersteer_model::trial::Gain;
use pyo3::prelude::*;

use crate::table::{Table, counts, floats, texts};

/// Pairs, gain, ends of its interval, and verdict.
pub type GainValues = (u64, f64, Option<f64>, Option<f64>, Option<&'static str>);

fn values(gain: &Gain) -> GainValues {
    let verdict = gain.verdict.map(|verdict| match verdict {
        GainDecision::Faster => "faster",
        GainDecision::Slower => "slower",
        GainDecision::Equivalent => "equivalent",
    });
    let [low, high] = [
        gain.interval.map(|(low, _)| low),
        gain.interval.map(|(_, high)| high),
    ];
    (gain.pairs, gain.gain, low, high, verdict)
}

/// Columns of gains: `pairs`, `gain`, `low`, `high`, `verdict`.
pub fn columns<'a>(gains: impl Iterator<Item = &'a Gain>) -> [(&'static str, ArrayRef); 5] {
    let rows: Vec<GainValues> = gains.map(values).collect();
    [
        ("pairs", counts(rows.iter().map(|row| row.0))),
        ("gain", floats(rows.iter().map(|row| row.1))),
        ("low", floats(rows.iter().map(|row| row.2))),
        ("high", floats(rows.iter().map(|row| row.3))),
        ("verdict", texts(rows.iter().map(|row| row.4))),
    ]
}

/// Result of a trial: a table of the programs, and the values of all programs together.
pub fn of_trial(programs: &[Gain], all: &Gain) -> PyResult<(Table, GainValues)> {
    let names = texts(programs.iter().map(|gain| &*gain.program));
    let gains = columns(programs.iter());
    let table = Table::of(std::iter::once(("program", names)).chain(gains))?;
    Ok((table, values(all)))
}
