//! Workload files: sets of programs that run together.
//!
//! Input: TOML text. Output: a checked [`Workload`]. The caller loads the profiles that it refers to.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounds::{self, check_all};
use crate::control::{Control, ControlGroup, Hotplug, cpus_named};
use crate::cpuset::CpuSet;
use crate::placement::Clamp;
use crate::profile::Profile;
use crate::textfile::{TextError, parse_described};
use crate::toml_lines::table_line;
use crate::topology::Topology;

/// Workload: programs that run at the same time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Short name of the workload; by default the file's name.
    #[serde(default)]
    pub name: String,
    /// Description in one line, for lists.
    #[serde(default)]
    pub title: String,
    /// Control groups of the programs, in the simulator.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cgroup: Vec<ControlGroup>,
    /// CPUs that go offline and online during the run, in the simulator.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hotplug: Vec<Hotplug>,
    /// Programs of the workload.
    pub program: Vec<WorkloadProgram>,
}

/// Program of a workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkloadProgram {
    /// Name of the program; by default that of the profile. Copies and repeats get `#2`, `#3`, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Path of the profile, relative to the workload file. Either this or `command` is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Command that is recorded at first use. Its profile is cached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// Number of independent copies.
    #[serde(default = "one")]
    pub copies: u32,
    /// Number of threads per copy; by default as recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Fraction of the instructions that one thread executes before the others begin; by default as recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial_share: Option<f64>,
    /// Nice value, -20 to 19.
    #[serde(default)]
    pub nice: i8,
    /// Start time of the program.
    #[serde(default)]
    pub start_s: f64,
    /// Millions of instructions per burst; after each burst the program sleeps for `sleep_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst_mi: Option<f64>,
    /// Sleep time after each burst.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sleep_ms: Option<f64>,
    /// Number of equal pieces of a run, each with its serial and its parallel part. All threads wait for each other at the end of
    /// each piece.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub barriers: Option<u32>,
    /// Millions of instructions that a thread takes at a time from the work that is left of a parallel part. Without it, each
    /// thread has an equal share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_mi: Option<f64>,
    /// Name of the control group of the program's threads; by default the root group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Lower utilisation clamp of each thread, 0 to 1024, as of `sched_setattr`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uclamp_min: Option<u32>,
    /// Upper utilisation clamp of each thread, 0 to 1024.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uclamp_max: Option<u32>,
    /// CPUs or core group that the program's threads may use, as with `taskset`; by default all CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<String>,
    /// CPUs or core group on which the program's threads start. Afterwards, scheduler and policy may move them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch_on: Option<String>,
    /// Fraction of the profile's instructions to run (above 1: longer), equal in every phase.
    #[serde(default = "whole")]
    pub scale: f64,
}

const fn one() -> u32 {
    1
}

const fn whole() -> f64 {
    1.0
}

impl Default for WorkloadProgram {
    fn default() -> Self {
        Self {
            name: None,
            profile: None,
            command: None,
            copies: one(),
            threads: None,
            serial_share: None,
            nice: 0,
            start_s: 0.0,
            burst_mi: None,
            sleep_ms: None,
            barriers: None,
            chunk_mi: None,
            cgroup: None,
            uclamp_min: None,
            uclamp_max: None,
            allowed: None,
            launch_on: None,
            scale: whole(),
        }
    }
}

impl Workload {
    /// Parses and checks a workload file.
    ///
    /// ```
    /// use countersteer_model::workload::Workload;
    ///
    /// let text = r#"
    /// [[program]]
    /// profile = "gcc"
    /// copies = 2
    ///
    /// [[program]]
    /// profile = "xz"
    /// threads = 4
    /// nice = 5
    /// "#;
    /// let workload = Workload::parse("mix.toml", text)?;
    /// assert_eq!(workload.program.len(), 2);
    /// assert_eq!(workload.program[1].nice, 5);
    /// # Ok::<(), countersteer_model::textfile::TextError>(())
    /// ```
    ///
    /// # Errors
    /// Fails on a syntax error, an unknown field, or an invalid value; the error contains the line.
    ///
    /// ```
    /// use countersteer_model::workload::Workload;
    ///
    /// let text = r#"
    /// name = "mine"
    ///
    /// [[program]]
    /// profile = "gzip"
    /// threads = 4
    /// nice = 5
    /// "#;
    /// let workload = Workload::parse("mine.toml", text)?;
    /// assert_eq!(workload.name, "mine");
    /// assert_eq!(workload.program[0].threads, Some(4));
    /// # Ok::<(), countersteer_model::textfile::TextError>(())
    /// ```
    pub fn parse(path: &str, text: &str) -> Result<Self, TextError> {
        let workload: Self = parse_described(path, text)?;
        if workload.program.is_empty() {
            return Err(TextError::value(path, "there is no `[[program]]`"));
        }
        for (nth, group) in workload.cgroup.iter().enumerate() {
            let twice = workload.cgroup[..nth].iter().any(|g| g.name == group.name);
            let checked = if twice {
                Err(format!("there are two groups `{}`", group.name))
            } else {
                group.check()
            };
            checked.map_err(|why| at_table(path, text, ("cgroup", nth), why))?;
        }
        for (nth, event) in workload.hotplug.iter().enumerate() {
            event
                .check()
                .map_err(|why| at_table(path, text, ("hotplug", nth), why))?;
        }
        let mut threads = 0.0;
        for (nth, program) in workload.program.iter().enumerate() {
            program
                .check()
                .and_then(|()| workload.control_of(program).map(drop))
                .map_err(|why| at_program(path, text, nth, why))?;
            threads += f64::from(program.copies) * f64::from(program.threads.unwrap_or(1));
        }
        bounds::THREADS
            .check("copies * threads", threads)
            .map_err(|why| TextError::value(path, why))?;
        Ok(workload)
    }

    /// Returns the settings of the kernel for a program's threads, without the CPUs that they may use.
    ///
    /// # Errors
    /// Returns a sentence with the error if the workload has no control group of the program's name.
    pub fn control_of(&self, program: &WorkloadProgram) -> Result<Control, String> {
        let group = program.cgroup.as_ref().map(|name| {
            let found = self.cgroup.iter().find(|g| g.name == *name);
            found.ok_or_else(|| {
                format!("there is no group `{name}`: add `[[cgroup]]` with `name = \"{name}\"`")
            })
        });
        Ok(Control {
            group: group.transpose()?.map(|group| Arc::new(group.clone())),
            clamp: Clamp {
                least: program.uclamp_min.unwrap_or(Clamp::FREE.least),
                most: program.uclamp_max.unwrap_or(Clamp::FREE.most),
            },
            allowed: None,
        })
    }
}

/// Creates an error about a `[[program]]` of a workload file, with the line of that table.
#[must_use]
pub fn at_program(path: &str, text: &str, row: usize, why: String) -> TextError {
    at_table(path, text, ("program", row), why)
}

/// Creates an error about one of a workload file's tables of a name, with the line of that table.
#[must_use]
pub fn at_table(path: &str, text: &str, (table, row): (&str, usize), why: String) -> TextError {
    match table_line(text, table, row) {
        Some(line) => TextError::at_line(path, text, line, why),
        None => TextError::value(path, why),
    }
}

/// Returns the CPUs that `place`, a value of `launch_on`, names: a core group's name or a CPU list.
///
/// # Errors
/// Returns a sentence with the error if the machine has no such group or CPUs.
pub fn cpus_of(place: &str, topology: &Topology) -> Result<Arc<CpuSet>, String> {
    cpus_named("launch_on", place, topology)
}

impl WorkloadProgram {
    /// Creates a program from a command: one copy, started at time zero.
    #[must_use]
    pub fn of_command(command: Vec<String>) -> Self {
        Self {
            command: Some(command),
            ..Self::default()
        }
    }

    /// Returns the number of threads per copy, and the fraction of the instructions that one thread executes before the
    /// others start.
    ///
    /// # Errors
    /// Returns a sentence with the error if several threads were requested, but neither the profile nor the workload
    /// describes parallel work.
    pub fn shape(&self, profile: &Profile) -> Result<(u32, f64), String> {
        let (recorded, recorded_share) = match profile {
            Profile::Recorded(p) => (p.shape.threads, p.shape.serial_share),
            Profile::Tabulated(_) => (1, 1.0),
        };
        let threads = self.threads.unwrap_or(recorded);
        if threads == 1 {
            return Ok((1, 0.0));
        }
        let known = (recorded > 1).then_some(recorded_share);
        let share = self.serial_share.or(known);
        let asked = self.threads.is_some();
        let why = match share {
            Some(share) if share < 1.0 || !asked => return Ok((threads, share)),
            Some(_) if self.serial_share.is_some() => {
                "`serial_share` leaves no work to them".into()
            }
            Some(_) => {
                format!("its {recorded} threads never ran at the same time when it was recorded")
            }
            None => "it is known from one thread, which does not tell how its work splits".into(),
        };
        let name = profile.name();
        Err(format!(
            "`threads = {threads}`: profile `{name}` has no parallel part: {why}; leave `threads` out, or state the share of its \
             work that only one thread can do: `serial_share = 0.05`"
        ))
    }

    fn check(&self) -> Result<(), String> {
        match (&self.profile, &self.command) {
            (None, None) => {
                return Err("a program needs `profile = \"file\"` or `command = [...]`".into());
            }
            (Some(_), Some(_)) => return Err("`profile` and `command` exclude each other".into()),
            (None, Some(command)) if command.is_empty() => return Err("`command` is empty".into()),
            _ => {}
        }
        if self.burst_mi.is_some() != self.sleep_ms.is_some() {
            return Err("`burst_mi` and `sleep_ms` come together".into());
        }
        if let (Some(least), Some(most)) = (self.uclamp_min, self.uclamp_max)
            && least > most
        {
            return Err(format!(
                "`uclamp_min = {least}` is above `uclamp_max = {most}`"
            ));
        }
        let figures = [
            ("uclamp_min", bounds::UCLAMP, self.uclamp_min.map(f64::from)),
            ("uclamp_max", bounds::UCLAMP, self.uclamp_max.map(f64::from)),
            ("copies", bounds::THREADS, Some(f64::from(self.copies))),
            ("threads", bounds::THREADS, self.threads.map(f64::from)),
            ("serial_share", bounds::SHARE, self.serial_share),
            ("nice", bounds::NICE, Some(f64::from(self.nice))),
            ("start_s", bounds::START, Some(self.start_s)),
            ("scale", bounds::SCALE, Some(self.scale)),
            ("barriers", bounds::BARRIERS, self.barriers.map(f64::from)),
            ("chunk_mi", bounds::BURST, self.chunk_mi),
            ("burst_mi", bounds::BURST, self.burst_mi),
            ("sleep_ms", bounds::SLEEP, self.sleep_ms),
        ];
        let given = figures
            .into_iter()
            .filter_map(|(key, bounds, value)| Some((key, bounds, value?)));
        check_all(given).map_err(|(_, why)| why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_need_parallel_work_in_the_profile_or_the_workload() {
        let program = |text: &str| {
            let text = format!("[[program]]\nprofile = \"p\"\n{text}");
            Workload::parse("w.toml", &text).unwrap().program.remove(0)
        };
        let published = "schema = \"countersteer.table/1\"\nname = \"p\"\ngiga_instructions = 1\n[source]\nkind = \"published\"\n\
            detail = \"\"\n[[core]]\ncore_type = \"c\"\nfreq_ghz = 1\npoints = [{ cache_kib = 1, ipc = 1 }]\n";
        let published = Profile::parse("p.toml", published).unwrap();
        assert_eq!(program("").shape(&published), Ok((1, 0.0)));
        assert_eq!(
            program("threads = 4\nserial_share = 0.1").shape(&published),
            Ok((4, 0.1))
        );
        let why = program("threads = 4").shape(&published).unwrap_err();
        assert!(
            why.contains("known from one thread") && why.contains("serial_share = "),
            "{why}"
        );
        assert!(
            program("threads = 4\nserial_share = 1")
                .shape(&published)
                .is_err()
        );
    }

    #[test]
    fn impossible_programs_are_refused_with_their_line() {
        let text = "[[program]]\nprofile = \"a\"\n\n[[program]]\nprofile = \"b\"\ncopies = 0\n";
        let error = Workload::parse("w.toml", text).unwrap_err();
        assert_eq!(
            (error.line, error.message.contains("copies")),
            (Some(4), true)
        );
        let text = "[[cgroup]]\nname = \"g\"\n\n[[program]]\nprofile = \"a\"\ncgroup = \"h\"\n";
        let error = Workload::parse("w.toml", text).unwrap_err();
        assert_eq!(
            (error.line, error.message.contains("no group `h`")),
            (Some(4), true)
        );
        let error = Workload::parse("w.toml", "[[program]]\nprofil = \"a\"\n").unwrap_err();
        assert_eq!(error.line, Some(2));
        assert!(
            Workload::parse(
                "w.toml",
                "[[program]]\nprofile = \"a\"\nthreads = 4294967295\n"
            )
            .is_err()
        );
    }
}
