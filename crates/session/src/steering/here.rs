//! The local machine: its topology, and the counters for a policy's metrics.
//!
//! Input: a machine with its file, and the local PMUs. Output: policies for the machine, and event sets that its PMUs can
//! count.

use std::path::Path;
use std::sync::Arc;

use countersteer_counters::resolve;
use countersteer_counters::{Encoding, EventProbe, Pmus, Resolved, fit_together, probe};
use countersteer_live::VirtualCounters;
use countersteer_live::placer::{CounterPlan, Recount};
use countersteer_model::counters::{PlannedSet, SetPlan, divide, parse_set};
use countersteer_model::cpunumbers::CpuNumbers;
use countersteer_model::events::{Event, EventOrigin};
use countersteer_model::machine::Machine;
use countersteer_model::metric::{events_on_any, groups_on_any};
use countersteer_model::policy::Policy;
use countersteer_model::topology::Topology;
use countersteer_model::units::Nanos;
use countersteer_policies::reach;

use super::error::SteeringError;

/// Machine on which threads are steered.
pub struct SteeredMachine {
    /// Description of the machine.
    pub machine: Machine,
    /// Description of the machine as the text of a machine file.
    pub text: String,
    pub topology: Arc<Topology>,
    /// Kernel's numbers of the machine's CPUs.
    pub numbers: CpuNumbers,
    pub pmus: Pmus,
}

pub struct PolicyCounters {
    /// Event sets and their multiplexing plan; `None` if not even `task_clock` can be counted.
    pub sets: Option<CounterPlan>,
    /// Names of the events that the policy needs but this machine cannot count.
    pub missing: Vec<&'static str>,
}

/// Creates a policy that a real machine can follow.
///
/// # Errors
/// The policy does not exist, or only a simulator can run it.
pub fn usable(spec: &str, topology: &Arc<Topology>) -> anyhow::Result<Box<dyn Policy>> {
    let policy = countersteer_policies::parse(spec, topology)?;
    let named = || spec.to_owned();
    if reach::simulator_only(spec) {
        return Err(SteeringError::BoundPolicy { policy: named() }.into());
    }
    if let Some(what) = reach::lacking(spec) {
        let policy = named();
        return Err(SteeringError::UnavailablePolicy { policy, what }.into());
    }
    Ok(policy)
}

impl SteeredMachine {
    /// Combines a machine, the text of its file, and the local PMUs.
    ///
    /// # Errors
    /// The machine has a CPU that is not online here.
    pub fn new(machine: Machine, text: String, pmus: Pmus) -> Result<Self, SteeringError> {
        let os = machine.os_cpu_numbers();
        if let Some(cpu) = os.iter().find(|cpu| !pmus.online.contains(**cpu)) {
            return Err(SteeringError::OtherMachine {
                machine: machine.name,
                cpu: cpu.0,
                online: pmus.online,
            });
        }
        Ok(Self {
            topology: Arc::new(Topology::new(&machine)),
            machine,
            text,
            numbers: CpuNumbers::new(os),
            pmus,
        })
    }

    /// Creates a policy for this machine; prints a warning if the policy has no effect here.
    ///
    /// # Errors
    /// The policy does not exist, or only a simulator can run it.
    pub fn policy(&self, spec: &str) -> anyhow::Result<Box<dyn Policy>> {
        let policy = usable(spec, &self.topology)?;
        if let Some(why) = reach::idle_on(spec, &self.topology) {
            say!(
                "{spec} has no CPUs to distinguish on this machine: {why}; Linux chooses among the CPUs that threads may use"
            );
        }
        for why in reach::unmet(spec, &self.topology) {
            say!("{spec} is not made for this machine: {why}");
        }
        Ok(policy)
    }

    /// Plans event sets for a policy's metrics, and for the events that measure the progress of threads.
    pub fn counters(&self, policy: &dyn Policy, period: Nanos) -> anyhow::Result<PolicyCounters> {
        counters(&self.pmus, &self.topology, &policy.needs().metrics, period)
    }

    /// Returns a planner that chooses the event sets again when the policy or the sampling interval changes.
    pub fn recount(&self, policy: &dyn Policy, period: Nanos) -> Box<dyn Recount> {
        let known = counters(&self.pmus, &self.topology, &policy.needs().metrics, period).ok();
        let (counted, missing) = known.map(|c| (c.names(), c.missing)).unwrap_or_default();
        Box::new(Recounting {
            pmus: self.pmus.clone(),
            topology: Arc::clone(&self.topology),
            counted,
            missing,
            period,
        })
    }
}

impl PolicyCounters {
    fn names(&self) -> Vec<String> {
        self.sets
            .iter()
            .flat_map(|(sets, _)| sets.iter().flatten())
            .map(|e| e.planned.name.clone())
            .collect()
    }

    pub fn tell(&self, whose: &str) {
        if !self.missing.is_empty() {
            let missing = self.missing.join(", ");
            say!(
                "{whose} needs events that this machine does not count: {missing}; see `steer doctor`"
            );
        }
    }
}

/// Planner that chooses event sets again during a run.
struct Recounting {
    pmus: Pmus,
    topology: Arc<Topology>,
    /// Names of the events that are counted now.
    counted: Vec<String>,
    /// Names of the missing events in the last warning.
    missing: Vec<&'static str>,
    period: Nanos,
}

impl Recount for Recounting {
    fn counters(&mut self, metrics: &[&'static str], period: Nanos) -> Option<CounterPlan> {
        let wanted = counters(&self.pmus, &self.topology, metrics, period).ok()?;
        if wanted.missing != self.missing {
            wanted.tell("the new policy");
            self.missing.clone_from(&wanted.missing);
        }
        let names = wanted.names();
        if (&names, period) == (&self.counted, self.period) {
            return None;
        }
        (self.counted, self.period) = (names, period);
        wanted.sets
    }

    fn failed(&mut self, why: &str) {
        say!("the events of the new policy are not counted: {why}");
    }
}

/// Events that measure a thread's progress; every multiplexed set contains them.
const BASE: [Event; 2] = [Event::Instructions, Event::Cycles];

/// Plans event sets for these metrics and for progress: one set if this machine can count all events at once.
fn counters(
    pmus: &Pmus,
    topology: &Topology,
    metrics: &[&str],
    period: Nanos,
) -> anyhow::Result<PolicyCounters> {
    let read = events_on_any(topology, metrics);
    let together = groups_on_any(topology, metrics);
    let wanted = BASE.iter().chain(read.iter().filter(|e| !BASE.contains(e)));
    let mut base = Vec::new();
    let mut others = Vec::new();
    let mut missing = Vec::new();
    for event in wanted.copied() {
        let found = match event.def().source {
            EventOrigin::Kernel { .. } | EventOrigin::Processor(_) => find(pmus, event.def().name),
            EventOrigin::Virtual { .. }
                if VirtualCounters::offers(Path::new("/"), event).is_ok() =>
            {
                continue;
            }
            EventOrigin::Virtual { .. } | EventOrigin::Program | EventOrigin::Simulator => None,
        };
        match found {
            Some(found) if BASE.contains(&event) => base.push(found),
            Some(found) => others.push(found),
            // Programs report their work themselves, so no counter is missing.
            None if event == Event::Work => {}
            None if read.contains(&event) => missing.push(event.def().name),
            None => {}
        }
    }
    if base.is_empty() && others.is_empty() {
        base.extend(find(pmus, "task_clock"));
    }
    if base.is_empty() && others.is_empty() {
        return Ok(PolicyCounters {
            sets: None,
            missing,
        });
    }
    let (sets, left_out) = divide(&base, &grouped(&others, &together), fit_together);
    let left_out = |event: &&Event| {
        left_out
            .iter()
            .any(|e: &Resolved| e.planned.event == Some(**event))
    };
    missing.extend(read.iter().filter(left_out).map(|event| event.def().name));
    let planned = |set: &Vec<Resolved>| PlannedSet {
        events: set.iter().map(|e| e.planned.clone()).collect(),
    };
    let plan = SetPlan::new(sets.iter().map(planned).collect(), Some(period))?;
    Ok(PolicyCounters {
        sets: Some((sets, plan)),
        missing,
    })
}

/// Returns the events of each metric that this machine can count.
fn grouped(found: &[Resolved], together: &[Vec<Event>]) -> Vec<Vec<Resolved>> {
    let of_event = |event: &Event| {
        let mut all = found.iter();
        all.find(|e| e.planned.event == Some(*event)).cloned()
    };
    let group = |events: &Vec<Event>| events.iter().filter_map(of_event).collect();
    together.iter().map(group).collect()
}

/// Finds an event by name; returns `None` if no PMU can count it. A PMU may name an event that it cannot count.
fn find(pmus: &Pmus, name: &str) -> Option<Resolved> {
    let specs = parse_set(name).ok()?;
    let found = resolve(name, &specs, pmus).ok()?.pop()?;
    let counts = |e: &Encoding| {
        matches!(
            probe(e.kind, e.config[0]),
            EventProbe::Counts | EventProbe::UserOnly
        )
    };
    found.encodings.iter().any(counts).then_some(found)
}
