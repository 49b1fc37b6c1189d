//! Perfetto traces: a record's timeline for <https://ui.perfetto.dev>.
//!
//! Input: a [`Record`] with spans. Output: a TrackEvent protobuf with one track of slices per CPU. Each thread has a track
//! with its migrations and decisions as instants, and counters of its IPC and cache occupancy. A counting session has
//! counters of everything that was counted.

pub mod proto;

use std::collections::BTreeMap;
use std::sync::Arc;

use countersteer_model::engine::ThreadEventKind;
use countersteer_model::sample::{Event, SampleRow};
use countersteer_model::topology::Topology;
use countersteer_model::units::ThreadId;
use prost::Message;
use proto::{
    CounterDescriptor, DebugAnnotation, EventName, InternedData, ORDER_EXPLICIT, PerfettoTrace,
    TracePacket, TrackDescriptor, TrackEvent, event_type, sequence_flags,
};

use crate::counted::{CountedLine, CountedMeasure, CountedPoint, is_counted, measures};
use crate::record::{DecisionRow, KernelCpus, Record, ThreadIdentity};

/// Sequence id of all packets, since there is only one writer.
const SEQUENCE: u32 = 1;
/// Kind of the tracks of CPUs, and id of their parent track.
const CPUS: u64 = 1;
/// Kind of the tracks of threads, and id of their parent track.
const THREADS: u64 = 2;

/// Returns the id of a track; each kind of track has its own range of 2³² ids.
const fn track(kind: u64, index: u32) -> u64 {
    (kind << 32) + index as u64
}

const CPU: u64 = 1;
const THREAD: u64 = 2;
const IPC: u64 = 3;
const OCCUPANCY: u64 = 4;
/// First kind of tracks for the measures of a counting session; each measure uses one kind.
const MEASURE: u64 = 16;

/// Returns the timeline of a record as the bytes of a trace.
#[must_use]
pub fn export(record: &Record) -> Vec<u8> {
    let topology = record.topology().ok();
    let kernel = record.kernel_cpus();
    let identities = record.identities();
    let mut packets = vec![names(&identities)];
    let counted = is_counted(record);
    let measures = if counted {
        measures(record)
    } else {
        Vec::new()
    };
    packets.extend(descriptors(
        record,
        (topology.as_deref(), &kernel),
        &identities,
    ));
    packets.extend(measures.iter().zip(MEASURE..).flat_map(described));
    let mut events = slices(record);
    events.extend((record.events.iter()).filter_map(|row| move_event(&kernel, row)));
    events.extend(decisions(record, &kernel));
    if counted {
        events.extend(measures.iter().zip(MEASURE..).flat_map(values));
    } else {
        events.extend(record.samples.samples.of_threads().flat_map(counters));
    }
    // The sort is stable: at equal times, the end of a slice stays before the beginning of the next one.
    events.sort_by_key(|(at, _)| *at);
    packets.extend(events.into_iter().map(|(at, event)| TracePacket {
        timestamp: Some(at),
        track_event: Some(event),
        sequence_flags: Some(sequence_flags::NEEDS_INCREMENTAL_STATE),
        ..packet()
    }));
    PerfettoTrace { packet: packets }.encode_to_vec()
}

fn packet() -> TracePacket {
    TracePacket {
        trusted_packet_sequence_id: Some(SEQUENCE),
        ..TracePacket::default()
    }
}

/// Returns a packet with the names of all slices, which slices refer to by thread.
fn names(identities: &[ThreadIdentity]) -> TracePacket {
    let name = |t: &ThreadIdentity| EventName {
        iid: Some(iid(t.id.0)),
        name: Some(thread_name(identities, t)),
    };
    TracePacket {
        sequence_flags: Some(sequence_flags::INCREMENTAL_STATE_CLEARED),
        interned_data: Some(InternedData {
            event_names: identities.iter().map(name).collect(),
        }),
        ..packet()
    }
}

const fn iid(thread: u32) -> u64 {
    thread as u64 + 1
}

/// Returns the program's name, with the thread's id if the program has several threads.
fn thread_name(all: &[ThreadIdentity], t: &ThreadIdentity) -> String {
    let alone = all.iter().filter(|o| o.name == t.name).count() == 1;
    if alone {
        t.name.to_string()
    } else {
        format!("{} ({})", t.name, t.id.0)
    }
}

fn descriptors(
    record: &Record,
    (topology, kernel): (Option<&Topology>, &KernelCpus),
    identities: &[ThreadIdentity],
) -> Vec<TracePacket> {
    let m = &record.manifest;
    let head = format!(
        "{} on {} under {}, seed {}",
        m.workload.name, m.machine.name, m.policy, m.seed
    );
    let mut tracks = vec![
        TrackDescriptor {
            child_ordering: Some(ORDER_EXPLICIT),
            ..named(CPUS, None, 0, format!("CPUs: {head}"))
        },
        TrackDescriptor {
            child_ordering: Some(ORDER_EXPLICIT),
            ..named(THREADS, None, 1, "threads".into())
        },
    ];
    let cpus: std::collections::BTreeSet<u32> = match topology {
        Some(topology) => topology.cpus.iter().map(|c| c.id.0).collect(),
        None => record.spans.iter().map(|s| s.cpu).collect(),
    };
    for cpu in cpus {
        let core_type = topology.and_then(|t| {
            Some(
                t.core_types[t.cpus.get(cpu as usize)?.core_type.index()]
                    .name
                    .as_str(),
            )
        });
        let name = format!("CPU {} {}", kernel.cpu(cpu), core_type.unwrap_or_default());
        tracks.push(named(
            track(CPU, cpu),
            Some(CPUS),
            cpu,
            name.trim_end().into(),
        ));
    }
    for (rank, t) in identities.iter().enumerate() {
        let id = t.id.0;
        let rank = rank as u32 * 3;
        let name = thread_name(identities, t);
        tracks.push(named(track(THREAD, id), Some(THREADS), rank, name.clone()));
        if is_counted(record) {
            continue;
        }
        tracks.push(counter(
            track(IPC, id),
            rank + 1,
            format!("{name} ipc"),
            "instructions/cycle",
        ));
        tracks.push(counter(
            track(OCCUPANCY, id),
            rank + 2,
            format!("{name} llc_occupancy"),
            "bytes",
        ));
    }
    tracks
        .into_iter()
        .map(|t| TracePacket {
            track_descriptor: Some(t),
            ..packet()
        })
        .collect()
}

fn named(uuid: u64, parent_uuid: Option<u64>, rank: u32, name: String) -> TrackDescriptor {
    let sibling_order_rank = Some(i32::try_from(rank).unwrap_or(i32::MAX));
    TrackDescriptor {
        uuid: Some(uuid),
        name: Some(name),
        parent_uuid,
        sibling_order_rank,
        ..TrackDescriptor::default()
    }
}

fn counter(uuid: u64, rank: u32, name: String, unit: &str) -> TrackDescriptor {
    let counter = CounterDescriptor {
        unit: None,
        unit_name: Some(unit.into()),
    };
    TrackDescriptor {
        counter: Some(counter),
        ..named(uuid, Some(THREADS), rank, name)
    }
}

type TimedRow = (u64, TrackEvent);

fn event(kind: i32, track_uuid: u64) -> TrackEvent {
    TrackEvent {
        r#type: Some(kind),
        track_uuid: Some(track_uuid),
        ..TrackEvent::default()
    }
}

/// Returns the begin and end events of all run intervals; adjacent intervals of a thread are merged.
fn slices(record: &Record) -> Vec<TimedRow> {
    let mut spans: Vec<_> = record
        .spans
        .iter()
        .filter(|s| s.end_ns > s.start_ns)
        .copied()
        .collect();
    spans.sort_by_key(|s| (s.cpu, s.start_ns));
    let mut events = Vec::new();
    for run in spans.chunk_by(|a, b| (a.cpu, a.thread, a.end_ns) == (b.cpu, b.thread, b.start_ns)) {
        let first = run[0];
        let last = run[run.len() - 1];
        let uuid = track(CPU, first.cpu);
        let begin = TrackEvent {
            name_iid: Some(iid(first.thread)),
            ..event(event_type::SLICE_BEGIN, uuid)
        };
        events.push((first.start_ns, begin));
        events.push((last.end_ns, event(event_type::SLICE_END, uuid)));
    }
    events
}

fn move_event(kernel: &KernelCpus, row: &crate::record::EventRow) -> Option<TimedRow> {
    let ThreadEventKind::Migrate { from, to } = row.kind else {
        return None;
    };
    let [from, to] = [from, to].map(|cpu| kernel.cpu(cpu.0));
    let name = Some(format!("CPU {from} → {to}"));
    Some((
        row.at_ns,
        TrackEvent {
            name,
            ..event(event_type::INSTANT, track(THREAD, row.thread))
        },
    ))
}

/// Returns instants for the decisions that changed a placement. Decisions that repeat the previous one are omitted.
fn decisions(record: &Record, kernel: &KernelCpus) -> Vec<TimedRow> {
    let mut latest: BTreeMap<u32, &DecisionRow> = BTreeMap::new();
    let changed = record.decisions.iter().filter(|d| {
        let previous = latest.insert(d.thread, d);
        previous.is_none_or(|p| (&p.target, &p.rule) != (&d.target, &d.rule))
    });
    changed.map(|d| decision(kernel, d)).collect()
}

fn decision(kernel: &KernelCpus, d: &DecisionRow) -> TimedRow {
    let text = |name: &str, value: &str| DebugAnnotation {
        name: Some(name.into()),
        string_value: Some(value.into()),
        ..DebugAnnotation::default()
    };
    let number = |name: String, value: &f64| DebugAnnotation {
        name: Some(name),
        double_value: Some(*value),
        ..DebugAnnotation::default()
    };
    let mut notes = vec![
        text("rule", &d.rule),
        text("cpus", &kernel.list(&d.target_cpus)),
    ];
    notes.extend((d.seen.iter()).map(|(name, value)| number(format!("saw {name}"), value)));
    let could =
        |(name, value): &(Arc<str>, f64)| number(format!("could {}", kernel.group(name)), value);
    notes.extend(d.alternatives.iter().map(could));
    let target = kernel.target(&d.target, &d.target_cpus);
    let name = Some(format!("decision: {target}"));
    let uuid = track(THREAD, d.thread);
    (
        d.at_ns,
        TrackEvent {
            name,
            debug_annotations: notes,
            ..event(event_type::INSTANT, uuid)
        },
    )
}

/// Returns the descriptors of a measure's tracks, one per line.
fn described((measure, kind): (&CountedMeasure, u64)) -> Vec<TracePacket> {
    let lines = measure.lines.iter().zip(0..);
    let descriptor = |(line, nth): (&CountedLine, u32)| {
        let place = match &*line.core_type {
            "" => String::new(),
            core_type => format!(" on {core_type}"),
        };
        let name = format!("{} {}{place}", line.owner, measure.name);
        TracePacket {
            track_descriptor: Some(counter(track(kind, nth), nth, name, &measure.unit)),
            ..packet()
        }
    };
    lines.map(descriptor).collect()
}

fn values((measure, kind): (&CountedMeasure, u64)) -> Vec<TimedRow> {
    let lines = measure.lines.iter().zip(0..);
    let values = lines.flat_map(|(line, nth)| {
        let value = move |point: &CountedPoint| {
            let event = event(event_type::COUNTER, track(kind, nth));
            let double_counter_value = Some(point.value);
            (
                point.at_ns,
                TrackEvent {
                    double_counter_value,
                    ..event
                },
            )
        };
        line.points.iter().map(value)
    });
    values.collect()
}

fn counters((thread, sample): (ThreadId, SampleRow<'_>)) -> Vec<TimedRow> {
    let ipc = sample
        .counts
        .ratio(Event::Instructions, Event::Cycles)
        .map(|v| (IPC, v));
    let occupancy = sample
        .counts
        .get(Event::LlcOccupancyBytes)
        .map(|v| (OCCUPANCY, v));
    let event = |(kind, value): (u64, f64)| {
        let event = event(event_type::COUNTER, track(kind, thread.0));
        (
            sample.end.0,
            TrackEvent {
                double_counter_value: Some(value),
                ..event
            },
        )
    };
    [ipc, occupancy].into_iter().flatten().map(event).collect()
}

/// Decodes a trace into packets by track, for tests.
///
/// # Errors
/// Fails if the bytes are no trace.
pub fn decode(bytes: &[u8]) -> Result<BTreeMap<u64, Vec<TracePacket>>, prost::DecodeError> {
    let mut tracks: BTreeMap<u64, Vec<TracePacket>> = BTreeMap::new();
    for packet in PerfettoTrace::decode(bytes)?.packet {
        let of_event = packet.track_event.as_ref().and_then(|e| e.track_uuid);
        let of_track = packet.track_descriptor.as_ref().and_then(|d| d.uuid);
        tracks
            .entry(of_event.or(of_track).unwrap_or(0))
            .or_default()
            .push(packet);
    }
    Ok(tracks)
}
