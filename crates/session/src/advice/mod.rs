//! Recommendation of a policy for programs, as a value: they are recorded, and simulated under every applicable policy.
//!
//! Input: an [`Advice`], which names programs and a machine. Output: [`Advised`], with a ranking of the policies. No program is
//! steered.
//!
//! ```no_run
//! use countersteer_session::advice::Advice;
//! use countersteer_session::this_program;
//!
//! this_program::set_steer("/usr/bin/steer".as_ref()); // records the programs
//! let advice = Advice::new(vec![vec!["xz".into(), "-kc".into(), "file".into()]]);
//! match advice.prepare()?.run()? {
//!     Some(advised) => println!("{}", advised.rankings[0].sentence()),
//!     None => println!("no policy can act on this machine"),
//! }
//! # Ok::<(), anyhow::Error>(())
//! ```

mod recording;

use std::path::Path;
use std::sync::Arc;

use countersteer_lab::{Finished, LoadedMachine, SimOptions, Sweep, experiment, probe};
use countersteer_model::units::Nanos;
use countersteer_policies::{LINUX, reach};
use countersteer_report::judge::{Facts, Ranking, Verdict, judge};
use countersteer_report::record::Detail;
use countersteer_report::table::CompareRun;

use crate::interrupt::TemporaryFolder;
use crate::{library, notice};

pub use recording::{RecordedProgram, name_of};
use recording::{record, workload};

/// Programs for which a policy is sought.
#[derive(Clone, Debug)]
pub struct Advice {
    /// Programs that run at the same time, each with its arguments.
    pub commands: Vec<Vec<String>>,
    /// Name or file of a machine; `None` for the detected one.
    pub machine: Option<String>,
    /// Policies to try; empty for all that are applicable.
    pub policies: Vec<String>,
    /// Time after which the recording of a program ends.
    pub duration: Nanos,
    /// Number of simulations of each policy.
    pub seeds: u64,
    /// True to judge programs that exit with an error.
    pub ignore_failure: bool,
    /// True to keep a record of the first simulation of each policy.
    pub records: bool,
}

/// Advice whose machine and policies are known.
pub struct Prepared {
    pub machine: Arc<LoadedMachine>,
    /// Policies to simulate; `linux` is the first.
    pub policies: Vec<String>,
    advice: Advice,
}

/// Recorded programs, with their simulations and the ranking of the policies.
pub struct Advised {
    pub machine: Arc<LoadedMachine>,
    pub recorded: Vec<RecordedProgram>,
    pub finished: Vec<Finished>,
    pub runs: Vec<CompareRun>,
    pub facts: Facts,
    pub rankings: Vec<Ranking>,
}

impl Advice {
    /// Begins with the defaults of `steer try`: this machine, all applicable policies, 20 s of recording, three seeds.
    #[must_use]
    pub const fn new(commands: Vec<Vec<String>>) -> Self {
        Self {
            commands,
            machine: None,
            policies: Vec::new(),
            duration: Nanos::from_millis(20_000),
            seeds: 3,
            ignore_failure: false,
            records: false,
        }
    }

    /// Loads the machine and finds the policies that can act on it.
    ///
    /// # Errors
    /// The machine does not exist, or this machine cannot be detected.
    pub fn prepare(self) -> anyhow::Result<Prepared> {
        let machine = machine(self.machine.as_deref())?;
        Ok(self.on(machine))
    }

    /// Finds the policies that can act on a machine.
    #[must_use]
    pub fn on(self, machine: Arc<LoadedMachine>) -> Prepared {
        Prepared {
            policies: policies(&self.policies, &machine),
            machine,
            advice: self,
        }
    }
}

impl Prepared {
    /// True if a policy other than `linux` can act on the machine.
    #[must_use]
    pub(crate) fn can_act(&self) -> bool {
        self.policies.len() > 1
    }

    /// Records the programs and simulates them together under all policies. Returns `None` if no policy can act on the machine.
    ///
    /// # Errors
    /// A program cannot be recorded, or fails.
    pub fn run(self) -> anyhow::Result<Option<Advised>> {
        if !self.can_act() {
            return Ok(None);
        }
        let scratch = TemporaryFolder::folder("try")?;
        let recorded = record(&self.advice, scratch.path())?;
        let workload = Arc::new(workload(scratch.path(), &recorded)?);
        let sweep = Sweep {
            machines: vec![Arc::clone(&self.machine)],
            workloads: vec![workload],
            policies: self.policies,
            seeds: self.advice.seeds,
            options: SimOptions::default(),
        };
        sweep.check()?;
        let records = self.advice.records;
        let experiments =
            sweep.experiments(|seed| (records && seed == 1).then_some(Detail::Everything));
        let bar = notice::bar("simulating", experiments.len() as u64);
        let finished = experiment::run_all(&experiments, &|| bar.step());
        drop(bar);
        let finished = finished?;
        let scored = experiments.iter().zip(&finished);
        let runs: Vec<CompareRun> = scored.map(|(e, f)| e.scored(f)).collect();
        let facts = probe::facts(&sweep, &runs)?;
        let rankings = judge(&runs, &facts);
        Ok(Some(Advised {
            machine: self.machine,
            recorded,
            finished,
            runs,
            facts,
            rankings,
        }))
    }
}

impl Advised {
    /// Policy that may be better than Linux, and that real runs can confirm; `None` if there is none.
    #[must_use]
    pub fn promising(&self) -> Option<&str> {
        let promises = |r: &&Ranking| {
            !matches!(
                r.verdict,
                Verdict::LeaveToLinux | Verdict::TooShort | Verdict::NoBaseline
            )
        };
        let best = self.rankings.first().filter(promises)?.best()?;
        Some(&best.policy)
    }
}

/// Loads a machine by name or file, or detects this machine if `name` is `None`. Adds the trained models.
///
/// # Errors
/// The machine does not exist, or this machine cannot be detected.
pub fn machine(name: Option<&str>) -> anyhow::Result<Arc<LoadedMachine>> {
    let Some(name) = name else {
        let machine = countersteer_sysfs::topology::detect(Path::new("/"))?;
        return library::with_models(machine, None);
    };
    library::loaded(name)
}

/// Returns `linux` and the policies that can act on this machine: the requested ones, or by default those applicable to the
/// machine.
fn policies(asked: &[String], machine: &LoadedMachine) -> Vec<String> {
    let useful = |p: &String| p != LINUX && reach::idle_on(p, &machine.topology).is_none();
    let mut found: Vec<String> = match asked {
        [] if reach::is_uniform(&machine.topology) => Vec::new(),
        [] => reach::shelf(&machine.topology).policies,
        asked => asked.to_vec(),
    };
    found.retain(useful);
    // Policies that only a simulator can run show gains that no machine can reach, so they are not simulated without others.
    if found.iter().all(|p| reach::simulator_only(p)) {
        found.clear();
    }
    found.insert(0, LINUX.into());
    found
}
