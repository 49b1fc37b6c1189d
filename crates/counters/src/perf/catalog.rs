//! Check of whether this machine counts an event of the event table
//! ([`countersteer_model::events`]).

use std::io;

use countersteer_model::events::EventDef;

use super::pmu::Pmus;
use super::resolve::encodings_of;
use super::sys::{self, Attr, EventScope, abi};

/// Config of the kernel's task clock, the event that leads groups.
pub(crate) const TASK_CLOCK: u64 = abi::PERF_COUNT_SW_TASK_CLOCK as u64;

/// True if this process may count events of its own threads, in the kernel too.
#[must_use]
pub fn may_count() -> bool {
    probe(abi::PERF_TYPE_SOFTWARE, TASK_CLOCK) == EventProbe::Counts
}

/// Result of a trial of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventProbe {
    Counts,
    /// The event counts in user mode only, with the present value of `kernel.perf_event_paranoid`.
    UserOnly,
    /// The machine has no counter for the event.
    NoCounter,
    /// This user may not count the event.
    Forbidden,
    /// Another error, as the system's message.
    Other(String),
}

/// Opens an event on the calling thread and closes it again. Returns whether it can be counted.
#[must_use]
pub fn probe(kind: u32, config: u64) -> EventProbe {
    let mut attr = Attr {
        kind,
        config: [config, 0, 0, 0],
        disabled: true,
        ..Attr::default()
    };
    let open = |attr: &Attr| sys::open(attr, EventScope::Thread(0, None), None).map(drop);
    let denied = |e: &io::Error| matches!(e.raw_os_error(), Some(libc::EACCES | libc::EPERM));
    let error = match open(&attr) {
        Ok(()) => return EventProbe::Counts,
        Err(e) => e,
    };
    if denied(&error) {
        attr.exclude_kernel = true;
        return if open(&attr).is_ok() {
            EventProbe::UserOnly
        } else {
            EventProbe::Forbidden
        };
    }
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => EventProbe::NoCounter,
        _ => EventProbe::Other(error.to_string()),
    }
}

/// Tries an event of the event table on every core PMU that has an encoding for it. Returns the
/// worst result.
#[must_use]
pub fn probe_event(event: &EventDef, pmus: &Pmus) -> EventProbe {
    let probes = encodings_of(event, pmus)
        .into_iter()
        .map(|encoding| probe(encoding.kind, encoding.config[0]));
    probes.max_by_key(severity).unwrap_or(EventProbe::NoCounter)
}

const fn severity(probe: &EventProbe) -> u8 {
    match probe {
        EventProbe::Counts => 0,
        EventProbe::UserOnly => 1,
        EventProbe::NoCounter => 2,
        EventProbe::Other(_) => 3,
        EventProbe::Forbidden => 4,
    }
}
