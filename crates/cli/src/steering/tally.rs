//! The tally: who ran how long on which core type, what was moved, and what the policy's own figures make of it.
//!
//! Input: the driver's observations and decisions. Output: a summary, and the outcome for a record.

use std::collections::BTreeMap;
use std::sync::Arc;

use countersteer_core::driver::Recorder;
use countersteer_core::engine::{Applied, Observation, ThreadEventKind};
use countersteer_core::metric::MetricBank;
use countersteer_core::placement::{Placement, Target};
use countersteer_core::sample::Event;
use countersteer_core::score::{Outcome, ProgramOutcome};
use countersteer_core::topology::Topology;
use countersteer_core::units::{Nanos, ThreadId};
use countersteer_host::live::Member;
use countersteer_report::record::Collector;
use serde::Serialize;

/// What a program did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ProgramTally {
    /// Its name.
    pub name: String,
    /// Threads that it had in all.
    pub threads: u64,
    /// CPU time by core type, fastest first.
    pub cpu_s: Vec<f64>,
    /// Instructions, where they are counted.
    pub instructions: f64,
    /// Cycles, likewise.
    pub cycles: f64,
    /// How long it took, if it ended.
    pub elapsed_s: Option<f64>,
    /// Its exit code, as a shell would tell it.
    pub exit_code: Option<i32>,
}

/// What was done.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// Programs in the workload's order.
    pub programs: Vec<ProgramTally>,
    /// Threads that lived for less than a period, all together.
    pub short_lived: Option<ProgramTally>,
    /// Names of the columns of `cpu_s`.
    pub core_types: Vec<String>,
    /// How long it took.
    pub elapsed_s: f64,
    /// Decisions.
    pub decisions: u64,
    /// Threads that were confined anew, summed over decisions.
    pub changed: u64,
    /// Threads that could not be.
    pub refused: u64,
    /// Moves between CPUs that were seen.
    pub migrations: u64,
    /// Samples of threads outside of what they were last told, and all samples of threads that were told.
    pub misplaced: (u64, u64),
    /// By how much faster threads would be where the policy wants them than where they are, by its speed-up factors.
    pub predicted_gain: Option<f64>,
}

/// Stands in the place of a program.
const SHORT_LIVED: &str = "(short-lived)";

/// Takes a line of what is decided.
pub type Tell = Box<dyn FnMut(&str)>;

/// Keeps count, and passes everything on to a record.
pub struct Tally {
    pub collector: Option<Collector>,
    summary: Summary,
    /// Row of `programs` by the program's number.
    rows: BTreeMap<u32, usize>,
    program_of: BTreeMap<ThreadId, u32>,
    wanted: BTreeMap<ThreadId, Target>,
    /// Speeds where threads are and where they are wanted, summed.
    speeds: (f64, f64),
    /// Says each change as it happens.
    tell: Option<Tell>,
    names: BTreeMap<ThreadId, Arc<str>>,
}

impl Tally {
    /// A tally on a machine; `tell` gets a line for each thread that is placed.
    pub fn new(topology: &Topology, collector: Option<Collector>, tell: Option<Tell>) -> Self {
        let core_types = topology.core_types.iter().map(|t| t.name.clone()).collect();
        let summary = Summary { core_types, ..Summary::default() };
        let (rows, program_of, wanted, names) = Default::default();
        Self { collector, summary, rows, program_of, wanted, speeds: (0.0, 0.0), tell, names }
    }

    /// The summary, with how the crew ended.
    pub fn finish(self, members: &[Member], elapsed: Nanos) -> (Summary, Outcome, Option<Collector>) {
        let mut summary = self.summary;
        summary.elapsed_s = elapsed.as_secs_f64();
        let (here, there) = self.speeds;
        summary.predicted_gain = (here > 0.0).then(|| there / here - 1.0);
        for member in members {
            let Some(program) = summary.programs.iter_mut().find(|p| p.name == *member.name) else { continue };
            if let (Some(started), Some((ended, ending))) = (member.started, member.ended) {
                program.elapsed_s = Some(ended.since(started).as_secs_f64());
                program.exit_code = ending.map(|e| e.code());
            }
        }
        let programs = summary.programs.iter().map(|p| ProgramOutcome {
            name: p.name.clone(),
            completions_s: p.elapsed_s.into_iter().collect(),
            alone_fast_s: 0.0,
            alone_slow_s: 0.0,
            instructions: p.instructions,
            cycles: p.cycles,
        });
        let outcome = Outcome {
            programs: programs.collect(),
            elapsed_s: summary.elapsed_s,
            energy_j: 0.0,
            migrations: summary.migrations,
            switches: 0,
        };
        (summary, outcome, self.collector)
    }

    fn program(&mut self, thread: ThreadId) -> Option<&mut ProgramTally> {
        let row = *self.rows.get(self.program_of.get(&thread)?)?;
        self.summary.programs.get_mut(row)
    }

    /// Threads that were born and ended between two observations: whose they were is not known any more.
    fn short_lived(&mut self) -> &mut ProgramTally {
        let types = self.summary.core_types.len();
        let none = || ProgramTally { name: SHORT_LIVED.into(), cpu_s: vec![0.0; types], ..ProgramTally::default() };
        self.summary.short_lived.get_or_insert_with(none)
    }

    fn meet(&mut self, observation: &Observation) {
        for info in &observation.threads {
            if self.program_of.insert(info.id, info.program.0).is_some() {
                continue;
            }
            self.names.insert(info.id, Arc::clone(&info.name));
            let (programs, types) = (&mut self.summary.programs, self.summary.core_types.len());
            let row = *self.rows.entry(info.program.0).or_insert_with(|| {
                let name = info.name.to_string();
                programs.push(ProgramTally { name, cpu_s: vec![0.0; types], ..ProgramTally::default() });
                programs.len() - 1
            });
            programs[row].threads += 1;
        }
    }

    fn count(&mut self, topology: &Topology, observation: &Observation) {
        for sample in &observation.samples {
            let time = sample.enabled.max(sample.running).as_secs_f64();
            if let Some(target) = self.wanted.get(&sample.thread) {
                let there = target.cpus(topology).contains(sample.cpu);
                self.summary.misplaced.0 += u64::from(!there);
                self.summary.misplaced.1 += 1;
            }
            let short_lived = !self.program_of.contains_key(&sample.thread);
            let program = if short_lived { Some(self.short_lived()) } else { self.program(sample.thread) };
            if let Some(program) = program {
                program.cpu_s[sample.core_type.index()] += time;
                program.instructions += sample.counts.get(Event::Instructions).unwrap_or(0.0);
                program.cycles += sample.counts.get(Event::Cycles).unwrap_or(0.0);
            }
        }
        for event in &observation.events {
            match event.kind {
                ThreadEventKind::Migrate { .. } => self.summary.migrations += 1,
                ThreadEventKind::New if !self.program_of.contains_key(&event.thread) => self.short_lived().threads += 1,
                ThreadEventKind::Exit => {
                    self.program_of.remove(&event.thread);
                    self.wanted.remove(&event.thread);
                    self.names.remove(&event.thread);
                }
                _ => {}
            }
        }
    }

    /// Speeds of running threads where they are, and where the policy wants them, by their speed-up factors.
    fn predict(&mut self, topology: &Topology, observation: &Observation, metrics: &MetricBank) {
        let (fast, slow) = topology.extremes();
        let sf = metrics.names().iter().position(|n| n.starts_with("sf"));
        let Some(sf) = sf.filter(|_| fast != slow) else { return };
        for info in observation.threads.iter().filter(|t| t.runnable) {
            let value = metrics.row(info.id).and_then(|row| row.get(sf).copied().flatten());
            let (Some(sf), Some(target)) = (value, self.wanted.get(&info.id)) else { continue };
            let cpus = target.cpus(topology);
            let share = |cpu| f64::from(u8::from(topology.core_type_of(cpu) == fast));
            let wanted = cpus.iter().map(share).sum::<f64>() / cpus.len().max(1) as f64;
            let speed = |fast: f64| fast.mul_add(sf - 1.0, 1.0);
            self.speeds.0 += speed(share(info.cpu));
            self.speeds.1 += speed(wanted);
        }
    }
}

impl Recorder for Tally {
    fn observation(&mut self, topology: &Topology, observation: &Observation, metrics: &MetricBank) {
        self.meet(observation);
        self.count(topology, observation);
        self.predict(topology, observation, metrics);
        if let Some(collector) = &mut self.collector {
            collector.observation(topology, observation, metrics);
        }
    }

    fn decision(&mut self, topology: &Topology, at: Nanos, placement: &Placement, applied: Applied) {
        self.summary.decisions += 1;
        self.summary.changed += u64::from(applied.changed);
        self.summary.refused += u64::from(applied.refused);
        for placed in &placement.threads {
            if self.wanted.get(&placed.thread) == Some(&placed.target) {
                continue;
            }
            self.wanted.insert(placed.thread, placed.target.clone());
            if let Some(tell) = &mut self.tell {
                let name = self.names.get(&placed.thread).map_or("?", |n| n);
                let (target, rule) = (placed.target.name(topology), &placed.reason.rule);
                tell(&format!("{:.3} s  {name} {}  to {target}: {rule}", at.as_secs_f64(), placed.thread.0));
            }
        }
        if let Some(collector) = &mut self.collector {
            collector.decision(topology, at, placement, applied);
        }
    }
}
