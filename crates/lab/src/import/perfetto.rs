//! Import of Perfetto traces with `sched_switch` and wake-ups from the data source `linux.ftrace`, in full or compact form, packed or
//! not.
//!
//! Field numbers and types are those of `protos/perfetto/trace/` in Perfetto's repository; all other fields are skipped.

mod others;
mod unpack;
mod wire;

use std::collections::BTreeMap;

use countersteer_model::textfile::TextError;
use prost::Message;

use self::others::OtherParts;
use self::wire::WireValue;
use super::Tasks;
use super::timeline::{SchedEvent, SchedTimeline};
use super::unpacked::UnpackedBytes;

/// Number of the field of a packet with a bundle of events.
const FTRACE: u32 = 1;
/// Number of the field of a packet with packets that zlib packed.
const ZLIB: u32 = 50;
/// Number of the field of a packet with packets that zstd packed.
const ZSTD: u32 = 133;
/// Number of the field of a packet with the id of its machine, which the host does not have.
const MACHINE: u32 = 98;

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

/// Bytes of a packet at most. The service that writes them has buffers of a few hundred kB.
const PACKET: usize = 16 << 20;
/// Bytes that the packets in a packed packet have unpacked at most.
const PACKED: u64 = 64 << 20;
/// Number of events at most. The compact form has few bytes per event, far fewer than the memory of one.
const EVENTS: usize = 1 << 25;
/// Number of machines at most, which are a host and its guests.
const MACHINES: usize = 64;

pub fn read(path: &str, bytes: Vec<u8>) -> Result<Tasks, TextError> {
    let mut reader = PerfettoReader {
        machines: BTreeMap::new(),
        others: OtherParts::default(),
        unpacked: UnpackedBytes::of(bytes.len()),
        lost: false,
    };
    let read = reader.trace(&bytes, false);
    read.and_then(|()| reader.tasks())
        .map_err(|why| TextError::value(path, why))
}

/// Events of one machine.
#[derive(Debug, Default)]
struct TracedMachine {
    timeline: SchedTimeline,
    /// Number of context switches.
    switches: u64,
    /// Next thread of the last compact row, per CPU.
    running: Vec<Option<i32>>,
}

struct PerfettoReader {
    /// Machines by their ids; 0 is the host.
    machines: BTreeMap<u32, TracedMachine>,
    others: OtherParts,
    unpacked: UnpackedBytes,
    lost: bool,
}

impl PerfettoReader {
    /// Reads packets in turn, so that the memory of one of them is enough.
    fn trace(&mut self, bytes: &[u8], is_packed: bool) -> Result<(), String> {
        let damaged = |why| format!("this is not a complete Perfetto trace: {why}");
        for field in wire::fields(bytes) {
            if let (1, WireValue::Bytes(packet)) = field.map_err(damaged)? {
                if packet.len() > PACKET {
                    return Err(damaged(format!(
                        "a packet of it has {} bytes, and none has more than {PACKET}",
                        packet.len()
                    )));
                }
                self.packet(packet, is_packed).map_err(damaged)?;
            }
        }
        Ok(())
    }

    fn packet(&mut self, packet: &[u8], is_packed: bool) -> Result<(), String> {
        // The id of the machine may be behind its events.
        let mut machine = 0;
        for field in wire::fields(packet) {
            match field? {
                (MACHINE, WireValue::Number(id)) => machine = id as u32,
                (number, _) => self.others.see_packet(number),
            }
        }
        for field in wire::fields(packet) {
            match field? {
                (FTRACE, WireValue::Bytes(bundle)) => self.bundle(machine, bundle)?,
                (ZLIB | ZSTD, _) if is_packed => {
                    return Err("packed packets are within packed packets".into());
                }
                (ZLIB, WireValue::Bytes(packed)) => {
                    let most = self.unpacked.left().min(PACKED);
                    self.packed(&unpack::zlib(packed, most)?)?;
                }
                (ZSTD, WireValue::Bytes(packed)) => {
                    let most = self.unpacked.left().min(PACKED);
                    self.packed(&unpack::zstd(packed, most)?)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn packed(&mut self, packets: &[u8]) -> Result<(), String> {
        self.unpacked.add(packets.len() as u64)?;
        self.trace(packets, true)
    }

    /// Reads a bundle of the events of one CPU.
    fn bundle(&mut self, machine: u32, bundle: &[u8]) -> Result<(), String> {
        if self.machines.len() == MACHINES && !self.machines.contains_key(&machine) {
            return Err(format!("it has more than {MACHINES} machines"));
        }
        let machine = self.machines.entry(machine).or_default();
        let mut cpu = None;
        for field in wire::fields(bundle) {
            match field? {
                (1, WireValue::Number(number)) => cpu = Some(number),
                (3, WireValue::Number(lost)) => self.lost |= lost != 0,
                _ => {}
            }
        }
        let most = countersteer_model::bounds::CPUS.most as u64;
        if let Some(cpu) = cpu.filter(|cpu| *cpu >= most) {
            return Err(format!("there is no CPU {cpu}"));
        }
        let cpu = cpu.map(|cpu| cpu as u32);
        for field in wire::fields(bundle) {
            match field? {
                (2, WireValue::Bytes(bytes)) => {
                    let event = PerfettoEvent::decode(bytes).map_err(|e| e.to_string())?;
                    if !machine.see(cpu, event) {
                        self.others.see_event(bytes)?;
                    }
                }
                (4, WireValue::Bytes(bytes)) => {
                    let rows = CompactEvents::decode(bytes).map_err(|e| e.to_string())?;
                    machine.unpack(cpu, &rows)?;
                    if machine.timeline.len() > EVENTS {
                        return Err(format!(
                            "it has more than {EVENTS} switches and wake-ups: record for a shorter time"
                        ));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Computes the tasks of the machine with most context switches.
    fn tasks(self) -> Result<Tasks, String> {
        let mut machines: Vec<_> = self.machines.into_iter().collect();
        machines.retain(|(_, machine)| machine.switches > 0);
        // The sort is stable: the host is the first of machines with equally many.
        machines.sort_by_key(|(_, machine)| std::cmp::Reverse(machine.switches));
        let mut machines = machines.into_iter();
        let Some((id, TracedMachine { mut timeline, .. })) = machines.next() else {
            return Err(NO_SWITCH.into());
        };
        let mut warnings = Vec::new();
        if self.lost {
            warnings.push("events were lost while this was recorded: times are too short".into());
        }
        if machines.len() > 0 {
            warnings.push(format!(
                "there are {} machines in this trace: the one with most switches is imported, which has id {id}",
                machines.len() + 1
            ));
        }
        for (id, machine) in machines {
            timeline.skip(format!("{} switches of machine {id}", machine.switches));
        }
        for part in self.others.names() {
            timeline.skip(part);
        }
        Ok(timeline.tasks(warnings))
    }
}

const NO_SWITCH: &str = "there is no `sched_switch` in this trace: record with the data source linux.ftrace and the event sched/sched_switch";

impl TracedMachine {
    /// Adds an event; false if it is of another kind.
    fn see(&mut self, cpu: Option<u32>, event: PerfettoEvent) -> bool {
        let timeline = &mut self.timeline;
        let is_switch = event.sched_switch.is_some();
        self.switches += u64::from(is_switch);
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
        let is_woken = woken.is_some();
        if let Some(woken) = woken {
            let tid = woken.pid.unwrap_or(0);
            timeline.name(time_ns, tid, woken.comm.as_deref().unwrap_or_default());
            timeline.priority(tid, woken.prio.unwrap_or(120));
            timeline.push(time_ns, cpu, tid, SchedEvent::Woken);
        }
        is_switch || is_woken
    }

    /// Adds the rows of the compact form. A row names only the next thread; the previous thread is the next one of the CPU's row
    /// before.
    fn unpack(&mut self, cpu: Option<u32>, compact: &CompactEvents) -> Result<(), String> {
        let rows = compact.switch_timestamp.len();
        if [
            compact.switch_next_pid.len(),
            compact.switch_prev_state.len(),
        ] != [rows; 2]
            || compact.waking_timestamp.len() != compact.waking_pid.len()
        {
            return Err("columns of its compact events have different lengths".into());
        }
        self.switches += rows as u64;
        let timeline = &mut self.timeline;
        let nth = cpu.unwrap_or(0) as usize;
        self.running.resize(self.running.len().max(nth + 1), None);
        let running = &mut self.running[nth];
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
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod build;
