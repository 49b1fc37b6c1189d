//! Counting of events, metrics and virtual counters, as a value.
//!
//! Input: a [`Count`], which says what of which threads is counted. Output: ticks, one per interval, or all values as [`Rows`].
//! [`Count::plan`] finds the events on this machine, [`Planned::open`] opens the counters, and [`Counting::run`] counts.
//!
//! ```
//! # if !countersteer_counters::may_count() { return Ok(()); }
//! use countersteer_session::count::{Count, CountTarget};
//!
//! let mut count = Count::new(CountTarget::Launch(vec!["ls".into(), "/".into()]));
//! count.metrics = vec!["page_faults / task_clock".into()];
//! let rows = count.plan()?.open()?.rows()?.rows;
//! for row in &rows {
//!     println!("{} {} {}", row.name, row.counter, row.value);
//! }
//! assert!(rows.iter().all(|row| row.name == "ls" && row.value > 0.0));
//! # Ok::<(), anyhow::Error>(())
//! ```

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use countersteer_counters::{
    CoreTypes, CountRequest, CounterError, CountingSummary, Pmus, Session, Tick,
};
use countersteer_model::counters::{Fold, Owner, Per, Samples};
use countersteer_model::cpuset::CpuSet;
use countersteer_model::units::Nanos;

use crate::bpf::{Bpf, loader};
use crate::counted::{self, CountedMetrics, RequestedMetrics};
use crate::error::{FaultKind, failure};
use crate::library;
use crate::modules::Modules;
use crate::virtuals::{Bank, Wanted};

pub use countersteer_counters::{CountTarget, Stopper};

/// Key by which samples become rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum RowPer {
    Thread,
    Process,
    Cpu,
    Total,
}

/// Events, metrics and virtual counters to count, and the threads whose they are.
#[derive(Clone, Debug)]
pub struct Count {
    pub target: CountTarget,
    /// Event sets: events of one text, separated by commas, are counted together.
    pub events: Vec<String>,
    /// Lists of metrics by name or formula; the events of one list form a set.
    pub metrics: Vec<String>,
    /// Files of additional metrics.
    pub metric_files: Vec<PathBuf>,
    /// Folder of vendors' event lists; `None` for the user's.
    pub event_lists: Option<PathBuf>,
    /// Names of virtual counters, which are read at the end of each interval.
    pub virtuals: Vec<String>,
    /// Monitoring modules: programs that compute virtual counters.
    pub modules: Vec<PathBuf>,
    /// Root folder of the files of virtual counters.
    pub root: PathBuf,
    pub bpf: Bpf,
    /// Sampling interval; `None` to sample threads at their end only.
    pub interval: Option<Nanos>,
    /// Event-based sampling, e.g. `100M:instructions`, instead of an interval.
    pub every: Option<String>,
    /// Number of samples after which counting ends.
    pub samples: Option<u64>,
    /// Time after which counting ends.
    pub duration: Option<Nanos>,
    /// Key of rows; `None` for CPUs if the target is counted by CPU, else threads.
    pub per: Option<RowPer>,
    /// CPUs on which is counted; `None` for all.
    pub cpus: Option<CpuSet>,
    /// CPUs to which a started program is confined.
    pub bind: Option<CpuSet>,
}

/// Count whose events were found on this machine.
pub struct Planned {
    pub counted: Arc<CountedMetrics>,
    pub wanted: Wanted,
    pub request: CountRequest,
    pub count: Count,
    modules: Modules,
}

/// Count whose counters are open.
pub struct Counting {
    pub counted: Arc<CountedMetrics>,
    pub core_types: CoreTypes,
    /// Names of the virtual counters, in their order.
    pub names: Vec<&'static str>,
    count: Count,
    session: Session,
    bank: Bank,
}

/// Value of a counter of a thread, process or CPU in an interval.
#[derive(Clone, Debug, PartialEq)]
pub struct CountRow {
    /// End of the interval, in seconds from the start.
    pub end_s: f64,
    /// Time in which the events were counted, in seconds; 0 for virtual counters.
    pub running_s: f64,
    pub pid: Option<u32>,
    pub tid: Option<u32>,
    pub cpu: Option<u32>,
    /// Name of the thread or process; place of a virtual counter of the machine.
    pub name: String,
    pub core_type: String,
    /// Name of the event, metric or virtual counter.
    pub counter: String,
    pub value: f64,
}

/// Values of a count, and how it ended.
#[derive(Clone, Debug)]
pub struct Rows {
    pub rows: Vec<CountRow>,
    pub summary: CountingSummary,
}

impl Count {
    /// Begins with the default events of a target.
    #[must_use]
    pub fn new(target: CountTarget) -> Self {
        Self {
            target,
            events: Vec::new(),
            metrics: Vec::new(),
            metric_files: Vec::new(),
            event_lists: None,
            virtuals: Vec::new(),
            modules: Vec::new(),
            root: "/".into(),
            bpf: Bpf::Auto,
            interval: None,
            every: None,
            samples: None,
            duration: None,
            per: None,
            cpus: None,
            bind: None,
        }
    }

    /// Finds the events on this machine, and starts the modules.
    ///
    /// # Errors
    /// An event, metric or virtual counter does not exist here, or the options contradict each other.
    pub fn plan(mut self) -> anyhow::Result<Planned> {
        if self.samples.is_some() && self.interval.is_none() {
            let why =
                "-n counts samples, which needs an interval: give one with -i, as in -i 100ms";
            return Err(failure(FaultKind::Usage, why));
        }
        let pmus = library::pmus(Path::new("/"), self.event_lists.as_deref())?;
        let (events, virtuals) = (&mut self.events, &mut self.virtuals);
        let modules = Modules::start(&self.modules, events, virtuals, &pmus);
        let wanted = Wanted::find(&self.virtuals)?;
        let counted = counted::plan(&self.asked(&wanted), &pmus, self.interval)?;
        self.check_threads(&wanted, &counted)?;
        Ok(Planned {
            request: self.request(&pmus, &counted)?,
            counted: Arc::new(counted),
            wanted,
            count: self,
            modules,
        })
    }

    /// Events and metrics that are asked for.
    #[must_use]
    pub fn asked<'a>(&'a self, wanted: &'a Wanted) -> RequestedMetrics<'a> {
        RequestedMetrics {
            events: &self.events,
            metrics: &self.metrics,
            files: &self.metric_files,
            every: self.every.as_deref(),
            derived: &wanted.derived,
        }
    }

    /// Key of the rows.
    #[must_use]
    pub const fn per(&self) -> Per {
        match self.per {
            Some(RowPer::Process) => Per::Process,
            Some(RowPer::Cpu) => Per::Cpu,
            Some(RowPer::Total) => Per::Total,
            None if self.by_cpu() => Per::Cpu,
            Some(RowPer::Thread) | None => Per::Thread,
        }
    }

    const fn by_cpu(&self) -> bool {
        matches!(self.target, CountTarget::Cpus | CountTarget::Cgroup(_))
    }

    /// Counting method: BPF programs do not distinguish CPUs, so they are left out if rows are per CPU.
    ///
    /// # Errors
    /// BPF programs are required for rows per CPU.
    pub fn method(&self) -> anyhow::Result<Bpf> {
        match (self.per, self.bpf) {
            (Some(RowPer::Cpu), Bpf::Always) => Err(failure(
                FaultKind::Usage,
                "BPF programs do not distinguish CPUs: omit --per cpu",
            )),
            (Some(RowPer::Cpu), _) => Ok(Bpf::Never),
            (_, bpf) => Ok(bpf),
        }
    }

    /// True if threads are counted as one total in the kernel.
    fn together(&self) -> bool {
        self.per == Some(RowPer::Total) && self.cpus.is_none()
    }

    /// Returns an error if virtual counters of threads are requested, and no threads are counted. Without an interval, it is one as
    /// well: most threads have ended when the counters are read.
    fn check_threads(&self, wanted: &Wanted, counted: &CountedMetrics) -> anyhow::Result<()> {
        let reads_threads = !self.by_cpu() && !self.together();
        let once = self.interval.is_none() && counted.every.is_none();
        if reads_threads
            && once
            && let Some(name) = wanted.sensed_by_thread()
        {
            let remedy = "give one with -i, as in -i 100ms";
            let why = format!("`{name}` is read per thread at the end of intervals: {remedy}");
            return Err(failure(FaultKind::Usage, why));
        }
        match wanted.by_thread(counted) {
            Some(name) if !reads_threads => {
                let remedy = "it is for programs, -p or -t, without --per total";
                let why = format!("`{name}` is sampled per thread: {remedy}");
                Err(failure(FaultKind::Usage, why))
            }
            _ => Ok(()),
        }
    }

    fn request(&self, pmus: &Pmus, counted: &CountedMetrics) -> anyhow::Result<CountRequest> {
        let by_cpu = self.by_cpu();
        if by_cpu && matches!(self.per, Some(RowPer::Thread | RowPer::Process)) {
            return Err(failure(
                FaultKind::Usage,
                "-a and --cgroup count by CPU; rows can be per cpu or total",
            ));
        }
        let total = self.per == Some(RowPer::Total);
        let whole = self.interval.is_none() && counted.every.is_none() && !total;
        if let (Some(name), true) = (counted.outside.first(), whole) {
            let remedy = "give one with -i, as in -i 100ms, or ask for --per total";
            return Err(failure(
                FaultKind::Usage,
                format!("`{name}` is read at the end of intervals: {remedy}"),
            ));
        }
        if counted.every.is_some() && (by_cpu || self.per.is_some_and(|p| p != RowPer::Thread)) {
            return Err(failure(
                FaultKind::Usage,
                "--every samples single threads of a program, -p or -t, without --per",
            ));
        }
        for wanted in [&self.cpus, &self.bind].into_iter().flatten() {
            if let Some(cpu) = wanted.iter().find(|cpu| !pmus.online.contains(*cpu)) {
                return Err(CounterError::Offline {
                    cpu: cpu.0,
                    online: pmus.online.to_string(),
                }
                .into());
            }
        }
        Ok(CountRequest {
            target: self.target.clone(),
            sets: counted.sets.clone(),
            plan: counted.plan.clone(),
            interval: self.interval,
            samples: self.samples,
            duration: self.duration,
            every: counted.every,
            prompt: !self.virtuals.is_empty() || !counted.outside.is_empty(),
            cpus: self.cpus.clone().unwrap_or_else(|| pmus.online.clone()),
            bind: self.bind.clone(),
            total: self.together(),
            output: None,
            core_types: CoreTypes::of(pmus),
        })
    }
}

impl Planned {
    /// Opens the counters, and starts the program if the target is one.
    ///
    /// # Errors
    /// The counters cannot be opened, a virtual counter cannot be read, or the program does not start.
    pub fn open(self) -> anyhow::Result<Counting> {
        let core_types = self.request.core_types.clone();
        let session = Session::open(self.request, loader(self.count.method()?))?;
        let bank = Bank::open(&self.count.root, &self.wanted, &self.counted, self.modules)?;
        Ok(Counting {
            names: bank.names().to_vec(),
            counted: self.counted,
            core_types,
            count: self.count,
            session,
            bank,
        })
    }
}

impl Counting {
    /// Handle that ends [`Self::run`] from another thread.
    ///
    /// # Errors
    /// There are too many open files.
    pub fn stopper(&mut self) -> anyhow::Result<Stopper> {
        Ok(self.session.stopper()?)
    }

    /// Counts until the target ends, the limits are reached, or `each` breaks. `each` is called at the end of each interval, when
    /// the virtual counters have been read.
    ///
    /// # Errors
    /// The program does not start, or counters can no longer be read.
    pub fn run(
        self,
        mut each: impl FnMut(&Tick<'_>, &Bank) -> ControlFlow<()>,
    ) -> anyhow::Result<CountingSummary> {
        let Self { mut bank, .. } = self;
        let every_tick = self.count.interval.is_some() || self.counted.every.is_some();
        let summary = self.session.run(|tick| {
            // With event-based sampling, virtual counters are read with each sample.
            if every_tick || tick.last {
                bank.read(tick.readings)
            } else {
                bank.read_counts(tick.readings)
            }
            while let Some(why) = bank.complaint() {
                say!("{why}");
            }
            each(tick, &bank)
        })?;
        Ok(summary)
    }

    /// Counts to the end, and collects all values.
    ///
    /// # Errors
    /// See [`Self::run`].
    pub fn rows(self) -> anyhow::Result<Rows> {
        let mut rows = Vec::new();
        let summary = self.each_rows(|of_tick| {
            rows.extend(of_tick);
            ControlFlow::Continue(())
        })?;
        Ok(Rows { rows, summary })
    }

    /// Counts to the end, and passes the values of each interval to `take`.
    ///
    /// # Errors
    /// See [`Self::run`].
    pub fn each_rows(
        self,
        mut take: impl FnMut(Vec<CountRow>) -> ControlFlow<()>,
    ) -> anyhow::Result<CountingSummary> {
        let counted = Arc::clone(&self.counted);
        let core_types = self.core_types.names.clone();
        let mut fold = Fold::new(self.count.per());
        let single = counted.every.is_some();
        self.run(|tick, bank| {
            let samples: &Samples = if single {
                tick.readings
            } else {
                fold.fold(tick.readings)
            };
            let mut rows = Vec::new();
            counts(samples, &counted, &core_types, tick, bank, &mut rows);
            let end_s = tick.at.since(tick.origin).as_secs_f64();
            bank.each(
                |id| tick.name(id),
                |_, value| {
                    rows.push(CountRow {
                        end_s,
                        running_s: 0.0,
                        pid: None,
                        tid: value.tid,
                        cpu: value.cpu,
                        name: value.place.to_owned(),
                        core_type: String::new(),
                        counter: value.name.to_owned(),
                        value: value.value,
                    });
                },
            );
            take(rows)
        })
    }
}

/// Appends the events and metrics of an interval.
fn counts(
    samples: &Samples,
    counted: &CountedMetrics,
    core_types: &[String],
    tick: &Tick<'_>,
    bank: &Bank,
    rows: &mut Vec<CountRow>,
) {
    let outside = bank.outside();
    for (index, sample) in samples.iter().enumerate() {
        let (pid, tid) = match sample.owner {
            Owner::Thread { pid, tid } => (Some(pid), Some(tid)),
            Owner::Process { pid } => (Some(pid), None),
            _ => (None, None),
        };
        let name = tid.or(pid).map_or("", |id| tick.name(id));
        let mut push = |counter: &str, value: f64| {
            rows.push(CountRow {
                end_s: sample.end.since(tick.origin).as_secs_f64(),
                running_s: sample.running.as_secs_f64(),
                pid,
                tid,
                cpu: sample.cpu.map(|cpu| cpu.0),
                name: name.to_owned(),
                core_type: core_types
                    .get(sample.core_type.index())
                    .cloned()
                    .unwrap_or_default(),
                counter: counter.to_owned(),
                value,
            });
        };
        let set = counted.plan.sets.get(sample.set as usize);
        let events = set.iter().flat_map(|set| set.events.iter()).enumerate();
        for (place, event) in events {
            if let Some(count) = sample.counts.at(place) {
                push(&event.name, count);
            }
        }
        for metric in &counted.metrics {
            if let Some(value) = metric.value(samples, index, &*outside) {
                push(&metric.name, value);
            }
        }
    }
}
