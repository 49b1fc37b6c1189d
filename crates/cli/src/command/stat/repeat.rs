//! `steer stat -r N`: runs a program N times; prints the means and standard deviations of its counts.

use std::ops::ControlFlow;
use std::process::ExitCode;

use countersteer_counters::{CoreTypes, CountingSummary, Session};
use countersteer_model::counters::{Fold, Per, Samples};
use countersteer_report::readings::Style;
use countersteer_report::{number, table};
use countersteer_sysfs::launch::ExitEnding;

use super::{StatArgs, screen, style};
use crate::bpf::loader;
use crate::count::Planned;
use crate::counted::CountedMetrics;
use crate::counting_record;

/// Quantity (an event, metric or time) with its value in each run.
struct Quantity {
    name: String,
    unit: String,
    /// One value per run; `None` if the quantity was not counted in that run.
    values: Vec<Option<f64>>,
}

/// Statistics of a quantity over all runs.
#[derive(Clone, Copy, Debug, PartialEq)]
struct RunSpread {
    runs: usize,
    mean: f64,
    deviation: f64,
    least: f64,
    most: f64,
}

/// Runs the program `times` times and prints the statistics. Returns the exit code of the last run.
pub(super) fn run(times: u32, planned: &Planned, args: &StatArgs) -> anyhow::Result<ExitCode> {
    let (request, counted) = (&planned.request, &planned.counted);
    let mut quantities = Vec::new();
    let mut last = CountingSummary::default();
    let mut out = None;
    for run in 0..times as usize {
        let mut sums = Fold::new(Per::Total);
        let session = Session::open(request.clone(), loader(planned.count.method()?))?;
        // At this point the counters are open, so an earlier file of rows may be replaced.
        if out.is_none() {
            out = Some(screen::output(args)?);
        }
        last = session.run(|tick| {
            sums.add(tick.readings);
            ControlFlow::Continue(())
        })?;
        let values = values_of(sums.sums(), counted, &request.core_types);
        for (name, unit, value) in values.into_iter().chain(times_of(&last)) {
            put(&mut quantities, run, (name, unit, value));
        }
        // After a signal, no further runs are started.
        if matches!(last.ending, Some(ExitEnding::Signaled(_))) {
            stderr_line!("steer: ended by a signal in run {} of {times}", run + 1);
            break;
        }
    }
    if let Some(mut out) = out {
        out.write_all(text(&quantities, style(args))?.as_bytes())?;
        out.flush()?;
    }
    screen::warn(&last);
    Ok(ExitCode::from(counting_record::exit_code(&last)))
}

fn put(quantities: &mut Vec<Quantity>, run: usize, (name, unit, value): (String, String, f64)) {
    let place = quantities.iter().position(|q| q.name == name);
    let place = place.unwrap_or_else(|| {
        quantities.push(Quantity {
            name,
            unit,
            values: Vec::new(),
        });
        quantities.len() - 1
    });
    let values = &mut quantities[place].values;
    values.resize(run, None);
    values.push(Some(value));
}

/// Returns the values of events, then of metrics, in one run. Each core type has separate values if there are several.
fn values_of(
    sums: &Samples,
    counted: &CountedMetrics,
    core_types: &CoreTypes,
) -> Vec<(String, String, f64)> {
    let mut values = Vec::new();
    let on = |row: usize, name: &str| {
        let core_type = sums.rows().get(row).map_or(0, |r| r.core_type.index());
        match core_types.names.get(core_type) {
            Some(core_type) if core_types.names.len() > 1 => format!("{name} on {core_type}"),
            _ => name.to_owned(),
        }
    };
    for (row, reading) in sums.rows().iter().enumerate() {
        let set = counted.plan.sets.get(reading.set as usize);
        for (event, planned) in set.iter().flat_map(|set| set.events.iter()).enumerate() {
            let (unit, factor) = match planned.unit.as_str() {
                "ns" => ("ms", 1e-6),
                "" => ("", 1.0),
                unit => (unit, planned.scale),
            };
            if let Some(value) = sums.value(row, event) {
                values.push((on(row, &planned.name), unit.to_owned(), value * factor));
            }
        }
    }
    for row in 0..sums.rows().len() {
        for metric in &counted.metrics {
            if let Some(value) = metric.value(sums, row, &|_, _| None) {
                values.push((on(row, &metric.name), metric.unit.clone(), value));
            }
        }
    }
    values
}

fn times_of(summary: &CountingSummary) -> [(String, String, f64); 4] {
    let (elapsed, user, system) = (
        summary.elapsed.as_secs_f64(),
        summary.user.as_secs_f64(),
        summary.system.as_secs_f64(),
    );
    let used = (user + system) / elapsed.max(1e-9);
    [
        ("elapsed".into(), "s".into(), elapsed),
        ("user".into(), "s".into(), user),
        ("sys".into(), "s".into(), system),
        ("CPUs used".into(), String::new(), used),
    ]
}

fn spread(values: &[Option<f64>]) -> Option<RunSpread> {
    let values: Vec<f64> = values.iter().flatten().copied().collect();
    let runs = values.len();
    let mean = (runs > 0).then(|| values.iter().sum::<f64>() / runs as f64)?;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    let deviation = if runs > 1 {
        (squares / (runs - 1) as f64).sqrt()
    } else {
        0.0
    };
    Some(RunSpread {
        runs,
        mean,
        deviation,
        least: values.iter().copied().fold(f64::INFINITY, f64::min),
        most: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    })
}

fn text(quantities: &[Quantity], style: Style) -> anyhow::Result<String> {
    let spreads = quantities
        .iter()
        .filter_map(|q| Some((q, spread(&q.values)?)));
    Ok(match style {
        Style::Table => table::plain(
            &["over runs", "mean", "± deviation", "least", "most", "runs"],
            spreads.map(|(q, s)| {
                let name = match q.unit.as_str() {
                    "" => q.name.clone(),
                    unit => format!("{}/{unit}", q.name),
                };
                let share = if s.mean == 0.0 {
                    "-".into()
                } else {
                    format!("{:.2} %", 100.0 * s.deviation / s.mean)
                };
                vec![
                    name,
                    number(s.mean, 5),
                    share,
                    number(s.least, 5),
                    number(s.most, 5),
                    s.runs.to_string(),
                ]
            }),
        ),
        Style::Csv => {
            let mut text = "name,unit,runs,mean,deviation,least,most\n".to_owned();
            for (q, s) in spreads {
                text += &format!(
                    "{},{},{},{},{},{},{}\n",
                    q.name, q.unit, s.runs, s.mean, s.deviation, s.least, s.most
                );
            }
            text
        }
        Style::Json => {
            let mut text = String::new();
            for (q, s) in spreads {
                let line = serde_json::json!({
                    "kind": "repeated", "name": q.name, "unit": q.unit, "runs": s.runs,
                    "mean": s.mean, "deviation": s.deviation, "least": s.least, "most": s.most,
                });
                text += &format!("{line}\n");
            }
            text
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_shown_by_mean_and_standard_deviation() {
        let mut quantities = Vec::new();
        for (run, value) in [2.0, 4.0, 6.0].into_iter().enumerate() {
            put(
                &mut quantities,
                run,
                ("faults".into(), String::new(), value),
            );
        }
        // Counted only in the last run.
        put(&mut quantities, 2, ("late".into(), "J".into(), 3.0));
        let faults = spread(&quantities[0].values).unwrap();
        assert_eq!((faults.runs, faults.mean, faults.deviation), (3, 4.0, 2.0));
        assert_eq!((faults.least, faults.most), (2.0, 6.0));
        assert_eq!(spread(&quantities[1].values).unwrap().runs, 1);
        let table = text(&quantities, Style::Table).unwrap();
        assert!(
            table.contains("50.00 %") && table.contains("late/J"),
            "{table}"
        );
    }
}
