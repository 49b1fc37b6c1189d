//! Parts of Perfetto traces that are not used: kinds of packets, and kinds of events of the kernel.

use std::collections::BTreeMap;

use super::{FTRACE, MACHINE, ZLIB, ZSTD, wire};

/// Largest number of a field that is counted by itself; packets have numbers up to 1999.
const MOST_KINDS: u32 = 2000;

/// Fields of packets that describe the packet, or mark a place in the trace.
const ABOUT_PACKET: [u32; 11] = [3, 8, 10, 13, 36, 41, 42, 58, 59, 79, 87];
/// Fields of events that all kinds have.
const ABOUT_EVENT: [u32; 3] = [1, 2, 5];

/// Numbers of packets and events that are not used, by the number of their field.
#[derive(Debug, Default)]
pub(crate) struct OtherParts {
    packets: BTreeMap<u32, u64>,
    events: BTreeMap<u32, u64>,
}

impl OtherParts {
    /// Counts a field of a packet, if it is not used.
    pub(crate) fn see_packet(&mut self, number: u32) {
        let is_used = [FTRACE, MACHINE, ZLIB, ZSTD].contains(&number);
        if !is_used && !ABOUT_PACKET.contains(&number) {
            count(&mut self.packets, number);
        }
    }

    /// Counts an event of the kernel that is not used.
    pub(crate) fn see_event(&mut self, event: &[u8]) -> Result<(), String> {
        for field in wire::fields(event) {
            let (number, _) = field?;
            if !ABOUT_EVENT.contains(&number) {
                count(&mut self.events, number);
                break;
            }
        }
        Ok(())
    }

    /// Returns the numbers with the names of their kinds.
    pub fn names(self) -> Vec<String> {
        let named = |(number, times): (u32, u64), names: &[(u32, &str)], what: &str| {
            let name = names.iter().find(|(known, _)| *known == number);
            match name {
                Some((_, name)) => format!("{times} x {name}"),
                None if number == MOST_KINDS => format!("{times} x {what} from {number} on"),
                None => format!("{times} x {what} {number}"),
            }
        };
        let packets = self.packets.into_iter();
        let packets = packets.map(|of| named(of, &PACKETS, "field of packets"));
        let events = self.events.into_iter();
        let events = events.map(|of| named(of, &EVENTS, "ftrace event"));
        packets.chain(events).collect()
    }
}

fn count(numbers: &mut BTreeMap<u32, u64>, number: u32) {
    *numbers.entry(number.min(MOST_KINDS)).or_default() += 1;
}

/// Names of packets that traces of Linux commonly have.
const PACKETS: [(u32, &str); 27] = [
    (2, "process_tree"),
    (4, "inode_file_map"),
    (5, "chrome_events"),
    (6, "clock_snapshot"),
    (7, "sys_stats"),
    (9, "process_stats"),
    (11, "track_event"),
    (12, "interned_data"),
    (33, "trace_config"),
    (34, "ftrace_stats"),
    (35, "trace_stats"),
    (37, "profile_packet"),
    (38, "battery"),
    (39, "android_log"),
    (40, "power_rails"),
    (43, "process_descriptor"),
    (44, "thread_descriptor"),
    (45, "system_info"),
    (46, "trigger"),
    (47, "packages_list"),
    (60, "track_descriptor"),
    (61, "module_symbols"),
    (66, "perf_sample"),
    (67, "cpu_info"),
    (69, "service_event"),
    (89, "trace_uuid"),
    (107, "remote_clock_sync"),
];

/// Names of events that are commonly recorded with context switches.
const EVENTS: [(u32, &str); 24] = [
    (3, "print"),
    (11, "cpu_frequency"),
    (12, "cpu_frequency_limits"),
    (13, "cpu_idle"),
    (18, "sched_blocked_reason"),
    (19, "sched_cpu_hotplug"),
    (21, "ipi_entry"),
    (22, "ipi_exit"),
    (23, "ipi_raise"),
    (24, "softirq_entry"),
    (25, "softirq_exit"),
    (26, "softirq_raise"),
    (36, "irq_handler_entry"),
    (37, "irq_handler_exit"),
    (113, "suspend_resume"),
    (235, "task_newtask"),
    (236, "task_rename"),
    (237, "sched_process_exec"),
    (238, "sched_process_exit"),
    (239, "sched_process_fork"),
    (240, "sched_process_free"),
    (242, "sched_process_wait"),
    (353, "sched_pi_setprio"),
    (491, "sched_migrate_task"),
];
