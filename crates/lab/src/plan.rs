//! Plans for the simulator from workload files: loads or records profiles, names copies, and resolves `launch_on`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use countersteer_files::name as raw;
use countersteer_model::bounds;
use countersteer_model::control::Control;
use countersteer_model::cpuset::CpuSet;
use countersteer_model::profile::Profile;
use countersteer_model::topology::Topology;
use countersteer_model::units::Nanos;
use countersteer_model::workload::{Workload, WorkloadProgram, at_program, at_table, cpus_of};
use countersteer_report::record::Manifest;
use countersteer_sim::engine::{Plan, PlannedHotplug, PlannedProgram};
use countersteer_sim::progress::Traces;
use serde::{Deserialize, Serialize};

use crate::error::{FaultKind, failure};
use crate::library::{self, LibraryText};
use crate::traces;

/// Simulated times alone by program, machine and options, shared by all policies and seeds of a workload.
#[derive(Debug, Default)]
pub struct TimesAlone(pub(crate) Mutex<BTreeMap<String, Vec<f64>>>);

/// Workload with its profiles, independent of a machine.
///
/// ```
/// use countersteer_lab::plan;
///
/// let text = "[[program]]\nprofile = \"gzip\"\ncopies = 3\n";
/// let workload = plan::of_text("three", text.to_owned())?;
/// let machine = countersteer_lab::experiment::machine("core2-quad")?;
/// assert_eq!(plan::plan(&workload, &machine.topology)?.programs.len(), 3);
/// # Ok::<(), anyhow::Error>(())
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(into = "Texts", try_from = "Texts")]
pub struct Loaded {
    pub name: String,
    pub text: LibraryText,
    /// Programs with their profiles; a program with several copies is one entry.
    pub programs: Vec<(WorkloadProgram, Arc<Profile>)>,
    /// Control groups and events of the workload file, without its programs.
    pub settings: Workload,
    /// Texts of the profiles by file name, for records.
    pub profiles: BTreeMap<String, String>,
    /// Traces of the programs that have one.
    pub traces: Traces,
    /// Simulated times alone, shared by all clones of the workload.
    pub alone: Arc<TimesAlone>,
}

impl Loaded {
    /// Returns a sentence for each profile that does not contain a whole, successful run.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let partial = |(program, profile): &(WorkloadProgram, Arc<Profile>)| {
            let Profile::Recorded(recorded) = &**profile else {
                return None;
            };
            let why = recorded.partial.as_ref()?;
            let name = program.name.as_deref().unwrap_or(&recorded.name);
            Some(format!(
                "the profile of `{name}` is partial ({why}): results hold for the part that was recorded; record the whole with \
                 `{}`",
                recorded.source.detail
            ))
        };
        self.programs.iter().filter_map(partial).collect()
    }
}

/// Serialized form of a workload: its file, and the profiles that it names.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Texts {
    name: String,
    text: String,
    profiles: BTreeMap<String, String>,
}

impl From<Loaded> for Texts {
    fn from(loaded: Loaded) -> Self {
        Self {
            name: loaded.name,
            text: loaded.text.text,
            profiles: loaded.profiles,
        }
    }
}

impl TryFrom<Texts> for Loaded {
    type Error = anyhow::Error;

    fn try_from(kept: Texts) -> anyhow::Result<Self> {
        of_texts(&kept.name, &kept.text, &kept.profiles)
    }
}

/// Callback that records the profile of a program given as a command. Arguments: the program's name, if it has one, and the
/// words of the command.
pub(crate) type RecordCommand<'a> =
    &'a dyn Fn(Option<&str>, &[String]) -> anyhow::Result<LibraryText>;

/// Reads a workload and every profile that it names. `record` creates the profiles of commands.
///
/// # Errors
/// Fails if a file does not exist or is no workload, with the line; if a profile is missing; and with the errors of
/// `record`.
pub fn load(name: &str, record: RecordCommand<'_>) -> anyhow::Result<Loaded> {
    let text = library::workload(name)?;
    load_text(text, |text, program| profile_text(text, program, record))
}

/// Reads a workload whose programs all have profiles.
///
/// # Errors
/// Fails with the errors of [`load`], and if a program is given as a command.
pub fn load_recorded(name: &str) -> anyhow::Result<Loaded> {
    load(name, &no_recorder)
}

fn no_recorder(_: Option<&str>, command: &[String]) -> anyhow::Result<LibraryText> {
    let command = command.join(" ");
    let why = format!(
        "`{command}` has no profile yet: record one with `steer profile -- {command}` and name its file as `profile`"
    );
    Err(failure(FaultKind::Missing, why))
}

/// Creates a workload from text; its profiles must be shipped ones.
pub fn of_text(name: &str, text: String) -> anyhow::Result<Loaded> {
    let path = format!("{name}.toml");
    let text = LibraryText {
        path,
        text,
        shipped: true,
    };
    load_text(text, |text, program| {
        profile_text(text, program, &no_recorder)
    })
}

/// Reads the workload that is stored in a record.
pub fn of_record(manifest: &Manifest) -> anyhow::Result<Loaded> {
    let workload = &manifest.workload;
    of_texts(&workload.name, &workload.text, &manifest.profiles)
}

fn of_texts(name: &str, text: &str, profiles: &BTreeMap<String, String>) -> anyhow::Result<Loaded> {
    let text = LibraryText {
        path: format!("{name}.toml"),
        text: text.to_owned(),
        shipped: false,
    };
    load_text(text, |_, program| {
        let wanted = profile_key(program);
        let found = profiles.get_key_value(&wanted);
        let (file, text) = found.ok_or_else(|| {
            failure(
                FaultKind::BadInput,
                format!("the record has no profile `{wanted}`"),
            )
        })?;
        Ok(LibraryText {
            path: file.clone(),
            text: text.clone(),
            shipped: false,
        })
    })
}

fn load_text(
    text: LibraryText,
    mut source: impl FnMut(&LibraryText, &WorkloadProgram) -> anyhow::Result<LibraryText>,
) -> anyhow::Result<Loaded> {
    let workload = Workload::parse(&text.path, &text.text)
        .map_err(|e| library::WORKLOAD.explain(&text, e.into()))?;
    let stem = Path::new(&text.path)
        .file_stem()
        .map(|s| s.to_string_lossy().into_owned())
        .unwrap_or_default();
    let name = if workload.name.is_empty() {
        stem
    } else {
        workload.name.clone()
    };
    let mut loaded = Loaded {
        name,
        text,
        programs: Vec::new(),
        settings: Workload {
            program: Vec::new(),
            ..workload.clone()
        },
        profiles: BTreeMap::new(),
        traces: Traces::default(),
        alone: Arc::default(),
    };
    for program in workload.program {
        let source = source(&loaded.text, &program)?;
        let profile = Profile::parse(&source.path, &source.text)
            .map_err(|e| library::PROFILE.explain(&source, e.into()))?;
        let profile = Arc::new(profile);
        if traces::is_trace(&source.path) && raw::path(source.path.as_ref()).is_file() {
            let (_, trace) = traces::open(Path::new(&source.path))?;
            loaded.traces.0.push((Arc::clone(&profile), trace));
        }
        loaded.profiles.insert(profile_key(&program), source.text);
        loaded.programs.push((program, profile));
    }
    Ok(loaded)
}

/// Returns the key of a program's profile in a record, which is no path and is unique for each profile.
fn profile_key(program: &WorkloadProgram) -> String {
    let words = match (&program.profile, &program.command) {
        (Some(path), _) => path.trim_start_matches("../").to_owned(),
        (None, command) => format!("{}.json", command.as_deref().unwrap_or_default().join(" ")),
    };
    words.replace(
        |c: char| !c.is_ascii_alphanumeric() && !"._-".contains(c),
        "_",
    )
}

/// Returns the text of a program's profile. It is searched for next to the workload file, below the working directory, and
/// in the library.
fn profile_text(
    workload: &LibraryText,
    program: &WorkloadProgram,
    record: RecordCommand<'_>,
) -> anyhow::Result<LibraryText> {
    if let Some(command) = &program.command {
        return record(program.name.as_deref(), command);
    }
    let wanted = program.profile.as_deref().unwrap_or_default();
    let relative = wanted
        .trim_start_matches("../")
        .trim_start_matches("profiles/");
    if let Some(text) = library::shipped_profile(relative).filter(|_| workload.shipped) {
        return Ok(text);
    }
    let beside = Path::new(&workload.path)
        .parent()
        .unwrap_or(Path::new("."))
        .join(wanted);
    for path in [beside.clone(), PathBuf::from(wanted)] {
        let path = &*raw::path(&path);
        if path.is_file() && traces::is_trace(wanted) {
            return Ok(traces::open(path)?.0);
        }
        if path.is_file() {
            return library::read(path);
        }
    }
    library::shipped_profile(relative).ok_or_else(|| {
        let path = &workload.path;
        let beside = beside.display();
        failure(
            FaultKind::Missing,
            format!(
                "{path}: there is no profile `{wanted}` (looked for {beside} and among the shipped profiles); \
                 record one with `steer profile -o {wanted} -- PROGRAM`"
            ),
        )
    })
}

/// Creates the simulator's plan on a machine: one entry per copy, with a unique name and the CPUs of `launch_on`.
pub fn plan(loaded: &Loaded, topology: &Topology) -> anyhow::Result<Plan> {
    let mut plan = Plan::default();
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let mut threads = 0.0;
    let LibraryText { path, text, .. } = &loaded.text;
    let wrong = |row, why| at_program(path, text, row, why);
    for (row, event) in loaded.settings.hotplug.iter().enumerate() {
        let cpus = event.cpus_on(topology);
        plan.hotplug.push(PlannedHotplug {
            at: Nanos::from_secs_f64(event.at_s),
            cpus: cpus.map_err(|why| at_table(path, text, ("hotplug", row), why))?,
            online: event.online,
        });
    }
    for (row, (program, profile)) in loaded.programs.iter().enumerate() {
        let base = program
            .name
            .clone()
            .unwrap_or_else(|| profile.name().to_owned());
        let launch_on = program
            .launch_on
            .as_deref()
            .map(|place| cpus_of(place, topology))
            .transpose();
        let launch_on = launch_on.map_err(|why| wrong(row, why))?;
        let control = loaded.settings.control_of(program);
        let mut control = control.map_err(|why| wrong(row, why))?;
        let allowed = (program.allowed.as_deref())
            .map(|place| cpus_of(place, topology))
            .transpose();
        control.allowed = allowed.map_err(|why| wrong(row, why))?;
        if let (Some(allowed), Some(start)) = (&control.allowed, &launch_on)
            && !start.intersects(allowed)
        {
            let why = format!("`launch_on` has none of the CPUs of `allowed` ({allowed})");
            return Err(wrong(row, why).into());
        }
        let shape = program.shape(profile).map_err(|why| wrong(row, why))?;
        // Profiles may have several threads, which count as well.
        threads += f64::from(program.copies) * f64::from(shape.0);
        bounds::THREADS
            .check("threads of all programs", threads)
            .map_err(|why| wrong(row, why))?;
        for _ in 0..program.copies {
            let nth = seen
                .entry(base.clone())
                .and_modify(|n| *n += 1)
                .or_insert(1);
            let name = if *nth == 1 {
                base.clone()
            } else {
                format!("{base}#{nth}")
            };
            plan.programs.push(planned(
                program,
                profile,
                name,
                shape,
                launch_on.clone(),
                control.clone(),
            ));
        }
    }
    Ok(plan)
}

fn planned(
    program: &WorkloadProgram,
    profile: &Arc<Profile>,
    name: String,
    (threads, serial_share): (u32, f64),
    launch_on: Option<Arc<CpuSet>>,
    control: Control,
) -> PlannedProgram {
    let bursts = program.burst_mi.zip(program.sleep_ms);
    PlannedProgram {
        name: name.into(),
        profile: Arc::clone(profile),
        threads,
        serial_share,
        nice: program.nice,
        control,
        start: Nanos::from_secs_f64(program.start_s),
        bursts: bursts.map(|(mi, ms)| (mi * 1e6, Nanos::from_secs_f64(ms * 1e-3))),
        barriers: program.barriers.unwrap_or(1),
        chunk: program.chunk_mi.map(|mi| mi * 1e6),
        launch_on,
        scale: program.scale,
    }
}

/// Returns the workload with one program per copy.
pub(crate) fn unrolled(loaded: &Loaded, names: &[String]) -> Loaded {
    let copies = loaded.programs.iter().flat_map(|(program, profile)| {
        let copy = move |_| (program.clone(), Arc::clone(profile));
        (0..program.copies).map(copy)
    });
    let named = copies.zip(names).map(|((mut program, profile), name)| {
        (program.name, program.copies) = (Some(name.clone()), 1);
        (program, profile)
    });
    Loaded {
        programs: named.collect(),
        ..loaded.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_of_parts_and_of_failed_programs_are_named() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../profiles/recorded/gzip.json");
        let whole = std::fs::read_to_string(path).unwrap();
        let part = whole.replacen('{', "{\"partial\": \"the program failed: exit code 2\",", 1);
        let warnings = |profile: String| {
            let profiles = BTreeMap::from([("p.json".to_owned(), profile)]);
            let loaded = of_texts("w", "[[program]]\nprofile = \"p.json\"\n", &profiles).unwrap();
            loaded.warnings()
        };
        assert!(warnings(whole).is_empty());
        let warnings = warnings(part);
        assert!(warnings[0].contains("exit code 2"), "{warnings:?}");
    }
}
