//! Lines between this program and a module.

use std::collections::BTreeMap;

use countersteer_model::counters::{Owner, Samples, SetPlan};
use serde::{Deserialize, Serialize};

/// First line of a module: its events and counters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Hello {
    /// Version of the protocol.
    module: u32,
    /// Event sets, as `-e` takes them.
    #[serde(default)]
    pub events: Vec<String>,
    pub counters: Vec<DeclaredCounter>,
}

/// Virtual counter that a module declares.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeclaredCounter {
    pub name: String,
    #[serde(default)]
    pub unit: String,
    #[serde(default)]
    pub prose: String,
    /// True if values are increases during the interval, which are added up; false for states.
    #[serde(default)]
    pub grows: bool,
}

/// Samples of one interval.
#[derive(Debug, Serialize)]
pub(crate) struct IntervalSamples<'a> {
    window: u64,
    rows: Vec<WireRow<'a>>,
}

#[derive(Debug, Serialize)]
struct WireRow<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<u32>,
    /// End of the sample in s since the start of counting.
    at_s: f64,
    /// Time for which the events were counted, in s.
    seconds: f64,
    /// True for the last sample of a thread that has ended.
    last: bool,
    counts: BTreeMap<&'a str, f64>,
}

/// Answer of a module to a window.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModuleAnswer {
    pub values: Vec<WireValue>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WireValue {
    pub counter: String,
    /// Thread of the value; without it, the value is that of the whole machine.
    pub tid: Option<u32>,
    pub value: f64,
}

const VERSION: u32 = 1;

impl Hello {
    pub fn parse(line: &str) -> Result<Self, String> {
        let hello: Self = serde_json::from_str(line)
            .map_err(|why| format!("its first line declares no counters: {why}"))?;
        if hello.module != VERSION {
            return Err(format!(
                "it speaks version {} of the protocol, and steer {VERSION}",
                hello.module
            ));
        }
        Ok(hello)
    }
}

impl<'a> IntervalSamples<'a> {
    pub fn of(window: u64, samples: &Samples, plan: &'a SetPlan) -> Self {
        let row = |(number, sample): (usize, &countersteer_model::counters::Sample)| {
            let (pid, tid) = match sample.owner {
                Owner::Thread { pid, tid } => (Some(pid), Some(tid)),
                Owner::Process { pid } => (Some(pid), None),
                _ => (None, None),
            };
            let events = plan
                .sets
                .get(sample.set as usize)
                .map_or(&[][..], |set| &set.events);
            let count =
                |(place, event): (usize, &'a countersteer_model::counters::PlannedEvent)| {
                    Some((&*event.name, samples.value(number, place)? * event.scale))
                };
            WireRow {
                pid,
                tid,
                cpu: sample.cpu.map(|cpu| cpu.0),
                at_s: sample.end.as_secs_f64(),
                seconds: sample.running.as_secs_f64(),
                last: sample.last,
                counts: events.iter().enumerate().filter_map(count).collect(),
            }
        };
        Self {
            window,
            rows: samples.rows().iter().enumerate().map(row).collect(),
        }
    }

    /// Returns the line with its end.
    pub fn line(&self) -> String {
        // Numbers and texts can always be written.
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }
}

impl ModuleAnswer {
    pub fn parse(line: &str) -> Result<Self, String> {
        serde_json::from_str(line).map_err(|why| format!("its answer has no values: {why}"))
    }
}
