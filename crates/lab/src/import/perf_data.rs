//! Import of `perf.data` files by the crate `linux-perf-data`: samples of `sched:sched_switch` and wake-ups, or switch
//! records.

use countersteer_files::caught::caught;
use countersteer_model::textfile::TextError;
use linux_perf_data::linux_perf_event_reader::{
    CommonData, ContextSwitchRecord, EventRecord, RawData, SampleRecord, TaskWasPreempted,
};
use linux_perf_data::{Endianness, PerfFileReader, PerfFileRecord};

use super::Tasks;
use super::timeline::{SchedEvent, SchedTimeline};

mod header;

pub fn detects(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PERFILE2") || bytes.starts_with(b"2ELIFREP")
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
    let mut reader = PerfDataReader {
        little_endian: perf_file.endian() == Endianness::LittleEndian,
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
        let why = "no switch of a thread is in this file: record with `perf sched record` or `perf record --switch-events`";
        return Err(TextError::value(path, why));
    }
    let mut warnings = Vec::new();
    if reader.lost > 0 {
        warnings.push(format!(
            "{} records were lost while this was recorded: times are too short",
            reader.lost
        ));
    }
    if reader.unread > 0 {
        warnings.push(format!("{} samples could not be read", reader.unread));
    }
    Ok(reader.timeline.tasks(warnings))
}

#[derive(Default)]
struct PerfDataReader {
    timeline: SchedTimeline,
    little_endian: bool,
    lost: u64,
    /// Number of samples without a time, or with fewer fields than the kernel writes.
    unread: u64,
}

impl PerfDataReader {
    fn see(&mut self, event: &str, common: &CommonData, record: EventRecord<'_>) {
        match record {
            EventRecord::Comm(comm) => {
                // Names of threads that ran before have no time.
                let time_ns = common.timestamp.unwrap_or(0);
                let name = comm.name.as_slice();
                self.timeline.name(time_ns, comm.tid, &text(&name));
            }
            EventRecord::Fork(fork) => self.inherit(fork.timestamp, fork.ptid, fork.tid),
            // A thread that is counted alone has no context switch at its exit.
            EventRecord::Exit(exit) => {
                let out = SchedEvent::Out { sleeps: false };
                self.timeline
                    .push(exit.timestamp, common.cpu, exit.tid, out);
            }
            EventRecord::Lost(lost) => self.lost = self.lost.saturating_add(lost.count),
            EventRecord::ContextSwitch(switch) => {
                if let (Some(time_ns), Some(tid)) = (common.timestamp, common.tid) {
                    self.timeline.push(time_ns, common.cpu, tid, what(&switch));
                }
            }
            EventRecord::Sample(sample) => {
                self.unread += u64::from(self.sample(event, &sample).is_none());
            }
            _ => {}
        }
    }

    /// Gives a child thread its parent's name until a record sets another.
    fn inherit(&mut self, time_ns: u64, parent: i32, child: i32) {
        if let Some(name) = self.timeline.name_of(parent) {
            self.timeline.name(time_ns, child, &name);
        }
    }

    /// Adds a tracepoint sample. Field offsets are those of Linux since 2.6.32; the first eight bytes are common to all
    /// events. `None` if the sample is incomplete.
    fn sample(&mut self, event: &str, sample: &SampleRecord<'_>) -> Option<()> {
        let time_ns = sample.timestamp?;
        let raw = sample.raw?;
        match event {
            "sched:sched_switch" => {
                let prev = self.int(raw, 24)?;
                let next = self.int(raw, 56)?;
                // Only the low 32 bits of the 64-bit state are used.
                let state = self.int(raw, if self.little_endian { 32 } else { 36 })?;
                self.timeline.name(time_ns, prev, &comm(raw, 8)?);
                self.timeline.name(time_ns, next, &comm(raw, 40)?);
                self.timeline.priority(prev, self.int(raw, 28)?);
                self.timeline.priority(next, self.int(raw, 60)?);
                let sleeps = state & 0xff != 0;
                self.timeline
                    .push(time_ns, sample.cpu, prev, SchedEvent::Out { sleeps });
                self.timeline
                    .push(time_ns, sample.cpu, next, SchedEvent::In);
            }
            "sched:sched_waking" | "sched:sched_wakeup" | "sched:sched_wakeup_new" => {
                let tid = self.int(raw, 24)?;
                self.timeline.name(time_ns, tid, &comm(raw, 8)?);
                self.timeline.priority(tid, self.int(raw, 28)?);
                self.timeline
                    .push(time_ns, sample.cpu, tid, SchedEvent::Woken);
            }
            _ => {}
        }
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
