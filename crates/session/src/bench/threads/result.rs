//! Result of a search for the number of threads: table of trials, sentences, command lines, JSON.
//!
//! Input: candidates, what the search found, runs of the finalists. Output: texts and values.

use countersteer_lab::threads::candidates::Candidate;
use countersteer_lab::threads::search::{SearchResult, TimePrediction};
use countersteer_model::cpunumbers::CpuNumbers;
use countersteer_model::evidence::GainDecision;
use countersteer_model::trial::Gain;
use countersteer_report::judge::trial::TrialLimits as Words;
use countersteer_report::judge::{Median, percent};
use countersteer_report::{number, seconds, table};
use serde::Serialize;

use super::finals::confidence;
use super::form::{CHUNK, CommandForm, ThreadsWay};
use crate::bench::result::{compared, gain, warnings};
use crate::bench::series::{BenchArm, MeasuredArm};

/// Layout of [`ThreadsResult`] as JSON.
const SCHEMA: &str = "countersteer.threads/1";
/// Candidates without a trial that are shown.
const SHOWN: usize = 3;

/// Candidate with what is known of it.
#[derive(Clone, Debug, Serialize)]
pub struct CandidateRow {
    pub threads: usize,
    /// Value of `{chunk}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunking: Option<String>,
    pub cores: String,
    /// CPUs in the kernel's list notation.
    pub cpus: String,
    /// False for the default: threads are left where the kernel places them.
    pub confined: bool,
    /// Before its trial; after the last trial for candidates without one. Relative to the default if nothing was run.
    pub predicted: Option<PredictedTime>,
    /// Time of its trial.
    pub measured_s: Option<f64>,
}

/// Predicted time, with the interval that holds nine of ten programs that explain the trials.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PredictedTime {
    pub time: f64,
    pub low: f64,
    pub high: f64,
}

/// Candidate that was compared with the default.
#[derive(Clone, Debug, Serialize)]
pub struct Final {
    pub threads: usize,
    /// Value of `{chunk}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunking: Option<String>,
    pub cores: String,
    pub cpus: String,
    #[serde(rename = "time_s")]
    pub time: Option<Median>,
    /// Speed against the default, in pairs of runs of one round.
    pub gain: Gain,
    /// Command line as it was measured.
    pub command: String,
    /// Command line that binds each thread of an OpenMP program to a CPU of its own, which was not measured.
    pub bound: Option<String>,
}

/// Result of the command.
#[derive(Clone, Debug, Serialize)]
pub struct ThreadsResult {
    schema: &'static str,
    /// Command line of the default.
    pub default: String,
    pub trials: Vec<CandidateRow>,
    /// Candidates without a trial, best prediction first.
    pub others: Vec<CandidateRow>,
    /// Expected improvement over the best trial by one more trial, as a fraction.
    pub open: f64,
    /// Best first.
    pub finals: Vec<Final>,
    /// Row of `finals` to use; none where the default is as good, or nothing is certain.
    pub recommended: Option<usize>,
    pub warnings: Vec<String>,
    #[serde(skip)]
    words: Words,
}

impl From<TimePrediction> for PredictedTime {
    fn from(p: TimePrediction) -> Self {
        Self {
            time: p.median,
            low: p.low,
            high: p.high,
        }
    }
}

impl ThreadsResult {
    /// Lists trials and predictions, without finals.
    pub fn of(
        form: &CommandForm,
        candidates: &[Candidate],
        numbers: &CpuNumbers,
        found: &SearchResult,
    ) -> Self {
        let row = |row: usize, predicted: Option<TimePrediction>, measured_s: Option<f64>| {
            let candidate = &candidates[row];
            CandidateRow {
                threads: candidate.threads,
                chunking: form.chunking(candidate.chunking.0).map(str::to_owned),
                cores: candidate.name.clone(),
                cpus: numbers.os_set(&candidate.cpus).to_string(),
                confined: candidate.confined,
                predicted: predicted.map(PredictedTime::from),
                measured_s,
            }
        };
        let trials = found.trials.iter();
        let tried = |nth: &usize| found.trials.iter().all(|t| t.candidate != *nth);
        let mut others: Vec<usize> = (0..candidates.len()).filter(tried).collect();
        let predicted = |nth: usize| found.predictions[nth];
        others.sort_by(|a, b| {
            let times = [predicted(*a).median, predicted(*b).median];
            times[0].total_cmp(&times[1])
        });
        Self {
            schema: SCHEMA,
            default: form.typed((candidates[0].threads, 0), None),
            trials: trials
                .map(|t| row(t.candidate, t.predicted, Some(t.measured_s)))
                .collect(),
            others: others
                .into_iter()
                .map(|nth| row(nth, Some(predicted(nth)), None))
                .collect(),
            open: found.open,
            finals: Vec::new(),
            recommended: None,
            warnings: Vec::new(),
            words: Words {
                confidence: 95.0,
                margin: 1.0,
            },
        }
    }

    /// Adds the comparison with the default, the first arm.
    pub fn judge(
        &mut self,
        form: &CommandForm,
        arms: &[BenchArm],
        ways: &[ThreadsWay],
        measured: &[MeasuredArm],
        margin: f64,
    ) {
        let confidence = confidence(arms.len() - 1);
        self.words = Words {
            confidence: 100.0 * confidence,
            margin: 100.0 * margin,
        };
        let pairs = || arms.iter().zip(measured);
        let finals = pairs().zip(ways).skip(1).map(|((arm, m), way)| {
            let evidence = m.against(&measured[0]);
            Final {
                threads: way.0,
                chunking: form.chunking(way.1).map(str::to_owned),
                cores: arm.place.name.clone(),
                cpus: arm.place.cpus.to_string(),
                time: m.median(),
                gain: gain(&arm.command.text, &evidence, confidence, margin),
                command: arm.command.text.clone(),
                bound: form.bound(*way, &arm.place.cpus),
            }
        });
        self.finals = finals.collect();
        // More rounds first: what was eliminated is no best.
        self.finals.sort_by(|a, b| {
            let pairs = b.gain.pairs.cmp(&a.gain.pairs);
            pairs.then(b.gain.gain.total_cmp(&a.gain.gain))
        });
        let is_faster = |f: &Final| f.gain.verdict == Some(GainDecision::Faster);
        self.recommended = self.finals.first().filter(|f| is_faster(f)).map(|_| 0);
        self.warnings = pairs()
            .flat_map(|(arm, m)| {
                let of = format!("{} on {}: ", arm.command.text, arm.place.name);
                warnings(m).into_iter().map(move |why| of.clone() + &why)
            })
            .collect();
    }

    /// The table of trials, or of predictions if nothing was run.
    pub fn table(&self) -> String {
        if self.trials.is_empty() {
            let cells = |row: &CandidateRow| {
                let relative = |time: f64| format!("{} x", number(time, 3));
                let predicted = row.predicted.map_or_else(Vec::new, |p| {
                    vec![
                        relative(p.time),
                        format!("{} to {}", relative(p.low), relative(p.high)),
                    ]
                });
                [place_cells(row), predicted].concat()
            };
            let head = self.head(["time over default's", "90 % of programs"]);
            return table::plain(&head, self.others.iter().map(cells));
        }
        let cells = |row: &CandidateRow| {
            let predicted = row.predicted.map_or_else(
                || "-".to_owned(),
                |p| {
                    format!(
                        "{} ({} to {})",
                        seconds(p.time),
                        seconds(p.low),
                        seconds(p.high)
                    )
                },
            );
            let measured = row.measured_s.map_or_else(|| "not run".into(), seconds);
            [place_cells(row), vec![predicted, measured]].concat()
        };
        let head = self.head(["predicted", "measured"]);
        let rows = self.trials.iter().chain(self.others.iter().take(SHOWN));
        table::plain(&head, rows.map(cells))
    }

    fn head(&self, times: [&'static str; 2]) -> Vec<&'static str> {
        let mut rows = self.trials.iter().chain(&self.others);
        let chunking = rows.any(|row| row.chunking.is_some()).then_some(CHUNK);
        let first = std::iter::once("threads").chain(chunking);
        first.chain(["cores", "CPUs"]).chain(times).collect()
    }

    /// Sentences about the result.
    pub fn sentences(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.trials.is_empty() {
            return all;
        }
        let number_of = self.trials.len() + self.others.len();
        all.push(format!(
            "{} of {number_of} candidates were run; one more run promises {} on average.",
            self.trials.len(),
            percent(self.open)
        ));
        let Some(best) = self.finals.first() else {
            let other = "No candidate that was run is faster than the default";
            all.push(format!("{other}: keep `{}`.", self.default));
            return all;
        };
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        let name = format!(
            "{} thread{}{} on {} (CPU{} {})",
            best.threads,
            plural(best.threads),
            best.chunking
                .as_ref()
                .map_or_else(String::new, |name| format!(" with {name}")),
            best.cores,
            plural(best.threads),
            best.cpus
        );
        all.push(compared(&name, "the default", &best.gain, self.words));
        all.push(match (self.recommended, best.gain.verdict) {
            (Some(_), _) => format!("Type: {}", best.command),
            (None, Some(_)) => format!("Keep the default: `{}`.", self.default),
            (None, None) => "Nothing is recommended.".to_owned(),
        });
        if let (Some(_), Some(bound)) = (self.recommended, &best.bound) {
            all.push(format!(
                "With each thread on a CPU of its own, which was not measured: {bound}"
            ));
        }
        all
    }
}

fn place_cells(row: &CandidateRow) -> Vec<String> {
    let cores = if row.confined {
        row.cores.clone()
    } else {
        "default: not confined".into()
    };
    let first = std::iter::once(row.threads.to_string()).chain(row.chunking.clone());
    first.chain([cores, row.cpus.clone()]).collect()
}
