//! Import of Perfetto traces with `sched_switch` and wake-ups from the data source `linux.ftrace`, in full or compact form.
//!
//! Field numbers and types are those of `protos/perfetto/trace/` in Perfetto's repository; all other fields are skipped.

use countersteer_model::textfile::TextError;
use prost::Message;

use super::Tasks;
use super::timeline::{SchedEvent, SchedTimeline};

#[derive(Clone, PartialEq, Message)]
struct ParsedTrace {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<Packet>,
}

#[derive(Clone, PartialEq, Message)]
struct Packet {
    #[prost(message, optional, tag = "1")]
    ftrace_events: Option<Bundle>,
    #[prost(bytes = "vec", optional, tag = "50")]
    compressed_packets: Option<Vec<u8>>,
}

/// Bundle of the events of one CPU.
#[derive(Clone, PartialEq, Message)]
struct Bundle {
    #[prost(uint32, optional, tag = "1")]
    cpu: Option<u32>,
    #[prost(message, repeated, tag = "2")]
    event: Vec<PerfettoEvent>,
    #[prost(bool, optional, tag = "3")]
    lost_events: Option<bool>,
    #[prost(message, optional, tag = "4")]
    compact_sched: Option<CompactEvents>,
}

#[derive(Clone, PartialEq, Message)]
struct PerfettoEvent {
    #[prost(uint64, optional, tag = "1")]
    timestamp: Option<u64>,
    #[prost(message, optional, tag = "4")]
    sched_switch: Option<PerfettoSwitch>,
    #[prost(message, optional, tag = "17")]
    sched_wakeup: Option<Wakeup>,
    #[prost(message, optional, tag = "20")]
    sched_waking: Option<Wakeup>,
    #[prost(message, optional, tag = "114")]
    sched_wakeup_new: Option<Wakeup>,
}

#[derive(Clone, PartialEq, Message)]
struct PerfettoSwitch {
    #[prost(string, optional, tag = "1")]
    prev_comm: Option<String>,
    #[prost(int32, optional, tag = "2")]
    prev_pid: Option<i32>,
    #[prost(int32, optional, tag = "3")]
    prev_prio: Option<i32>,
    #[prost(int64, optional, tag = "4")]
    prev_state: Option<i64>,
    #[prost(string, optional, tag = "5")]
    next_comm: Option<String>,
    #[prost(int32, optional, tag = "6")]
    next_pid: Option<i32>,
    #[prost(int32, optional, tag = "7")]
    next_prio: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct Wakeup {
    #[prost(string, optional, tag = "1")]
    comm: Option<String>,
    #[prost(int32, optional, tag = "2")]
    pid: Option<i32>,
    #[prost(int32, optional, tag = "3")]
    prio: Option<i32>,
}

/// Compact form of events: one column per field; times are differences from the previous row.
#[derive(Clone, PartialEq, Message)]
struct CompactEvents {
    #[prost(uint64, repeated, tag = "1")]
    switch_timestamp: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    switch_prev_state: Vec<i64>,
    #[prost(int32, repeated, tag = "3")]
    switch_next_pid: Vec<i32>,
    #[prost(int32, repeated, tag = "4")]
    switch_next_prio: Vec<i32>,
    #[prost(string, repeated, tag = "5")]
    intern_table: Vec<String>,
    #[prost(uint32, repeated, tag = "6")]
    switch_next_comm_index: Vec<u32>,
    #[prost(uint64, repeated, tag = "7")]
    waking_timestamp: Vec<u64>,
    #[prost(int32, repeated, tag = "8")]
    waking_pid: Vec<i32>,
}

/// Bit of the state of a preempted thread. Any lower bit means that the thread waits.
const PREEMPTED: i64 = 0x100;

fn sleeps(prev_state: i64) -> bool {
    prev_state & (PREEMPTED - 1) != 0
}

pub fn detects(bytes: &[u8]) -> bool {
    // A trace is a sequence of packets: field 1, length-delimited. A text file that starts with a line feed has no such lengths.
    // `bytes` is only the head of a long file.
    let mut rest = bytes;
    while let Some((&0x0a, mut behind)) = rest.split_first() {
        let Ok(length) = prost::decode_length_delimiter(&mut behind) else {
            return false;
        };
        match behind.get(length..) {
            Some(next) => rest = next,
            None => return rest.len() < bytes.len(),
        }
    }
    rest.is_empty() && !bytes.is_empty()
}

pub fn read(path: &str, bytes: Vec<u8>) -> Result<Tasks, TextError> {
    let trace = ParsedTrace::decode(&*bytes).map_err(|e| {
        TextError::value(path, format!("this is not a complete Perfetto trace: {e}"))
    })?;
    if trace.packet.iter().any(|p| p.compressed_packets.is_some()) {
        let why = "its packets are compressed: record without `compression_type`, or unpack it with `traceconv decompress_packets`";
        return Err(TextError::value(path, why));
    }
    let bundles: Vec<Bundle> = trace
        .packet
        .into_iter()
        .filter_map(|p| p.ftrace_events)
        .collect();
    let mut timeline = SchedTimeline::default();
    let lost = bundles.iter().any(|b| b.lost_events == Some(true));
    let mut running: Vec<Option<i32>> = Vec::new();
    for bundle in bundles {
        for event in bundle.event {
            see(&mut timeline, bundle.cpu, event);
        }
        if let Some(compact) = bundle.compact_sched {
            let cpu = bundle.cpu.unwrap_or(0) as usize;
            if cpu >= countersteer_model::bounds::CPUS.most as usize {
                return Err(TextError::value(path, format!("there is no CPU {cpu}")));
            }
            running.resize(running.len().max(cpu + 1), None);
            unpack(&mut timeline, bundle.cpu, &compact, &mut running[cpu]);
        }
    }
    if timeline.is_empty() {
        let why = "there is no `sched_switch` in this trace: record with the data source linux.ftrace and the event sched/sched_switch";
        return Err(TextError::value(path, why));
    }
    let lost = lost.then(|| "events were lost while this was recorded: times are too short".into());
    Ok(timeline.tasks(lost.into_iter().collect()))
}

fn see(timeline: &mut SchedTimeline, cpu: Option<u32>, event: PerfettoEvent) {
    let time_ns = event.timestamp.unwrap_or(0);
    if let Some(switch) = event.sched_switch {
        let prev = switch.prev_pid.unwrap_or(0);
        let next = switch.next_pid.unwrap_or(0);
        timeline.name(
            time_ns,
            prev,
            switch.prev_comm.as_deref().unwrap_or_default(),
        );
        timeline.name(
            time_ns,
            next,
            switch.next_comm.as_deref().unwrap_or_default(),
        );
        for (tid, priority) in [(prev, switch.prev_prio), (next, switch.next_prio)] {
            timeline.priority(tid, priority.unwrap_or(120));
        }
        let sleeps = sleeps(switch.prev_state.unwrap_or(0));
        timeline.push(time_ns, cpu, prev, SchedEvent::Out { sleeps });
        timeline.push(time_ns, cpu, next, SchedEvent::In);
    }
    let woken = event
        .sched_waking
        .or(event.sched_wakeup)
        .or(event.sched_wakeup_new);
    if let Some(woken) = woken {
        let tid = woken.pid.unwrap_or(0);
        timeline.name(time_ns, tid, woken.comm.as_deref().unwrap_or_default());
        timeline.priority(tid, woken.prio.unwrap_or(120));
        timeline.push(time_ns, cpu, tid, SchedEvent::Woken);
    }
}

/// Adds the rows of the compact form. A row names only the next thread; the previous thread is the next one of the CPU's row
/// before.
fn unpack(
    timeline: &mut SchedTimeline,
    cpu: Option<u32>,
    compact: &CompactEvents,
    running: &mut Option<i32>,
) {
    let mut time_ns = 0_u64;
    for (row, delta) in compact.switch_timestamp.iter().enumerate() {
        time_ns = time_ns.saturating_add(*delta);
        let next = compact.switch_next_pid.get(row).copied().unwrap_or(0);
        let name = compact.switch_next_comm_index.get(row);
        if let Some(name) = name.and_then(|&at| compact.intern_table.get(at as usize)) {
            timeline.name(time_ns, next, name);
        }
        if let Some(&priority) = compact.switch_next_prio.get(row) {
            timeline.priority(next, priority);
        }
        let state = compact.switch_prev_state.get(row).copied().unwrap_or(0);
        if let Some(prev) = running.replace(next) {
            let sleeps = sleeps(state);
            timeline.push(time_ns, cpu, prev, SchedEvent::Out { sleeps });
        }
        timeline.push(time_ns, cpu, next, SchedEvent::In);
    }
    let mut time_ns = 0_u64;
    for (delta, tid) in compact.waking_timestamp.iter().zip(&compact.waking_pid) {
        time_ns = time_ns.saturating_add(*delta);
        timeline.push(time_ns, cpu, *tid, SchedEvent::Woken);
    }
}

/// Creates a trace with full events. A switch has a time, the previous thread with its state, and the next thread.
#[cfg(test)]
pub(super) fn full<'a>(
    switches: impl Iterator<Item = (u64, (i32, &'a str, i64), (i32, &'a str))>,
    wakes: impl IntoIterator<Item = (u64, i32)>,
) -> impl Message {
    let switch = |(time_ns, (prev, prev_comm, state), (next, next_comm)): (
        u64,
        (i32, &str, i64),
        (i32, &str),
    )| PerfettoEvent {
        timestamp: Some(time_ns),
        sched_switch: Some(PerfettoSwitch {
            prev_comm: Some(prev_comm.into()),
            prev_pid: Some(prev),
            prev_state: Some(state),
            next_comm: Some(next_comm.into()),
            next_pid: Some(next),
            ..PerfettoSwitch::default()
        }),
        ..PerfettoEvent::default()
    };
    let wake = |(time_ns, tid)| PerfettoEvent {
        timestamp: Some(time_ns),
        sched_waking: Some(Wakeup {
            pid: Some(tid),
            ..Wakeup::default()
        }),
        ..PerfettoEvent::default()
    };
    let event = wakes
        .into_iter()
        .map(wake)
        .chain(switches.map(switch))
        .collect();
    of_bundle(Bundle {
        event,
        ..Bundle::default()
    })
}

/// Creates a trace in compact form. A switch has a time, the state of the previous thread, and the next thread.
#[cfg(test)]
pub(super) fn compact<'a>(
    switches: impl Iterator<Item = (u64, i64, i32, &'a str)>,
    wakes: impl IntoIterator<Item = (u64, i32)>,
) -> impl Message {
    let mut compact = CompactEvents::default();
    let mut last_ns = 0;
    for (row, (time_ns, state, next, name)) in switches.enumerate() {
        compact.switch_timestamp.push(time_ns - last_ns);
        compact.switch_prev_state.push(state);
        compact.switch_next_pid.push(next);
        compact.intern_table.push(name.into());
        compact.switch_next_comm_index.push(row as u32);
        last_ns = time_ns;
    }
    let mut last_ns = 0;
    for (time_ns, tid) in wakes {
        compact.waking_timestamp.push(time_ns - last_ns);
        compact.waking_pid.push(tid);
        last_ns = time_ns;
    }
    of_bundle(Bundle {
        compact_sched: Some(compact),
        ..Bundle::default()
    })
}

#[cfg(test)]
fn of_bundle(bundle: Bundle) -> ParsedTrace {
    let packet = Packet {
        ftrace_events: Some(bundle),
        compressed_packets: None,
    };
    ParsedTrace {
        packet: vec![packet],
    }
}
