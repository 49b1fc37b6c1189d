//! Residence of threads on CPUs: run intervals by thread, from spans or, without spans, estimated from
//! observations.
//!
//! Input: a [`Record`]. Output: a [`Residence`], which timelines and summaries read.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::record::Record;

/// Interval in which a thread occupied a CPU, fully or in part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ResidenceStay {
    /// Index of the program in [`Residence::programs`].
    pub(crate) program: usize,
    pub(crate) cpu: u32,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    /// Fraction of the CPU's time that the thread had; below 1 only for estimated intervals.
    pub(crate) share: f64,
}

#[derive(Clone, Debug)]
pub(crate) struct Residence {
    /// Programs of the record, in the order of their series colours.
    pub(crate) programs: Vec<Arc<str>>,
    /// Number of threads of each program.
    pub(crate) threads: Vec<usize>,
    /// Intervals in which threads occupied CPUs.
    pub(crate) stays: Vec<ResidenceStay>,
    /// True if the intervals are estimated from observations, so that events between two observations are
    /// unknown.
    pub(crate) guessed: bool,
}

impl Residence {
    /// Returns the residence of a record's threads.
    pub(crate) fn of(record: &Record) -> Self {
        let programs = super::programs(record);
        let index = |name: &str| programs.iter().position(|p| &**p == name).unwrap_or(0);
        let mut by_thread = BTreeMap::new();
        let mut threads = vec![0; programs.len()];
        for identity in record.identities() {
            let program = index(&identity.name);
            threads[program] += 1;
            by_thread.insert(identity.id.0, program);
        }
        let guessed = record.spans.is_empty();
        let stays = if guessed {
            observed(record, &by_thread)
        } else {
            traced(record, &by_thread)
        };
        Self {
            programs,
            threads,
            stays,
            guessed,
        }
    }
}

fn traced(record: &Record, programs: &BTreeMap<u32, usize>) -> Vec<ResidenceStay> {
    let stay = |s: &crate::record::SpanRow| {
        let program = *programs.get(&s.thread)?;
        (s.end_ns > s.start_ns).then_some(ResidenceStay {
            program,
            cpu: s.cpu,
            start_ns: s.start_ns,
            end_ns: s.end_ns,
            share: 1.0,
        })
    };
    record.spans.iter().filter_map(stay).collect()
}

/// Returns estimated intervals: between two observations, runnable threads are assumed to share the CPU
/// on which the second observation finds them.
fn observed(record: &Record, programs: &BTreeMap<u32, usize>) -> Vec<ResidenceStay> {
    let mut stays = Vec::new();
    let mut start_ns = 0;
    for rows in record.threads.chunk_by(|a, b| a.step == b.step) {
        let end_ns = rows[0].at_ns;
        let mut crowd: BTreeMap<u32, u32> = BTreeMap::new();
        for row in rows.iter().filter(|r| r.runnable) {
            *crowd.entry(row.cpu).or_default() += 1;
        }
        for row in rows.iter().filter(|r| r.runnable && end_ns > start_ns) {
            let Some(&program) = programs.get(&row.thread) else {
                continue;
            };
            let share = 1.0 / f64::from(crowd.get(&row.cpu).copied().unwrap_or(1));
            stays.push(ResidenceStay {
                program,
                cpu: row.cpu,
                start_ns,
                end_ns,
                share,
            });
        }
        start_ns = end_ns;
    }
    stays
}
