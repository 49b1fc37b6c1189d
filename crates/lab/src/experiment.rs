//! Experiments: simulations of one policy on one machine with one workload and one seed, many of them in parallel.
//!
//! Protocol (PMCTrack, section 4.1.3): all programs start together, and each restarts when it ends. The experiment ends when the
//! slowest program has finished three times. Completion times are geometric means.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use countersteer_model::driver::{DriverConfig, Recorder, drive};
use countersteer_model::engine::{Applied, Engine, Forecast, Observation, Watch};
use countersteer_model::events::Event;
use countersteer_model::machine::Governor;
use countersteer_model::placement::Placement;
use countersteer_model::policy::{PolicyError, policy_rng};
use countersteer_model::score::Score;
use countersteer_model::topology::Topology;
use countersteer_model::units::Nanos;
use countersteer_report::record::{Collector, Detail, Manifest, Record};
use countersteer_report::table::CompareRun;
use countersteer_sim::engine::SimError;
use countersteer_sim::engine::{Plan, ProgramUsage, SimConfig, Simulation};
use countersteer_sim::linux::{self, DEFAULT_KERNEL, LinuxConfig};
use countersteer_sim::progress::ProgressConfig;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::error::{FaultKind, failure};
pub use crate::loaded::{LoadedMachine, machine};
use crate::plan::{self, Loaded};
use crate::scx;
use crate::until::Until;

/// Options of an experiment's simulation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SimOptions {
    /// Time between decisions and samples, in ms.
    pub period_ms: f64,
    /// Number of runs that the slowest program must finish; the experiment then ends.
    pub rounds: u32,
    /// Limit on the simulated time in seconds, at which the experiment ends in any case.
    pub max_seconds: f64,
    /// Limit on the wall-clock time, after which a simulation fails.
    pub max_wall: Nanos,
    /// Release of the simulated kernel, with optional switches; see [`kernel_config`](linux::kernel_config).
    pub kernel: String,
    /// Relative standard deviation of the noise on counter values.
    pub counter_noise: f64,
    /// True to disable contention for shared caches, limits of memory bandwidth, and SMT sharing.
    pub no_contention: bool,
    /// True if context switches, migrations, cold caches and sampling cost no time.
    pub no_costs: bool,
    /// Source of cache misses in the simulation.
    pub fidelity: Fidelity,
    /// Frequency governor; `None` for that of the machine file.
    pub governor: Option<Governor>,
    /// Names of events to count in addition to those that the policy needs.
    pub count: Vec<String>,
    /// Time in ms after which Linux continues without the policy, from the current CPUs of the threads. `None` if the policy
    /// always decides.
    pub steer_ms: Option<f64>,
    /// Text of the machine file that the policy is given instead of the simulated machine's; `None` for the same.
    pub belief: Option<String>,
    /// True if programs start on the CPUs that Linux chooses, regardless of the workload's `launch_on`.
    pub ignore_launch: bool,
}

/// Source of cache misses in a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fidelity {
    /// Misses are expected values from the profile, by cache size.
    #[default]
    Analytic,
    /// Memory accesses go through simulated caches. The accesses are recorded, or come from programs that run during the
    /// simulation.
    Traced,
    /// Like `Traced`, but only samples of the run go through caches. Between samples, miss rates are those measured for each
    /// phase.
    Sampled,
}

impl Fidelity {
    /// All values with their names on the command line.
    pub const ALL: [(&'static str, Self); 3] = [
        ("analytic", Self::Analytic),
        ("traced", Self::Traced),
        ("sampled", Self::Sampled),
    ];

    /// Returns the name of the value on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        let row = Self::ALL.iter().find(|(_, value)| *value == self);
        row.map_or("", |(name, _)| name)
    }
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            period_ms: 100.0,
            rounds: 3,
            max_seconds: 1e6,
            max_wall: Nanos::from_millis(30 * 60 * 1000),
            kernel: DEFAULT_KERNEL.to_owned(),
            counter_noise: 0.01,
            no_contention: false,
            no_costs: false,
            fidelity: Fidelity::Analytic,
            governor: None,
            count: Vec::new(),
            steer_ms: None,
            belief: None,
            ignore_launch: false,
        }
    }
}

/// Experiment: one policy on one machine with one workload and one seed.
///
/// ```
/// use countersteer_lab::Experiment;
///
/// let mut experiment = Experiment::named("core2-quad", "shared-caches", "mpi")?;
/// experiment.options.rounds = 1;
/// // As JSON, it has the texts of its files, so another host computes the same.
/// let text = serde_json::to_string(&experiment)?;
/// let there: Experiment = serde_json::from_str(&text)?;
/// assert_eq!(experiment.run()?.score, there.run()?.score);
/// # Ok::<(), anyhow::Error>(())
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    pub machine: Arc<LoadedMachine>,
    pub workload: Arc<Loaded>,
    /// Policy with its parameters.
    pub policy: String,
    /// Seed of the random numbers.
    pub seed: u64,
    #[serde(default)]
    pub options: SimOptions,
    /// Level of detail of the record; `None` for no record.
    #[serde(default)]
    pub detail: Option<Detail>,
}

/// Additional observers and options of a running experiment.
#[derive(Default)]
pub struct Onlooker<'a> {
    /// Recorder that receives observations and decisions; `None` without one.
    pub recorder: Option<&'a mut dyn Recorder>,
    /// Events to count in addition to those that the policy needs.
    pub events: &'a [Event],
    /// True if programs end after one run instead of restarting.
    pub once: bool,
    /// True if observations contain all run intervals.
    pub spans: bool,
}

/// Results of a finished experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Finished {
    pub score: Score,
    /// Resource use of each program, in the workload's order.
    pub usage: Vec<ProgramUsage>,
    /// Length of the experiment in simulated seconds.
    pub elapsed_s: f64,
    /// True if the policy placed a thread or partitioned a cache, or is a scheduler itself. False if Linux decided everything.
    pub acted: bool,
    /// Record of the run, if it was requested. It is stored as a folder, apart from the other values.
    #[serde(skip)]
    pub record: Option<Record>,
}

impl SimOptions {
    /// Creates the simulator's configuration for a seed; `trace` is true to record run intervals.
    pub fn config(&self, seed: u64, trace: bool) -> SimConfig {
        let kernel = linux::kernel_config(&self.kernel).unwrap_or_default();
        let costs = !self.no_costs;
        SimConfig {
            seed,
            linux: LinuxConfig { seed, ..kernel },
            progress: ProgressConfig {
                contention: !self.no_contention,
                costs,
                ..ProgressConfig::default()
            },
            counter_noise: self.counter_noise,
            sample_cost: if costs { SAMPLE_COST } else { Nanos::ZERO },
            rounds: self.rounds,
            trace,
            governor: self.governor,
        }
    }

    /// Returns the options that are stored in a record.
    pub fn of_record(manifest: &Manifest) -> Self {
        let text = |key: &str| manifest.options.get(key).map(String::as_str);
        let number =
            |key: &str, default: f64| text(key).and_then(|t| t.parse().ok()).unwrap_or(default);
        Self {
            period_ms: number("period_ms", 100.0),
            rounds: number("rounds", 3.0) as u32,
            max_seconds: number("max_seconds", 1e6),
            max_wall: Self::default().max_wall,
            kernel: text("kernel").unwrap_or("6.12").to_owned(),
            counter_noise: number("counter_noise", 0.01),
            no_contention: text("contention") == Some("false"),
            no_costs: text("costs") == Some("false"),
            // A record contains profiles but no traces.
            fidelity: Fidelity::Analytic,
            governor: text("governor").and_then(Governor::named),
            count: text("count").map_or_else(Vec::new, |names| {
                names.split(',').map(str::to_owned).collect()
            }),
            steer_ms: text("steer_ms").and_then(|t| t.parse().ok()),
            belief: text("belief").map(str::to_owned),
            ignore_launch: text("ignore_launch") == Some("true"),
        }
    }

    /// Machine that the policy is given, if `own` is simulated.
    ///
    /// # Errors
    /// Fails if the believed machine has other CPUs, core types or caches than the simulated one.
    pub fn believed(&self, own: &Arc<Topology>) -> anyhow::Result<Arc<Topology>> {
        let Some(text) = &self.belief else {
            return Ok(Arc::clone(own));
        };
        let believed = LoadedMachine::of_text("belief", text)?.topology;
        let shape = |t: &Topology| {
            let groups = t.groups.iter().map(|g| g.cpus.clone());
            let types = t.core_types.iter().map(|c| c.name.clone());
            (groups.collect::<Vec<_>>(), types.collect::<Vec<_>>())
        };
        if shape(&believed) == shape(own) {
            return Ok(believed);
        }
        let why = format!(
            "the believed machine {} is not like {}: CPUs, core types and caches must be the same, so only sizes, speeds and power may differ",
            believed.name, own.name
        );
        Err(failure(FaultKind::BadInput, why))
    }

    /// Creates a policy from its specification. With `steer_ms`, the policy decides only until that time.
    ///
    /// # Errors
    /// Fails if the policy or a parameter does not exist.
    pub fn policy(&self, spec: &str, topology: &Arc<Topology>) -> Result<Until, PolicyError> {
        let policy = countersteer_policies::parse(spec, topology)?;
        let end = self.steer_ms.map(|ms| Nanos::from_secs_f64(ms * 1e-3));
        Ok(Until::new(policy, end))
    }

    /// Returns the additional events to count; unknown names are omitted.
    fn events(&self) -> Vec<Event> {
        self.count
            .iter()
            .filter_map(|n| Event::by_name(n))
            .collect()
    }

    /// Returns the options as pairs (name, value), for the record's manifest.
    pub fn listed(&self) -> Vec<(String, String)> {
        let mut listed = [
            ("period_ms", self.period_ms.to_string()),
            ("rounds", self.rounds.to_string()),
            ("max_seconds", self.max_seconds.to_string()),
            ("kernel", self.kernel.clone()),
            ("counter_noise", self.counter_noise.to_string()),
            ("contention", (!self.no_contention).to_string()),
            ("costs", (!self.no_costs).to_string()),
        ]
        .map(|(k, v)| (k.to_owned(), v))
        .to_vec();
        if self.fidelity != Fidelity::Analytic {
            listed.push(("fidelity".into(), self.fidelity.name().into()));
        }
        if let Some(governor) = self.governor {
            listed.push(("governor".into(), governor.name().into()));
        }
        if !self.count.is_empty() {
            listed.push(("count".into(), self.count.join(",")));
        }
        if let Some(ms) = self.steer_ms {
            listed.push(("steer_ms".into(), ms.to_string()));
        }
        if let Some(text) = &self.belief {
            listed.push(("belief".into(), text.clone()));
        }
        if self.ignore_launch {
            listed.push(("ignore_launch".into(), "true".into()));
        }
        listed
    }
}

/// Simulation whose policy is given another machine than the one that runs.
struct Believing<'a> {
    engine: &'a mut Simulation,
    topology: Arc<Topology>,
}

impl Engine for Believing<'_> {
    type Error = SimError;

    fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    fn observe(&mut self, watch: &Watch<'_>, until: Nanos) -> Result<Observation, SimError> {
        self.engine.observe(watch, until)
    }

    fn apply(&mut self, placement: &Placement) -> Result<Applied, SimError> {
        self.engine.apply(placement)
    }

    fn forecast(&mut self) -> Option<&mut dyn Forecast> {
        self.engine.forecast()
    }
}

/// Cost of reading a thread's counter group from the kernel, including the system call.
const SAMPLE_COST: Nanos = Nanos::from_micros(2);

impl Experiment {
    /// Creates an experiment with seed 1 and no record. Machine and workload are given by name or as a file.
    ///
    /// # Errors
    /// Fails if a file does not exist or is invalid. The policy is checked when the experiment runs.
    pub fn named(machine: &str, workload: &str, policy: &str) -> anyhow::Result<Self> {
        Ok(Self {
            machine: self::machine(machine)?,
            workload: Arc::new(plan::load_recorded(workload)?),
            policy: policy.to_owned(),
            seed: 1,
            options: SimOptions::default(),
            detail: None,
        })
    }

    /// Runs the experiment and returns its results.
    ///
    /// # Errors
    /// Fails if the policy or a group in `launch_on` does not exist, and with the errors of the simulator.
    pub fn run(&self) -> anyhow::Result<Finished> {
        self.run_watched(Onlooker::default())
    }

    /// Runs the experiment with additional observers and returns its results.
    ///
    /// # Errors
    /// Fails with the errors of [`Self::run`].
    pub fn run_watched(&self, onlooker: Onlooker<'_>) -> anyhow::Result<Finished> {
        let mut plan = plan::plan(&self.workload, &self.machine.topology)?;
        if self.options.ignore_launch {
            plan.programs.iter_mut().for_each(|p| p.launch_on = None);
        }
        let believed = self.options.believed(&self.machine.topology)?;
        let mut policy = self.options.policy(&self.policy, &believed)?;
        let mut simulation = self.simulation(&plan, &onlooker)?;
        let mut collector = self.detail.map(|d| Collector::new(self.manifest(), d));
        let mut recorders: Vec<&mut dyn Recorder> = Vec::new();
        recorders.extend(collector.as_mut().map(|c| c as &mut dyn Recorder));
        if let Some(recorder) = onlooker.recorder {
            recorders.push(recorder);
        }
        let driver = DriverConfig {
            period: self.period(),
            until: Nanos::from_secs_f64(self.options.max_seconds),
        };
        let mut rng = policy_rng(self.seed);
        let mut engine = Believing {
            engine: &mut simulation,
            topology: believed,
        };
        drive(&mut engine, &mut policy, &mut recorders, driver, &mut rng)?;
        if let Some(why) = self.workload.traces.failure() {
            return Err(failure(FaultKind::BadInput, why));
        }
        let mut outcome = simulation.outcome();
        if self.options.fidelity != Fidelity::Analytic {
            self.simulate_alone(&plan, &mut outcome)?;
        }
        let score = Score::of(&outcome);
        let record = collector.map(|c| c.finish(&outcome));
        Ok(Finished {
            score,
            usage: simulation.usage(),
            elapsed_s: outcome.elapsed_s,
            acted: policy.acted || scx::is_named(&self.policy),
            record,
        })
    }

    /// Creates the simulation, before its first step.
    pub(crate) fn simulation(
        &self,
        plan: &Plan,
        onlooker: &Onlooker<'_>,
    ) -> anyhow::Result<Simulation> {
        let options = &self.options;
        let spans = onlooker.spans || self.detail == Some(Detail::Everything);
        let config = options.config(self.seed, spans);
        let topology = Arc::clone(&self.machine.topology);
        let traces = || self.workload.traces.clone();
        let simulation = match options.fidelity {
            Fidelity::Analytic => Simulation::new(topology, plan, config),
            Fidelity::Traced => Simulation::traced(topology, plan, config, traces()),
            Fidelity::Sampled => Simulation::sampled(topology, plan, config, traces()),
        };
        let mut events = options.events();
        events.extend(onlooker.events);
        let shown = || {
            let workload = &self.workload.text.path;
            let machine = &self.machine.machine.name;
            format!("workload {workload} on machine {machine}")
        };
        let began = Instant::now();
        let simulation = simulation
            .with_context(shown)?
            .within(Duration::from_nanos(options.max_wall.0), move || {
                began.elapsed()
            })
            .counting_events(&events);
        let simulation = match scx::scheduler(&self.policy, &self.machine.topology, self.seed)? {
            Some(scheduler) => simulation.scheduled_by(scheduler),
            None => simulation,
        };
        Ok(if onlooker.once {
            simulation.once()
        } else {
            simulation
        })
    }

    /// Returns the scores of a finished run of this experiment, with the names of its inputs.
    #[must_use]
    pub fn scored(&self, finished: &Finished) -> CompareRun {
        CompareRun {
            acted: Some(finished.acted),
            ..CompareRun::new(
                &self.machine.machine.name,
                &self.workload.name,
                &self.policy,
                self.seed,
                &finished.score,
            )
        }
    }

    pub(crate) fn period(&self) -> Nanos {
        Nanos::from_secs_f64(self.options.period_ms * 1e-3)
    }

    fn manifest(&self) -> Manifest {
        Manifest::new(
            (&self.machine.machine.name, &self.machine.text.text),
            (&self.workload.name, &self.workload.text.text),
            &self.policy,
            self.seed,
            self.period(),
            self.options.listed(),
            self.workload.profiles.clone(),
        )
    }
}

/// Runs many experiments in parallel on all cores. Results are in the order of the experiments, whatever the number of cores.
/// Calls `done` after each.
///
/// # Errors
/// Fails with the errors of [`Experiment::run`].
pub fn run_all(
    experiments: &[Experiment],
    done: &(dyn Fn() + Sync),
) -> anyhow::Result<Vec<Finished>> {
    experiments
        .par_iter()
        .map(|e| {
            let finished = e.run();
            done();
            finished
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_experiment_kept_as_json_gives_the_same_result() {
        let mut experiment = Experiment::named("quickia-2b-2s", "unequal-cores", "hsf").unwrap();
        experiment.options.rounds = 1;
        let kept = serde_json::to_string(&experiment).unwrap();
        let again: Experiment = serde_json::from_str(&kept).unwrap();
        assert_eq!(kept, serde_json::to_string(&again).unwrap());
        let result = |e: &Experiment| serde_json::to_string(&e.run().unwrap()).unwrap();
        let first = result(&experiment);
        assert_eq!(first, result(&again));
        let finished: Finished = serde_json::from_str(&first).unwrap();
        assert!(finished.score.stp > 0.0 && finished.elapsed_s > 0.0);
    }

    #[test]
    fn a_kept_experiment_with_a_broken_machine_names_the_line() {
        let experiment = Experiment::named("quickia-2b-2s", "unequal-cores", "linux").unwrap();
        let mut kept = serde_json::to_value(&experiment).unwrap();
        kept["machine"]["text"] = "name = 3\n".into();
        let error = serde_json::from_value::<Experiment>(kept).unwrap_err();
        assert!(error.to_string().contains(":1:"), "{error}");
    }
}
