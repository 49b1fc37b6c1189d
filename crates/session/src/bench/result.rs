//! Results of timed runs: tables, sentences, JSON of this program and of hyperfine.
//!
//! Input: arms and their runs. Output: texts and values.

use std::collections::BTreeMap;

use countersteer_model::evidence::Evidence;
use countersteer_model::trial::Gain;
use countersteer_report::judge::trial::TrialLimits as Words;
use countersteer_report::judge::{self, Median, percent};
use countersteer_report::{number, seconds, table};
use countersteer_sysfs::launch::ExitEnding;
use serde::Serialize;

use super::series::{BenchArm, CONFIDENCE, MeasuredArm};

/// Layout of [`ArmResults`] as JSON.
const SCHEMA: &str = "countersteer.bench/1";
/// Runs shorter than this are mostly the start of a process.
const SHORT_S: f64 = 0.005;
/// Drift below this is not worth a sentence.
const DRIFT: f64 = 0.01;

/// Counts of one run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RunCounts {
    pub instructions: f64,
    pub cycles: f64,
}

/// Result of an arm.
#[derive(Clone, Debug, Serialize)]
pub struct ArmRow {
    pub command: String,
    pub on: String,
    /// CPUs in the kernel's list notation.
    pub cpus: String,
    pub parameters: BTreeMap<String, String>,
    pub runs: usize,
    /// Median, its 95 % interval, and extremes, in seconds.
    #[serde(rename = "time_s")]
    pub time: Median,
    pub user_s: f64,
    pub system_s: f64,
    /// Counted in a run of its own, which is not timed.
    pub counts: Option<RunCounts>,
    /// Speed against the first arm, from pairs of runs of one round; an anytime-valid interval.
    pub against_first: Option<Gain>,
    pub times_s: Vec<f64>,
    pub exit_codes: Vec<i32>,
}

/// Results of all arms that ran.
#[derive(Clone, Debug, Serialize)]
pub struct ArmResults {
    schema: &'static str,
    pub arms: Vec<ArmRow>,
    pub warnings: Vec<String>,
}

/// Column of the table: its title, and the text of an arm.
type ArmColumn = (&'static str, fn(&ArmRow) -> String);

impl ArmResults {
    /// Judges what was measured; `margin` is the equivalence margin of comparisons, as a fraction.
    pub fn of(arms: &[BenchArm], measured: &[MeasuredArm], margin: f64) -> Self {
        let pairs = || arms.iter().zip(measured);
        let rows = pairs().enumerate().filter_map(|(nth, (arm, m))| {
            let gain = (nth > 0).then(|| {
                gain(
                    &arm.command.text,
                    &m.against(&measured[0]),
                    CONFIDENCE,
                    margin,
                )
            });
            row(arm, m, gain)
        });
        let several = arms.len() > 1;
        let warnings = pairs().flat_map(|(arm, m)| {
            let name = format!("{} on {}: ", arm.command.text, arm.place.name);
            let of = move |why: String| if several { name.clone() + &why } else { why };
            warnings(m).into_iter().map(of)
        });
        Self {
            schema: SCHEMA,
            warnings: warnings.collect(),
            arms: rows.collect(),
        }
    }

    /// The table.
    pub fn table(&self) -> String {
        let differ = |of: fn(&ArmRow) -> &str| self.arms.windows(2).any(|w| of(&w[0]) != of(&w[1]));
        let counted = self.arms.iter().any(|row| row.counts.is_some());
        let mut columns: Vec<ArmColumn> = Vec::new();
        if differ(|row| &row.command) {
            columns.push(("command", |row| row.command.clone()));
        }
        if differ(|row| &row.on) {
            columns.push(("on", |row| row.on.clone()));
        }
        columns.push(("runs", |row| row.runs.to_string()));
        columns.push(("median", |row| seconds(row.time.median)));
        columns.push(("95 % interval", |row| ends(row.time.interval)));
        columns.push(("range", |row| ends(Some((row.time.min, row.time.max)))));
        columns.push(("user", |row| seconds(row.user_s)));
        columns.push(("system", |row| seconds(row.system_s)));
        if counted {
            columns.push(("instructions", |row| count(row, |c| c.instructions, 4)));
            columns.push(("IPC", |row| count(row, |c| c.instructions / c.cycles, 3)));
        }
        let head: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
        let cells = |row: &ArmRow| columns.iter().map(|(_, cell)| cell(row)).collect();
        table::plain(&head, self.arms.iter().map(cells))
    }

    /// A sentence for each arm against the first.
    pub fn comparisons(&self, margin: f64) -> Vec<String> {
        let Some((first, others)) = self.arms.split_first() else {
            return Vec::new();
        };
        let name = |row: &ArmRow| {
            let others_too = |of: fn(&ArmRow) -> &str| self.arms.iter().any(|r| of(r) != of(first));
            let mut words = Vec::new();
            if others_too(|r| &r.command) {
                words.push(format!("`{}`", row.command));
            }
            if others_too(|r| &r.on) {
                words.push(format!("on {}", row.on));
            }
            words.join(" ")
        };
        let words = Words {
            confidence: 100.0 * CONFIDENCE,
            margin: 100.0 * margin,
        };
        let sentence = |row: &ArmRow| {
            Some(compared(
                &name(row),
                &name(first),
                row.against_first.as_ref()?,
                words,
            ))
        };
        others.iter().filter_map(sentence).collect()
    }

    /// The layout of `hyperfine --export-json`, whose `mean` and `stddev` are of the same runs.
    pub fn as_hyperfine(&self) -> serde_json::Value {
        let result = |row: &ArmRow| {
            let n = row.times_s.len() as f64;
            let mean = row.times_s.iter().sum::<f64>() / n;
            let squares: f64 = row.times_s.iter().map(|s| (s - mean).powi(2)).sum();
            let deviation = (n > 1.0).then(|| (squares / (n - 1.0)).sqrt());
            let mut value = serde_json::json!({
                "command": row.command, "mean": mean, "stddev": deviation, "median": row.time.median,
                "user": row.user_s, "system": row.system_s, "min": row.time.min, "max": row.time.max,
                "times": row.times_s, "exit_codes": row.exit_codes,
            });
            if !row.parameters.is_empty() {
                value["parameters"] = serde_json::json!(row.parameters);
            }
            value
        };
        serde_json::json!({ "results": self.arms.iter().map(result).collect::<Vec<_>>() })
    }
}

fn row(arm: &BenchArm, measured: &MeasuredArm, against_first: Option<Gain>) -> Option<ArmRow> {
    let runs = measured.runs.len();
    let mean = |of: fn(&super::runner::EndedRun) -> f64| {
        measured.runs.iter().map(of).sum::<f64>() / runs as f64
    };
    Some(ArmRow {
        command: arm.command.text.clone(),
        on: arm.place.name.clone(),
        cpus: arm.place.cpus.to_string(),
        parameters: arm.command.parameters.iter().cloned().collect(),
        runs,
        time: measured.median()?,
        user_s: mean(|run| run.user_s),
        system_s: mean(|run| run.system_s),
        counts: None,
        against_first,
        times_s: measured.times_s(),
        exit_codes: measured.runs.iter().map(|run| run.ending.code()).collect(),
    })
}

/// Gain of an arm by this evidence; `confidence` is that of its interval.
pub fn gain(name: &str, evidence: &Evidence, confidence: f64, margin: f64) -> Gain {
    Gain {
        program: name.to_owned(),
        pairs: evidence.pairs(),
        gain: evidence.gain(),
        interval: evidence.interval(confidence),
        verdict: evidence.verdict(confidence, margin),
    }
}

fn ends(interval: Option<(f64, f64)>) -> String {
    interval.map_or_else(
        || "too few runs".into(),
        |(low, high)| format!("{} to {}", seconds(low), seconds(high)),
    )
}

fn count(row: &ArmRow, of: impl Fn(&RunCounts) -> f64, digits: usize) -> String {
    row.counts
        .as_ref()
        .map_or_else(|| "-".into(), |c| number(of(c), digits))
}

/// Compares an arm with another one in a sentence.
pub fn compared(name: &str, first: &str, gain: &Gain, words: Words) -> String {
    use countersteer_model::evidence::GainDecision::{Equivalent, Faster, Slower};
    let Words { confidence, margin } = words;
    let Some(interval) = judge::trial::interval(gain) else {
        let pairs = gain.pairs;
        return format!("Cannot tell {name} from {first}: {pairs} pairs of runs are too few (-r).");
    };
    let sure = format!(
        "{} ({interval} with {confidence} % confidence)",
        percent(gain.gain)
    );
    match gain.verdict {
        Some(Faster) => format!("{name} is faster than {first}: speed {sure}."),
        Some(Slower) => format!("{name} is slower than {first}: speed {sure}."),
        Some(Equivalent) => format!("{name} and {first} do not differ by more than {margin} %."),
        None => format!(
            "Cannot tell whether {name} is faster than {first} after {} pairs of runs: speed {sure}; more runs (-r) would tell.",
            gain.pairs
        ),
    }
}

/// Sentences about runs whose figures are worth less than they look.
pub fn warnings(measured: &MeasuredArm) -> Vec<String> {
    let mut words = measured.disturbance.words();
    let Some(time) = measured.median() else {
        return words;
    };
    if time.interval.is_none() {
        let runs = measured.runs.len();
        words.push(format!(
            "{runs} runs have no 95 % interval; six or more have one (-r)"
        ));
    }
    if time.median < SHORT_S {
        words.push("runs of less than 5 ms are mostly the start of a process".into());
    }
    let drift = measured.drift();
    let beyond = |(low, high): (f64, f64)| low > DRIFT || high < -DRIFT;
    if drift.interval(CONFIDENCE).is_some_and(beyond) {
        words.push(format!(
            "later runs took {} of time against earlier ones: caches, clocks or other load changed; more warm-up runs (-w) may help",
            percent(drift.gain())
        ));
    }
    let failed = measured
        .runs
        .iter()
        .filter(|run| run.ending != ExitEnding::Exited(0))
        .count();
    if failed > 0 {
        words.push(format!("{failed} runs failed"));
    }
    words
}
