//! Monitoring modules: programs of the user that compute virtual counters from the counts of each interval.
//!
//! Input: the samples of an interval. Output: values of the counters that a module declared. A module is a child process. It reads
//! and writes lines of JSON, which docs/counters.md describes. A module that ends, is late, or sends anything else than it declared
//! is stopped with a message, and counting goes on.

pub mod declared;
mod process;
mod wire;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use countersteer_cache::signature::store::own_data;
use countersteer_counters::Pmus;
use countersteer_model::counters::{Owner, Samples, SetPlan};
use countersteer_sysfs::sensors::{
    Provider, ProviderDef, SensorColumn, SensorPlace, SensorValue, ValueKind as Growth,
};
use countersteer_sysfs::unavailable::Unavailable;

use crate::counted;
use crate::derivable::derivable;
use declared::{column_of, declare};
use process::RunningModule;
use wire::{Hello, IntervalSamples, ModuleAnswer};

/// Running modules.
#[derive(Default)]
pub struct Modules {
    running: Vec<Module>,
    plan: Option<SetPlan>,
    windows: u64,
    complaints: Vec<String>,
}

struct Module {
    name: String,
    process: RunningModule,
    events: Vec<String>,
    counters: &'static [SensorColumn],
    /// Threads of the samples that the module got, without those that have ended.
    threads: HashSet<u32>,
}

impl Modules {
    /// Starts modules, and adds their events and counters to the requested ones. A module that does not start as it should is left
    /// out with a notice.
    pub fn start(
        names: &[PathBuf],
        events: &mut Vec<String>,
        virtuals: &mut Vec<String>,
        pmus: &Pmus,
    ) -> Self {
        let mut modules = Self::default();
        for name in names {
            match Module::start(name, pmus) {
                Ok(module) => {
                    events.extend(module.events.iter().cloned());
                    virtuals.extend(module.counters.iter().map(|c| c.name.to_owned()));
                    modules.running.push(module);
                }
                Err(why) => say!("{}", stopped(&name.to_string_lossy(), &why)),
            }
        }
        modules
    }

    /// Sets the event sets whose counts the modules get.
    pub fn plan(mut self, plan: &SetPlan) -> Self {
        self.plan = Some(plan.clone());
        self
    }

    pub const fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Passes an interval to the modules and appends their values. Waits for each module, up to a limit.
    pub fn read(&mut self, samples: &Samples, into: &mut Vec<SensorValue>) {
        let Some(plan) = self.plan.as_ref().filter(|_| !self.running.is_empty()) else {
            return;
        };
        let window = IntervalSamples::of(self.windows, samples, plan);
        self.windows += 1;
        let line = window.line();
        let complaints = &mut self.complaints;
        self.running.retain_mut(|module| {
            let read = module.read(&line, samples, into);
            complaints.extend(read.as_ref().err().map(|why| stopped(&module.name, why)));
            read.is_ok()
        });
    }

    /// Returns the next message about a stopped module; `None` if there is none.
    pub fn complaint(&mut self) -> Option<String> {
        self.complaints.pop()
    }
}

fn stopped(name: &str, why: &str) -> String {
    format!("module {name} is stopped: {why}; counting goes on without it")
}

/// Returns the program of a module: a path, or a name in the folder of modules.
fn find(name: &Path) -> Result<PathBuf, String> {
    if name.components().count() > 1 {
        return Ok(name.to_owned());
    }
    let Some(data) = own_data() else {
        return Err("HOME is not set: give a path, as in ./module".into());
    };
    let folder = data.join("countersteer/modules");
    let file = folder.join(name);
    if file.is_file() {
        return Ok(file);
    }
    let folder = folder.display();
    Err(format!(
        "{folder} has no such file: put it there, or give a path, as in ./{}",
        name.display()
    ))
}

impl Module {
    fn start(given: &Path, pmus: &Pmus) -> Result<Self, String> {
        let file = find(given)?;
        let mut process = RunningModule::start(&file)?;
        let hello = Hello::parse(&process.hello()?)?;
        for set in &hello.events {
            counted::events(set, pmus).map_err(|why| format!("its events `{set}`: {why}"))?;
        }
        let columns: Vec<SensorColumn> = hello
            .counters
            .iter()
            .map(column)
            .collect::<Result<_, _>>()?;
        let mut names: HashSet<&str> = HashSet::new();
        for column in &columns {
            if column_of(column.name).is_some()
                || derivable(column.name).is_some()
                || !names.insert(column.name)
            {
                return Err(format!(
                    "there is a virtual counter `{}` already",
                    column.name
                ));
            }
        }
        // Counters live as long as this process, as those of the table do.
        let counters: &'static [SensorColumn] = columns.leak();
        let name = given.display().to_string();
        declare(ProviderDef {
            name: name.clone().leak(),
            by_thread: true,
            prose: "monitoring module",
            columns: counters,
            open: |_| {
                Err::<Box<dyn Provider>, _>(Unavailable::new(
                    "a module is no part of the machine",
                    "use --module",
                ))
            },
        });
        Ok(Self {
            name,
            process,
            events: hello.events,
            counters,
            threads: HashSet::new(),
        })
    }

    fn read(
        &mut self,
        line: &str,
        samples: &Samples,
        into: &mut Vec<SensorValue>,
    ) -> Result<(), String> {
        let answer = ModuleAnswer::parse(&self.process.ask(line)?)?;
        let mut ended = Vec::new();
        for row in samples.rows() {
            if let Owner::Thread { tid, .. } = row.owner {
                self.threads.insert(tid);
                ended.extend(row.last.then_some(tid));
            }
        }
        let first = into.len();
        for value in answer.values {
            let column = self.counters.iter().find(|c| c.name == value.counter);
            let known = value.tid.is_none_or(|tid| self.threads.contains(&tid));
            let (Some(column), true, true) = (column, known, value.value.is_finite()) else {
                into.truncate(first);
                return Err(match (column, value.tid) {
                    (None, _) => format!("it did not declare the counter `{}`", value.counter),
                    (_, Some(tid)) if !known => format!("it got no sample of a thread {tid}"),
                    _ => format!("a value of `{}` is no number", value.counter),
                });
            };
            into.push(SensorValue {
                column: *column,
                place: value.tid.map_or(SensorPlace::Machine, SensorPlace::Thread),
                value: value.value,
            });
        }
        self.threads.retain(|tid| !ended.contains(tid));
        Ok(())
    }
}

fn column(counter: &wire::DeclaredCounter) -> Result<SensorColumn, String> {
    let name = &counter.name;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(plain) {
        return Err(format!(
            "`{name}` is no name of a counter: use a-z, 0-9 and _"
        ));
    }
    Ok(SensorColumn {
        name: name.clone().leak(),
        unit: counter.unit.clone().leak(),
        kind: if counter.grows {
            Growth::Since
        } else {
            Growth::Level
        },
        prose: counter.prose.clone().leak(),
    })
}
