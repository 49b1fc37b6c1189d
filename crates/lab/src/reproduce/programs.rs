//! Stand-ins: the shipped profile for each program of a paper, and the papers' mixes.
//!
//! Input: `reproduce/programs.toml` and `reproduce/mixes.toml`. Output: texts of workloads for the simulator.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use countersteer_model::profile::{Profile, Published};
use countersteer_model::topology::Topology;
use countersteer_model::units::CpuId;
use countersteer_model::workload::cpus_of;
use serde::Deserialize;

use super::case::{DRAWS, PaperFinding};
use super::watched::WatchedRun;
use crate::error::{FaultKind, failure};
use crate::experiment::{Fidelity, SimOptions};
use crate::library;
use crate::plan::{self, Loaded};

/// Number of instructions that every thread of a program executes per run. The papers' programs run for minutes. Recorded ones
/// run for at most a second, so they are stretched together with their phases.
pub(super) const INSTRUCTIONS_PER_THREAD: f64 = 20e9;

/// Folders of profiles that come from counters of the paper's program itself.
const ITSELF: [&str; 2] = ["published/", "spec2017/"];

/// Factor by which programs and periods are shortened if traces are simulated, which takes much longer.
pub(super) const SHORTER: f64 = 400.0;

/// Folder of the traces of the stand-ins, and the fidelity of their simulation.
#[derive(Clone, Debug)]
pub(crate) struct StandInTraces {
    pub fidelity: Fidelity,
    /// Folder with a trace for each profile, named after it, as in `chase.trace`.
    pub folder: PathBuf,
}

impl StandInTraces {
    fn trace(&self, by: &StandIn) -> PathBuf {
        let name = Path::new(&by.profile).file_stem().unwrap_or_default();
        self.folder.join(name).with_extension("trace")
    }
}

impl StandIn {
    /// True if the profile comes from counters of the paper's program itself.
    pub(super) fn is_itself(&self) -> bool {
        ITSELF.iter().any(|folder| self.profile.starts_with(folder))
    }
}

/// Stand-in for a program of a paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StandIn {
    /// Path of the stand-in's profile below `profiles/`.
    pub profile: String,
    /// Class of the program.
    pub class: String,
    /// Current program that does the same kind of work.
    pub like: String,
    /// Source of the class.
    pub basis: String,
    /// Fraction of the work that one thread does alone; `None` for that of the profile.
    pub serial_share: Option<f64>,
}

/// Mix of programs from a paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PaperMix {
    /// Figure, table or section of the paper that lists the mix.
    pub item: String,
    /// Programs of the mix, each with its number of threads.
    pub members: Vec<(String, u32)>,
    /// Aspects of the mix that the paper does not state.
    #[serde(default)]
    pub uncertain: String,
}

#[derive(Deserialize)]
struct ProgramGroup {
    programs: Vec<String>,
}

#[derive(Deserialize)]
struct ProgramFile {
    program: BTreeMap<String, StandIn>,
}

#[derive(Deserialize)]
struct MixFile {
    mix: BTreeMap<String, PaperMix>,
    group: BTreeMap<String, ProgramGroup>,
}

/// Stand-ins and mixes of all papers.
pub(crate) struct Cast {
    programs: BTreeMap<String, StandIn>,
    mixes: BTreeMap<String, PaperMix>,
    groups: BTreeMap<String, ProgramGroup>,
    /// Traces to simulate; `None` to use profiles.
    pub traced: Option<StandInTraces>,
    /// Finished runs of mixes by key, shared between cases.
    ran: Mutex<BTreeMap<String, Arc<WatchedRun>>>,
}

/// Program of a workload that is to be created.
pub(crate) struct PlannedMember<'a> {
    pub program: &'a str,
    pub threads: u32,
    pub copies: u32,
    /// Core group or CPU list on which the program starts; `None` for any CPU.
    pub launch_on: Option<&'a str>,
}

impl Cast {
    /// Parses the texts of the two files.
    pub fn parse(programs: &str, mixes: &str) -> anyhow::Result<Self> {
        let programs: ProgramFile = toml::from_str(programs).context("reproduce/programs.toml")?;
        let mixes: MixFile = toml::from_str(mixes).context("reproduce/mixes.toml")?;
        Ok(Self {
            programs: programs.program,
            mixes: mixes.mix,
            groups: mixes.group,
            traced: None,
            ran: Mutex::default(),
        })
    }

    /// Returns the run with a key. It is simulated only once, even if several cases need it.
    pub fn once(
        &self,
        key: String,
        simulate: impl FnOnce() -> anyhow::Result<WatchedRun>,
    ) -> anyhow::Result<Arc<WatchedRun>> {
        let known = || self.ran.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ran) = known().get(&key) {
            return Ok(Arc::clone(ran));
        }
        let ran = Arc::new(simulate()?);
        known().insert(key, Arc::clone(&ran));
        Ok(ran)
    }

    /// Iterates over the stand-ins, with the paper's names of their programs.
    pub(crate) fn stand_ins(&self) -> impl Iterator<Item = (&String, &StandIn)> {
        self.programs.iter()
    }

    /// Iterates over all mixes with their names.
    pub fn mixes(&self) -> impl Iterator<Item = (&String, &PaperMix)> {
        self.mixes.iter()
    }

    pub fn mix(&self, name: &str) -> anyhow::Result<&PaperMix> {
        let known = self.mixes.get(name);
        known.ok_or_else(|| {
            failure(
                FaultKind::Missing,
                format!("mixes.toml has no mix `{name}`"),
            )
        })
    }

    /// Returns the programs of a mix, one copy each. Fails if the mix does not exist.
    pub(crate) fn single_copies(&self, mix: &str) -> anyhow::Result<Vec<PlannedMember<'_>>> {
        let members = self.mix(mix)?.members.iter();
        Ok(members
            .map(|(program, threads)| PlannedMember {
                program,
                threads: *threads,
                copies: 1,
                launch_on: None,
            })
            .collect())
    }

    pub(crate) fn stand_in(&self, program: &str) -> anyhow::Result<&StandIn> {
        let known = self.programs.get(program);
        known.ok_or_else(|| {
            let why = format!("programs.toml has no program `{program}`");
            failure(FaultKind::Missing, why)
        })
    }

    /// Replaces names of groups by the names of their programs. If traces are simulated, programs without a trace are omitted.
    pub fn expand(&self, names: &[String]) -> Vec<String> {
        let all = self.members(names);
        let Some(traced) = &self.traced else {
            return all;
        };
        let has = |name: &String| {
            let by = self.programs.get(name);
            by.is_some_and(|by| traced.trace(by).is_file())
        };
        all.into_iter().filter(has).collect()
    }

    fn members(&self, names: &[String]) -> Vec<String> {
        let members = |name: &String| match self.groups.get(name) {
            Some(group) => group.programs.clone(),
            None => vec![name.clone()],
        };
        names.iter().flat_map(members).collect()
    }

    /// Returns the options of a case's simulations.
    pub fn options(&self, rounds: u32, period_ms: f64) -> SimOptions {
        let traced = self.traced.as_ref();
        let shorter = traced.map_or(1.0, |_| SHORTER);
        SimOptions {
            period_ms: period_ms / shorter,
            rounds: traced.map_or(rounds, |_| 1),
            max_seconds: 20_000.0,
            fidelity: traced.map_or(Fidelity::Analytic, |traced| traced.fidelity),
            // In kernels of the papers' time, wake-ups do not gather processes under a cache, so an unmodified release is used.
            kernel: "6.12".into(),
            ..SimOptions::default()
        }
    }

    /// Returns the number of seeds of a case; 1 if traces are simulated.
    pub fn seeds(&self, asked: u64) -> u64 {
        self.traced.as_ref().map_or(asked, |_| 1)
    }

    /// Returns the path of a program's profile or trace for a workload file, and the number of times that its timeline is run.
    /// Fails if a trace is missing.
    fn source(&self, by: &StandIn, threads: u32) -> anyhow::Result<(String, f64)> {
        let work = INSTRUCTIONS_PER_THREAD * f64::from(threads);
        if let Some(traced) = &self.traced {
            let path = traced.trace(by);
            let shown = path.display();
            if !path.is_file() {
                let why = format!(
                    "{shown} is missing: record the program of demo/programs.tsv with that name by `steer trace record -o {shown} -- COMMAND`"
                );
                return Err(failure(FaultKind::Missing, why));
            }
            let path = std::path::absolute(&path)?;
            let text = crate::traces::open(&path)?.0;
            let profile = Profile::parse(&text.path, &text.text)?;
            let scale = work / SHORTER / profile.instructions() as f64;
            return Ok((path.display().to_string(), scale));
        }
        let profile = shipped_profile(&by.profile)?;
        Ok((
            format!("../profiles/{}", by.profile),
            work / profile.instructions() as f64,
        ))
    }

    /// Returns the number of draws of a case; 1 if no program is represented by values with errors.
    pub fn draws<'a>(&self, programs: impl IntoIterator<Item = &'a String>) -> u64 {
        let differs = |program: &String| self.published(program).is_some();
        let any = programs.into_iter().any(differs);
        self.seeds(if any { DRAWS } else { 1 })
    }

    /// True if a program is represented by its own counters.
    pub(crate) fn is_itself(&self, program: &str) -> bool {
        let by = self.programs.get(program);
        by.is_some_and(StandIn::is_itself)
    }

    /// True if all programs in a finding's rows are represented by their own counters. `rows` is used if the finding names no
    /// rows.
    pub(crate) fn genuine(&self, finding: &PaperFinding, rows: &[String]) -> bool {
        let named = if finding.rows.is_empty() {
            rows
        } else {
            finding.rows.as_slice()
        };
        let itself = |row: &String| {
            let mix = row.split('/').next().unwrap_or_default();
            match self.mixes.get(mix) {
                Some(mix) => mix
                    .members
                    .iter()
                    .all(|(program, _)| self.is_itself(program)),
                None => row.split('+').all(|program| self.is_itself(program)),
            }
        };
        named.iter().chain(&finding.then).all(itself)
    }

    /// Returns the published profile that represents a program; `None` if there is none or if traces are simulated.
    fn published(&self, program: &str) -> Option<Published> {
        let by = self
            .programs
            .get(program)
            .filter(|_| self.traced.is_none())?;
        let text = library::shipped_profile(&by.profile)?;
        Published::parse(&text.path, &text.text).ok()
    }

    /// Creates a workload of these members; program names omit the suite. Values of published profiles are drawn within their
    /// errors.
    pub fn workload(
        &self,
        name: &str,
        members: &[PlannedMember<'_>],
        draw: u64,
    ) -> anyhow::Result<Arc<Loaded>> {
        let mut text = String::new();
        for member in members {
            let stand_in = self.stand_in(member.program)?;
            let (profile, scale) = self.source(stand_in, member.threads)?;
            let short = short(member.program);
            write!(
                text,
                "[[program]]\nname = \"{short}\"\nprofile = \"{profile}\"\nthreads = {}\ncopies = {}\nscale = {scale}\n",
                member.threads, member.copies
            )?;
            if member.threads > 1 {
                writeln!(
                    text,
                    "serial_share = {}",
                    stand_in.serial_share.unwrap_or(0.0)
                )?;
            }
            if let Some(place) = member.launch_on {
                writeln!(text, "launch_on = \"{place}\"")?;
            }
        }
        let mut loaded = plan::of_text(name, text)?;
        for (member, (_, profile)) in members.iter().zip(&mut loaded.programs) {
            if let Some(published) = self.published(member.program) {
                *profile = Arc::new(Profile::Recorded(published.drawn(draw)));
            }
        }
        Ok(Arc::new(loaded))
    }
}

/// Creates a workload of one program with one thread.
pub(crate) fn lone(cast: &Cast, program: &str, draw: u64) -> anyhow::Result<Arc<Loaded>> {
    let member = PlannedMember {
        program,
        threads: 1,
        copies: 1,
        launch_on: None,
    };
    cast.workload(program, &[member], draw)
}

/// Returns the specification of a policy that keeps all threads on the first CPU of a core group or list.
pub fn pinned(topology: &Topology, place: &str) -> anyhow::Result<String> {
    let first = first_cpu(topology, place)?;
    Ok(format!("static:*={first}"))
}

/// Returns the first CPU of a core group or CPU list. Fails if there is none.
pub(crate) fn first_cpu(topology: &Topology, place: &str) -> anyhow::Result<CpuId> {
    let cpus = cpus_of(place, topology).map_err(|why| failure(FaultKind::BadInput, why))?;
    let first = cpus.lowest();
    first.ok_or_else(|| failure(FaultKind::BadInput, format!("`{place}` has no CPU")))
}

/// Returns a shipped profile by its path below `profiles/`. Fails if there is none.
pub fn shipped_profile(path: &str) -> anyhow::Result<Profile> {
    let text = library::shipped_profile(path).ok_or_else(|| {
        let why = format!("there is no shipped profile `{path}`");
        failure(FaultKind::Missing, why)
    })?;
    Ok(Profile::parse(&text.path, &text.text)?)
}

/// Returns a program's name without its suite: `mcf` for `cpu2006.mcf`.
pub fn short(program: &str) -> &str {
    program.split_once('.').map_or(program, |(_, name)| name)
}
