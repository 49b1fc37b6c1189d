//! Records: the only persistent output of a run.
//!
//! Input: the driver's reports to the [`Collector`]. Output: a [`Record`], stored as a folder of Parquet tables with a
//! `manifest.json`. Reports, `why` and replays read only records, so a record contains its machine, workload and profiles as
//! text.

mod blocks;
mod bounded;
mod collector;
mod columns;
mod counting;
mod differences;
mod disk;
mod files;
mod kernel;
mod kinds;
mod live;
mod manifest;
mod parts;
mod reading;
mod replay;
mod rows;
mod stream;
mod streamed;
mod tables;
#[cfg(test)]
mod testing;
mod words;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use countersteer_model::profile::Profile;
use countersteer_model::score::Score;
use countersteer_model::topology::Topology;
use countersteer_model::units::{Nanos, ThreadId};

pub use collector::Collector;
pub use counting::CountingRecorder;
pub use differences::{Difference, Differences, compare_decisions};
pub use disk::write_table;
pub(crate) use kernel::KernelCpus;
pub use live::LiveCollector;
pub use manifest::{Detail, Manifest, NamedText, SCHEMA};
pub(crate) use reading::Reduction;
pub use replay::ReplayEngine;
pub use rows::{
    ClockRow, DecisionRow, EventRow, HintRow, ProgramRow, ReadingRow, RecordedMetrics, SampleRows,
    ShareRow, SpanRow, StepRow, ThreadRow, VirtualRow,
};

use crate::error::ReportError;

/// Record of one run: inputs, observations, decisions and outcome.
///
/// ```
/// use std::path::Path;
///
/// use countersteer_report::record::Record;
///
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// # let machine = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/core2-quad.toml"));
/// # let texts = (("core2-quad", machine), ("mix.toml", ""));
/// # let period = countersteer_model::units::Nanos::from_millis(100);
/// # let manifest =
/// #     countersteer_report::record::Manifest::new(texts.0, texts.1, "hsf", 1, period, [], Default::default());
/// # Record::new(manifest).save(Path::new("run.rec"))?;
/// let record = Record::load(Path::new("run.rec"))?;
/// let (policy, machine) = (&record.manifest.policy, record.topology()?.cpus.len());
/// println!("{} decisions of {policy} on {machine} CPUs", record.decisions.len());
/// # assert_eq!(machine, 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Inputs and outcome of the run.
    pub manifest: Manifest,
    /// Observations in order of time. Other tables refer to them by index.
    pub steps: Vec<StepRow>,
    /// State of each living thread at each observation.
    pub threads: Vec<ThreadRow>,
    /// State of programs: a row at the first appearance, and one for each change.
    pub programs: Vec<ProgramRow>,
    /// Application hints of threads; empty if there were none.
    pub hints: Vec<HintRow>,
    /// Events of threads.
    pub events: Vec<EventRow>,
    /// Samples of threads with their counts.
    pub samples: SampleRows,
    /// Names of the metrics, in column order of `metrics`.
    pub metric_names: Vec<Arc<str>>,
    /// Metrics that the policy used, one row per sample of a thread.
    pub metrics: Vec<RecordedMetrics>,
    /// Decisions of the policy about threads.
    pub decisions: Vec<DecisionRow>,
    /// Cache partitions that the policy set.
    pub shares: Vec<ShareRow>,
    /// Limits on frequencies that the policy set.
    pub clocks: Vec<ClockRow>,
    /// Run intervals of threads.
    pub spans: Vec<SpanRow>,
    /// Names of the columns of `readings` that are counts.
    pub reading_counts: Vec<Arc<str>>,
    /// Names of the columns of `readings` that are metrics.
    pub reading_metrics: Vec<Arc<str>>,
    /// Counts of real hardware and kernels; empty for a simulation.
    pub readings: Vec<ReadingRow>,
    /// Values of virtual counters.
    pub virtuals: Vec<VirtualRow>,
    /// Index of the first of `steps` in the whole record. A record in progress holds only its last steps in memory.
    first_step: u32,
    /// Program and name of each thread whose first row is not in memory.
    dropped: BTreeMap<u32, (u32, Arc<str>)>,
}

/// Thread of a record, with its program and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadIdentity {
    pub id: ThreadId,
    pub program: u32,
    pub name: Arc<str>,
}

impl Record {
    /// Sentence about the early end of a record from the folder `dir`; `None` if the record is complete.
    #[must_use]
    pub fn cut_short(&self, dir: &Path) -> Option<String> {
        let end = self.end().as_secs_f64();
        let dir = dir.display();
        self.manifest.unfinished.then(|| {
            format!(
                "{dir} was cut short (its run was killed, its disk was full, or it is still running): it ends at {end:.3} s"
            )
        })
    }

    #[must_use]
    pub fn new(manifest: Manifest) -> Self {
        Self {
            manifest,
            steps: Vec::new(),
            threads: Vec::new(),
            programs: Vec::new(),
            hints: Vec::new(),
            events: Vec::new(),
            samples: SampleRows::default(),
            metric_names: Vec::new(),
            metrics: Vec::new(),
            decisions: Vec::new(),
            shares: Vec::new(),
            clocks: Vec::new(),
            spans: Vec::new(),
            reading_counts: Vec::new(),
            reading_metrics: Vec::new(),
            readings: Vec::new(),
            virtuals: Vec::new(),
            first_step: 0,
            dropped: BTreeMap::new(),
        }
    }

    /// Drops the states of threads that are not kept. The identities of the threads stay known.
    pub(crate) fn drop_threads(&mut self, mut keep: impl FnMut(&ThreadRow) -> bool) {
        let Self {
            threads, dropped, ..
        } = self;
        threads.retain(|row| {
            let kept = keep(row);
            if !kept {
                dropped
                    .entry(row.thread)
                    .or_insert_with(|| (row.program, Arc::clone(&row.name)));
            }
            kept
        });
    }

    /// Returns all rows and leaves none. Rows added later belong to later steps.
    fn take_rows(&mut self) -> Self {
        let mut rest = Self::new(self.manifest.clone());
        rest.metric_names.clone_from(&self.metric_names);
        rest.reading_counts.clone_from(&self.reading_counts);
        rest.reading_metrics.clone_from(&self.reading_metrics);
        rest.first_step = self.first_step + u32::try_from(self.steps.len()).unwrap_or(u32::MAX);
        std::mem::replace(self, rest)
    }

    /// Moves the rows of later steps to the end of this record.
    fn append(&mut self, rows: &mut Self) {
        // Columns are only ever added, so the longer list is the current one.
        if rows.metric_names.len() > self.metric_names.len() {
            self.metric_names.clone_from(&rows.metric_names);
        }
        for table in tables::TABLES {
            (table.append)(self, rows);
        }
    }

    /// Returns the number of rows of the largest table.
    fn most_rows(&self) -> usize {
        tables::TABLES
            .iter()
            .map(|table| (table.rows)(self))
            .max()
            .unwrap_or(0)
    }

    /// Returns the topology of the run's machine.
    ///
    /// # Errors
    /// Fails if the machine's text inside the record cannot be parsed.
    pub fn topology(&self) -> Result<Arc<Topology>, ReportError> {
        Ok(Arc::new(Topology::new(&self.machine()?)))
    }

    /// Returns the profiles of the run with their file names.
    ///
    /// # Errors
    /// Fails if a profile inside the record cannot be parsed.
    pub fn profiles(&self) -> Result<Vec<(String, Profile)>, ReportError> {
        let parse =
            |(name, text): (&String, &String)| Ok((name.clone(), Profile::parse(name, text)?));
        self.manifest.profiles.iter().map(parse).collect()
    }

    /// Returns the scores of the workload.
    #[must_use]
    pub fn score(&self) -> Score {
        Score::of(&self.manifest.outcome)
    }

    /// Returns the time of the last observation or run interval, whichever is later.
    #[must_use]
    pub fn end(&self) -> Nanos {
        let last = self.steps.last().map_or(0, |s| s.at_ns);
        Nanos(last.max(self.spans.iter().map(|s| s.end_ns).max().unwrap_or(0)))
    }

    /// Returns the identities of all threads of the record, in ascending order of ids.
    ///
    /// ```
    /// use countersteer_report::record::Record;
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # assert!(Record::load(folder.path()).is_err());
    /// // A folder without a record is refused with the name of the file that is missing.
    /// let error = Record::load(folder.path()).map(drop);
    /// assert!(error.is_err_and(|why| why.to_string().contains("manifest.json")));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn identities(&self) -> Vec<ThreadIdentity> {
        let mut seen = self.dropped.clone();
        for row in &self.threads {
            seen.entry(row.thread)
                .or_insert_with(|| (row.program, Arc::clone(&row.name)));
        }
        let identity = |(id, (program, name)): (u32, (u32, Arc<str>))| ThreadIdentity {
            id: ThreadId(id),
            program,
            name,
        };
        seen.into_iter().map(identity).collect()
    }
}
