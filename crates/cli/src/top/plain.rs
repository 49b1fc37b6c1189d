//! Text form of `steer top` without a terminal: formatted values, and one table per interval.
//!
//! Input: the state. Output: text with the threads or processes that ran in the interval.

use std::fmt::Write;

use countersteer_model::printable::printable;

use countersteer_session::top::columns::{ColumnSource, TopColumn};
use countersteer_session::top::state::{Cell, HISTORY, TopLine, TopState};

/// Formats one interval as a table of the threads or processes that ran, followed by an empty line.
pub fn table(state: &TopState) -> String {
    let columns: Vec<&TopColumn> = state.shown().collect();
    let mut text = format!("{:>8}", "time_s");
    for column in &columns {
        let _ = write!(text, " {}", padded(&column.name, column));
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    for line in state.visible().into_iter().filter(|line| line.idle == 0) {
        let _ = write!(text, "{:>8.1}", state.at.as_secs_f64());
        for column in &columns {
            let _ = write!(text, " {}", padded(&value(state, column, line), column));
        }
        text.push('\n');
    }
    text.push('\n');
    text
}

fn padded(text: &str, column: &TopColumn) -> String {
    let width = usize::from(column.width);
    if column.is_text() {
        format!("{text:<width$.width$}")
    } else {
        format!("{text:>width$}")
    }
}

/// Formats one interval as JSON lines: one object per thread or process that ran. Unknown values are absent.
pub fn json(state: &TopState) -> String {
    let mut text = String::new();
    for line in state.visible().into_iter().filter(|line| line.idle == 0) {
        let object = serde_json::json!({
            "kind": if state.by_process { "process" } else { "thread" },
            "time_s": state.at.as_secs_f64(),
            "pid": line.key.pid,
            "tid": (!state.by_process).then_some(line.key.tid),
            "name": &*line.name,
            "cpu": line.cpu,
            "core_type": state.core_types.get(line.core_type as usize),
            "ended": line.ended,
            "columns": numbers(state, line),
        });
        let _ = writeln!(text, "{object}");
    }
    text
}

/// Returns the numbers of a thread or process, with column names as keys. Unknown values are absent.
fn numbers(state: &TopState, line: &TopLine) -> serde_json::Map<String, serde_json::Value> {
    let number = |column: &TopColumn| {
        let number = match (column.source, state.cell(column.source, line)) {
            (
                ColumnSource::Pid | ColumnSource::Tid | ColumnSource::Cpu | ColumnSource::History,
                _,
            ) => return None,
            (ColumnSource::Share, Cell::Number(share)) => share * 100.0,
            (_, Cell::Number(number)) => number,
            (_, Cell::Text(_) | Cell::Missing) => return None,
        };
        Some((column.name.clone(), number.into()))
    };
    state.shown().filter_map(number).collect()
}

/// Returns the text of a table cell; a dash if the value is unknown.
pub fn value(state: &TopState, column: &TopColumn, line: &TopLine) -> String {
    if column.source == ColumnSource::History {
        return sparkline(line);
    }
    match (column.source, state.cell(column.source, line)) {
        (_, Cell::Missing) => "-".into(),
        (_, Cell::Text(text)) => printable(text).into_owned(),
        (ColumnSource::Pid | ColumnSource::Tid | ColumnSource::Cpu, Cell::Number(number)) => {
            format!("{number:.0}")
        }
        (ColumnSource::Share, Cell::Number(share)) => format!("{:.1}", share * 100.0),
        (_, Cell::Number(number)) => short(number),
    }
}

/// Formats a number in at most seven characters, with a prefix k, M, G or T if necessary.
fn short(value: f64) -> String {
    let (scale, prefix) = match value.abs() {
        v if v >= 999.5e9 => (1e12, "T"),
        v if v >= 999.5e6 => (1e9, "G"),
        v if v >= 999.5e3 => (1e6, "M"),
        v if v >= 9_999.5 => (1e3, "k"),
        _ => (1.0, ""),
    };
    let scaled = value / scale;
    match scaled.abs() {
        v if v >= 99.95 => format!("{scaled:.0}{prefix}"),
        v if v >= 9.995 => format!("{scaled:.1}{prefix}"),
        0.0 => "0".into(),
        _ => format!("{scaled:.2}{prefix}"),
    }
}

/// Draws the history of a thread's CPU share, one character per interval. Full height is one CPU, or the greatest share if it
/// is above 1. Intervals without run time are blank.
fn sparkline(line: &TopLine) -> String {
    const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = line.history.iter().copied().fold(1.0, f64::max);
    let level = |share: &f64| LEVELS[((share / most * 8.0).ceil() as usize).min(8)];
    let drawn: String = line.history.iter().map(level).collect();
    format!("{drawn:>HISTORY$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersteer_session::top::testing::{measured, snapshot, state};

    #[test]
    fn numbers_are_short() {
        let texts = [0.0, 0.333, 9.999, 42.04, 1234.4, 12_345.0, 9.87e8, 9_999.6].map(short);
        assert_eq!(
            texts,
            [
                "0", "0.33", "10.0", "42.0", "1234", "12.3k", "987M", "10.0k"
            ]
        );
    }

    #[test]
    fn json_has_an_object_for_each_who_ran_with_what_is_known() {
        let mut state = state();
        let silent = countersteer_session::top::sample::MeasuredTask {
            values: vec![None, None],
            ..measured(2, 20, "two", 0.5, 4.0)
        };
        state.ingest(snapshot(0, vec![measured(1, 10, "one", 1.0, 2.0), silent]));
        let lines: Vec<serde_json::Value> = json(&state)
            .lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect();
        assert_eq!(
            (
                &lines[0]["tid"],
                &lines[0]["core_type"],
                &lines[0]["time_s"]
            ),
            (&10.into(), &"cpu".into(), &1.0.into())
        );
        assert_eq!(
            lines[0]["columns"],
            serde_json::json!({"cpu%": 100.0, "cs/s": 2.0, "clock_share": 1.0})
        );
        assert_eq!(lines[1]["columns"], serde_json::json!({"cpu%": 50.0}));
    }

    #[test]
    fn a_table_has_those_who_ran() {
        let mut state = state();
        state.ingest(snapshot(
            0,
            vec![
                measured(1, 10, "one", 0.5, 2.0),
                measured(2, 20, "two", 0.25, 4.0),
            ],
        ));
        state.ingest(snapshot(1, vec![measured(1, 10, "one", 1.0, 2.0)]));
        let expected = "  time_s     pid     tid name              cpu   cpu%    ipc llc_mpki    cs/s faults/s              history clock_share\n     \
                        2.0       1      10 one                 2  100.0      -        -    2.00        -                   ▄█        1.00\n\n";
        assert_eq!(table(&state), expected);
    }
}
