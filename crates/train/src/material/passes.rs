//! Passes from records: a pass is one run of a program alone on a core type, from its first to its last instruction.
//!
//! Input: records. Output: [`ProgramPass`]es for [`crate::records::pair`], and the machine of the records.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::moves::ThreadSamples;
use crate::records::ProgramPass;
use countersteer_lab::error::{FaultKind, failure};
use countersteer_lab::library;
use countersteer_model::engine::ThreadEventKind;
use countersteer_model::sample::{Event, Sample, SampleRow, Samples};
use countersteer_model::topology::Topology;
use countersteer_model::units::{CoreTypeId, Nanos, ThreadId};
use countersteer_report::record::Record;

/// Threshold: a program counts as single-threaded, or as bound to one core type, if at least this fraction of its instructions
/// ran there.
const NEARLY_ALL: f64 = 0.95;

/// Training data read from records.
pub(super) struct TrainingRecords {
    pub topology: Arc<Topology>,
    pub passes: Vec<ProgramPass>,
    /// Samples of threads that ran on several core types.
    pub lives: Vec<ThreadSamples>,
    /// Messages that name each omitted program and the reason.
    pub left_out: Vec<String>,
    /// Sentences about records that end early.
    pub notes: Vec<String>,
}

/// Reads records of one machine; returns an error if they are from different machines.
pub(super) fn read(records: &[PathBuf]) -> anyhow::Result<TrainingRecords> {
    let families = library::families();
    let mut machine: Option<(&Path, Arc<Topology>)> = None;
    let mut passes = Vec::new();
    let mut lives = Vec::new();
    let mut left_out = Vec::new();
    let mut notes = Vec::new();
    for path in records {
        let record = Record::load_samples(path)?;
        notes.extend(record.cut_short(path));
        let topology = record.topology()?;
        match &machine {
            Some((first, known)) if !is_same(known, &topology) => {
                let why = format!(
                    "{} is of {}, {} of {}: train on records of one machine",
                    first.display(),
                    described(known),
                    path.display(),
                    described(&topology)
                );
                return Err(failure(FaultKind::BadInput, why));
            }
            Some(_) => {}
            None => machine = Some((path, topology)),
        }
        let moved = moved(&record);
        let of = moved.into_iter().map(|(name, samples)| ThreadSamples {
            program: name.clone(),
            family: families.get(&name).cloned().unwrap_or(name),
            samples,
        });
        let of: Vec<ThreadSamples> = of.collect();
        for run in runs(&record) {
            let name = base_name(&run.name);
            match run.alone() {
                Ok(core_type) => {
                    passes.extend(run.passes(&record).into_iter().map(|(samples, whole)| {
                        ProgramPass {
                            program: name.to_owned(),
                            family: families.get(name).map_or(name, String::as_str).to_owned(),
                            core_type: core_type.index(),
                            samples,
                            whole,
                        }
                    }))
                }
                Err(_) if of.iter().any(|life| life.program == name) => {}
                Err(why) => left_out.push(format!("{name} in {}: {why}", path.display())),
            }
        }
        lives.extend(of);
    }
    let Some((first, topology)) = machine else {
        return Err(failure(FaultKind::Usage, "name records after --from"));
    };
    if topology.core_types.len() < 2 {
        let why = format!(
            "{} is of {}, which has one core type: there is nothing to compare",
            first.display(),
            topology.name
        );
        return Err(failure(FaultKind::BadInput, why));
    }
    Ok(TrainingRecords {
        topology,
        passes,
        lives,
        left_out,
        notes,
    })
}

fn is_same(a: &Topology, b: &Topology) -> bool {
    let types = |t: &Topology| -> Vec<(String, f64)> {
        let of = t.core_types.iter();
        of.map(|c| (c.name.clone(), c.freq_ghz)).collect()
    };
    a.name == b.name && types(a) == types(b)
}

fn described(topology: &Topology) -> String {
    let types = topology.core_types.iter();
    let types: Vec<String> = types
        .map(|c| format!("{} at {} GHz", c.name, c.freq_ghz))
        .collect();
    format!("{} ({})", topology.name, types.join(", "))
}

/// Removes the suffix `#N` from the name of a program's copy.
fn base_name(name: &str) -> &str {
    name.split_once('#').map_or(name, |(base, _)| base)
}

/// Returns the samples of each thread that ran on several core types, with the name of its program.
fn moved(record: &Record) -> Vec<(String, Samples)> {
    let mut names: BTreeMap<u32, &Arc<str>> = BTreeMap::new();
    names.extend(record.threads.iter().map(|row| (row.thread, &row.name)));
    let mut threads: BTreeMap<u32, Samples> = BTreeMap::new();
    for (thread, sample) in record.samples.samples.of_threads() {
        threads.entry(thread.0).or_default().push_row(sample);
    }
    let moves = |samples: &Samples| {
        let mut rows = samples.rows().windows(2);
        rows.any(|pair| pair[0].core_type != pair[1].core_type)
    };
    let moved = threads.into_iter().filter(|(_, samples)| moves(samples));
    moved
        .filter_map(|(thread, samples)| {
            let name = names.get(&thread)?;
            Some((base_name(name).to_owned(), samples))
        })
        .collect()
}

/// One program in a record.
struct RecordedRun {
    name: Arc<str>,
    /// Samples of the thread that executed most instructions, in order of time.
    samples: Samples,
    thread: ThreadId,
    /// Instructions executed by all threads of the program.
    instructions: f64,
    /// Names of the programs that ran at the same time.
    beside: BTreeSet<Arc<str>>,
}

fn retired(sample: &SampleRow<'_>) -> f64 {
    sample.counts.get(Event::Instructions).unwrap_or(0.0)
}

/// Returns the total number of instructions in samples.
fn sum(samples: &Samples) -> f64 {
    samples.iter().map(|s| retired(&s)).sum()
}

/// Returns the programs in a record that executed instructions.
fn runs(record: &Record) -> Vec<RecordedRun> {
    // A process may execute another program (`exec`), so the last recorded name applies.
    let mut owners: BTreeMap<u32, (u32, Arc<str>)> = BTreeMap::new();
    for row in &record.threads {
        owners.insert(row.thread, (row.program, Arc::clone(&row.name)));
    }
    let mut threads: BTreeMap<u32, Samples> = BTreeMap::new();
    for (thread, sample) in record.samples.samples.of_threads() {
        threads.entry(thread.0).or_default().push_row(sample);
    }
    let mut programs: BTreeMap<u32, RecordedRun> = BTreeMap::new();
    for (thread, samples) in threads {
        let own = sum(&samples);
        let Some((program, name)) = owners.get(&thread).filter(|_| own > 0.0) else {
            continue;
        };
        let run = programs.entry(*program).or_insert_with(|| RecordedRun {
            name: Arc::clone(name),
            samples: Samples::default(),
            thread: ThreadId(thread),
            instructions: 0.0,
            beside: BTreeSet::new(),
        });
        run.instructions += own;
        if own > sum(&run.samples) {
            run.name = Arc::clone(name);
            run.thread = ThreadId(thread);
            run.samples = samples;
        }
    }
    let mut runs: Vec<RecordedRun> = programs.into_values().collect();
    let spans: Vec<(Arc<str>, Nanos, Nanos)> = runs
        .iter()
        .filter_map(|r| {
            let (first, last) = (r.samples.rows().first()?, r.samples.rows().last()?);
            let begin = first.end.since(first.enabled);
            Some((Arc::clone(&r.name), begin, last.end))
        })
        .collect();
    for (row, run) in runs.iter_mut().enumerate() {
        let (_, begin, end) = &spans[row];
        let others = spans.iter().enumerate().filter(|(other, _)| *other != row);
        let beside = others.filter(|(_, (_, b, e))| b < end && begin < e);
        run.beside = beside.map(|(_, (name, ..))| Arc::clone(name)).collect();
    }
    runs
}

impl RecordedRun {
    /// Returns the core type on which the program ran alone with one thread; otherwise the reason why it did not.
    fn alone(&self) -> Result<CoreTypeId, String> {
        if !self.beside.is_empty() {
            let others: Vec<&str> = self.beside.iter().map(|n| &**n).collect();
            return Err(format!("it had co-runners: {}", others.join(", ")));
        }
        let own = sum(&self.samples);
        if own < NEARLY_ALL * self.instructions {
            return Err("several threads did its work: models are trained on one".into());
        }
        let mut by_type: BTreeMap<CoreTypeId, f64> = BTreeMap::new();
        for sample in self.samples.iter() {
            *by_type.entry(sample.core_type).or_default() += retired(&sample);
        }
        by_type
            .into_iter()
            .find(|(_, instructions)| *instructions >= NEARLY_ALL * own)
            .map(|(core_type, _)| core_type)
            .ok_or_else(|| "it ran on several core types: pin it to one".into())
    }

    /// Returns the samples of each run of the program, with a flag that is true if the run was completed.
    fn passes(&self, record: &Record) -> Vec<(Samples, bool)> {
        let exits = |e: &&countersteer_report::record::EventRow| {
            e.thread == self.thread.0 && e.kind == ThreadEventKind::Exit
        };
        let ended = record.events.iter().any(|e| exits(&e));
        let programs = &record.manifest.outcome.programs;
        let own = programs.iter().find(|p| *p.name == *self.name);
        let lengths: &[f64] = own.map_or(&[], |p| &p.completions_s);
        if lengths.is_empty() {
            return vec![(self.samples.clone(), ended)];
        }
        let mut ends = Vec::new();
        let mut at = 0.0;
        for length in lengths {
            at += length;
            ends.push(Nanos::from_secs_f64(at));
        }
        let mut parts = split(&self.samples, &ends);
        // Omits the samples after the last completed run.
        parts.truncate(ends.len());
        parts.into_iter().map(|part| (part, true)).collect()
    }
}

/// Splits samples at the times `ends`; a sample that spans such a time is divided in proportion.
fn split(samples: &Samples, ends: &[Nanos]) -> Vec<Samples> {
    let mut parts = vec![Samples::default(); ends.len() + 1];
    let mut begin = Nanos::ZERO;
    for sample in samples.iter() {
        let whole = sample.end.since(begin).0.max(1) as f64;
        let mut from = begin;
        for (row, part) in parts.iter_mut().enumerate() {
            let to = ends.get(row).map_or(sample.end, |end| sample.end.min(*end));
            if to > from {
                add_share(part, &sample, to.since(from).0 as f64 / whole);
                from = to;
            }
        }
        begin = sample.end;
    }
    parts
}

fn add_share(into: &mut Samples, sample: &SampleRow<'_>, share: f64) {
    let part = |time: Nanos| Nanos((time.0 as f64 * share) as u64);
    let head = Sample {
        enabled: part(sample.enabled),
        running: part(sample.running),
        ..**sample
    };
    let values = sample.counts.values().iter().map(|value| value * share);
    into.push_by(head, sample.counts.event_set(), values);
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersteer_model::units::CpuId;

    fn sample(at_ms: u64, instructions: f64) -> Samples {
        let end = Nanos::from_millis(at_ms);
        let ran = Nanos::from_millis(10);
        let core_type = CoreTypeId::from_index(0);
        let head = Sample::of_thread(ThreadId(1), CpuId(0), core_type, end, ran);
        Samples::of(head, 1, &[(Event::Instructions, instructions)])
    }

    #[test]
    fn a_sample_that_reaches_beyond_the_end_of_a_run_is_shared_out() {
        let samples = [sample(10, 100.0), sample(20, 200.0), sample(30, 100.0)];
        let parts = split(&samples.into_iter().collect(), &[Nanos::from_millis(15)]);
        assert_eq!(parts.len(), 2);
        assert!((sum(&parts[0]) - 200.0).abs() < 1e-9);
        assert!((sum(&parts[1]) - 200.0).abs() < 1e-9);
        assert_eq!(parts[1].rows()[0].running, Nanos::from_millis(5));
    }
}
