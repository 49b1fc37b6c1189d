//! Traces that tests read.

use prost::Message;

use super::{CompactEvents, PerfettoEvent, PerfettoSwitch, Wakeup};

/// Trace to write.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct BuiltTrace {
    #[prost(message, repeated, tag = "1")]
    pub packet: Vec<Packet>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Packet {
    #[prost(message, optional, tag = "1")]
    ftrace_events: Option<Bundle>,
    #[prost(bytes = "vec", optional, tag = "50")]
    compressed_packets: Option<Vec<u8>>,
    #[prost(uint32, optional, tag = "98")]
    pub machine_id: Option<u32>,
    #[prost(bytes = "vec", optional, tag = "133")]
    zstd_compressed_packets: Option<Vec<u8>>,
}

/// Bundle of the events of one CPU.
#[derive(Clone, PartialEq, Message)]
struct Bundle {
    #[prost(uint32, optional, tag = "1")]
    cpu: Option<u32>,
    #[prost(message, repeated, tag = "2")]
    event: Vec<PerfettoEvent>,
    #[prost(message, optional, tag = "4")]
    compact_sched: Option<CompactEvents>,
}

/// Creates a trace with full events. A switch has a time, the previous thread with its state, and the next thread.
pub fn full<'a>(
    switches: impl Iterator<Item = (u64, (i32, &'a str, i64), (i32, &'a str))>,
    wakes: impl IntoIterator<Item = (u64, i32)>,
) -> BuiltTrace {
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
pub fn compact<'a>(
    switches: impl Iterator<Item = (u64, i64, i32, &'a str)>,
    wakes: impl IntoIterator<Item = (u64, i32)>,
) -> BuiltTrace {
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

fn of_bundle(bundle: Bundle) -> BuiltTrace {
    let packet = Packet {
        ftrace_events: Some(bundle),
        ..Packet::default()
    };
    BuiltTrace {
        packet: vec![packet],
    }
}

/// Creates a trace with one packed packet.
pub fn packed(zlib: Option<Vec<u8>>, zstd: Option<Vec<u8>>) -> BuiltTrace {
    let packet = Packet {
        compressed_packets: zlib,
        zstd_compressed_packets: zstd,
        ..Packet::default()
    };
    BuiltTrace {
        packet: vec![packet],
    }
}

/// Creates a trace of parts that are not used: two events of the kind `cpu_idle`, a packet of a known kind, and one of no kind.
pub fn others() -> impl Message {
    // A bundle of two events, each with a time and field 13.
    let event = [0x12, 4, 0x08, 9, 0x6a, 0];
    OtherTrace {
        packet: vec![OtherPacket {
            ftrace_events: [event, event].concat(),
            clock_snapshot: vec![1],
            unknown: 5,
        }],
    }
}

#[derive(Clone, PartialEq, Message)]
struct OtherTrace {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<OtherPacket>,
}

#[derive(Clone, PartialEq, Message)]
struct OtherPacket {
    #[prost(bytes = "vec", tag = "1")]
    ftrace_events: Vec<u8>,
    #[prost(bytes = "vec", tag = "6")]
    clock_snapshot: Vec<u8>,
    #[prost(uint32, tag = "5000")]
    unknown: u32,
}

/// Removes the states of a trace in compact form.
pub(crate) fn remove_states(trace: &mut BuiltTrace) {
    let packets = trace.packet.iter_mut();
    let bundles = packets.filter_map(|packet| packet.ftrace_events.as_mut());
    for rows in bundles.filter_map(|bundle| bundle.compact_sched.as_mut()) {
        rows.switch_prev_state.clear();
    }
}
