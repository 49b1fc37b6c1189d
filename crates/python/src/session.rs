//! Sessions on this machine: programs under a policy, counts, and trials.
//!
//! Input: commands and options. Output: tables, and JSON text of a run's summary. Nothing passes through a command line or a file.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, UInt32Array};
use countersteer_model::units::Nanos;
use countersteer_session::bench::threads::ThreadsSearch;
use countersteer_session::bench::threads::result::ThreadsResult;
use countersteer_session::count::{Count, CountRow, CountTarget, RowPer, Stopper};
use countersteer_session::live::{Live, Targets};
use countersteer_session::steering::engine::EngineName;
use countersteer_session::steering::tally::Tell;
use countersteer_session::steering::whole_runs::{RunMeasure, RunsTrial, TrialSide};
use countersteer_sysfs::signals::EndSignals;
use pyo3::prelude::*;

use crate::error::{failure, raised};
use crate::gains::{GainValues, of_trial};
use crate::results::{of_candidates, of_finals, of_run};
use crate::table::{Table, floats, texts};

/// Time for which the interpreter waits for an interval before it looks for signals.
const GLANCE: Duration = Duration::from_millis(100);

/// Time for which a program may end by itself before it is killed.
const GRACE: Duration = Duration::from_secs(2);

/// Value of one of the names, or an error that lists them.
fn named<T: Copy>(what: &str, name: &str, names: &[(&str, T)]) -> PyResult<T> {
    let found = names.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let known: Vec<&str> = names.iter().map(|(known, _)| *known).collect();
        let known = known.join(", ");
        raised(anyhow::anyhow!("no {what} `{name}`: {known}"))
    })
}

/// Time of a number of seconds above 0.
fn time(what: &str, seconds: f64) -> PyResult<Nanos> {
    if seconds > 0.0 && seconds.is_finite() {
        return Ok(Nanos::from_secs_f64(seconds));
    }
    let why = anyhow::anyhow!("{what} is {seconds} s; it must be above 0");
    Err(raised(why))
}

/// Runs without the interpreter's lock. Panics of a policy become exceptions. A signal ends the run, and then has its effect on
/// the interpreter.
pub fn detached<T: Send>(
    py: Python<'_>,
    run: impl FnOnce() -> anyhow::Result<T> + Send,
) -> PyResult<T> {
    let signals = EndSignals::listen().map_err(raised)?;
    let done = py.detach(|| catch_unwind(AssertUnwindSafe(run)));
    signals.end();
    py.check_signals()?;
    done.map_err(failure)?.map_err(raised)
}

/// Programs of the arguments, of which exactly one is given.
fn targets(
    command: Option<Vec<String>>,
    workload: Option<String>,
    pid: Option<Vec<u32>>,
    cgroup: Option<PathBuf>,
) -> PyResult<Targets> {
    match (command, workload, pid, cgroup) {
        (Some(words), None, None, None) => Ok(Targets::Command(words)),
        (None, Some(name), None, None) => Ok(Targets::Workload(name)),
        (None, None, Some(pids), None) => Ok(Targets::Processes(pids)),
        (None, None, None, Some(folder)) => Ok(Targets::Cgroup(folder)),
        _ => Err(raised(anyhow::anyhow!(
            "name a command or workload, processes (pid) or a control group (cgroup), and only one of them"
        ))),
    }
}

/// Runs programs under a policy. Returns the programs, the summary as JSON text, and the decisions of a dry run as lines.
#[pyfunction]
#[pyo3(signature = (policy, *, command=None, workload=None, pid=None, cgroup=None, engine="affinity", period_s=0.1,
    seconds=None, seed=1, dry_run=false, record=None, machine=None, foreground=None, latency=false))]
#[allow(clippy::too_many_arguments)] // They are keywords in Python.
pub fn run(
    py: Python<'_>,
    policy: String,
    command: Option<Vec<String>>,
    workload: Option<String>,
    pid: Option<Vec<u32>>,
    cgroup: Option<PathBuf>,
    engine: &str,
    period_s: f64,
    seconds: Option<f64>,
    seed: u64,
    dry_run: bool,
    record: Option<PathBuf>,
    machine: Option<String>,
    foreground: Option<String>,
    latency: bool,
) -> PyResult<(Table, String, Vec<String>)> {
    if let Some(dir) = record.as_ref().filter(|d| d.join("manifest.json").exists()) {
        let shown = dir.display();
        return Err(raised(anyhow::anyhow!(
            "{shown} has a record already: name another folder"
        )));
    }
    let engine = named("engine", engine, &EngineName::NAMES)?;
    let period = time("the period", period_s)?;
    let until = seconds.map_or(Ok(Nanos::NEVER), |s| time("the time", s))?;
    let targets = targets(command, workload, pid, cgroup)?;
    let planned: Arc<Mutex<Vec<String>>> = Arc::default();
    let done = detached(py, || {
        let lines = Arc::clone(&planned);
        let tell: Tell = Box::new(move |line: &str| locked(&lines).push(line.to_owned()));
        let live = Live {
            policy,
            foreground,
            engine,
            period,
            until,
            dry: dry_run,
            machine,
            seed,
            record,
            latency,
            tell: dry_run.then_some(tell),
            ..Live::new(targets)
        };
        live.run()
    })?;
    let summary = serde_json::to_string(&done.summary).map_err(raised)?;
    let lines = std::mem::take(&mut *locked(&planned));
    Ok((of_run(&done.summary)?, summary, lines))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Options of a count, as keywords of Python.
#[derive(FromPyObject)]
struct Options {
    #[pyo3(item)]
    command: Option<Vec<String>>,
    #[pyo3(item)]
    pid: Option<Vec<u32>>,
    #[pyo3(item)]
    tid: Option<Vec<u32>>,
    #[pyo3(item)]
    cgroup: Option<PathBuf>,
    #[pyo3(item)]
    events: Vec<String>,
    #[pyo3(item)]
    metrics: Vec<String>,
    #[pyo3(item)]
    virtual_: Vec<String>,
    #[pyo3(item)]
    modules: Vec<PathBuf>,
    #[pyo3(item)]
    interval_s: Option<f64>,
    #[pyo3(item)]
    every: Option<String>,
    #[pyo3(item)]
    seconds: Option<f64>,
    #[pyo3(item)]
    per: Option<String>,
    #[pyo3(item)]
    cpus: Option<String>,
}

impl Options {
    fn count(self) -> PyResult<Count> {
        let given = [
            self.command.map(CountTarget::Launch),
            self.pid.map(CountTarget::Processes),
            self.tid.map(CountTarget::Threads),
            self.cgroup.map(CountTarget::Cgroup),
        ];
        let mut given = given.into_iter().flatten();
        let target = given.next().unwrap_or(CountTarget::Cpus);
        if given.next().is_some() {
            let why =
                "name one of command, pid, tid and cgroup; without them, all CPUs are counted";
            return Err(raised(anyhow::anyhow!(why)));
        }
        const PER: [(&str, RowPer); 4] = [
            ("thread", RowPer::Thread),
            ("process", RowPer::Process),
            ("cpu", RowPer::Cpu),
            ("total", RowPer::Total),
        ];
        let per = self.per.map(|name| named("rows per", &name, &PER));
        let cpus = self.cpus.map(|list| list.parse()).transpose();
        Ok(Count {
            events: self.events,
            metrics: self.metrics,
            virtuals: self.virtual_,
            modules: self.modules,
            interval: self
                .interval_s
                .map(|s| time("the interval", s))
                .transpose()?,
            every: self.every,
            duration: self.seconds.map(|s| time("the time", s)).transpose()?,
            per: per.transpose()?,
            cpus: cpus.map_err(|why: countersteer_model::cpuset::BadCpuList| raised(why))?,
            ..Count::new(target)
        })
    }
}

/// Table of the rows of a count.
fn table(rows: &[CountRow]) -> PyResult<Table> {
    let rows = || rows.iter();
    let ids = |of: fn(&CountRow) -> Option<u32>| -> ArrayRef {
        Arc::new(rows().map(of).collect::<UInt32Array>())
    };
    Table::of([
        ("end_s", floats(rows().map(|row| row.end_s))),
        ("running_s", floats(rows().map(|row| row.running_s))),
        ("pid", ids(|row| row.pid)),
        ("tid", ids(|row| row.tid)),
        ("cpu", ids(|row| row.cpu)),
        ("name", texts(rows().map(|row| &*row.name))),
        ("core_type", texts(rows().map(|row| &*row.core_type))),
        ("counter", texts(rows().map(|row| &*row.counter))),
        ("value", floats(rows().map(|row| row.value))),
    ])
}

/// Counts to the end. Returns the values, and elapsed, user and system seconds with the exit code of a started program.
#[pyfunction]
pub fn stat(
    py: Python<'_>,
    options: Bound<'_, PyAny>,
) -> PyResult<(Table, f64, f64, f64, Option<i32>)> {
    let count = options.extract::<Options>()?.count()?;
    let found = detached(py, || count.plan()?.open()?.rows())?;
    let seconds = [
        found.summary.elapsed,
        found.summary.user,
        found.summary.system,
    ];
    let [elapsed, user, system] = seconds.map(Nanos::as_secs_f64);
    let code = found.summary.ending.map(|ending| ending.code());
    Ok((table(&found.rows)?, elapsed, user, system, code))
}

/// Values of a count, an interval at a time. Up to [`WAITING`] intervals wait for the reader; then counting waits, too.
#[pyclass(frozen, module = "countersteer")]
pub struct Samples {
    rows: Mutex<Receiver<anyhow::Result<Vec<CountRow>>>>,
    stopper: Mutex<Option<Stopper>>,
    counting: Mutex<Option<JoinHandle<()>>>,
}

/// Number of intervals that wait for the reader before counting waits for it.
const WAITING: usize = 1024;

#[pymethods]
impl Samples {
    #[new]
    fn new(py: Python<'_>, options: Bound<'_, PyAny>) -> PyResult<Self> {
        let count = options.extract::<Options>()?.count()?;
        let (rows, taken) = sync_channel(WAITING);
        let (opened, open) = sync_channel(1);
        let signals = EndSignals::listen().map_err(raised)?;
        let counting = std::thread::spawn(move || {
            let begun = count.plan().and_then(|planned| planned.open());
            let begun = begun.and_then(|mut counting| Ok((counting.stopper()?, counting)));
            let (stopper, counting) = match begun {
                Ok(begun) => begun,
                Err(error) => return drop(opened.send(Err(error))),
            };
            let _ = opened.send(Ok(stopper));
            let ended = counting.each_rows(|of_interval| {
                let gone = rows.send(Ok(of_interval)).is_err();
                if gone {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            });
            if let Err(error) = ended {
                let _ = rows.send(Err(error));
            }
            signals.end();
        });
        let stopper = py
            .detach(move || open.recv())
            .map_err(raised)?
            .map_err(raised)?;
        Ok(Self {
            rows: Mutex::new(taken),
            stopper: Mutex::new(Some(stopper)),
            counting: Mutex::new(Some(counting)),
        })
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Values of the next interval; `None` at the end.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Table>> {
        loop {
            match py.detach(|| locked(&self.rows).recv_timeout(GLANCE)) {
                Ok(rows) => return table(&rows.map_err(raised)?).map(Some),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            }
        }
    }

    /// Ends counting, and a started program.
    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.end());
    }
}

impl Samples {
    fn end(&self) {
        let Some(stopper) = locked(&self.stopper).take() else {
            return;
        };
        stopper.stop();
        let asked = Instant::now();
        let mut killed = false;
        // The channel is emptied, because the sender waits for room before it notices the end.
        loop {
            match locked(&self.rows).recv_timeout(GLANCE) {
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if asked.elapsed() > GRACE && !killed => {
                    stopper.stop();
                    killed = true;
                }
                _ => {}
            }
        }
        if let Some(counting) = locked(&self.counting).take() {
            let _ = counting.join();
        }
    }
}

impl Drop for Samples {
    fn drop(&mut self) {
        self.end();
    }
}

/// Compares whole runs of a command under two arms. Returns the gains of programs and of all together.
#[pyfunction]
#[pyo3(signature = (command, policy, baseline, *, by="wall", score=None, pairs=None, seconds=None, until_decided=false,
    confidence=0.95, margin=0.01, seed=1, records=None))]
#[allow(clippy::too_many_arguments)] // They are keywords in Python.
pub fn trial(
    py: Python<'_>,
    command: Vec<String>,
    policy: &str,
    baseline: &str,
    by: &str,
    score: Option<String>,
    pairs: Option<u64>,
    seconds: Option<f64>,
    until_decided: bool,
    confidence: f64,
    margin: f64,
    seed: u64,
    records: Option<PathBuf>,
) -> PyResult<(Table, GainValues)> {
    let sides = [policy, baseline].map(TrialSide::parse);
    let [policy, baseline] = sides;
    let sides = [policy.map_err(raised)?, baseline.map_err(raised)?];
    if !(0.5..1.0).contains(&confidence) || !(0.0..1.0).contains(&margin) {
        let why =
            format!("confidence {confidence} must be .5 to below 1, margin {margin} 0 to below 1");
        return Err(raised(anyhow::anyhow!(why)));
    }
    if command.is_empty() || pairs.is_some_and(|pairs| pairs < 2) {
        return Err(raised(anyhow::anyhow!(
            "name a command, and at least 2 pairs"
        )));
    }
    if let Some(folder) = &records {
        std::fs::create_dir_all(folder).map_err(raised)?;
    }
    let trial = RunsTrial {
        sides,
        commands: vec![command],
        by: named("measure", by, &RunMeasure::NAMES)?,
        score,
        pairs,
        until: seconds
            .map(|s| time("the time", s))
            .transpose()?
            .map(|t| Duration::from_nanos(t.0)),
        until_decided,
        confidence,
        margin,
        seed,
        records,
    };
    let found = detached(py, || trial.run())?;
    py.check_signals()?;
    of_trial(&found.gains, &found.overall)
}

/// Result of a search: command line of the default, trials, other candidates, finals, recommended command line, expected gain of
/// one more trial, and warnings.
type Found = (
    String,
    Table,
    Table,
    Table,
    Option<String>,
    f64,
    Vec<String>,
);

/// Searches the number of threads of a command; `None` if a signal ended it before the first run.
#[pyfunction]
#[pyo3(signature = (command, *, on, env, chunk, trials=None, seconds=60.0, margin=0.01, machine=None, seed=1, predict=false))]
#[allow(clippy::too_many_arguments)] // They are keywords in Python.
pub fn threads(
    py: Python<'_>,
    command: Vec<String>,
    on: Vec<String>,
    env: Vec<String>,
    chunk: Vec<String>,
    trials: Option<u64>,
    seconds: f64,
    margin: f64,
    machine: Option<String>,
    seed: u64,
    predict: bool,
) -> PyResult<Option<Found>> {
    let search = ThreadsSearch {
        on,
        env,
        chunk,
        trials,
        duration: time("the time", seconds)?,
        margin,
        machine,
        seed,
        ..ThreadsSearch::new(command)
    };
    let findings = detached(py, || {
        if predict {
            return search.predict().map(Some);
        }
        Ok(search.run()?.findings)
    })?;
    let found = |found: ThreadsResult| {
        let tables = [of_candidates(&found.trials)?, of_candidates(&found.others)?];
        let [trials, others] = tables;
        let finals = of_finals(&found.finals)?;
        let recommended = found
            .recommended
            .map(|row| found.finals[row].command.clone());
        Ok((
            found.default,
            trials,
            others,
            finals,
            recommended,
            found.open,
            found.warnings,
        ))
    };
    findings.map(found).transpose()
}
