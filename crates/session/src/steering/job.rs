//! One steering job: its programs, policy, engine and duration, and its execution from start to end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use countersteer_counters::permission;
use countersteer_live::affinity::AffinityConfig;
use countersteer_live::undo::{self, journal_folder};
use countersteer_live::{LastResort, LiveConfig, LiveEngine, LiveWorkload, VirtualCounters};
use countersteer_model::driver::{DriverConfig, drive};
use countersteer_model::policy::{Policy, policy_rng};
use countersteer_model::units::Nanos;
use countersteer_policies::reach;
use countersteer_report::record::{Detail, LiveCollector, Manifest};
use countersteer_sysfs::signals::EndSignals;
use countersteer_sysfs::waits::Whose;

use super::ab_trial::AbTrial;
use super::cleanup;
use super::engine::{EngineName, scheduler};
use super::error::SteeringError;
use super::executables::Executables;
use super::here::SteeredMachine;
use super::programs::SteeredPrograms;
use super::socket::{self, SocketFile};
use super::summary::SteeringSummary;
use super::supervisor::{RunControl, Supervisor};
use super::tally::{DecisionTally, Tell};
use super::waits::WaitCollector;
use super::watchdog::{PolicyCalls, watched};
use crate::bpf::{Bpf, loader};
use crate::interrupt::survive_limits;
use crate::serving::{Door, Server};
use crate::waits::{LatencySource, Wait};

/// Means by which a job places threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Placing {
    pub engine: EngineName,
    /// Threshold for work stealing in the sched_ext scheduler: the run-queue length above which an idle CPU takes a thread.
    /// `None` disables work stealing.
    pub steal_above: Option<u32>,
    /// True to change nothing.
    pub dry: bool,
}

impl Placing {
    /// Placing by affinity. Under the sched_ext scheduler, blocks of Linux would not be under Linux's own scheduler.
    pub const AFFINITY: Self = Self {
        engine: EngineName::Affinity,
        steal_above: None,
        dry: false,
    };
}

/// Steering job with a policy.
pub struct Job {
    /// Name and parameters of the policy.
    pub spec: String,
    pub policy: Box<dyn Policy>,
    /// File name of the control socket, in the folder of journals.
    pub socket: String,
    /// State shared with the control socket and with other threads.
    pub control: RunControl,
    pub placing: Placing,
    /// Time between decisions, and time from the start at which the job ends at the latest.
    pub driver: DriverConfig,
    pub seed: u64,
    pub record: Option<PathBuf>,
    /// Function that is called with a line of text about each new decision.
    pub tell: Option<Tell>,
    /// Trial that alternates the policy and a baseline; `None` outside of trials.
    pub ab_trial: Option<AbTrial>,
    /// Measures each wait in run queues with BPF programs: always, or if they can be loaded. `None`: the kernel's sums.
    pub latency: Option<Bpf>,
    /// True to drop the rows of programs that have exited, for jobs that run without an end.
    pub forgetful: bool,
    /// Listener that serves metrics to Prometheus; `None` to serve none.
    pub metrics: Option<Door>,
}

impl Job {
    /// Creates a job that decides every 100 ms until the programs end. `spec` names the policy for messages and records.
    pub fn new(spec: String, policy: Box<dyn Policy>, control: RunControl, socket: String) -> Self {
        Self {
            spec,
            policy,
            socket,
            control,
            placing: Placing::default(),
            driver: DriverConfig {
                period: Nanos::from_millis(100),
                until: Nanos::NEVER,
            },
            seed: 1,
            record: None,
            tell: None,
            ab_trial: None,
            latency: None,
            forgetful: false,
            metrics: None,
        }
    }

    /// Returns the engine to use: affinity masks instead of `auto` if the policy places no threads.
    fn engine(&self) -> EngineName {
        match self.placing.engine {
            EngineName::Auto if reach::places_nothing(&self.spec) => EngineName::Affinity,
            given => given,
        }
    }
}

pub struct JobResult {
    /// CPU time of each program by core type, and the run's other results.
    pub summary: SteeringSummary,
    /// Run-queue latency of all programs together, by arm of a trial; the first element applies without a trial.
    pub waits: [Option<Wait>; 2],
    /// First exit code other than 0 among the started programs; 0 if there is none.
    pub exit_code: u8,
}

/// Restores affinity masks and other settings that earlier, killed runs have changed. Prints the number of restored threads.
pub fn restore() -> anyhow::Result<()> {
    let restored = undo::restore(&journal_folder())?;
    if restored.journals > 0 {
        let n = restored.threads;
        say!("restored {n} threads of an earlier run, which was killed");
    }
    Ok(())
}

/// Time of a policy's call after which the run ends.
const HOPELESS: Duration = Duration::from_secs(10);

/// Parts of a run that its caller ends if the run's thread hangs.
struct OpenRun {
    last_resort: LastResort,
    _server: Server,
    _file: SocketFile,
}

/// Place for the parts, which are there once the engine and the socket are open.
type OpenParts = Arc<Mutex<Option<OpenRun>>>;

/// Runs a steering job with a policy until the programs end, the time is over, or a signal arrives. Returns the job's results.
///
/// # Errors
/// The job cannot begin or go on, or the policy does not return from a call: all threads are then released.
pub fn conduct(
    job: Job,
    here: SteeredMachine,
    programs: SteeredPrograms,
) -> anyhow::Result<JobResult> {
    let calls = PolicyCalls::default();
    let open = OpenParts::default();
    let work = {
        let calls = calls.clone();
        let open = Arc::clone(&open);
        move || steer(job, &here, programs, calls, &open)
    };
    let done = watched(&calls, HOPELESS, work, || release(&open))
        .context("cannot start a thread for decisions")?;
    drop(taken(&open));
    done.unwrap_or_else(|| Err(SteeringError::StuckPolicy.into()))
}

fn taken(open: &OpenParts) -> Option<OpenRun> {
    open.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Releases all threads of a run whose own thread hangs, and closes its control socket.
fn release(open: &OpenParts) {
    let Some(run) = taken(open) else { return };
    let failed = run.last_resort.release().failed;
    if failed > 0 {
        say!(
            "{failed} changes could not be undone; `steer restore` tries again once this process has ended"
        );
    }
}

/// Runs a steering job on this thread.
fn steer(
    job: Job,
    here: &SteeredMachine,
    mut programs: SteeredPrograms,
    calls: PolicyCalls,
    open: &OpenParts,
) -> anyhow::Result<JobResult> {
    let Placing {
        steal_above, dry, ..
    } = job.placing;
    if steal_above.is_some() && job.placing.engine == EngineName::Affinity {
        return Err(SteeringError::NoQueues.into());
    }
    job.control.lock().stealing.set_above(steal_above);
    let latency = run_queue_latency(job.latency)?;
    // Declared before the engine, so it is dropped after the engine.
    let _cleanup = if dry { None } else { cleanup::start() };
    let workload = std::mem::take(&mut programs.workload);
    let mut engine = engine(&job, here, workload)?;
    let manifest = manifest(&job, here, &programs, engine.placers());
    let switches = job.policy.needs().switches;
    let record = job.record.as_deref();
    let collector = record.map(|dir| collector(dir, manifest, switches));
    let collector = collector.transpose()?;
    let observed_every = job.policy.needs().period.unwrap_or(job.driver.period);
    let mut tally = DecisionTally::new(
        &here.topology,
        observed_every,
        collector,
        job.tell,
        &job.control,
    );
    tally.ab_trial = job.ab_trial.clone();
    if job.forgetful {
        tally = tally.forgetful();
    }
    undo::make_folder(&journal_folder())?;
    let path = journal_folder().join(&job.socket);
    job.control.lock().numbers = here.numbers.clone();
    let (door, file) = socket::door(&path, &here.topology, &job.control)?;
    let server = Server::start(std::iter::once(door).chain(job.metrics).collect())?;
    *open.lock().unwrap_or_else(PoisonError::into_inner) = Some(OpenRun {
        last_resort: engine.last_resort(),
        _server: server,
        _file: file,
    });
    let period = Duration::from_nanos(job.driver.period.0);
    let policy = (job.spec.as_str(), job.policy);
    let mut policy = Supervisor::new(policy, &here.topology, &job.control, period, calls);
    let counters = VirtualCounters::new(
        Path::new("/"),
        here.numbers.clone(),
        &policy.needs().metrics,
    );
    engine = engine.reading(counters);
    job.control.lock().decision_request = Some(engine.decision_request()?);
    let mut executables = Executables::new(record.is_some());
    let mut waits = WaitCollector::new(latency, job.ab_trial.clone());
    let elapsed = drive(
        &mut engine,
        &mut policy,
        &mut [&mut tally, &mut executables, &mut waits],
        job.driver,
        &mut policy_rng(job.seed),
    )?;
    if let Some(why) = engine.blindness() {
        say!("steered without counters: {why}");
    }
    if let Some(lost) = engine.lost().filter(|n| *n > 0) {
        say!(
            "{lost} records of forks, wakeups, context switches and exits were lost between two samples"
        );
    }
    let (mut summary, outcome, collector) = tally.finish(engine.workload().programs(), elapsed);
    summary.take_waits(&waits.found());
    let exit_code = engine.workload().exit_code() as u8;
    // Dropping the engine restores all settings; it comes first, because the steps below may fail.
    drop(engine);
    if let (Some(collector), Some(dir)) = (collector, record) {
        let found = found(&waits, job.ab_trial.as_ref())?;
        collector.finish(&outcome, executables.found(), found)?;
        say!("record in {}", dir.display());
    }
    Ok(JobResult {
        summary,
        waits: waits.by_side(),
        exit_code,
    })
}

/// Begins a record; with run intervals if the policy learns of context switches, so that it can be replayed.
fn collector(dir: &Path, manifest: Manifest, switches: bool) -> anyhow::Result<LiveCollector> {
    let detail = if switches {
        Detail::Everything
    } else {
        Detail::NoSpans
    };
    survive_limits()?;
    Ok(LiveCollector::begin(dir, manifest, detail)?)
}

/// Returns the run-queue latency and the trial's results as options for the record's manifest.
fn found(
    waits: &WaitCollector,
    ab_trial: Option<&AbTrial>,
) -> serde_json::Result<Vec<(String, String)>> {
    let mut found = vec![("waits".to_owned(), waits.for_record()?)];
    if let Some(ab_trial) = ab_trial {
        found.push(("trial".to_owned(), ab_trial.found()?));
    }
    Ok(found)
}

/// Opens the source of run-queue latency. BPF programs measure this process's children and the processes of observed threads.
/// If they are not requested, or not required and cannot be loaded, the kernel's sums of observed threads remain.
fn run_queue_latency(bpf: Option<Bpf>) -> anyhow::Result<LatencySource> {
    let why = match bpf {
        None => "`--latency` loads them, as root".to_owned(),
        Some(bpf) => {
            let children = Whose {
                children: true,
                ..Whose::default()
            };
            let latency = LatencySource::open(&children, bpf)?;
            let Some(why) = latency.unmeasured else {
                return Ok(latency);
            };
            say!("only the mean of run-queue latency is known: {why}");
            why
        }
    };
    Ok(LatencySource::sums(&Whose::default(), why))
}

fn engine(job: &Job, here: &SteeredMachine, workload: LiveWorkload) -> anyhow::Result<LiveEngine> {
    let policy = job.policy.as_ref();
    let period = job.driver.period;
    let signals = EndSignals::listen().context("cannot listen for signals")?;
    let counters = here.counters(policy, period)?;
    counters.tell(&job.spec);
    if counters.sets.is_none() {
        say!(
            "steered without counters: none is permitted here; {} permits them",
            permission(2)
        );
    }
    let affinity = AffinityConfig {
        topology: Arc::clone(&here.topology),
        numbers: here.numbers.clone(),
        counters: counters.sets,
        period,
        dry: job.placing.dry,
        bpf: loader(Bpf::Auto),
    };
    let events = policy.needs().events || job.record.is_some();
    let scheduler = scheduler(job.engine(), &affinity, events, job.placing.steal_above)?;
    let config = LiveConfig {
        affinity,
        journals: journal_folder(),
        root: "/".into(),
        recount: Some(here.recount(policy, period)),
        stealing: job.control.lock().stealing.clone(),
        signals,
        say: |what| say!("{what}"),
    };
    Ok(LiveEngine::open(config, scheduler, workload)?)
}

fn manifest(
    job: &Job,
    here: &SteeredMachine,
    programs: &SteeredPrograms,
    engine: String,
) -> Manifest {
    let machine = (here.machine.name.as_str(), here.text.as_str());
    let workload = (programs.name.as_str(), programs.text.as_str());
    let options = [("observe".to_owned(), job.placing.dry.to_string())];
    let manifest = Manifest::new(
        machine,
        workload,
        &job.spec,
        job.seed,
        job.driver.period,
        options,
        BTreeMap::new(),
    );
    Manifest { engine, ..manifest }
}
