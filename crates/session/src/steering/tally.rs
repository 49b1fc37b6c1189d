//! The tally: CPU time of programs by core type, migrations, and the gain predicted from the policy's metrics.
//!
//! Input: the driver's observations and decisions. Output: a summary, and the outcome for a record.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use countersteer_live::LiveProgram;
use countersteer_model::driver::Recorder;
use countersteer_model::engine::{Applied, Observation, ThreadEventKind};
use countersteer_model::metric::MetricBank;
use countersteer_model::placement::{Placement, Target};
use countersteer_model::printable::printable;
use countersteer_model::sample::Event;
use countersteer_model::score::{Outcome, ProgramOutcome};
use countersteer_model::topology::Topology;
use countersteer_model::units::{Nanos, ThreadId};

use countersteer_report::record::LiveCollector;
use hdrhistogram::Histogram;

use super::ab_trial::AbTrial;
use super::summary::{EffectTimes, ProgramTally, SteeringSummary};
use super::supervisor::{DecisionText, RunControl};

/// Name of the row for threads without a known program.
const SHORT_LIVED: &str = "(ended)";

/// Longest recorded effect time of a decision; longer ones count as this.
const LONGEST_EFFECT_US: u64 = 60_000_000;

/// Callback for a line about each decision.
pub type Tell = Box<dyn FnMut(&str) + Send>;

/// Recorder that counts and passes everything on to a record.
pub struct DecisionTally {
    pub collector: Option<LiveCollector>,
    pub ab_trial: Option<AbTrial>,
    summary: SteeringSummary,
    /// Microseconds from an observation until its decision took effect.
    effects: Option<Histogram<u32>>,
    programs: BTreeMap<u32, ProgramTally>,
    /// Keeps the rows of ended programs.
    keep_ended: bool,
    program_of: BTreeMap<ThreadId, u32>,
    /// Target of each thread, and the time at which it took effect.
    wanted: BTreeMap<ThreadId, (Target, Nanos)>,
    /// Time between periodic observations.
    period: Nanos,
    /// Time of the last observation.
    seen_at: Nanos,
    /// Sums of thread speeds at current and at wanted places.
    speeds: (f64, f64),
    /// Sum and number of thread speeds under each arm of a trial.
    speeds_by_side: [(f64, f64); 2],
    /// Active arm at the last observation.
    side: Option<usize>,
    /// Reports each change at once.
    tell: Option<Tell>,
    names: BTreeMap<ThreadId, Arc<str>>,
    /// Threads that exited since the last decision.
    ended: Vec<u32>,
    control: RunControl,
}

impl DecisionTally {
    /// Creates a tally for a machine that is observed once per `period`. `tell` receives a line for each placed thread.
    pub fn new(
        topology: &Topology,
        period: Nanos,
        collector: Option<LiveCollector>,
        tell: Option<Tell>,
        control: &RunControl,
    ) -> Self {
        let core_types = topology.core_types.iter().map(|t| t.name.clone()).collect();
        let summary = SteeringSummary {
            core_types,
            ..SteeringSummary::default()
        };
        let (programs, program_of, wanted, names, ended) = Default::default();
        let (speeds, speeds_by_side, side) = Default::default();
        let keep_ended = true;
        let control = control.clone();
        let ab_trial = None;
        let seen_at = Nanos::ZERO;
        Self {
            effects: Histogram::new_with_bounds(1, LONGEST_EFFECT_US, 2).ok(),
            collector,
            ab_trial,
            period,
            seen_at,
            summary,
            programs,
            keep_ended,
            program_of,
            wanted,
            speeds,
            speeds_by_side,
            side,
            tell,
            names,
            ended,
            control,
        }
    }

    /// Merges programs that end from now on into one row, for runs without an end.
    #[must_use]
    pub const fn forgetful(mut self) -> Self {
        self.keep_ended = false;
        self
    }

    /// Returns the summary and the outcome of the workload.
    pub fn finish(
        self,
        members: &[LiveProgram],
        elapsed: Nanos,
    ) -> (SteeringSummary, Outcome, Option<LiveCollector>) {
        let predicted_gain = self.predicted_gain();
        let mut summary = self.summary;
        {
            let shared = self.control.lock();
            summary.stolen = shared.stealing.count();
            summary.dropped.clone_from(&shared.dropped);
        }
        summary.programs = self.programs.into_values().collect();
        summary.elapsed_s = elapsed.as_secs_f64();
        summary.predicted_gain = predicted_gain;
        for member in members {
            let row = summary
                .programs
                .iter()
                .position(|p| p.name == *member.name)
                .unwrap_or_else(|| {
                    // It ended before the first observation.
                    let cpu_s = vec![0.0; summary.core_types.len()];
                    summary.programs.push(ProgramTally {
                        name: member.name.to_string(),
                        cpu_s,
                        ..ProgramTally::default()
                    });
                    summary.programs.len() - 1
                });
            let program = &mut summary.programs[row];
            if let (Some(started), Some((ended, ending))) = (member.started, member.ended) {
                program.elapsed_s = Some(ended.since(started).as_secs_f64());
                program.exit_code = ending.map(|e| e.code());
            }
        }
        let programs = summary.programs.iter().map(|p| ProgramOutcome {
            name: p.name.clone(),
            nice: 0,
            completions_s: p.elapsed_s.into_iter().collect(),
            runs: None,
            alone_fast_s: 0.0,
            alone_slow_s: 0.0,
            instructions: p.instructions,
            run_instructions: 0.0,
            cycles: p.cycles,
            sampled: None,
            run_queue_latency: None,
        });
        let outcome = Outcome {
            programs: programs.collect(),
            elapsed_s: summary.elapsed_s,
            migrations: summary.migrations,
            ..Outcome::default()
        };
        (summary, outcome, self.collector)
    }

    /// Publishes the summary for the control socket.
    fn publish(&mut self, at: Nanos, placement: &Placement) {
        self.summary.elapsed_s = at.as_secs_f64();
        // The policy in a trial is compared with its prediction.
        if self.ab_trial.is_some() {
            self.summary.predicted_gain = self.predicted_gain();
        }
        let mut shared = self.control.lock();
        self.summary.stolen = shared.stealing.count();
        shared.summary.clone_from(&self.summary);
        shared.summary.programs = self.programs.values().cloned().collect();
        self.ended
            .drain(..)
            .for_each(|tid| drop(shared.words.remove(&tid)));
        for placed in &placement.threads {
            let word = DecisionText {
                placed: placed.clone(),
                program: self.names.get(&placed.thread).cloned(),
                at,
            };
            shared.words.insert(placed.thread.0, word);
        }
    }

    /// Row for threads that were forked and exited between two observations, and whose program is unknown by now.
    fn short_lived(&mut self) -> &mut ProgramTally {
        let types = self.summary.core_types.len();
        let none = || ProgramTally {
            name: SHORT_LIVED.into(),
            cpu_s: vec![0.0; types],
            ..ProgramTally::default()
        };
        self.summary.short_lived.get_or_insert_with(none)
    }

    /// Assigns an exited thread to its program. Returns false if the program is unknown.
    fn passes_by(&mut self, thread: ThreadId, program: u32) -> bool {
        let Some(tally) = self.programs.get_mut(&program) else {
            return false;
        };
        if let Entry::Vacant(vacant) = self.program_of.entry(thread) {
            vacant.insert(program);
            tally.threads += 1;
            tally.living += 1;
        }
        true
    }

    /// Adds threads that were forked and exited since the last observation, so that their exits find them. Returns the programs
    /// of threads that exited before; their samples may still arrive.
    fn passed_by(&mut self, observation: &Observation) -> BTreeMap<ThreadId, u32> {
        if observation.ended.is_empty() {
            return BTreeMap::new();
        }
        let forked = observation
            .events
            .iter()
            .filter(|e| matches!(e.kind, ThreadEventKind::New));
        let forked: BTreeSet<ThreadId> = forked.map(|e| e.thread).collect();
        let (new, known): (Vec<_>, Vec<_>) = observation
            .ended
            .iter()
            .partition(|(thread, _)| forked.contains(thread));
        new.into_iter()
            .for_each(|(thread, program)| _ = self.passes_by(thread, program.0));
        known
            .into_iter()
            .map(|(thread, program)| (thread, program.0))
            .collect()
    }

    fn meet(&mut self, observation: &Observation) {
        if self
            .program_of
            .keys()
            .eq(observation.threads.iter().map(|t| &t.id))
        {
            return;
        }
        let types = self.summary.core_types.len();
        for info in &observation.threads {
            if self.program_of.insert(info.id, info.program.0).is_some() {
                continue;
            }
            self.names.insert(info.id, Arc::clone(&info.name));
            let none = || ProgramTally {
                name: info.name.to_string(),
                cpu_s: vec![0.0; types],
                ..ProgramTally::default()
            };
            let program = self.programs.entry(info.program.0).or_insert_with(none);
            program.threads += 1;
            program.living += 1;
        }
    }

    /// Forgets an exited thread. Also forgets a program with its last thread if programs come and go without end.
    fn forget(&mut self, thread: ThreadId) {
        self.wanted.remove(&thread);
        self.names.remove(&thread);
        self.ended.push(thread.0);
        let Some(number) = self.program_of.remove(&thread) else {
            return;
        };
        let Some(program) = self.programs.get_mut(&number) else {
            return;
        };
        program.living = program.living.saturating_sub(1);
        if program.living > 0 || self.keep_ended {
            return;
        }
        if let Some(ended) = self.programs.remove(&number) {
            let sum = self.short_lived();
            sum.threads += ended.threads;
            sum.cpu_s
                .iter_mut()
                .zip(&ended.cpu_s)
                .for_each(|(sum, s)| *sum += s);
            sum.instructions += ended.instructions;
            sum.work += ended.work;
            sum.cycles += ended.cycles;
        }
    }

    fn count(&mut self, topology: &Topology, observation: &Observation) {
        let late = self.passed_by(observation);
        for (thread, sample) in observation.samples.of_threads() {
            let time = sample.ran().as_secs_f64();
            // Samples that begin too soon after the decision include time on the way; so do late ones. Events of threads cause
            // observations at any time.
            let way = Nanos(self.period.0 / 2);
            let settled = |since: Nanos| self.seen_at >= since + way && sample.end > self.seen_at;
            if let Some((target, _)) = self
                .wanted
                .get(&thread)
                .filter(|(_, since)| settled(*since))
            {
                let there = sample
                    .cpu
                    .is_some_and(|cpu| target.cpus(topology).contains(cpu));
                self.summary.misplaced.0 += u64::from(!there);
                self.summary.misplaced.1 += 1;
            }
            let number = self.program_of.get(&thread).or_else(|| late.get(&thread));
            let program = match number {
                Some(number) if self.programs.contains_key(number) => self.programs.get_mut(number),
                _ => Some(self.short_lived()),
            };
            if let Some(program) = program {
                program.cpu_s[sample.core_type.index()] += time;
                program.instructions += sample.counts.get(Event::Instructions).unwrap_or(0.0);
                program.work += sample.counts.get(Event::Work).unwrap_or(0.0);
                program.cycles += sample.counts.get(Event::Cycles).unwrap_or(0.0);
            }
        }
        let is_there = |thread: ThreadId| {
            observation
                .threads
                .binary_search_by_key(&thread, |t| t.id)
                .is_ok()
        };
        for event in &observation.events {
            match event.kind {
                ThreadEventKind::Migrate { .. } => self.summary.migrations += 1,
                ThreadEventKind::Phase => self.summary.phases += 1,
                ThreadEventKind::New if !self.program_of.contains_key(&event.thread) => {
                    // After an `exec` by a thread other than the leader, it continues under the TID of one that ended.
                    let program = observation
                        .ended
                        .iter()
                        .find(|(thread, _)| *thread == event.thread);
                    if !program.is_some_and(|(thread, program)| self.passes_by(*thread, program.0))
                    {
                        self.short_lived().threads += 1;
                    }
                }
                // Its TID may already belong to another thread, for example after an `exec` in its process.
                ThreadEventKind::Exit if !is_there(event.thread) => self.forget(event.thread),
                _ => {}
            }
        }
    }

    /// Speed gain predicted by speed-up factors: of the wanted places over the current ones. In a trial, it compares the places
    /// under the policy with those under the baseline.
    fn predicted_gain(&self) -> Option<f64> {
        let (before, after) = if self.ab_trial.is_some() {
            let [policy, baseline] = self.speeds_by_side.map(|(sum, count)| sum / count);
            (baseline, policy)
        } else {
            self.speeds
        };
        (before > 0.0 && after.is_finite()).then(|| after / before - 1.0)
    }

    /// Sums the speeds of running threads at their current and wanted places, by speed-up factors.
    fn predict(&mut self, topology: &Topology, observation: &Observation, metrics: &MetricBank) {
        let (fast, slow) = topology.extremes();
        let sf = metrics.names().iter().position(|n| n.starts_with("sf"));
        let Some(sf) = sf.filter(|_| fast != slow) else {
            return;
        };
        let side = self.ab_trial.as_ref().map(AbTrial::side);
        // Right after a change of arms, threads are still where the other arm placed them.
        let settled = std::mem::replace(&mut self.side, side) == side;
        for info in observation.threads.iter().filter(|t| t.runnable) {
            let value = metrics
                .row(info.id)
                .and_then(|row| row.get(sf).copied().flatten());
            let Some(sf) = value else { continue };
            let share = |cpu| f64::from(u8::from(topology.core_type_of(cpu) == fast));
            let speed = |fast: f64| fast.mul_add(sf - 1.0, 1.0);
            if let Some(side) = side.filter(|_| settled) {
                self.speeds_by_side[side].0 += speed(share(info.cpu));
                self.speeds_by_side[side].1 += 1.0;
            }
            let Some((target, _)) = self.wanted.get(&info.id) else {
                continue;
            };
            let cpus = target.cpus(topology);
            let wanted = cpus.iter().map(share).sum::<f64>() / cpus.len().max(1) as f64;
            self.speeds.0 += speed(share(info.cpu));
            self.speeds.1 += speed(wanted);
        }
    }
}

impl Recorder for DecisionTally {
    fn observation(
        &mut self,
        topology: &Topology,
        observation: &Observation,
        metrics: &MetricBank,
    ) {
        self.meet(observation);
        if let Some(ab_trial) = &self.ab_trial {
            ab_trial.observe(observation);
        }
        self.count(topology, observation);
        self.seen_at = observation.at;
        self.predict(topology, observation, metrics);
        let hints = observation
            .threads
            .iter()
            .filter_map(|t| Some((t.id.0, t.hint?)));
        self.control.lock().hints = hints.collect();
        if let Some(collector) = &mut self.collector {
            collector.observation(topology, observation, metrics);
            if let Some(why) = collector.trouble() {
                say!("{why}; steering continues");
            }
        }
    }

    fn is_enough(&self) -> bool {
        self.ab_trial.as_ref().is_some_and(AbTrial::is_over)
    }

    fn decision(
        &mut self,
        topology: &Topology,
        at: Nanos,
        placement: &Placement,
        applied: Applied,
    ) {
        self.summary.decisions += 1;
        self.summary.changed += u64::from(applied.changed);
        self.summary.refused += u64::from(applied.refused);
        self.summary.overruled += u64::from(applied.overruled);
        self.summary.unsupported += u64::from(applied.unsupported);
        if let Some(effects) = self.effects.as_mut().filter(|_| applied.changed > 0) {
            effects.saturating_record(applied.took.0 / 1000);
            let ms = |us: u64| us as f64 * 1e-3;
            self.summary.effect = Some(EffectTimes {
                median_ms: ms(effects.value_at_quantile(0.5)),
                p99_ms: ms(effects.value_at_quantile(0.99)),
                most_ms: ms(effects.max()),
            });
        }
        self.publish(at, placement);
        for placed in &placement.threads {
            if self
                .wanted
                .get(&placed.thread)
                .is_some_and(|(target, _)| *target == placed.target)
            {
                continue;
            }
            self.wanted
                .insert(placed.thread, (placed.target.clone(), at + applied.took));
            if let Some(tell) = &mut self.tell {
                let name = printable(self.names.get(&placed.thread).map_or("?", |n| n));
                let target = placed.target.name(topology);
                let rule = &placed.reason.rule;
                tell(&format!(
                    "{:.3} s  {name} {}  to {target}: {rule}",
                    at.as_secs_f64(),
                    placed.thread.0
                ));
            }
        }
        if let Some(collector) = &mut self.collector {
            collector.decision(topology, at, placement, applied);
        }
    }
}

#[cfg(test)]
mod tests;
