//! Values of threads and processes, interval by interval, as `steer top` shows them.
//!
//! Input: a [`Top`], which says what of which threads is shown. [`Top::open`] opens the counters. Output: a [`TopState`] after each
//! interval, by [`OpenedTop::each`]. `sample` converts the samples of an interval to a snapshot, and [`TopState`] keeps the lines of the
//! table, sorted and filtered. One table defines all columns (`columns`). `tails` supplies percentiles of run-queue latency. `page`
//! serves charts to a browser.
//!
//! ```
//! # if !countersteer_counters::may_count() { return Ok(()); }
//! use countersteer_model::units::Nanos;
//! use countersteer_session::top::Top;
//!
//! let top = Top::new(Nanos::from_millis(200));
//! let samples = Some(2);
//! top.open()?.each(samples, |state| {
//!     for line in state.visible() {
//!         println!("{} {:.0} %", line.name, 100.0 * line.share);
//!     }
//!     Ok(())
//! })?;
//! # Ok::<(), anyhow::Error>(())
//! ```

pub mod columns;
pub mod page;
pub mod sample;
pub mod state;
pub mod tails;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use std::io::{self, ErrorKind};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use countersteer_counters::{
    CoreTypes, CountRequest, CountTarget, CounterError, CountingSummary, Pmus, PresentProcesses,
    Session,
};
use countersteer_model::units::Nanos;
use countersteer_report::record::CountingRecorder;

use crate::bpf::{Bpf, loader};
use crate::counted::{self, CountedMetrics, RequestedMetrics};
use crate::counting_record::{self, About};
use crate::error::{FaultKind, failure};
use crate::library;
use crate::modules::Modules;
use crate::virtuals::{Bank, Wanted};

use columns::{ColumnMeasure, TopColumn, base_metrics, columns, silent};
use sample::{Sampler, Taker};
use state::TopState;
use tails::Tails;

/// Threads to show, and their columns.
#[derive(Clone, Debug)]
pub struct Top {
    /// Processes to show; empty for the started program, or for all accessible processes if none is started.
    pub pids: Vec<u32>,
    /// Program to start, with its arguments; empty for none.
    pub command: Vec<String>,
    /// File for the started program's output.
    pub output: PathBuf,
    pub interval: Nanos,
    /// Event sets, each as a column per event.
    pub events: Vec<String>,
    /// Metrics by name or formula, each as a column.
    pub metrics: Vec<String>,
    /// Files of additional metrics.
    pub metric_files: Vec<PathBuf>,
    /// Folder of vendors' event lists; `None` for the user's.
    pub event_lists: Option<PathBuf>,
    /// Names of virtual counters, each as a column.
    pub virtuals: Vec<String>,
    /// Monitoring modules: programs that compute virtual counters.
    pub modules: Vec<PathBuf>,
    /// Root folder of the files of virtual counters.
    pub root: PathBuf,
    pub bpf: Bpf,
    /// Columns to show, in this order; empty for the default ones.
    pub columns: Vec<String>,
    /// Name of the column by which lines are sorted.
    pub sort: String,
    /// True for a line per process, false for a line per thread.
    pub by_process: bool,
    /// Folder of the record; `None` for no record.
    pub record: Option<PathBuf>,
}

/// Session whose counters are open.
pub struct OpenedTop {
    pub session: Session,
    pub state: TopState,
    pub taker: Taker,
}

/// Results of a session.
pub struct TopOutcome {
    pub summary: CountingSummary,
    pub recorder: Option<CountingRecorder>,
    /// True if the session ended on request.
    pub stopped: bool,
}

impl Top {
    /// Begins with all accessible processes and the default columns.
    #[must_use]
    pub fn new(interval: Nanos) -> Self {
        Self {
            pids: Vec::new(),
            command: Vec::new(),
            output: "/dev/null".into(),
            interval,
            events: Vec::new(),
            metrics: Vec::new(),
            metric_files: Vec::new(),
            event_lists: None,
            virtuals: Vec::new(),
            modules: Vec::new(),
            root: "/".into(),
            bpf: Bpf::Auto,
            columns: Vec::new(),
            sort: "cpu%".into(),
            by_process: false,
            record: None,
        }
    }

    /// Finds events and columns on this machine, opens the counters, and starts the program if there is one.
    ///
    /// # Errors
    /// An event, metric or column does not exist or has no values here; the processes or the program are not accessible; the record
    /// cannot be written.
    pub fn open(mut self) -> anyhow::Result<OpenedTop> {
        let pmus = library::pmus(Path::new("/"), self.event_lists.as_deref())?;
        let modules = Modules::start(&self.modules, &mut self.events, &mut self.virtuals, &pmus);
        let core_types = CoreTypes::of(&pmus);
        let hybrid = core_types.names.len() > 1;
        let wanted = Wanted::find(&self.virtuals)?;
        let known = library::metrics(&self.metric_files)?;
        let base = base_metrics(&known, hybrid, &wanted.derived, &pmus);
        let metrics: Vec<String> = std::iter::once(base)
            .chain(self.metrics.iter().cloned())
            .collect();
        let asked = RequestedMetrics {
            events: &self.events,
            metrics: &metrics,
            files: &self.metric_files,
            every: None,
            derived: &[],
        };
        let counted = counted::plan(&asked, &pmus, Some(self.interval))?;
        let (columns, measures) = self.shown(&counted, hybrid, &wanted)?;
        let mut state = TopState::new(columns, &measures, core_types.names.clone());
        state.by_process = self.by_process;
        state.set_sort(columns::find(&state.columns, &self.sort)?);
        let about = About {
            by: "steer top",
            program: &self.command,
            events: asked.events.join(" ; "),
            metrics: asked.metrics.join(" ; "),
            period: self.interval,
        };
        let (session, note) = self.session(&pmus, &counted, &core_types)?;
        state.notes.extend(note);
        let keep = |dir: &Path| counting_record::recorder(dir, &about, &counted, &core_types);
        let recorder = self.record.as_deref().map(keep).transpose()?;
        let mut tails = Tails::default();
        let read = Wanted::find(&tails.turn_to(&state.reads())?)?;
        let bank = Bank::open(&self.root, &read, &counted, modules)?;
        let taker = Taker {
            sampler: Sampler::new(measures, self.interval),
            bank,
            tails,
            recorder,
        };
        Ok(OpenedTop {
            session,
            state,
            taker,
        })
    }

    /// Returns all columns, with the requested ones shown, and the measures that supply their values.
    fn shown(
        &self,
        counted: &CountedMetrics,
        hybrid: bool,
        wanted: &Wanted,
    ) -> anyhow::Result<(Vec<TopColumn>, Vec<ColumnMeasure>)> {
        let silent = silent(&self.root, self.bpf);
        let (mut columns, measures) = columns(counted, self.events.len(), hybrid, &silent);
        if !self.columns.is_empty() {
            columns::only(&mut columns, &self.columns)?;
        }
        let of_virtuals = wanted
            .columns
            .iter()
            .map(|c| c.name)
            .chain(wanted.derived.iter().map(|m| m.name));
        of_virtuals
            .into_iter()
            .try_for_each(|name| columns::show(&mut columns, name))?;
        Ok((columns, measures))
    }

    /// Opens the session, and returns a message about omitted processes if there are any.
    fn session(
        &self,
        pmus: &Pmus,
        counted: &CountedMetrics,
        core_types: &CoreTypes,
    ) -> anyhow::Result<(Session, Option<String>)> {
        let open = |target, bpf| {
            let request = self.request(target, pmus, counted, core_types.clone());
            Session::open(request, loader(bpf))
        };
        let target = match self.pids.as_slice() {
            [] => (!self.command.is_empty()).then(|| CountTarget::Launch(self.command.clone())),
            pids => Some(CountTarget::Processes(pids.to_vec())),
        };
        match target {
            Some(target) => Ok((open(target, self.bpf)?, None)),
            None => everybody(self.bpf, &open, || {
                PresentProcesses::gather(&counted.sets, &pmus.online)
            }),
        }
    }

    fn request(
        &self,
        target: CountTarget,
        pmus: &Pmus,
        counted: &CountedMetrics,
        core_types: CoreTypes,
    ) -> CountRequest {
        let sets = (counted.sets.clone(), counted.plan.clone());
        let interval = Some(self.interval);
        CountRequest {
            output: Some(self.output.clone()),
            // The display counts the intervals and stops the session, which also ends a started program.
            ..CountRequest::new(target, sets, interval, pmus.online.clone(), core_types)
        }
    }
}

/// Opens a session for all accessible processes. Uses BPF programs if possible, since counters for each thread may exceed the
/// limit of open files. Returns a message about omitted processes if there are any.
fn everybody(
    bpf: Bpf,
    open: &dyn Fn(CountTarget, Bpf) -> Result<Session, CounterError>,
    gather: impl FnOnce() -> PresentProcesses,
) -> anyhow::Result<(Session, Option<String>)> {
    if bpf != Bpf::Never {
        match open(
            CountTarget::Present(PresentProcesses::all().pids),
            Bpf::Always,
        ) {
            Err(CounterError::NoBpf { .. }) if bpf == Bpf::Auto => {}
            opened => return Ok((opened?, None)),
        }
    }
    let crowd = gather();
    if crowd.pids.is_empty() {
        let hint = "no process is accessible; name some with -p, or a program after `--`";
        return Err(failure(FaultKind::Usage, hint));
    }
    let note = said_of(&crowd);
    Ok((open(CountTarget::Present(crowd.pids), Bpf::Never)?, note))
}

fn said_of(crowd: &PresentProcesses) -> Option<String> {
    let forbidden = format!(
        "{} not accessible (another user's: run as root)",
        crowd.forbidden
    );
    let left_out = format!(
        "{} with the least CPU time omitted (limit of open files; select with -p)",
        crowd.left_out
    );
    let notes = [(crowd.forbidden, forbidden), (crowd.left_out, left_out)];
    let notes: Vec<String> = notes
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(_, text)| text)
        .collect();
    (!notes.is_empty()).then(|| {
        format!(
            "{} processes attached; {}",
            crowd.pids.len(),
            notes.join("; ")
        )
    })
}

impl OpenedTop {
    /// Counts, and calls `show` with the state after each interval. Ends after `samples` intervals, with the threads, or if `show`
    /// fails. A failure by a closed pipe counts as the reader's wish to end.
    ///
    /// # Errors
    /// The counters cannot be read, or `show` failed.
    pub fn each(
        self,
        samples: Option<u64>,
        mut show: impl FnMut(&TopState) -> io::Result<()>,
    ) -> anyhow::Result<TopOutcome> {
        let Self {
            mut session,
            mut state,
            mut taker,
        } = self;
        let stopper = session.stopper()?;
        let mut failed = None;
        let mut stopped = false;
        let summary = session.run(|tick| {
            let snapshot = taker.take(tick);
            counting_record::kept(taker.recorder.as_mut());
            if stopped {
                // The program has not ended after the first request, so the second call kills it.
                stopper.stop();
                return ControlFlow::Continue(());
            }
            if let Some(note) = &snapshot.note {
                say!("{note}");
            }
            state.ingest(snapshot);
            failed = show(&state).err();
            if failed.is_some() || samples.is_some_and(|n| tick.number + 1 >= n) {
                // If the program has ended by itself, it must not be stopped again.
                stopped = !tick.last;
                stopper.stop();
            }
            ControlFlow::Continue(())
        })?;
        match failed {
            Some(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(TopOutcome {
                summary,
                recorder: taker.recorder,
                stopped,
            }),
        }
    }
}
