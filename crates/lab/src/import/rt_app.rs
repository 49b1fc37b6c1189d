//! Task files of rt-app, and of its workgen (comments, repeated keys).
//!
//! A task's phases are gone through once: `run` and `runtime` are CPU time, `sleep` and `timer` end a burst. A workload's program has
//! one length of bursts and one of sleeps, so a task's are means over its phases. Locks, signals and forks are not kept.

use std::collections::BTreeSet;

use countersteer_model::textfile::TextError;
use jsonc_parser::ast::{Object, ObjectProp, Value};
use jsonc_parser::common::Ranged;

use super::{Task, Tasks};

const US: f64 = 1e-6;
/// How long tasks run that have no end of their own.
const ENDLESS_S: f64 = 10.0;
/// What a task may have that is no event.
const PROPERTIES: [&str; 20] = [
    "instance",
    "loop",
    "delay",
    "phases",
    "policy",
    "priority",
    "cpus",
    "util_min",
    "util_max",
    "taskgroup",
    "dl-runtime",
    "dl-period",
    "dl-deadline",
    "membind_nodes",
    "nodes_membind",
    "deadline",
    "period",
    "yield",
    "mem_buffer_size",
    "cumulative_slack",
];

pub fn detects(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| text.contains("\"tasks\"") && text.contains('{'))
}

pub fn read(path: &str, bytes: Vec<u8>) -> Result<Tasks, TextError> {
    let text = std::str::from_utf8(&bytes)
        .map_err(|e| TextError::value(path, format!("this is no text: {e}")))?;
    let file = File { path, text };
    let parsed = jsonc_parser::parse_to_ast(text, &Default::default(), &Default::default());
    let parsed = parsed
        .map_err(|e| TextError::at_offset(path, text, e.range().start, e.kind().to_string()))?;
    let Some(Value::Object(root)) = parsed.value else {
        return Err(TextError::value(path, "there is no object `{...}`"));
    };
    let tasks = file
        .object(&root, "tasks")?
        .ok_or_else(|| TextError::value(path, "there is no `tasks`"))?;
    let global = file.object(&root, "global")?;
    let duration_s = global
        .and_then(|g| number(g, "duration"))
        .filter(|d| *d > 0.0);
    let mut reader = Reader {
        file,
        duration_s,
        not_kept: BTreeSet::new(),
        warnings: Vec::new(),
    };
    let mut read = Vec::new();
    for task in &tasks.properties {
        read.extend(reader.task(task)?);
    }
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
struct File<'a> {
    path: &'a str,
    text: &'a str,
}

impl File<'_> {
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
            .ok_or_else(|| self.error(prop, format!("`{name}` is no object")))
    }

    /// A length of time: what it is in seconds.
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

/// CPU time and sleeps of one pass.
#[derive(Clone, Copy, Debug, Default)]
struct Pass {
    run_s: f64,
    sleeps: f64,
    slept_s: f64,
}

impl Pass {
    fn add(&mut self, other: Self, times: f64) {
        self.run_s += other.run_s * times;
        self.sleeps += other.sleeps * times;
        self.slept_s += other.slept_s * times;
    }
}

struct Reader<'a> {
    file: File<'a>,
    duration_s: Option<f64>,
    not_kept: BTreeSet<String>,
    warnings: Vec<String>,
}

impl Reader<'_> {
    /// A task; none where it is to have no thread.
    fn task(&mut self, prop: &ObjectProp<'_>) -> Result<Option<Task>, TextError> {
        let name = prop.name.as_str();
        let Some(object) = prop.value.as_object() else {
            return Err(self.file.error(prop, format!("task `{name}` is no object")));
        };
        let copies = number(object, "instance").unwrap_or(1.0);
        if !(0.0..=100_000.0).contains(&copies) {
            return Err(self
                .file
                .error(prop, format!("task `{name}` has {copies} instances")));
        }
        let pass = self.passes(object)?;
        let delay = object
            .properties
            .iter()
            .find(|p| p.name.as_str() == "delay");
        let start_s = delay.map_or(Ok(0.0), |d| self.file.us(d, Some(&d.value)))?;
        let times = self.times(name, object, pass, start_s);
        let task = Task {
            name: name.to_owned(),
            cpu_s: pass.run_s * times,
            // The last sleep of a run ends it and does not count.
            sleeps: (pass.sleeps * times - 1.0).max(0.0),
            sleep_s: pass.slept_s / pass.sleeps.max(1.0),
            start_s,
            copies: copies as u32,
            nice: self.nice(object),
            cpus: cpus(object),
        };
        Ok((task.copies > 0).then_some(task))
    }

    /// All phases of a task, each as often as it loops.
    fn passes(&mut self, task: &Object<'_>) -> Result<Pass, TextError> {
        let Some(phases) = self.file.object(task, "phases")? else {
            return self.events(task);
        };
        let mut pass = Pass::default();
        for phase in &phases.properties {
            let name = phase.name.as_str();
            let Some(object) = phase.value.as_object() else {
                return Err(self
                    .file
                    .error(phase, format!("phase `{name}` is no object")));
            };
            let loops = number(object, "loop").unwrap_or(1.0).max(1.0);
            pass.add(self.events(object)?, loops);
        }
        Ok(pass)
    }

    fn events(&mut self, object: &Object<'_>) -> Result<Pass, TextError> {
        let mut pass = Pass::default();
        let mut since_timer_s = 0.0;
        for prop in &object.properties {
            let name = prop.name.as_str();
            // Keys are unique in strict JSON: `run0`, `run_1`.
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
                    let timer = prop.value.as_object();
                    let period = timer
                        .and_then(|t| t.properties.iter().find(|p| p.name.as_str() == "period"));
                    let period_s = self.file.us(prop, period.map(|p| &p.value))?;
                    pass.sleeps += 1.0;
                    pass.slept_s += (period_s - since_timer_s).max(0.0);
                    since_timer_s = 0.0;
                }
                _ if PROPERTIES.contains(&name) => {}
                _ => {
                    self.not_kept.insert(format!("`{event}`"));
                }
            }
        }
        Ok(pass)
    }

    /// How often a task goes through its phases: as it says, and not beyond the end of the whole.
    fn times(&mut self, name: &str, object: &Object<'_>, pass: Pass, start_s: f64) -> f64 {
        let loops = number(object, "loop").filter(|l| *l > 0.0);
        let length_s = (pass.run_s + pass.slept_s).max(US);
        let until = self.duration_s.map(|d| ((d - start_s) / length_s).max(0.0));
        match (loops, until) {
            (Some(loops), Some(until)) => loops.min(until),
            (Some(times), None) | (None, Some(times)) => times,
            (None, None) => {
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

/// `[0, 2]` as `0,2`.
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
