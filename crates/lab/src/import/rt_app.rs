//! Import of task files of rt-app and of its workgen (comments, repeated keys).
//!
//! A task's phases are read once: `run` and `runtime` are CPU time, and `sleep` and `timer` end a burst. `suspend` lasts until
//! another task resumes the task. A program of a workload has one burst length and one sleep length, so those of a task are means
//! over its phases. Locks, signals and forks are not imported; a warning lists each omitted field.

mod dialect;
mod rates;

use std::collections::BTreeSet;

use countersteer_model::textfile::TextError;
use jsonc_parser::ast::{Object, ObjectProp, Value};
use jsonc_parser::common::Ranged;

use super::{ImportedTask, Tasks};
use rates::TaskPass;

const US: f64 = 1e-6;
/// Seconds that are imported of tasks without an end.
const ENDLESS_S: f64 = 10.0;
/// Limit on the bytes of a task file. The parsed file needs up to a hundred times the memory of its text.
const MOST_BYTES: usize = 1 << 20;
/// Fields of a task that are imported and are no events.
const OF_TASKS: [&str; 7] = [
    "instance", "loop", "delay", "phases", "policy", "priority", "cpus",
];
/// Fields of a phase that are imported and are no events.
const OF_PHASES: [&str; 1] = ["loop"];

pub fn detects(bytes: &[u8]) -> bool {
    let is_object = |text: &str| {
        let text = text.trim_start_matches('\u{feff}').trim_start();
        text.starts_with(['{', '/'])
    };
    let keys = ["tasks", "global", "resources"];
    // The head of a long file may end in the middle of a UTF-8 character.
    let whole = std::str::from_utf8(bytes).or_else(|e| match e.error_len() {
        None => std::str::from_utf8(&bytes[..e.valid_up_to()]),
        Some(_) => Err(e),
    });
    whole.is_ok_and(|text| is_object(text) && keys.iter().any(|key| text.contains(key)))
}

pub fn read(path: &str, bytes: Vec<u8>) -> Result<Tasks, TextError> {
    if bytes.len() > MOST_BYTES {
        let length = bytes.len();
        let why = format!("it has {length} bytes, and task files are read up to {MOST_BYTES}");
        return Err(TextError::value(path, why));
    }
    let text = std::str::from_utf8(&bytes)
        .map_err(|e| TextError::value(path, format!("this is not text: {e}")))?;
    let text = &*dialect::completed(text);
    let file = RtAppFile { path, text };
    let parsed = jsonc_parser::parse_to_ast(text, &Default::default(), &Default::default());
    let parsed = parsed
        .map_err(|e| TextError::at_offset(path, text, e.range().start, e.kind().to_string()))?;
    let Some(Value::Object(root)) = parsed.value else {
        return Err(TextError::value(path, "there is no object `{...}`"));
    };
    let tasks = file.object(&root, "tasks")?.ok_or_else(|| {
        let keys: Vec<&str> = root.properties.iter().map(|p| p.name.as_str()).collect();
        let why = format!(
            "there is no `tasks`, only `{}`: a fragment of a task file, to be joined with others by rt-app's merge.py",
            keys.join("`, `")
        );
        TextError::value(path, why)
    })?;
    let global = file.object(&root, "global")?;
    let duration_s = global
        .and_then(|g| number(g, "duration"))
        .filter(|d| *d > 0.0);
    let mut reader = RtAppReader {
        file,
        duration_s,
        not_kept: BTreeSet::new(),
        warnings: Vec::new(),
    };
    for prop in &root.properties {
        reader.account("", prop.name.as_str(), &["tasks", "global"]);
    }
    for prop in global.iter().flat_map(|g| &g.properties) {
        reader.account("global.", prop.name.as_str(), &["duration"]);
    }
    let mut known = Vec::new();
    for task in &tasks.properties {
        known.push(reader.task(task)?);
    }
    let passes: Vec<TaskPass> = known.iter().map(|task| task.pass.clone()).collect();
    let rates = rates::rates(&passes);
    let read = known.into_iter().zip(rates);
    let read: Vec<ImportedTask> = read
        .filter_map(|(task, passes_per_s)| reader.paced(task, passes_per_s))
        .collect();
    if !reader.not_kept.is_empty() {
        let events: Vec<_> = reader.not_kept.into_iter().collect();
        reader
            .warnings
            .push(format!("not kept: {}", events.join(", ")));
    }
    Ok(Tasks {
        tasks: read,
        warnings: reader.warnings,
    })
}

#[derive(Clone, Copy)]
struct RtAppFile<'a> {
    path: &'a str,
    text: &'a str,
}

impl RtAppFile<'_> {
    fn error(&self, at: &impl Ranged, why: impl Into<String>) -> TextError {
        TextError::at_offset(self.path, self.text, at.range().start, why)
    }

    fn object<'b, 'c>(
        &self,
        within: &'b Object<'c>,
        name: &str,
    ) -> Result<Option<&'b Object<'c>>, TextError> {
        let Some(prop) = within.properties.iter().find(|p| p.name.as_str() == name) else {
            return Ok(None);
        };
        let object = prop.value.as_object();
        object
            .map(Some)
            .ok_or_else(|| self.error(prop, format!("`{name}` is not an object")))
    }

    /// Converts a value in microseconds to seconds. Fails if it is no valid duration.
    fn us(&self, prop: &ObjectProp<'_>, value: Option<&Value<'_>>) -> Result<f64, TextError> {
        let us = value
            .and_then(number_of)
            .filter(|us| (0.0..1e15).contains(us));
        us.map(|us| us * US).ok_or_else(|| {
            let name = prop.name.as_str();
            self.error(prop, format!("`{name}` must be a number of microseconds"))
        })
    }
}

fn number_of(value: &Value<'_>) -> Option<f64> {
    value.as_number_lit()?.value.parse().ok()
}

fn number(object: &Object<'_>, name: &str) -> Option<f64> {
    let prop = object.properties.iter().find(|p| p.name.as_str() == name)?;
    number_of(&prop.value)
}

/// Task whose rate of being resumed is not yet known.
struct ResumedTask {
    name: String,
    loops: Option<f64>,
    copies: u32,
    start_s: f64,
    nice: i8,
    cpus: Option<String>,
    pass: TaskPass,
}

struct RtAppReader<'a> {
    file: RtAppFile<'a>,
    duration_s: Option<f64>,
    not_kept: BTreeSet<String>,
    warnings: Vec<String>,
}

impl RtAppReader<'_> {
    /// Records that a field was omitted, unless its name is in `kept`.
    fn account(&mut self, of: &str, name: &str, kept: &[&str]) {
        if !kept.contains(&name) {
            self.not_kept.insert(format!("`{of}{name}`"));
        }
    }

    fn task(&mut self, prop: &ObjectProp<'_>) -> Result<ResumedTask, TextError> {
        let name = prop.name.as_str();
        let Some(object) = prop.value.as_object() else {
            return Err(self
                .file
                .error(prop, format!("task `{name}` is not an object")));
        };
        let copies = number(object, "instance").unwrap_or(1.0);
        if !(0.0..=100_000.0).contains(&copies) {
            return Err(self
                .file
                .error(prop, format!("task `{name}` has {copies} instances")));
        }
        if let Some(exec) = object.properties.iter().find(|p| p.name.as_str() == "exec") {
            let why = format!(
                "task `{name}` has the old form of `exec` and `period`, which rt-app reads no longer: write `run` and `timer`"
            );
            return Err(self.file.error(exec, why));
        }
        let delay = object
            .properties
            .iter()
            .find(|p| p.name.as_str() == "delay");
        Ok(ResumedTask {
            name: name.to_owned(),
            loops: number(object, "loop").filter(|l| *l > 0.0),
            copies: copies as u32,
            start_s: delay.map_or(Ok(0.0), |d| self.file.us(d, Some(&d.value)))?,
            nice: self.nice(object),
            cpus: cpus(object),
            pass: self.passes(name, object)?,
        })
    }

    /// Returns the task at the rate at which others resume it; `None` if it has no thread.
    fn paced(&mut self, task: ResumedTask, passes_per_s: f64) -> Option<ImportedTask> {
        let is_resumed = passes_per_s > 0.0;
        let pass = if is_resumed {
            task.pass.paced(passes_per_s)
        } else {
            task.pass.clone()
        };
        let times = if is_resumed {
            self.times(&task, pass.length_s())
        } else {
            let name = &task.name;
            self.warnings.push(format!(
                "task `{name}` waits to be resumed, and no other task resumes it: one pass is kept"
            ));
            1.0
        };
        (task.copies > 0).then_some(ImportedTask {
            name: task.name,
            cpu_s: pass.run_s * times,
            // The last sleep of a run ends the run and is not counted.
            sleeps: (pass.sleeps * times - 1.0).max(0.0),
            sleep_s: pass.slept_s / pass.sleeps.max(1.0),
            start_s: task.start_s,
            copies: task.copies,
            nice: task.nice,
            cpus: task.cpus,
        })
    }

    /// Returns the sum of all phases of a task, each repeated as often as its `loop` states.
    fn passes(&mut self, name: &str, task: &Object<'_>) -> Result<TaskPass, TextError> {
        let Some(phases) = self.file.object(task, "phases")? else {
            return self.events(name, task, &OF_TASKS);
        };
        for prop in &task.properties {
            self.account("", prop.name.as_str(), &OF_TASKS);
        }
        let mut pass = TaskPass::default();
        for phase in &phases.properties {
            let label = phase.name.as_str();
            let Some(object) = phase.value.as_object() else {
                return Err(self
                    .file
                    .error(phase, format!("phase `{label}` is not an object")));
            };
            let loops = number(object, "loop").unwrap_or(1.0).max(1.0);
            pass.add(&self.events(name, object, &OF_PHASES)?, loops);
        }
        Ok(pass)
    }

    /// Returns the sum of the events of a task or a phase; `fields` are the names of its other fields.
    fn events(
        &mut self,
        task: &str,
        object: &Object<'_>,
        fields: &[&str],
    ) -> Result<TaskPass, TextError> {
        let mut pass = TaskPass::default();
        let mut since_timer_s = 0.0;
        for prop in &object.properties {
            let name = prop.name.as_str();
            // Strict JSON requires unique keys, so events may have numbers, as in `run0` or `run_1`.
            let event = name
                .trim_end_matches(|c: char| c.is_ascii_digit())
                .trim_end_matches('_');
            match event {
                "run" | "runtime" => {
                    let run_s = self.file.us(prop, Some(&prop.value))?;
                    pass.run_s += run_s;
                    since_timer_s += run_s;
                }
                "sleep" => {
                    let slept_s = self.file.us(prop, Some(&prop.value))?;
                    pass.sleeps += 1.0;
                    pass.slept_s += slept_s;
                    since_timer_s += slept_s;
                }
                "timer" => {
                    let period_s = self.timer(prop)?;
                    pass.sleeps += 1.0;
                    pass.slept_s += (period_s - since_timer_s).max(0.0);
                    since_timer_s = 0.0;
                }
                // A wait or resume without a name has the task's name.
                "suspend" | "resume" => {
                    let named = prop.value.as_string_lit().map(|s| s.value.to_string());
                    let named = named.unwrap_or_else(|| task.to_owned());
                    let of = if event == "suspend" {
                        &mut pass.waits
                    } else {
                        &mut pass.resumes
                    };
                    *of.entry(named).or_default() += 1.0;
                }
                _ if fields.contains(&name) => {}
                _ => drop(self.not_kept.insert(format!("`{event}`"))),
            }
        }
        Ok(pass)
    }

    /// Returns the period of a timer, in seconds.
    fn timer(&mut self, prop: &ObjectProp<'_>) -> Result<f64, TextError> {
        let fields = prop.value.as_object();
        let fields = || fields.iter().flat_map(|timer| &timer.properties);
        for field in fields() {
            self.account("timer.", field.name.as_str(), &["period"]);
        }
        let period = fields().find(|p| p.name.as_str() == "period");
        self.file.us(prop, period.map(|p| &p.value))
    }

    /// Returns the number of passes through a task's phases, limited by the total duration.
    fn times(&mut self, task: &ResumedTask, length_s: f64) -> f64 {
        let until = self
            .duration_s
            .map(|d| ((d - task.start_s) / length_s).max(0.0));
        match (task.loops, until) {
            (Some(loops), Some(until)) => loops.min(until),
            (Some(times), None) | (None, Some(times)) => times,
            (None, None) => {
                let name = &task.name;
                self.warnings.push(format!(
                    "task `{name}` has no end: its first {ENDLESS_S} s are kept"
                ));
                ENDLESS_S / length_s
            }
        }
    }

    fn nice(&mut self, object: &Object<'_>) -> i8 {
        let policy = object
            .properties
            .iter()
            .find(|p| p.name.as_str() == "policy");
        let policy = policy
            .and_then(|p| p.value.as_string_lit())
            .map(|p| p.value.to_string());
        match policy.as_deref() {
            None | Some("SCHED_OTHER") => {
                number(object, "priority").unwrap_or(0.0).clamp(-20.0, 19.0) as i8
            }
            Some(other) => {
                self.not_kept.insert(format!("policy {other}"));
                0
            }
        }
    }
}

/// Returns the CPUs of a task as a list: `[0, 2]` becomes `0,2`. `None` if there are none.
fn cpus(object: &Object<'_>) -> Option<String> {
    let prop = object
        .properties
        .iter()
        .find(|p| p.name.as_str() == "cpus")?;
    let cpus: Option<Vec<String>> = prop
        .value
        .as_array()?
        .elements
        .iter()
        .map(|e| Some(number_of(e)?.to_string()))
        .collect();
    cpus.filter(|c| !c.is_empty()).map(|c| c.join(","))
}
