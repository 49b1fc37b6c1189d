//! Programs of this machine under a policy, as a value.
//!
//! Input: a [`Live`], which names programs, a policy and an engine. Output: the results of the run, and a record if one is asked
//! for. Affinity masks and other settings are restored at the end. After a kill, the cleanup process restores them, or the next run
//! if this program has named no `steer` ([`crate::this_program`]).
//!
//! ```
//! use countersteer_session::live::{Live, Targets};
//!
//! let mut live = Live::new(Targets::Command(vec!["sleep".into(), "0.3".into()]));
//! live.policy = "aarr".into();
//! let done = live.run()?;
//! println!("{} decisions", done.summary.decisions);
//! assert_eq!(done.exit_code, 0);
//! # Ok::<(), anyhow::Error>(())
//! ```

use std::path::{Path, PathBuf};

use anyhow::Context;
use countersteer_live::affinity::may_renice;
use countersteer_model::driver::DriverConfig;
use countersteer_model::topology::Topology;
use countersteer_model::units::Nanos;
use countersteer_model::workload::Workload;
use countersteer_policies::FOREGROUND;
use countersteer_policies::reach::chooses;
use countersteer_sysfs::launch::ProgramStreams;

use crate::bpf::Bpf;
use crate::error::{FaultKind, failure};
use crate::library::{self, LibraryText};
use crate::steering::engine::EngineName;
use crate::steering::here::SteeredMachine;
use crate::steering::job::{self, Job, JobResult, Placing};
use crate::steering::programs::{self, SteeredPrograms};
use crate::steering::socket;
use crate::steering::supervisor::RunControl;
use crate::steering::tally::Tell;

/// Programs to steer.
#[derive(Clone, Debug, PartialEq)]
pub enum Targets {
    /// Program to start, and its arguments; at least one word.
    Command(Vec<String>),
    /// Name or file of a workload whose programs are commands.
    Workload(String),
    /// Workload whose programs are commands.
    Programs(Workload),
    /// PIDs of running processes, with all their threads and child processes.
    Processes(Vec<u32>),
    /// Folder of a control group, with all its current and future processes.
    Cgroup(PathBuf),
}

impl Targets {
    /// Finds the programs on this machine.
    ///
    /// # Errors
    /// A process, control group or workload does not exist, or the workload has programs that only a simulator runs.
    pub fn programs(&self, topology: &Topology) -> anyhow::Result<SteeredPrograms> {
        match self {
            Self::Command(words) if words.is_empty() => Err(failure(
                FaultKind::Usage,
                "name a program, or select processes with -w, -p or --cgroup",
            )),
            Self::Command(words) => programs::of_command(words),
            Self::Workload(name) => {
                let LibraryText { path, text, .. } = library::workload(name)?;
                let workload = Workload::parse(&path, &text)?;
                programs::of_workload(workload, (&path, text), topology)
            }
            Self::Programs(workload) => {
                let text = toml::to_string(workload)
                    .context("these programs cannot be written as a workload")?;
                programs::of_workload(workload.clone(), ("programs", text), topology)
            }
            Self::Processes(pids) => programs::attached(pids),
            Self::Cgroup(folder) => Ok(programs::in_cgroup(folder)?),
        }
    }

    /// True for a control group. Its processes come and go, so the run ends only on request.
    #[must_use]
    pub(crate) const fn is_endless(&self) -> bool {
        matches!(self, Self::Cgroup(_))
    }
}

/// Run of programs under a policy.
pub struct Live {
    pub targets: Targets,
    /// Name and parameters of the policy, e.g. `hsf:sf=sampled`.
    pub policy: String,
    /// Name of the program that Linux alone schedules, while all others get a lower weight; `None` without one.
    pub foreground: Option<String>,
    pub engine: EngineName,
    /// Run-queue length above which an idle CPU takes a thread; sched_ext scheduler only. `None` without work stealing.
    pub steal_above: Option<u32>,
    /// Time between decisions.
    pub period: Nanos,
    /// Time from the start at which steering ends at the latest; [`Nanos::NEVER`] without a limit.
    pub until: Nanos,
    /// True to change nothing.
    pub dry: bool,
    /// Name or file of a machine; `None` for the detected one.
    pub machine: Option<String>,
    /// Seed of the policy's random numbers.
    pub seed: u64,
    /// Folder of the record; an earlier record there is replaced. `None` without one.
    pub record: Option<PathBuf>,
    /// True to measure each wait in run queues by BPF programs (root).
    pub latency: bool,
    /// Function that is called with a line of text about each new decision.
    pub tell: Option<Tell>,
    /// Streams of started programs; `None` for those of this process.
    pub streams: Option<ProgramStreams>,
}

impl Live {
    /// Begins with the defaults of `steer run`: the policy `linux`, decisions every 100 ms, and no record.
    #[must_use]
    pub fn new(targets: Targets) -> Self {
        Self {
            targets,
            policy: countersteer_policies::LINUX.into(),
            foreground: None,
            engine: EngineName::Auto,
            steal_above: None,
            period: Nanos::from_millis(100),
            until: Nanos::NEVER,
            dry: false,
            machine: None,
            seed: 1,
            record: None,
            latency: false,
            tell: None,
            streams: None,
        }
    }

    /// Runs the programs until they end, the time is over, or a signal arrives.
    ///
    /// # Errors
    /// A program, policy or machine does not exist or cannot be steered, or the record cannot be written. A policy that does not
    /// return from a decision for 10 s is also an error ([`SteeringError::StuckPolicy`]): all threads are then released, and a
    /// thread of this process remains in the decision.
    ///
    /// [`SteeringError::StuckPolicy`]: crate::steering::error::SteeringError::StuckPolicy
    pub fn run(self) -> anyhow::Result<JobResult> {
        job::restore()?;
        let here = SteeredMachine::look(self.machine.as_deref())?;
        let spec = with_foreground(&self.policy, self.foreground.as_deref())?;
        let policy = here.policy(&spec)?;
        let mut programs = self.targets.programs(&here.topology)?;
        programs.workload = programs.workload.with_streams(self.streams);
        let control = RunControl::default();
        control.lock().stand_back = chooses(&spec);
        let job = Job {
            placing: Placing {
                engine: self.engine,
                steal_above: self.steal_above,
                dry: self.dry,
            },
            driver: DriverConfig {
                period: self.period,
                until: self.until,
            },
            seed: self.seed,
            record: self.record,
            tell: self.tell,
            latency: self.latency.then_some(Bpf::Always),
            forgetful: self.targets.is_endless(),
            ..Job::new(spec, policy, control, socket::name("run"))
        };
        job::conduct(job, here, programs)
    }
}

impl SteeredMachine {
    /// Detects this machine, or reads the machine of this name or file.
    ///
    /// # Errors
    /// The machine does not exist or is another one, or the PMUs cannot be read.
    pub fn look(machine: Option<&str>) -> anyhow::Result<Self> {
        let pmus = library::pmus(Path::new("/"), None)?;
        let loaded = match machine {
            Some(name) => library::loaded(name)?,
            None => {
                let machine = countersteer_sysfs::topology::detect(Path::new("/"))?;
                library::with_models(machine, None)?
            }
        };
        let text = loaded.text.text.clone();
        Ok(Self::new(loaded.machine.clone(), text, pmus)?)
    }
}

/// Returns a policy's specification with the program that comes first.
///
/// # Errors
/// Fails if a specification cannot hold the program's name.
pub(crate) fn with_foreground(spec: &str, program: Option<&str>) -> anyhow::Result<String> {
    let Some(program) = program else {
        return Ok(spec.to_owned());
    };
    if program.is_empty() || program.contains([',', '=']) {
        let why =
            format!("`{program}` is no name for --foreground: it is empty, or has `,` or `=`");
        return Err(failure(FaultKind::Usage, why));
    }
    if !may_renice() {
        say!(
            "this user may not undo a higher nice value (RLIMIT_NICE), so other programs keep their weight; {program} is \
             still left unconfined"
        );
    }
    Ok(countersteer_policies::with_param(spec, FOREGROUND, program))
}
