//! Import of workloads from recordings of other tools, which contain the times at which threads ran, slept and woke.
//!
//! Input: a file in one of [`FORMATS`]. Output: a [`Workload`] whose programs run and sleep as the threads in that file did. Such
//! a file does not contain the *instructions* of a thread. A profile replaces them, and a rate converts CPU time into
//! instructions. Wakers are not imported: a program of a workload sleeps for fixed times.

mod ftrace;
mod other;
mod perf_data;
mod perfetto;
mod rt_app;
mod task_set;
mod timeline;
mod trace_dat;
mod unpacked;

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};

use anyhow::Context;
use countersteer_files::{name as raw, read};
use countersteer_model::bounds;
use countersteer_model::printable::printable;
use countersteer_model::profile::Profile;
use countersteer_model::textfile::{MOST_TOML, TextError};
use countersteer_model::workload::{Workload, WorkloadProgram};

use crate::error::{FaultKind, failure};
use crate::library;

/// Number of bytes at the start of a file from which its format is detected.
const HEAD: u64 = 1 << 20;

/// Behaviour of one thread, or of several similar threads.
#[derive(Clone, Debug, PartialEq)]
struct ImportedTask {
    name: String,
    /// CPU time of each thread, in seconds.
    cpu_s: f64,
    /// Number of completed sleeps of each thread.
    sleeps: f64,
    /// Mean duration of a sleep, in seconds.
    sleep_s: f64,
    /// Start of the threads, in seconds.
    start_s: f64,
    /// Number of threads.
    copies: u32,
    /// Nice value of the threads.
    nice: i8,
    /// CPUs to which the threads were bound, as a list; `None` if they were not bound.
    cpus: Option<String>,
}

/// Tasks found in a file.
#[derive(Debug, Default)]
struct Tasks {
    tasks: Vec<ImportedTask>,
    /// Sentences about parts of the file that were omitted.
    warnings: Vec<String>,
}

/// File format that can be imported.
pub struct Format {
    pub name: &'static str,
    pub what: &'static str,
    /// Bytes of a file at most.
    most: u64,
    detects: fn(&[u8]) -> bool,
    /// Refuses files by their heads, before the rest is read.
    check: fn(&[u8]) -> Result<(), String>,
    reader: FormatReader,
}

/// Reader of a format, with the path of the file for errors.
enum FormatReader {
    Bytes(fn(&str, Vec<u8>) -> Result<Tasks, TextError>),
    Lines(fn(&str, &mut dyn BufRead) -> anyhow::Result<Tasks>),
}

/// Bytes of a file at most that is read whole. Recordings of one minute have some ten million.
const WHOLE: u64 = 512 << 20;

impl Format {
    /// Reads a file, of which `head` has been read already.
    fn read(&self, path: &str, mut head: Vec<u8>, rest: impl Read) -> anyhow::Result<Tasks> {
        let cannot = || library::cannot_read(path.as_ref());
        (self.check)(&head).map_err(|why| TextError::value(path, why))?;
        match self.reader {
            FormatReader::Bytes(read) => {
                self.append(rest, &mut head).with_context(cannot)?;
                Ok(read(path, head)?)
            }
            FormatReader::Lines(read) => {
                let mut lines = BufReader::new((&head[..]).chain(rest)).take(self.most + 1);
                let tasks = read(path, &mut lines)?;
                if lines.limit() == 0 {
                    return Err(self.too_large()).with_context(cannot);
                }
                Ok(tasks)
            }
        }
    }

    fn append(&self, rest: impl Read, bytes: &mut Vec<u8>) -> io::Result<()> {
        let left = self.most.saturating_sub(bytes.len() as u64);
        rest.take(left + 1).read_to_end(bytes)?;
        if bytes.len() as u64 > self.most {
            return Err(self.too_large());
        }
        Ok(())
    }

    fn too_large(&self) -> io::Error {
        read::refused(format!(
            "it is larger than a file of the format {} may be ({} bytes): record for a shorter time, or fewer events",
            self.name, self.most
        ))
    }
}

/// All supported formats, in the order of detection.
pub static FORMATS: [Format; 5] = [
    Format {
        name: "perf",
        what: "perf.data of `perf sched record` or `perf record --switch-events`",
        most: WHOLE,
        detects: perf_data::detects,
        check: perf_data::check,
        reader: FormatReader::Bytes(perf_data::read),
    },
    Format {
        name: "rt-app",
        what: "JSON of rt-app, or of its workgen",
        most: read::MOST_TEXT,
        detects: rt_app::detects,
        check: any_head,
        reader: FormatReader::Bytes(rt_app::read),
    },
    Format {
        name: "ftrace",
        what: "text of ftrace, `trace-cmd report` or `perf script` with sched_switch",
        most: read::MOST_RECORDING,
        detects: ftrace::detects,
        check: any_head,
        reader: FormatReader::Lines(ftrace::read),
    },
    Format {
        name: "trace-cmd",
        what: "trace.dat of `trace-cmd record`, version 6 or 7, with sched_switch",
        most: WHOLE,
        detects: trace_dat::detects,
        check: trace_dat::check,
        reader: FormatReader::Bytes(trace_dat::read),
    },
    Format {
        name: "perfetto",
        what: "Perfetto trace with sched_switch of linux.ftrace",
        most: WHOLE,
        detects: perfetto::detects,
        check: any_head,
        reader: FormatReader::Bytes(perfetto::read),
    },
];

/// Accepts every head, of formats without one.
fn any_head(_: &[u8]) -> Result<(), String> {
    Ok(())
}

/// Options that provide information missing in the file.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// Name of a [`Format`]; `None` to detect the format.
    pub format: Option<String>,
    /// Profile of every thread: the name of a shipped program, or a file.
    pub profile: String,
    /// Profiles of single threads, by thread name.
    pub profile_of: BTreeMap<String, String>,
    /// Millions of instructions that a thread executes per second of CPU time.
    pub mips: f64,
    /// Threshold: minimum fraction of all CPU time for a thread to be imported.
    pub min_share: f64,
}

impl Default for ImportOptions {
    fn default() -> Self {
        Self {
            format: None,
            profile: "mix".into(),
            profile_of: BTreeMap::new(),
            mips: 2000.0,
            min_share: 0.001,
        }
    }
}

/// Imported workload with warnings about it.
#[derive(Debug)]
pub struct ImportedWorkload {
    pub workload: Workload,
    /// Workload as the text of a TOML file.
    pub text: String,
    /// Sentences about omitted parts.
    pub warnings: Vec<String>,
}

/// Converts a stream into a workload; `path` is its name in errors. Only the head of a stream is read if its format is unknown.
///
/// # Errors
/// Fails if the stream has an unknown format, is too long or damaged, or has no thread that ran. Also fails if a profile does not
/// exist.
pub fn import(
    path: &str,
    stream: impl Read,
    options: &ImportOptions,
) -> anyhow::Result<ImportedWorkload> {
    let Tasks { tasks, warnings } = tasks(path, stream, options)?;
    let mut program = Vec::new();
    for task in tasks {
        program.push(task.program(options)?);
    }
    let workload = Workload {
        name: String::new(),
        title: format!("Threads that run and sleep as in {}", printable(path)),
        cgroup: Vec::new(),
        hotplug: Vec::new(),
        program,
    };
    let text = as_file(path, &workload, options)?;
    Workload::parse(path, &text).context("the workload that was made is not valid")?;
    Ok(ImportedWorkload {
        workload,
        text,
        warnings,
    })
}

/// Set of tasks for `vm/sets.c`, with warnings about it.
#[derive(Debug)]
pub struct TaskSet {
    /// Lines of the set.
    pub text: String,
    /// Sentences about omitted parts.
    pub warnings: Vec<String>,
}

/// Converts a stream into a set of tasks named `set`, which `vm/sets.c` runs under a kernel; `path` is the stream's name in errors.
///
/// # Errors
/// Fails with the errors of [`import`], and if there are too many tasks.
pub fn task_set(
    path: &str,
    stream: impl Read,
    options: &ImportOptions,
    set: &str,
) -> anyhow::Result<TaskSet> {
    let Tasks {
        tasks,
        mut warnings,
    } = tasks(path, stream, options)?;
    let text = task_set::lines(&tasks, set, &mut warnings);
    let text = text.map_err(|why| TextError::value(path, why))?;
    Ok(TaskSet { text, warnings })
}

/// Reads the tasks of a stream that have enough CPU time.
fn tasks(path: &str, mut stream: impl Read, options: &ImportOptions) -> anyhow::Result<Tasks> {
    let cannot = || library::cannot_read(path.as_ref());
    let mut bytes = Vec::new();
    let mut head = (&mut stream).take(HEAD);
    head.read_to_end(&mut bytes).with_context(cannot)?;
    let format = find(path, &bytes, options.format.as_deref())?;
    let read = format.read(path, bytes, stream)?;
    let mut warnings = read.warnings;
    let tasks = keep_large(read.tasks, options.min_share, &mut warnings);
    if tasks.is_empty() {
        let why = format!("no thread runs in this file ({})", format.what);
        return Err(TextError::value(path, why).into());
    }
    Ok(Tasks { tasks, warnings })
}

fn find(path: &str, bytes: &[u8], name: Option<&str>) -> anyhow::Result<&'static Format> {
    let found = match name {
        Some(name) => FORMATS.iter().find(|f| f.name == name),
        None => FORMATS.iter().find(|f| (f.detects)(bytes)),
    };
    found.ok_or_else(|| {
        let known: Vec<_> = FORMATS
            .iter()
            .map(|f| format!("{} ({})", f.name, f.what))
            .collect();
        let known = known.join("; ");
        match name {
            Some(name) => failure(
                FaultKind::Usage,
                format!("there is no format `{name}`; known are {known}"),
            ),
            None => {
                let looks = other::looks_like(bytes);
                let looks = looks.map_or_else(String::new, |it| format!("; {it}"));
                failure(
                    FaultKind::BadInput,
                    format!("{path} is not in a supported format{looks} (kinds are {known})"),
                )
            }
        }
    })
}

/// Returns the tasks with at least this fraction of all CPU time. Adds a warning about the others.
fn keep_large(
    tasks: Vec<ImportedTask>,
    min_share: f64,
    warnings: &mut Vec<String>,
) -> Vec<ImportedTask> {
    let time = |t: &ImportedTask| t.cpu_s * f64::from(t.copies);
    let all: f64 = tasks.iter().map(time).sum();
    let (large, small): (Vec<ImportedTask>, Vec<ImportedTask>) = tasks
        .into_iter()
        .partition(|t| t.cpu_s > 0.0 && time(t) >= min_share * all);
    let threads: u32 = small.iter().map(|t| t.copies).sum();
    if threads > 0 {
        let percent = 100.0 * small.iter().map(time).sum::<f64>() / all.max(f64::MIN_POSITIVE);
        warnings.push(format!(
            "{threads} threads with {percent:.2} % of the CPU time are left out (`--min-share` sets the smallest share)"
        ));
    }
    large
}

impl ImportedTask {
    fn program(self, options: &ImportOptions) -> anyhow::Result<WorkloadProgram> {
        let profile = options
            .profile_of
            .get(&self.name)
            .unwrap_or(&options.profile);
        let (path, instructions) = profile_named(profile)?;
        let scale = rounded(self.cpu_s * options.mips * 1e6 / instructions as f64);
        // Recordings have times in ns, and shorter runs and sleeps than workloads.
        let scale = scale.max(bounds::SCALE.least);
        let work_mi = scale * instructions as f64 / 1e6;
        let sleeps = self.sleeps > 0.0 && self.sleep_s > 0.0;
        let burst_mi = work_mi / (self.sleeps.round() + 1.0);
        Ok(WorkloadProgram {
            name: Some(printable(&self.name).into_owned()),
            profile: Some(path),
            threads: Some(1),
            copies: self.copies,
            nice: self.nice,
            start_s: rounded(self.start_s),
            burst_mi: sleeps.then(|| rounded_up(burst_mi).max(bounds::BURST.least)),
            sleep_ms: sleeps.then(|| rounded(self.sleep_s * 1e3).max(bounds::SLEEP.least)),
            launch_on: self.cpus,
            scale,
            ..WorkloadProgram::default()
        })
    }
}

/// Rounds a value to six digits; further digits are noise for human readers.
fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// Rounds a value up to six digits. Bursts that are too short by a digit have one more sleep between them.
fn rounded_up(value: f64) -> f64 {
    let step = 10_f64.powf(value.abs().max(f64::MIN_POSITIVE).log10().floor() - 5.0);
    let near = rounded(value);
    if near < value {
        rounded(near + step)
    } else {
        near
    }
}

/// Returns the path of a profile for the workload file, and the number of instructions of one run.
fn profile_named(name: &str) -> anyhow::Result<(String, u64)> {
    let shipped = format!("recorded/{name}.json");
    let (path, text) = match library::shipped_profile(&shipped) {
        Some(text) => (shipped, text),
        None => (name.to_owned(), read_profile(name)?),
    };
    let profile = Profile::parse(&text.path, &text.text)
        .map_err(|e| library::PROFILE.explain(&text, e.into()))?;
    Ok((path, profile.instructions()))
}

fn read_profile(name: &str) -> anyhow::Result<library::LibraryText> {
    if raw::path(name.as_ref()).is_file() {
        return library::read(name.as_ref());
    }
    Err(library::no_profile(name))
}

/// Returns the text of the workload file: an introduction, and the values that differ from a program's defaults.
///
/// # Errors
/// Fails if the text would be too long to be read.
fn as_file(path: &str, workload: &Workload, options: &ImportOptions) -> anyhow::Result<String> {
    let usual = toml::to_string(&WorkloadProgram::default())?;
    let usual: Vec<&str> = usual.lines().collect();
    let mut text = format!(
        "# The threads' instructions are unknown: profiles replace them, at {} million instructions per second of CPU time.\n\
         title = {}\n",
        options.mips,
        toml::Value::from(workload.title.as_str())
    );
    for program in &workload.program {
        if text.len() > MOST_TOML {
            let number = workload.program.len();
            let why = format!(
                "{number} programs are more than a workload file of {MOST_TOML} bytes holds: leave out small ones with --min-share"
            );
            return Err(TextError::value(path, why).into());
        }
        text.push_str("\n[[program]]\n");
        let lines = toml::to_string(program)?;
        for line in lines.lines().filter(|line| !usual.contains(line)) {
            text.push_str(line);
            text.push('\n');
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
