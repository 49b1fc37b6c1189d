//! Samples from records: counters of programs that ran alone on each core type, paired by instruction.
//!
//! Input: [`ProgramPass`]es, one for each run of a program from its first instruction on. Output: [`TrainingRow`]s, one per phase.
//! Passes of one program on one core type may count different events; the number of the window aligns them (PMCTrack, section
//! 4.1.2). Samples come by time, so the counts of a sample that spans two windows are split in proportion.

use std::collections::BTreeMap;

use countersteer_model::events::Event;
use countersteer_model::sample::{SampleRow, Samples};
use countersteer_model::topology::Topology;
use thiserror::Error;

use crate::rows::{ALWAYS, CountedInterval, EVENTS, TrainingRow, WINDOW, phases};

/// Part of a window's length below which a last window is left out.
const LEAST_WINDOW: f64 = 0.5;
/// Relative difference of instructions above which whole runs on two core types are not of the same work.
const SAME_WORK: f64 = 0.01;
/// Relative difference of branches per instruction above which windows are not of the same instructions: one run drifted.
const SAME_BRANCHES: f64 = 0.05;

/// Run of one program, alone on one core type, from its first instruction on.
#[derive(Clone, Debug)]
pub struct ProgramPass {
    pub program: String,
    /// Family; programs of one family are never on both sides of a validation.
    pub family: String,
    pub core_type: usize,
    /// Samples in order.
    pub samples: Samples,
    /// True if it ran to its end.
    pub whole: bool,
}

/// Reason for which records do not suffice.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Lack {
    #[error("no program ran on both {fast} and {slow}:{programs}", programs = listed(.programs))]
    NoPairs {
        fast: String,
        slow: String,
        /// Each with the reason for which it is left out.
        programs: Vec<String>,
    },
    #[error("no sample has both instructions and cycles on {core_type}: count them there")]
    NoCycles { core_type: String },
}

fn listed(programs: &[String]) -> String {
    programs.iter().map(|p| format!("\n  {p}")).collect()
}

/// Result of pairing passes.
#[derive(Clone, Debug, Default)]
pub struct Paired {
    pub samples: Vec<TrainingRow>,
    /// Number of windows that were paired, and of those left out since their counts drifted.
    pub windows: usize,
    pub drifted: usize,
    /// Programs that are left out, each with the reason.
    pub left_out: Vec<String>,
}

/// Pairs the passes of each program.
///
/// # Errors
/// Fails if no program can be paired, or cycles were not counted.
pub fn pair(topology: &Topology, passes: &[ProgramPass]) -> Result<Paired, Lack> {
    let names: Vec<&str> = topology
        .core_types
        .iter()
        .map(|t| t.name.as_str())
        .collect();
    let cycles = |pass: &ProgramPass| pass.samples.iter().any(|s| has_base(&s));
    for (row, name) in names.iter().enumerate() {
        let mut here = passes.iter().filter(|p| p.core_type == row).peekable();
        if here.peek().is_some() && !here.any(cycles) {
            let core_type = (*name).to_owned();
            return Err(Lack::NoCycles { core_type });
        }
    }
    let mut by_program: BTreeMap<(&str, &str), Vec<&ProgramPass>> = BTreeMap::new();
    for pass in passes {
        let program = (&*pass.program, &*pass.family);
        by_program.entry(program).or_default().push(pass);
    }
    let mut paired = Paired::default();
    for ((program, family), passes) in by_program {
        match windows(&names, &passes) {
            Ok((whole, drifted)) => {
                paired.windows += whole.len();
                paired.drifted += drifted;
                let sample = |counts| TrainingRow {
                    program: program.to_owned(),
                    families: vec![family.to_owned()],
                    counts,
                };
                paired.samples.extend(phases(whole).into_iter().map(sample));
            }
            Err(why) => paired.left_out.push(format!("{program}: {why}")),
        }
    }
    if paired.samples.is_empty() {
        let [fast, slow] = ends(&names).map(str::to_owned);
        return Err(Lack::NoPairs {
            fast,
            slow,
            programs: paired.left_out,
        });
    }
    Ok(paired)
}

fn ends<'n>(names: &[&'n str]) -> [&'n str; 2] {
    match names {
        [fast, .., slow] => [fast, slow],
        _ => ["the fastest", "the slowest core type"],
    }
}

fn has_base(sample: &SampleRow<'_>) -> bool {
    let base = [Event::Instructions, Event::Cycles];
    base.iter()
        .all(|event| sample.counts.get(*event).is_some_and(|n| n > 0.0))
}

/// Windows of a program by core type, without those that drifted, and the number of these.
fn windows(
    names: &[&str],
    passes: &[&ProgramPass],
) -> Result<(Vec<Vec<CountedInterval>>, usize), String> {
    let mut lengths: Vec<f64> = Vec::new();
    let mut by_type: Vec<Vec<WindowCounts>> = Vec::new();
    for (row, name) in names.iter().enumerate() {
        let own = || passes.iter().filter(|p| p.core_type == row);
        let merged = own().fold(Vec::new(), |all, pass| merge(all, cut(pass)));
        let extreme = row == 0 || row + 1 == names.len();
        if extreme && !merged.iter().any(WindowCounts::has_base) {
            return Err(match own().next() {
                None => format!("it has no run on {name}"),
                Some(_) => format!("no run on {name} has both instructions and cycles"),
            });
        }
        lengths.extend(own().filter(|p| p.whole).map(|p| length(p)));
        by_type.push(merged);
    }
    let least = lengths.iter().copied().fold(f64::INFINITY, f64::min);
    let most = lengths.iter().copied().fold(0.0, f64::max);
    if most > least * (1.0 + SAME_WORK) {
        return Err(format!(
            "whole runs differ from {:.1} to {:.1} million instructions: they did not do the same work",
            least / 1e6,
            most / 1e6
        ));
    }
    let extremes = by_type.first().into_iter().chain(by_type.last());
    let number = extremes.map(Vec::len).min().unwrap_or(0);
    let mut drifted = 0;
    let mut kept = Vec::new();
    for nth in 0..number {
        let at = |windows: &Vec<WindowCounts>| {
            windows
                .get(nth)
                .map(WindowCounts::counted)
                .unwrap_or_default()
        };
        let counted: Vec<CountedInterval> = by_type.iter().map(at).collect();
        if is_drifted(&counted) {
            drifted += 1;
        } else {
            kept.push(counted);
        }
    }
    if kept.is_empty() {
        return Err(format!(
            "all of its {number} windows drifted or are too short: what ran on {} is not what ran on {}",
            ends(names)[0],
            ends(names)[1]
        ));
    }
    Ok((kept, drifted))
}

/// True if branches per instruction differ between the fastest and the slowest core type, or one of them has no counts.
pub(crate) fn is_drifted(counted: &[CountedInterval]) -> bool {
    let (Some(fast), Some(slow)) = (counted.first(), counted.last()) else {
        return true;
    };
    let known = |c: &CountedInterval| c.run_ns > 0.0 && c.get(Event::Cycles).is_some();
    let branches = |c: &CountedInterval| c.ratio(Event::Branches, Event::Instructions);
    let differ = match (branches(fast), branches(slow)) {
        (Some(a), Some(b)) => (a - b).abs() > SAME_BRANCHES * a.max(b),
        _ => false,
    };
    differ || !known(fast) || !known(slow)
}

/// Counts of passes in one window.
#[derive(Clone, Debug, Default)]
pub(crate) struct WindowCounts {
    /// Part of it that was covered by samples.
    seen: f64,
    /// CPU time, and instructions in that time.
    time: (f64, f64),
    /// By event: counts, and instructions of the samples that had them. Multiplexed sets see different instructions.
    events: BTreeMap<Event, (f64, f64)>,
}

impl WindowCounts {
    pub(crate) fn has_base(&self) -> bool {
        self.time.1 > 0.0 && self.events.contains_key(&Event::Cycles)
    }

    /// Counts scaled to all of its instructions.
    pub(crate) fn counted(&self) -> CountedInterval {
        if self.time.1 <= 0.0 {
            return CountedInterval::default();
        }
        let mut counts = BTreeMap::from([(Event::Instructions, WINDOW)]);
        for (event, (count, instructions)) in &self.events {
            counts.insert(*event, count / instructions * WINDOW);
        }
        let run_ns = self.time.0 / self.time.1 * WINDOW;
        CountedInterval { counts, run_ns }
    }

    /// Adds a share of a sample.
    pub(crate) fn add(&mut self, sample: &SampleRow<'_>, share: f64) {
        let instructions = sample.counts.get(Event::Instructions).unwrap_or(0.0) * share;
        let add = |sum: &mut (f64, f64), count: f64| {
            sum.0 += count * share;
            sum.1 += instructions;
        };
        add(&mut self.time, sample.running.0 as f64);
        let others = ALWAYS.into_iter().chain(EVENTS).skip(1);
        for event in others {
            if let Some(count) = sample.counts.get(event) {
                add(self.events.entry(event).or_default(), count);
            }
        }
    }
}

/// Instructions of a sample, including those that it did not count while other sets were switched on.
fn instructions(sample: &SampleRow<'_>) -> f64 {
    let seen = sample.counts.get(Event::Instructions).unwrap_or(0.0);
    let part = sample.running.0 as f64 / sample.enabled.0.max(1) as f64;
    if part > 0.0 { seen / part } else { 0.0 }
}

fn length(pass: &ProgramPass) -> f64 {
    pass.samples.iter().map(|s| instructions(&s)).sum()
}

/// Pass cut at multiples of [`WINDOW`] instructions.
fn cut(pass: &ProgramPass) -> Vec<WindowCounts> {
    let mut windows: Vec<WindowCounts> = Vec::new();
    let mut from = 0.0;
    for sample in pass.samples.iter() {
        let own = instructions(&sample);
        if own <= 0.0 {
            continue;
        }
        let to = from + own;
        let mut at: f64 = from;
        while at < to {
            let row = (at / WINDOW) as usize;
            let end = to.min((row + 1) as f64 * WINDOW);
            windows.resize_with(windows.len().max(row + 1), WindowCounts::default);
            windows[row].seen += (end - at) / WINDOW;
            windows[row].add(&sample, (end - at) / own);
            // Rounding must not stop the progress.
            at = if end > at { end } else { to };
        }
        from = to;
    }
    while windows.len() > 1 && windows.last().is_some_and(|w| w.seen < LEAST_WINDOW) {
        windows.pop();
    }
    windows
}

/// Merges two passes window by window.
fn merge(mut all: Vec<WindowCounts>, more: Vec<WindowCounts>) -> Vec<WindowCounts> {
    all.resize_with(all.len().max(more.len()), WindowCounts::default);
    for (sum, part) in all.iter_mut().zip(more) {
        sum.seen = sum.seen.max(part.seen);
        sum.time = (sum.time.0 + part.time.0, sum.time.1 + part.time.1);
        for (event, (count, instructions)) in part.events {
            let into = sum.events.entry(event).or_default();
            *into = (into.0 + count, into.1 + instructions);
        }
    }
    all
}
