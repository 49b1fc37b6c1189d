//! Import of `perf.data` files by the crate `linux-perf-data`: samples of `sched:sched_switch` and wake-ups, or switch
//! records.

use std::collections::{BTreeMap, HashMap, HashSet};

use countersteer_files::caught::caught;
use countersteer_model::textfile::TextError;
use linux_perf_data::linux_perf_event_reader::{
    CommonData, ContextSwitchRecord, EventRecord, RawData, SampleRecord, TaskWasPreempted,
};
use linux_perf_data::{Endianness, PerfFileReader, PerfFileRecord};

use super::Tasks;
use super::timeline::{SchedEvent, SchedTimeline};

mod header;

const SWITCH: &str = "sched:sched_switch";
/// Events whose samples are used.
const USED: [&str; 4] = [
    SWITCH,
    "sched:sched_waking",
    "sched:sched_wakeup",
    "sched:sched_wakeup_new",
];
/// Name in warnings of events that have none in the file.
const NO_NAME: &str = "an event without a name";

pub fn detects(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PERFILE2") || bytes.starts_with(b"2ELIFREP")
}

/// Refuses files that were written to a pipe, are compressed, or have no header.
pub fn check(head: &[u8]) -> Result<(), String> {
    header::check(head)
}

pub fn read(path: &str, mut bytes: Vec<u8>) -> Result<Tasks, TextError> {
    let names = header::names_of_events(&mut bytes).map_err(|why| TextError::value(path, why))?;
    // Some damaged bytes make the library's 64-bit arithmetic overflow. The panic is reported as damage.
    caught(|| read_records(path, bytes, &names)).unwrap_or_else(|_| {
        let why = "damaged perf.data: its fields contradict each other";
        Err(TextError::value(path, why))
    })
}

fn read_records(path: &str, bytes: Vec<u8>, names: &[String]) -> Result<Tasks, TextError> {
    let damaged =
        |e: &dyn std::fmt::Display| TextError::value(path, format!("damaged perf.data: {e}"));
    let PerfFileReader {
        mut perf_file,
        mut record_iter,
    } = PerfFileReader::parse_file(std::io::Cursor::new(bytes)).map_err(|e| damaged(&e))?;
    let attributes = perf_file.event_attributes();
    let ids = attributes.iter().flat_map(|a| a.event_ids.iter().copied());
    let mut reader = PerfDataReader {
        little_endian: perf_file.endian() == Endianness::LittleEndian,
        // Samples of the only event of a file may have no id.
        ids: (attributes.len() > 1).then(|| ids.collect()),
        ..PerfDataReader::default()
    };
    while let Some(record) = record_iter
        .next_record(&mut perf_file)
        .map_err(|e| damaged(&e))?
    {
        let PerfFileRecord::EventRecord { attr_index, record } = record else {
            continue;
        };
        let common = record.common_data().map_err(|e| damaged(&e))?;
        let parsed = record.parse().map_err(|e| damaged(&e))?;
        let event = names.get(attr_index).map_or("", String::as_str);
        reader.see(event, &common, parsed);
    }
    if reader.timeline.is_empty() {
        return Err(TextError::value(path, reader.nothing()));
    }
    reader.end_threads();
    let mut warnings = Vec::new();
    if reader.lost > 0 {
        warnings.push(format!(
            "{} records were lost while this was recorded: times are too short",
            reader.lost
        ));
    }
    for ((event, why), count) in reader.unread {
        warnings.push(format!(
            "{count} samples of {event} could not be read: {why}"
        ));
    }
    for (event, count) in reader.others {
        reader.timeline.skip(format!("{count} x {event}"));
    }
    Ok(reader.timeline.tasks(warnings))
}

#[derive(Default)]
struct PerfDataReader {
    timeline: SchedTimeline,
    little_endian: bool,
    /// Ids of all events; `None` if there is one event only.
    ids: Option<HashSet<u64>>,
    lost: u64,
    /// Exits of threads that have not been switched out since, with their times and CPUs.
    exits: HashMap<i32, (u64, Option<u32>)>,
    /// Threads that the last sample of a switch has running; `None` without such samples.
    running: Option<HashSet<i32>>,
    /// Number of samples of each used event that could not be read, by the reason.
    unread: BTreeMap<(String, &'static str), u64>,
    /// Number of samples of each other event.
    others: BTreeMap<String, u64>,
}

const NO_ID: &str = "the ids in them are not those of an event of the file";
const NO_TIME: &str = "they have no time (record with `perf record -T`)";
const NO_FIELDS: &str = "they have no fields of the event (record with `perf record -R`)";
const SHORT: &str = "they have fewer fields than the kernel writes";

impl PerfDataReader {
    /// Returns a sentence about a file without a switch.
    fn nothing(&self) -> String {
        let mut text = "no switch of a thread is in this file".to_owned();
        for ((event, why), count) in &self.unread {
            text += &format!("; {count} samples of {event} could not be read: {why}");
        }
        if !self.others.is_empty() {
            let others = self.others.iter();
            let others: Vec<_> = others.map(|(event, n)| format!("{n} x {event}")).collect();
            text += &format!("; it has {}", others.join(", "));
        }
        text + ": record with `perf sched record` or `perf record --switch-events`"
    }

    fn see(&mut self, event: &str, common: &CommonData, record: EventRecord<'_>) {
        match record {
            EventRecord::Comm(comm) => {
                // Names of threads that ran before have no time.
                let time_ns = common.timestamp.unwrap_or(0);
                let name = comm.name.as_slice();
                self.timeline.name(time_ns, comm.tid, &text(&name));
            }
            EventRecord::Fork(fork) => self.inherit(fork.timestamp, fork.ptid, fork.tid),
            EventRecord::Exit(exit) => {
                self.exits.insert(exit.tid, (exit.timestamp, common.cpu));
            }
            EventRecord::Lost(lost) => self.lost = self.lost.saturating_add(lost.count),
            EventRecord::ContextSwitch(switch) => {
                if let (Some(time_ns), Some(tid)) = (common.timestamp, common.tid) {
                    self.push(time_ns, common.cpu, tid, what(&switch));
                }
            }
            EventRecord::Sample(sample) => {
                self.see_sample(event, &sample);
            }
            _ => {}
        }
    }

    /// Adds a switch. A thread has its last one behind its exit.
    fn push(&mut self, time_ns: u64, cpu: Option<u32>, tid: i32, what: SchedEvent) {
        self.exits.remove(&tid);
        self.timeline.push(time_ns, cpu, tid, what);
    }

    /// Ends the threads whose exit is the last that the file has of them, as of threads that perf counts alone.
    fn end_threads(&mut self) {
        for (tid, (time_ns, cpu)) in std::mem::take(&mut self.exits) {
            // Samples begin later than records of exits, and end earlier: the CPU time of other threads is unknown.
            if self.running.as_ref().is_some_and(|all| !all.contains(&tid)) {
                continue;
            }
            let out = SchedEvent::Out { sleeps: false };
            self.timeline.push(time_ns, cpu, tid, out);
        }
    }

    /// Gives a child thread its parent's name until a record sets another.
    fn inherit(&mut self, time_ns: u64, parent: i32, child: i32) {
        if let Some(name) = self.timeline.name_of(parent) {
            self.timeline.name(time_ns, child, &name);
        }
    }

    /// Adds a sample of a used event. Other samples are counted.
    fn see_sample(&mut self, event: &str, sample: &SampleRecord<'_>) {
        let has_id = |ids: &HashSet<u64>| sample.id.is_some_and(|id| ids.contains(&id));
        if !self.ids.as_ref().is_none_or(has_id) {
            count(&mut self.unread, ("an unknown event".into(), NO_ID));
        } else if !USED.contains(&event) {
            let name = if event.is_empty() { NO_NAME } else { event };
            count(&mut self.others, name.to_owned());
        } else if let Err(why) = self.see_used(event, sample) {
            count(&mut self.unread, (event.to_owned(), why));
        }
    }

    /// Adds a sample of a used event.
    ///
    /// # Errors
    /// The reason why the sample cannot be read.
    fn see_used(&mut self, event: &str, sample: &SampleRecord<'_>) -> Result<(), &'static str> {
        let time_ns = sample.timestamp.ok_or(NO_TIME)?;
        let raw = sample.raw.ok_or(NO_FIELDS)?;
        let seen = if event == SWITCH {
            self.switch(time_ns, sample.cpu, raw)
        } else {
            self.wakeup(time_ns, sample.cpu, raw)
        };
        seen.ok_or(SHORT)
    }

    /// Adds a context switch. Field offsets are those of Linux since 2.6.32; the first eight bytes are common to all events. `None` if
    /// the fields are incomplete.
    fn switch(&mut self, time_ns: u64, cpu: Option<u32>, raw: RawData<'_>) -> Option<()> {
        let prev = self.int(raw, 24)?;
        let next = self.int(raw, 56)?;
        // Only the low 32 bits of the 64-bit state are used.
        let state = self.int(raw, if self.little_endian { 32 } else { 36 })?;
        self.timeline.name(time_ns, prev, &comm(raw, 8)?);
        self.timeline.name(time_ns, next, &comm(raw, 40)?);
        self.timeline.priority(prev, self.int(raw, 28)?);
        self.timeline.priority(next, self.int(raw, 60)?);
        let sleeps = state & 0xff != 0;
        self.push(time_ns, cpu, prev, SchedEvent::Out { sleeps });
        self.push(time_ns, cpu, next, SchedEvent::In);
        let running = self.running.get_or_insert_default();
        running.remove(&prev);
        running.insert(next);
        Some(())
    }

    /// Adds a wake-up, of whose events all have the same first fields.
    fn wakeup(&mut self, time_ns: u64, cpu: Option<u32>, raw: RawData<'_>) -> Option<()> {
        let tid = self.int(raw, 24)?;
        self.timeline.name(time_ns, tid, &comm(raw, 8)?);
        self.timeline.priority(tid, self.int(raw, 28)?);
        self.timeline.push(time_ns, cpu, tid, SchedEvent::Woken);
        Some(())
    }

    fn int(&self, raw: RawData<'_>, at: usize) -> Option<i32> {
        let bytes: [u8; 4] = raw.get(at..at + 4)?.as_slice().as_ref().try_into().ok()?;
        Some(if self.little_endian {
            i32::from_le_bytes(bytes)
        } else {
            i32::from_be_bytes(bytes)
        })
    }
}

fn count<K: Ord>(counts: &mut BTreeMap<K, u64>, of: K) {
    *counts.entry(of).or_default() += 1;
}

fn what(switch: &ContextSwitchRecord) -> SchedEvent {
    match switch {
        ContextSwitchRecord::In { .. } => SchedEvent::In,
        ContextSwitchRecord::Out { preempted, .. } => SchedEvent::Out {
            sleeps: *preempted == TaskWasPreempted::No,
        },
    }
}

fn comm(raw: RawData<'_>, at: usize) -> Option<String> {
    Some(text(&raw.get(at..at + 16)?.as_slice()))
}

/// Returns the text up to the first zero byte.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
